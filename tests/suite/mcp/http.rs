//! Servers at a URL.

use std::time::{Duration, Instant};

use architect::mcp::ServerSpec;
use architect::port::CancellationToken;
use architect::types::ToolStatus;
use serde_json::{Value, json};

use super::fixture::{McpFixture, StartedServers};
use crate::kit::effect::scope_with;
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

const SECOND: Duration = Duration::from_secs(1);

fn message(id: u64, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

fn reply(id: u64, result: &Value) -> ScriptedReply {
    ScriptedReply::with_length(200, &message(id, result))
}

fn error(status: u16, code: i64, data: &Value) -> ScriptedReply {
    let error = json!({ "code": code, "message": "no", "data": data });
    ScriptedReply::with_length(
        status,
        &json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string(),
    )
}

fn text_result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// The answers of a server of the newest mode up to its list of tools.
fn modern() -> Vec<ScriptedReply> {
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let tools = json!([
        { "name": "look", "inputSchema": { "type": "object", "properties": { "text": region } },
          "annotations": { "readOnlyHint": true } },
        { "name": "do it", "inputSchema": { "type": "object" } },
    ]);
    vec![
        reply(1, &json!({ "supportedVersions": ["2026-07-28"] })),
        reply(2, &json!({ "tools": tools })),
    ]
}

/// The answers of an older server: to the first request, to the handshake, and to a list of tools.
fn legacy() -> Vec<ScriptedReply> {
    let mut replies =
        vec![ScriptedReply::with_headers(400, &[("content-type", "text/plain")], "no session")];
    replies.extend(session(2));
    let tools = json!([{ "name": "do it", "inputSchema": { "type": "object" } }]);
    replies.push(reply(3, &json!({ "tools": tools })));
    replies
}

/// The answers to the handshake.
fn session(id: u64) -> [ScriptedReply; 2] {
    let agreed = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let headers = [("content-type", "application/json"), ("mcp-session-id", "session-1")];
    [
        ScriptedReply::with_headers(200, &headers, &message(id, &agreed)),
        ScriptedReply::with_length(202, ""),
    ]
}

const KEY: &str = "canary-4711";

fn start(server: &Server, timeout: Duration) -> (McpFixture, StartedServers) {
    let mut world = McpFixture::new();
    world.setup.shutdown_timeout = 10 * SECOND;
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", &*authorization)];
    let spec = ServerSpec { timeout, ..McpFixture::http_server(&server.url("/mcp"), &headers) };
    let started = world.start([spec]);
    (world, started)
}

/// Returns a server with these answers, and the servers that were started with it.
fn started(
    replies: impl IntoIterator<Item = ScriptedReply>,
    timeout: Duration,
) -> (Server, StartedServers) {
    let server = Server::new(replies);
    let (_, started) = start(&server, timeout);
    assert_eq!(started.problems, []);
    (server, started)
}

fn and(
    mut replies: Vec<ScriptedReply>,
    more: impl IntoIterator<Item = ScriptedReply>,
) -> Vec<ScriptedReply> {
    replies.extend(more);
    replies
}

fn methods(requests: &[ReceivedRequest]) -> Vec<String> {
    let method = |request: &ReceivedRequest| match request.method.as_str() {
        "POST" => request.json()["method"].as_str().unwrap_or("reply").to_owned(),
        other => other.to_owned(),
    };
    requests.iter().map(method).collect()
}

#[test]
fn a_request_of_the_newest_era_stands_alone() {
    let (server, started) = started(and(modern(), [reply(3, &text_result("seen"))]), 10 * SECOND);
    assert_eq!(started.names(), ["mcp_h_look", "mcp_h_do_it"]);
    assert_eq!(started.ok("look", "Zürich"), "seen");
    let requests = server.requests();
    assert_eq!(methods(&requests), ["server/discover", "tools/list", "tools/call"]);
    let call = &requests[2];
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "look"),
        ("mcp-param-region", "=?base64?WsO8cmljaA==?="),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("authorization", "Bearer canary-4711"),
    ] {
        assert_eq!(call.header(name), Some(value), "{name}");
    }
    assert_eq!(call.header("mcp-session-id"), None);
}

/// Faults M11 and M16.
#[test]
fn an_older_server_has_a_session_and_answers_with_a_stream() {
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 4, "progress": 1 } });
    let asks = json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage" });
    let events = [
        progress.to_string(),
        asks.to_string(),
        message(9, &text_result("other")),
        message(4, &text_result("done")),
    ];
    let stream = ScriptedReply::stream(events.map(|data| format!("data: {data}\n\n")));
    let replies = and(
        legacy(),
        [stream, ScriptedReply::with_length(202, ""), ScriptedReply::with_length(405, "")],
    );
    let (server, started) = started(replies, 10 * SECOND);
    assert_eq!(started.ok("do it", ""), "done");
    drop(started);
    let requests = server.wait_for(7);
    let expected = [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "reply",
        "DELETE",
    ];
    assert_eq!(methods(&requests), expected);
    assert_eq!(requests[5].json()["error"]["code"], -32601);
    assert_eq!(requests[1].header("mcp-session-id"), None);
    assert!(requests[2..].iter().all(|r| r.header("mcp-session-id") == Some("session-1")));
    assert_eq!(requests[4].header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(requests[4].header("mcp-method"), None);
}

/// Fault M15.
#[test]
fn a_session_that_is_over_begins_again_once() {
    let gone = || ScriptedReply::with_length(404, "");
    let again = and(vec![gone()], session(1));
    let replies = and(legacy(), and(again, [reply(2, &text_result("back"))]));
    let (server, started) = started(replies, 10 * SECOND);
    assert_eq!(started.ok("do it", ""), "back");
    let calls = methods(&server.requests());
    assert_eq!(calls[4..], ["tools/call", "initialize", "notifications/initialized", "tools/call"]);
}

/// Fault M15.
#[test]
fn a_stream_that_breaks_off_is_resumed_where_it_was() {
    let first = ScriptedReply::stream(["id: e1\nretry: 150\ndata:\n\n"]);
    let rest =
        ScriptedReply::stream([format!("id: e2\ndata: {}\n\n", message(4, &text_result("late")))]);
    let (server, started) = started(and(legacy(), [first, rest]), 10 * SECOND);
    assert_eq!(started.ok("do it", ""), "late");
    let requests = server.requests();
    assert_eq!(requests[5].method, "GET");
    assert_eq!(requests[5].header("last-event-id"), Some("e1"));
    assert_eq!(requests[5].header("mcp-session-id"), Some("session-1"));
    assert!(requests[5].at - requests[4].at >= Duration::from_millis(150));
}

/// Fault M15: a server may close the stream as often as it likes, with or without a new event.
#[test]
fn a_stream_is_resumed_again_where_it_was() {
    let first = ScriptedReply::stream(["id: e1\nretry: 1200\ndata:\n\n"]);
    let nothing = ScriptedReply::stream([": nothing yet\n\n"]);
    let second = ScriptedReply::stream(["id: e2\nretry: 10\ndata:\n\n"]);
    let rest = ScriptedReply::stream([format!("data: {}\n\n", message(4, &text_result("late")))]);
    let replies = [first, nothing.clone(), second, nothing, rest];
    let (server, started) = started(and(legacy(), replies), 30 * SECOND);
    assert_eq!(started.ok("do it", ""), "late");
    let requests = server.requests();
    let ids: Vec<_> = requests[5..9].iter().map(|get| get.header("last-event-id")).collect();
    assert_eq!(ids, [Some("e1"), Some("e1"), Some("e2"), Some("e2")]);
    assert!(requests[6].at - requests[5].at >= Duration::from_millis(1_200), "the pause stays");
}

/// Fault M15.
#[test]
fn a_session_that_never_lasts_is_reported() {
    let gone = || ScriptedReply::with_length(404, "");
    let replies = and(legacy(), and(and(vec![gone()], session(1)), [gone()]));
    let (_server, started) = started(replies, 10 * SECOND);
    assert_eq!(started.err("do it", ""), "MCP server 'h': it no longer knows the session.");
}

/// Fault M8.
#[test]
fn a_server_that_names_its_versions_is_spoken_to_in_one_of_them() {
    let older = error(400, -32022, &json!({ "supported": ["2025-11-25"] }));
    let [agreed, taken] = session(2);
    let server = Server::new([older, agreed, taken, reply(3, &json!({ "tools": [] }))]);
    assert_eq!(start(&server, 10 * SECOND).1.problems, []);
    let unknown = error(400, -32022, &json!({ "supported": ["2099-01-01"] }));
    let server = Server::new([unknown]);
    let problems = start(&server, 10 * SECOND).1.problems();
    assert!(problems[0].contains("uses version 2099-01-01"), "{problems:?}");
}

/// Fault M15: each failure at the start has its own message.
#[test]
fn a_server_that_cannot_be_used_says_why() {
    let closed = [ScriptedReply::closed(), ScriptedReply::closed()];
    let moved =
        ScriptedReply::with_headers(307, &[("location", "https://elsewhere.example/mcp")], "");
    let page = || ScriptedReply::with_headers(200, &[("content-type", "text/html")], "<html>");
    let quoting = ScriptedReply::with_length(500, &format!("bad key {KEY}"));
    let cases = [
        (vec![ScriptedReply::with_length(401, "{}")], "it requires authorization (401)"),
        (vec![ScriptedReply::with_length(403, "{}")], "it requires authorization (403)"),
        (vec![moved], "it redirects to https://elsewhere.example/mcp, which is not followed"),
        (vec![quoting], "it answered with status 500; its last output: bad key ***"),
        (
            vec![page(), page()],
            "its response violates the protocol: it is of the kind \"text/html\"",
        ),
        (closed.into(), "it cannot be reached: the connection to 127.0.0.1"),
        (
            vec![ScriptedReply::with_length(404, "x"), ScriptedReply::with_length(405, "")],
            "it answered with status 405",
        ),
        (vec![ScriptedReply::silence(), ScriptedReply::silence()], "it did not answer within"),
    ];
    for (replies, expected) in cases {
        let server = Server::new(replies);
        let problems = start(&server, 2 * SECOND).1.problems();
        assert_eq!(problems.len(), 1, "{expected}");
        assert!(problems[0].contains(expected), "{problems:?} {expected}");
        assert!(!problems[0].contains(KEY));
    }
}

/// Faults M3 and M15.
#[test]
fn a_call_that_was_lost_is_made_again_only_where_that_does_no_harm() {
    let stream = ScriptedReply::stream([": nothing came of it\n\n"]);
    let replies =
        [stream, reply(4, &text_result("seen")), ScriptedReply::closed(), ScriptedReply::closed()];
    let (server, started) = started(and(modern(), replies), 10 * SECOND);
    assert_eq!(started.ok("look", ""), "seen");
    let error = started.err("do it", "");
    assert!(error.ends_with("The call may have had an effect or not."), "{error}");
    assert_eq!(methods(&server.requests()).iter().filter(|m| *m == "tools/call").count(), 3);
}

/// Faults M4 and M16: progress messages do not extend a call.
#[test]
fn a_call_ends_at_its_deadline_whatever_it_says_meanwhile() {
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 3, "progress": 1 } });
    let endless =
        ScriptedReply::open_stream().repeat_chunk(&format!("data: {progress}\n\n"), SECOND / 20);
    let (_server, started) = started(and(modern(), [endless]), 2 * SECOND);
    let begun = Instant::now();
    assert_eq!(started.call("do it", "").status, ToolStatus::TimedOut);
    assert!(begun.elapsed() < 6 * SECOND, "{:?}", begun.elapsed());
}

/// Fault M4.
#[test]
fn a_cancelled_call_closes_its_connection_and_an_older_server_is_notified() {
    let replies = and(legacy(), [ScriptedReply::silence(), ScriptedReply::with_length(202, "")]);
    let (server, started) = started(replies, 20 * SECOND);
    let (cancel, begun) = (CancellationToken::new(), Instant::now());
    let answer = std::thread::scope(|scope| {
        let calling = scope.spawn(|| started.call_in("do it", "", &scope_with(&cancel)));
        server.wait_for(5);
        cancel.cancel();
        calling.join().unwrap()
    });
    assert_eq!(answer.status, ToolStatus::Interrupted);
    assert!(begun.elapsed() < 10 * SECOND);
    let requests = server.wait_for(6);
    assert_eq!(requests[5].json()["method"], "notifications/cancelled");
    assert_eq!(requests[5].json()["params"]["requestId"], 4);
}

/// Faults M6 and M12.
#[test]
fn an_answer_has_an_end() {
    let mut world = McpFixture::new();
    world.setup.limits.message_bytes = 10_000;
    let long = reply(3, &text_result(&"x".repeat(20_000)));
    let cut = ScriptedReply::with_length(200, r#"{"jsonrpc":"2.0","id":4,"result":{"con"#);
    let server = Server::new(and(modern(), [long, cut]));
    let started = world.start([McpFixture::http_server(&server.url("/mcp"), &[])]);
    assert!(started.err("do it", "").contains("it has more than 10000 bytes"));
    assert!(started.err("do it", "").contains("its answer could not be read: EOF while parsing"));
}
