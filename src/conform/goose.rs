//! Sessions of goose: JSON lines with a head, an export as JSON, or its `stream-json` output.
//!
//! Calls of one reply may be written as several messages, with each result after its call or all results at the end. A
//! stream has a message for each part of a text.

use serde_json::Value;

use super::document::Document;
use super::{ParentEntry, TraceEntry, TraceItem, damaged_entry, elements, text_of};

/// Reads a recording; `None` if it has no message.
pub(super) fn read(document: &Document) -> Option<Vec<TraceEntry>> {
    let (mut entries, mut is_in_reply, mut is_recording) = (Vec::new(), false, false);
    let mut add = |line, message: &Value, path: &str, entries: &mut Vec<TraceEntry>| {
        let items = message_items(message, path, &mut is_in_reply);
        is_recording |= !items.is_empty();
        entries.push(TraceEntry { line, parent: ParentEntry::Previous, items });
    };
    let is_export =
        |value: &&Value| value["conversation"].is_array() || value["messages"].is_array();
    if let Some(value) = document.value().filter(is_export) {
        let key = if value["conversation"].is_array() { "conversation" } else { "messages" };
        for (index, message) in elements(value, key) {
            add(1, message, &format!("$.{key}[{index}]"), &mut entries);
        }
    } else {
        for line in &document.lines {
            match &line.value {
                Some(event) => match streamed_message(event) {
                    Some(message) => add(line.number, message, "$.message", &mut entries),
                    None => add(line.number, event, "$", &mut entries),
                },
                None => entries.push(damaged_entry(line)),
            }
        }
    }
    is_recording.then_some(entries)
}

/// Returns the message of a streamed event. Messages of pi have the same frame, but not this `created` time.
fn streamed_message(event: &Value) -> Option<&Value> {
    let message = event.get("message").filter(|message| message["created"].is_number())?;
    (text_of(event, "type") == Some("message")).then_some(message)
}

fn message_items(message: &Value, path: &str, is_in_reply: &mut bool) -> Vec<TraceItem> {
    let role = text_of(message, "role").unwrap_or_default();
    if !message["content"].is_array() || !matches!(role, "user" | "assistant") {
        return Vec::new();
    }
    let (mut items, mut has_results, mut has_text) = (Vec::new(), false, false);
    let mut is_reply = false;
    for (index, block) in elements(message, "content") {
        let path = format!("{path}.content[{index}].id");
        let id = text_of(block, "id").map(str::to_owned);
        match (text_of(block, "type").unwrap_or_default(), id) {
            ("toolRequest" | "frontendToolRequest", Some(id)) => {
                items.push(TraceItem::Call { id, path, needs_result: true });
                is_reply = true;
            }
            ("toolResponse", call) => {
                items.push(TraceItem::Result { call, path });
                has_results = true;
            }
            ("text" | "thinking" | "redactedThinking" | "reasoning" | "image", _) => {
                has_text = true;
                is_reply |= role == "assistant";
            }
            ("conversationCompacted" | "summarizationRequested", _) => {
                items.push(TraceItem::Compaction);
            }
            _ => {}
        }
    }
    if is_reply {
        if !std::mem::replace(is_in_reply, true) {
            items.insert(0, TraceItem::Reply { id: None, path: path.to_owned() });
        }
    } else if has_results || has_text {
        *is_in_reply = false;
        if !has_results {
            items.push(TraceItem::User);
        }
    }
    items
}
