//! Unusual but valid replies: other spellings of finish reasons, additional fields, gaps, and empty fields.

use architect::types::{FaultClass, FaultKind, ReplyFinish, ToolArguments};
use serde_json::{Value, json};

use super::recorded_streams::{Wire, one};
use super::recordings::{call, seen};
use crate::kit::server::ScriptedReply;

/// The finish reason of each wire, in a recording of a text.
const DONE: [(Wire, &str, &str); 4] = [
    (Wire::Anthropic, "\"stop_reason\":\"end_turn\"", "\"stop_reason\":"),
    (Wire::Chat, "\"finish_reason\":\"stop\"", "\"finish_reason\":"),
    (Wire::Gemini, "\"finishReason\":\"STOP\"", "\"finishReason\":"),
    (Wire::Responses, "\"status\":\"completed\",\"error\":null", "\"error\":null,\"status\":"),
];

/// Returns the recording of a text with another finish reason.
fn ending_with(at: usize, value: &str) -> (Wire, String, Value) {
    let (wire, reason, key) = DONE[at];
    let recording = one(wire, "text");
    assert!(recording.stream.contains(reason), "{wire:?}");
    (wire, recording.stream.replace(reason, &format!("{key}{value}")), recording.expected)
}

fn stream(wire: Wire, stream: &str) -> Value {
    seen(&call(wire, true, ScriptedReply::stream([stream])).reply())
}

fn fault(wire: Wire, events: &[Value]) -> FaultKind {
    let fault = call(wire, true, ScriptedReply::stream(named(events))).fault();
    assert_eq!(fault.class(), FaultClass::Transient, "{}", fault.message);
    fault.kind
}

/// Returns events with their types as names.
fn named(events: &[Value]) -> Vec<String> {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

#[test]
fn every_spelling_of_a_finish_reason_is_recognized() {
    for (at, spellings) in [
        (0, &["STOP", "stop", "eos_token", "stop_sequence", "END_TURN"][..]),
        (1, &["STOP", "Stop", "eos_token", "end_turn", "eos", "COMPLETE"]),
        (2, &["stop", "end_turn", "eos_token"]),
        (3, &["COMPLETED", "complete"]),
    ] {
        for spelling in spellings {
            let (wire, text, expected) = ending_with(at, &format!("\"{spelling}\""));
            assert_eq!(stream(wire, &text), expected, "{wire:?} {spelling}");
        }
    }
    for (at, spellings) in [
        (0, &["MAX_TOKENS", "length", "max_output_tokens"]),
        (1, &["max_tokens", "MAX_TOKENS", "max_new_tokens"]),
        (2, &["max_tokens", "length", "MAX_OUTPUT_TOKENS"]),
    ] {
        for spelling in spellings {
            let (wire, text, expected) = ending_with(at, &format!("\"{spelling}\""));
            let found = stream(wire, &text);
            assert_eq!((&found["finish"], &found["text"]), (&json!("length"), &expected["text"]));
        }
    }
}

#[test]
fn an_unknown_finish_reason_keeps_its_text_on_every_wire() {
    for at in 0..DONE.len() {
        let (wire, text, expected) = ending_with(at, "\"moon\"");
        let found = stream(wire, &text);
        assert_eq!(found["finish"], json!({"other": "moon"}), "{wire:?}");
        assert_eq!(found["text"], expected["text"], "{wire:?}");
    }
}

/// At the proper end of a stream, a missing reason is not an unknown one.
#[test]
fn a_missing_reason_at_the_proper_end_is_stop() {
    for at in 0..DONE.len() {
        let (wire, mut text, expected) = ending_with(at, "null");
        if wire == Wire::Gemini {
            let cut = call(wire, true, ScriptedReply::stream([&text])).fault();
            assert_eq!(cut.kind, FaultKind::Truncated, "nothing says that it has ended");
            text.push_str("data: [DONE]\n\n");
        }
        assert_eq!(stream(wire, &text), expected, "{wire:?}");
    }
    let chunk =
        json!({"choices": [{"index": 0, "delta": {"content": "cut"}, "finish_reason": null}]});
    let cut = call(Wire::Chat, true, ScriptedReply::stream([format!("data: {chunk}\n\n")])).fault();
    assert_eq!(cut.kind, FaultKind::Truncated);
}

#[test]
fn a_missing_reason_in_a_json_reply_is_stop() {
    let chat = |content: &str| json!({"choices": [{"message": {"content": content}, "finish_reason": null}]});
    for (wire, body) in [
        (Wire::Chat, chat("done")),
        (
            Wire::Anthropic,
            json!({"content": [{"type": "text", "text": "done"}], "stop_reason": null}),
        ),
        (Wire::Gemini, json!({"candidates": [{"content": {"parts": [{"text": "done"}]}}]})),
        (
            Wire::Responses,
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "done"}]}]}),
        ),
    ] {
        let reply = call(wire, false, ScriptedReply::with_length(200, &body.to_string())).reply();
        assert_eq!((&*reply.text(), reply.finish), ("done", ReplyFinish::Stop), "{wire:?}");
    }
}

/// Perplexity sends both a delta and a message, even without streaming; others send one of them, or null.
#[test]
fn a_delta_and_a_message_are_one_reply() {
    let text = |text: &str| json!({"role": "assistant", "content": text});
    let nothing = || json!({"role": "assistant", "content": ""});
    for (delta, message) in [
        (nothing(), text("done")),
        (json!(null), text("done")),
        (json!({}), text("done")),
        (text("done"), json!(null)),
        (text("done"), text("done")),
        (json!("odd"), text("done")),
    ] {
        let choice =
            json!({"index": 0, "delta": delta, "message": message, "finish_reason": "stop"});
        let body = json!({"object": "chat.completion", "choices": [choice]});
        let reply =
            call(Wire::Chat, false, ScriptedReply::with_length(200, &body.to_string())).reply();
        assert_eq!((&*reply.text(), reply.finish), ("done", ReplyFinish::Stop), "{body}");
        let events = [format!("data: {body}\n\n"), "data: [DONE]\n\n".to_owned()];
        let reply = call(Wire::Chat, true, ScriptedReply::stream(events)).reply();
        assert_eq!(&*reply.text(), "done", "{body}");
    }
    // The last chunk repeats the reply.
    let chunk = |choice: &Value| format!("data: {}\n\n", json!({"choices": [choice]}));
    for last in [
        json!({"message": text("so done"), "finish_reason": "stop"}),
        json!({"delta": nothing(), "message": text("so done"), "finish_reason": "stop"}),
        json!({"delta": text("done"), "message": text("so done"), "finish_reason": "stop"}),
    ] {
        let ends = last["delta"]["content"] == "done";
        let middle = if ends { "" } else { "done" };
        let events = [
            chunk(&json!({"delta": text("so "), "message": text("so ")})),
            chunk(&json!({"delta": text(middle), "message": null})),
            chunk(&last),
            "data: [DONE]\n\n".to_owned(),
        ];
        let reply = call(Wire::Chat, true, ScriptedReply::stream(events)).reply();
        assert_eq!(&*reply.text(), "so done", "{last}");
    }
}

/// An empty error field is not an error.
#[test]
fn an_empty_error_is_ignored() {
    for empty in [json!(null), json!(""), json!({}), json!([]), json!(false)] {
        let chat = json!({"error": empty, "choices": [{"index": 0, "error": empty, "delta": {"content": "a"}, "finish_reason": "stop"}]});
        let gemini = json!({"error": empty, "candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]});
        for (wire, chunk) in [(Wire::Chat, &chat), (Wire::Gemini, &gemini)] {
            let stream = [format!("data: {chunk}\n\n"), "data: [DONE]\n\n".to_owned()];
            assert_eq!(
                &*call(wire, true, ScriptedReply::stream(stream)).reply().text(),
                "a",
                "{chunk}"
            );
            let whole = ScriptedReply::with_length(200, &chunk.to_string());
            assert_eq!(&*call(wire, false, whole).reply().text(), "a", "{chunk}");
        }
    }
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn completed(status: &str, output: &[Value]) -> Value {
    json!({"type": format!("response.{status}"), "response": {"status": status, "output": output}})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

#[test]
fn the_output_counts_if_item_events_have_gaps() {
    let function = json!({"type": "function_call", "call_id": "c", "name": "grep", "arguments": {"text": "x"}});
    let output = [message("one"), message("two"), function.clone()];
    for streamed in [
        vec![],
        vec![done(1, &output[1])],
        vec![done(0, &output[0]), done(2, &function)],
        vec![done(0, &output[0]), done(0, &output[0]), done(1, &output[1])],
        vec![done(0, &output[0]), done(1, &output[1])],
        vec![json!({"type": "response.output_item.added", "output_index": 7, "item": output[0]})],
        vec![json!({"type": "response.output_item.done", "output_index": 0, "item": null})],
    ] {
        let events = [streamed.as_slice(), &[completed("completed", &output)]].concat();
        let reply = call(Wire::Responses, true, ScriptedReply::stream(named(&events))).reply();
        assert_eq!(
            (&*reply.text(), reply.finish),
            ("onetwo", ReplyFinish::ToolCalls),
            "{streamed:?}"
        );
        let found =
            reply.parts.iter().filter(|part| matches!(part, architect::types::ReplyPart::Call(_)));
        assert_eq!(found.count(), 1);
        if !streamed.is_empty() {
            let events = [streamed.as_slice(), &[completed("completed", &[])]].concat();
            let has_gap = streamed != [done(0, &output[0]), done(1, &output[1])];
            let called = call(Wire::Responses, true, ScriptedReply::stream(named(&events)));
            assert_eq!(called.reply.is_err(), has_gap, "nothing else has the items: {streamed:?}");
        }
    }
}

/// Some servers send items without an index.
#[test]
fn items_without_an_index_keep_their_order() {
    let item = |text: &str| json!({"type": "response.output_item.done", "item": message(text)});
    let events = [item("one"), item("two"), completed("completed", &[])];
    let reply = call(Wire::Responses, true, ScriptedReply::stream(named(&events))).reply();
    assert_eq!(&*reply.text(), "onetwo");
}

/// A call of an incomplete response may look complete.
#[test]
fn an_incomplete_call_cannot_run() {
    let function = json!({"type": "function_call", "status": "incomplete", "call_id": "c", "name": "grep", "arguments": ""});
    for (reason, calls) in [("content_filter", 0), ("max_output_tokens", 1)] {
        let mut end = completed("incomplete", std::slice::from_ref(&function));
        end["response"]["incomplete_details"] = json!({"reason": reason});
        let reply = call(Wire::Responses, true, ScriptedReply::stream(named(&[end]))).reply();
        assert_eq!(reply.calls().count(), calls, "{reason}");
        assert!(
            reply.calls().all(|call| matches!(call.arguments, ToolArguments::Truncated { .. }))
        );
    }
}

/// The terminal event determines the end of a response without a status.
#[test]
fn an_incomplete_response_without_a_status_is_not_a_success() {
    let mut end = completed("incomplete", &[message("half")]);
    end["response"].as_object_mut().unwrap().remove("status");
    let reply = call(Wire::Responses, true, ScriptedReply::stream(named(&[end.clone()]))).reply();
    assert_eq!(reply.finish, ReplyFinish::Other("incomplete".into()));
    end["type"] = "response.failed".into();
    assert_eq!(fault(Wire::Responses, &[end]), FaultKind::Server);
}

#[test]
fn only_an_identical_message_start_may_repeat() {
    let start = |id: &str| json!({"type": "message_start", "message": {"id": id, "model": "m", "content": []}});
    let rest = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    let again = [&[start("a"), start("a"), start("a")], &rest[..]].concat();
    let reply = call(Wire::Anthropic, true, ScriptedReply::stream(named(&again))).reply();
    assert_eq!(&*reply.text(), "a");
    for events in [
        [&[start("a"), start("b")], &rest[..]].concat(),
        [&[start("a"), rest[0].clone(), start("a")], &rest[1..]].concat(),
    ] {
        assert_eq!(fault(Wire::Anthropic, &events), FaultKind::Protocol);
    }
}

/// A block without an index is the next one, and a delta without an index belongs to the only open block.
#[test]
fn block_events_without_an_index_follow_their_order() {
    let events = [
        json!({"type": "message_start", "message": {"model": "m"}}),
        json!({"type": "content_block_start", "index": "0", "content_block": {"type": "text"}}),
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        json!({"type": "content_block_stop", "index": "0"}),
        json!({"type": "content_block_start", "content_block": {"type": "text", "text": "b"}}),
        json!({"type": "content_block_stop"}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    let reply = call(Wire::Anthropic, true, ScriptedReply::stream(named(&events))).reply();
    assert_eq!(&*reply.text(), "ab");
}
