//! Messages of the client.

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::session_host::with_message;
use crate::net::ReadableFields;

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientMessage {
    /// A request; the client waits for the answer.
    Request { id: RequestId, method: String, params: Value },
    /// A notification; it has no answer.
    Notification { method: String, params: Value },
    /// The client's answer to a request of this program.
    Response { id: RequestId, result: Result<Value, Error> },
    /// An invalid message; `error` is sent as its answer.
    Invalid { id: RequestId, error: Error },
}

impl ClientMessage {
    /// Parses a line. Never fails, so that an invalid line does not end the connection. The protocol has no batches.
    pub(super) fn parse_line(line: &[u8]) -> Self {
        match serde_json::from_slice(line) {
            Ok(message) => Self::parse(message),
            Err(error) => {
                let why = format!("the line is not JSON: {error}");
                Self::invalid(RequestId::Null, Error::parse_error(), why)
            }
        }
    }

    /// Returns the message for a line longer than `limit` bytes, given its beginning. If the beginning has the id, the
    /// message is an error for that request, or a failed response with that id.
    pub(super) fn of_long_line(beginning: &[u8], limit: u64) -> Self {
        let why = format!("a line is longer than {} MiB, which is the limit", limit >> 20);
        let error = with_message(Error::invalid_request(), why);
        let fields = ReadableFields::of(beginning);
        let id = fields.id.and_then(|id| RequestId::deserialize(id).ok());
        match id {
            Some(id) if fields.has_outcome && !fields.has_method => {
                Self::Response { id, result: Err(error) }
            }
            id => Self::Invalid { id: id.unwrap_or(RequestId::Null), error },
        }
    }

    fn parse(message: Value) -> Self {
        let Value::Object(mut message) = message else {
            let why = "a message is a JSON object";
            return Self::invalid(RequestId::Null, Error::invalid_request(), why);
        };
        let id = message.remove("id").map(RequestId::deserialize);
        let (has_id, id) = match id {
            None => (false, RequestId::Null),
            Some(Ok(id)) => (true, id),
            Some(Err(_)) => {
                let why = "an id is a string or a whole number";
                return Self::invalid(RequestId::Null, Error::invalid_request(), why);
            }
        };
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Self::invalid(id, Error::invalid_request(), "`jsonrpc` has to be \"2.0\"");
        }
        match (message.remove("method"), has_id) {
            (Some(Value::String(method)), true) => {
                Self::Request { id, method, params: parameters(message) }
            }
            (Some(Value::String(method)), false) => {
                Self::Notification { method, params: parameters(message) }
            }
            (None, true) if message.contains_key("result") || message.contains_key("error") => {
                let result = match message.remove("error") {
                    Some(error) => Err(Error::deserialize(error).unwrap_or_else(|error| {
                        with_message(Error::internal_error(), format!("invalid error: {error}"))
                    })),
                    None => Ok(message.remove("result").unwrap_or_default()),
                };
                Self::Response { id, result }
            }
            (Some(_) | None, _) => {
                Self::invalid(id, Error::invalid_request(), "a request has a `method`, a string")
            }
        }
    }

    fn invalid(id: RequestId, error: Error, why: impl Into<String>) -> Self {
        Self::Invalid { id, error: with_message(error, why) }
    }
}

/// Returns the parameters of a message; without any, an empty object.
fn parameters(mut message: Map<String, Value>) -> Value {
    match message.remove("params") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(params) => params,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(line: &str) -> (RequestId, i32) {
        match ClientMessage::parse_line(line.as_bytes()) {
            ClientMessage::Invalid { id, error } => (id, error.code.into()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_message_is_answered_with_the_code_for_it() {
        assert_eq!(code("{"), (RequestId::Null, -32700));
        assert_eq!(code(r#"[{"jsonrpc":"2.0","method":"a"}]"#), (RequestId::Null, -32600));
        assert_eq!(code("7"), (RequestId::Null, -32600));
        assert_eq!(code(r#"{"id":1,"method":"x"}"#), (RequestId::Number(1), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#), (RequestId::Null, -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":"a"}"#), (RequestId::Str("a".into()), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","method":3}"#), (RequestId::Null, -32600));
    }

    #[test]
    fn a_line_that_is_too_long_belongs_to_its_request() {
        let message = |line: &str| ClientMessage::of_long_line(line.as_bytes(), 64 << 20);
        let cut = r#""params":{"text":"xx"#;
        for (line, id) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"a",{cut}"#), RequestId::Number(7)),
            (format!(r#"{{"method":"a",{cut}"#), RequestId::Null),
            ("[".repeat(1_000), RequestId::Null),
        ] {
            match message(&line) {
                ClientMessage::Invalid { id: found, error } => {
                    assert_eq!((found, error.code.into()), (id, -32600));
                    let text = serde_json::to_string(&error).unwrap();
                    assert!(text.contains("a line is longer than 64 MiB"), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
        let id = RequestId::Number(7);
        let found = message(r#"{"jsonrpc":"2.0","id":7,"result":{"content":"xx"#);
        assert!(
            matches!(found, ClientMessage::Response { id: found, result: Err(_) } if found == id)
        );
    }

    #[test]
    fn requests_notifications_and_responses_are_distinguished() {
        let parse = |line: &str| ClientMessage::parse_line(line.as_bytes());
        let (method, params) = ("a".to_owned(), json!({}));
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","method":"a"}"#),
            ClientMessage::Notification { method: method.clone(), params: params.clone() }
        );
        let id = RequestId::Str("x".to_owned());
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":"x","method":"a","params":null}"#),
            ClientMessage::Request { id: id.clone(), method, params }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":"x","result":null}"#),
            ClientMessage::Response { id, result: Ok(Value::Null) }
        );
    }
}
