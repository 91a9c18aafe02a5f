//! Chat Completions with correct and faulty servers.

use std::time::Duration;

use architect::port::{ReplyDelta, ToolSpec};
use architect::types::{FaultClass, FaultKind, ReplyFinish, Tokens, ToolArguments};
use serde_json::json;

use super::caller::{CallResult, KEY, WireCaller, long_timeouts};
use crate::kit::chat::{calls, delta, end, event, finish, text, unstreamed};
use crate::kit::server::{ScriptedReply, Server};

const MODEL: &str = "openai-chat/fake";

/// Calls a server with this response.
fn call(reply: ScriptedReply) -> CallResult {
    let server = Server::new([reply]);
    let called = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call();
    assert_eq!(server.requests().len(), 1, "one call is one request");
    called
}

/// Calls a server that streams these chunks and ends the body.
fn stream(pieces: &[&str]) -> CallResult {
    call(ScriptedReply::stream(pieces))
}

fn content(text: &str) -> String {
    delta(&json!({"content": text}))
}

fn tool(index: u64, id: &str, name: &str, arguments: &str) -> String {
    delta(&json!({"tool_calls": [
        {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}))
}

fn more(index: u64, arguments: &str) -> String {
    delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
}

#[test]
fn a_text_is_streamed() {
    let server = Server::new([text("Hello dear world")]);
    let called = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call();
    assert_eq!(called.streamed(), "Hello dear world");
    assert_eq!(called.deltas[0], ReplyDelta::Started);
    let reply = called.reply();
    assert_eq!((&*reply.text(), reply.finish.clone()), ("Hello dear world", ReplyFinish::Stop));
    assert_eq!((reply.usage.input, reply.usage.output), (Tokens(100), Tokens(20)));
    assert!(!reply.usage.is_estimated);
    let request = &server.requests()[0];
    assert_eq!((&*request.method, &*request.path), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization").unwrap(), format!("Bearer {KEY}"));
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert_eq!(request.header("content-length").unwrap(), request.body.len().to_string());
    assert_eq!(request.json()["stream"], true);
}

/// Fault L56.
#[test]
fn the_model_that_answered_is_recorded() {
    assert_eq!(call(text("a")).reply().model.as_deref(), Some("fake-1"));
}

#[test]
fn tool_calls_are_assembled_and_their_results_sent() {
    let asked = [("c1", "grep", r#"{"text":"ä"}"#), ("c2", "read_file", r#"{"path":"b"}"#)];
    let server = Server::new([calls(&asked), text("done")]);
    let mut caller = WireCaller::new(MODEL, &long_timeouts(&server, "/v1"));
    caller.tools = [ToolSpec {
        name: "grep".into(),
        description: "finds".into(),
        schema: json!({"type": "object"}),
    }]
    .into();
    let reply = caller.call().reply();
    assert_eq!(reply.finish, ReplyFinish::ToolCalls);
    let read: Vec<_> =
        reply.calls().map(|call| (call.id.as_str(), &*call.name, call.arguments.text())).collect();
    assert_eq!(read, asked);
    caller.add_reply(reply);
    assert_eq!(&*caller.call().reply().text(), "done");
    let messages = server.requests()[1].json()["messages"].clone();
    assert_eq!(messages[2]["tool_calls"][1]["function"]["arguments"], r#"{"path":"b"}"#);
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "c1", "content": "grep ran"}));
    assert_eq!(messages[4]["tool_call_id"], "c2");
}

#[test]
fn without_streaming_a_reply_is_one_document() {
    let server = Server::new([unstreamed("all at once")]);
    let mut settings = long_timeouts(&server, "/v1");
    settings.stream = false;
    let reply = WireCaller::new(MODEL, &settings).call().reply();
    assert_eq!((&*reply.text(), reply.usage.input), ("all at once", Tokens(100)));
    let request = &server.requests()[0];
    assert!(request.json().get("stream").is_none());
    assert_eq!(request.header("accept"), Some("application/json"));
}

/// Fault L27.
#[test]
fn a_json_reply_is_accepted_instead_of_a_stream() {
    assert_eq!(&*call(unstreamed("hi")).reply().text(), "hi");
    let fault = call(ScriptedReply::with_length(200, r#"{"hello":"world"}"#)).fault();
    assert_eq!(fault.kind, FaultKind::NotAnApi);
    let fault = call(ScriptedReply::with_length(
        200,
        r#"{"error":{"message":"busy","type":"overloaded_error"}}"#,
    ))
    .fault();
    assert_eq!(fault.kind, FaultKind::Server);
}

/// Faults L29 and L30.
#[test]
fn a_stream_without_its_end_is_truncated() {
    let begun = content("so far so good");
    let cut = r#"data: {"choices":[{"delta":{"content":"x"#;
    for pieces in [
        vec![begun.as_str()],
        vec![begun.as_str(), &tool(0, "c", "run", "{\"a\"")],
        vec![begun.as_str(), cut],
        vec![": nothing but a comment\n\n"],
    ] {
        let called = stream(&pieces);
        assert!(called.streamed().is_empty() || called.streamed() == "so far so good");
        let fault = called.fault();
        assert_eq!((fault.kind, fault.billed), (FaultKind::Truncated, true), "{pieces:?}");
        assert_eq!(fault.class(), FaultClass::Transient);
    }
    // The same for a lost connection.
    let broken = ScriptedReply::open_stream().chunk(&begun).close();
    assert_eq!(call(broken).fault().kind, FaultKind::Truncated);
}

/// Some servers never send `[DONE]`: forks of llama.cpp, older text-generation servers.
#[test]
fn a_finish_reason_completes_a_reply_without_done() {
    let pieces = [content("all"), finish("stop")];
    assert_eq!(&*call(ScriptedReply::stream(&pieces)).reply().text(), "all");
    let server = Server::new([ScriptedReply::stream(&pieces)]);
    let fault = WireCaller::new("groq/fake", &long_timeouts(&server, "/v1")).call().fault();
    assert_eq!(fault.kind, FaultKind::Truncated);
    // A lost connection is not the end of a body.
    let broken = ScriptedReply::open_stream().chunk(&content("all")).chunk(&finish("stop")).close();
    assert_eq!(call(broken).fault().kind, FaultKind::Truncated);
}

/// Fault L28.
#[test]
fn an_empty_response_is_retryable() {
    for reply in [
        ScriptedReply::with_length(200, ""),
        ScriptedReply::with_headers(200, &[], " \r\n"),
        ScriptedReply::open_stream().end(),
    ] {
        let fault = call(reply).fault();
        assert_eq!((fault.kind, &*fault.message), (FaultKind::Truncated, "the response is empty"));
    }
    let fault =
        call(ScriptedReply::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").close()).fault();
    assert_eq!(fault.kind, FaultKind::Truncated);
}

/// Fault L26.
#[test]
fn a_web_page_is_no_reply() {
    let page = "<html><body>Please \u{1b}[31mlog in</body></html>";
    let fault =
        call(ScriptedReply::with_headers(200, &[("content-type", "text/html")], page)).fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::NotAnApi, FaultClass::Fatal));
    assert!(fault.message.contains("Please \\u{1b}[31mlog in"), "{}", fault.message);
    let fault =
        call(ScriptedReply::with_headers(200, &[("content-type", "text/plain")], "Log in first"))
            .fault();
    assert_eq!(fault.kind, FaultKind::NotAnApi);
}

/// Fault L34.
#[test]
fn an_error_in_a_stream_is_classified_like_a_response() {
    let error = |kind: &str| event(&json!({"error": {"message": "try again in 2s", "type": kind}}));
    for (kind, expected) in [
        ("overloaded_error", FaultKind::Server),
        ("rate_limit_error", FaultKind::RateLimited),
        ("invalid_request_error", FaultKind::Request),
        ("insufficient_quota", FaultKind::Quota),
    ] {
        let fault = stream(&[&content("a"), &error(kind)]).fault();
        assert_eq!((fault.kind, fault.billed), (expected, true));
        assert_eq!(fault.retry_after.map(|wait| wait.0), Some(2_000_000));
    }
    let named = "event: error\ndata: {\"message\":\"m\",\"code\":503}\n\n";
    assert_eq!(stream(&[named]).fault().kind, FaultKind::Server);
    let in_choice = event(&json!({"choices": [{"delta": {}, "finish_reason": "error",
        "error": {"code": 429, "message": "m"}}]}));
    assert_eq!(stream(&[&in_choice]).fault().kind, FaultKind::RateLimited);
}

/// Fault L35: arguments are never doubled.
#[test]
fn a_duplicate_call_is_a_fault() {
    let begin = tool(0, "c", "run", "{}");
    let fault = stream(&[&begin, &begin, &finish("tool_calls"), &end()]).fault();
    assert_eq!((fault.kind, fault.class()), (FaultKind::Protocol, FaultClass::Transient));
}

/// Fault L36.
#[test]
fn deltas_out_of_order_are_a_fault() {
    let (first, second) = (tool(0, "a", "run", "{}"), tool(1, "b", "run", "{}"));
    let fault = stream(&[&second, &first, &end()]).fault();
    assert_eq!(fault.kind, FaultKind::Protocol);
    let fault = stream(&[&more(0, "{}"), &end()]).fault();
    assert_eq!(fault.kind, FaultKind::Protocol);
    let fault = stream(&[&first, &more(3, "{}"), &end()]).fault();
    assert_eq!(fault.kind, FaultKind::Protocol);
}

/// Faults L48 and L49, and servers without indexes.
#[test]
fn calls_without_indexes_or_ids_are_distinguished() {
    let whole = |call: serde_json::Value| delta(&json!({"tool_calls": [call]}));
    let function = |name: &str| json!({"name": name, "arguments": "{}"});
    for pieces in [
        [whole(json!({"function": function("a")})), whole(json!({"function": function("b")}))],
        [
            whole(json!({"index": 0, "id": "", "function": function("a")})),
            whole(json!({"index": 0, "id": "", "function": function("b")})),
        ],
        [
            whole(json!({"index": 0, "id": "x", "function": function("a")})),
            whole(json!({"index": 0, "id": "y", "function": function("b")})),
        ],
        [tool(0, "x", "a", "{}"), tool(1, "x", "b", "{}")],
    ] {
        let reply = stream(&[&pieces[0], &pieces[1], &finish("tool_calls"), &end()]).reply();
        let names: Vec<_> = reply.calls().map(|call| &*call.name).collect();
        assert_eq!(names, ["a", "b"], "{pieces:?}");
        let ids: Vec<_> = reply.calls().map(|call| call.id.as_str()).collect();
        assert!(ids[0] != ids[1] && ids.iter().all(|id| !id.is_empty()), "{ids:?}");
    }
}

/// Fault L37.
#[test]
fn unknown_fields_and_events_are_ignored() {
    let strange = "event: news\ndata: {\"object\":\"weather\",\"choices\":null}\n\n";
    let field = event(&json!({"choices": [{"delta": {"content": "a", "aura": 1}, "logits": []}]}));
    let reply = stream(&[strange, ": ping\n\n", &field, &finish("stop"), &end()]).reply();
    assert_eq!(&*reply.text(), "a");
}

/// Fault L38.
#[test]
fn invalid_utf8_and_json_are_faults() {
    let bad = ScriptedReply::open_stream().bytes(b"9\r\ndata: \xff\n\n\r\n".to_vec()).end();
    assert_eq!(call(bad).fault().kind, FaultKind::Protocol);
    assert_eq!(stream(&["data: {nonsense}\n\n"]).fault().kind, FaultKind::Protocol);
}

#[test]
fn halves_of_a_surrogate_pair_are_joined_and_others_replaced() {
    let parts = ["a\\ud83d", "\\ude00b", "c\\ud83dd"].map(|text| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    });
    let [first, second, third] = &parts;
    let reply = stream(&[first, second, third, &finish("stop"), &end()]).reply();
    assert_eq!(&*reply.text(), "a\u{1f600}bc\u{fffd}d");
}

/// Faults L44 and L46: the wire reports them, and the machine answers them.
#[test]
fn invalid_and_deeply_nested_arguments_are_kept_as_malformed() {
    let deep = format!("{{\"a\":{}", "[".repeat(10_000));
    for arguments in ["{\"a\":", "[1]", deep.as_str()] {
        let reply =
            stream(&[&tool(0, "c", "run", arguments), &finish("tool_calls"), &end()]).reply();
        let call = reply.calls().next().unwrap();
        assert!(matches!(call.arguments, ToolArguments::Malformed { .. }));
    }
}

/// Faults L51 to L54.
#[test]
fn the_finish_reason_is_kept() {
    for (reason, expected) in [
        ("stop", ReplyFinish::Stop),
        ("length", ReplyFinish::Length),
        ("content_filter", ReplyFinish::Refused),
        ("tool_calls", ReplyFinish::ToolCalls),
        ("model_context_window_exceeded", ReplyFinish::ContextFull),
        ("moon", ReplyFinish::Other("moon".into())),
    ] {
        assert_eq!(stream(&[&finish(reason), &end()]).reply().finish, expected);
    }
    let refusal = delta(&json!({"refusal": "I can't"}));
    let reply = stream(&[&refusal, &finish("stop"), &end()]).reply();
    assert_eq!((&*reply.text(), reply.finish), ("I can't", ReplyFinish::Refused));
    let unsaid = stream(&[&content("a"), "data: [DONE]\n\n"]).reply();
    assert_eq!(unsaid.finish, ReplyFinish::Stop, "the stream has come to its proper end");
    let reply = stream(&[&tool(0, "c", "run", "{\"a\":\"b"), &finish("length"), &end()]).reply();
    assert!(matches!(reply.calls().next().unwrap().arguments, ToolArguments::Truncated { .. }));
}

/// Fault L55.
#[test]
fn missing_or_implausible_usage_is_estimated() {
    let done = "data: [DONE]\n\n";
    for usage in [
        json!(null),
        json!({"prompt_tokens": -5, "completion_tokens": 1}),
        json!({"prompt_tokens": 1e18, "completion_tokens": 1}),
        json!("many"),
    ] {
        let chunk = event(&json!({"choices": [], "usage": usage}));
        let reply = stream(&[&content("abcdefg"), &finish("stop"), &chunk, done]).reply();
        assert!(reply.usage.is_estimated && reply.usage.input.0 > 0, "{usage}");
        assert_eq!(reply.usage.output, Tokens(2));
    }
}

/// Faults L39 and L40.
#[test]
fn a_too_large_response_is_a_fault() {
    let server = Server::new([
        ScriptedReply::open_stream().repeat_chunk(&"x".repeat(1 << 20), Duration::ZERO)
    ]);
    let fault = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call().fault();
    assert_eq!((fault.kind, fault.billed), (FaultKind::Protocol, true));
    assert!(fault.message.contains("8 MiB"), "{}", fault.message);
    let line = format!(": {}\n", "x".repeat(1 << 20));
    let server = Server::new([ScriptedReply::open_stream().repeat_chunk(&line, Duration::ZERO)]);
    let fault = WireCaller::new(MODEL, &long_timeouts(&server, "/v1")).call().fault();
    assert!(fault.message.contains("64 MiB"), "{}", fault.message);
}

#[test]
fn reasoning_is_separate_from_text() {
    let thought = delta(&json!({"reasoning_content": "let me see"}));
    let called = stream(&[&thought, &content("yes"), &finish("stop"), &end()]);
    assert!(called.deltas.contains(&ReplyDelta::Reasoning("let me see".to_owned())));
    assert_eq!(&*called.reply().text(), "yes");
}
