//! Cancelling really ends a call, wherever it is.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use architect::port::{CancellationToken, ReplyDelta};

use super::caller::{WireCaller, long_timeouts};
use crate::kit::chat::{delta, text};
use crate::kit::effect::scope_with;
use crate::kit::server::{ScriptedReply, Server};

const MODEL: &str = "openai-chat/fake";

/// Calls a server, cancels once the request has come, and returns how long the call then took to end. The model's next
/// call has to work.
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
    // The server has said what it says, and the client has had time to hear it.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    cancel.cancel();
    let ended = receive.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(&*calling.join().unwrap().call().reply().text(), "again");
    ended.duration_since(begun)
}

/// Faults G1 and L60.
#[test]
fn a_call_ends_at_once_in_the_head_and_in_the_body() {
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
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
}

#[test]
fn a_call_that_was_cancelled_before_it_began_sends_nothing() {
    let server = Server::new([text("a")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(caller.call_in(&scope_with(&cancel)).reply.is_err());
    assert_eq!(server.requests().len(), 0);
    // The model is as good as new.
    assert_eq!(&*caller.call().reply().text(), "a");
}

/// A connection that ends by being closed looks like a clean end; a cancelled call must not take it for one.
#[test]
fn a_reply_that_seems_complete_by_being_cancelled_is_none() {
    use crate::kit::chat::finish;
    let words = delta(&serde_json::json!({"content": "half"}));
    let body = format!("HTTP/1.1 200 OK\r\n\r\n{words}{}", finish("stop"));
    let took = cancelled(ScriptedReply::raw(body).hang());
    assert!(took < Duration::from_millis(500), "{took:?}");
}

/// Faults L32 and L33: a call has no limit of its own for the whole; whoever gives it up ends it, however busy it is.
#[test]
fn a_stream_that_never_ends_is_ended_by_whoever_waits() {
    let server = Server::new([
        ScriptedReply::open_stream().repeat_chunk(": ping\n\n", Duration::from_millis(5))
    ]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let cancel = CancellationToken::new();
    let waiter = cancel.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        waiter.cancel();
    });
    let begun = Instant::now();
    let ended = caller.call_in(&scope_with(&cancel));
    assert!(ended.reply.is_err() && ended.deltas == [ReplyDelta::Started]);
    assert!(begun.elapsed() < Duration::from_secs(2));
}
