//! The trace as a self-contained HTML page.

use maud::{Markup, html};

use super::messages::Speaker;
use super::phase::TracePhase;
use super::time_account::add;
use super::time_table::{percent_of_time, time_rows};
use super::turn::turns;
use super::usage_chart::percent;
use super::waterfall::{self, css_class};
use super::{StepChange, Trace, chart, usage_chart};
use crate::machine::{RunStatus, StopReason};
use crate::types::{MessageOrigin, TimeSpan, pluralize};
use crate::view::page::{PageFrame, facts, file_change, section, step_changes};
use crate::view::sanitize;

/// Length limit of the heading, in characters. The whole text is in the first step.
const MAX_HEADING: usize = 140;

/// Returns the page.
pub(super) fn render(trace: &Trace) -> String {
    let subject = &trace.subject;
    let end = match trace.stop_reason {
        Some(reason) => format!("{} ({reason})", reason.status().as_str()),
        None => format!("in state {}", trace.state.as_str()),
    };
    let key_figures = [
        trace.duration.to_string(),
        pluralize(trace.steps, "step", "steps"),
        pluralize(trace.llm_calls, "model call", "model calls"),
        pluralize(trace.tokens.0, "token", "tokens"),
    ];
    let frame = PageFrame {
        title: &format!("Trace of {}", sanitize::headline(&subject.session_id, MAX_HEADING)),
        heading: &task(trace)
            .unwrap_or_else(|| sanitize::headline(&subject.session_id, MAX_HEADING)),
        style: include_str!("trace.css"),
        script: Some(include_str!("trace.js")),
        status: trace.stop_reason.map_or(RunStatus::Partial, StopReason::status),
        outcome: &end,
        key_figures: &key_figures,
        facts: &[],
    };
    let (turns, unplaced) = turns(trace);
    let edges = html! { div.wide { (chart::render(trace)) } (edge_list(trace)) };
    frame.render(&html! {
        div.subject { (facts(&subject_facts(trace))) }
        section aria-label="Steps" { (waterfall::render(trace, &turns)) }
        @if !trace.changes.is_empty() {
            (section(format!("Changes ({})", trace.changes.len()), &changes(trace, &unplaced)))
        }
        (section("Time by state", &time_section(trace)))
        (section("Statechart", &edges))
        @if let Some(usage) = usage_chart::render(trace) { (section("Tokens and cost", &usage)) }
    })
}

fn subject_facts(trace: &Trace) -> Vec<(&'static str, String)> {
    let subject = &trace.subject;
    let subagents = trace.subagents.iter().filter_map(|call| call.usage.cost);
    let cost = match (trace.cost, subagents.reduce(|sum, cost| sum + cost)) {
        (Some(cost), Some(part)) => format!("{cost} ({part} by sub-agents)"),
        (Some(cost), None) => cost.to_string(),
        (None, _) => "unknown: the model has no price".to_owned(),
    };
    let facts = [
        ("Session", &*subject.session_id),
        ("Model", &subject.model),
        ("Folder", &subject.workspace),
        ("Cost", &cost),
        ("Agent", &subject.agent),
        ("Created", &subject.created),
        ("Program", &subject.program),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    facts.map(|(name, value)| (name, sanitize::headline(value, MAX_HEADING))).collect()
}

/// Returns the changed files, each with its step, and the patches that no step shows.
fn changes(trace: &Trace, unplaced: &[&StepChange]) -> Markup {
    let is_placed = |change: &StepChange| !unplaced.iter().any(|other| other.step == change.step);
    let unplaced: Vec<StepChange> = unplaced.iter().copied().cloned().collect();
    html! {
        ul.edges {
            @for change in trace.changes.iter().filter(|change| is_placed(change)) {
                li { (file_change(change)) " " a href={ "#step-" (change.step) } { "step " (change.step) } }
            }
        }
        (step_changes(&unplaced))
    }
}

fn task(trace: &Trace) -> Option<String> {
    trace.messages.iter().find_map(|message| match message.speaker {
        Speaker::User { origin: MessageOrigin::Task } => {
            Some(sanitize::headline(&message.text, MAX_HEADING))
        }
        _ => None,
    })
}

/// Returns the whole time as one bar, with the time of each state below it.
fn time_section(trace: &Trace) -> Markup {
    let times = || trace.states.iter().flat_map(|state| &state.phases);
    let time_of = |phase: TracePhase| {
        let times = times().filter(|time| time.phase == phase);
        (phase, times.fold(TimeSpan::ZERO, |sum, time| add(sum, time.time)))
    };
    let mut sums = TracePhase::ALL.map(time_of).to_vec();
    sums.retain(|(_, time)| *time > TimeSpan::ZERO);
    let share = |time| percent_of_time(time, trace.duration);
    html! {
        div.stack {
            @for (phase, time) in &sums {
                i class=(css_class(*phase)) style={ "width:" (percent(time.0, trace.duration.0)) "%" }
                    title={ (phase.name()) ": " (time) } {}
            }
        }
        p.legend {
            @for (phase, time) in &sums {
                span { b class=(css_class(*phase)) {} (phase.name()) " " (share(*time)) } " "
            }
        }
        div.wide {
            table {
                thead { tr { th { "State" } th { "Visits" } th { "Time" } th { "Share" } } }
                tbody {
                    @for (phase, [name, visits, time, share]) in time_rows(trace) {
                        tr class=[phase.is_none().then_some("sum")] {
                            td { @if let Some(phase) = phase { b class=(css_class(phase)) {} } (name) }
                            td { (visits) } td { (time) } td { (share) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the transitions as a folded list.
fn edge_list(trace: &Trace) -> Markup {
    html! {
        details {
            summary { "All transitions, with their events" }
            ul.edges {
                @for edge in &trace.edges {
                    li {
                        (edge.from.as_str()) " → " (edge.to.as_str()) " " code { (edge.event) } " "
                        (edge.count) "×"
                    }
                }
            }
        }
    }
}
