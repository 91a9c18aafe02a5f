//! Tokens and money, reply by reply, as columns.

use std::fmt::Write as _;

use super::Trace;
use super::timeline::{CallEnd, CallSpan, SubagentSpan};
use crate::model::{MicroUsd, RunTime};
use crate::view::html_escape::escape;

/// What one reply used.
struct UsageColumn {
    title: String,
    cached: u64,
    fresh: u64,
    output: u64,
    /// All that was spent by then.
    cumulative: u64,
}

/// Returns the columns; nothing when no reply came.
pub(super) fn render(trace: &Trace) -> String {
    // A reply counts when it has come.
    let replies = trace.calls.iter().enumerate();
    let replies = replies.filter_map(|(index, call)| {
        Some((call.started_at.after(call.duration), call_column(index, call)?))
    });
    let subagents = trace.subagents.iter().map(|call| (call.at, subagent_column(call)));
    let mut used: Vec<(RunTime, UsageColumn)> = replies.chain(subagents).collect();
    used.sort_by_key(|(at, _)| *at);
    let mut spent = 0;
    let used: Vec<UsageColumn> =
        used.into_iter().map(|(_, used)| used.add_to(&mut spent)).collect();
    let mut html = String::new();
    let Some(most) = used.iter().map(|used| used.cached + used.fresh + used.output).max() else {
        return html;
    };
    let _ = writeln!(
        html,
        "<figure><figcaption>Tokens of each reply, from the first to the last, {most} at the most: <b class=\"k-cached\">cached input</b> \
         <b class=\"k-fresh\">input</b> <b class=\"k-output\">output</b></figcaption>\n<div class=\"columns\">"
    );
    for column in &used {
        let _ = write!(html, "<span title=\"{}\">", escape(&column.title));
        for (class, tokens) in
            [("k-output", column.output), ("k-fresh", column.fresh), ("k-cached", column.cached)]
        {
            let _ = write!(
                html,
                "<i class=\"{class}\" style=\"height:{}%\"></i>",
                percent(tokens, most)
            );
        }
        html.push_str("</span>\n");
    }
    html.push_str("</div></figure>\n");
    if let Some(total) = trace.cost.filter(|cost| *cost > MicroUsd::ZERO) {
        let _ = writeln!(
            html,
            "<figure><figcaption>Money spent so far, reply by reply, {total} in the end</figcaption>\n<div class=\"columns low\">"
        );
        for column in &used {
            let so_far = MicroUsd(column.cumulative);
            let height = percent(column.cumulative, total.0);
            let title = escape(&format!("{}: {so_far}", column.title));
            let _ = writeln!(
                html,
                "<span title=\"{title}\"><i class=\"k-cost\" style=\"height:{height}%\"></i></span>"
            );
        }
        html.push_str("</div></figure>\n");
    }
    html
}

impl UsageColumn {
    /// Counts what was spent before.
    fn add_to(self, spent: &mut u64) -> Self {
        *spent += self.cumulative;
        Self { cumulative: *spent, ..self }
    }
}

fn call_column(index: usize, call: &CallSpan) -> Option<UsageColumn> {
    let CallEnd::Replied { input_tokens, output_tokens, cached_input_tokens, cost, .. } = &call.end
    else {
        return None;
    };
    let tokens = (*input_tokens, *cached_input_tokens, *output_tokens);
    Some(column(&format!("request {}", index + 1), tokens, *cost))
}

fn subagent_column(call: &SubagentSpan) -> UsageColumn {
    let tokens = (call.input_tokens, call.cached_input_tokens, call.output_tokens);
    column("request of a sub-agent", tokens, call.cost)
}

fn column(
    what: &str,
    (input, cached, output): (u64, u64, u64),
    cost: Option<MicroUsd>,
) -> UsageColumn {
    UsageColumn {
        title: format!("{what}: {input} input ({cached} cached), {output} output"),
        cached,
        fresh: input.saturating_sub(cached),
        output,
        cumulative: cost.map_or(0, |cost| cost.0),
    }
}

/// Returns a part of a whole in hundredths, with one digit behind the point.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part.min(whole)) * 1000 / u128::from(whole.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        assert_eq!(percent(1, 3), "33.3");
        assert_eq!(percent(5, 3), "100.0");
        assert_eq!(percent(0, 0), "0.0");
    }
}
