//! Exact timeouts: for the head of a response, for each silence after it, and for a call.

use std::time::{Duration, Instant};

use architect::llm::ModelConnectionSettings;
use architect::types::{FaultKind, Reply as Answer};

use super::caller::{WireCaller, long_timeouts};
use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

const SHORT: Duration = Duration::from_secs(1);

/// The delay after a timeout on a busy machine.
const LATE: Duration = Duration::from_secs(10);

/// Returns the result of a call with these timeouts, and its duration.
fn called(
    reply: ScriptedReply,
    with: impl FnOnce(&mut ModelConnectionSettings),
) -> (Result<Answer, String>, Duration) {
    let server = Server::new([reply]);
    let mut settings = long_timeouts(&server, "/v1");
    with(&mut settings);
    let begun = Instant::now();
    let outcome = WireCaller::new("openai-chat/m", &settings).call().reply.map_err(|fault| {
        assert_eq!(fault.kind, FaultKind::Timeout, "{}", fault.message);
        fault.message.to_string()
    });
    (outcome, begun.elapsed())
}

fn streamed() -> ScriptedReply {
    ScriptedReply::open_stream()
        .chunk(&chat::delta(&serde_json::json!({"content": "late"})))
        .chunk(&chat::finish("stop"))
        .chunk("data: [DONE]\n\n")
        .end()
}

#[test]
fn a_short_idle_timeout_holds_with_a_long_head_timeout() {
    for reply in [
        ScriptedReply::open_stream().hang(),
        ScriptedReply::open_stream()
            .chunk(&chat::delta(&serde_json::json!({"content": "a"})))
            .hang(),
    ] {
        let (outcome, took) = called(reply, |settings| settings.idle_timeout = SHORT);
        let message = outcome.unwrap_err();
        assert!(message.contains("silence within the response took more than 1 s"), "{message}");
        assert!(took >= SHORT && took < LATE, "{took:?}");
    }
}

#[test]
fn the_idle_timeout_does_not_apply_to_the_head() {
    let late = streamed().after(3 * SHORT);
    let (outcome, took) = called(late, |settings| settings.idle_timeout = SHORT);
    assert_eq!(&*outcome.unwrap().text(), "late");
    assert!(took >= 3 * SHORT, "{took:?}");
}

#[test]
fn the_head_timeout_does_not_apply_to_silence() {
    let (outcome, took) = called(ScriptedReply::silence(), |settings| settings.timeout = SHORT);
    let message = outcome.unwrap_err();
    assert!(message.contains("waiting for the response took more than 1 s"), "{message}");
    assert!(took >= SHORT && took < LATE, "{took:?}");
    let slow = ScriptedReply::open_stream()
        .wait(3 * SHORT)
        .chunk(&chat::delta(&serde_json::json!({"content": "late"})))
        .chunk(&chat::finish("stop"))
        .end();
    let (outcome, _) = called(slow, |settings| settings.timeout = SHORT);
    assert_eq!(&*outcome.unwrap().text(), "late");
}

/// The timeout for a head holds for the whole head, not for each byte.
#[test]
fn the_head_timeout_applies_to_the_whole_head() {
    let drip = (0..150).fold(ScriptedReply::raw("HTTP/1.1 200 OK\r\nx: "), |reply, _| {
        reply.wait(Duration::from_millis(100)).bytes("x")
    });
    let (outcome, took) = called(drip, |settings| settings.timeout = 2 * SHORT);
    assert!(outcome.unwrap_err().contains("waiting for the response"));
    assert!(took >= 2 * SHORT && took < LATE, "{took:?}");
}

/// Pings do not extend the timeout of a call.
#[test]
fn a_call_ends_at_its_timeout_despite_pings() {
    let pings = ScriptedReply::open_stream().repeat_chunk(": ping\n\n", Duration::from_millis(50));
    let server = Server::repeating([pings]);
    let world = CliFixture::new();
    let settings = ["--set", "llm.call_timeout=1", "--set", "llm.retries=0", "--json"];
    let ran = wait_for_exit(world.command_with_server(&server, &settings).spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(5, "llm_error", "failed"), "{}", ran.err);
    assert!(ran.took >= Duration::from_secs(1), "{:?}", ran.took);
    assert!(ran.took < Duration::from_secs(8), "{:?}", ran.took);
    assert_eq!(server.wait_for(1).len(), 1);
}
