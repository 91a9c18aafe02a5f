//! Two hundred steps: each request extends the previous one, on one connection.

use architect::port::ToolSpec;
use architect::types::{
    ConversationItem, Reply as Answer, ReplyFinish, ReplyPart, ToolCall, ToolExchange, ToolResult,
    ToolStatus, Usage,
};
use serde_json::json;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::caller::{WireCaller, long_timeouts};
use super::recorded_streams::{Wire, one};
use crate::kit::chat;
use crate::kit::cli::{CliFixture, wait_for_exit, wait_until};
use crate::kit::server::{ScriptedReply, Server};

/// The end of a request may differ from the next one: brackets, limits, the cache mark.
const CLOSING: usize = 100;

fn exchange(step: usize) -> ConversationItem {
    let id = format!("call_of_step_{step}");
    let call = ToolCall::new(id.as_str().into(), "read_file", r#"{"path":"a"}"#);
    let result = ToolResult::new(call.id.clone(), ToolStatus::Ok, "x\n".repeat(50));
    let reply = Answer {
        parts: [ReplyPart::Text("I will look.".into()), ReplyPart::Call(call)].into(),
        finish: ReplyFinish::ToolCalls,
        usage: Usage::default(),
        model: None,
    };
    ConversationItem::Exchange(ToolExchange::new(reply, vec![result]).unwrap())
}

/// The provider's prompt cache and the encoder's cache depend on it.
#[test]
fn each_request_extends_the_previous_one_on_every_wire() {
    for wire in Wire::ALL {
        let server = Server::repeating([one(wire, "text").in_chunks(usize::MAX)]);
        let mut caller = WireCaller::new(wire.model(), &long_timeouts(&server, ""));
        caller.tools = [ToolSpec {
            name: "read_file".into(),
            description: "reads".into(),
            schema: json!({"type": "object"}),
        }]
        .into();
        for step in 0..200 {
            caller.call().reply();
            caller.push(exchange(step));
        }
        let requests = server.requests();
        let sizes: Vec<usize> = requests.iter().map(|request| request.body.len()).collect();
        for (before, now) in requests.iter().zip(&requests[1..]) {
            let kept = &before.body.as_bytes()[..before.body.len() - CLOSING];
            assert!(now.body.as_bytes().starts_with(kept), "{wire:?}: {}", now.body);
        }
        // Each step adds the same, except for the digits of its number.
        let (first, last) = (sizes[2] - sizes[1], sizes[199] - sizes[198]);
        assert!(last.abs_diff(first) <= 8, "{wire:?}: {first} bytes, then {last}");
    }
}

const STEPS: usize = 200;

/// Returns a reply with one call, different in each step.
fn looks(wire: Wire, step: usize) -> ScriptedReply {
    let (id, path) = (format!("call_{step}"), format!("f{}.txt", step % 4));
    let arguments = json!({"path": path, "offset": step + 1, "limit": 15});
    let event = |data: serde_json::Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("message"))
    };
    match wire {
        Wire::Chat => chat::calls(&[(&id, "read_file", &arguments.to_string())]),
        Wire::Anthropic => ScriptedReply::stream(
            [
                json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
                    "model": "claude-sonnet-5", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "tool_use", "id": id, "name": "read_file", "input": {}}}),
                json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": arguments.to_string()}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ]
            .map(event),
        ),
        Wire::Gemini => {
            let call = json!({"functionCall": {"id": id, "name": "read_file", "args": arguments}});
            ScriptedReply::stream([event(json!({"candidates": [{"content": {"role": "model", "parts": [call]},
                "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 9}}))])
        }
        Wire::Responses => {
            let call = json!({"type": "function_call", "id": format!("fc_{step}"), "call_id": id, "name": "read_file",
                "arguments": arguments.to_string(), "status": "completed"});
            ScriptedReply::stream(
                [
                    json!({"type": "response.output_item.added", "output_index": 0, "item": call}),
                    json!({"type": "response.output_item.done", "output_index": 0, "item": call}),
                    json!({"type": "response.completed", "response": {"status": "completed", "output": [call],
                        "usage": {"input_tokens": 9, "output_tokens": 9}}}),
                ]
                .map(event),
            )
        }
    }
}

/// Returns the memory of a process, in kilobytes.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The conversation stays in memory, the requests don't: two hundred requests are fifty times as large.
#[test]
fn the_memory_of_a_run_grows_linearly_on_every_wire() {
    for wire in Wire::ALL {
        let world = CliFixture::new();
        for file in 0..4 {
            world.write(
                &format!("f{file}.txt"),
                &"a line of a file that is read, word for word\n".repeat(300),
            );
        }
        let text = ScriptedReply::open_stream().chunk(&one(wire, "text").stream).end();
        let (next, is_measured) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
        let measured = Arc::clone(&is_measured);
        let server = Server::with_handler(move |_| match next.fetch_add(1, Ordering::SeqCst) {
            step if step < STEPS => looks(wire, step),
            // The process still runs when it is measured.
            _ => {
                wait_until("it is measured", || measured.load(Ordering::SeqCst));
                text.clone()
            }
        });
        let base = server.url(if wire == Wire::Gemini { "" } else { "/v1" });
        let args =
            ["run", "Do it.", "--api-base", &base, "--max-steps", "300", "--json", "--quiet"];
        let mut command = world.command(&[&args[..], &["--model", wire.model()]].concat());
        for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
            command.env(key, "key");
        }
        let child = command.spawn().unwrap();
        server.wait_for(STEPS / 4);
        let early = memory(child.id());
        for steps in [STEPS / 2, STEPS * 3 / 4, STEPS + 1] {
            server.wait_for(steps);
        }
        let late = memory(child.id());
        is_measured.store(true, Ordering::SeqCst);
        let ran = wait_for_exit(child);
        assert_eq!(ran.json()["steps"], STEPS, "{wire:?}: {} {}", ran.out, ran.err);
        let sizes = server.requests().iter().map(|request| request.body.len()).collect::<Vec<_>>();
        let sent = (sizes.iter().sum::<usize>() / 1_024) as u64;
        let grown = late.saturating_sub(early);
        println!(
            "{wire:?}: {early} kB, then {late} kB; the last request has {} bytes, all {sent} kB",
            sizes[STEPS]
        );
        assert!(
            sent > 10_000 && grown < sent / 4,
            "{wire:?}: {grown} kB for {sent} kB of requests"
        );
    }
}
