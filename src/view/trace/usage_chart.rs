//! Tokens and cost of each reply, as columns of a chart.

use maud::{Markup, html};

use super::Trace;
use super::timeline::SpanUsage;
use crate::types::{MicroUsd, RunTime};

/// The maximum number of columns. With more replies, a column covers several.
const MAX_COLUMNS: usize = 200;

/// The usage of one reply, or of several successive replies.
struct UsageColumn {
    title: String,
    cached: u64,
    fresh: u64,
    output: u64,
    /// The cost of these replies and of all earlier ones.
    cumulative: u64,
}

/// Returns the columns; `None` if there was no reply.
pub(super) fn render(trace: &Trace) -> Option<Markup> {
    // A reply counts at the time of its arrival.
    let replies = trace.calls.iter().enumerate();
    let replies = replies.filter_map(|(index, call)| {
        let usage = call.usage()?;
        let at = call.started_at.after(call.duration);
        Some((at, column(&format!("request {}", index + 1), usage)))
    });
    let subagents = trace.subagents.iter();
    let subagents = subagents.map(|call| (call.at, column("request of a sub-agent", &call.usage)));
    let mut columns: Vec<(RunTime, UsageColumn)> = replies.chain(subagents).collect();
    columns.sort_by_key(|(at, _)| *at);
    let mut spent = 0;
    for (_, column) in &mut columns {
        spent += column.cumulative;
        column.cumulative = spent;
    }
    let columns: Vec<UsageColumn> = columns.into_iter().map(|(_, column)| column).collect();
    let each = columns.len().div_ceil(MAX_COLUMNS).max(1);
    let columns: Vec<UsageColumn> = columns.chunks(each).filter_map(join).collect();
    let most = columns.iter().map(|used| used.cached + used.fresh + used.output).max()?;
    let bar = |class: &str, height: String| {
        html! { i class=(class) style={ "height:" (height) "%" } {} }
    };
    Some(html! {
        figure {
            figcaption {
                @match each {
                    1 => "Tokens of each reply",
                    _ => { "Tokens of each " (each) " replies" },
                }
                ", in order, " (most) " at most: "
                b.k-cached { "cached input" } " " b.k-fresh { "input" } " " b.k-output { "output" }
            }
            div.columns {
                @for column in &columns {
                    span title=(column.title) {
                        (bar("k-output", percent(column.output, most)))
                        (bar("k-fresh", percent(column.fresh, most)))
                        (bar("k-cached", percent(column.cached, most)))
                    }
                }
            }
        }
        @if let Some(total) = trace.cost.filter(|cost| *cost > MicroUsd::ZERO) {
            figure {
                figcaption { "Cumulative cost, reply by reply, " (total) " in total" }
                div.columns.low {
                    @for column in &columns {
                        span title={ (column.title) ": " (MicroUsd(column.cumulative)) } {
                            (bar("k-cost", percent(column.cumulative, total.0)))
                        }
                    }
                }
            }
        }
    })
}

fn column(what: &str, usage: &SpanUsage) -> UsageColumn {
    let &SpanUsage { input_tokens, output_tokens: output, cached_input_tokens: cached, cost } =
        usage;
    UsageColumn {
        title: format!("{what}: {input_tokens} input ({cached} cached), {output} output"),
        cached,
        fresh: input_tokens.saturating_sub(cached),
        output,
        cumulative: cost.map_or(0, |cost| cost.0),
    }
}

/// Returns a column for several successive replies.
fn join(columns: &[UsageColumn]) -> Option<UsageColumn> {
    let (first, last) = (columns.first()?, columns.last()?);
    let sum = |part: fn(&UsageColumn) -> u64| columns.iter().map(part).sum();
    let title = match columns.len() {
        1 => first.title.clone(),
        more => format!("{}, and {} more", first.title, more - 1),
    };
    Some(UsageColumn {
        title,
        cached: sum(|one| one.cached),
        fresh: sum(|one| one.fresh),
        output: sum(|one| one.output),
        cumulative: last.cumulative,
    })
}

/// Returns a share in percent, with one decimal.
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
