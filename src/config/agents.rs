//! Agents: the built-in ones, those of Markdown files, and what becomes of them with the other layers.
//!
//! A Markdown file is a layer like any other: what its front matter says are the keys of `[agents.NAME]`, and its text
//! is the system prompt. The built-in agents are such files too.

use std::path::Path;
use std::sync::Arc;

use super::file::{self, Author};
use super::origin::{Document, Origin, Rank};
use super::problem::{Problem, Trouble};
use super::setting::typed_list;
use super::settings::{AgentSettings, ConfirmMode};
use super::text::Name;
use super::tree::{Node, Table, Value};

/// An agent, with everything that was left unsaid filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: Name,
    /// What it is for, in one line.
    pub description: String,
    /// Its system prompt.
    pub system_prompt: Arc<str>,
    /// The tools that it may use; `*` in a name stands for anything.
    pub allowed_tools: Vec<String>,
    /// When the user is asked.
    pub confirm_mode: ConfirmMode,
    /// Replies whose tool calls may run.
    pub max_steps: u32,
}

/// The agent that fills in what others leave unsaid.
pub(super) const FIRST: &str = "build";

/// The files of the built-in agents.
const BUILT_IN: [(&str, &str); 4] = [
    ("build.md", include_str!("agents/build.md")),
    ("plan.md", include_str!("agents/plan.md")),
    ("resume.md", include_str!("agents/resume.md")),
    ("review.md", include_str!("agents/review.md")),
];

/// The most files of agents that a folder may have.
const MOST: usize = 200;

/// Returns the layer that the built-in agents make.
pub(super) fn built_in() -> Table {
    let mut agents = Table::new();
    for (path, text) in BUILT_IN {
        let document = Document::new(path.into(), text);
        // A test reads them all, so there is nothing to be told here.
        if let Ok((name, table)) = parse(&document, &|_| Origin::DEFAULT) {
            agents.insert(name, Node::new(Value::Table(table), Origin::DEFAULT));
        }
    }
    layer(agents, Origin::DEFAULT)
}

/// Returns the layer that the Markdown files of a folder make.
pub(super) fn of_folder(
    folder: &Path,
    rank: Rank,
    author: Author,
    problems: &mut Vec<Problem>,
) -> Table {
    let mut agents = Table::new();
    for path in markdown_files(folder) {
        let unreadable = |error| vec![Problem::new(Origin::DEFAULT, Trouble::Unreadable(error))];
        let read = file::read_named(&path, author).map_err(unreadable).and_then(|document| {
            let at = |span| Origin::file(rank, &document, span);
            parse(&document, &at).map(|(name, table)| (name, table, at(0..0)))
        });
        match read {
            Ok((name, table, origin)) => {
                let node = Node::new(Value::Table(table), origin.clone());
                if agents.insert(name.clone(), node).is_some() {
                    let key = "agents".to_owned();
                    problems.push(Problem::new(origin, Trouble::Duplicate { key, name }));
                }
            }
            Err(wrong) => problems.extend(wrong),
        }
    }
    layer(agents, Origin::DEFAULT)
}

fn layer(agents: Table, origin: Origin) -> Table {
    if agents.is_empty() {
        return Table::new();
    }
    Table::from([("agents".to_owned(), Node::new(Value::Table(agents), origin))])
}

/// Returns the Markdown files of a folder by name; an unreadable folder has none.
fn markdown_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "md")).take(MOST).collect();
    paths.sort();
    paths
}

type At<'a> = dyn Fn(std::ops::Range<usize>) -> Origin + 'a;

/// Returns the name of an agent and what its file says about it.
fn parse(document: &Document, at: &At<'_>) -> Result<(String, Table), Vec<Problem>> {
    let (front, body) = split(document.text());
    let mut table = Table::new();
    let mut problems = Vec::new();
    let mut list: Option<(String, Vec<Node>)> = None;
    for (begin, line) in front {
        let span = begin..begin + line.len();
        let origin = at(span.clone());
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if let (Some(item), Some((_, items))) = (content.strip_prefix("- "), &mut list) {
            items.push(Node::new(Value::Typed(unquoted(item).to_owned()), origin));
            continue;
        }
        close(&mut table, list.take(), &origin);
        let Some((key, value)) = content.split_once(':').filter(|(key, _)| is_key(key)) else {
            let what = "expected `key: value` before the closing `---`".to_owned();
            problems.push(Problem::new(origin, Trouble::Syntax(what)));
            continue;
        };
        match value.trim() {
            "" => list = Some((key.to_owned(), Vec::new())),
            value => {
                let value = match key {
                    "allowed_tools" => typed_list(value, &origin),
                    _ => Value::Typed(unquoted(value).to_owned()),
                };
                table.insert(key.to_owned(), Node::new(value, origin));
            }
        }
    }
    close(&mut table, list, &at(0..0));
    let name = match table.remove("name").map(|node| node.value) {
        Some(Value::Typed(name)) => Some(name),
        _ => document.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()),
    };
    let name = name.filter(|name| Name::parse(name).is_some());
    if !body.trim().is_empty() {
        let value = Value::Text(body.trim().to_owned());
        table.insert("system_prompt".to_owned(), Node::new(value, at(0..0)));
    }
    match name {
        Some(name) if problems.is_empty() => Ok((name, table)),
        Some(_) => Err(problems),
        None => {
            let what = "the name of an agent has letters, digits, `-` and `_`, at most 64";
            problems.push(Problem::new(at(0..0), Trouble::Other(what.to_owned())));
            Err(problems)
        }
    }
}

/// Returns the lines of the front matter, each with where it begins, and the text behind it.
fn split(text: &str) -> (Vec<(usize, &str)>, &str) {
    let mut lines = text.split_inclusive('\n');
    let mut offset = match lines.next() {
        Some(first) if first.trim_end() == "---" => first.len(),
        _ => return (Vec::new(), text),
    };
    let mut front = Vec::new();
    for line in lines {
        if line.trim_end() == "---" {
            return (front, &text[offset + line.len()..]);
        }
        front.push((offset, line.trim_end()));
        offset += line.len();
    }
    // Without a closing line all of it is front matter, and the lines of the prompt are told to be none.
    (front, "")
}

fn close(table: &mut Table, list: Option<(String, Vec<Node>)>, origin: &Origin) {
    if let Some((key, items)) = list {
        let origin = items.first().map_or(origin, |item| &item.origin).clone();
        table.insert(key, Node::new(Value::List(items), origin));
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Tools that only read.
const READING: [&str; 6] =
    ["read_file", "list_files", "search_code", "grep", "find_files", "read_output"];

impl Agent {
    /// Returns whether the agent has no tool that may change something.
    pub fn only_reads(&self) -> bool {
        self.allowed_tools.iter().all(|tool| READING.contains(&tool.as_str()))
    }

    /// Returns an agent; what it leaves unsaid is as with the first agent.
    pub(super) fn new(
        name: Name,
        own: &AgentSettings,
        first: &AgentSettings,
        max_steps: u32,
    ) -> Self {
        let prompt = own.system_prompt.as_deref().or(first.system_prompt.as_deref());
        let tools = own.allowed_tools.as_ref().or(first.allowed_tools.as_ref());
        Self {
            name,
            description: own.description.clone().unwrap_or_default(),
            system_prompt: prompt.unwrap_or_default().into(),
            allowed_tools: tools.cloned().unwrap_or_default(),
            confirm_mode: own
                .confirm_mode
                .or(first.confirm_mode)
                .unwrap_or(ConfirmMode::ConfirmSensitive),
            max_steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, String), Vec<String>> {
        let document = Document::new("x/helper.md".into(), text);
        match parse(&document, &|span| Origin::file(Rank::User, &document, span)) {
            Ok((name, table)) => Ok((name, Value::Table(table).to_string())),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn the_built_in_agents_are_all_there_and_say_everything() {
        let Value::Table(agents) = &built_in()["agents"].value else { panic!() };
        assert_eq!(agents.keys().collect::<Vec<_>>(), ["build", "plan", "resume", "review"]);
        for (name, agent) in agents {
            let Value::Table(agent) = &agent.value else { panic!() };
            for key in ["description", "system_prompt", "allowed_tools", "confirm_mode"] {
                assert!(agent.contains_key(key), "{name} {key}");
            }
        }
    }

    #[test]
    fn front_matter_is_read_in_each_of_its_spellings() {
        let text = "---\nname: \"a-b\"\n# why\nallowed_tools:\n  - grep\n  - 'read_file'\n\
                    max_steps: 3\n---\n\nBe brief.\n";
        let table = "{ allowed_tools = [\"grep\", \"read_file\"], max_steps = \"3\", \
                     system_prompt = \"Be brief.\" }";
        assert_eq!(read(text), Ok(("a-b".to_owned(), table.to_owned())));
        for list in ["[grep, read_file]", "grep, read_file", "[\"grep\", \"read_file\"]"] {
            let (_, table) = read(&format!("---\nallowed_tools: {list}\n---\n")).unwrap();
            assert!(table.contains("grep\", \"read_file"), "{table}");
        }
    }

    #[test]
    fn without_front_matter_all_is_the_prompt_and_the_file_is_the_name() {
        let table = "{ system_prompt = \"Be brief.\" }";
        assert_eq!(read("Be brief."), Ok(("helper".to_owned(), table.to_owned())));
    }

    #[test]
    fn what_is_no_front_matter_is_told_with_its_line() {
        assert_eq!(
            read("---\nname: a b\nwhat is this\n---\n").unwrap_err(),
            [
                "x/helper.md:3:1: expected `key: value` before the closing `---`",
                "x/helper.md:1:1: the name of an agent has letters, digits, `-` and `_`, at most 64"
            ]
        );
        assert!(read("---\nname: a\nBe brief.\n").is_err());
    }
}
