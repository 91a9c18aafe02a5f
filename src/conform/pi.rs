//! Sessions of pi: a tree of entries by `id` and `parentId`; in older versions a list.

use std::collections::HashMap;

use serde_json::Value;

use super::document::RecordingLine;
use super::{ParentEntry, TraceEntry, TraceItem, damaged_entry, elements, text_of};

/// Reads a recording; `None` if no line is a session header or a message.
pub(super) fn read(lines: &[RecordingLine]) -> Option<Vec<TraceEntry>> {
    let (mut entries, mut is_recording) = (Vec::<TraceEntry>::new(), false);
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for line in lines {
        let Some(value) = &line.value else {
            entries.push(damaged_entry(line));
            continue;
        };
        let kind = text_of(value, "type").unwrap_or_default();
        let items = match kind {
            // Messages with `created` belong to goose's `stream-json`.
            "message" if value["message"].get("created").is_none() => {
                message_items(&value["message"])
            }
            "compaction" | "branch_summary" => vec![TraceItem::Compaction],
            "custom_message" => vec![TraceItem::User],
            _ => Vec::new(),
        };
        let is_head =
            kind == "session" && (value.get("id").is_some() || value.get("cwd").is_some());
        is_recording |= is_head || kind == "message" && !items.is_empty();
        let parent = match value.get("parentId") {
            Some(Value::String(parent)) => {
                by_id.get(&**parent).map_or(ParentEntry::Root, |entry| ParentEntry::Entry(*entry))
            }
            Some(_) => ParentEntry::Root,
            None => ParentEntry::Previous,
        };
        if let Some(id) = text_of(value, "id") {
            by_id.insert(id, entries.len());
        }
        entries.push(TraceEntry { line: line.number, parent, items });
    }
    is_recording.then_some(entries)
}

fn message_items(message: &Value) -> Vec<TraceItem> {
    match text_of(message, "role").unwrap_or_default() {
        "assistant" => {
            let path = "$.message".to_owned();
            let stop = text_of(message, "stopReason").unwrap_or_default();
            // The calls of a failed or aborted reply don't run.
            let is_whole = !matches!(stop, "error" | "aborted");
            let mut items = match stop {
                "error" => vec![TraceItem::Retry {
                    attempt: 1,
                    most: None,
                    path: "$.message.stopReason".to_owned(),
                }],
                _ => vec![TraceItem::Reply { id: None, path }],
            };
            for (index, block) in elements(message, "content") {
                if let (Some("toolCall"), Some(id)) = (text_of(block, "type"), text_of(block, "id"))
                {
                    items.push(TraceItem::Call {
                        id: id.to_owned(),
                        path: format!("$.message.content[{index}].id"),
                        needs_result: is_whole,
                    });
                }
            }
            items
        }
        "toolResult" => {
            let call = text_of(message, "toolCallId").map(str::to_owned);
            vec![TraceItem::Result { call, path: "$.message.toolCallId".to_owned() }]
        }
        "compactionSummary" | "branchSummary" => vec![TraceItem::Compaction],
        "" => Vec::new(),
        _ => vec![TraceItem::User],
    }
}
