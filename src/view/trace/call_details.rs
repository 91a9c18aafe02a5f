//! The details below a bar of the waterfall: a message, a request with its reply, or a tool call with its arguments,
//! decision, changes and output.

use maud::{Markup, html};
use serde_json::Value;

use super::messages::TraceMessage;
use super::timeline::{CallEnd, CallSpan, SpanUsage};
use super::turn::TurnCall;
use crate::types::{Decision, FileChange, TimeSpan, ToolStatus, pluralize};
use crate::view::page::{file_change, patch};
use crate::view::sanitize;

/// Length limit of an argument that is shown next to its name, in bytes.
const MAX_SHORT_ARGUMENT: usize = 120;

/// Returns a text of several lines.
pub(super) fn text(text: &str) -> Markup {
    // An HTML parser drops a leading line end.
    html! { pre { "\n" (sanitize::multiline(text)) } }
}

/// Returns the details of a request, with its reply if there is one.
pub(super) fn request(call: &CallSpan, reply: Option<&TraceMessage>) -> Markup {
    let mut facts = vec![pluralize(call.messages, "message", "messages")];
    if let Some(usage) = call.usage() {
        let SpanUsage { input_tokens, output_tokens, cached_input_tokens, cost } = usage;
        facts.push(format!("{input_tokens} input tokens, {cached_input_tokens} of them cached"));
        facts.push(format!("{output_tokens} output tokens"));
        facts.extend(cost.map(|cost| cost.to_string()));
    }
    if let CallEnd::Replied { finish, .. } = &call.end {
        facts.push(format!("finish {}", sanitize::line(finish.name())));
    }
    facts.extend(call.encode.map(|time| format!("encoded in {time}")));
    facts.extend(call.first_byte.map(|time| format!("first byte after {time}")));
    html! {
        p { (facts.join(" · ")) }
        @if let CallEnd::Failed { reason } = &call.end { (text(reason)) }
        @if let Some(reply) = reply { (text(&reply.text)) }
    }
}

/// Returns the details of a tool call.
pub(super) fn tool(call: &TurnCall<'_>) -> Markup {
    let mut facts = vec![status_name(call.status())];
    if let Some(span) = call.span {
        let decision = span.decision.as_ref().map(|decision| match decision {
            Decision::Allow { reason } => ("allowed", reason),
            Decision::Ask { reason } => ("asked", reason),
            Decision::Deny { reason } => ("denied", reason),
        });
        facts.extend(decision.map(|(word, reason)| match &**reason {
            "" => word.to_owned(),
            reason => format!("{word} by {}", sanitize::line(reason)),
        }));
        let waited = span.started_at.map(|at| at.since(span.authorized_at));
        let waited = waited.filter(|time| *time > TimeSpan::ZERO);
        facts.extend(waited.map(|time| format!("authorized in {time}")));
    }
    let others = call.span.into_iter().flat_map(|span| &span.changes);
    let others = others.filter(|it| !call.changes.iter().any(|own| own.path == it.path));
    html! {
        p { (facts.join(" · ")) }
        (arguments(call.arguments))
        @for FileChange { path, action, added, removed } in others {
            p { (action.as_str()) " " code { (sanitize::line(&path.to_string())) } " +" (added) " −" (removed) }
        }
        @for change in &call.changes { h4 { (file_change(change)) } (patch(change)) }
        @if let Some(result) = call.result { h4 { "Output" } (text(&result.text)) }
    }
}

/// Returns the arguments by name. Arguments that are not an object are shown unchanged.
fn arguments(arguments: &str) -> Markup {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(arguments) else {
        return html! { h4 { "Arguments" } (text(arguments)) };
    };
    html! {
        @for (name, value) in &fields {
            @let shown = match value {
                Value::String(text) => text.clone(),
                Value::Array(_) | Value::Object(_) => {
                    serde_json::to_string_pretty(value).unwrap_or_default()
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            };
            @if shown.len() <= MAX_SHORT_ARGUMENT && !shown.contains('\n') {
                p { code { (sanitize::line(name)) } " " code.value { (sanitize::line(&shown)) } }
            } @else {
                h4 { code { (sanitize::line(name)) } }
                (text(&shown))
            }
        }
    }
}

/// Returns the name of a tool call's status.
pub(super) fn status_name(status: Option<ToolStatus>) -> String {
    match status {
        None => "outcome unknown".to_owned(),
        Some(ToolStatus::Unknown) => "no such tool".to_owned(),
        Some(ToolStatus::Truncated) => "cut off".to_owned(),
        Some(status) => status.as_str().replace('_', " "),
    }
}
