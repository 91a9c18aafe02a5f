//! The waterfall: the steps of a session with their requests, tool calls and sub-agents, on one time scale.

use maud::{Markup, html};
use serde_json::Value;

use super::call_details;
use super::messages::{Speaker, TraceMessage};
use super::phase::TracePhase;
use super::time_account::subtract;
use super::timeline::{CallEnd, CallSpan};
use super::turn::{Turn, TurnCall};
use super::{SubagentTrace, Trace, turn};
use crate::machine::CallPurpose;
use crate::types::{Language, RunTime, TimeSpan, pluralize};
use crate::view::human::call_summary::summarize_call;
use crate::view::page::{file_change, patch};
use crate::view::sanitize;

/// Length limit of a description in a row, in characters. The whole text is folded below the row.
const MAX_DESCRIPTION: usize = 140;

/// The number of steps above which all steps are folded at first.
const MAX_OPEN_STEPS: usize = 24;

/// The number of steps in a group that is laid out together.
const STEPS_PER_GROUP: usize = 100;

/// The number of tool calls that are named in the row of a step.
const MAX_NAMED_CALLS: usize = 4;

/// The position of a session's time on the scale of the page.
#[derive(Clone, Copy)]
struct Scale {
    /// The start of the session.
    start: RunTime,
    /// The whole time shown on the page.
    whole: TimeSpan,
}

impl Scale {
    /// Returns the position of a period as style properties, in percent of the whole time.
    fn place(self, names: [&str; 2], from: RunTime, time: TimeSpan) -> String {
        let percent = |time: u64| {
            let part =
                u128::from(time.min(self.whole.0)) * 100_000 / u128::from(self.whole.0.max(1));
            format!("{}.{:03}", part / 1000, part % 1000)
        };
        let from = self.start.after(from.since(RunTime::START));
        format!("{}:{};{}:{}", names[0], percent(from.0), names[1], percent(time.0))
    }

    fn bar(self, class: &str, from: RunTime, time: TimeSpan) -> Markup {
        html! { i class=(class) style=(self.place(["--a", "--w"], from, time)) {} }
    }
}

/// Returns the waterfall of a session.
pub(super) fn render(trace: &Trace, turns: &[Turn<'_>]) -> Markup {
    let scale = Scale { start: RunTime::START, whole: trace.duration };
    html! {
        div.tools {
            input #search type="search" placeholder="Search the steps" aria-label="Search the steps" hidden;
            output #found {}
            label title="Draw each open step over the whole width" { input #zoom type="checkbox"; " scale by step" }
            p #keys hidden {
                kbd { "/" } " search " kbd { "↵" } " next " kbd { "↑" } kbd { "↓" } " move " kbd { "→" } " open "
                kbd { "←" } " close " kbd { "e" } " all steps"
            }
        }
        @if turns.is_empty() {
            p { "Nothing has happened yet." }
        } @else {
            div.waterfall {
                div.row.scale aria-hidden="true" {
                    span.track { small { "0" } @for quarter in 1..=4 { small { (TimeSpan(trace.duration.0 / 4 * quarter)) } } }
                }
                (steps(turns, scale))
            }
            p.legend {
                @for phase in [TracePhase::FirstByte, TracePhase::Stream, TracePhase::Hooks, TracePhase::Tools] {
                    span { b class=(css_class(phase)) {} (phase.name()) } " "
                }
                span { b.p-checks {} "sub-agent" }
            }
        }
    }
}

/// Returns the steps, in groups that a browser lays out when they become visible.
fn steps(turns: &[Turn<'_>], scale: Scale) -> Markup {
    let is_open = turns.len() <= MAX_OPEN_STEPS;
    html! {
        @for turns in turns.chunks(STEPS_PER_GROUP) {
            div.many style={ "--n:" (turns.len()) } { @for turn in turns { (step(turn, scale, is_open)) } }
        }
    }
}

fn step(turn: &Turn<'_>, scale: Scale, is_open: bool) -> Markup {
    let (from, to) = turn.period();
    let time = to.since(from);
    let id =
        turn.step().filter(|_| scale.start == RunTime::START).map(|step| format!("step-{step}"));
    let cost = turn.cost().map(|cost| cost.to_string());
    let last = turn.requests.len().saturating_sub(1);
    html! {
        details.step.bad[turn.is_failed()] id=[id] open[is_open] style=(scale.place(["--s", "--d"], from, time)) {
            summary.row {
                b { (step_name(turn)) } span { (step_description(turn)) } em { (cost.unwrap_or_default()) } em { (time) }
                span.track {
                    @for request in &turn.requests { (scale.bar("p-first-byte", request.started_at, request.duration)) }
                    @for span in turn.calls.iter().filter_map(|call| call.span) {
                        (scale.bar("p-tools", span.authorized_at, span.ended_at.since(span.authorized_at)))
                    }
                }
            }
            @for message in &turn.messages { (message_row(message)) }
            @for (index, request) in turn.requests.iter().enumerate() {
                (request_row(request, turn.reply.filter(|_| index == last), scale))
            }
            @for call in &turn.calls {
                (tool_row(call, scale))
                @for subagent in &call.subagents { (subagent_group(subagent, scale)) }
            }
            @for subagent in &turn.subagents { (subagent_group(subagent, scale)) }
            @for change in &turn.changes {
                details.at { summary.row { b { "changed" } span { (file_change(change)) } span.track {} } (patch(change)) }
            }
        }
    }
}

fn step_name(turn: &Turn<'_>) -> String {
    match (turn.purpose(), turn.step()) {
        (None, _) => "not sent".to_owned(),
        (_, Some(step)) => format!("Step {step}"),
        (Some(CallPurpose::Compaction), None) => "Compaction".to_owned(),
        (Some(CallPurpose::Closing), None) => "Final summary".to_owned(),
        (Some(CallPurpose::Agent), None) if turn.reply.is_some() => "Answer".to_owned(),
        (Some(CallPurpose::Agent), None) => "Request".to_owned(),
    }
}

/// Returns the description of a step: its tool calls or, without calls, its text.
fn step_description(turn: &Turn<'_>) -> String {
    let named = turn.calls.iter().take(MAX_NAMED_CALLS).map(call_name);
    let mut names: Vec<String> = named.collect();
    if let Some(more @ 1..) = turn.calls.len().checked_sub(MAX_NAMED_CALLS) {
        names.push(format!("{more} more"));
    }
    if !names.is_empty() {
        return sanitize::truncate(&names.join(" · "), MAX_DESCRIPTION);
    }
    let end = turn.requests.last().filter(|call| !matches!(call.end, CallEnd::Replied { .. }));
    match (end, turn.reply.or(turn.messages.last().copied())) {
        (Some(request), _) => request_end(request),
        (None, Some(message)) => sanitize::headline(&message.text, MAX_DESCRIPTION),
        (None, None) => String::new(),
    }
}

fn call_name(call: &TurnCall<'_>) -> String {
    format!("{} {}", sanitize::line(call.name), call_description(call))
}

fn call_description(call: &TurnCall<'_>) -> String {
    let value = serde_json::from_str(call.arguments);
    let value = value.unwrap_or_else(|_| Value::String(call.arguments.to_owned()));
    sanitize::truncate(&summarize_call(call.name, &value, Language::En), MAX_DESCRIPTION)
}

fn message_row(message: &TraceMessage) -> Markup {
    let (class, speaker) = match &message.speaker {
        Speaker::User { origin } => ("user", origin.as_str().replace('_', "-")),
        Speaker::Assistant => ("", "reply".to_owned()),
        Speaker::ToolCall { name } | Speaker::ToolResult { name, .. } => {
            ("", sanitize::line(name).into_owned())
        }
        Speaker::Partial => ("bad", "cancelled reply".to_owned()),
    };
    html! {
        details.at class=(class) {
            summary.row { b { (speaker) } span { (sanitize::headline(&message.text, MAX_DESCRIPTION)) } span.track {} }
            (call_details::text(&message.text))
        }
    }
}

fn request_end(call: &CallSpan) -> String {
    match &call.end {
        CallEnd::Replied { finish, usage } => {
            let finish = sanitize::headline(finish.name(), MAX_DESCRIPTION);
            format!("{} → {} tokens · {finish}", usage.input_tokens, usage.output_tokens)
        }
        CallEnd::Failed { reason } => sanitize::headline(reason, MAX_DESCRIPTION),
        CallEnd::Cancelled => "cancelled".to_owned(),
        CallEnd::Lost => "lost with its process".to_owned(),
        CallEnd::Open => "under way".to_owned(),
    }
}

fn request_row(call: &CallSpan, reply: Option<&TraceMessage>, scale: Scale) -> Markup {
    let purpose = match call.purpose {
        CallPurpose::Agent => "request",
        CallPurpose::Compaction => "summary",
        CallPurpose::Closing => "final summary",
    };
    let is_failed = !matches!(call.end, CallEnd::Replied { .. });
    let cost = call.usage().and_then(|usage| usage.cost).map(|cost| cost.to_string());
    let encode = call.encode.unwrap_or_default();
    let first_byte = call.first_byte.unwrap_or_else(|| subtract(call.duration, encode));
    let stream = subtract(subtract(call.duration, encode), first_byte);
    let encoded = call.started_at.after(encode);
    let parts = [
        (TracePhase::Encoding, call.started_at, encode),
        (TracePhase::FirstByte, encoded, first_byte),
        (TracePhase::Stream, encoded.after(first_byte), stream),
    ];
    html! {
        details.at.bad[is_failed] {
            summary.row {
                b { (purpose) @if call.attempt > 1 { ", attempt " (call.attempt) } @if let Some(model) = &call.model { " · " (sanitize::line(model)) } }
                span {
                    @match reply {
                        Some(reply) => (sanitize::headline(&reply.text, MAX_DESCRIPTION)),
                        None => (request_end(call)),
                    }
                }
                em { (cost.unwrap_or_default()) } em { (call.duration) }
                (track(&parts, scale))
            }
            (call_details::request(call, reply))
        }
    }
}

/// Returns the CSS class of a phase, which sets its color.
pub(super) fn css_class(phase: TracePhase) -> String {
    format!("p-{}", phase.as_str().replace('_', "-"))
}

/// Returns the bars of the phases that took time.
fn track(parts: &[(TracePhase, RunTime, TimeSpan)], scale: Scale) -> Markup {
    html! {
        span.track {
            @for (phase, from, time) in parts.iter().filter(|(_, _, time)| time.0 > 0) {
                (scale.bar(&css_class(*phase), *from, *time))
            }
        }
    }
}

fn tool_row(call: &TurnCall<'_>, scale: Scale) -> Markup {
    html! {
        details.at.bad[call.is_failed()] {
            summary.row {
                b { (sanitize::line(call.name)) }
                span {
                    @if call.is_failed() { strong { (call_details::status_name(call.status())) } " " }
                    (call_description(call))
                }
                @if let Some(span) = call.span {
                    @let started = span.started_at.unwrap_or(span.ended_at);
                    em {} em { (span.ended_at.since(span.authorized_at)) }
                    (track(&[
                        (TracePhase::Hooks, span.authorized_at, started.since(span.authorized_at)),
                        (TracePhase::Tools, started, span.ended_at.since(started)),
                    ], scale))
                }
            }
            (call_details::tool(call))
        }
    }
}

fn subagent_group(subagent: &SubagentTrace, scale: Scale) -> Markup {
    let SubagentTrace { started_at, trace, .. } = subagent;
    let (turns, _) = turn::turns(trace);
    let start = scale.start.after(started_at.since(RunTime::START));
    let end = trace.stop_reason.map_or("not ended", |reason| reason.name());
    let cost = trace.cost.map(|cost| cost.to_string());
    html! {
        details.sub open[turns.len() <= MAX_OPEN_STEPS] {
            summary.row {
                b { "sub-agent " (sanitize::line(&trace.subject.agent)) }
                span { (sanitize::line(&trace.subject.model)) " · " (pluralize(trace.steps, "step", "steps")) " · " (end) }
                em { (cost.unwrap_or_default()) } em { (trace.duration) }
                span.track { (scale.bar("p-checks", *started_at, trace.duration)) }
            }
            @for turn in &turns { (step(turn, Scale { start, ..scale }, false)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_never_leaves_the_scale() {
        let scale = Scale { start: RunTime(10), whole: TimeSpan(40) };
        let names = ["--a", "--w"];
        assert_eq!(scale.place(names, RunTime(10), TimeSpan(10)), "--a:50.000;--w:25.000");
        assert_eq!(scale.place(names, RunTime(u64::MAX), TimeSpan(50)), "--a:100.000;--w:100.000");
        let empty = Scale { start: RunTime::START, whole: TimeSpan::ZERO };
        assert_eq!(empty.place(names, RunTime::START, TimeSpan(1)), "--a:0.000;--w:0.000");
    }
}
