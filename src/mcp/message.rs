//! The messages of the protocol.

use serde_json::{Value, json};

use super::elicitation::{self, ELICIT};
use super::error::RpcError;
use crate::net::ReadableFields;

/// A request to a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcRequest {
    /// The ID, unique in the connection.
    pub id: u64,
    /// The method.
    pub method: &'static str,
    /// The parameters.
    pub params: Value,
    /// The protocol version.
    pub version: &'static str,
    /// With HTTP, the headers for the arguments.
    pub headers: Vec<(String, String)>,
}

/// A message from a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServerMessage {
    /// The answer to a request.
    Reply {
        /// The ID of the request; `None` if it is not one of ours.
        id: Option<u64>,
        /// The result.
        outcome: Result<Value, RpcError>,
    },
    /// A request to the client.
    Request {
        /// The ID of the request.
        id: Value,
        /// The method.
        method: String,
        /// The parameters.
        params: Value,
    },
    /// Progress of a request.
    Progress {
        /// The ID of the request.
        id: u64,
        /// The message.
        text: String,
    },
    /// An invalid answer to a request.
    Unreadable {
        /// The ID of the request; `None` if it can't be read either.
        id: Option<u64>,
        /// The reason.
        why: String,
    },
    /// Any other notification.
    Notification,
}

/// The maximum length of an ID for a request to be answered: answers wait in memory until the server reads them.
const MAX_ID_BYTES: usize = 256;

/// The number of characters of an unsupported method that are quoted.
const MAX_METHOD_CHARS: usize = 64;

/// The error code for unsupported methods.
const NO_SUCH_METHOD: i64 = -32601;

impl RpcRequest {
    pub(super) fn to_json(&self) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params })
    }
}

/// Returns the notification that cancels a request.
pub(super) fn cancel_notification(id: u64) -> Value {
    notification("notifications/cancelled", &json!({ "requestId": id }))
}

/// Returns a notification.
pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Returns the answer of a run without a user to a server's request: pings are supported, and questions are declined.
pub(super) fn client_answer(id: &Value, method: &str) -> Value {
    match method {
        "ping" => return client_result(id, &json!({})),
        ELICIT => return client_result(id, &elicitation::declined()),
        _ => {}
    }
    let method: String = method.chars().take(MAX_METHOD_CHARS).collect();
    let message = format!("{method} is not supported");
    let error = json!({ "code": NO_SUCH_METHOD, "message": message });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// Returns the answer to a server's request, with the given result.
pub(super) fn client_result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

impl ServerMessage {
    /// Parses a message or a batch; `None` if it is neither.
    pub(super) fn parse(text: &[u8]) -> Option<Vec<Self>> {
        match serde_json::from_slice(text) {
            Ok(Value::Array(items)) => {
                // An unknown message does not invalidate the others.
                let messages: Vec<_> = items.into_iter().filter_map(Self::from_value).collect();
                Some(messages).filter(|messages| !messages.is_empty())
            }
            Ok(value) => Self::from_value(value).map(|messages| vec![messages]),
            Err(error) => {
                let fields = ReadableFields::of(text);
                let id = fields.id.as_ref().and_then(Value::as_u64).or_else(|| last_id(text));
                let is_reply = fields.has_outcome || fields.has_version && id.is_some();
                let unreadable = || Self::Unreadable { id, why: error.to_string() };
                (is_reply && !fields.has_method).then(|| vec![unreadable()])
            }
        }
    }

    fn from_value(value: Value) -> Option<Self> {
        let Value::Object(mut fields) = value else { return None };
        let version = fields.remove("jsonrpc");
        // Some servers write all fields, including those of other kinds of messages, as null.
        let mut field = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        let (id, method, error) = (field("id"), field("method"), field("error"));
        // Our IDs are numbers; a text that looks like a number is not ours.
        let own_id = id.as_ref().and_then(Value::as_u64);
        let unreadable = |why: &str| Self::Unreadable { id: own_id, why: why.to_owned() };
        if version.as_ref().and_then(Value::as_str) != Some("2.0") {
            // A line of a log may have an ID and the text of an error, too.
            let has_outcome = error.iter().chain(fields.get("result")).any(Value::is_object);
            let is_reply =
                own_id.is_some() && method.is_none() && (version.is_some() || has_outcome);
            return is_reply.then(|| unreadable("it is not a message of JSON-RPC 2.0"));
        }
        match method {
            Some(Value::String(method)) => Some(match id {
                Some(Value::Array(_) | Value::Object(_)) => Self::Notification,
                Some(Value::String(id)) if id.len() > MAX_ID_BYTES => Self::Notification,
                Some(id) => {
                    let params = fields.remove("params").unwrap_or_default();
                    Self::Request { id, method, params }
                }
                None => Self::notification(&method, fields.get("params")),
            }),
            Some(_) => None,
            None => {
                let outcome = match (fields.remove("result"), error) {
                    (_, Some(error)) => Err(RpcError::from_value(&error)),
                    (Some(result), None) => Ok(result),
                    (None, None) => {
                        let is_own = own_id.is_some();
                        return is_own.then(|| unreadable("it has neither a result nor an error"));
                    }
                };
                Some(Self::Reply { id: own_id, outcome })
            }
        }
    }

    fn notification(method: &str, params: Option<&Value>) -> Self {
        let progress = || {
            let params = params?;
            let id = params.get("progressToken")?.as_u64()?;
            let number = |name: &str| params.get(name).and_then(Value::as_f64);
            let text = match (params.get("message").and_then(Value::as_str), number("total")) {
                (Some(message), _) => message.chars().take(200).collect(),
                (None, Some(total)) => format!("{} of {total}", number("progress")?),
                (None, None) => format!("{}", number("progress")?),
            };
            Some(Self::Progress { id, text })
        };
        match method {
            "notifications/progress" => progress().unwrap_or(Self::Notification),
            _ => Self::Notification,
        }
    }
}

/// Returns the ID in the last field of a message, where some servers write it.
fn last_id(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = text.split_at(text.len() - digits);
    let name = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    name.ends_with(b"\"id\"").then_some(())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

impl RpcError {
    fn from_value(error: &Value) -> Self {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason was given");
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: message.chars().take(2_000).collect(),
            data: error.get("data").cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Vec<ServerMessage>> {
        ServerMessage::parse(text.as_bytes())
    }

    /// Fault M7.
    #[test]
    fn only_a_reply_with_a_numeric_id_has_one() {
        let id = |id: &str| match parse(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#)) {
            Some(messages) => match messages.as_slice() {
                [ServerMessage::Reply { id, .. }] => *id,
                other => panic!("{other:?}"),
            },
            None => panic!("nothing"),
        };
        assert_eq!(id("7"), Some(7));
        for other in ["\"7\"", "null", "-1", "1.5", "{}"] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    /// Fault M5.
    #[test]
    fn invalid_messages_are_rejected() {
        for text in [
            "",
            "hello",
            "{}",
            "[1]",
            "{\"jsonrpc\":\"2.0\"}",
            "{\"jsonrpc\":\"2.0\",\"method\":1}",
            "{\"jsonrpc\":\"1.0\",\"id\":\"a\",\"result\":1}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping",
            "{\"level\":\"warn\",\"id\":1,\"error\":\"slow\"}",
            "{\"level\":\"warn\",\"id\":1",
            "{'id': 1, 'result': 2}",
            "\u{0}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(ServerMessage::parse(b"\xff{}"), None);
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }

    /// Fault M5.
    #[test]
    fn an_answer_that_cannot_be_read_has_the_id_that_can() {
        for (text, id, why) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"ty"#, Some(7), "EOF while parsing"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":}}"#, Some(7), "expected value"),
            (r#"{"result":{"x":},"jsonrpc":"2.0", "id" : 7 }"#, Some(7), "expected value"),
            (r#"{"result":{"id":8,"content":["#, None, "EOF while parsing"),
            (r#"{"jsonrpc":"1.0","id":7,"result":1}"#, Some(7), "not a message of JSON-RPC 2.0"),
            (r#"{"id":7,"result":{}}"#, Some(7), "not a message of JSON-RPC 2.0"),
            (r#"{"jsonrpc":"2.0","id":7}"#, Some(7), "neither a result nor an error"),
            (r#"{"jsonrpc":"2.0","id":7,"result":1}{}"#, Some(7), "trailing characters"),
        ] {
            match parse(text).as_deref() {
                Some([ServerMessage::Unreadable { id: found, why: reason }]) => {
                    assert_eq!(*found, id, "{text}");
                    assert!(reason.contains(why), "{text}: {reason}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn null_fields_of_other_kinds_are_ignored() {
        let text =
            r#"{"jsonrpc":"2.0","id":7,"method":null,"params":null,"result":{},"error":null}"#;
        let reply = ServerMessage::Reply { id: Some(7), outcome: Ok(json!({})) };
        assert_eq!(parse(text), Some(vec![reply]));
        let text = r#"{"jsonrpc":"2.0","id":null,"method":"notifications/new","params":["odd"]}"#;
        assert_eq!(parse(text), Some(vec![ServerMessage::Notification]));
        let text =
            r#"[{"jsonrpc":"2.0","method":{"new":1}},7,{"jsonrpc":"2.0","id":7,"result":1}]"#;
        let reply = ServerMessage::Reply { id: Some(7), outcome: Ok(1.into()) };
        assert_eq!(parse(text), Some(vec![reply]));
    }

    #[test]
    fn a_batch_is_read_as_its_messages() {
        let text = r#"[{"jsonrpc":"2.0","method":"notifications/message"},
            {"jsonrpc":"2.0","id":"a","method":"roots/list"}]"#;
        let (id, method, params) = ("a".into(), "roots/list".into(), Value::Null);
        let request = ServerMessage::Request { id, method, params };
        assert_eq!(parse(text), Some(vec![ServerMessage::Notification, request]));
    }

    #[test]
    fn progress_becomes_text() {
        let text = |params: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#
            );
            parse(&text).unwrap().remove(0)
        };
        let progress = |text: &str| ServerMessage::Progress { id: 3, text: text.to_owned() };
        assert_eq!(text(r#"{"progressToken":3,"progress":1,"total":4}"#), progress("1 of 4"));
        assert_eq!(text(r#"{"progressToken":3,"progress":1,"message":"a"}"#), progress("a"));
        assert_eq!(text(r#"{"progressToken":"x","progress":1}"#), ServerMessage::Notification);
    }

    /// Fault M11.
    #[test]
    fn a_server_may_ping_and_is_refused_everything_else() {
        assert_eq!(client_answer(&"p".into(), "ping")["result"], json!({}));
        assert_eq!(client_answer(&"p".into(), ELICIT)["result"], json!({ "action": "decline" }));
        for method in ["sampling/createMessage", "roots/list", "x"] {
            assert_eq!(
                client_answer(&1.into(), method)["error"]["code"],
                NO_SUCH_METHOD,
                "{method}"
            );
        }
    }

    #[test]
    fn an_answer_to_a_server_is_short() {
        let long = "x".repeat(1 << 20);
        assert!(client_answer(&json!(1), &long).to_string().len() < 200);
        for id in [json!(long), json!([long]), json!({ "a": long })] {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string();
            let parsed = ServerMessage::parse(request.as_bytes());
            assert_eq!(parsed, Some(vec![ServerMessage::Notification]));
        }
    }
}
