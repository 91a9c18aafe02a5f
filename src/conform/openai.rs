//! Messages of OpenAI's Chat Completions: one conversation, or requests in the order in which they were sent.

use serde_json::{Map, Value};

use super::document::{Document, RecordingLine, mark_last};
use super::{Invariant, ParentEntry, TraceEntry, TraceItem, damaged_entry, elements, text_of};

/// Reads a recording: its conversations; `None` if it has no message.
pub(super) fn read(document: &Document) -> Option<Vec<Vec<TraceEntry>>> {
    if let Some(value) = document.value() {
        let (path, messages) = find_messages(value)?;
        return Some(vec![conversation(1, messages, path)]);
    }
    match document {
        Document::Whole(_) => None,
        Document::Lines(lines) if lines.iter().any(is_message_line) => {
            let entry = |(line, is_last): (&RecordingLine, bool)| match &line.value {
                Some(message) => entry(line.number, message, "$"),
                None => damaged_entry(line, is_last),
            };
            Some(vec![mark_last(lines).into_iter().map(entry).collect()])
        }
        Document::Lines(lines) => read_requests(lines),
    }
}

/// Reads a request, or a conversation, on each line.
fn read_requests(lines: &[RecordingLine]) -> Option<Vec<Vec<TraceEntry>>> {
    let mut conversations = Vec::new();
    let (mut before, mut is_recording) = (None, false);
    for (line, is_last) in mark_last(lines) {
        let Some(value) = &line.value else {
            conversations.push(vec![damaged_entry(line, is_last)]);
            continue;
        };
        let Some((path, messages)) = find_messages(value) else { continue };
        is_recording = true;
        let mut entries = Vec::new();
        if let Some(index) = before.and_then(|before| changed_message(before, messages)) {
            let violated = TraceItem::Violated {
                invariant: Invariant::ChangedPrefix,
                path: format!("{path}[{index}]"),
                message: format!("message {index} is another one in the request before"),
            };
            let parent = ParentEntry::Root;
            entries.push(TraceEntry { line: line.number, parent, items: vec![violated] });
        }
        entries.extend(conversation(line.number, messages, path));
        conversations.push(entries);
        before = Some(messages);
    }
    is_recording.then_some(conversations)
}

fn is_message_line(line: &RecordingLine) -> bool {
    line.value.as_ref().is_some_and(has_role)
}

/// Returns the messages of a recording, and their path.
fn find_messages(value: &Value) -> Option<(&'static str, &Vec<Value>)> {
    let is_messages = |messages: &&Vec<Value>| messages.iter().any(has_role);
    let places = [
        ("$", value.as_array()),
        ("$.messages", value["messages"].as_array()),
        ("$.request.messages", value["request"]["messages"].as_array()),
        ("$.body.messages", value["body"]["messages"].as_array()),
        ("$.request.body.messages", value["request"]["body"]["messages"].as_array()),
        ("$.history", value["history"].as_array()),
    ];
    let found = places.into_iter().find_map(|(path, messages)| Some((path, messages?)));
    found.filter(|(_, messages)| is_messages(messages))
}

/// Returns the id of a call. Some programs write numbers.
fn call_id(value: &Value) -> Option<String> {
    match value {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The roles of messages. A list without any of them is something else.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

fn has_role(message: &Value) -> bool {
    text_of(message, "role").is_some_and(|role| ROLES.contains(&role))
}

fn conversation(line: usize, messages: &[Value], path: &str) -> Vec<TraceEntry> {
    let messages = messages.iter().enumerate();
    messages.map(|(index, message)| entry(line, message, &format!("{path}[{index}]"))).collect()
}

fn entry(line: usize, message: &Value, path: &str) -> TraceEntry {
    let items = match text_of(message, "role").unwrap_or_default() {
        "assistant" => {
            let mut items = vec![TraceItem::Reply { id: None, path: path.to_owned() }];
            for (index, call) in elements(message, "tool_calls") {
                if let Some(id) = call_id(&call["id"]) {
                    let path = format!("{path}.tool_calls[{index}].id");
                    items.push(TraceItem::Call { id, path, needs_result: true });
                }
            }
            items
        }
        "tool" => {
            let ids = elements(message, "tool_call_ids");
            let mut items: Vec<_> = ids
                .map(|(index, id)| TraceItem::Result {
                    call: call_id(id),
                    path: format!("{path}.tool_call_ids[{index}]"),
                })
                .collect();
            if items.is_empty() {
                let (call, path) =
                    (call_id(&message["tool_call_id"]), format!("{path}.tool_call_id"));
                items.push(match call {
                    Some(_) => TraceItem::Result { call, path },
                    None => TraceItem::Violated {
                        invariant: Invariant::OrphanResult,
                        path,
                        message: "the result names no call".to_owned(),
                    },
                });
            }
            items
        }
        "user" => vec![TraceItem::User],
        _ => Vec::new(),
    };
    TraceEntry { line, parent: ParentEntry::Previous, items }
}

/// Returns the first message of the request before that this one has changed; `None` if it continues it, or is about
/// something else: another task, or a shorter history.
fn changed_message(before: &[Value], messages: &[Value]) -> Option<usize> {
    let is_request = |messages: &[Value]| {
        messages.last().is_some_and(|last| text_of(last, "role") != Some("assistant"))
    };
    let task = |messages: &[Value]| {
        messages.iter().position(|message| text_of(message, "role") == Some("user"))
    };
    let (first, second) = (task(before)?, task(messages)?);
    let is_same_task = first == second && is_same(&before[first], &messages[second]);
    if !is_request(before) || !is_request(messages) || !is_same_task {
        return None;
    }
    let common = before.iter().zip(messages).take_while(|(old, new)| is_same(old, new)).count();
    (messages.len() > before.len() && common < before.len()).then_some(common)
}

/// Returns whether messages are the same to a model: marks for a cache don't count.
fn is_same(old: &Value, new: &Value) -> bool {
    without_marks(old) == without_marks(new)
}

fn without_marks(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields =
                fields.iter().filter(|(key, value)| *key != "cache_control" && !value.is_null());
            let fields = fields.map(|(key, value)| (key.clone(), without_marks(value)));
            let mut fields: Map<String, Value> = fields.collect();
            if let Some([Value::Object(part)]) =
                fields.get("content").and_then(Value::as_array).map(Vec::as_slice)
                && let (2, Some(text)) = (part.len(), part.get("text"))
            {
                // A text, and a list of that text alone, are the same.
                let text = text.clone();
                fields.insert("content".to_owned(), text);
            }
            Value::Object(fields)
        }
        Value::Array(values) => values.iter().map(without_marks).collect(),
        other => other.clone(),
    }
}
