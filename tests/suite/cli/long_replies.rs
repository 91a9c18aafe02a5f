//! The memory usage of long replies.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::chat;
use crate::kit::cli::CliFixture;
use crate::kit::server::{ScriptedReply, Server};
use crate::kit::system::wait_with_peak;

/// The size of a long reply, in bytes. The allocator does not return smaller blocks to the system when they are freed.
const SIZE: usize = 40 << 20;

/// The size of the text in one event, in bytes.
const PIECE: usize = 64 << 10;

/// Returns a streamed reply with text of so many bytes.
fn reply(api: &str, size: usize) -> ScriptedReply {
    let text = "x".repeat(size.min(PIECE));
    let pieces = size.div_ceil(PIECE);
    let event = |data: Value| chat::event(&data);
    let (begin, middle, end) = match api {
        "openai-chat" => (
            String::new(),
            chat::delta(&json!({ "content": text })),
            chat::finish("stop") + &chat::end(),
        ),
        "anthropic" => (
            event(
                json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "m",
                "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
            ) + &event(json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}})),
            event(json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}})),
            event(json!({"type": "content_block_stop", "index": 0}))
                + &event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 1}}))
                + &event(json!({"type": "message_stop"})),
        ),
        _ => (
            String::new(),
            event(
                json!({"candidates": [{"content": {"role": "model", "parts": [{ "text": text }]}}]}),
            ),
            event(json!({"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]},
                "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1}})),
        ),
    };
    let pieces = std::iter::repeat_n(middle, pieces);
    ScriptedReply::stream(
        [begin].into_iter().filter(|begin| !begin.is_empty()).chain(pieces).chain([end]),
    )
}

/// The response of the Responses API with this text.
fn response(text: &str) -> Value {
    json!({"id": "r", "status": "completed", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1},
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]})
}

/// Returns a reply of one document with text of so many bytes, which has line breaks.
fn document(api: &str, size: usize) -> ScriptedReply {
    let text = lines(size);
    let body = match api {
        "openai-chat" => {
            json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
        }
        "anthropic" => {
            json!({"type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1, "output_tokens": 1}})
        }
        "openai" => response(&text),
        _ => json!({"candidates": [{"content": {"role": "model", "parts": [{ "text": text }]},
            "finishReason": "STOP"}]}),
    };
    ScriptedReply::with_length(200, &body.to_string())
}

/// Returns a stream whose last events each have the whole text, as those of the Responses API.
fn repeating_stream(size: usize) -> ScriptedReply {
    let response = response(&lines(size));
    let item = &response["output"][0];
    let (part, text) = (&item["content"][0], &item["content"][0]["text"]);
    let pieces = text.as_str().unwrap().as_bytes().chunks(PIECE);
    let pieces = pieces.map(|piece| {
        json!({"type": "response.output_text.delta", "delta": str::from_utf8(piece).unwrap()})
    });
    let begin = json!({"type": "response.output_item.added", "output_index": 0, "item": {}});
    let end = [
        json!({"type": "response.output_text.done", "text": text}),
        json!({"type": "response.content_part.done", "part": part}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response}),
    ];
    let events = [begin].into_iter().chain(pieces).chain(end);
    ScriptedReply::stream(events.map(|event| chat::event(&event)))
}

fn lines(size: usize) -> String {
    let mut text = "some words of a line\n".repeat(size.div_ceil(21));
    text.truncate(size - 1);
    text + "."
}

/// Returns the peak memory of a run with a reply of so many bytes.
fn peak(api: &str, size: usize, reply: ScriptedReply, options: &[&str]) -> u64 {
    let server = Server::new([reply]);
    let base = if api == "gemini" { server.url("") } else { server.url("/v1") };
    let model = format!("{api}/m");
    let world = CliFixture::new();
    let mut command = world.command(&["run", "Do it.", "--model", &model, "--api-base", &base]);
    command.args(options);
    for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
        command.env(key, "sk-test-canary");
    }
    let answer = std::fs::File::create(world.path("answer")).unwrap();
    let log = std::fs::File::create(world.path("log")).unwrap();
    let mut child = command.stdout(answer).stderr(log).spawn().unwrap();
    let (status, most) = wait_with_peak(&mut child, Duration::from_secs(120));
    assert!(status.success(), "{}", world.read("log"));
    assert_eq!(world.read("answer").len(), size + 1);
    most
}

/// Checks that a reply takes at most three times its size.
fn check(api: &str, size: usize, options: &[&str], reply: impl Fn(usize) -> ScriptedReply) {
    let (base, most) = (peak(api, 1, reply(1), options), peak(api, size, reply(size), options));
    let taken = most.saturating_sub(base);
    assert!(
        taken < 3 * size as u64,
        "{api} {options:?}: {} kB over {} kB",
        taken >> 10,
        base >> 10
    );
}

#[test]
fn a_long_reply_takes_at_most_three_times_its_size() {
    for api in ["openai-chat", "anthropic", "gemini"] {
        check(api, SIZE, &[], |size| reply(api, size));
    }
    for api in ["openai-chat", "anthropic", "gemini", "openai"] {
        check(api, SIZE, &["--no-stream"], |size| document(api, size));
    }
    // The stream has the text five times, and at most 64 MiB.
    check("openai", 12 << 20, &[], repeating_stream);
}
