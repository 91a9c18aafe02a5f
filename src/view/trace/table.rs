//! The time of each state as lines for a terminal.

use std::fmt::Write as _;

use super::{CallEnd, Trace};
use crate::model::{Span, count};
use crate::view::clean;

/// Returns the table: each state, and below it what its time was spent on.
pub(super) fn render(trace: &Trace) -> String {
    let mut rows = vec![["state", "visits", "time", "share"].map(str::to_owned)];
    for state in &trace.states {
        let visits = state.visits.to_string();
        rows.push([
            state.state.name().to_owned(),
            visits,
            state.time.to_string(),
            share(state.time, trace.duration),
        ]);
        for phase in &state.phases {
            rows.push([
                format!("  {}", phase.phase.name()),
                String::new(),
                phase.time.to_string(),
                share(phase.time, trace.duration),
            ]);
        }
    }
    let total = trace.duration;
    rows.push(["total".to_owned(), String::new(), total.to_string(), share(total, total)]);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
    let mut text = headline(trace);
    for [name, visits, time, share] in &rows {
        let [w, x, y, z] = widths;
        let _ = writeln!(text, "{name:<w$}  {visits:>x$}  {time:>y$}  {share:>z$}");
    }
    text
}

fn headline(trace: &Trace) -> String {
    let end = trace.stop_reason.map_or_else(|| trace.state.name().to_owned(), |r| r.to_string());
    let cost = trace.cost.map_or_else(String::new, |cost| format!(" · {cost}"));
    let line = format!(
        "{} · {} · {end} · {} · {} · {}{cost}",
        trace.subject.session_id,
        trace.subject.model,
        count(trace.steps, "step", "steps"),
        count(trace.llm_calls, "call", "calls"),
        count(trace.tokens.0, "token", "tokens")
    );
    format!("{}\n{}\n", clean::line(&line), cache(trace))
}

/// Says how much of the requests the provider has read from its cache; nothing when it has counted nothing.
fn cache(trace: &Trace) -> String {
    let (mut input, mut cached) = (0, 0);
    for call in &trace.calls {
        if let CallEnd::Replied { input_tokens, cached_input_tokens, .. } = &call.end {
            input += input_tokens;
            cached += cached_input_tokens;
        }
    }
    match input {
        0 => String::new(),
        _ => {
            format!("prompt cache: {} of {input} input tokens\n", share(Span(cached), Span(input)))
        }
    }
}

/// Returns a part of the whole in hundredths.
pub(super) fn share(part: Span, whole: Span) -> String {
    format!("{} %", hundredths(part, whole))
}

/// Returns a part of the whole in hundredths, rounded to the nearest one.
fn hundredths(part: Span, whole: Span) -> u64 {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0.max(1)));
    u64::try_from((part * 200 + whole) / (whole * 2)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_nothing_is_no_share_of_nothing() {
        assert_eq!(share(Span(1), Span(3)), "33 %");
        assert_eq!(share(Span(2), Span(3)), "67 %");
        assert_eq!(share(Span::ZERO, Span::ZERO), "0 %");
        assert_eq!(share(Span(u64::MAX), Span(u64::MAX)), "100 %");
    }
}
