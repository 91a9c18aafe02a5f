//! Requests for arbitrary conversations are valid for the providers.

use std::sync::Arc;

use architect::machine::{
    CompactionSummary, Conversation, ConversationChange, ConversationEntry, EntryId,
};
use architect::port::ToolSpec;
use architect::types::{
    ConversationItem, MessageOrigin, OpaqueBlock, Reply as Answer, ReplyFinish, ReplyPart, Tokens,
    ToolCall, ToolExchange, ToolResult, ToolStatus, Usage,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::caller::{WireCaller, long_timeouts};
use super::recorded_streams::Wire;
use super::request_rules::{validate, validate_mistral};
use crate::kit::server::{ScriptedReply, Server};

/// An event of a conversation.
#[derive(Clone, Debug)]
enum ConversationStep {
    UserMessage(MessageOrigin, String),
    Replied(Vec<ReplyPiece>, ReplyFinish),
    Compacted { keep: u32, fit: u64, written: bool },
}

/// A part of a reply.
#[derive(Clone, Debug)]
enum ReplyPiece {
    Text(String),
    /// The name, the arguments, the prefix of the id, and the status.
    Call(String, String, &'static str, ToolStatus, String),
    /// A block that only one provider can read: the provider and the block.
    Opaque(Wire, &'static str),
}

/// Blocks of the providers.
const BLOCKS: [(Wire, &str); 7] = [
    (Wire::Anthropic, r#"{"type":"thinking","thinking":"hm","signature":"aGk="}"#),
    (Wire::Anthropic, r#"{"type":"redacted_thinking","data":"aGk="}"#),
    (
        Wire::Anthropic,
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#,
    ),
    (
        Wire::Responses,
        r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"aGk="}"#,
    ),
    (Wire::Responses, r#"{"type":"message","phase":"commentary"}"#),
    (Wire::Responses, r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#),
    (Wire::Gemini, r#"{"thoughtSignature":"aGk="}"#),
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "[a-zä🦀\"\\\\\n ]{1,20}"]
}

fn piece() -> impl Strategy<Value = ReplyPiece> {
    let name = prop_oneof![Just("grep".to_owned()), "[a-z.ä ]{0,12}", Just("x".repeat(99))];
    let arguments = prop_oneof![
        Just(r#"{"a":[1,{"b":null}]}"#.to_owned()),
        Just("{}".to_owned()),
        Just(String::new()),
        Just("{\"a".to_owned()),
        Just("[1]".to_owned()),
        Just("{\"a\":\"\u{2028}\u{7f}\"}".to_owned()),
    ];
    let id = prop::sample::select(vec!["toolu_", "call_", "functions.grep:", "a b/ä"]);
    let status = prop::sample::select(vec![
        ToolStatus::Ok,
        ToolStatus::Failed,
        ToolStatus::Truncated,
        ToolStatus::Skipped,
        ToolStatus::Interrupted,
        ToolStatus::InDoubt,
    ]);
    prop_oneof![
        text().prop_map(ReplyPiece::Text),
        (name, arguments, id, status, text())
            .prop_map(|(n, a, i, s, t)| ReplyPiece::Call(n, a, i, s, t)),
        prop::sample::select(BLOCKS.to_vec())
            .prop_map(|(wire, json)| ReplyPiece::Opaque(wire, json)),
    ]
}

fn happens() -> impl Strategy<Value = ConversationStep> {
    let origin = prop::sample::select(vec![
        MessageOrigin::Task,
        MessageOrigin::Steering,
        MessageOrigin::FollowUp,
        MessageOrigin::System,
        MessageOrigin::Check,
    ]);
    let finish =
        prop::sample::select(vec![ReplyFinish::Stop, ReplyFinish::Length, ReplyFinish::Pause]);
    prop_oneof![
        2 => (origin, text()).prop_map(|(origin, text)| ConversationStep::UserMessage(origin, text)),
        6 => (prop::collection::vec(piece(), 0..5), finish).prop_map(|(p, f)| ConversationStep::Replied(p, f)),
        1 => (0_u32..4, 0_u64..400, any::<bool>())
            .prop_map(|(keep, fit, written)| ConversationStep::Compacted { keep, fit, written }),
    ]
}

/// Returns the entry for a reply; ids are numbered, to be unique.
fn entry(pieces: &[ReplyPiece], finish: &ReplyFinish, number: usize) -> ConversationItem {
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for (index, piece) in pieces.iter().enumerate() {
        parts.push(match piece {
            ReplyPiece::Text(text) => ReplyPart::Text(text.as_str().into()),
            ReplyPiece::Opaque(wire, json) => {
                ReplyPart::Opaque(OpaqueBlock { wire: wire.model().into(), json: (*json).into() })
            }
            ReplyPiece::Call(name, arguments, id, status, text) => {
                let id = format!("{id}{number}_{index}");
                let call = ToolCall::new(id.as_str().into(), name, arguments);
                results.push(ToolResult::new(call.id.clone(), *status, text.as_str()));
                ReplyPart::Call(if *status == ToolStatus::Truncated {
                    call.mark_truncated()
                } else {
                    call
                })
            }
        });
    }
    let parts = parts.into();
    let reply = Answer { parts, finish: finish.clone(), usage: Usage::default(), model: None };
    match results.is_empty() {
        true => ConversationItem::Assistant(reply),
        false => ConversationItem::Exchange(ToolExchange::new(reply, results).unwrap()),
    }
}

/// Returns the conversation with these events. As in the machine, it ends with results, a message, or a paused turn.
fn conversation(story: &[ConversationStep]) -> Conversation {
    let mut conversation = Conversation::new(0);
    let append = |conversation: &mut Conversation, item| {
        conversation.apply(ConversationChange::Append { item });
    };
    append(&mut conversation, ConversationItem::user(MessageOrigin::Task, "the task"));
    for (number, happens) in story.iter().enumerate() {
        match happens {
            ConversationStep::UserMessage(origin, text) => {
                append(&mut conversation, ConversationItem::user(*origin, text.as_str()));
            }
            ConversationStep::Replied(pieces, finish) => {
                append(&mut conversation, entry(pieces, finish, number));
            }
            ConversationStep::Compacted { keep, fit, written } => {
                let summary = match written {
                    true => CompactionSummary::FromModel("did things".into()),
                    false => CompactionSummary::Mechanical,
                };
                conversation.apply(ConversationChange::Compact {
                    summary,
                    keep: *keep,
                    target_size: Tokens(*fit),
                });
            }
        }
    }
    append(&mut conversation, ConversationItem::user(MessageOrigin::System, "go on"));
    conversation
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// The next step.
    Step,
    /// A summary of all but the last exchange, for a compaction.
    Summary,
    /// The final summary of a run, without tools.
    Words,
}

/// A caller for each model, with the server that receives its requests.
struct ValidatedCallers {
    server: Server,
    caller: WireCaller,
    validate: fn(&Value) -> Vec<String>,
    /// The number of conversations; a model serves one, so the entries of the next one get other ids.
    number: u64,
}

impl ValidatedCallers {
    fn new(model: &str, validate: fn(&Value) -> Vec<String>) -> Self {
        // The response does not matter.
        let server = Server::repeating([ScriptedReply::with_length(400, "")]);
        let caller = WireCaller::new(model, &long_timeouts(&server, "/v1"));
        Self { server, caller, validate, number: 0 }
    }

    fn all() -> Vec<Self> {
        vec![
            Self::new(Wire::Anthropic.model(), |body| validate(Wire::Anthropic, body)),
            Self::new(Wire::Chat.model(), |body| validate(Wire::Chat, body)),
            Self::new(Wire::Gemini.model(), |body| validate(Wire::Gemini, body)),
            Self::new(Wire::Responses.model(), |body| validate(Wire::Responses, body)),
            Self::new("openrouter/x/y", |body| validate(Wire::Chat, body)),
            Self::new("deepseek/deepseek-v4-pro", |body| validate(Wire::Chat, body)),
            Self::new("ollama/qwen3", |body| validate(Wire::Chat, body)),
            Self::new("mistral/codestral", validate_mistral),
        ]
    }

    /// Returns the problem of the request for a conversation.
    fn violations(&mut self, conversation: &Conversation, wanted: RequestKind) -> Vec<String> {
        let closing = wanted != RequestKind::Step;
        let entries = match wanted {
            RequestKind::Summary => conversation.entries_to_compact(1),
            RequestKind::Step | RequestKind::Words => conversation.entries(),
        };
        self.number += 1_000;
        let renamed = |entry: &ConversationEntry| ConversationEntry {
            id: EntryId(entry.id.0 + self.number),
            item: entry.item.clone(),
        };
        self.caller.entries = entries.iter().map(renamed).collect();
        self.caller.instruction = closing.then(|| "[SYSTEM] summarize".to_owned());
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: "does".into(),
            schema: json!({"type": "object", "properties": {"a": {}}}),
        };
        self.caller.tools = match closing {
            true => Arc::new([]),
            false => [spec("grep"), spec("read_file")].into(),
        };
        self.caller.call().fault();
        let sent = self.server.requests().pop().unwrap().json();
        let mut wrong = (self.validate)(&sent);
        if closing && sent.get("tools").is_some() && sent["tool_choice"]["type"] != "none" {
            wrong.push("tools may be called although none were given".to_owned());
        }
        wrong
    }
}

#[test]
fn requests_for_arbitrary_conversations_are_valid() {
    let benches = std::sync::Mutex::new(ValidatedCallers::all());
    let config =
        ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(story in prop::collection::vec(happens(), 0..12),
        wanted in prop::sample::select(vec![RequestKind::Step, RequestKind::Summary, RequestKind::Words]))| {
        let conversation = conversation(&story);
        for bench in benches.lock().unwrap().iter_mut() {
            let wrong = bench.violations(&conversation, wanted);
            let sent = bench.server.requests().pop().unwrap().body;
            prop_assert!(wrong.is_empty(), "{wrong:?}\n{sent}");
        }
    });
}

/// The validators must not accept everything.
#[test]
fn validators_reject_invalid_requests() {
    let refused = |wire, body: Value| assert!(!validate(wire, &body).is_empty(), "{body}");
    let tool_use = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "x"});
    let user = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    let anthropic = |messages: Value| json!({"model": "m", "max_tokens": 1, "messages": messages});
    let answered = json!({"role": "user", "content": [result]});
    let mut right = anthropic(json!([user, tool_use, answered]));
    refused(Wire::Anthropic, right.clone());
    right["tools"] = json!([{"name": "n", "input_schema": {"type": "object"}}]);
    assert_eq!(validate(Wire::Anthropic, &right), [""; 0]);
    for messages in [
        json!([tool_use, answered]),
        json!([user, user]),
        json!([user, tool_use]),
        json!([user, tool_use, user]),
        json!([user, tool_use, {"role": "user", "content": [result, result]}]),
        json!([user, tool_use, {"role": "user", "content": [{"type": "text", "text": "a"}, result]}]),
        json!([{"role": "user", "content": [{"type": "text", "text": " "}]}]),
        json!([user, {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "a"}]}]),
    ] {
        refused(Wire::Anthropic, anthropic(messages));
    }
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "n", "arguments": "{}"}}]});
    let tool = json!({"role": "tool", "tool_call_id": "a", "content": "x"});
    let user = json!({"role": "user", "content": "hi"});
    let chat = |messages: Value| json!({"model": "m", "messages": messages});
    assert_eq!(validate(Wire::Chat, &chat(json!([user, call, tool]))), [""; 0]);
    for messages in [
        json!([user, call]),
        json!([user, call, user]),
        json!([user, call, tool, tool]),
        json!([user, tool]),
        json!([user, {"role": "assistant", "content": null}]),
    ] {
        refused(Wire::Chat, chat(messages));
    }
    let call = json!({"type": "function_call", "call_id": "a", "name": "n", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "x"});
    let thought = json!({"type": "reasoning", "encrypted_content": "x"});
    let responses = |input: Value| json!({"model": "m", "store": false, "input": input});
    assert_eq!(validate(Wire::Responses, &responses(json!([thought, call, output]))), [""; 0]);
    for input in [
        json!([call]),
        json!([output]),
        json!([call, output, output]),
        json!([call, output, thought]),
        json!([call, call, output, output]),
    ] {
        refused(Wire::Responses, responses(input));
    }
    let user = json!({"role": "user", "parts": [{"text": "hi"}]});
    let call = json!({"role": "model", "parts": [{"functionCall": {"name": "n", "args": {}}, "thoughtSignature": "a"}]});
    let answer =
        json!({"role": "user", "parts": [{"functionResponse": {"name": "n", "response": {}}}]});
    assert_eq!(validate(Wire::Gemini, &json!({"contents": [user, call, answer]})), [""; 0]);
    for contents in [
        json!([user, call]),
        json!([user, call, user]),
        json!([user, answer]),
        json!([call, answer]),
        json!([user, {"role": "model", "parts": [{"functionCall": {"name": "n", "args": {}}}]}, answer]),
    ] {
        refused(Wire::Gemini, json!({"contents": contents}));
    }
}
