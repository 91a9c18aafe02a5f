//! Cancelling a call in each of its phases.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use architect::port::{CancellationToken, ReplyDelta};

use super::caller::{WireCaller, long_timeouts};
use crate::kit::chat::{delta, text};
use crate::kit::effect::scope_with;
use crate::kit::server::{ScriptedReply, Server};

const MODEL: &str = "openai-chat/fake";

/// Calls a server, cancels after the request was received, and returns the time until the end of the call. The next
/// call has to succeed.
fn cancelled(reply: ScriptedReply) -> Duration {
    let server = Server::new([reply, text("again")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let cancel = CancellationToken::new();
    let scope = scope_with(&cancel);
    let (send, receive) = mpsc::channel();
    let calling = thread::spawn(move || {
        let result = caller.call_in(&scope).reply;
        send.send(Instant::now()).unwrap();
        assert!(result.is_err());
        caller
    });
    server.wait_for(1);
    // The server has sent everything, and the client had time to read it.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    cancel.cancel();
    let ended = receive.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(&*calling.join().unwrap().call().reply().text(), "again");
    ended.duration_since(begun)
}

/// Faults G1 and L60.
#[test]
fn a_cancelled_call_ends_in_the_head_and_in_the_body() {
    let words = delta(&serde_json::json!({"content": "so far"}));
    let length = format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{words}");
    let until_close = format!("HTTP/1.1 200 OK\r\n\r\n{words}");
    for reply in [
        ScriptedReply::silence(),
        ScriptedReply::open_stream().chunk(&words).hang(),
        ScriptedReply::raw(length).hang(),
        ScriptedReply::raw(until_close).hang(),
        ScriptedReply::open_stream().repeat_chunk(": ping\n\n", Duration::from_millis(1)),
    ] {
        let took = cancelled(reply);
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn a_call_cancelled_before_its_start_sends_nothing() {
    let server = Server::new([text("a")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(caller.call_in(&scope_with(&cancel)).reply.is_err());
    assert_eq!(server.requests().len(), 0);
    // The model still works.
    assert_eq!(&*caller.call().reply().text(), "a");
}

/// A closed connection looks like the end of a body; a cancelled call must not accept it as one.
#[test]
fn a_cancelled_reply_is_never_complete() {
    use crate::kit::chat::finish;
    let words = delta(&serde_json::json!({"content": "half"}));
    let body = format!("HTTP/1.1 200 OK\r\n\r\n{words}{}", finish("stop"));
    let took = cancelled(ScriptedReply::raw(body).hang());
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Faults L32 and L33: a call has no time limit as a whole; a cancellation ends it while data is received.
#[test]
fn an_endless_stream_can_be_cancelled() {
    let server = Server::new([
        ScriptedReply::open_stream().repeat_chunk(": ping\n\n", Duration::from_millis(5))
    ]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let cancel = CancellationToken::new();
    let waiter = cancel.clone();
    let (started, has_started) = mpsc::channel();
    thread::spawn(move || {
        has_started.recv().unwrap();
        thread::sleep(Duration::from_millis(100));
        waiter.cancel();
    });
    let begun = Instant::now();
    let ended = caller.call_observed(&scope_with(&cancel), |_| started.send(()).unwrap());
    assert!(ended.reply.is_err() && ended.deltas == [ReplyDelta::Started]);
    assert!(begun.elapsed() < Duration::from_secs(10));
}
