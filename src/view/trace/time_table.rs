//! The time by state as lines for a terminal.

use super::{CallEnd, PhaseTime, Trace, TracePhase};
use crate::types::{TimeSpan, pluralize};
use crate::view::{in_columns, sanitize};

/// Returns the table: each state, with its phases below it.
pub(super) fn render(trace: &Trace) -> String {
    let mut rows = vec![["state", "visits", "time", "share"].map(str::to_owned)];
    for (phase, [name, visits, time, share]) in time_rows(trace) {
        let indent = if phase.is_some() { "  " } else { "" };
        rows.push([format!("{indent}{name}"), visits, time, share]);
    }
    let share = percent_of_time(trace.duration, trace.duration);
    rows.push(["total".to_owned(), String::new(), trace.duration.to_string(), share]);
    headline(trace) + &in_columns(&rows, |column| column > 0)
}

/// Returns the rows of the table, with name, visits, time and share: for each state, and below it for each of its
/// phases.
pub(super) fn time_rows(trace: &Trace) -> Vec<(Option<TracePhase>, [String; 4])> {
    let row = |name: String, visits: String, time: TimeSpan| {
        [name, visits, time.to_string(), percent_of_time(time, trace.duration)]
    };
    let mut rows = Vec::new();
    for state in &trace.states {
        let name = state.state.as_str().to_owned();
        rows.push((None, row(name, state.visits.to_string(), state.time)));
        for PhaseTime { phase, time } in &state.phases {
            rows.push((Some(*phase), row(phase.name(), String::new(), *time)));
        }
    }
    rows
}

fn headline(trace: &Trace) -> String {
    let end = trace.stop_reason.map_or_else(|| trace.state.as_str().to_owned(), |r| r.to_string());
    let cost = trace.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
    let line = format!(
        "{} · {} · {end} · {} · {} · {}{cost}",
        trace.subject.session_id,
        trace.subject.model,
        pluralize(trace.steps, "step", "steps"),
        pluralize(trace.llm_calls, "call", "calls"),
        pluralize(trace.tokens.0, "token", "tokens")
    );
    format!("{}\n{}\n", sanitize::line(&line), cache_line(trace))
}

/// Returns the share of the input that came from the provider's cache; empty if no input was counted.
fn cache_line(trace: &Trace) -> String {
    let (mut input, mut cached) = (0, 0);
    for call in &trace.calls {
        if let CallEnd::Replied { usage, .. } = &call.end {
            input += usage.input_tokens;
            cached += usage.cached_input_tokens;
        }
    }
    match input {
        0 => String::new(),
        _ => {
            format!(
                "prompt cache: {} of {input} input tokens\n",
                percent_of_time(TimeSpan(cached), TimeSpan(input))
            )
        }
    }
}

/// Returns a share in percent, rounded to the nearest integer.
pub(super) fn percent_of_time(part: TimeSpan, whole: TimeSpan) -> String {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0.max(1)));
    format!("{} %", (part * 200 + whole) / (whole * 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_nothing_is_no_share_of_nothing() {
        assert_eq!(percent_of_time(TimeSpan(1), TimeSpan(3)), "33 %");
        assert_eq!(percent_of_time(TimeSpan(2), TimeSpan(3)), "67 %");
        assert_eq!(percent_of_time(TimeSpan::ZERO, TimeSpan::ZERO), "0 %");
        assert_eq!(percent_of_time(TimeSpan(u64::MAX), TimeSpan(u64::MAX)), "100 %");
    }
}
