//! Agents: the built-in ones, those in Markdown files, and how they combine with the other layers.
//!
//! A Markdown file is a layer like any other: its front matter holds the keys of `[agents.NAME]`, and its text
//! is the system prompt. The built-in agents are such files too.

use std::path::Path;
use std::sync::Arc;

use super::checked_file::{self, ConfigFileError, FileOwner};
use super::effective::ReadReport;
use super::layers;
use super::origin::{ConfigDocument, ValueOrigin};
use super::problem::ProblemKind;
use super::setting_value::parse_list;
use super::settings::AgentConfig;
use super::text_types::ConfigName;
use super::toml_document::OriginAt;
use super::value_tree::{self, ConfigNode, ConfigTable, ConfigValue};
use crate::policy::CallKind;
use crate::tools::describe;
use crate::types::{ConfirmMode, Isolation};

/// An agent, with defaults for everything that is not set.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentDefinition {
    /// The unique name.
    pub name: ConfigName,
    /// The purpose, in one line.
    pub description: String,
    /// The system prompt.
    pub system_prompt: Arc<str>,
    /// The tools that the agent may use; `*` in a name matches any text.
    pub allowed_tools: Vec<String>,
    /// The tool calls that need the user's confirmation.
    pub confirm_mode: ConfirmMode,
    /// The working folder of the agent when it is dispatched.
    pub isolation: Isolation,
    /// The maximum number of replies whose tool calls run.
    pub max_steps: u32,
}

/// The agent whose settings are the defaults of the others.
pub(super) const DEFAULT_AGENT: &str = "build";

/// The files of the built-in agents.
const BUILT_IN: [(&str, &str); 4] = [
    ("build.md", include_str!("agents/build.md")),
    ("plan.md", include_str!("agents/plan.md")),
    ("resume.md", include_str!("agents/resume.md")),
    ("review.md", include_str!("agents/review.md")),
];

/// The prefix in the names of the tools of MCP servers.
const SERVER_TOOLS: &str = "mcp_";

/// The maximum number of agent files read from a folder.
const MAX_AGENT_FILES: usize = 200;

/// Returns the layer of the built-in agents.
pub(super) fn built_in_layer() -> ConfigTable {
    let mut agents = ConfigTable::new();
    for (path, text) in BUILT_IN {
        let document = ConfigDocument::new(path.into(), text);
        // A test reads all of these files, so there is nothing to report here.
        let mut report = ReadReport::default();
        add_agent(&mut agents, &document, &|_| ValueOrigin::DEFAULT, &mut report);
    }
    agents_layer(agents)
}

/// Returns the layer of the Markdown files in a folder.
pub(super) fn folder_layer(
    folder: &Path,
    owner: FileOwner,
    report: &mut ReadReport,
) -> ConfigTable {
    let mut agents = ConfigTable::new();
    for path in layers::files_in(folder, "md").into_iter().take(MAX_AGENT_FILES) {
        let read = checked_file::read_file(&path, owner);
        match read.and_then(|found| found.ok_or(ConfigFileError::Missing(path))) {
            Ok(document) => {
                let at = |span| ValueOrigin::in_file(owner.rank(), &document, span);
                add_agent(&mut agents, &document, &at, report);
            }
            Err(error) => report.problem(ValueOrigin::DEFAULT, ProblemKind::Unreadable(error)),
        }
    }
    agents_layer(agents)
}

fn agents_layer(agents: ConfigTable) -> ConfigTable {
    let mut layer = ConfigTable::new();
    if !agents.is_empty() {
        let agents = ConfigValue::Table(agents);
        value_tree::insert_at_path(&mut layer, "agents", agents, &ValueOrigin::DEFAULT);
    }
    layer
}

/// Adds the agent of a file: its front matter, and its text as the system prompt.
fn add_agent(
    agents: &mut ConfigTable,
    document: &ConfigDocument,
    at: &OriginAt<'_>,
    report: &mut ReadReport,
) {
    let earlier_problems = report.problems.len();
    let (front, body) = split_front_matter(document.text());
    let mut table = parse_front_matter(front, at, report);
    let name = match table.remove("name").map(|node| node.value) {
        Some(ConfigValue::Untyped(name)) => name,
        _ => document.path().file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let body = body.trim();
    if !body.is_empty() {
        let value = ConfigValue::Text(body.to_owned());
        table.insert("system_prompt".to_owned(), ConfigNode::new(value, at(0..0)));
    }
    if ConfigName::parse(&name).is_none() {
        let what = "the name of an agent has letters, digits, `-` and `_`, at most 64";
        report.problem(at(0..0), ProblemKind::Other(what.to_owned()));
    }
    if report.problems.len() > earlier_problems {
        return;
    }
    let node = ConfigNode::new(ConfigValue::Table(table), at(0..0));
    if agents.insert(name.clone(), node).is_some() {
        report.problem(at(0..0), ProblemKind::duplicate("agents", &name));
    }
}

/// Parses the lines of a front matter, each with its offset: `key: value`, and lists of `- item` below their key.
fn parse_front_matter(
    lines: Vec<(usize, &str)>,
    at: &OriginAt<'_>,
    report: &mut ReadReport,
) -> ConfigTable {
    let mut table = ConfigTable::new();
    let mut list: Option<&str> = None;
    for (begin, line) in lines {
        let origin = at(begin..begin + line.len());
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let text = |text: &str| ConfigValue::Untyped(unquote(text).to_owned());
        if let (Some(item), Some(key)) = (content.strip_prefix("- "), list) {
            if let Some(ConfigValue::List(items)) = table.get_mut(key).map(|node| &mut node.value) {
                items.push(ConfigNode::new(text(item), origin));
            }
            continue;
        }
        let Some((key, value)) = content.split_once(':').filter(|(key, _)| is_key(key)) else {
            let what = "expected `key: value` before the closing `---`".to_owned();
            report.problem(origin, ProblemKind::Syntax(what));
            list = None;
            continue;
        };
        list = value.trim().is_empty().then_some(key);
        let value = match (key, value.trim()) {
            (_, "") => ConfigValue::List(Vec::new()),
            ("allowed_tools", value) => parse_list(value, &origin),
            (_, value) => text(value),
        };
        table.insert(key.to_owned(), ConfigNode::new(value, origin));
    }
    table
}

/// Returns the lines of the front matter, each with its offset, and the text after it.
fn split_front_matter(text: &str) -> (Vec<(usize, &str)>, &str) {
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
    // Without a closing line, everything is front matter, and the lines of the prompt are reported as invalid.
    (front, "")
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

/// Returns the key from which an agent's key takes its value while it is not set. Covers only keys that an untrusted
/// project can change.
pub(super) fn inherited_key(path: &str) -> Option<String> {
    let (_, key) = path.strip_prefix("agents.")?.split_once('.')?;
    match key {
        "max_steps" => Some("limits.max_steps".to_owned()),
        "allowed_tools" | "confirm_mode" => Some(format!("agents.{DEFAULT_AGENT}.{key}")),
        _ => None,
    }
}

impl AgentDefinition {
    /// Returns whether the agent has no tool that can change anything.
    pub fn is_read_only(&self) -> bool {
        self.allowed_tools
            .iter()
            .all(|tool| describe(tool).is_some_and(|tool| tool.kind() == CallKind::Reads))
    }

    /// Returns whether the agent has tools of MCP servers.
    pub fn has_server_tools(&self) -> bool {
        self.allowed_tools.iter().any(|tool| tool.starts_with(SERVER_TOOLS))
    }

    /// Returns the agent without tools of MCP servers.
    pub fn without_server_tools(mut self) -> Self {
        self.allowed_tools.retain(|tool| !tool.starts_with(SERVER_TOOLS));
        self
    }

    /// Returns an agent; `first` supplies the defaults.
    pub(super) fn new(
        name: ConfigName,
        own: &AgentConfig,
        first: &AgentConfig,
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
            isolation: own.isolation.or(first.isolation).unwrap_or_default(),
            max_steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::LayerRank;

    fn parse_text(text: &str) -> Result<(String, String), Vec<String>> {
        let document = ConfigDocument::new("x/helper.md".into(), text);
        let at = |span| ValueOrigin::in_file(LayerRank::User, &document, span);
        let (mut agents, mut report) = (ConfigTable::new(), ReadReport::default());
        add_agent(&mut agents, &document, &at, &mut report);
        let agent = agents.pop_first().map(|(name, agent)| (name, agent.value.to_string()));
        agent.ok_or_else(|| report.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_built_in_agents_set_every_key() {
        let ConfigValue::Table(agents) = &built_in_layer()["agents"].value else { panic!() };
        assert_eq!(agents.keys().collect::<Vec<_>>(), ["build", "plan", "resume", "review"]);
        for (name, agent) in agents {
            let ConfigValue::Table(agent) = &agent.value else { panic!() };
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
        assert_eq!(parse_text(text), Ok(("a-b".to_owned(), table.to_owned())));
        for list in ["[grep, read_file]", "grep, read_file", "[\"grep\", \"read_file\"]"] {
            let (_, table) = parse_text(&format!("---\nallowed_tools: {list}\n---\n")).unwrap();
            assert!(table.contains("grep\", \"read_file"), "{table}");
        }
    }

    #[test]
    fn without_front_matter_all_is_the_prompt_and_the_file_is_the_name() {
        let table = "{ system_prompt = \"Be brief.\" }";
        assert_eq!(parse_text("Be brief."), Ok(("helper".to_owned(), table.to_owned())));
    }

    #[test]
    fn invalid_front_matter_is_reported_with_its_line() {
        assert_eq!(
            parse_text("---\nname: a b\nwhat is this\n---\n").unwrap_err(),
            [
                "x/helper.md:3:1: expected `key: value` before the closing `---`",
                "x/helper.md:1:1: the name of an agent has letters, digits, `-` and `_`, at most 64"
            ]
        );
        assert!(parse_text("---\nname: a\nBe brief.\n").is_err());
    }
}
