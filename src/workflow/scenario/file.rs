//! Scenarios as they are written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use toml::Spanned;

use super::expect::{EventPattern, Expect};
use crate::llm::scripted::{BadScript, Script};
use crate::model::Signal;
use crate::view::public::Kind;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file that it comes from.
    pub path: PathBuf,
    /// What it shows.
    pub about: Option<String>,
    /// What the user says.
    pub prompt: String,
    /// The agent.
    pub agent: String,
    /// What needs a confirmation: as `--mode`.
    pub mode: Option<String>,
    /// Whether changes are only described.
    pub dry_run: bool,
    /// By which clock it runs.
    pub time: TimeKind,
    /// What the user answers when asked; none when nobody is there.
    pub confirm: Option<Confirmation>,
    /// Settings, as `--set` takes them.
    pub sets: Vec<String>,
    /// A configuration file.
    pub config: Option<String>,
    /// The JSON Schema of the answer.
    pub schema: Option<Value>,
    /// The files of the workspace.
    pub workspace: BTreeMap<String, String>,
    /// What the model says.
    pub script: Script,
    /// What happens meanwhile.
    pub at: Vec<At>,
    /// What is expected.
    pub expect: Expect,
    /// The file up to its expectations.
    pub(super) head: String,
}

/// By which clock a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeKind {
    /// A clock that goes on only when everybody waits; one thing after the other.
    #[default]
    Virtual,
    /// The clock of the machine, and threads: for what a command does while something else happens.
    Real,
}

/// What the user answers when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// The call may run.
    Yes,
    /// It may not.
    No,
    /// The run is to end.
    Abort,
}

/// Something that happens meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct At {
    /// The event at which it happens.
    pub event: EventPattern,
    /// At which one of them, counted from one.
    pub nth: u32,
    /// What happens.
    pub happening: Happening,
}

/// What happens meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
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
pub enum NoScenario {
    /// It can't be read.
    #[error("could not read {}: {cause}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: String,
    },
    /// A line of it is wrong.
    #[error("{}:{line}: {cause}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        cause: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    about: Option<String>,
    prompt: String,
    agent: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    time: TimeKind,
    confirm: Option<Confirmation>,
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
    at: Vec<Spanned<AtLine>>,
    #[serde(default)]
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AtLine {
    event: EventPattern,
    nth: Option<u32>,
    steer: Option<String>,
    follow_up: Option<String>,
    signal: Option<SignalName>,
}

/// Where the expectations begin.
const EXPECT: &str = "[expect";

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    ///
    /// Fails when the file can't be read, or is none.
    pub fn load(path: &Path) -> Result<Self, NoScenario> {
        let text = fs::read_to_string(path).map_err(|error| NoScenario::Unreadable {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        Self::parse(path, &text)
    }

    /// Reads a scenario; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// Fails when the text is none.
    pub fn parse(path: &Path, text: &str) -> Result<Self, NoScenario> {
        let wrong =
            |line, cause: String| NoScenario::Malformed { path: path.to_owned(), line, cause };
        let whole: Whole = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            wrong(line, error.message().to_owned())
        })?;
        let script = script(&whole, text).map_err(|(line, cause)| wrong(line, cause))?;
        let at = whole.at.into_iter().map(|line| {
            let start = line_of(text, line.span().start);
            line.into_inner().at().map_err(|cause| wrong(start, cause))
        });
        let at = at.collect::<Result<_, _>>()?;
        if let Some(events) = &whole.expect.events {
            for event in events {
                known(event).map_err(|cause| wrong(expectations(text).0, cause))?;
            }
        }
        let (line, head) = expectations(text);
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
            at,
            expect: whole.expect,
            head: head.to_owned(),
        })
    }

    /// Returns the text of the file with other expectations.
    pub fn expecting(&self, expect: &Expect) -> String {
        format!("{}\n\n{}", self.head.trim_end(), section(expect))
    }
}

/// Returns expectations as they are written.
pub(super) fn section(expect: &Expect) -> String {
    #[derive(Serialize)]
    struct Section<'a> {
        expect: &'a Expect,
    }
    // What has been read, or was seen, can always be written.
    toml::to_string_pretty(&Section { expect }).unwrap_or_default()
}

/// Returns the line in which the expectations begin, and what is before them.
fn expectations(text: &str) -> (usize, &str) {
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.starts_with(EXPECT) || line.starts_with("[[expect") {
            return (index + 1, &text[..at]);
        }
        at += line.len();
    }
    (text.lines().count(), text)
}

/// Reads the turns by the rules of scripts.
fn script(whole: &Whole, text: &str) -> Result<Script, (usize, String)> {
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
        starts.push(line_of(text, turn.span().start));
    }
    Script::from_lines("the scenario", &lines.join("\n")).map_err(|error| match error {
        BadScript::Malformed { line, cause, .. } => {
            // What is behind the cause is a place in the line that was made here.
            let cause = cause.split(" at line ").next().unwrap_or_default().to_owned();
            (starts.get(line.saturating_sub(1)).copied().unwrap_or(1), cause)
        }
        BadScript::Unreadable { cause, .. } => (1, cause),
    })
}

impl AtLine {
    fn at(self) -> Result<At, String> {
        let Self { event, nth, steer, follow_up, signal } = self;
        known(&event)?;
        let happening = match (steer, follow_up, signal) {
            (Some(text), None, None) => Happening::Steer(text),
            (None, Some(text), None) => Happening::FollowUp(text),
            (None, None, Some(signal)) => Happening::Signal(signal),
            _ => return Err("one of steer, follow_up and signal has to be there".to_owned()),
        };
        match nth {
            Some(0) => Err("nth counts from one".to_owned()),
            nth => Ok(At { event, nth: nth.unwrap_or(1), happening }),
        }
    }
}

fn known(event: &EventPattern) -> Result<(), String> {
    let names = Kind::ALL.map(|(name, _)| name);
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

fn line_of(text: &str, at: usize) -> usize {
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
        assert_eq!(refused("prompt = 'x'\n"), "s.toml:1: there is no turn in it");
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
        let head = "# why\nprompt = 'x' # said\n\n[[turn]]\ntext = 'a'\n";
        let text = format!("{head}\n[expect]\nexit_code = 7\n");
        let scenario = Scenario::parse(Path::new("s.toml"), &text).unwrap();
        let expect = Expect { exit_code: Some(0), ..Expect::default() };
        assert_eq!(scenario.expecting(&expect), format!("{head}\n[expect]\nexit_code = 0\n"));
    }
}
