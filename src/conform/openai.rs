//! Messages of OpenAI's Chat Completions: one conversation, or requests in the order in which they were sent.
//!
//! Programs that convert their recordings write a reply as several messages, one for each call, in order of time. The
//! result of the first call can come before the message with the last one.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::document::{Document, RecordingLine};
use super::{Invariant, ParentEntry, TraceEntry, TraceItem, damaged_entry, elements, text_of};

/// Reads the conversations of a recording; `None` if the recording has no message.
pub(super) fn read<'a>(document: &'a Document) -> Option<Vec<Vec<TraceEntry>>> {
    if let Some(value) = document.value() {
        let (path, messages) = find_messages(value)?;
        return Some(vec![conversation(messages_at(1, messages, path))]);
    }
    let lines = &document.lines;
    if !lines.iter().any(is_message_line) {
        return read_requests(lines);
    }
    let message = |line: &'a RecordingLine| {
        Some(RecordedMessage {
            line: line.number,
            path: "$".to_owned(),
            value: line.value.as_ref()?,
        })
    };
    let mut entries = conversation(lines.iter().filter_map(message).collect());
    entries.extend(lines.iter().filter(|line| line.value.is_none()).map(damaged_entry));
    entries.sort_by_key(|entry| entry.line);
    Some(vec![entries])
}

/// Reads lines of requests or conversations.
fn read_requests(lines: &[RecordingLine]) -> Option<Vec<Vec<TraceEntry>>> {
    let mut conversations = Vec::new();
    let (mut before, mut is_recording) = (None, false);
    for line in lines {
        let Some(value) = &line.value else {
            conversations.push(vec![damaged_entry(line)]);
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
        entries.extend(conversation(messages_at(line.number, messages, path)));
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

/// The roles of messages. A list without any of these is not a list of messages.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

fn has_role(message: &Value) -> bool {
    text_of(message, "role").is_some_and(|role| ROLES.contains(&role))
}

/// A message and its position.
struct RecordedMessage<'a> {
    line: usize,
    path: String,
    value: &'a Value,
}

fn messages_at<'a>(line: usize, messages: &'a [Value], path: &str) -> Vec<RecordedMessage<'a>> {
    let messages = messages.iter().enumerate();
    messages
        .map(|(index, value)| RecordedMessage { line, path: format!("{path}[{index}]"), value })
        .collect()
}

fn conversation(messages: Vec<RecordedMessage<'_>>) -> Vec<TraceEntry> {
    let mut reply = NewestReply::new(&messages);
    let entry = |(index, message): (usize, RecordedMessage<'_>)| {
        let begins_reply = reply.add(index, message.value);
        let items = message_items(message.value, &message.path, begins_reply);
        TraceEntry { line: message.line, parent: ParentEntry::Previous, items }
    };
    messages.into_iter().enumerate().map(entry).collect()
}

/// The newest reply. Further messages may continue it.
struct NewestReply {
    /// The index of each call's newest result.
    answered_at: HashMap<String, usize>,
    /// The calls of the reply that have no result so far.
    open: HashSet<String>,
    /// Whether one of the open calls never gets a result.
    has_unanswered: bool,
    /// Whether the previous message is a part of this reply.
    is_newest: bool,
}

impl NewestReply {
    fn new(messages: &[RecordedMessage<'_>]) -> Self {
        let results = messages.iter().enumerate();
        let answered_at = results
            .flat_map(|(index, message)| {
                answered_calls(message.value).into_iter().map(move |(id, _)| (id, index))
            })
            .collect();
        Self { answered_at, open: HashSet::new(), has_unanswered: false, is_newest: false }
    }

    /// Adds a message, and returns whether a reply begins with it.
    ///
    /// While the reply has open calls that all get a result later, it is continued by a message of the model right
    /// after another one, and by a message that has only calls.
    fn add(&mut self, index: usize, message: &Value) -> bool {
        match text_of(message, "role").unwrap_or_default() {
            "assistant" => {
                let may_continue = self.is_newest || (!has_text(message) && has_calls(message));
                let continues = may_continue && !self.open.is_empty() && !self.has_unanswered;
                if !continues {
                    self.clear();
                }
                for (_, id) in calls(message) {
                    // The result of an open call closes it, so this stays true while the call is open.
                    self.has_unanswered |= self.answered_at.get(&id) <= Some(&index);
                    self.open.insert(id);
                }
                self.is_newest = true;
                return !continues;
            }
            "tool" => {
                for (id, _) in answered_calls(message) {
                    self.open.remove(&id);
                }
            }
            "user" => self.clear(),
            _ => return false,
        }
        self.is_newest = false;
        false
    }

    fn clear(&mut self) {
        self.open.clear();
        self.has_unanswered = false;
    }
}

/// Returns the ids of a message's calls, with their index.
fn calls(message: &Value) -> impl Iterator<Item = (usize, String)> {
    elements(message, "tool_calls").filter_map(|(index, call)| Some((index, call_id(&call["id"])?)))
}

fn has_calls(message: &Value) -> bool {
    calls(message).next().is_some()
}

fn has_text(message: &Value) -> bool {
    let is_text = |text: &str| !text.trim().is_empty();
    text_of(message, "content").is_some_and(is_text)
        || elements(message, "content").any(|(_, part)| text_of(part, "text").is_some_and(is_text))
}

/// Returns the ids of the calls that a result answers, each with its path.
fn answered_calls(message: &Value) -> Vec<(String, String)> {
    if text_of(message, "role") != Some("tool") {
        return Vec::new();
    }
    let of_several = elements(message, "tool_call_ids")
        .filter_map(|(index, id)| Some((call_id(id)?, format!(".tool_call_ids[{index}]"))));
    let of_one = call_id(&message["tool_call_id"]).map(|id| (id, ".tool_call_id".to_owned()));
    let several: Vec<_> = of_several.collect();
    if several.is_empty() { of_one.into_iter().collect() } else { several }
}

fn message_items(message: &Value, path: &str, begins_reply: bool) -> Vec<TraceItem> {
    match text_of(message, "role").unwrap_or_default() {
        "assistant" => {
            let mut items = Vec::new();
            if begins_reply {
                items.push(TraceItem::Reply { id: None, path: path.to_owned() });
            }
            items.extend(calls(message).map(|(index, id)| TraceItem::Call {
                id,
                path: format!("{path}.tool_calls[{index}].id"),
                needs_result: true,
            }));
            items
        }
        "tool" => {
            let mut items: Vec<_> = answered_calls(message)
                .into_iter()
                .map(|(id, place)| TraceItem::Result {
                    call: Some(id),
                    path: format!("{path}{place}"),
                })
                .collect();
            if items.is_empty() {
                items.push(TraceItem::Violated {
                    invariant: Invariant::OrphanResult,
                    path: format!("{path}.tool_call_id"),
                    message: "the result names no call".to_owned(),
                });
            }
            items
        }
        "user" => vec![TraceItem::User],
        _ => Vec::new(),
    }
}

/// Returns the index of the first message of the previous request that this request has changed; `None` if this request
/// continues it, or is a different one: another task, or a shorter history.
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

/// Returns whether two messages are the same to a model. Cache marks are ignored.
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
                // A text equals a list with that text as its only part.
                let text = text.clone();
                fields.insert("content".to_owned(), text);
            }
            Value::Object(fields)
        }
        Value::Array(values) => values.iter().map(without_marks).collect(),
        other => other.clone(),
    }
}
