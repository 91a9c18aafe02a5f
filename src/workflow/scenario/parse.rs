//! Parsing scenarios.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use toml::Spanned;
use toml::de::DeTable;

use super::expectations::Expectations;
use super::scheduled_action::{ScheduledAction, ScheduledActionToml};
use crate::config::SandboxConfig;
use crate::llm::PlaybackError;
use crate::llm::model_table::PriceRow;
use crate::llm::scripted::{Script, ScriptedTurn};
use crate::policy::ConfirmationAnswer;
use crate::types::Tokens;
use crate::workspace::read_input;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The path of its file.
    pub path: PathBuf,
    /// The content of its file.
    pub content: ScenarioContent,
    /// Whether the user trusts its settings: others can't loosen the confinement.
    pub is_trusted: bool,
    /// The user's own settings of the sandbox: those about the network and a missing sandbox hold for scenarios, too.
    pub own_sandbox: Option<SandboxConfig>,
    /// The script of the model.
    pub(super) script: Script,
    /// The text of the file before the expectations.
    text_before_expect: String,
}

/// The content of a scenario's file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Scenario", description = "A file of `architect test`.")]
pub struct ScenarioContent {
    /// A description.
    pub about: Option<String>,
    /// The task.
    pub prompt: String,
    /// The agent.
    #[serde(default = "default_agent")]
    pub agent: String,
    /// The confirmation mode, as for `--mode`.
    pub mode: Option<String>,
    /// Whether changes are only reported, and not made.
    #[serde(default)]
    pub dry_run: bool,
    /// The clock.
    #[serde(default)]
    pub time: ScenarioClock,
    /// The answer to every request for confirmation; without an answer, there is no user.
    pub confirm: Option<ConfirmationAnswer>,
    /// Settings, in the form of `--set`.
    #[serde(default)]
    pub sets: Vec<String>,
    /// The text of a configuration file.
    pub config: Option<String>,
    /// The JSON Schema of the answer.
    pub schema: Option<Value>,
    /// The files of the workspace.
    #[serde(default)]
    pub workspace: BTreeMap<String, String>,
    /// Whether the turns start over after the last one.
    #[schemars(with = "Option<bool>")]
    repeat: Option<Value>,
    /// The price of the model in dollars per million tokens.
    #[schemars(with = "Option<PriceRow>")]
    price: Option<Value>,
    /// The context window in tokens.
    #[schemars(with = "Option<Tokens>")]
    window: Option<Value>,
    /// The output limit in tokens.
    #[schemars(with = "Option<Tokens>")]
    max_output: Option<Value>,
    /// The replies of the model, one for each call.
    #[serde(default)]
    #[schemars(with = "Vec<ScriptedTurn>")]
    turn: Vec<Spanned<Value>>,
    /// The actions at events.
    #[serde(default, rename = "at")]
    #[schemars(with = "Vec<ScheduledActionToml>")]
    pub actions: Vec<ScheduledAction>,
    /// The expectations.
    #[serde(default)]
    pub expect: Expectations,
}

fn default_agent() -> String {
    "build".to_owned()
}

/// The clock of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioClock {
    /// A clock that advances only by waiting; effects run one after the other.
    #[default]
    Virtual,
    /// The clock of the machine, and threads: for the effect of a command while something else happens.
    Real,
}

/// An error while loading a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("could not read {}: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: String,
    },
    /// A line is invalid.
    #[error("{}:{line}: {cause}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// The description of the error.
        cause: String,
    },
}

/// Returns the JSON Schema of scenario files.
pub fn scenario_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ScenarioContent>().to_value()
}

/// The key of the expectations.
const EXPECT: &str = "expect";

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or is not a scenario.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = read_input(path).map_err(|error| ScenarioError::Unreadable {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        Self::parse(path, &text)
    }

    /// Parses a scenario. `path` is the name of the file in errors.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a scenario.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let wrong =
            |line, cause: String| ScenarioError::Malformed { path: path.to_owned(), line, cause };
        let content: ScenarioContent = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_number(text, span.start));
            wrong(line, error.message().to_owned())
        })?;
        let script = parse_script(&content, text).map_err(|(line, cause)| wrong(line, cause))?;
        let (expect, behind) = find_expectations(text);
        if let Some(behind) = behind {
            let section = text[behind..].lines().next().unwrap_or_default();
            let cause = format!("[expect] has to be the last section, before {section}");
            return Err(wrong(line_number(text, expect), cause));
        }
        let head = &text[..expect];
        let text_before_expect = head.to_owned();
        let path = path.to_owned();
        let own_sandbox = None;
        Ok(Self { path, content, is_trusted: false, own_sandbox, script, text_before_expect })
    }

    /// Returns the text of the file with other expectations.
    pub fn with_expectations(&self, expect: &Expectations) -> String {
        format!("{}\n\n{}", self.text_before_expect.trim_end(), expectations_toml(expect))
    }
}

/// Returns expectations as TOML.
pub(super) fn expectations_toml(expect: &Expectations) -> String {
    // Expectations can always be serialized to TOML.
    let table = without_nulls(json!({ EXPECT: expect }));
    toml::to_string_pretty(&table).unwrap_or_default()
}

/// Returns the start of the expectations, by default the end of the text, and the start of a later section if any.
fn find_expectations(text: &str) -> (usize, Option<usize>) {
    let Ok(table) = DeTable::parse(text) else { return (text.len(), None) };
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let (mut begin, mut others) = (text.len(), Vec::new());
    for (key, value) in table.get_ref() {
        if key.get_ref().as_ref() == EXPECT {
            begin = line_start(key.span().start);
        } else {
            others.push(key.span().start);
            // Sections of one key may be apart.
            let items = value.get_ref().as_array().into_iter().flat_map(|items| items.iter());
            others.extend(items.map(|item| item.span().start));
        }
    }
    let behind = others.into_iter().filter(|at| *at > begin).min();
    (begin, behind.map(line_start))
}

/// Parses the turns as a script.
fn parse_script(whole: &ScenarioContent, text: &str) -> Result<Script, (usize, String)> {
    let mut lines = Vec::new();
    let settings = without_nulls(json!({
        "repeat": whole.repeat,
        "price": whole.price,
        "window": whole.window,
        "max_output": whole.max_output,
    }));
    let mut starts = Vec::new();
    if settings != json!({}) {
        lines.push(settings.to_string());
        starts.push(1);
    }
    for turn in &whole.turn {
        lines.push(turn.get_ref().to_string());
        starts.push(line_number(text, turn.span().start));
    }
    Script::from_lines("the scenario", &lines.join("\n")).map_err(|error| match error {
        PlaybackError::Malformed { line, cause, .. } => {
            // The rest of the message is a position in a generated line, which the user doesn't have.
            let cause = cause.split(" at line ").next().unwrap_or_default().to_owned();
            (starts.get(line.saturating_sub(1)).copied().unwrap_or(1), cause)
        }
        PlaybackError::Unreadable { cause, .. } => (1, cause),
    })
}

/// Removes fields without a value, which TOML can't express.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

fn line_number(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Scenario::parse(Path::new("s.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let turn = "[[turn]]\ntext = 'a'\n";
        assert!(refused("promt = 'x'\n").starts_with("s.toml:1: unknown field `promt`"));
        assert!(refused(turn).contains("missing field `prompt`"));
        assert_eq!(refused("prompt = 'x'\n"), "s.toml:1: the script has no turns");
        let text = format!("prompt = 'x'\n{turn}[[turn]]\nsay = 'b'\n");
        assert!(refused(&text).starts_with("s.toml:4: unknown field `say`"), "{}", refused(&text));
        let text = format!("prompt = 'x'\n{turn}[[at]]\nevent = 'tool_call'\nsteer = 'b'\n");
        assert!(
            refused(&text).starts_with("s.toml:5: there is no event `tool_call`"),
            "{}",
            refused(&text)
        );
        let text = format!("prompt = 'x'\n{turn}[[at]]\nevent = 'retry'\n");
        assert!(refused(&text).starts_with("s.toml:4: one of steer"), "{}", refused(&text));
        let text = format!("prompt = 'x'\n[expect]\nexit_code = 0\n{turn}");
        let expected = "s.toml:2: [expect] has to be the last section, before [[turn]]";
        assert_eq!(refused(&text), expected);
    }

    /// The text of a result may look like a section.
    #[test]
    fn a_text_that_looks_like_a_section_is_not_one() {
        let head = "prompt = 'x'\n[[turn]]\ntext = \"\"\"\n[expect]\n[x]\"\"\"\n";
        let text = format!("{head}\n[expect]\noutput = \"\"\"\n[stderr]\nx\"\"\"\n");
        let scenario = Scenario::parse(Path::new("s.toml"), &text).unwrap();
        assert_eq!(scenario.text_before_expect.trim_end(), head.trim_end());
    }

    #[test]
    fn other_expectations_leave_the_rest_of_the_file_as_it_is() {
        let head = "# why\nprompt = 'x' # note\n\n[[turn]]\ntext = 'a'\n";
        let text = format!("{head}\n[expect]\nexit_code = 7\n");
        let scenario = Scenario::parse(Path::new("s.toml"), &text).unwrap();
        let expect = Expectations { exit_code: Some(0), ..Expectations::default() };
        assert_eq!(
            scenario.with_expectations(&expect),
            format!("{head}\n[expect]\nexit_code = 0\n")
        );
    }
}
