//! Replies of a server that speaks Chat Completions.

use serde_json::{Value, json};

use super::server::ScriptedReply;

/// The usage that these replies report.
pub(crate) const USAGE: (u64, u64) = (100, 20);

/// Returns an event with this data.
pub(crate) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Returns a chunk with this delta.
pub(crate) fn delta(delta: &Value) -> String {
    event(&json!({"id": "c1", "object": "chat.completion.chunk", "model": "fake-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

/// Returns the chunk with the model's finish reason.
pub(crate) fn finish(reason: &str) -> String {
    event(&json!({"id": "c1", "model": "fake-1",
        "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// Returns the chunk with the usage, and the end.
pub(crate) fn end() -> String {
    let (input, output) = USAGE;
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    format!("{}data: [DONE]\n\n", event(&json!({"id": "c1", "choices": [], "usage": usage})))
}

/// Returns a streamed reply with this text, a word in each event.
pub(crate) fn text(text: &str) -> ScriptedReply {
    let words = text.split_inclusive(' ').map(|word| delta(&json!({"content": word})));
    ScriptedReply::stream(words.chain([finish("stop"), end()]))
}

/// Returns a streamed reply with these tool calls: id, name, arguments.
pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> ScriptedReply {
    let pieces = calls.iter().enumerate().flat_map(|(index, (id, name, arguments))| {
        let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at));
        let (first, second) = arguments.split_at(middle.unwrap_or(0));
        let call = |value: Value| delta(&json!({"tool_calls": [value]}));
        [
            call(json!({"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": ""}})),
            call(json!({"index": index, "function": {"arguments": first}})),
            call(json!({"index": index, "function": {"arguments": second}})),
        ]
    });
    ScriptedReply::stream(pieces.chain([finish("tool_calls"), end()]))
}

/// Returns a reply in one piece, as it comes when nothing is streamed.
pub(crate) fn unstreamed(text: &str) -> ScriptedReply {
    ScriptedReply::with_length(200, &unstreamed_body(text))
}

/// Returns the body of a reply in one piece.
pub(crate) fn unstreamed_body(text: &str) -> String {
    let (input, output) = USAGE;
    let body = json!({"id": "c1", "object": "chat.completion", "model": "fake-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"}],
        "usage": {"prompt_tokens": input, "completion_tokens": output}});
    body.to_string()
}
