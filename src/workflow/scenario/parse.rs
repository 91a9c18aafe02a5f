//! Scenarios as they are written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use toml::Spanned;

use super::expectations::{EventPattern, Expectations};
use crate::llm::scripted::{Script, ScriptError};
use crate::model::Signal;
use crate::view::public::PublicEventKind;
use crate::workspace::read_input;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file that it comes from.
    pub path: PathBuf,
    /// Its description.
    pub about: Option<String>,
    /// The task.
    pub prompt: String,
    /// The agent.
    pub agent: String,
    /// The confirmation mode, as for `--mode`.
    pub mode: Option<String>,
    /// Whether changes are only described.
    pub dry_run: bool,
    /// By which clock it runs.
    pub time: ScenarioClock,
    /// The answer to every confirmation; `None` if there is no user.
    pub confirm: Option<ScenarioAnswer>,
    /// Settings, as `--set` takes them.
    pub sets: Vec<String>,
    /// A configuration file.
    pub config: Option<String>,
    /// The JSON Schema of the answer.
    pub schema: Option<Value>,
    /// The files of the workspace.
    pub workspace: BTreeMap<String, String>,
    /// The script of the model.
    pub script: Script,
    /// Scheduled actions.
    pub actions: Vec<ScheduledAction>,
    /// The expectations.
    pub expect: Expectations,
    /// The file up to its expectations.
    pub(super) text_before_expect: String,
}

/// By which clock a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioClock {
    /// A clock that advances only by waiting; effects run one after the other.
    #[default]
    Virtual,
    /// The clock of the machine, and threads: for what a command does while something else happens.
    Real,
}

/// The answer to a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScenarioAnswer {
    /// The call may run.
    Yes,
    /// It may not.
    No,
    /// The run is to end.
    Abort,
}

/// Something that happens meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledAction {
    /// The event at which it happens.
    pub event: EventPattern,
    /// At which one of them, counted from one.
    pub nth: u32,
    /// The action.
    pub action: ScenarioAction,
}

/// An action during the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioAction {
    /// The user says something that the model reads before its next call.
    Steer(String),
    /// The user says something for when the run would have ended.
    FollowUp(String),
    /// A signal arrives.
    Signal(SignalName),
}

/// A signal, as it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SignalName {
    /// The user's interrupt.
    SigInt,
    /// The end of a service.
    SigTerm,
    /// The end of a terminal.
    SigHup,
}

/// Why a file is no scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// It can't be read.
    #[error("could not read {}: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: String,
    },
    /// A line of it is wrong.
    #[error("{}:{line}: {cause}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is invalid.
        cause: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioToml {
    about: Option<String>,
    prompt: String,
    agent: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    time: ScenarioClock,
    confirm: Option<ScenarioAnswer>,
    #[serde(default)]
    sets: Vec<String>,
    config: Option<String>,
    schema: Option<Value>,
    #[serde(default)]
    workspace: BTreeMap<String, String>,
    repeat: Option<Value>,
    price: Option<Value>,
    window: Option<Value>,
    max_output: Option<Value>,
    #[serde(default)]
    turn: Vec<Spanned<Value>>,
    #[serde(default)]
    at: Vec<Spanned<ScheduledActionToml>>,
    #[serde(default)]
    expect: Expectations,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduledActionToml {
    event: EventPattern,
    nth: Option<u32>,
    steer: Option<String>,
    follow_up: Option<String>,
    signal: Option<SignalName>,
}

/// The header of the expectations.
const EXPECT_HEADER: &str = "[expect";

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

    /// Reads a scenario; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a scenario.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let wrong =
            |line, cause: String| ScenarioError::Malformed { path: path.to_owned(), line, cause };
        let whole: ScenarioToml = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_number(text, span.start));
            wrong(line, error.message().to_owned())
        })?;
        let script = parse_script(&whole, text).map_err(|(line, cause)| wrong(line, cause))?;
        let at = whole.at.into_iter().map(|line| {
            let start = line_number(text, line.span().start);
            line.into_inner().into_action().map_err(|cause| wrong(start, cause))
        });
        let at = at.collect::<Result<_, _>>()?;
        if let Some(events) = &whole.expect.events {
            for event in events {
                check_event_name(event)
                    .map_err(|cause| wrong(split_expectations(text).0, cause))?;
            }
        }
        let (line, head) = split_expectations(text);
        let behind = text.lines().skip(line).find(|line| {
            line.starts_with('[') && !line.trim_start_matches('[').starts_with("expect")
        });
        if let Some(behind) = behind {
            return Err(wrong(
                line,
                format!("[expect] has to be the last section, before {behind}"),
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            about: whole.about,
            prompt: whole.prompt,
            agent: whole.agent.unwrap_or_else(|| "build".to_owned()),
            mode: whole.mode,
            dry_run: whole.dry_run,
            time: whole.time,
            confirm: whole.confirm,
            sets: whole.sets,
            config: whole.config,
            schema: whole.schema,
            workspace: whole.workspace,
            script,
            actions: at,
            expect: whole.expect,
            text_before_expect: head.to_owned(),
        })
    }

    /// Returns the text of the file with other expectations.
    pub fn with_expectations(&self, expect: &Expectations) -> String {
        format!("{}\n\n{}", self.text_before_expect.trim_end(), expectations_toml(expect))
    }
}

/// Returns expectations as they are written.
pub(super) fn expectations_toml(expect: &Expectations) -> String {
    #[derive(Serialize)]
    struct ScenarioSection<'a> {
        expect: &'a Expectations,
    }
    // Expectations that were read or recorded can always be written.
    toml::to_string_pretty(&ScenarioSection { expect }).unwrap_or_default()
}

/// Returns the line in which the expectations begin, and what is before them.
fn split_expectations(text: &str) -> (usize, &str) {
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.starts_with(EXPECT_HEADER) || line.starts_with("[[expect") {
            return (index + 1, &text[..at]);
        }
        at += line.len();
    }
    (text.lines().count(), text)
}

/// Reads the turns by the rules of scripts.
fn parse_script(whole: &ScenarioToml, text: &str) -> Result<Script, (usize, String)> {
    let mut lines = Vec::new();
    let settings = [
        ("repeat", &whole.repeat),
        ("price", &whole.price),
        ("window", &whole.window),
        ("max_output", &whole.max_output),
    ];
    let settings: Map<String, Value> = settings
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
        .collect();
    let mut starts = Vec::new();
    if !settings.is_empty() {
        lines.push(Value::Object(settings).to_string());
        starts.push(1);
    }
    for turn in &whole.turn {
        lines.push(turn.get_ref().to_string());
        starts.push(line_number(text, turn.span().start));
    }
    Script::from_lines("the scenario", &lines.join("\n")).map_err(|error| match error {
        ScriptError::Malformed { line, cause, .. } => {
            // The rest of the message is a position in a line that was generated here.
            let cause = cause.split(" at line ").next().unwrap_or_default().to_owned();
            (starts.get(line.saturating_sub(1)).copied().unwrap_or(1), cause)
        }
        ScriptError::Unreadable { cause, .. } => (1, cause),
    })
}

impl ScheduledActionToml {
    fn into_action(self) -> Result<ScheduledAction, String> {
        let Self { event, nth, steer, follow_up, signal } = self;
        check_event_name(&event)?;
        let happening = match (steer, follow_up, signal) {
            (Some(text), None, None) => ScenarioAction::Steer(text),
            (None, Some(text), None) => ScenarioAction::FollowUp(text),
            (None, None, Some(signal)) => ScenarioAction::Signal(signal),
            _ => return Err("one of steer, follow_up and signal has to be there".to_owned()),
        };
        match nth {
            Some(0) => Err("nth counts from one".to_owned()),
            nth => Ok(ScheduledAction { event, nth: nth.unwrap_or(1), action: happening }),
        }
    }
}

fn check_event_name(event: &EventPattern) -> Result<(), String> {
    let names = PublicEventKind::ALL.map(|(name, _)| name);
    match names.contains(&event.name()) {
        true => Ok(()),
        false => {
            Err(format!("there is no event `{}`; there are {}", event.name(), names.join(", ")))
        }
    }
}

impl SignalName {
    /// Returns the signal.
    pub fn signal(self) -> Signal {
        match self {
            Self::SigInt => Signal::Interrupt,
            Self::SigTerm => Signal::Terminate,
            Self::SigHup => Signal::Hangup,
        }
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
        assert!(refused(&text).starts_with("s.toml:4: there is no event `tool_call`"));
        let text = format!("prompt = 'x'\n{turn}[[at]]\nevent = 'retry'\n");
        assert!(refused(&text).starts_with("s.toml:4: one of steer"), "{}", refused(&text));
        let text = format!("prompt = 'x'\n[expect]\nexit_code = 0\n{turn}");
        assert!(refused(&text).starts_with("s.toml:2: [expect] has to be the last"));
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
