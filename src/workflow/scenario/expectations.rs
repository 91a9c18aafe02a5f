//! Expectations of a run, compared with its record.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event_pattern::{EventPattern, update_events};
use super::recording::RecordedRun;

/// Expectations of a run. Missing fields are not checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// The exit code.
    pub exit_code: Option<u8>,
    /// The stop reason.
    pub stop_reason: Option<String>,
    /// The number of replies with tool calls.
    pub steps: Option<u32>,
    /// The number of model calls of every kind.
    pub llm_calls: Option<u32>,
    /// The duration of the run by its own clock, in milliseconds.
    pub took_ms: Option<u64>,
    /// The cost in millionths of a dollar.
    pub cost_micros: Option<u64>,
    /// The final answer.
    pub output: Option<TextPattern>,
    /// The error.
    pub error: Option<TextPattern>,
    /// Events in their order; others may come between.
    pub events: Option<Vec<EventPattern>>,
    /// The calls that a dry run would have made, one line each.
    pub planned: Option<Vec<TextPattern>>,
    /// Files of the workspace after the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, ExpectedFile>,
    /// Every tool call, in call order.
    pub tools: Option<Vec<ExpectedTool>>,
    /// Every request to the model.
    pub requests: Option<Vec<ExpectedRequest>>,
}

/// A text, or a pattern of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, or a table with `contains` and `lacks`")]
pub enum TextPattern {
    /// The whole text.
    Exact(String),
    /// Parts of the text.
    Partial(PartialText),
}

/// Parts that a text must contain or lack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartialText {
    /// Parts that must occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains: Vec<String>,
    /// Parts that must not occur.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// A file of the workspace after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected true or false for whether it is there, its text, or a table with `contains` and `lacks`"
)]
pub enum ExpectedFile {
    /// Whether it exists.
    Exists(bool),
    /// The content.
    Content(TextPattern),
}

/// A tool call with its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTool {
    /// The name of the tool.
    pub name: Option<String>,
    /// The status of the call, as in the events.
    pub status: Option<String>,
    /// The result, as sent to the model.
    pub text: Option<TextPattern>,
}

/// A request to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRequest {
    /// The purpose: `agent`, `compaction` or `closing`.
    pub purpose: Option<String>,
    /// The attempt, counted from one.
    pub attempt: Option<u32>,
    /// The limit of the reply in tokens.
    pub max_output: Option<u64>,
    /// The number of entries of the conversation.
    pub entries: Option<usize>,
    /// The tools offered to the model.
    pub tools: Option<Vec<String>>,
    /// The system prompt.
    pub system: Option<TextPattern>,
    /// The lines that the previous request did not have.
    pub new: Option<Vec<TextPattern>>,
}

impl Expectations {
    /// Returns these expectations with each unmet one replaced by the recorded value. They are unchanged if all are
    /// met.
    pub(super) fn update_from(&self, seen: &RecordedRun) -> Self {
        if *self == Self::default() {
            return Self::usual(seen).update_from(seen);
        }
        let mut record = seen.record.clone();
        if let Some(patterns) = &self.events {
            record["events"] = json!(update_events(patterns, &seen.events));
        }
        // Both values have the form of expectations, so the result has it, too.
        serde_json::from_value(update(&json!(self), &record)).unwrap_or_default()
    }

    /// Returns the expectations written for a scenario without any. Their values are placeholders.
    fn usual(seen: &RecordedRun) -> Self {
        Self {
            exit_code: Some(0),
            stop_reason: Some(String::new()),
            steps: Some(0),
            llm_calls: Some(0),
            output: Some(TextPattern::Exact(String::new())),
            files: seen.changed_files().map(|path| (path, ExpectedFile::Exists(false))).collect(),
            tools: Some(Vec::new()),
            ..Self::default()
        }
    }
}

/// Fields that are shown of unexpected calls and requests.
const SHOWN_FIELDS: [&str; 5] = ["name", "status", "text", "purpose", "new"];

/// Returns the expected part of a record. An expectation that the record meets stays as written.
fn update(expected: &Value, seen: &Value) -> Value {
    match (expected, seen) {
        (Value::Object(pattern), Value::String(text)) => {
            let parts = |key: &str| {
                let parts = pattern.get(key).and_then(Value::as_array).into_iter().flatten();
                parts.filter_map(Value::as_str)
            };
            let holds = parts("contains").all(|part| text.contains(part))
                && !parts("lacks").any(|part| text.contains(part));
            if holds { expected.clone() } else { seen.clone() }
        }
        // A missing value is `false`, which only the expectation of a file can be.
        (Value::Object(fields), Value::Object(seen)) => fields
            .iter()
            .filter(|(_, expected)| !expected.is_null())
            .map(|(key, expected)| {
                (key.clone(), update(expected, seen.get(key).unwrap_or(&Value::Bool(false))))
            })
            .collect(),
        (Value::Array(items), Value::Array(seen)) => {
            let item = |(index, seen): (usize, &Value)| match (items.get(index), seen) {
                (Some(expected), seen) => update(expected, seen),
                (None, Value::Object(fields)) => {
                    let shown = fields.clone().into_iter();
                    shown.filter(|(key, _)| SHOWN_FIELDS.contains(&key.as_str())).collect()
                }
                (None, seen) => seen.clone(),
            };
            seen.iter().enumerate().map(item).collect()
        }
        (Value::Bool(true), Value::String(_)) => Value::Bool(true),
        _ => seen.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_stays_as_it_is_written_and_what_does_not_becomes_what_was_seen() {
        let pattern = json!({ "contains": ["b"], "lacks": ["x"] });
        assert_eq!(update(&pattern, &json!("abc")), pattern);
        for wrong in [json!({ "contains": ["x"] }), json!({ "lacks": ["b"] }), json!("abd")] {
            assert_eq!(update(&wrong, &json!("abc")), json!("abc"));
        }
    }

    #[test]
    fn a_file_can_be_expected_to_be_missing() {
        let (none, some) = (json!({}), json!({ "a": "text" }));
        let (missing, present) = (json!({ "a": false }), json!({ "a": true }));
        assert_eq!(update(&missing, &none), missing);
        assert_ne!(update(&missing, &some), missing);
        assert_eq!(update(&present, &some), present);
        assert_ne!(update(&present, &none), present);
    }

    #[test]
    fn a_call_that_was_not_expected_is_reported_and_one_that_was_not_made_is_left_out() {
        let seen = json!([{ "name": "ls", "status": "ok" }, { "purpose": "agent", "entries": 3 }]);
        let updated = json!([{ "name": "ls" }, { "purpose": "agent" }]);
        assert_eq!(update(&json!([{ "name": "grep" }]), &seen), updated);
        assert_eq!(update(&updated, &json!([])), json!([]));
    }
}
