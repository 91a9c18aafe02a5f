//! Replies of a server that speaks Bedrock's event streams.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::server::{ScriptedReply, chunk};

/// Returns a message of an event stream with headers that are text.
pub(crate) fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in headers {
        fields.push(u8::try_from(name.len()).unwrap());
        fields.extend(name.as_bytes());
        fields.push(7);
        fields.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        fields.extend(value.as_bytes());
    }
    let length = u32::try_from(16 + fields.len() + payload.len()).unwrap();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(u32::try_from(fields.len()).unwrap().to_be_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend(fields);
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

/// Returns an event of the model.
pub(crate) fn event(data: &str) -> Vec<u8> {
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    let payload = json!({"bytes": STANDARD.encode(data), "p": "abcdefgh"}).to_string();
    message(&headers, payload.as_bytes())
}

/// Returns an exception.
pub(crate) fn exception(kind: &str, text: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", kind),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    message(&headers, json!({"message": text}).to_string().as_bytes())
}

/// Returns a streamed reply in chunks of this size.
pub(crate) fn stream(body: &[u8], size: usize) -> ScriptedReply {
    let body: Vec<u8> = body.chunks(size).flat_map(chunk).collect();
    ScriptedReply::open_stream().bytes(body).end()
}

/// Returns the events of a message with this block, which is complete in its start.
fn reply(block: &Value, stop_reason: &str) -> ScriptedReply {
    let usage = json!({"input_tokens": 100, "output_tokens": 20});
    let start =
        json!({"id": "m", "role": "assistant", "model": "claude", "content": [], "usage": usage});
    let events = [
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}),
        json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"outputTokenCount": 20}}),
    ];
    let body: Vec<u8> = events.iter().flat_map(|data| event(&data.to_string())).collect();
    stream(&body, 100)
}

/// Returns a streamed reply with this text.
pub(crate) fn text(text: &str) -> ScriptedReply {
    reply(&json!({"type": "text", "text": text}), "end_turn")
}

/// Returns a streamed reply with a tool call.
pub(crate) fn call(name: &str, arguments: &Value) -> ScriptedReply {
    let call = json!({"type": "tool_use", "id": "c1", "name": name, "input": arguments});
    reply(&call, "tool_use")
}
