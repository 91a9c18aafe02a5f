//! Trajectories in the Agent Trajectory Interchange Format; those of sub-agents are in the same document.

use serde_json::Value;

use super::document::Document;
use super::{Invariant, ParentEntry, TraceEntry, TraceItem, elements, text_of};

/// Reads the conversations of a recording; `None` if the recording has no steps.
pub(super) fn read(document: &Document) -> Option<Vec<Vec<TraceEntry>>> {
    let value = document.value()?;
    if !value["steps"].is_array() || !value["agent"].is_object() {
        return None;
    }
    let mut conversations = Vec::new();
    add_trajectory(value, "$", &mut conversations);
    Some(conversations)
}

fn add_trajectory(value: &Value, path: &str, conversations: &mut Vec<Vec<TraceEntry>>) {
    let entry = |(index, step): (usize, &Value)| TraceEntry {
        line: 1,
        parent: ParentEntry::Previous,
        items: step_items(index, step, &format!("{path}.steps[{index}]")),
    };
    conversations.push(elements(value, "steps").map(entry).collect());
    for (index, subagent) in elements(value, "subagent_trajectories") {
        add_trajectory(subagent, &format!("{path}.subagent_trajectories[{index}]"), conversations);
    }
}

fn step_items(index: usize, step: &Value, path: &str) -> Vec<TraceItem> {
    let mut items = Vec::new();
    let number = step["step_id"].as_u64();
    if number != u64::try_from(index + 1).ok() {
        let found = number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        items.push(TraceItem::Violated {
            invariant: Invariant::StepOrder,
            path: format!("{path}.step_id"),
            message: format!("the number of step {} is {found}", index + 1),
        });
    }
    // A step copied from another trajectory is checked there.
    if step["is_copied_context"] == true {
        return items;
    }
    match text_of(step, "source").unwrap_or_default() {
        "agent" => items.push(TraceItem::Reply { id: None, path: path.to_owned() }),
        "user" => items.push(TraceItem::User),
        _ => {}
    }
    for (call, value) in elements(step, "tool_calls") {
        if let Some(id) = text_of(value, "tool_call_id") {
            items.push(TraceItem::Call {
                id: id.to_owned(),
                path: format!("{path}.tool_calls[{call}].tool_call_id"),
                needs_result: has_named_results(&step["observation"]),
            });
        }
    }
    for (result, value) in elements(&step["observation"], "results") {
        if let Some(call) = text_of(value, "source_call_id") {
            items.push(TraceItem::Result {
                call: Some(call.to_owned()),
                path: format!("{path}.observation.results[{result}].source_call_id"),
            });
        }
    }
    items
}

/// Returns whether each result of an observation names its call. A result without a name may answer all calls.
fn has_named_results(observation: &Value) -> bool {
    elements(observation, "results").all(|(_, result)| text_of(result, "source_call_id").is_some())
}
