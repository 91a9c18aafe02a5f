//! Expectations of a run, compared with its record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recording::{RecordedCall, RecordedRequest, RecordedRun};

/// Expectations of a run. A field that is not given is not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// The exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Why the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Replies whose tool calls ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Model calls of every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_calls: Option<u32>,
    /// The duration of the run by its own clock, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Its cost in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The final answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<TextPattern>,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TextPattern>,
    /// Events that happen in this order; others may come between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventPattern>>,
    /// The calls that a dry run would have made, one line each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<Vec<TextPattern>>,
    /// Files of the workspace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, ExpectedFile>,
    /// Every tool call, in call order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ExpectedTool>>,
    /// Every request to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<ExpectedRequest>>,
}

/// A text: this one, or one like it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a text, or a table with `contains` and `lacks`")]
pub enum TextPattern {
    /// This text.
    Exact(String),
    /// One like this.
    Partial(PartialText),
}

/// What a text contains and does not contain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartialText {
    /// It has all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<String>,
    /// It has none of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// A file of the workspace, at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected true or false for whether it is there, its text, or a table with `contains` and `lacks`"
)]
pub enum ExpectedFile {
    /// Whether it exists.
    Exists(bool),
    /// Its content.
    Content(TextPattern),
}

/// A tool call, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTool {
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How the call ended, as in the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The result that the model is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextPattern>,
}

/// A request to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRequest {
    /// Its purpose: `agent`, `compaction` or `closing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// The attempt, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The limit of the reply in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Entries of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<usize>,
    /// The tools that it offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<TextPattern>,
    /// The lines that the request before it did not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Vec<TextPattern>>,
}

/// An event: its name, and where it matters its fields, as `tool_call_end name=grep status=ok`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventPattern(pub String);

impl Expectations {
    /// Returns whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this with everything that did not hold replaced by what was seen; equal when all of it held.
    pub(super) fn update_from(&self, seen: &RecordedRun) -> Self {
        if self.is_empty() {
            return Self::defaults_for(seen);
        }
        let result = &seen.result;
        let reason = result.stop_reason.map(|reason| reason.name().to_owned());
        Self {
            exit_code: self.exit_code.map(|_| result.exit_code),
            stop_reason: self.stop_reason.as_ref().and(reason),
            steps: self.steps.map(|_| result.steps),
            llm_calls: self.llm_calls.map(|_| result.llm_calls),
            took_ms: self.took_ms.map(|_| result.duration.0 / 1_000),
            cost_micros: self.cost_micros.and(result.cost.map(|cost| cost.0)),
            output: self.output.as_ref().map(|text| text.update_from(&seen.output)),
            error: self.error.as_ref().map(|text| text.update_from(&seen.error)),
            events: self.events.as_ref().map(|events| update_events(events, &seen.events)),
            planned: self
                .planned
                .as_ref()
                .map(|planned| TextPattern::update_all(planned, &seen.planned)),
            files: self
                .files
                .iter()
                .map(|(path, file)| (path.clone(), file.update_from(seen.files.get(path))))
                .collect(),
            tools: self.tools.as_ref().map(|tools| {
                let all = ExpectedTool {
                    name: Some(PLACEHOLDER.to_owned()),
                    status: Some(PLACEHOLDER.to_owned()),
                    text: Some(TextPattern::Exact(PLACEHOLDER.to_owned())),
                };
                update_each(tools, &seen.tools, &all, ExpectedTool::update_from)
            }),
            requests: self.requests.as_ref().map(|requests| {
                let all = ExpectedRequest {
                    purpose: Some(PLACEHOLDER.to_owned()),
                    new: Some(Vec::new()),
                    ..ExpectedRequest::default()
                };
                update_each(requests, &seen.requests, &all, ExpectedRequest::update_from)
            }),
        }
    }

    /// Returns what one usually wants to know of a run.
    fn defaults_for(seen: &RecordedRun) -> Self {
        let asked = Self {
            exit_code: Some(0),
            stop_reason: Some(PLACEHOLDER.to_owned()),
            steps: Some(0),
            llm_calls: Some(0),
            output: Some(TextPattern::Exact(PLACEHOLDER.to_owned())),
            files: seen
                .changed_files()
                .map(|path| (path.to_owned(), ExpectedFile::Exists(false)))
                .collect(),
            tools: Some(Vec::new()),
            ..Self::default()
        };
        asked.update_from(seen)
    }
}

/// A text that nothing is equal to, so that what is seen takes its place.
const PLACEHOLDER: &str = "\0";

/// Compares a list with what was recorded; items beyond the list are reported as `beyond` asks for.
fn update_each<E, S>(
    expected: &[E],
    seen: &[S],
    beyond: &E,
    settle: impl Fn(&E, &S) -> E,
) -> Vec<E> {
    let pairs = seen.iter().enumerate();
    pairs.map(|(index, seen)| settle(expected.get(index).unwrap_or(beyond), seen)).collect()
}

impl TextPattern {
    fn update_from(&self, seen: &str) -> Self {
        match self {
            Self::Partial(like) if like.matches(seen) => self.clone(),
            Self::Partial(_) | Self::Exact(_) => Self::Exact(seen.to_owned()),
        }
    }

    fn update_all(expected: &[Self], seen: &[String]) -> Vec<Self> {
        update_each(expected, seen, &Self::Exact(String::new()), |text, seen| {
            text.update_from(seen)
        })
    }
}

impl PartialText {
    fn matches(&self, seen: &str) -> bool {
        self.contains.iter().all(|part| seen.contains(part.as_str()))
            && !self.lacks.iter().any(|part| seen.contains(part.as_str()))
    }
}

impl ExpectedFile {
    fn update_from(&self, seen: Option<&String>) -> Self {
        match (self, seen) {
            (_, None) => Self::Exists(false),
            (Self::Exists(true), Some(_)) => Self::Exists(true),
            (Self::Content(text), Some(seen)) => Self::Content(text.update_from(seen)),
            (Self::Exists(false), Some(seen)) => Self::Content(TextPattern::Exact(seen.clone())),
        }
    }
}

impl ExpectedTool {
    fn update_from(&self, seen: &RecordedCall) -> Self {
        Self {
            name: self.name.as_ref().map(|_| seen.name.clone()),
            status: self.status.as_ref().map(|_| seen.status.clone()),
            text: self.text.as_ref().map(|text| text.update_from(&seen.text)),
        }
    }
}

impl ExpectedRequest {
    fn update_from(&self, seen: &RecordedRequest) -> Self {
        Self {
            purpose: self.purpose.as_ref().map(|_| seen.purpose.clone()),
            attempt: self.attempt.map(|_| seen.attempt),
            max_output: self.max_output.and(seen.max_output),
            entries: self.entries.map(|_| seen.entries),
            tools: self.tools.as_ref().map(|_| seen.tools.clone()),
            system: self.system.as_ref().map(|text| text.update_from(&seen.system)),
            new: self.new.as_ref().map(|new| TextPattern::update_all(new, &seen.new)),
        }
    }
}

impl EventPattern {
    /// Returns whether an event is one of these.
    pub fn matches(&self, event: &Value) -> bool {
        let mut words = self.0.split_whitespace();
        words.next() == event["type"].as_str()
            && words.all(|word| match word.split_once('=') {
                None => false,
                Some((key, value)) => match &event[key] {
                    Value::String(text) => text == value,
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => {
                        serde_json::from_str(value).is_ok_and(|v: Value| v == event[key])
                    }
                },
            })
    }

    /// Returns the name of the event.
    pub fn name(&self) -> &str {
        self.0.split_whitespace().next().unwrap_or_default()
    }
}

/// Returns the patterns when events like these happened in their order, and the names of all events otherwise.
fn update_events(expected: &[EventPattern], seen: &[Value]) -> Vec<EventPattern> {
    let mut rest = seen.iter();
    if expected.iter().all(|pattern| rest.any(|event| pattern.matches(event))) {
        return expected.to_vec();
    }
    let names = seen.iter().filter_map(|event| event["type"].as_str());
    names.filter(|name| *name != "text_delta").map(|name| EventPattern(name.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(contains: &[&str], lacks: &[&str]) -> TextPattern {
        let all = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
        TextPattern::Partial(PartialText { contains: all(contains), lacks: all(lacks) })
    }

    #[test]
    fn what_holds_stays_as_it_is_written_and_what_does_not_becomes_what_was_seen() {
        assert_eq!(like(&["b"], &["x"]).update_from("abc"), like(&["b"], &["x"]));
        assert_eq!(like(&["x"], &[]).update_from("abc"), TextPattern::Exact("abc".into()));
        assert_eq!(like(&[], &["b"]).update_from("abc"), TextPattern::Exact("abc".into()));
        assert_eq!(
            TextPattern::Exact("abd".into()).update_from("abc"),
            TextPattern::Exact("abc".into())
        );
    }

    #[test]
    fn a_file_can_be_expected_to_be_missing() {
        let seen = "text".to_owned();
        assert_eq!(ExpectedFile::Exists(false).update_from(None), ExpectedFile::Exists(false));
        assert_ne!(
            ExpectedFile::Exists(false).update_from(Some(&seen)),
            ExpectedFile::Exists(false)
        );
        assert_eq!(ExpectedFile::Exists(true).update_from(Some(&seen)), ExpectedFile::Exists(true));
    }

    #[test]
    fn events_come_in_their_order_with_others_between() {
        let event = |name: &str, n: u32| serde_json::json!({"type": name, "n": n, "s": "x"});
        let seen = [event("a", 1), event("b", 2), event("a", 3)];
        let patterns = |all: &[&str]| -> Vec<EventPattern> {
            all.iter().map(|one| EventPattern((*one).to_owned())).collect()
        };
        for held in [&["a", "a"][..], &["b n=2 s=x", "a n=3"], &[]] {
            assert_eq!(update_events(&patterns(held), &seen), patterns(held));
        }
        for wrong in [&["b", "b"][..], &["a n=2"], &["a s"]] {
            assert_eq!(update_events(&patterns(wrong), &seen), patterns(&["a", "b", "a"]));
        }
    }
}
