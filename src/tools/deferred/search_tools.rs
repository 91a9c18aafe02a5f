//! `search_tools`: finds deferred tools by words or names.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{CALL_TOOL, DeferredTool, SEARCH_TOOLS};
use crate::policy::CallKind;
use crate::tools::calls::build_tool;
use crate::tools::read_output::page_bytes;
use crate::tools::tool::{CallContext, Tool, ToolInvocation, ToolOutput};
use crate::types::CallAccess;

/// The arguments from the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Words of names and descriptions, such as "create issue", or exact names of tools.
    query: String,
    /// How many tools to return. Default: 5.
    #[schemars(range(min = 1))]
    max_results: Option<usize>,
}

struct Call {
    tools: Arc<[DeferredTool]>,
    query: String,
    most: usize,
    budget: usize,
}

/// The default and the maximum number of results.
const DEFAULT_RESULTS: usize = 5;
const MAX_RESULTS: usize = 50;

/// The maximum size of the names in the description, in bytes; the description is part of every request.
const LISTED_BYTES: usize = 6 << 10;

/// The length below which words match only whole words.
const MIN_PART: usize = 3;

/// Returns the tool; `budget` is the maximum size of a result in bytes.
pub(super) fn search_tools(tools: Arc<[DeferredTool]>, budget: Option<usize>) -> Box<dyn Tool> {
    let description = format!(
        "Finds tools that are not described here, and returns their descriptions and the JSON Schemas of their \
         arguments. Call a tool that you have found with {CALL_TOOL}. These can be found:{}",
        list_names(&tools)
    );
    let budget = page_bytes(budget);
    build_tool(SEARCH_TOOLS, &description, move |Arguments { query, max_results }| {
        let most = max_results.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
        Ok(Call { tools: Arc::clone(&tools), query, most, budget })
    })
}

/// Returns a line per server with the names of its tools, as many as fit into the server's equal share of the
/// description.
fn list_names(tools: &[DeferredTool]) -> String {
    let mut servers: Vec<&Arc<str>> = tools.iter().map(|tool| &tool.server).collect();
    servers.dedup();
    let each = LISTED_BYTES / servers.len().max(1);
    let mut text = String::new();
    for server in servers {
        let names = tools.iter().filter(|tool| tool.server == *server).map(|tool| &tool.spec.name);
        let (mut line, mut omitted) = (String::new(), 0);
        for name in names {
            if omitted > 0 || line.len() + name.len() > each {
                omitted += 1;
                continue;
            }
            let _ = write!(line, "{}{name}", if line.is_empty() { "" } else { ", " });
        }
        let _ = write!(text, "\n- {server}: {line}");
        if omitted > 0 {
            let _ = write!(text, " and {omitted} more");
        }
    }
    text
}

impl Call {
    /// Returns the tools that match the query, best first; tools of equal rank stay in order.
    fn find(&self) -> Vec<&DeferredTool> {
        let exact: BTreeSet<&str> = self.query.split([' ', ',', '\n', '\t']).collect();
        // Words of one character, such as an article, have no meaning here.
        let wanted: Vec<_> = words(&self.query).into_iter().filter(|word| word.len() > 1).collect();
        let rank = |tool: &DeferredTool| {
            if exact.contains(&*tool.spec.name) {
                return usize::MAX;
            }
            let (name, about) = (words(&tool.spec.name), words(&tool.spec.description));
            let score = |word: &String| word_rank(word, &name) * 2 + word_rank(word, &about);
            wanted.iter().map(score).sum()
        };
        let ranked = self.tools.iter().map(|tool| (rank(tool), tool));
        let mut ranked: Vec<_> = ranked.filter(|(rank, _)| *rank > 0).collect();
        ranked.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
        ranked.into_iter().map(|(_, tool)| tool).collect()
    }
}

/// Returns the rank of a match between a word and known words: as a whole word, as a part of one, or none.
fn word_rank(word: &str, known: &BTreeSet<String>) -> usize {
    let is_part = || word.len() >= MIN_PART && known.iter().any(|known| known.contains(word));
    if known.contains(word) { 4 } else { usize::from(is_part()) }
}

/// Returns the words of a text in lower case. A capital letter after a small one begins a word.
fn words(text: &str) -> BTreeSet<String> {
    let (mut spaced, mut was_small) = (String::with_capacity(text.len()), false);
    for c in text.chars() {
        if was_small && c.is_uppercase() {
            spaced.push(' ');
        }
        was_small = c.is_lowercase();
        spaced.extend(c.to_lowercase());
    }
    let words = spaced.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

impl ToolInvocation for Call {
    fn kind(&self) -> CallKind {
        CallKind::Reads
    }

    fn access(&self) -> CallAccess {
        CallAccess::Read([].into())
    }

    fn summary(&self) -> String {
        self.query.clone()
    }

    fn run(self: Box<Self>, _: &CallContext<'_>) -> ToolOutput {
        let found = self.find();
        if found.is_empty() {
            let names = list_names(&self.tools);
            return ToolOutput::ok(format!("No tool matches. The tools that can be found:{names}"));
        }
        let (mut text, mut shown) = (String::new(), 0);
        for DeferredTool { spec, .. } in found.iter().take(self.most) {
            let one = format!("{}: {}\n{}\n\n", spec.name, spec.description, spec.schema);
            // If the first one is too long, it is shortened like any other result.
            if shown > 0 && text.len() + one.len() > self.budget {
                break;
            }
            text.push_str(&one);
            shown += 1;
        }
        let _ = write!(
            text,
            "[{shown} of {} matches. To call one: {CALL_TOOL} with its name and arguments.]",
            found.len()
        );
        ToolOutput::ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call_tool::tests::tool;
    use super::*;

    fn found(query: &str) -> Vec<String> {
        let tools = [
            tool("git", "mcp_git_log", "Shows the commits."),
            tool("tracker", "mcp_tracker_createIssue", "Opens a new ticket."),
            tool("tracker", "mcp_tracker_list_issues", "Lists tickets, with their commits."),
        ];
        let call = Call { tools: tools.into(), query: query.to_owned(), most: 5, budget: 1_000 };
        call.find().into_iter().map(|tool| tool.spec.name.to_string()).collect()
    }

    #[test]
    fn tools_are_found_by_words_of_names_and_descriptions() {
        assert_eq!(found("create issue")[0], "mcp_tracker_createIssue");
        assert_eq!(found("Issues"), ["mcp_tracker_list_issues"]);
        assert_eq!(found("commits"), ["mcp_git_log", "mcp_tracker_list_issues"]);
        assert_eq!(found("ticket").len(), 2);
        assert_eq!(found("weather"), [""; 0]);
        assert_eq!(found("a"), [""; 0]);
    }

    #[test]
    fn an_exact_name_comes_first() {
        assert_eq!(found("commits,mcp_tracker_list_issues")[0], "mcp_tracker_list_issues");
    }

    #[test]
    fn the_list_of_names_is_bounded_for_each_server() {
        let many = |server: &str| {
            let name = |n| format!("mcp_{server}_{n}_{}", "x".repeat(30));
            (0..200).map(move |n| tool(server, &name(n), "")).collect::<Vec<_>>()
        };
        let text = list_names(&[many("a"), many("b")].concat());
        assert!(text.len() < LISTED_BYTES + 200, "{}", text.len());
        assert!(text.contains("\n- b: mcp_b_0_") && text.ends_with(" more"), "{text}");
    }
}
