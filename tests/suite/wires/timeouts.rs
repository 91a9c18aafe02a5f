//! The limits on time: to the head of an answer, for each silence after it, and for a call in all. Each is exact.

use std::time::{Duration, Instant};

use architect::llm::ModelConnectionSettings;
use architect::model::{FaultKind, Reply as Answer};

use super::caller::{WireCaller, long_timeouts};
use crate::kit::chat;
use crate::kit::cli::{CliFixture, outcome, wait_for_exit};
use crate::kit::server::{ScriptedReply, Server};

const SHORT: Duration = Duration::from_millis(300);

/// How much later than its limit a call may end on a busy machine.
const LATE: Duration = Duration::from_secs(3);

/// What came of a call with these limits, and how long it took.
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
fn a_short_limit_on_silence_holds_beside_a_long_one_for_the_head() {
    for reply in [
        ScriptedReply::open_stream().hang(),
        ScriptedReply::open_stream()
            .chunk(&chat::delta(&serde_json::json!({"content": "a"})))
            .hang(),
    ] {
        let (outcome, took) = called(reply, |settings| settings.idle_timeout = SHORT);
        let message = outcome.unwrap_err();
        assert!(message.contains("silence within the answer took more than 0.3 s"), "{message}");
        assert!(took >= SHORT && took < LATE, "{took:?}");
    }
}

#[test]
fn a_short_limit_on_silence_is_none_on_the_head() {
    let late = streamed().after(3 * SHORT);
    let (outcome, took) = called(late, |settings| settings.idle_timeout = SHORT);
    assert_eq!(&*outcome.unwrap().text(), "late");
    assert!(took >= 3 * SHORT, "{took:?}");
}

#[test]
fn a_short_limit_on_the_head_is_none_on_silence() {
    let (outcome, took) = called(ScriptedReply::silence(), |settings| settings.timeout = SHORT);
    let message = outcome.unwrap_err();
    assert!(message.contains("waiting for the answer took more than 0.3 s"), "{message}");
    assert!(took >= SHORT && took < LATE, "{took:?}");
    let slow = ScriptedReply::open_stream()
        .wait(3 * SHORT)
        .chunk(&chat::delta(&serde_json::json!({"content": "late"})))
        .chunk(&chat::finish("stop"))
        .end();
    let (outcome, _) = called(slow, |settings| settings.timeout = SHORT);
    assert_eq!(&*outcome.unwrap().text(), "late");
}

/// A head that comes byte by byte is one head, however long each pause is.
#[test]
fn a_head_that_drips_is_bound_as_a_whole() {
    let drip = (0..40).fold(ScriptedReply::raw("HTTP/1.1 200 OK\r\nx: "), |reply, _| {
        reply.wait(Duration::from_millis(100)).bytes("x")
    });
    let (outcome, took) = called(drip, |settings| settings.timeout = 2 * SHORT);
    assert!(outcome.unwrap_err().contains("waiting for the answer"));
    assert!(took >= 2 * SHORT && took < LATE, "{took:?}");
}

/// What keeps a stream alive keeps no call alive.
#[test]
fn a_call_ends_at_its_limit_although_pings_come_for_ever() {
    let pings = ScriptedReply::open_stream().repeat_chunk(": ping\n\n", Duration::from_millis(50));
    let server = Server::repeating([pings]);
    let world = CliFixture::new();
    let settings = ["--set", "llm.call_timeout=1", "--set", "llm.retries=0", "--json"];
    let ran = wait_for_exit(world.command_with_server(&server, &settings).spawn().unwrap());
    assert_eq!(ran.outcome(), outcome(5, "llm_error", "failed"), "{}", ran.err);
    assert!(ran.took >= Duration::from_secs(1), "{:?}", ran.took);
    assert!(ran.took < Duration::from_secs(8), "{:?}", ran.took);
    assert_eq!(server.requests().len(), 1);
}
