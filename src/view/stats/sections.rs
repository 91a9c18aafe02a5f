//! The tables of the statistics, as text.

use super::{Ranks, Statistics, StepTotal, rate};
use crate::types::{TimeSpan, pluralize};
use crate::view::sanitize;

/// A table, with its bars on a page.
pub(super) struct StatisticsSection {
    pub(super) title: &'static str,
    pub(super) header: Vec<&'static str>,
    /// The cells. The first ones of a row are names, the others numbers.
    pub(super) rows: Vec<Vec<String>>,
    /// The number of columns with names.
    pub(super) names: usize,
    /// The caption and the bars of the plot, if there is one.
    pub(super) plot: Option<(&'static str, Vec<PlotBar>)>,
}

/// A bar of a plot.
pub(super) struct PlotBar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The value as text.
    pub(super) text: String,
}

/// Length limit of a name, in characters.
const MAX_NAME: usize = 40;

/// The first and the last step of each row in the table of steps.
const STEP_RANGES: [(u64, u64); 8] =
    [(1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, 20), (21, 50), (51, u64::MAX)];

/// The number of steps in the plot.
const PLOTTED_STEPS: u64 = 50;

/// Returns the line above the tables.
pub(super) fn headline(statistics: &Statistics) -> String {
    let mut line = pluralize(statistics.sessions, "session", "sessions");
    if let Some(since) = &statistics.since {
        line.push_str(&format!(" created since {since}"));
    }
    if statistics.subagents > 0 {
        line.push_str(&format!(", {} of sub-agents", statistics.subagents));
    }
    if statistics.evaluations > 0 {
        line.push_str(&format!(
            ", {}",
            pluralize(statistics.evaluations, "evaluation", "evaluations")
        ));
    }
    line
}

/// Returns the key figures, each with its name.
pub(super) fn key_figures(statistics: &Statistics) -> Vec<(&'static str, String)> {
    let tokens = format!(
        "{} in, {} of them cached, {} out",
        statistics.input_tokens, statistics.cached_input_tokens, statistics.output_tokens
    );
    vec![
        ("model calls", statistics.llm_calls.to_string()),
        ("tokens", tokens),
        ("cost", dollars(statistics.cost)),
        ("cost per step", dollars(statistics.cost_per_step)),
        ("cache hit rate", percent(statistics.cache_hit_rate)),
        ("failed model calls", statistics.failed_calls.to_string()),
        ("retries", statistics.retries.to_string()),
        ("tool calls", statistics.tool_calls.to_string()),
        ("tool failure rate", percent(statistics.tool_failure_rate)),
        ("denials", statistics.denials.to_string()),
    ]
}

/// Returns the tables with rows.
pub(super) fn sections(statistics: &Statistics) -> Vec<StatisticsSection> {
    let mut all = vec![
        outcomes(statistics),
        states(statistics),
        models(statistics),
        steps(statistics),
        tools(statistics),
        failures(statistics),
        percentiles(statistics),
    ];
    all.retain(|section| !section.rows.is_empty());
    all
}

#[allow(clippy::cast_precision_loss)] // counts far below 2^53
fn outcomes(statistics: &Statistics) -> StatisticsSection {
    let whole: u64 = statistics.outcomes.iter().map(|outcome| outcome.sessions).sum();
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for outcome in &statistics.outcomes {
        let reason = outcome.stop_reason.clone().unwrap_or_else(|| "-".to_owned());
        let share = percent(rate(outcome.sessions, whole));
        let label = match &outcome.stop_reason {
            Some(reason) => name(reason),
            None => name(&outcome.status),
        };
        let text = format!("{} ({share})", outcome.sessions);
        bars.push(PlotBar { label, value: outcome.sessions as f64, text });
        rows.push(vec![name(&outcome.status), name(&reason), outcome.sessions.to_string(), share]);
    }
    StatisticsSection {
        title: "Outcomes",
        header: vec!["status", "stop reason", "sessions", "share"],
        rows,
        names: 2,
        plot: Some(("Sessions by stop reason", bars)),
    }
}

fn states(statistics: &Statistics) -> StatisticsSection {
    let whole: f64 = statistics.states.iter().map(|state| state.time_ms).sum();
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for state in &statistics.states {
        let share = percent((whole > 0.0).then(|| state.time_ms / whole));
        let time = millis(Some(state.time_ms));
        bars.push(PlotBar {
            label: state.state.clone(),
            value: state.time_ms,
            text: format!("{time} ({share})"),
        });
        rows.push(vec![state.state.clone(), state.visits.to_string(), time, share]);
    }
    StatisticsSection {
        title: "Time by state",
        header: vec!["state", "visits", "time", "share"],
        rows,
        names: 1,
        plot: Some(("Time by state", bars)),
    }
}

#[allow(clippy::cast_precision_loss)] // counts far below 2^53
fn models(statistics: &Statistics) -> StatisticsSection {
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for model in &statistics.models {
        let per = |count: u64| match count {
            0 => None,
            count => model.cost.map(|cost| cost / count as f64),
        };
        let label = name(&model.model);
        if let Some(value) = model.cost {
            bars.push(PlotBar { label: label.clone(), value, text: dollars(Some(value)) });
        }
        rows.push(vec![
            label,
            model.llm_calls.to_string(),
            model.failures.to_string(),
            model.retries.to_string(),
            model.input_tokens.to_string(),
            percent(rate(model.cached_input_tokens, model.input_tokens)),
            model.output_tokens.to_string(),
            dollars(model.cost),
            model.steps.to_string(),
            dollars(per(model.steps)),
        ]);
    }
    StatisticsSection {
        title: "Models",
        header: vec![
            "model", "calls", "failed", "retries", "input", "cached", "output", "cost", "steps",
            "per step",
        ],
        rows,
        names: 1,
        plot: Some(("Cost by model", bars)),
    }
}

#[allow(clippy::cast_precision_loss)] // counts far below 2^53
fn steps(statistics: &Statistics) -> StatisticsSection {
    let mean = |cost: Option<f64>, calls: u64| cost.map(|cost| cost / calls.max(1) as f64);
    let mut rows = Vec::new();
    for (first, last) in STEP_RANGES {
        let within = |total: &&StepTotal| (first..=last).contains(&total.step);
        let totals: Vec<_> = statistics.step_costs.iter().filter(within).collect();
        if totals.is_empty() {
            continue;
        }
        let sum = |part: fn(&StepTotal) -> u64| totals.iter().map(|total| part(total)).sum::<u64>();
        let cost = totals.iter().filter_map(|total| total.cost).reduce(|sum, cost| sum + cost);
        let (calls, input) = (sum(|total| total.llm_calls), sum(|total| total.input_tokens));
        let range = match last {
            _ if first == last => first.to_string(),
            u64::MAX => format!("{first}–"),
            last => format!("{first}–{last}"),
        };
        rows.push(vec![
            range,
            calls.to_string(),
            (input / calls.max(1)).to_string(),
            percent(rate(sum(|total| total.cached_input_tokens), input)),
            (sum(|total| total.output_tokens) / calls.max(1)).to_string(),
            dollars(mean(cost, calls)),
        ]);
    }
    let plotted = statistics.step_costs.iter().filter(|total| total.step <= PLOTTED_STEPS);
    let bars = plotted.filter_map(|total| {
        let value = mean(total.cost, total.llm_calls)?;
        let label = format!("step {}", total.step);
        Some(PlotBar { label, value, text: dollars(Some(value)) })
    });
    StatisticsSection {
        title: "Steps",
        header: vec!["step", "calls", "mean input", "cached", "mean output", "mean cost"],
        rows,
        names: 1,
        plot: Some(("Mean cost of a step, by its number in its session", bars.collect())),
    }
}

#[allow(clippy::cast_precision_loss)] // counts far below 2^53
fn tools(statistics: &Statistics) -> StatisticsSection {
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for tool in &statistics.tools {
        let failure_rate = rate(tool.failed, tool.calls);
        bars.push(PlotBar {
            label: name(&tool.name),
            value: tool.failed as f64,
            text: format!("{} of {} ({})", tool.failed, tool.calls, percent(failure_rate)),
        });
        let counts =
            [tool.calls, tool.ok, tool.failed, tool.denied, tool.invalid, tool.interrupted];
        let mut row = vec![name(&tool.name)];
        row.extend(counts.map(|count| count.to_string()));
        row.push(percent(failure_rate));
        let Ranks { p50, p90, p99, .. } = tool.time_ms;
        row.extend([p50, p90, p99].map(millis));
        rows.push(row);
    }
    StatisticsSection {
        title: "Tools",
        header: vec![
            "tool", "calls", "ok", "failed", "denied", "invalid", "cut off", "rate", "p50", "p90",
            "p99",
        ],
        rows,
        names: 1,
        plot: Some(("Failed calls by tool", bars)),
    }
}

fn failures(statistics: &Statistics) -> StatisticsSection {
    let row = |failure: &super::FailureCount| vec![name(&failure.kind), failure.count.to_string()];
    StatisticsSection {
        title: "Failed model calls",
        header: vec!["kind", "calls"],
        rows: statistics.failures.iter().map(row).collect(),
        names: 1,
        plot: None,
    }
}

fn percentiles(statistics: &Statistics) -> StatisticsSection {
    let rows = statistics.percentiles.iter().map(|row| {
        let (what, value): (_, fn(Option<f64>) -> String) =
            match (row.measure.strip_suffix("_ms"), &*row.measure) {
                (Some(what), _) => (what, millis),
                (None, "session_cost") => ("session_cost", dollars),
                (None, what) => {
                    (what, |value| value.map_or("-".to_owned(), |it| format!("{it:.0}")))
                }
            };
        let what = what.replace('_', " ").replace("llm call", "model call");
        let Ranks { p50, p90, p99, max } = row.ranks;
        let mut cells = vec![what, row.count.to_string()];
        cells.extend([p50, p90, p99, max].map(value));
        cells
    });
    StatisticsSection {
        title: "Percentiles",
        header: vec!["measure", "values", "p50", "p90", "p99", "max"],
        rows: rows.collect(),
        names: 1,
        plot: None,
    }
}

fn name(text: &str) -> String {
    sanitize::headline(text, MAX_NAME)
}

fn dollars(amount: Option<f64>) -> String {
    amount.map_or_else(
        || "-".to_owned(),
        |amount| if amount < 10.0 { format!("${amount:.4}") } else { format!("${amount:.2}") },
    )
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
fn millis(millis: Option<f64>) -> String {
    millis.map_or_else(|| "-".to_owned(), |millis| TimeSpan((millis * 1000.0) as u64).to_string())
}
