//! Compares a request with the recorded one.

use std::fmt;

use serde_json::Value;

use crate::llm::fault::excerpt;

/// The first difference between two requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestMismatch {
    /// The path to the difference, with a key or an index for each level.
    path: String,
    recorded: String,
    sent: String,
}

/// The field that identifies the session, which always differs.
const SESSION_KEY_FIELD: &str = "prompt_cache_key";

impl RequestMismatch {
    /// Finds the first difference between two bodies, ignoring the session.
    pub(super) fn find(recorded: &str, sent: &str) -> Option<Self> {
        if recorded == sent {
            return None;
        }
        let read = |body: &str| -> Option<Value> {
            let mut value: Value = serde_json::from_str(body).ok()?;
            value.as_object_mut().map(|map| map.shift_remove(SESSION_KEY_FIELD));
            Some(value)
        };
        match (read(recorded), read(sent)) {
            (Some(recorded), Some(sent)) => compare(Some(&recorded), Some(&sent), ""),
            _ => Some(compare_texts(recorded, sent, "")),
        }
    }
}

/// Compares two values: the elements of the recorded value in order, then additional elements of the sent one.
fn compare(recorded: Option<&Value>, sent: Option<&Value>, path: &str) -> Option<RequestMismatch> {
    let below = |key: &dyn fmt::Display| match path {
        "" => key.to_string(),
        path => format!("{path}/{key}"),
    };
    match (recorded, sent) {
        (a, b) if a == b => None,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let new = b.keys().filter(|key| !a.contains_key(*key));
            a.keys().chain(new).find_map(|key| compare(a.get(key), b.get(key), &below(key)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => (0..a.len().max(b.len()))
            .find_map(|index| compare(a.get(index), b.get(index), &below(&index))),
        (Some(Value::String(a)), Some(Value::String(b))) => Some(compare_texts(a, b, path)),
        (a, b) => {
            let show = |value: Option<&Value>| match value {
                None => "nothing".to_owned(),
                Some(value) => excerpt(value.to_string().as_bytes()),
            };
            Some(RequestMismatch { path: path.to_owned(), recorded: show(a), sent: show(b) })
        }
    }
}

/// The number of characters shown before the difference.
const SHARED_CONTEXT: usize = 40;

/// Returns the difference of two texts, with some text before it.
fn compare_texts(recorded: &str, sent: &str, path: &str) -> RequestMismatch {
    let common = recorded.chars().zip(sent.chars()).take_while(|(a, b)| a == b).count();
    let show = |text: &str| {
        let from = common.saturating_sub(SHARED_CONTEXT);
        let dots = if from == 0 { "" } else { "…" };
        let shown: String = text.chars().skip(from).take(4 * SHARED_CONTEXT).collect();
        format!("\"{dots}{}\"", excerpt(shown.as_bytes()))
    };
    RequestMismatch { path: path.to_owned(), recorded: show(recorded), sent: show(sent) }
}

impl fmt::Display for RequestMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, recorded, sent } = self;
        let path = if path.is_empty() { "the body" } else { path };
        write!(f, "at {path}: {sent} instead of {recorded}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mismatch_text(recorded: &str, sent: &str) -> Option<String> {
        RequestMismatch::find(recorded, sent).map(|difference| difference.to_string())
    }

    #[test]
    fn the_first_mismatch_shows_both_values() {
        let recorded = r#"{"model":"m","messages":[{"role":"user","content":"do it now"}],"n":1}"#;
        let sent = r#"{"model":"m","messages":[{"role":"user","content":"do it later"}],"n":2}"#;
        let expected = r#"at messages/0/content: "do it later" instead of "do it now""#;
        assert_eq!(mismatch_text(recorded, sent).as_deref(), Some(expected));
        let more = r#"{"a":[1,2]}"#;
        assert_eq!(
            mismatch_text(r#"{"a":[1]}"#, more).as_deref(),
            Some("at a/1: 2 instead of nothing")
        );
        assert_eq!(
            mismatch_text(more, r#"{"b":1}"#).as_deref(),
            Some("at a: nothing instead of [1,2]")
        );
        assert_eq!(mismatch_text("x", "y").as_deref(), Some(r#"at the body: "y" instead of "x""#));
    }

    #[test]
    fn the_session_key_and_key_order_are_ignored() {
        assert_eq!(
            mismatch_text(r#"{"prompt_cache_key":"a","b":1,"c":2}"#, r#"{"c":2,"b":1}"#),
            None
        );
        assert_eq!(mismatch_text("same", "same"), None);
    }

    #[test]
    fn a_long_text_is_shown_from_the_mismatch() {
        let long = "x".repeat(10_000);
        let text =
            mismatch_text(&format!(r#"{{"a":"{long}1"}}"#), &format!(r#"{{"a":"{long}2"}}"#));
        let text = text.unwrap();
        assert!(text.len() < 200 && text.contains("x2\" instead of \"…x"), "{text}");
    }
}
