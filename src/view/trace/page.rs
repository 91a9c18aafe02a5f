//! The trace as a page that needs nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::account::{minus, plus};
use super::curves::percent;
use super::messages::{Message, Speaker};
use super::phase::Phase;
use super::table::share;
use super::timeline::{CallEnd, CallSpan, ToolSpan};
use super::{Trace, chart, curves};
use crate::machine::{Purpose, Status, StopReason};
use crate::model::{Origin, Span, Time, ToolStatus, count};
use crate::view::clean;
use crate::view::markup::escaped;
use crate::view::public::Decision;

/// The page loads nothing and runs nothing, whatever stands in it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("trace.css");

/// The longest headline of a message, in characters; the rest is folded.
const HEADLINE: usize = 140;

/// Returns the page.
pub(super) fn render(trace: &Trace) -> String {
    let subject = &trace.subject;
    let title = escaped(&format!("Trace of {}", subject.session_id));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    header(&mut page, trace);
    section(&mut page, "Where the time went", &time(trace));
    let edges = format!("<div class=\"wide\">\n{}</div>\n{}", chart::draw(trace), edges(trace));
    section(&mut page, "Ways through the statechart", &edges);
    section(&mut page, "Requests and tools", &timeline(trace));
    let curves = curves::draw(trace);
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
        let value = escaped(&clean::line(value));
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    page.push_str("</dl>\n</footer>\n</main>\n</body>\n</html>\n");
    page
}

fn header(page: &mut String, trace: &Trace) {
    let task = trace.messages.iter().find_map(|message| match message.speaker {
        Speaker::User { origin: Origin::Task } => Some(clean::headline(&message.text, HEADLINE)),
        _ => None,
    });
    let kind = match trace.stop_reason.map(StopReason::status) {
        Some(Status::Success) => "success",
        Some(Status::Failed) => "failed",
        Some(Status::Partial) | None => "partial",
    };
    let end = trace
        .stop_reason
        .map_or_else(|| format!("stands in {}", trace.state.name()), |reason| reason.to_string());
    let _ = writeln!(page, "<header class=\"{kind}\">");
    let title = task.unwrap_or_else(|| trace.subject.session_id.clone());
    let _ =
        writeln!(page, "<h1>{}</h1>\n<p class=\"numbers\"><strong>{end}</strong>", escaped(&title));
    let cost = trace.cost.map(|cost| cost.to_string());
    let numbers = [
        Some(trace.duration.to_string()),
        Some(count(trace.steps, "step", "steps")),
        Some(count(trace.llm_calls, "model call", "model calls")),
        Some(count(trace.tokens.0, "token", "tokens")),
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
fn time(trace: &Trace) -> String {
    let mut sums: BTreeMap<Phase, Span> = BTreeMap::new();
    for phase in trace.states.iter().flat_map(|state| &state.phases) {
        let sum = sums.entry(phase.phase).or_default();
        *sum = plus(*sum, phase.time);
    }
    let mut html = String::from("<div class=\"stack\">");
    for (phase, time) in &sums {
        let width = percent(time.0, trace.duration.0);
        let title = format!("{}: {time}", phase.name());
        let _ = write!(
            html,
            "<i class=\"{}\" style=\"width:{width}%\" title=\"{title}\"></i>",
            class(*phase)
        );
    }
    html.push_str("</div>\n<p class=\"legend\">");
    for (phase, time) in &sums {
        let share = share(*time, trace.duration);
        let _ = write!(
            html,
            "<span><b class=\"{}\"></b>{} {share}</span> ",
            class(*phase),
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
            share(state.time, trace.duration)
        );
        for phase in &state.phases {
            let _ = writeln!(
                html,
                "<tr><td><b class=\"{}\"></b>{}</td><td></td><td>{}</td><td>{}</td></tr>",
                class(phase.phase),
                phase.phase.name(),
                phase.time,
                share(phase.time, trace.duration)
            );
        }
    }
    html + "</tbody>\n</table></div>\n"
}

fn class(phase: Phase) -> &'static str {
    match phase {
        Phase::Preparing => "p-preparing",
        Phase::Encoding => "p-encoding",
        Phase::FirstByte => "p-first",
        Phase::Stream => "p-stream",
        Phase::Backoff => "p-backoff",
        Phase::Hooks => "p-hooks",
        Phase::Tools => "p-tools",
        Phase::Checks => "p-checks",
        Phase::Sync => "p-sync",
        Phase::Ending => "p-ending",
    }
}

/// Returns the ways that were taken, as a list that is folded.
fn edges(trace: &Trace) -> String {
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
    let mut rows: Vec<(Time, String)> =
        trace.calls.iter().map(|call| (call.begun, call_row(trace, call))).collect();
    rows.extend(trace.tools.iter().map(|tool| (tool.judged, tool_row(trace, tool))));
    rows.sort_by_key(|(begun, _)| *begun);
    if rows.is_empty() {
        return String::from("<p>None.</p>\n");
    }
    let rows: Vec<String> = rows.into_iter().map(|(_, row)| row).collect();
    format!("<ol class=\"timeline\">\n{}{}</ol>\n", scale(trace.duration), rows.concat())
}

/// Returns what the places of the bars mean: the time since the session began.
fn scale(duration: Span) -> String {
    let marks = [0, 1, 2, 3, 4].map(|quarter| {
        let at = Span(duration.0 / 4 * quarter);
        let at = if quarter == 0 { "0".to_owned() } else { at.to_string() };
        format!("<small>{at}</small>")
    });
    format!("<li class=\"scale\" aria-hidden=\"true\"><span>{}</span></li>\n", marks.concat())
}

fn call_row(trace: &Trace, call: &CallSpan) -> String {
    let purpose = match call.purpose {
        Purpose::Agent => "request",
        Purpose::Compaction => "summary",
        Purpose::Closing => "last word",
    };
    let attempt =
        if call.attempt > 1 { format!(", attempt {}", call.attempt) } else { String::new() };
    let (bad, end) = match &call.end {
        CallEnd::Replied { finish, input_tokens, output_tokens, .. } => {
            let messages = match call.messages {
                1 => "1 message".to_owned(),
                messages => format!("{messages} messages"),
            };
            let finish = clean::headline(finish.name(), HEADLINE);
            (false, format!("{messages} · {input_tokens} → {output_tokens} tokens · {finish}"))
        }
        CallEnd::Failed { why } => (true, clean::headline(why, HEADLINE)),
        CallEnd::Cancelled => (true, "cancelled".to_owned()),
        CallEnd::Lost => (true, "lost with its process".to_owned()),
        CallEnd::Open => (true, "under way".to_owned()),
    };
    let encode = call.encode.unwrap_or_default();
    let first_byte = call.first_byte.unwrap_or_else(|| minus(call.took, encode));
    let stream = minus(minus(call.took, encode), first_byte);
    let parts =
        [(Phase::Encoding, encode), (Phase::FirstByte, first_byte), (Phase::Stream, stream)];
    row(
        trace,
        &Row {
            what: &format!("{purpose}{attempt}"),
            end: &end,
            bad,
            begun: call.begun,
            took: call.took,
            parts: &parts,
        },
    )
}

fn tool_row(trace: &Trace, span: &ToolSpan) -> String {
    let arguments = clean::headline(&span.arguments, HEADLINE);
    let begun = span.begun.unwrap_or(span.ended);
    let parts = [(Phase::Hooks, begun.since(span.judged)), (Phase::Tools, span.ended.since(begun))];
    let bad = span.status != Some(ToolStatus::Ok);
    let rule = match &span.decision {
        Some(Decision::Allow { rule } | Decision::Deny { rule }) if !rule.is_empty() => {
            format!(" · {}", clean::headline(rule, HEADLINE))
        }
        Some(_) | None => String::new(),
    };
    let end = match bad {
        true => format!("{} · {arguments}{rule}", status(span.status)),
        false => format!("{arguments}{rule}"),
    };
    let what = clean::line(&span.name);
    let took = span.ended.since(span.judged);
    row(trace, &Row { what: &what, end: &end, bad, begun: span.judged, took, parts: &parts })
}

fn status(status: Option<ToolStatus>) -> &'static str {
    match status {
        None => "outcome unknown",
        Some(ToolStatus::Ok) => "ok",
        Some(ToolStatus::Failed) => "failed",
        Some(ToolStatus::TimedOut) => "timed out",
        Some(ToolStatus::Unknown) => "no such tool",
        Some(ToolStatus::Malformed) => "malformed",
        Some(ToolStatus::Denied) => "denied",
        Some(ToolStatus::Cut) => "cut off",
        Some(ToolStatus::Skipped) => "skipped",
        Some(ToolStatus::Interrupted) => "interrupted",
        Some(ToolStatus::Abandoned) => "abandoned",
        Some(ToolStatus::InDoubt) => "in doubt",
    }
}

/// A row of the timeline.
struct Row<'a> {
    what: &'a str,
    end: &'a str,
    bad: bool,
    begun: Time,
    took: Span,
    parts: &'a [(Phase, Span)],
}

fn row(trace: &Trace, row: &Row<'_>) -> String {
    let left = percent(row.begun.0, trace.duration.0);
    let width = percent(row.took.0, trace.duration.0);
    let bad = if row.bad { " class=\"bad\"" } else { "" };
    let mut html = format!(
        "<li{bad}><b>{}</b><span class=\"end\">{}</span><span class=\"took\">{}</span>\
         <span class=\"track\"><i style=\"left:{left}%;width:{width}%\">",
        escaped(row.what),
        escaped(row.end),
        row.took
    );
    for (phase, time) in row.parts.iter().filter(|(_, time)| *time > Span::ZERO) {
        let title = format!("{}: {time}", phase.name());
        let _ = write!(
            html,
            "<u class=\"{}\" style=\"flex:{} 1 0\" title=\"{title}\"></u>",
            class(*phase),
            time.0
        );
    }
    html + "</i></span></li>\n"
}

fn messages(trace: &Trace) -> String {
    let mut html = String::new();
    for message in &trace.messages {
        let (class, who) = speaker(message);
        let headline = clean::headline(&message.text, HEADLINE);
        let at = message.at.since(Time::START);
        let _ = writeln!(
            html,
            "<details class=\"said {class}\"><summary><b>{}</b> <span>{}</span> <small>record {} · {at}</small></summary>\n\
             <pre>{}</pre></details>",
            escaped(&who),
            escaped(&headline),
            message.seq,
            escaped(&clean::block(&message.text))
        );
    }
    html
}

fn speaker(message: &Message) -> (&'static str, String) {
    match &message.speaker {
        Speaker::User { origin } => {
            let who = match origin {
                Origin::Task => "task",
                Origin::Steering => "steering",
                Origin::FollowUp => "follow-up",
                Origin::System => "system",
                Origin::Check => "check",
                Origin::Summary => "summary",
            };
            ("user", who.to_owned())
        }
        Speaker::Assistant => ("assistant", "assistant".to_owned()),
        Speaker::ToolCall { name } => ("call", format!("calls {}", clean::line(name))),
        Speaker::ToolResult { name, status: ToolStatus::Ok } => {
            ("result", clean::line(name).into_owned())
        }
        Speaker::ToolResult { name, status: end } => {
            ("result bad", format!("{}: {}", clean::line(name), status(Some(*end))))
        }
        Speaker::Partial => ("bad", "cancelled reply".to_owned()),
    }
}
