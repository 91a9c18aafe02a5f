//! Possible pairs of transitions of the chart, and their names.

use architect::machine::StateKind;
use architect::machine::chart::{Chart, ChartTransition};

/// Returns whether the second transition may begin where the first one ends.
pub(crate) fn meet(chart: &Chart, first: &ChartTransition, second: &ChartTransition) -> bool {
    let to = chart.initial_leaf(&first.to);
    to != StateKind::Done.as_str()
        && chart.transitions_for(to, &second.event).any(|arrow| arrow == second)
}

/// Returns why the second transition can't follow the first one. The explorer must not take such a pair.
pub(crate) fn why_impossible(
    first: &ChartTransition,
    second: &ChartTransition,
) -> Option<&'static str> {
    let guard = |arrow: &ChartTransition, names: &[&str]| {
        arrow.guard.as_deref().is_some_and(|guard| names.contains(&guard))
    };
    let compacts = first.from.starts_with("Compacting") && first.to == "Preparing"
        || guard(first, &["overflowTrimmed", "contextTooFull"]);
    if compacts && guard(second, &["contextOverThreshold", "contextTooFull"]) {
        Some("another compaction needs an accepted reply in between")
    } else if guard(first, &["hasCalls"]) && ["SETTLED", "CHARGED"].contains(&&*second.event) {
        Some("no call runs yet")
    } else if (guard(first, &["callApproved"]) || first.event == "CHARGED")
        && second.event == "VETTED"
        && guard(second, &["lastCall", "lastCallTooManyInvalid"])
    {
        Some("another call is running")
    } else if guard(first, &["toolTimeoutDue"]) && guard(second, &["lastCallTooManyInvalid"]) {
        Some("a call that timed out isn't an invalid one")
    } else {
        None
    }
}

pub(crate) fn label(arrow: &ChartTransition) -> String {
    let from = if arrow.from.is_empty() { "every state" } else { &arrow.from };
    format!("{from}: {} to {}", short_label(arrow), arrow.to)
}

pub(crate) fn short_label(arrow: &ChartTransition) -> String {
    match &arrow.guard {
        Some(guard) => format!("{} {guard}", arrow.event),
        None => arrow.event.clone(),
    }
}
