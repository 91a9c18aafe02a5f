//! Patterns of events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::view::public_events::PublicEventKind;

/// A pattern of an event: its name and, where needed, fields, such as `tool_call_end name=grep status=ok`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct EventPattern(String);

impl EventPattern {
    /// Returns whether an event matches.
    pub fn matches(&self, event: &Value) -> bool {
        let mut words = self.0.split_whitespace();
        words.next() == event["type"].as_str()
            && words.all(|word| match word.split_once('=') {
                None => false,
                Some((key, value)) => match &event[key] {
                    Value::String(text) => text == value,
                    other => serde_json::from_str(value).is_ok_and(|value: Value| value == *other),
                },
            })
    }
}

impl TryFrom<String> for EventPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.split_whitespace().next().unwrap_or_default();
        let names = PublicEventKind::ALL.map(|(name, _)| name);
        match names.contains(&name) {
            true => Ok(Self(text)),
            false => Err(format!("there is no event `{name}`; there are {}", names.join(", "))),
        }
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> Self {
        pattern.0
    }
}

/// Returns the patterns if matching events happened in their order, and otherwise the names of all events.
pub(super) fn update_events(expected: &[EventPattern], seen: &[Value]) -> Vec<EventPattern> {
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
