//! Connections: errors below HTTP and in the head of a response.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use architect::llm::{ConnectError, ModelConnectionSettings};
use architect::types::{Fault, FaultClass, FaultKind};

use super::caller::{CallResult, KEY, WireCaller, env, long_timeouts};
use crate::kit::chat::{text, unstreamed};
use crate::kit::server::{ScriptedReply, Server};

const MODEL: &str = "openai-chat/fake";

/// Calls a server with this response, with changed settings.
fn call_with(
    reply: ScriptedReply,
    change: impl FnOnce(&mut ModelConnectionSettings),
) -> CallResult {
    let server = Server::new([reply]);
    let mut settings = long_timeouts(&server, "/v1");
    change(&mut settings);
    WireCaller::new(MODEL, &settings).call()
}

fn fault(reply: ScriptedReply) -> Fault {
    call_with(reply, |_| {}).fault()
}

fn connect_soon(settings: &mut ModelConnectionSettings) {
    settings.connect_timeout = Duration::from_millis(300);
}

/// Calls an address that may have no server.
fn fault_at(address: &str, with: impl FnOnce(&mut ModelConnectionSettings)) -> Fault {
    let mut settings = ModelConnectionSettings {
        api_base: Some(address.to_owned()),
        connect_timeout: Duration::from_secs(5),
        allow_http: true,
        ..ModelConnectionSettings::default()
    };
    with(&mut settings);
    let begun = Instant::now();
    let fault = WireCaller::new(MODEL, &settings).call().fault();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    fault
}

/// Fault L1.
#[test]
fn a_refused_connection_names_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fault = fault_at(&format!("http://{address}/v1"), |_| {});
    assert_eq!(
        (fault.kind, fault.class(), fault.billed),
        (FaultKind::Connect, FaultClass::Transient, false)
    );
    assert!(fault.message.contains(&address.to_string()), "{}", fault.message);
}

/// Fault L2. Without a route the system reports it immediately.
#[test]
fn a_silent_address_times_out() {
    let fault = fault_at("http://192.0.2.1/v1", connect_soon);
    assert!(matches!(fault.kind, FaultKind::Timeout | FaultKind::Connect), "{fault:?}");
    assert_eq!(fault.class(), FaultClass::Transient);
}

/// Fault L3.
#[test]
fn an_unknown_host_is_named() {
    let fault = fault_at("https://nowhere.invalid/v1", |settings| {
        settings.connect_timeout = Duration::from_secs(2);
    });
    assert!(matches!(fault.kind, FaultKind::Connect | FaultKind::Timeout), "{fault:?}");
    assert!(fault.message.contains("nowhere.invalid"));
}

/// Fault L4: `localhost` may have two addresses, and the server listens on one.
#[test]
fn the_next_address_is_tried() {
    let server = Server::new([text("a")]);
    let mut settings = long_timeouts(&server, "");
    settings.api_base = Some(server.url("/v1").replace("127.0.0.1", "localhost"));
    assert_eq!(&*WireCaller::new(MODEL, &settings).call().reply().text(), "a");
}

/// Fault L6.
#[test]
fn a_stalled_handshake_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fault = fault_at(&format!("https://{address}/v1"), connect_soon);
    assert_eq!(
        (fault.kind, fault.class()),
        (FaultKind::Timeout, FaultClass::Transient),
        "{fault:?}"
    );
}

#[test]
fn a_server_without_tls_is_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let fault = fault_at(&format!("https://{address}/v1"), |_| {});
    assert_eq!((fault.kind, fault.class()), (FaultKind::Tls, FaultClass::Fatal), "{fault:?}");
}

/// Fault L8.
#[test]
fn a_rejecting_proxy_is_named() {
    let proxy = Server::new([ScriptedReply::with_length(407, "")]);
    let settings = ModelConnectionSettings {
        api_base: Some("https://model.invalid/v1".to_owned()),
        ..ModelConnectionSettings::default()
    };
    let address = proxy.url("");
    let env = |name: &str| match name {
        "HTTPS_PROXY" => Some(address.clone()),
        name => env(name),
    };
    let fault = WireCaller::with_env(MODEL, &settings, &env).unwrap().call().fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Connect, FaultClass::Fatal));
    assert!(fault.message.contains(address.trim_start_matches("http://")), "{}", fault.message);
    assert!(proxy.requests()[0].method == "CONNECT");
    assert!(!format!("{:?}", proxy.requests()).contains(KEY));
}

#[test]
fn too_large_headers_are_no_lost_connection() {
    for (size, count, cause) in [(1_000, 3_000, "more than 64 KiB"), (10, 300, "too many headers")]
    {
        let headers = format!("x-filler: {}\r\n", "x".repeat(size)).repeat(count);
        let server = Server::new([ScriptedReply::raw(format!("HTTP/1.1 200 OK\r\n{headers}\r\n"))]);
        let fault = fault_at(&server.url("/v1"), |_| {});
        assert_eq!((fault.kind, fault.billed), (FaultKind::Protocol, true), "{fault:?}");
        assert!(fault.message.contains(&format!("are too large: {cause}")), "{}", fault.message);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn this_machine_is_reached_without_a_proxy() {
    let server = Server::new([text("a")]);
    let env = |name: &str| match name {
        "HTTPS_PROXY" | "http_proxy" | "ALL_PROXY" => Some("http://127.0.0.1:1".to_owned()),
        name => env(name),
    };
    let mut caller = WireCaller::with_env(MODEL, &long_timeouts(&server, "/v1"), &env).unwrap();
    assert_eq!(&*caller.call().reply().text(), "a");
}

/// Fault L9: the key is not sent to the target of a redirect.
#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Server::new([text("gotcha")]);
    let there = elsewhere.url("/v1/chat/completions");
    for status in [301, 302, 307, 308] {
        let fault = fault(ScriptedReply::with_headers(status, &[("location", &there)], ""));
        assert_eq!((fault.kind, fault.class()), (FaultKind::NotAnApi, FaultClass::Fatal));
        assert!(fault.message.contains(&there), "{}", fault.message);
    }
    assert_eq!(elsewhere.connections(), 0);
}

/// Faults L10 to L17, L24 and L25, each once over a socket; `fault::classify` tests the table.
#[test]
fn a_status_becomes_a_fault_with_the_error_text() {
    let error = r#"{"error":{"message":"something is wrong"}}"#;
    for (status, kind, class) in [
        (400, FaultKind::Request, FaultClass::Fatal),
        (401, FaultKind::Auth, FaultClass::Fatal),
        (413, FaultKind::Overflow, FaultClass::Overflow),
        (429, FaultKind::RateLimited, FaultClass::Transient),
        (503, FaultKind::Server, FaultClass::Transient),
        (529, FaultKind::Server, FaultClass::Transient),
    ] {
        let fault = fault(ScriptedReply::with_length(status, error));
        assert_eq!((fault.kind, fault.class(), fault.billed), (kind, class, false), "{status}");
        assert!(fault.message.contains("something is wrong"), "{}", fault.message);
    }
}

/// Faults L18 to L20.
#[test]
fn headers_set_the_retry_delay() {
    let wait = |headers: &[(&str, &str)]| {
        fault(ScriptedReply::with_headers(429, headers, "")).retry_after.unwrap().0
    };
    assert_eq!(wait(&[("Retry-After", "7")]), 7_000_000);
    assert_eq!(wait(&[("Retry-After-Ms", "350"), ("Retry-After", "7")]), 350_000);
    let date = [
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Retry-After", "Sun, 06 Nov 1994 08:49:47 GMT"),
    ];
    assert_eq!(wait(&date), 10_000_000);
}

#[test]
fn a_truncated_error_response_still_has_its_status() {
    let cut = "HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n{\"error\":";
    assert_eq!(fault(ScriptedReply::raw(cut).close()).kind, FaultKind::Server);
}

/// Fault L31, for the head of the response.
#[test]
fn a_silent_server_times_out() {
    let most = Duration::from_millis(400);
    let called = call_with(ScriptedReply::silence(), |settings| settings.timeout = most);
    let fault = called.fault();
    assert_eq!(
        (fault.kind, fault.class(), fault.billed),
        (FaultKind::Timeout, FaultClass::Transient, true)
    );
    assert!(
        fault.message.contains("waiting for the response took more than 0.4 s"),
        "{}",
        fault.message
    );
}

/// Fault L31, within the response; a ping resets the timeout.
#[test]
fn the_idle_timeout_is_reset_by_pings() {
    let call = |reply, idle| call_with(reply, |settings| settings.idle_timeout = idle);
    let silent = ScriptedReply::open_stream().chunk(": hello\n\n").hang();
    let fault = call(silent, Duration::from_millis(400)).fault();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(fault.message.contains("silence within the response"), "{}", fault.message);
    let pause = Duration::from_millis(600);
    let pings =
        (0..5).fold(ScriptedReply::open_stream(), |reply, _| reply.chunk(": ping\n\n").wait(pause));
    let words = crate::kit::chat::delta(&serde_json::json!({"content": "late"}));
    let late = pings.chunk(&words).chunk(&crate::kit::chat::finish("stop")).end();
    assert_eq!(&*call(late, Duration::from_secs(2)).reply().text(), "late");
}

/// Fault L42.
#[test]
fn a_body_with_wrong_framing_is_a_fault() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let not_hex = ScriptedReply::raw(format!("{chunked}zz\r\ndata: a\r\n")).close();
    assert_eq!(fault(not_hex).kind, FaultKind::Truncated);
    // The connection is closed at any byte of a chunk.
    let chunk = "5\r\ndata:\r\n0\r\n";
    for end in 0..chunk.len() - 2 {
        let cut = ScriptedReply::raw(format!("{chunked}{}", &chunk[..end])).close();
        assert_eq!(fault(cut).kind, FaultKind::Truncated, "{end}");
    }
    let too_short =
        ScriptedReply::raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n: hello\n\n").close();
    assert_eq!(fault(too_short).kind, FaultKind::Truncated);
    let no_http = fault(ScriptedReply::raw("SSH-2.0-OpenSSH_9.9\r\n\r\n").close());
    assert_eq!(no_http.kind, FaultKind::NotAnApi);
}

/// Fault L43: unrequested compression, and a decompression bomb.
#[test]
fn a_compressed_response_is_read_up_to_the_limit() {
    let gzip = |bytes: &[u8]| {
        let headers = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        ScriptedReply::raw([headers.as_bytes(), bytes].concat())
    };
    // `data: [DONE]` after a finished text, by gzip.
    let plain = super::gzip::stored(
        b"data: {\"choices\":[{\"delta\":{\"content\":\"packed\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    let server = Server::new([gzip(&plain)]);
    let reply = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call().reply();
    assert_eq!(&*reply.text(), "packed");
    let bomb = super::gzip::zeros(100 << 20);
    assert!(bomb.len() < 1 << 20);
    let server = Server::new([gzip(&bomb)]);
    let fault = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call().fault();
    assert_eq!(fault.kind, FaultKind::Protocol, "{fault:?}");
}

/// Fault L57.
#[test]
fn a_connection_lost_while_sending_is_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::Read;
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
    });
    let settings = ModelConnectionSettings {
        api_base: Some(format!("http://{address}/v1")),
        ..ModelConnectionSettings::default()
    };
    let mut caller = WireCaller::new(MODEL, &settings);
    caller.add_user_message(&"x".repeat(5 << 20));
    let fault = caller.call().fault();
    assert_eq!(
        (fault.kind, fault.class()),
        (FaultKind::Connect, FaultClass::Transient),
        "{fault:?}"
    );
}

#[test]
fn a_connection_is_reused() {
    let server = Server::repeating([unstreamed("a")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    (0..20).for_each(|_| drop(caller.call().reply()));
    assert_eq!(server.connections(), 1);
}

/// Another thread reads the end of a stream, and may be late on a busy machine. The body may also end a little later
/// than the reply.
#[test]
fn a_connection_is_reused_after_a_stream() {
    use crate::kit::chat::{delta, end, finish};
    let words = delta(&serde_json::json!({"content": "a"}));
    let late = ScriptedReply::open_stream().chunk(&words).chunk(&finish("stop")).chunk(&end());
    let late = late.wait(Duration::from_millis(1)).end();
    for reply in [text("a"), late] {
        let server = Server::repeating([reply]);
        let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
        // Without reuse, each call has a connection of its own.
        let mut calls = 0;
        while calls < server.connections() + 10 {
            assert!(calls < 500, "{calls} calls, {} connections", server.connections());
            caller.call().reply();
            calls += 1;
        }
    }
}

/// A server that never ends its stream does not delay the reply.
#[test]
fn a_reply_is_complete_with_its_last_event() {
    use crate::kit::chat::{delta, end, finish};
    let words = delta(&serde_json::json!({"content": "a"}));
    let open =
        ScriptedReply::open_stream().chunk(&words).chunk(&finish("stop")).chunk(&end()).hang();
    let server = Server::repeating([open]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    let begun = Instant::now();
    for _ in 0..3 {
        caller.call().reply();
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Fault L58.
#[test]
fn a_closed_idle_connection_is_replaced_once() {
    // The server closes after the head of the second request.
    let server = Server::new([unstreamed("first"), ScriptedReply::closed(), text("second")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    assert_eq!(&*caller.call().reply().text(), "first");
    assert_eq!(&*caller.call().reply().text(), "second");
    assert_eq!(server.connections(), 2);
    // On a new connection it is a fault.
    let server = Server::new([ScriptedReply::closed(), text("never")]);
    let fault = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call().fault();
    assert_eq!((fault.kind, server.requests().len()), (FaultKind::Connect, 1));
}

/// The server has read the request, and may be paid for it.
#[test]
fn a_request_that_a_server_has_kept_for_a_while_is_not_repeated() {
    let late = ScriptedReply::closed().after(Duration::from_millis(1_200));
    let server = Server::new([text("first"), late, text("never")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    assert_eq!(&*caller.call().reply().text(), "first");
    assert_eq!(caller.call().fault().kind, FaultKind::Connect);
    assert_eq!(server.requests().len(), 2);
}

/// Faults L7 and K4.
#[test]
fn configuration_errors_are_reported_before_sending() {
    let settings = |base: &str| ModelConnectionSettings {
        api_base: Some(base.to_owned()),
        ..ModelConnectionSettings::default()
    };
    let refused = |base: &str, env: &dyn Fn(&str) -> Option<String>| {
        WireCaller::with_env(MODEL, &settings(base), env).err().unwrap()
    };
    let error = refused("http://example.com/v1", &env);
    assert!(matches!(error, ConnectError::Address(_)), "{error}");
    let error = refused("https://example.com/v1", &|_| None);
    assert_eq!(
        error.to_string(),
        "there is no key for openai-chat: the variable OPENAI_API_KEY is not set"
    );
    let error =
        refused("https://example.com/v1", &|name| env(name).map(|_| "two\nlines".to_owned()));
    assert!(error.to_string().starts_with("the key in OPENAI_API_KEY has a character"), "{error}");
}
