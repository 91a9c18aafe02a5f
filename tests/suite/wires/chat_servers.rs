//! Servers with deviating Chat Completions: their requests and replies.

use std::sync::Arc;

use architect::port::{ReplyDelta, ToolSpec};
use architect::types::{Fault, FaultClass, FaultKind, ReplyFinish, Tokens};
use serde_json::{Value, json};

use super::caller::{WireCaller, long_timeouts};
use super::recorded_streams::Wire;
use super::request_rules::{validate, validate_mistral};
use crate::kit::chat::{delta, end, event, finish, text};
use crate::kit::server::{ScriptedReply, Server};

/// The expected request of a server, and its reply with calls of `grep` and `read_file`.
struct Row {
    model: &'static str,
    limit: &'static str,
    /// Whether usage in a stream has to be requested.
    asks_for_usage: bool,
    format: &'static str,
    stream: Vec<String>,
    thought: &'static str,
    /// Input, cached input, output, reasoning.
    usage: [u64; 4],
}

fn calls(calls: &Value) -> String {
    delta(&json!({"tool_calls": calls}))
}

fn grep() -> Value {
    json!({"name": "grep", "arguments": "{\"text\":\"a\"}"})
}

fn read() -> Value {
    json!({"name": "read_file", "arguments": "{\"path\":\"b\"}"})
}

fn used(usage: &Value) -> String {
    event(&json!({"choices": [], "usage": usage}))
}

const DONE: &str = "data: [DONE]\n\n";

#[allow(clippy::too_many_lines)] // a table
fn rows() -> Vec<Row> {
    let usual = Row {
        model: "",
        limit: "max_tokens",
        asks_for_usage: true,
        format: "json_schema",
        stream: Vec::new(),
        thought: "",
        usage: [9, 0, 5, 0],
    };
    let plain = json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14});
    vec![
        // Complete calls, all with the same index, and finish reason `stop`.
        Row {
            model: "ollama/qwen3",
            stream: vec![
                delta(&json!({"role": "assistant", "content": "", "reasoning": "hm"})),
                calls(
                    &json!([{"index": 0, "id": "call_a", "type": "function", "function": grep()}]),
                ),
                calls(
                    &json!([{"index": 0, "id": "call_b", "type": "function", "function": read()}]),
                ),
                finish("stop"),
                used(&plain),
                DONE.to_owned(),
            ],
            thought: "hm",
            ..usual
        },
        // No index, no id, and only the end of the body.
        Row {
            model: "llama-cpp/any",
            stream: vec![
                delta(&json!({"role": "assistant", "content": null})),
                calls(&json!([{"function": grep()}, {"function": read()}])),
                event(
                    &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
                    "usage": plain, "timings": {"prompt_n": 9}}),
                ),
            ],
            ..usual
        },
        Row {
            model: "vllm/any",
            stream: vec![
                delta(&json!({"role": "assistant", "content": "", "reasoning_content": null})),
                calls(
                    &json!([{"index": 0, "id": "chatcmpl-tool-1", "function": {"name": "grep", "arguments": ""}}]),
                ),
                calls(&json!([{"index": 0, "function": {"arguments": "{\"text\":\"a\"}"}}])),
                calls(&json!([{"index": 1, "id": "chatcmpl-tool-2", "function": read()}])),
                event(
                    &json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls", "stop_reason": null}]}),
                ),
                used(&plain),
                DONE.to_owned(),
            ],
            ..usual
        },
        Row {
            model: "openrouter/some/model",
            stream: vec![
                ": OPENROUTER PROCESSING\n\n".to_owned(),
                delta(&json!({"content": "", "reasoning": "hm", "reasoning_details":
                    [{"type": "reasoning.text", "text": "hm", "index": 0, "format": "unknown"}]})),
                ": OPENROUTER PROCESSING\n\n".to_owned(),
                delta(&json!({"reasoning_details":
                    [{"type": "reasoning.text", "signature": "aGk=", "index": 0}]})),
                calls(&json!([{"index": 0, "id": "a", "function": grep()}])),
                calls(&json!([{"index": 1, "id": "b", "function": read()}])),
                event(
                    &json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls", "native_finish_reason": "tool_use"}]}),
                ),
                used(&json!({"prompt_tokens": 9, "completion_tokens": 5, "cost": 0.1,
                    "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}})),
                DONE.to_owned(),
            ],
            thought: "hm",
            usage: [9, 4, 5, 2],
            ..usual
        },
        // Usage in a field of its own.
        Row {
            model: "groq/any",
            limit: "max_completion_tokens",
            stream: vec![
                event(
                    &json!({"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning": "hm"}}], "x_groq": {"id": "req_1"}}),
                ),
                calls(
                    &json!([{"index": 0, "id": "a", "type": "function", "function": grep()}, {"index": 1, "id": "b", "type": "function", "function": read()}]),
                ),
                event(
                    &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
                    "x_groq": {"id": "req_1", "usage": {"queue_time": 0.1, "prompt_tokens": 9, "completion_tokens": 5}}}),
                ),
                DONE.to_owned(),
            ],
            thought: "hm",
            ..usual
        },
        Row {
            model: "deepseek/deepseek-v4-pro",
            format: "json_object",
            stream: vec![
                ": keep-alive\n\n".to_owned(),
                delta(&json!({"role": "assistant", "content": null, "reasoning_content": "hm"})),
                calls(
                    &json!([{"index": 0, "id": "call_0", "type": "function", "function": {"name": "grep", "arguments": ""}}]),
                ),
                calls(&json!([{"index": 0, "function": {"arguments": "{\"text\":\"a\"}"}}])),
                calls(
                    &json!([{"index": 1, "id": "call_1", "type": "function", "function": read()}]),
                ),
                event(
                    &json!({"choices": [{"index": 0, "delta": {"content": "", "reasoning_content": null}, "finish_reason": "tool_calls"}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}}),
                ),
                DONE.to_owned(),
            ],
            thought: "hm",
            usage: [9, 4, 5, 0],
            ..usual
        },
        // Content in parts, and arguments as an object.
        Row {
            model: "mistral/magistral",
            asks_for_usage: false,
            stream: vec![
                delta(
                    &json!({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
                ),
                delta(&json!({"content": [{"type": "text", "text": ""}]})),
                event(
                    &json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {"content": "", "tool_calls": [
                    {"id": "D681PevKs", "index": 0, "function": {"name": "grep", "arguments": {"text": "a"}}},
                    {"id": "yBD8nOs4y", "index": 1, "function": read()}]}}], "usage": plain}),
                ),
                DONE.to_owned(),
            ],
            thought: "hm",
            ..usual
        },
        // Reasoning is counted in addition to the output.
        Row {
            model: "xai/grok-4.3",
            stream: vec![
                delta(&json!({"role": "assistant", "content": "", "reasoning_content": "hm"})),
                calls(&json!([{"index": 0, "id": "a", "type": "function", "function": grep()}])),
                calls(&json!([{"index": 1, "id": "b", "type": "function", "function": read()}])),
                finish("tool_calls"),
                used(&json!({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 16,
                    "completion_tokens_details": {"reasoning_tokens": 2}})),
                DONE.to_owned(),
            ],
            thought: "hm",
            usage: [9, 0, 7, 2],
            ..usual
        },
    ]
}

fn tools() -> Arc<[ToolSpec]> {
    ["grep", "read_file"]
        .map(|name| ToolSpec {
            name: name.into(),
            description: "does".into(),
            schema: json!({"type": "object"}),
        })
        .into()
}

#[test]
fn the_replies_of_each_server_are_decoded() {
    for row in rows() {
        let server = Server::new([ScriptedReply::stream(&row.stream), text("done")]);
        let mut caller = WireCaller::new(row.model, &long_timeouts(&server, "/v1"));
        caller.tools = tools();
        let what = caller.call();
        let thought = ReplyDelta::Reasoning(row.thought.to_owned());
        assert_eq!(what.deltas.contains(&thought), !row.thought.is_empty(), "{}", row.model);
        let reply = what.reply();
        let read: Vec<_> =
            reply.calls().map(|call| (&*call.name, call.arguments.text().to_owned())).collect();
        let (a, b) = (r#"{"text":"a"}"#.to_owned(), r#"{"path":"b"}"#.to_owned());
        assert_eq!(read, [("grep", a), ("read_file", b)], "{}", row.model);
        let usage = reply.usage;
        let counted = [usage.input, usage.cached_input, usage.output, usage.reasoning];
        assert_eq!(counted.map(|tokens| tokens.0), row.usage, "{}", row.model);
        assert!(!usage.is_estimated && usage.cache_write == Tokens::ZERO);
        // The reasoning is sent back in the form of this server.
        caller.add_reply(reply);
        caller.add_user_message("and now");
        assert_eq!(&*caller.call().reply().text(), "done");
        let request = server.requests()[1].json();
        let wrong = match row.model.starts_with("mistral/") {
            true => validate_mistral(&request),
            false => validate(Wire::Chat, &request),
        };
        assert!(wrong.is_empty(), "{}: {wrong:?} in {request}", row.model);
    }
}

#[test]
fn the_requests_fit_each_server() {
    for row in rows() {
        let server = Server::new([text("a")]);
        let mut caller = WireCaller::new(row.model, &long_timeouts(&server, "/v1"));
        caller.max_output = Some(Tokens(100));
        caller.schema = Some(json!({"type": "object", "properties": {}}).into());
        caller.call().reply();
        let request = server.requests()[0].json();
        assert_eq!(server.requests()[0].path, "/v1/chat/completions");
        assert_eq!(request["model"], row.model.split_once('/').unwrap().1);
        let limits = ["max_tokens", "max_completion_tokens"].map(|key| request.get(key).is_some());
        assert_eq!(limits, [row.limit == "max_tokens", row.limit != "max_tokens"], "{}", row.model);
        let asks = request.get("stream_options").is_some();
        assert_eq!(asks, row.asks_for_usage, "{}", row.model);
        assert_eq!(request["response_format"]["type"], row.format, "{}", row.model);
        assert_eq!(request["messages"][0]["role"], "system");
        assert!(request.get("prompt_cache_key").is_none(), "only OpenAI knows it");
    }
}

/// OpenRouter expects its reasoning blocks back unchanged, DeepSeek its text with tool calls, and the others nothing.
#[test]
fn reasoning_is_sent_back_where_it_is_expected() {
    for row in rows() {
        let server = Server::new([ScriptedReply::stream(&row.stream), text("done")]);
        let mut caller = WireCaller::new(row.model, &long_timeouts(&server, "/v1"));
        let reply = caller.call().reply();
        caller.add_reply(reply);
        caller.call().reply();
        let message = server.requests()[1].json()["messages"][2].clone();
        let back: Vec<_> = message
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| key.starts_with("reasoning"))
            .collect();
        let expected: &[&str] = match row.model.split_once('/').unwrap().0 {
            "openrouter" => &["reasoning_details"],
            "deepseek" => &["reasoning_content"],
            _ => &[],
        };
        assert_eq!(back, expected, "{}", row.model);
        if row.model.starts_with("openrouter/") {
            assert_eq!(
                message["reasoning_details"],
                json!([{"type": "reasoning.text", "text": "hm",
                "index": 0, "format": "unknown", "signature": "aGk="}])
            );
        }
    }
}

/// Calls a server with this response.
fn fault(model: &str, reply: ScriptedReply) -> Fault {
    let server = Server::new([reply]);
    WireCaller::new(model, &long_timeouts(&server, "/v1")).call().fault()
}

/// Fault L11 and others, in the text of each server.
#[test]
#[allow(clippy::too_many_lines)] // a table
fn the_error_texts_of_each_server_are_classified() {
    use FaultKind::{
        MissingModel, Overflow, Protocol, Quota, RateLimited, Refused, Request, Server as Trouble,
    };
    for (model, status, body, kind) in [
        (
            "llama-cpp/m",
            400,
            json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_ctx": 4096,
            "message": "the request exceeds the available context size, try increasing it"}}),
            Overflow,
        ),
        (
            "llama-cpp/m",
            503,
            json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
            Trouble,
        ),
        (
            "vllm/m",
            400,
            json!({"object": "error", "type": "BadRequestError", "code": 400,
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"}),
            Overflow,
        ),
        (
            "ollama/m",
            404,
            json!({"error": {"message": "model \"m\" not found, try pulling it first", "type": "api_error"}}),
            MissingModel,
        ),
        (
            "ollama/m",
            400,
            json!({"error": {"message": "prompt too long; exceeded max context length by 5 tokens"}}),
            Overflow,
        ),
        (
            "groq/m",
            413,
            json!({"error": {"message": "Request too large for model: tokens per minute (TPM): Limit 6000", "code": "rate_limit_exceeded", "type": "tokens"}}),
            RateLimited,
        ),
        (
            "groq/m",
            400,
            json!({"error": {"message": "Please reduce the length of the messages or completion.", "type": "invalid_request_error"}}),
            Overflow,
        ),
        (
            "groq/m",
            400,
            json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
            "code": "tool_use_failed", "failed_generation": "<function"}}),
            Protocol,
        ),
        (
            "deepseek/m",
            402,
            json!({"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
            Quota,
        ),
        (
            "mistral/m",
            422,
            json!({"object": "error", "message": {"detail": [{"type": "missing", "msg": "Field required"}]}}),
            Request,
        ),
        (
            "mistral/m",
            400,
            json!({"object": "error", "type": "invalid_request_prompt", "code": "3051",
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}),
            Overflow,
        ),
        (
            "openrouter/m",
            402,
            json!({"error": {"code": 402, "message": "This request requires more credits"}}),
            Quota,
        ),
        (
            "openrouter/m",
            403,
            json!({"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"], "flagged_input": "x"}}}),
            Refused,
        ),
        (
            "xai/m",
            400,
            json!({"code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}),
            Overflow,
        ),
    ] {
        assert_eq!(
            fault(model, ScriptedReply::with_length(status, &body.to_string())).kind,
            kind,
            "{model} {body}"
        );
    }
}

/// Fault L34, in the text of each server.
#[test]
fn the_stream_errors_of_each_server_are_classified() {
    use FaultKind::{RateLimited, Refused, Server as Trouble};
    for (model, data, kind) in [
        (
            "openrouter/m",
            json!({"id": "x", "error": {"code": 502, "message": "Provider disconnected"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
            Trouble,
        ),
        (
            "openrouter/m",
            json!({"choices": [{"index": 0, "delta": {}, "error": {"code": 429, "message": "slow down"}}]}),
            RateLimited,
        ),
        (
            "vllm/m",
            json!({"object": "error", "message": "boom", "type": "InternalServerError", "code": 500}),
            Trouble,
        ),
        (
            "vllm/m",
            json!({"error": {"message": "boom", "type": "InternalServerError", "code": 500}}),
            Trouble,
        ),
        (
            "deepseek/m",
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "insufficient_system_resource"}]}),
            Trouble,
        ),
        ("openai-chat/m", json!({"error": {"code": "content_filter", "message": "no"}}), Refused),
    ] {
        let pieces = [delta(&json!({"content": "so far"})), event(&data), DONE.to_owned()];
        let fault = fault(model, ScriptedReply::stream(pieces));
        assert_eq!(fault.kind, kind, "{model} {data}");
        assert_eq!(fault.class() == FaultClass::Transient, kind != Refused);
    }
}

#[test]
fn the_finish_reasons_of_each_server_are_recognized() {
    for (model, reason, expected) in [
        ("mistral/m", "model_length", ReplyFinish::Length),
        ("ollama/m", "length", ReplyFinish::Length),
        ("llama-cpp/m", "eos", ReplyFinish::Stop),
        ("openrouter/m", "content_filter", ReplyFinish::Refused),
        ("openai-chat/m", "function_call", ReplyFinish::ToolCalls),
        ("openai-chat/m", "sensitive", ReplyFinish::Refused),
        ("openai-chat/m", "model_context_window_exceeded", ReplyFinish::ContextFull),
        ("vllm/m", "abort", ReplyFinish::Other("abort".into())),
    ] {
        let server = Server::new([ScriptedReply::stream([finish(reason), end()])]);
        let reply = WireCaller::new(model, &long_timeouts(&server, "/v1")).call().reply();
        assert_eq!(reply.finish, expected, "{model} {reason}");
    }
}

/// A key is sent only to its provider, and only encrypted; local servers need none.
#[test]
fn local_servers_need_no_key() {
    for model in ["ollama/m", "llama-cpp/m", "vllm/m"] {
        let server = Server::new([text("a")]);
        let mut caller =
            WireCaller::with_env(model, &long_timeouts(&server, "/v1"), &|_| None).unwrap();
        caller.call().reply();
        assert_eq!(server.requests()[0].header("authorization"), None, "{model}");
    }
}
