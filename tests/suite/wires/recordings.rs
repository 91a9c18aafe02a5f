//! All wires with recorded streams: any chunking gives the same reply, and missing events are detected.

use architect::types::{
    FaultClass, FaultKind, Reply as Answer, ReplyFinish, ReplyPart, ToolArguments,
};
use serde_json::{Value, json};

use super::caller::{CallResult, WireCaller, long_timeouts};
use super::recorded_streams::{Recording, Wire, all, one};
use crate::kit::server::{ScriptedReply, Server, chunk};

/// Calls a server with this response.
pub(super) fn call(wire: Wire, stream: bool, reply: ScriptedReply) -> CallResult {
    let server = Server::new([reply]);
    let mut settings = long_timeouts(&server, "");
    settings.stream = stream;
    WireCaller::new(wire.model(), &settings).call()
}

fn streamed(wire: Wire, events: &[&str]) -> CallResult {
    call(wire, true, ScriptedReply::stream(events))
}

/// Returns the content of a reply in the form of the recordings.
pub(super) fn seen(reply: &Answer) -> Value {
    let arguments = |arguments: &ToolArguments| match arguments {
        ToolArguments::Complete { text } => serde_json::from_str(text).unwrap(),
        ToolArguments::Malformed { .. } => json!("malformed"),
        ToolArguments::Truncated { .. } => Value::Null,
    };
    let call = |call: &architect::types::ToolCall| json!({"id": call.id, "name": call.name, "arguments": arguments(&call.arguments)});
    let opaque = reply.parts.iter().filter_map(|part| match part {
        ReplyPart::Opaque(opaque) => Some(serde_json::from_str(&opaque.json).unwrap()),
        ReplyPart::Text(_) | ReplyPart::Call(_) => None,
    });
    let mut usage = serde_json::to_value(reply.usage).unwrap();
    if !reply.usage.is_estimated {
        usage.as_object_mut().unwrap().remove("estimated");
    }
    json!({
        "text": reply.text(),
        "calls": reply.calls().map(call).collect::<Vec<_>>(),
        "finish": reply.finish,
        "usage": usage,
        "opaque": opaque.collect::<Vec<Value>>(),
        "model": reply.model,
    })
}

pub(super) fn every() -> impl Iterator<Item = Recording> {
    Wire::ALL.into_iter().flat_map(all)
}

#[test]
fn any_chunking_of_a_recorded_stream_gives_the_same_reply() {
    for recording in every() {
        let events = ScriptedReply::stream(recording.events());
        let whole = recording.in_chunks(usize::MAX);
        for (how, reply) in [
            ("event by event", events),
            ("at once", whole),
            ("in sevens", recording.in_chunks(7)),
            ("byte by byte", recording.in_chunks(1)),
        ] {
            let called = call(recording.wire, true, reply);
            let text = called.streamed();
            let reply = called.reply();
            assert_eq!(seen(&reply), recording.expected, "{} {how}", recording.name);
            // The explanation of a refusal follows at the end, and is not streamed.
            if reply.finish != ReplyFinish::Refused {
                assert_eq!(text, *reply.text(), "{} {how}", recording.name);
            }
        }
    }
}

#[test]
fn a_recorded_reply_as_one_document_is_the_same() {
    for recording in every().filter(Recording::has_whole) {
        let reply = call(recording.wire, false, recording.whole()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
        // It is accepted in place of a stream too.
        let reply = call(recording.wire, true, recording.whole()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
    }
}

/// Fault L38: text before a stream and after its terminal event is ignored.
#[test]
fn text_around_a_stream_is_ignored() {
    for wire in Wire::ALL {
        let recording = one(wire, "text");
        // A stream of Gemini ends with its body.
        let after = if wire == Wire::Gemini { &b"\n"[..] } else { b"\xff\xef\n\n" };
        let body = [b"\xef\xbb\xbf \r\n\n", recording.stream.as_bytes(), after].concat();
        for size in [1, 2, body.len()] {
            let pieces = body.chunks(size).flat_map(chunk).collect::<Vec<_>>();
            let reply = call(wire, true, ScriptedReply::open_stream().bytes(pieces).end()).reply();
            assert_eq!(seen(&reply), recording.expected, "{wire:?} in pieces of {size}");
        }
    }
}

/// Faults L29 and L30, for every wire: after each event, and in the middle of each.
#[test]
fn a_broken_stream_is_truncated() {
    for recording in every() {
        let events = recording.events();
        for (count, next) in events.iter().enumerate() {
            let begun = events[..count]
                .iter()
                .fold(ScriptedReply::open_stream(), |reply, e| reply.chunk(e));
            let half = chunk(&next.as_bytes()[..next.len() / 2]);
            for reply in [begun.clone().close(), begun.bytes(half).close()] {
                let fault = call(recording.wire, true, reply).fault();
                let expected = (FaultKind::Truncated, FaultClass::Transient, true);
                let actual = (fault.kind, fault.class(), fault.billed);
                assert_eq!(actual, expected, "{} {count}", recording.name);
            }
        }
    }
}

/// Fault L29: the same for a body that ends properly, where only a finish reason may complete the reply.
#[test]
fn a_stream_without_a_finish_reason_is_truncated() {
    for recording in every() {
        let events = recording.events();
        let says_why = |event: &&str| {
            ["stop_reason\":\"", "finish_reason\":\"", "finishReason\":\"", "response.completed"]
                .iter()
                .any(|why| event.contains(why))
        };
        let why = events.iter().position(says_why).unwrap_or(events.len() - 1);
        for count in 1..=why {
            let fault = streamed(recording.wire, &events[..count]).fault();
            assert_eq!(fault.kind, FaultKind::Truncated, "{} {count}", recording.name);
        }
    }
}

/// Fault L38: a split character is valid (byte by byte, above), but invalid UTF-8 is a fault of the whole reply.
#[test]
fn invalid_utf8_is_a_fault_on_every_wire() {
    for wire in Wire::ALL {
        let recording = one(wire, "text");
        let text = recording.stream.as_bytes();
        let at = memchr::memmem::find(text, "🦀".as_bytes()).unwrap();
        for (bad, length) in
            [(&b"\xff"[..], 4), (&b"\xf0\x9f\xa6"[..], 4), (&b"\xed\xa0\x80"[..], 4)]
        {
            let spoilt = [&text[..at], bad, &text[at + length..]].concat();
            let body = chunk(&spoilt);
            let fault = call(wire, true, ScriptedReply::open_stream().bytes(body).end()).fault();
            let actual = (fault.kind, fault.class(), fault.billed);
            assert_eq!(actual, (FaultKind::Protocol, FaultClass::Transient, true), "{wire:?}");
        }
    }
}

/// Fault L37, and comments that keep a connection alive.
#[test]
fn unknown_events_are_ignored() {
    for recording in every() {
        let news = recording.wire.news();
        let between = recording.events().into_iter().flat_map(|event| [event, news, ": ping\n\n"]);
        let reply = streamed(recording.wire, &between.collect::<Vec<_>>()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
    }
}

/// Faults L35 and L36: if an event is lost or repeated, a call either stays the same or can't run. Deltas of arguments
/// and events of Gemini are not tested, since they have no indexes.
#[test]
fn a_lost_or_repeated_event_never_changes_a_call() {
    for recording in every().filter(|recording| recording.wire != Wire::Gemini) {
        let events = recording.events();
        let calls = recording.expected["calls"].as_array().unwrap();
        for index in (0..events.len()).filter(|index| !is_piece(events[*index])) {
            let mut lost = events.clone();
            lost.remove(index);
            let mut twice = events.clone();
            twice.insert(index, events[index]);
            for events in [lost, twice] {
                let reply = match streamed(recording.wire, &events).reply {
                    Ok(reply) => seen(&reply),
                    Err(fault) => {
                        assert_eq!(fault.class(), FaultClass::Transient, "{fault:?}");
                        continue;
                    }
                };
                let found = reply["calls"].as_array().unwrap();
                assert!(found.len() <= calls.len(), "{} {index}", recording.name);
                for call in found.iter().filter(|call| call["arguments"].is_object()) {
                    assert!(calls.contains(call), "{} {index}: {call}", recording.name);
                }
            }
        }
    }
}

/// Returns whether an event is a delta of arguments.
fn is_piece(event: &str) -> bool {
    event.contains("input_json_delta")
        || (event.contains("\"tool_calls\":[") && !event.contains("\"name\""))
}

/// Fault L61, and `pause_turn`: blocks that only the provider can read are sent back unchanged.
#[test]
fn opaque_blocks_are_sent_back() {
    for recording in every() {
        let server = Server::new([recording.in_chunks(100), recording.in_chunks(100)]);
        let mut caller = WireCaller::new(recording.wire.model(), &long_timeouts(&server, ""));
        let reply = caller.call().reply();
        caller.add_reply(reply);
        caller.call().reply();
        let sent = texts(&server.requests()[1].json());
        for text in texts(&recording.expected["opaque"]) {
            assert!(sent.contains(&text), "{}: {text} is not sent back", recording.name);
        }
    }
}

/// The blocks of a paused turn are the end of the next request, in the same order.
#[test]
fn a_paused_turn_is_sent_back_unchanged() {
    let recording = one(Wire::Anthropic, "pause");
    let server = Server::new([recording.in_chunks(100), recording.in_chunks(100)]);
    let mut caller = WireCaller::new(recording.wire.model(), &long_timeouts(&server, ""));
    let reply = caller.call().reply();
    assert_eq!(reply.finish, ReplyFinish::Pause);
    caller.add_reply(reply);
    caller.call().reply();
    let request = server.requests()[1].json();
    let last = request["messages"].as_array().unwrap().last().unwrap().clone();
    let search = &recording.expected["opaque"][0];
    let blocks = json!([{"type": "text", "text": "Searching."}, search]);
    assert_eq!(last, json!({"role": "assistant", "content": blocks}));
}

/// Returns all texts in a document.
fn texts(json: &Value) -> Vec<String> {
    match json {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(map) => map.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}
