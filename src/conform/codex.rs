//! Rollouts of Codex.
//!
//! A reply has no id: it begins with the model's first item after an item of another source. Older rollouts have bare
//! items, without `type` and `payload` around them.

use serde_json::Value;

use super::document::RecordingLine;
use super::{ParentEntry, TraceEntry, TraceItem, damaged_entry, text_of};

/// The stated context window, in percent of the actual one: a tenth is kept for rounding and estimates.
const STATED_WINDOW_PERCENT: u64 = 90;

/// Reads a recording; `None` if no line is an item of a conversation.
pub(super) fn read(lines: &[RecordingLine]) -> Option<Vec<TraceEntry>> {
    let (mut entries, mut is_recording) = (Vec::new(), false);
    let mut is_in_reply = false;
    for line in lines {
        let Some(value) = &line.value else {
            entries.push(damaged_entry(line));
            continue;
        };
        let kind = text_of(value, "type").unwrap_or_default();
        let (item, path) = match value.get("payload") {
            Some(payload) => (payload, "$.payload"),
            None => (value, "$"),
        };
        let has_payload = value["payload"].is_object();
        let items = match kind {
            "event_msg" => event_items(item),
            "compacted" if has_payload => vec![TraceItem::Compaction],
            "turn_context" if has_payload => vec![TraceItem::User],
            "response_item" => response_items(item, path, &mut is_in_reply),
            // Lines of other programs share some of these types.
            _ if !has_payload && has_content(item) => response_items(item, path, &mut is_in_reply),
            _ => Vec::new(),
        };
        is_recording |= match kind {
            "event_msg" => false,
            "session_meta" => has_payload,
            _ => {
                !items.is_empty() && (!has_payload || kind != "response_item" || has_content(item))
            }
        };
        let ends_reply = |item: &TraceItem| {
            matches!(item, TraceItem::Compaction | TraceItem::End | TraceItem::User)
        };
        is_in_reply &= !items.iter().any(ends_reply);
        let parent = ParentEntry::Previous;
        entries.push(TraceEntry { line: line.number, parent, items });
    }
    is_recording.then_some(entries)
}

/// Returns whether an item has the fields that every item of its type has.
fn has_content(item: &Value) -> bool {
    let kind = text_of(item, "type").unwrap_or_default();
    match kind {
        "message" => text_of(item, "role").is_some() && item["content"].is_array(),
        "compaction" | "compaction_summary" => item.get("encrypted_content").is_some(),
        "reasoning" => item["summary"].is_array(),
        "web_search_call" | "image_generation_call" => item.get("status").is_some(),
        kind => is_call(kind) || kind.ends_with("_output"),
    }
}

/// Converts an item of a request or a reply.
fn response_items(item: &Value, path: &str, is_in_reply: &mut bool) -> Vec<TraceItem> {
    let kind = text_of(item, "type").unwrap_or_default();
    let call = text_of(item, "call_id").or_else(|| text_of(item, "id"));
    let is_models = match kind {
        "message" => text_of(item, "role") == Some("assistant"),
        "reasoning" | "web_search_call" | "image_generation_call" => true,
        kind => is_call(kind),
    };
    if is_models {
        let mut items = Vec::new();
        if !std::mem::replace(is_in_reply, true) {
            items.push(TraceItem::Reply { id: None, path: path.to_owned() });
        }
        if let (true, Some(id)) = (is_call(kind), call) {
            let path = format!("{path}.call_id");
            items.push(TraceItem::Call { id: id.to_owned(), path, needs_result: true });
        }
        return items;
    }
    match kind {
        "message" => {
            *is_in_reply = false;
            vec![TraceItem::User]
        }
        "compaction" | "compaction_summary" => vec![TraceItem::Compaction],
        "function_call_output"
        | "custom_tool_call_output"
        | "local_shell_call_output"
        | "mcp_tool_call_output"
        | "tool_search_output" => {
            *is_in_reply = false;
            let call = text_of(item, "call_id").map(str::to_owned);
            // A search by the provider has no id.
            match call {
                Some(_) => vec![TraceItem::Result { call, path: format!("{path}.call_id") }],
                None => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn is_call(kind: &str) -> bool {
    matches!(kind, "function_call" | "custom_tool_call" | "local_shell_call")
}

fn event_items(event: &Value) -> Vec<TraceItem> {
    match text_of(event, "type").unwrap_or_default() {
        "task_started" | "turn_started" | "user_message" | "turn_aborted"
        | "thread_rolled_back" => {
            vec![TraceItem::User]
        }
        "context_compacted" => vec![TraceItem::Compaction],
        "task_complete" | "turn_complete" | "shutdown_complete" => vec![TraceItem::End],
        "stream_error" => vec![retry(text_of(event, "message").unwrap_or_default())],
        "token_count" => {
            let info = &event["info"];
            let used = info["last_token_usage"]["input_tokens"].as_u64();
            match (used, info["model_context_window"].as_u64()) {
                (Some(value), Some(window)) if window > 0 => vec![TraceItem::Limit {
                    value,
                    stated: window,
                    allowed: window.saturating_mul(100) / STATED_WINDOW_PERCENT,
                    what: "input tokens",
                    path: "$.payload.info.last_token_usage.input_tokens".to_owned(),
                }],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// Returns the retry that a message such as `Reconnecting... 2/5` reports.
fn retry(message: &str) -> TraceItem {
    let numbers = message.split(|c: char| !c.is_ascii_digit() && c != '/').find_map(|word| {
        let (attempt, most) = word.split_once('/')?;
        Some((attempt.parse().ok()?, most.parse().ok()?))
    });
    let (attempt, most) = numbers.map_or((1, None), |(attempt, most)| (attempt, Some(most)));
    TraceItem::Retry { attempt, most, path: "$.payload.message".to_owned() }
}
