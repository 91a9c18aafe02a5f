//! The trace as a page that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::messages::{Speaker, TraceMessage};
use super::phase::TracePhase;
use super::time_account::{add, subtract};
use super::time_table::percent_of_time;
use super::timeline::{CallEnd, CallSpan, ToolSpan};
use super::usage_chart::percent;
use super::{Trace, chart, usage_chart};
use crate::machine::{CallPurpose, RunStatus, StopReason};
use crate::model::{Decision, MessageOrigin, RunTime, TimeSpan, ToolStatus, pluralize};
use crate::view::html_escape::escape;
use crate::view::sanitize;

/// The page loads nothing and runs nothing, whatever stands in it.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("trace.css");

/// The longest headline of a message, in characters; the rest is folded.
const MAX_HEADLINE: usize = 140;

/// Returns the page.
pub(super) fn render(trace: &Trace) -> String {
    let subject = &trace.subject;
    let title = escape(&format!("Trace of {}", subject.session_id));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    header(&mut page, trace);
    section(&mut page, "Where the time went", &time_section(trace));
    let edges =
        format!("<div class=\"wide\">\n{}</div>\n{}", chart::render(trace), edge_list(trace));
    section(&mut page, "Ways through the statechart", &edges);
    section(&mut page, "Requests and tools", &timeline(trace));
    let curves = usage_chart::render(trace);
    if !curves.is_empty() {
        section(&mut page, "Tokens and money", &curves);
    }
    section(&mut page, &format!("Messages ({})", trace.messages.len()), &messages(trace));
    page.push_str("<footer>\n<dl>\n");
    let facts = [
        ("Session", &subject.session_id),
        ("Begun", &subject.created),
        ("Model", &subject.model),
        ("Agent", &subject.agent),
        ("Workspace", &subject.workspace),
        ("Program", &subject.program),
    ];
    for (name, value) in facts {
        let value = escape(&sanitize::line(value));
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    page.push_str("</dl>\n</footer>\n</main>\n</body>\n</html>\n");
    page
}

fn header(page: &mut String, trace: &Trace) {
    let task = trace.messages.iter().find_map(|message| match message.speaker {
        Speaker::User { origin: MessageOrigin::Task } => {
            Some(sanitize::headline(&message.text, MAX_HEADLINE))
        }
        _ => None,
    });
    let kind = match trace.stop_reason.map(StopReason::status) {
        Some(RunStatus::Success) => "success",
        Some(RunStatus::Failed) => "failed",
        Some(RunStatus::Partial) | None => "partial",
    };
    let end = trace
        .stop_reason
        .map_or_else(|| format!("stands in {}", trace.state.name()), |reason| reason.to_string());
    let _ = writeln!(page, "<header class=\"{kind}\">");
    let title = task.unwrap_or_else(|| trace.subject.session_id.clone());
    let _ =
        writeln!(page, "<h1>{}</h1>\n<p class=\"numbers\"><strong>{end}</strong>", escape(&title));
    let cost = trace.cost.map(|cost| cost.to_string());
    let numbers = [
        Some(trace.duration.to_string()),
        Some(pluralize(trace.steps, "step", "steps")),
        Some(pluralize(trace.llm_calls, "model call", "model calls")),
        Some(pluralize(trace.tokens.0, "token", "tokens")),
        cost,
    ];
    for number in numbers.into_iter().flatten() {
        let _ = writeln!(page, "<span>{number}</span>");
    }
    page.push_str("</p>\n</header>\n");
}

fn section(page: &mut String, title: &str, content: &str) {
    let _ = writeln!(page, "<section>\n<h2>{title}</h2>\n{content}</section>");
}

/// Returns all time as one bar, and below it the time of each state.
fn time_section(trace: &Trace) -> String {
    let mut sums: BTreeMap<TracePhase, TimeSpan> = BTreeMap::new();
    for phase in trace.states.iter().flat_map(|state| &state.phases) {
        let sum = sums.entry(phase.phase).or_default();
        *sum = add(*sum, phase.time);
    }
    let mut html = String::from("<div class=\"stack\">");
    for (phase, time) in &sums {
        let width = percent(time.0, trace.duration.0);
        let title = format!("{}: {time}", phase.name());
        let _ = write!(
            html,
            "<i class=\"{}\" style=\"width:{width}%\" title=\"{title}\"></i>",
            css_class(*phase)
        );
    }
    html.push_str("</div>\n<p class=\"legend\">");
    for (phase, time) in &sums {
        let share = percent_of_time(*time, trace.duration);
        let _ = write!(
            html,
            "<span><b class=\"{}\"></b>{} {share}</span> ",
            css_class(*phase),
            phase.name()
        );
    }
    html.push_str("</p>\n<div class=\"wide\"><table>\n<thead><tr><th>State</th><th>Visits</th><th>Time</th><th>Share</th></tr></thead>\n<tbody>\n");
    for state in &trace.states {
        let _ = writeln!(
            html,
            "<tr class=\"sum\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            state.state.name(),
            state.visits,
            state.time,
            percent_of_time(state.time, trace.duration)
        );
        for phase in &state.phases {
            let _ = writeln!(
                html,
                "<tr><td><b class=\"{}\"></b>{}</td><td></td><td>{}</td><td>{}</td></tr>",
                css_class(phase.phase),
                phase.phase.name(),
                phase.time,
                percent_of_time(phase.time, trace.duration)
            );
        }
    }
    html + "</tbody>\n</table></div>\n"
}

fn css_class(phase: TracePhase) -> &'static str {
    match phase {
        TracePhase::Preparing => "p-preparing",
        TracePhase::Encoding => "p-encoding",
        TracePhase::FirstByte => "p-first",
        TracePhase::Stream => "p-stream",
        TracePhase::Backoff => "p-backoff",
        TracePhase::Hooks => "p-hooks",
        TracePhase::Tools => "p-tools",
        TracePhase::Checks => "p-checks",
        TracePhase::Sync => "p-sync",
        TracePhase::Ending => "p-ending",
    }
}

/// Returns the ways that were taken, as a list that is folded.
fn edge_list(trace: &Trace) -> String {
    let mut html = String::from(
        "<details><summary>Every way, with what led along it</summary>\n<ul class=\"edges\">\n",
    );
    for edge in &trace.edges {
        let (from, to) = (edge.from.name(), edge.to.name());
        let _ =
            writeln!(html, "<li>{from} → {to} <code>{}</code> {}×</li>", edge.event, edge.count);
    }
    html + "</ul></details>\n"
}

/// Returns a row for each request and each tool call, in the order in which they began.
fn timeline(trace: &Trace) -> String {
    let mut rows: Vec<(RunTime, String)> =
        trace.calls.iter().map(|call| (call.started_at, call_row(trace, call))).collect();
    rows.extend(trace.tools.iter().map(|tool| (tool.authorized_at, tool_row(trace, tool))));
    rows.sort_by_key(|(begun, _)| *begun);
    if rows.is_empty() {
        return String::from("<p>None.</p>\n");
    }
    let rows: Vec<String> = rows.into_iter().map(|(_, row)| row).collect();
    format!("<ol class=\"timeline\">\n{}{}</ol>\n", time_scale(trace.duration), rows.concat())
}

/// Returns what the places of the bars mean: the time since the session began.
fn time_scale(duration: TimeSpan) -> String {
    let marks = [0, 1, 2, 3, 4].map(|quarter| {
        let at = TimeSpan(duration.0 / 4 * quarter);
        let at = if quarter == 0 { "0".to_owned() } else { at.to_string() };
        format!("<small>{at}</small>")
    });
    format!("<li class=\"scale\" aria-hidden=\"true\"><span>{}</span></li>\n", marks.concat())
}

fn call_row(trace: &Trace, call: &CallSpan) -> String {
    let purpose = match call.purpose {
        CallPurpose::Agent => "request",
        CallPurpose::Compaction => "summary",
        CallPurpose::Closing => "last word",
    };
    let attempt =
        if call.attempt > 1 { format!(", attempt {}", call.attempt) } else { String::new() };
    let (bad, end) = match &call.end {
        CallEnd::Replied { finish, input_tokens, output_tokens, .. } => {
            let messages = match call.messages {
                1 => "1 message".to_owned(),
                messages => format!("{messages} messages"),
            };
            let finish = sanitize::headline(finish.name(), MAX_HEADLINE);
            (false, format!("{messages} · {input_tokens} → {output_tokens} tokens · {finish}"))
        }
        CallEnd::Failed { reason: why } => (true, sanitize::headline(why, MAX_HEADLINE)),
        CallEnd::Cancelled => (true, "cancelled".to_owned()),
        CallEnd::Lost => (true, "lost with its process".to_owned()),
        CallEnd::Open => (true, "under way".to_owned()),
    };
    let encode = call.encode.unwrap_or_default();
    let first_byte = call.first_byte.unwrap_or_else(|| subtract(call.duration, encode));
    let stream = subtract(subtract(call.duration, encode), first_byte);
    let parts = [
        (TracePhase::Encoding, encode),
        (TracePhase::FirstByte, first_byte),
        (TracePhase::Stream, stream),
    ];
    render_row(
        trace,
        &TimelineRow {
            label: &format!("{purpose}{attempt}"),
            end: &end,
            is_failed: bad,
            started_at: call.started_at,
            duration: call.duration,
            parts: &parts,
        },
    )
}

fn tool_row(trace: &Trace, span: &ToolSpan) -> String {
    let arguments = sanitize::headline(&span.arguments, MAX_HEADLINE);
    let begun = span.started_at.unwrap_or(span.ended_at);
    let parts = [
        (TracePhase::Hooks, begun.since(span.authorized_at)),
        (TracePhase::Tools, span.ended_at.since(begun)),
    ];
    let bad = span.status != Some(ToolStatus::Ok);
    let rule = match &span.decision {
        Some(Decision::Allow { reason: rule } | Decision::Deny { reason: rule })
            if !rule.is_empty() =>
        {
            format!(" · {}", sanitize::headline(rule, MAX_HEADLINE))
        }
        Some(_) | None => String::new(),
    };
    let end = match bad {
        true => format!("{} · {arguments}{rule}", status_name(span.status)),
        false => format!("{arguments}{rule}"),
    };
    let what = sanitize::line(&span.name);
    let took = span.ended_at.since(span.authorized_at);
    render_row(
        trace,
        &TimelineRow {
            label: &what,
            end: &end,
            is_failed: bad,
            started_at: span.authorized_at,
            duration: took,
            parts: &parts,
        },
    )
}

fn status_name(status: Option<ToolStatus>) -> &'static str {
    match status {
        None => "outcome unknown",
        Some(ToolStatus::Ok) => "ok",
        Some(ToolStatus::Failed) => "failed",
        Some(ToolStatus::TimedOut) => "timed out",
        Some(ToolStatus::Unknown) => "no such tool",
        Some(ToolStatus::Malformed) => "malformed",
        Some(ToolStatus::Denied) => "denied",
        Some(ToolStatus::Truncated) => "cut off",
        Some(ToolStatus::Skipped) => "skipped",
        Some(ToolStatus::Interrupted) => "interrupted",
        Some(ToolStatus::Abandoned) => "abandoned",
        Some(ToolStatus::InDoubt) => "in doubt",
    }
}

/// A row of the timeline.
struct TimelineRow<'a> {
    label: &'a str,
    end: &'a str,
    is_failed: bool,
    started_at: RunTime,
    duration: TimeSpan,
    parts: &'a [(TracePhase, TimeSpan)],
}

fn render_row(trace: &Trace, row: &TimelineRow<'_>) -> String {
    let left = percent(row.started_at.0, trace.duration.0);
    let width = percent(row.duration.0, trace.duration.0);
    let bad = if row.is_failed { " class=\"bad\"" } else { "" };
    let mut html = format!(
        "<li{bad}><b>{}</b><span class=\"end\">{}</span><span class=\"took\">{}</span>\
         <span class=\"track\"><i style=\"left:{left}%;width:{width}%\">",
        escape(row.label),
        escape(row.end),
        row.duration
    );
    for (phase, time) in row.parts.iter().filter(|(_, time)| *time > TimeSpan::ZERO) {
        let title = format!("{}: {time}", phase.name());
        let _ = write!(
            html,
            "<u class=\"{}\" style=\"flex:{} 1 0\" title=\"{title}\"></u>",
            css_class(*phase),
            time.0
        );
    }
    html + "</i></span></li>\n"
}

fn messages(trace: &Trace) -> String {
    let mut html = String::new();
    for message in &trace.messages {
        let (class, who) = speaker(message);
        let headline = sanitize::headline(&message.text, MAX_HEADLINE);
        let at = message.at.since(RunTime::START);
        let _ = writeln!(
            html,
            "<details class=\"said {class}\"><summary><b>{}</b> <span>{}</span> <small>record {} · {at}</small></summary>\n\
             <pre>{}</pre></details>",
            escape(&who),
            escape(&headline),
            message.seq,
            escape(&sanitize::multiline(&message.text))
        );
    }
    html
}

fn speaker(message: &TraceMessage) -> (&'static str, String) {
    match &message.speaker {
        Speaker::User { origin } => {
            let who = match origin {
                MessageOrigin::Task => "task",
                MessageOrigin::Steering => "steering",
                MessageOrigin::FollowUp => "follow-up",
                MessageOrigin::System => "system",
                MessageOrigin::Check => "check",
                MessageOrigin::Summary => "summary",
            };
            ("user", who.to_owned())
        }
        Speaker::Assistant => ("assistant", "assistant".to_owned()),
        Speaker::ToolCall { name } => ("call", format!("calls {}", sanitize::line(name))),
        Speaker::ToolResult { name, status: ToolStatus::Ok } => {
            ("result", sanitize::line(name).into_owned())
        }
        Speaker::ToolResult { name, status: end } => {
            ("result bad", format!("{}: {}", sanitize::line(name), status_name(Some(*end))))
        }
        Speaker::Partial => ("bad", "cancelled reply".to_owned()),
    }
}
