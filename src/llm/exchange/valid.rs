//! Random histories, compacted at random, as each wire writes them: held against what the providers demand.
//!
//! The rules here are written from the providers' references alone and share nothing with the code that writes.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;

use super::{Target, WireModel};
use crate::llm::anthropic::Anthropic;
use crate::llm::chat::{Chat, Quirks};
use crate::llm::fault::Masks;
use crate::llm::gemini::Gemini;
use crate::llm::responses::{Host, Responses};
use crate::llm::wire::Wire;
use crate::machine::{Change, Conversation, Purpose, Summary};
use crate::model::{
    Exchange, FileAction, FileChange, Finish, Item, Origin, Part, Reply, Tokens, ToolCall,
    ToolResult, ToolStatus, Usage,
};
use crate::net::{Client, HeaderMap, Limits, Options, ProxyChoice, Roots};
use crate::port::{Ask, ToolSpec};

/// What happens to a history.
#[derive(Clone, Debug)]
enum Turn {
    /// So many calls, all answered; ids are used again in every turn.
    Calls(u8, &'static str, ToolStatus),
    Text(&'static str),
    User(Origin, &'static str),
    Compaction {
        written: bool,
        keep: u32,
        fit: u64,
    },
}

fn turn() -> impl Strategy<Value = Turn> {
    let words = prop::sample::select(vec!["", "so", "a \"quoted\"\nline", "\u{1}\u{2028}ä"]);
    let said = prop::sample::select(vec!["so", " \n", "\u{7f}é"]);
    let status =
        prop::sample::select(vec![ToolStatus::Ok, ToolStatus::Failed, ToolStatus::Interrupted]);
    let origins = [Origin::Task, Origin::Steering, Origin::System, Origin::Check, Origin::FollowUp];
    prop_oneof![
        5 => (1..4_u8, words, status).prop_map(|(calls, text, status)| Turn::Calls(calls, text, status)),
        1 => said.prop_map(Turn::Text),
        2 => prop::sample::select(origins.to_vec()).prop_map(|origin| Turn::User(origin, "go on")),
        1 => (any::<bool>(), 0..5_u32, 0..2_000_u64)
            .prop_map(|(written, keep, fit)| Turn::Compaction { written, keep, fit }),
    ]
}

fn reply(parts: Vec<Part>, finish: Finish) -> Reply {
    Reply { parts: parts.into(), finish, usage: Usage::default(), model: None }
}

fn change(turn: &Turn, number: usize) -> Change {
    let item = match turn {
        Turn::Calls(calls, text, status) => {
            let call = |n: u8| {
                let id = format!("toolu:{n}/{}", number % 2);
                ToolCall::new(id.as_str().into(), "read_file", r#"{"path":"a"}"#)
            };
            let calls: Vec<ToolCall> = (0..*calls).map(call).collect();
            let results: Vec<ToolResult> = calls
                .iter()
                .map(|call| {
                    let mut result = ToolResult::new(call.id.clone(), *status, *text);
                    result.changes.push(FileChange {
                        path: format!("file{number}.x").into(),
                        action: FileAction::Modified,
                        added: 1,
                        removed: 0,
                    });
                    result
                })
                .collect();
            let said = (!text.is_empty()).then(|| Part::Text((*text).into()));
            let parts = said.into_iter().chain(calls.into_iter().map(Part::Call)).collect();
            Item::Exchange(Exchange::new(reply(parts, Finish::ToolCalls), results).unwrap())
        }
        Turn::Text(text) => Item::Assistant(reply(vec![Part::Text((*text).into())], Finish::Stop)),
        Turn::User(origin, text) => Item::user(*origin, *text),
        Turn::Compaction { written, keep, fit } => {
            let summary = match written {
                true => Summary::Written("Goal: go on.".into()),
                false => Summary::Mechanical,
            };
            return Change::Compact { summary, keep: *keep, fit: Tokens(*fit) };
        }
    };
    Change::Append { item }
}

fn models() -> Vec<(&'static str, WireModel)> {
    let chat = |provider: &'static str| -> Arc<dyn Wire> {
        Arc::new(Chat {
            name: "chat/m".into(),
            model: "m".to_owned(),
            quirks: Quirks::of(provider, ""),
            streams: true,
            cache_key: None,
        })
    };
    let anthropic = Anthropic {
        name: "anthropic/m".into(),
        model: "m".to_owned(),
        streams: true,
        caches: true,
        max_output: Tokens(1_000),
    };
    let responses = Responses {
        name: "responses/m".into(),
        model: "m".to_owned(),
        host: Host::OpenAi,
        streams: true,
        cache_key: None,
    };
    let gemini = Gemini { name: "gemini/m".into(), model: "m".to_owned(), streams: true };
    let wires: Vec<(&str, Arc<dyn Wire>)> = vec![
        ("chat", chat("openai-chat")),
        ("chat", chat("vllm")),
        ("chat", chat("mistral")),
        ("anthropic", Arc::new(anthropic)),
        ("responses", Arc::new(responses)),
        ("gemini", Arc::new(gemini)),
    ];
    let model = |wire| {
        let options =
            Options { limits: Limits::default(), proxy: ProxyChoice::Direct, roots: Roots::System };
        let target = Target {
            url: "http://localhost".to_owned(),
            headers: HeaderMap::new(),
            masks: Masks::default(),
            key_in: None,
            may_truncate: false,
        };
        WireModel::new(wire, Arc::new(Client::new(&options).unwrap()), target)
    };
    wires.into_iter().map(|(name, wire)| (name, model(wire))).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What is wrong with a request, by the name of its wire.
fn wrong(wire: &str, body: &Value) -> Option<String> {
    match wire {
        "chat" => chat(list(body, "messages")),
        "anthropic" => anthropic(list(body, "messages")),
        "responses" => responses(list(body, "input")),
        _ => gemini(list(body, "contents")),
    }
}

/// After a message with calls come exactly their answers; no answer stands elsewhere.
fn chat(messages: &[Value]) -> Option<String> {
    let mut open: HashSet<&str> = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        match role {
            "tool" if !open.remove(text(message, "tool_call_id")) => {
                return Some(format!("{index}: an answer to nothing"));
            }
            "tool" => {}
            _ if !open.is_empty() => return Some(format!("{index}: {open:?} not answered")),
            "system" | "developer" if index == 0 => {}
            "user" if !text(message, "content").trim().is_empty() => {}
            "assistant" => {
                let calls = list(message, "tool_calls");
                if calls.is_empty() && text(message, "content").is_empty() {
                    return Some(format!("{index}: empty"));
                }
                open = calls.iter().map(|call| text(call, "id")).collect();
                if open.len() != calls.len() || open.contains("") {
                    return Some(format!("{index}: ids are not unique"));
                }
            }
            _ => return Some(format!("{index}: {message}")),
        }
    }
    (!open.is_empty()).then(|| "calls at the end".to_owned())
}

/// Roles alternate from the user on; the answers to all calls come first in the next message; nothing is empty.
fn anthropic(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let expected = if index % 2 == 0 { "user" } else { "assistant" };
        if text(message, "role") != expected {
            return Some(format!("{index}: no {expected}"));
        }
        let blocks = list(message, "content");
        let is_answer = |block: &&Value| block["type"] == "tool_result";
        let answers: Vec<&str> =
            blocks.iter().take_while(is_answer).map(|block| text(block, "tool_use_id")).collect();
        if answers != open || blocks.iter().filter(is_answer).count() != answers.len() {
            return Some(format!("{index}: {answers:?} answer {open:?}"));
        }
        let empty =
            |block: &Value| block["type"] == "text" && text(block, "text").trim().is_empty();
        if blocks.is_empty() || blocks.iter().any(empty) {
            return Some(format!("{index}: empty"));
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        open = calls.map(|block| text(block, "id")).collect();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if open.iter().any(|id| id.is_empty() || !id.chars().all(is_plain)) {
            return Some(format!("{index}: {open:?}"));
        }
    }
    (!open.is_empty()).then(|| "calls at the end".to_owned())
}

/// Each call has one answer after it, and each answer one call before it.
fn responses(items: &[Value]) -> Option<String> {
    let mut open: HashSet<&str> = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let id = text(item, "call_id");
        let fits = match text(item, "type") {
            "function_call" => !id.is_empty() && open.insert(id),
            "function_call_output" => open.remove(id),
            _ => open.is_empty(),
        };
        if !fits {
            return Some(format!("{index}: {item}"));
        }
    }
    (!open.is_empty()).then(|| "calls at the end".to_owned())
}

/// A turn with calls is followed by a turn with as many answers and nothing before them; the first turn is the user's.
fn gemini(contents: &[Value]) -> Option<String> {
    let mut open = 0;
    for (index, content) in contents.iter().enumerate() {
        let is_turn = match text(content, "role") {
            "user" => true,
            "model" => index > 0 && open == 0,
            _ => false,
        };
        let parts = list(content, "parts");
        let has = |key: &str| parts.iter().filter(|part| part.get(key).is_some()).count();
        let first = parts.iter().take_while(|part| part.get("functionResponse").is_some()).count();
        let is_empty =
            parts.is_empty() || parts.iter().any(|part| part.get("text").is_some_and(|t| t == ""));
        if !is_turn || first != open || has("functionResponse") != open {
            return Some(format!("{index}: {content}"));
        }
        if is_empty {
            return Some(format!("{index}: empty"));
        }
        open = has("functionCall");
    }
    (open > 0).then(|| "calls at the end".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_valid_on_every_wire(turns in prop::collection::vec(turn(), 1..40)) {
        let tool = ToolSpec { name: "read_file".into(), description: "d".into(), schema: serde_json::json!({"type": "object"}) };
        let tools: Arc<[ToolSpec]> = [tool].into();
        let mut models = models();
        let mut conversation = Conversation::new(0);
        conversation.apply(Change::Append { item: Item::user(Origin::Task, "the task") });
        let mut files = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            conversation.apply(change(turn, number));
            if let Turn::Calls(..) = turn {
                files.push(format!("file{number}.x"));
            }
            let older = conversation.older(1);
            for (entries, instruction) in [(conversation.entries(), None), (older, Some("sum up"))] {
                // A request never ends with what the model said; the machine always has something to add.
                let instruction = match entries.last().map(|entry| &entry.item) {
                    Some(Item::Assistant(_)) => Some("sum up"),
                    _ => instruction,
                };
                if entries.is_empty() {
                    continue;
                }
                let ask = Ask {
                    purpose: Purpose::Agent,
                    attempt: 1,
                    system: &"be good".into(),
                    tools: &tools,
                    entries,
                    instruction,
                    max_output: None,
                    schema: None,
                };
                for (name, model) in &mut models {
                    let body: Value = serde_json::from_slice(&model.request(&ask).body.to_vec()).unwrap();
                    prop_assert_eq!(wrong(name, &body), None, "{}: {}", name, body);
                }
            }
            // No file that was changed is ever forgotten, and the task stays in its place.
            let told = serde_json::to_string(conversation.entries()).unwrap();
            prop_assert!(files.iter().all(|file| told.contains(file.as_str())));
            prop_assert!(matches!(&conversation.entries()[0].item, Item::User(m) if m.origin == Origin::Task));
        }
    }
}

#[test]
fn the_rules_see_what_is_wrong() {
    let torn = serde_json::json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "user", "content": "b"},
    ]);
    assert!(chat(torn.as_array().unwrap()).is_some());
    let torn = serde_json::json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ]);
    assert!(anthropic(torn.as_array().unwrap()).is_some());
    let torn = serde_json::json!([{"type": "function_call", "call_id": "1"}, {"role": "user"}]);
    assert!(responses(torn.as_array().unwrap()).is_some());
    let torn = serde_json::json!([
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"functionCall": {}}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]);
    assert!(gemini(torn.as_array().unwrap()).is_some());
}
