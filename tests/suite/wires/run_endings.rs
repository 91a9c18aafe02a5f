//! Whole runs over real sockets in virtual time, for each end of a model call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use architect::llm::connect;
use architect::llm::model_table::ModelTable;
use architect::llm::{ModelConnectionSettings, ModelSpec};
use architect::machine::{CloseReason, Conversation, LlmFailure, Machine, State, StopReason};
use architect::runner::{
    Driver, Executor, InlineExecutor, Ports, RequestContext, SystemClock, ThreadExecutor,
};
use architect::types::{
    ConversationItem, MessageOrigin, RunLimits, RunRules, TimeSpan, ToolStatus,
};
use serde_json::json;

use super::caller::{KEY, env, long_timeouts};
use super::recorded_streams::{Wire, all, one, tools};
use super::request_rules::validate;
use crate::kit::chat::{calls, delta, end, finish, text};
use crate::kit::server::{ReceivedRequest, ScriptedReply, Server};

/// A finished run, and its requests.
pub(super) struct FinishedRun {
    pub(super) fold: Machine,
    pub(super) requests: Vec<ReceivedRequest>,
}

/// Runs with a server that sends these responses.
fn run(wire: Wire, replies: impl IntoIterator<Item = ScriptedReply>) -> FinishedRun {
    let server = Server::new(replies);
    let settings = long_timeouts(&server, if wire == Wire::Chat { "/v1" } else { "" });
    let fold = drive(wire.model(), &settings);
    let requests = server.requests();
    for request in &requests {
        let wrong = validate(wire, &request.json());
        assert!(wrong.is_empty(), "{wrong:?} in {}", request.body);
    }
    FinishedRun { fold, requests }
}

fn drive(model: &str, settings: &ModelConnectionSettings) -> Machine {
    drive_with(InlineExecutor::new(), RunRules::default(), model, settings)
}

pub(super) fn drive_with(
    executor: impl Executor + 'static,
    rules: RunRules,
    model: &str,
    settings: &ModelConnectionSettings,
) -> Machine {
    let table = ModelTable::built_in();
    let spec = ModelSpec::parse(model, &table, true).unwrap();
    let model = connect(&spec, settings, &table, &env).unwrap();
    let brief = RequestContext { system: "be good".into(), tools: [].into(), schema: None };
    let conversation = Conversation::new(brief.request_bytes());
    let task = ConversationItem::user(MessageOrigin::Task, "the task");
    let (fold, first) = Machine::start(rules, conversation, task);
    Driver::new(Box::new(executor), Ports::new(model), brief, fold).run(first)
}

impl FinishedRun {
    fn done(&self) -> &architect::machine::Done {
        let State::Done(done) = &self.fold.state else { panic!("not done") };
        done
    }

    pub(super) fn reason(&self) -> StopReason {
        self.done().outcome.reason
    }

    pub(super) fn output(&self) -> &str {
        self.done().outcome.output.as_deref().unwrap_or_default()
    }

    /// Returns the error; it must not contain the key.
    fn error(&self) -> &str {
        let error = self.done().outcome.error.as_deref().unwrap_or_default();
        assert!(!error.contains(KEY), "{error}");
        error
    }

    fn seconds(&self) -> f64 {
        Duration::from_micros(self.done().run.now.0 - self.done().run.started_at.0).as_secs_f64()
    }

    /// Returns the status of each tool call.
    fn results(&self) -> Vec<ToolStatus> {
        let results =
            self.fold.conversation.entries().iter().filter_map(|entry| match &entry.item {
                ConversationItem::Exchange(exchange) => Some(exchange.results()),
                ConversationItem::User(_) | ConversationItem::Assistant(_) => None,
            });
        results.flatten().map(|result| result.status).collect()
    }
}

fn chat(replies: impl IntoIterator<Item = ScriptedReply>) -> FinishedRun {
    run(Wire::Chat, replies)
}

#[test]
fn a_text_is_the_answer_on_every_wire() {
    for wire in Wire::ALL {
        let recording = one(wire, "text");
        let ran = run(wire, [recording.in_chunks(64)]);
        assert_eq!(ran.reason(), StopReason::LlmDone);
        assert_eq!(ran.output(), recording.expected["text"].as_str().unwrap());
    }
}

#[test]
fn calls_run_and_the_next_text_is_the_answer() {
    for recording in Wire::ALL.into_iter().flat_map(all) {
        if recording.expected["finish"] != "tool_calls" {
            continue;
        }
        let ran =
            run(recording.wire, [recording.in_chunks(64), one(recording.wire, "text").whole()]);
        assert_eq!(ran.reason(), StopReason::LlmDone, "{}", recording.name);
        assert_eq!(ran.results().len(), recording.expected["calls"].as_array().unwrap().len());
    }
}

/// Fault L53.
#[test]
fn a_truncated_text_is_continued() {
    for (wire, cut) in [
        (Wire::Gemini, one(Wire::Gemini, "length").in_chunks(64)),
        (
            Wire::Chat,
            ScriptedReply::stream([
                delta(&json!({"content": "Once upon"})),
                finish("length"),
                end(),
            ]),
        ),
    ] {
        let ran = run(wire, [cut, one(wire, "text").whole()]);
        assert_eq!(ran.reason(), StopReason::LlmDone);
        assert!(ran.output().starts_with("Once uponHello"), "{}", ran.output());
        assert!(ran.requests[1].body.contains("Continue from where you left off."));
    }
}

/// Fault L53.
#[test]
fn a_truncated_call_never_runs() {
    for recording in Wire::ALL.into_iter().flat_map(all) {
        if !recording.expected["calls"].as_array().unwrap().iter().any(|c| c["arguments"].is_null())
        {
            continue;
        }
        let ran =
            run(recording.wire, [recording.in_chunks(64), one(recording.wire, "text").whole()]);
        assert_eq!(ran.results(), [ToolStatus::Truncated], "{}", recording.name);
        assert_eq!(ran.reason(), StopReason::LlmDone);
    }
}

/// Fault L52.
#[test]
fn a_refusal_ends_the_run_without_a_retry() {
    for recording in Wire::ALL.into_iter().flat_map(all) {
        if recording.expected["finish"] == "refused" {
            let ran = run(recording.wire, [recording.in_chunks(64)]);
            assert_eq!((ran.reason(), ran.requests.len()), (StopReason::Refused, 1));
        }
    }
}

/// Fault L54.
#[test]
fn a_paused_turn_goes_on() {
    let ran = run(
        Wire::Anthropic,
        [one(Wire::Anthropic, "pause").in_chunks(64), one(Wire::Anthropic, "text").whole()],
    );
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::LlmDone, 2));
}

/// Fault L54: on every wire.
#[test]
fn an_unknown_finish_reason_is_never_success() {
    for (wire, reason) in [
        (Wire::Anthropic, r#""stop_reason":"end_turn""#),
        (Wire::Chat, r#""finish_reason":"stop""#),
        (Wire::Gemini, r#""finishReason":"STOP""#),
        (Wire::Responses, r#""status":"completed","error":null"#),
    ] {
        let stream = one(wire, "text").stream;
        assert!(stream.contains(reason));
        let (key, value) = reason.split_once(':').unwrap();
        let moon = value.replacen(['e', 'c', 's', 'S'], "moon", 1);
        let stream = stream.replace(reason, &format!("{key}:{moon}"));
        let ran = run(wire, std::iter::repeat_n(ScriptedReply::stream([stream]), 4));
        // The text is kept, and charged once.
        assert_eq!((ran.reason(), ran.requests.len()), (StopReason::Truncated, 1), "{wire:?}");
        assert!(!ran.output().is_empty(), "{wire:?}");
    }
}

#[test]
fn a_full_context_window_is_not_an_answer() {
    let full = one(Wire::Anthropic, "unknown").in_chunks(64);
    let ran = run(Wire::Anthropic, [full, one(Wire::Anthropic, "text").whole()]);
    assert_eq!(ran.reason(), StopReason::Closed(CloseReason::ContextFull));
}

/// Fault L29: nothing of it enters the conversation.
#[test]
fn a_truncated_stream_is_requested_again() {
    for wire in Wire::ALL {
        let recording = tools(wire);
        let events = recording.events();
        let half = events[..events.len() - 1].iter();
        let half =
            half.fold(ScriptedReply::open_stream(), |reply, event| reply.chunk(event)).close();
        let ran = run(wire, [half, one(wire, "text").whole()]);
        assert_eq!(ran.reason(), StopReason::LlmDone, "{wire:?}");
        assert_eq!(ran.results().len(), 0);
        assert_eq!(ran.requests[0].body, ran.requests[1].body);
    }
}

/// Faults L18, L19 and L20.
#[test]
fn the_requested_delay_is_honoured() {
    let date = [
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT"),
    ];
    for (headers, at_least) in [
        (&[("retry-after", "7")][..], 7.0),
        (&[("retry-after", "40"), ("retry-after-ms", "12000")], 12.0),
        (&date, 20.0),
    ] {
        let ran = chat([ScriptedReply::with_headers(429, headers, ""), text("done")]);
        assert_eq!(ran.reason(), StopReason::LlmDone);
        let took = ran.seconds();
        assert!(took >= at_least && took < at_least + 2.0, "{took}");
    }
}

/// Fault L21.
#[test]
fn a_too_long_delay_ends_the_run() {
    let ran = chat([ScriptedReply::with_headers(429, &[("retry-after", "86400")], "")]);
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::LlmError(LlmFailure::Other), 1));
    assert!(ran.error().contains("86400 s"), "{}", ran.error());
    for garbage in ["-5", "soon", ""] {
        let ran =
            chat([ScriptedReply::with_headers(429, &[("retry-after", garbage)], ""), text("done")]);
        assert_eq!(ran.reason(), StopReason::LlmDone);
        assert!(ran.seconds() <= 1.0);
    }
}

/// Fault L22.
#[test]
fn a_delay_in_the_error_text_is_honoured() {
    let message = r#"{"error":{"message":"Rate limit reached. Please try again in 9.5s.","type":"rate_limit_error"}}"#;
    let ran = chat([ScriptedReply::with_length(429, message), text("done")]);
    assert!(ran.reason() == StopReason::LlmDone && ran.seconds() >= 9.5);
}

/// Fault L23.
#[test]
fn the_providers_retry_advice_is_honoured() {
    let advised =
        |status, advice| ScriptedReply::with_headers(status, &[("x-should-retry", advice)], "");
    let ran = chat([advised(503, "false")]);
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::LlmError(LlmFailure::Other), 1));
    assert_eq!(chat([advised(400, "true"), text("done")]).reason(), StopReason::LlmDone);
}

/// Faults L16, L24 and L25.
#[test]
fn transient_faults_are_retried_a_limited_number_of_times() {
    for status in [408, 409, 429, 500, 502, 503, 504, 520, 524, 529, 599] {
        let ran = chat([ScriptedReply::with_length(status, "{}"), text("done")]);
        assert_eq!(ran.reason(), StopReason::LlmDone, "{status}");
    }
    let ran = chat(std::iter::repeat_n(ScriptedReply::with_length(503, ""), 9));
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::LlmError(LlmFailure::Other), 4));
    let busy = || {
        ScriptedReply::with_length(529, r#"{"error":{"type":"overloaded_error","message":"busy"}}"#)
    };
    assert!(chat([busy(), text("done")]).seconds() >= 5.0);
}

/// Faults L10, L12, L14, L15, L17 and L25: a retry can't help.
#[test]
fn permanent_faults_are_not_retried() {
    let no_result = r#"{"error":{"message":"messages.1: `tool_use` ids were found without `tool_result` blocks"}}"#;
    let no_quota =
        r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    let no_model = r#"{"error":{"message":"The model `gpt-9` does not exist"}}"#;
    for (status, body, expected) in [
        (400, r#"{"error":{"message":"temperature is odd"}}"#, "temperature is odd"),
        (400, no_result, "without `tool_result` blocks"),
        (402, "", "402"),
        (429, no_quota, "exceeded your current quota"),
        (404, no_model, "/v1/chat/completions returned 404: The model `gpt-9` does not exist"),
        (418, "", "418"),
        (422, r#"{"detail":[{"msg":"field required"}]}"#, "field required"),
    ] {
        let ran = chat([ScriptedReply::with_length(status, body)]);
        assert_eq!(
            (ran.reason(), ran.requests.len()),
            (StopReason::LlmError(LlmFailure::Other), 1)
        );
        assert!(ran.error().contains(expected), "{}", ran.error());
    }
}

/// Fault L38: a damaged reply is requested again.
#[test]
fn a_reply_with_invalid_utf8_is_requested_again() {
    let spoilt = || ScriptedReply::open_stream().bytes(b"9\r\ndata: \xff\n\n\r\n".to_vec()).end();
    let ran = chat([spoilt(), text("done")]);
    assert_eq!((ran.reason(), ran.output()), (StopReason::LlmDone, "done"));
    assert_eq!(ran.requests[0].body, ran.requests[1].body);
}

/// Fault L61: a model that signs its thinking together with the conversation would reject it after a compaction.
#[test]
fn bound_thinking_may_be_dropped_in_another_conversation() {
    let request = |model: &str| {
        let server = Server::new([one(Wire::Anthropic, "text").whole()]);
        drive(model, &long_timeouts(&server, ""));
        server.requests().remove(0)
    };
    let bound = request("anthropic/claude-opus-5-5");
    assert_eq!(bound.header("anthropic-beta"), Some("thinking-binding-controls-2026-08-01"));
    let binding = json!({"prefix_mismatch_behavior": "drop_block"});
    let thinking = json!({"type": "adaptive", "block_binding": binding});
    assert_eq!(bound.json()["thinking"], thinking);
    let free = request("anthropic/claude-opus-5");
    assert_eq!((free.header("anthropic-beta"), free.json().get("thinking")), (None, None));
}

/// Fault L12: the conversation always has all results, so the error has advice on what to report.
#[test]
fn a_missing_result_error_has_advice() {
    for message in [
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "No tool output found for function call call_1.",
        "Please ensure that the number of function response parts is equal to the number of function call parts",
        "Not the same number of function calls and responses",
    ] {
        let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
        let ran = chat([ScriptedReply::with_length(400, &body.to_string())]);
        assert_eq!(ran.requests.len(), 1);
        assert!(ran.error().contains("each call that was sent has its answer"), "{}", ran.error());
    }
    assert!(!chat([ScriptedReply::with_length(400, "{}")]).error().contains("each call"));
}

/// Fault L13.
#[test]
fn a_rejected_key_is_reported_with_its_variable() {
    let message = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
    for (wire, variable) in [
        (Wire::Anthropic, "ANTHROPIC_API_KEY"),
        (Wire::Chat, "OPENAI_API_KEY"),
        (Wire::Gemini, "GEMINI_API_KEY"),
        (Wire::Responses, "OPENAI_API_KEY"),
    ] {
        for status in [401, 403] {
            let ran = run(wire, [ScriptedReply::with_length(status, &message)]);
            assert_eq!(ran.reason(), StopReason::LlmError(LlmFailure::Auth));
            assert_eq!((ran.requests.len(), ran.reason().exit_code()), (1, 4));
            assert!(ran.error().contains(variable), "{}", ran.error());
        }
    }
}

/// Fault L11, by the text of each provider, and by status alone.
#[test]
fn a_context_overflow_is_compacted_and_retried() {
    let openai = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let anthropic = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#;
    let google = r#"{"error":{"code":400,"status":"INVALID_ARGUMENT","message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)"}}"#;
    for (wire, status, body) in [
        (Wire::Chat, 400, openai),
        (Wire::Responses, 400, openai),
        (Wire::Anthropic, 400, anthropic),
        (Wire::Gemini, 400, google),
        (Wire::Chat, 413, ""),
    ] {
        let tools = || tools(wire).in_chunks(512);
        let text = || one(wire, "text").whole();
        let ran =
            run(wire, [tools(), tools(), ScriptedReply::with_length(status, body), text(), text()]);
        assert_eq!(ran.reason(), StopReason::LlmDone, "{wire:?}");
        let compacted = &ran.requests[4];
        assert!(compacted.body.len() < ran.requests[2].body.len(), "{}", compacted.body);
    }
}

/// Faults L31, L32 and L33: a busy stream ends at the limit, and the run gets its final summary.
#[test]
fn an_endless_stream_ends_at_the_step_timeout() {
    let words = delta(&json!({"content": "and on "}));
    for endless in [": ping\n\n", words.as_str()] {
        let server = Server::new([
            ScriptedReply::open_stream().repeat_chunk(endless, Duration::from_millis(5)),
            text("that is all"),
        ]);
        let limits =
            RunLimits { step_timeout: Some(TimeSpan::from_secs(2)), ..RunLimits::default() };
        let rules = RunRules { limits, ..RunRules::default() };
        let threads = ThreadExecutor::new(Arc::new(SystemClock::start()), 1);
        let begun = Instant::now();
        let settings = long_timeouts(&server, "/v1");
        let fold = drive_with(threads, rules, Wire::Chat.model(), &settings);
        assert!(begun.elapsed() < Duration::from_secs(15));
        let ran = FinishedRun { fold, requests: server.requests() };
        assert_eq!(ran.reason(), StopReason::Closed(CloseReason::Timeout));
        assert_eq!(ran.output(), "that is all");
    }
}

/// Fault L51.
#[test]
fn an_empty_reply_is_retried_twice() {
    let nothing = || ScriptedReply::stream([finish("stop"), end()]);
    let ran = chat([nothing(), nothing(), nothing()]);
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::EmptyResponse, 3));
    let ran = chat([nothing(), text("here")]);
    assert_eq!((ran.reason(), ran.output()), (StopReason::LlmDone, "here"));
}

/// Fault L50.
#[test]
fn calls_beyond_the_limit_are_answered_without_running() {
    let ids: Vec<String> = (0..500).map(|number| format!("c{number}")).collect();
    let asked: Vec<_> = ids.iter().map(|id| (id.as_str(), "grep", "{}")).collect();
    let ran = chat([calls(&asked), text("done")]);
    let results = ran.results();
    let skipped = results.iter().filter(|status| **status == ToolStatus::Skipped).count();
    assert!(results.len() == 500 && skipped >= 300, "{skipped}");
    assert_eq!(ran.reason(), StopReason::LlmDone);
}

/// Faults L44 to L46: invalid calls are answered, and end the run if nothing else follows.
#[test]
fn invalid_calls_are_answered_and_finally_end_the_run() {
    for arguments in ["{\"a\":", "[1]", "{\"a\":1,\"a\":2}", "{\"a\":1e999}", "{\"a\":\"\\ud83d\"}"]
    {
        let broken = || calls(&[("", "grep", arguments)]);
        let ran = chat(std::iter::repeat_with(broken).take(9));
        assert_eq!(ran.reason(), StopReason::InvalidToolCalls, "{arguments}");
    }
}

/// Faults L26, L27 and L28.
#[test]
fn a_response_without_a_reply_is_not_a_success() {
    let page =
        ScriptedReply::with_headers(200, &[("content-type", "text/html")], "<html>log in</html>");
    let ran = chat([page]);
    assert_eq!((ran.reason(), ran.requests.len()), (StopReason::LlmError(LlmFailure::Other), 1));
    assert!(ran.error().contains("log in"), "{}", ran.error());
    assert_eq!(
        chat([ScriptedReply::with_length(200, ""), text("done")]).reason(),
        StopReason::LlmDone
    );
}
