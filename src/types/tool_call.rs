//! A tool call that a model requested.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::strict_json::StrictJson;
use super::{CallId, Digest};

/// One tool call of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id, which its result carries, too.
    pub id: CallId,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The arguments of the tool.
    pub arguments: ToolArguments,
    /// The digest of name and arguments. Equal calls have equal digests.
    pub digest: Digest,
}

/// The arguments of a tool call, if they are usable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// The text of a JSON object.
    Complete {
        /// The text as the model wrote it.
        text: Arc<str>,
    },
    /// Not a JSON object, or one with duplicate keys.
    Malformed {
        /// The text as the model wrote it.
        text: Arc<str>,
        /// The parse error, with its position.
        error: Arc<str>,
    },
    /// Cut off by the output limit; such a call never runs.
    #[serde(rename = "cut")]
    Truncated {
        /// The text that has arrived.
        text: Arc<str>,
    },
}

impl ToolCall {
    /// Creates a call. The arguments are valid if they are a JSON object without duplicate keys. An empty text stands
    /// for `{}`.
    pub fn new(id: CallId, name: &str, arguments: &str) -> Self {
        let text: Arc<str> = if arguments.trim().is_empty() { "{}" } else { arguments }.into();
        let (arguments, digest) = match serde_json::from_str(&text).map(|StrictJson(value)| value) {
            Ok(value @ Value::Object(_)) => {
                (ToolArguments::Complete { text }, Digest::of_json(&value))
            }
            Ok(value) => {
                let error = format!("expected a JSON object, found {}", json_type(&value)).into();
                (ToolArguments::Malformed { error, text }, Digest::of_json(&value))
            }
            Err(error) => {
                let digest = Digest::of(&text);
                (ToolArguments::Malformed { error: error.to_string().into(), text }, digest)
            }
        };
        Self { id, digest: Digest::of(name).with_digest(digest), name: name.into(), arguments }
    }

    /// Returns whether the digest is that of the name and the arguments.
    pub fn has_own_digest(&self) -> bool {
        Self::new(self.id.clone(), &self.name, self.arguments.text()).digest == self.digest
    }

    /// Marks the call as cut off by the output limit, unless its arguments are complete.
    pub fn mark_truncated(self) -> Self {
        match self.arguments {
            ToolArguments::Complete { .. } | ToolArguments::Truncated { .. } => self,
            ToolArguments::Malformed { text, .. } => {
                Self { arguments: ToolArguments::Truncated { text }, ..self }
            }
        }
    }
}

impl ToolArguments {
    /// Returns the text as the model wrote it.
    pub fn text(&self) -> &str {
        match self {
            Self::Complete { text } | Self::Malformed { text, .. } | Self::Truncated { text } => {
                text
            }
        }
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall::new("c".into(), "read_file", arguments)
    }

    #[test]
    fn the_same_arguments_in_another_spelling_have_the_same_digest() {
        assert_eq!(call(r#"{"a":1,"b":2}"#).digest, call(r#"{ "b":2, "a":1 }"#).digest);
        assert_ne!(call(r#"{"a":1}"#).digest, call(r#"{"a":2}"#).digest);
    }

    #[test]
    fn what_is_no_object_is_malformed_and_says_why() {
        let ToolArguments::Malformed { error, .. } = call("[1]").arguments else { panic!() };
        assert_eq!(&*error, "expected a JSON object, found an array");
        let ToolArguments::Malformed { error, .. } = call(r#"{"a":"#).arguments else { panic!() };
        assert_eq!(&*error, "EOF while parsing a value at line 1 column 5");
    }

    /// Fault L46.
    #[test]
    fn arguments_that_can_be_read_in_two_ways_are_malformed() {
        for (text, error) in [
            (r#"{"path":"a","path":"b"}"#, "the key 'path' stands twice at line 1 column 18"),
            (r#"{"a":[{"b":1,"b":1}]}"#, "the key 'b' stands twice at line 1 column 16"),
            (r#"{"a":1e999}"#, "number out of range at line 1 column 10"),
            (r#"{"a":"\ud83d"}"#, "unexpected end of hex escape at line 1 column 13"),
        ] {
            let ToolArguments::Malformed { error: message, .. } = call(text).arguments else {
                panic!()
            };
            assert_eq!(&*message, error);
        }
        let odd = r#"{"a":[-1,0.5,null,true,{"b":"\u00e4"}]}"#;
        assert!(matches!(call(odd).arguments, ToolArguments::Complete { .. }));
    }

    #[test]
    fn no_arguments_are_an_empty_object() {
        assert_eq!(call(" ").arguments, ToolArguments::Complete { text: "{}".into() });
    }

    #[test]
    fn only_incomplete_arguments_are_marked_truncated() {
        assert_eq!(call("{}").mark_truncated().arguments, call("{}").arguments);
        assert_eq!(
            call("{\"a").mark_truncated().arguments,
            ToolArguments::Truncated { text: "{\"a".into() }
        );
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert!(matches!(call(&deep).arguments, ToolArguments::Malformed { .. }));
    }
}
