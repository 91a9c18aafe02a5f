//! Every wire against recorded streams: the same is found in them, however they come; what is missing is missed.

use architect::model::{
    FaultClass, FaultKind, Reply as Answer, ReplyFinish, ReplyPart, ToolArguments,
};
use serde_json::{Value, json};

use super::caller::{CallResult, WireCaller, long_timeouts};
use super::recorded_streams::{Recording, Wire, all, one};
use crate::kit::server::{ScriptedReply, Server, chunk};

/// Calls a server that answers with this.
pub(super) fn call(wire: Wire, stream: bool, reply: ScriptedReply) -> CallResult {
    let server = Server::new([reply]);
    let mut settings = long_timeouts(&server, "");
    settings.stream = stream;
    WireCaller::new(wire.model(), &settings).call()
}

fn streamed(wire: Wire, events: &[&str]) -> CallResult {
    call(wire, true, ScriptedReply::stream(events))
}

/// Returns what is in a reply, in the form in which recordings say it.
pub(super) fn seen(reply: &Answer) -> Value {
    let arguments = |arguments: &ToolArguments| match arguments {
        ToolArguments::Complete { text } => serde_json::from_str(text).unwrap(),
        ToolArguments::Malformed { .. } => json!("malformed"),
        ToolArguments::Truncated { .. } => Value::Null,
    };
    let call = |call: &architect::model::ToolCall| json!({"id": call.id, "name": call.name, "arguments": arguments(&call.arguments)});
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
fn a_recorded_stream_says_the_same_however_it_is_cut() {
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
            // A refusal is explained at its end, which is no part of the stream.
            if reply.finish != ReplyFinish::Refused {
                assert_eq!(text, *reply.text(), "{} {how}", recording.name);
            }
        }
    }
}

#[test]
fn a_recorded_reply_says_the_same_in_one_piece() {
    for recording in every().filter(Recording::has_whole) {
        let reply = call(recording.wire, false, recording.whole()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
        // It counts also where a stream was asked for.
        let reply = call(recording.wire, true, recording.whole()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
    }
}

/// Fault L38: what stands before a stream, and after the event that ends it, is no part of it.
#[test]
fn what_surrounds_a_stream_changes_nothing_however_it_is_cut() {
    for wire in Wire::ALL {
        let recording = one(wire, "text");
        // Only the end of the body ends a stream of Gemini.
        let after = if wire == Wire::Gemini { &b"\n"[..] } else { b"\xff\xef\n\n" };
        let body = [b"\xef\xbb\xbf \r\n\n", recording.stream.as_bytes(), after].concat();
        for size in [1, 2, body.len()] {
            let pieces = body.chunks(size).flat_map(chunk).collect::<Vec<_>>();
            let reply = call(wire, true, ScriptedReply::open_stream().bytes(pieces).end()).reply();
            assert_eq!(seen(&reply), recording.expected, "{wire:?} in pieces of {size}");
        }
    }
}

/// Faults L29 and L30, for every wire: at each event, and in the middle of each.
#[test]
fn a_stream_that_breaks_before_its_end_is_truncated() {
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
                let told = (fault.kind, fault.class(), fault.billed);
                assert_eq!(told, expected, "{} {count}", recording.name);
            }
        }
    }
}

/// Fault L29: the same where the server ends the body properly. Only a finish reason may then stand for the end.
#[test]
fn a_stream_that_ends_properly_before_it_says_why_is_truncated() {
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

/// Fault L38: characters that are split between chunks are whole (byte by byte, above), what is no character is a fault of
/// the whole reply, and nothing of it is kept.
#[test]
fn a_byte_that_is_no_text_spoils_the_reply_on_every_wire() {
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
            let told = (fault.kind, fault.class(), fault.billed);
            assert_eq!(told, (FaultKind::Protocol, FaultClass::Transient, true), "{wire:?}");
        }
    }
}

/// Fault L37, and the comments with which servers keep a connection alive.
#[test]
fn what_no_release_knows_changes_nothing() {
    for recording in every() {
        let news = recording.wire.news();
        let between = recording.events().into_iter().flat_map(|event| [event, news, ": ping\n\n"]);
        let reply = streamed(recording.wire, &between.collect::<Vec<_>>()).reply();
        assert_eq!(seen(&reply), recording.expected, "{}", recording.name);
    }
}

/// Faults L35 and L36: whichever event is lost or comes twice, a call is either what it was or cannot run. Pieces of
/// arguments have no numbers on any wire, nor has anything on Gemini's, so that they are not looked at here.
#[test]
fn an_event_that_is_lost_or_comes_twice_makes_no_other_call() {
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

/// Returns whether an event goes on with the arguments of a call.
fn is_piece(event: &str) -> bool {
    event.contains("input_json_delta")
        || (event.contains("\"tool_calls\":[") && !event.contains("\"name\""))
}

/// Fault L61, and what `pause_turn` asks for: what only the provider understands goes back to it as it came.
#[test]
fn what_only_the_provider_understands_goes_back() {
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

/// The blocks of a paused turn are the end of the next request, in the order in which they came.
#[test]
fn a_paused_turn_is_sent_back_as_it_is() {
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
