//! Sessions of Claude Code, and its `stream-json` output.
//!
//! A reply is written as several lines with the same `message.id`, one for each block. Lines form a tree by
//! `parentUuid`: parallel calls and their results are siblings, and a rewound conversation is a branch. A line can be
//! written before its parent, such as the result of a call that ended fast. Lines that are written again after a resume
//! keep their `uuid`.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::document::RecordingLine;
use super::{ParentEntry, TraceEntry, TraceItem, damaged_entry, elements, text_of};

/// The model name of replies written by the program itself: errors, and notes about an interrupt.
const SYNTHETIC: &str = "<synthetic>";

/// Reads a recording; `None` if no line is a message.
pub(super) fn read(lines: &[RecordingLine]) -> Option<Vec<TraceEntry>> {
    let mut entries = Vec::new();
    // The index of each entry by uuid, and of the newest entry of each conversation.
    let mut by_uuid: HashMap<&str, usize> = HashMap::new();
    let mut newest: HashMap<&str, usize> = HashMap::new();
    let mut is_recording = false;
    for line in parents_first(lines) {
        let Some(value) = &line.value else {
            entries.push(damaged_entry(line));
            continue;
        };
        let uuid = text_of(value, "uuid");
        if uuid.is_some_and(|uuid| by_uuid.contains_key(uuid)) {
            continue;
        }
        let conversation = text_of(value, "parent_tool_use_id").unwrap_or_default();
        let mut items = items(value);
        let parent = match value.get("parentUuid") {
            Some(Value::String(parent)) => {
                let known = by_uuid.get(&**parent).copied();
                if known.is_none() {
                    // The recording begins in the middle of a conversation.
                    items = items.into_iter().map(may_be_earlier).collect();
                }
                known
            }
            Some(_) => None,
            None => newest.get(conversation).copied(),
        };
        let parent = parent.map_or(ParentEntry::Root, ParentEntry::Entry);
        is_recording |= value["message"].get("content").is_some() && !items.is_empty();
        if let Some(uuid) = uuid {
            by_uuid.insert(uuid, entries.len());
        }
        // Lines outside a conversation have no uuid and no items.
        if uuid.is_some() || !items.is_empty() {
            newest.insert(conversation, entries.len());
            entries.push(TraceEntry { line: line.number, parent, items });
        }
    }
    is_recording.then_some(entries)
}

/// Orders the lines so that each one comes after its parent.
fn parents_first<'a>(lines: &'a [RecordingLine]) -> Vec<&'a RecordingLine> {
    let field = |line: &'a RecordingLine, key| text_of(line.value.as_ref()?, key);
    let mut unwritten: HashSet<&str> =
        lines.iter().filter_map(|line| field(line, "uuid")).collect();
    let mut waiting: HashMap<&str, Vec<&RecordingLine>> = HashMap::new();
    let mut ordered = Vec::with_capacity(lines.len());
    for line in lines {
        if let Some(parent) = field(line, "parentUuid").filter(|id| unwritten.contains(id)) {
            waiting.entry(parent).or_default().push(line);
            continue;
        }
        let mut next = vec![line];
        while let Some(line) = next.pop() {
            ordered.push(line);
            if let Some(uuid) = field(line, "uuid") {
                unwritten.remove(uuid);
                next.extend(waiting.remove(uuid).into_iter().flatten().rev());
            }
        }
    }
    // The rest are lines whose parents form a cycle.
    let mut rest: Vec<_> = waiting.into_values().flatten().collect();
    rest.sort_by_key(|line| line.number);
    ordered.extend(rest);
    ordered
}

fn may_be_earlier(item: TraceItem) -> TraceItem {
    match item {
        TraceItem::Result { call: Some(call), path } => TraceItem::EarlierResult { call, path },
        item => item,
    }
}

fn items(value: &Value) -> Vec<TraceItem> {
    match text_of(value, "type").unwrap_or_default() {
        "assistant" => reply_items(value),
        "user" => user_items(value),
        "system" => match text_of(value, "subtype").unwrap_or_default() {
            "compact_boundary" => vec![TraceItem::Compaction],
            "init" => vec![TraceItem::User],
            "api_error" => {
                let number = |key: &str| value.get(key).and_then(Value::as_u64);
                let attempt = number("retryAttempt").unwrap_or(1);
                let path = "$.retryAttempt".to_owned();
                vec![TraceItem::Retry { attempt, most: number("maxRetries"), path }]
            }
            _ => Vec::new(),
        },
        "result" => vec![TraceItem::End],
        _ => Vec::new(),
    }
}

fn reply_items(value: &Value) -> Vec<TraceItem> {
    let message = &value["message"];
    let is_error = value.get("isApiErrorMessage").and_then(Value::as_bool).unwrap_or_default();
    if is_error || message["model"] == SYNTHETIC || !message.is_object() {
        return Vec::new();
    }
    let id = text_of(message, "id").map(str::to_owned);
    let mut items = vec![TraceItem::Reply { id, path: "$.message".to_owned() }];
    for (index, block) in elements(message, "content") {
        if let ("tool_use", Some(id)) =
            (text_of(block, "type").unwrap_or_default(), text_of(block, "id"))
        {
            let path = format!("$.message.content[{index}].id");
            items.push(TraceItem::Call { id: id.to_owned(), path, needs_result: true });
        }
    }
    items
}

fn user_items(value: &Value) -> Vec<TraceItem> {
    let message = &value["message"];
    let is_summary = value.get("isCompactSummary").and_then(Value::as_bool).unwrap_or_default();
    if is_summary {
        return vec![TraceItem::Compaction];
    }
    let mut items = Vec::new();
    for (index, block) in elements(message, "content") {
        if let ("tool_result", Some(call)) =
            (text_of(block, "type").unwrap_or_default(), text_of(block, "tool_use_id"))
        {
            let path = format!("$.message.content[{index}].tool_use_id");
            items.push(TraceItem::Result { call: Some(call.to_owned()), path });
        }
    }
    if items.is_empty() && message.is_object() {
        items.push(TraceItem::User);
    }
    items
}
