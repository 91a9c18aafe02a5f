//! Readable labels for the chart's names.

use crate::machine::chart::{Chart, ChartTransition};

/// Returns the last part of a path: the name of a state among its siblings.
pub(super) fn local_name(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, name)| name)
}

/// Returns a path as an identifier that is valid in every format.
pub(super) fn identifier(path: &str) -> String {
    path.replace('.', "_")
}

/// Returns the name of an event as words.
pub(super) fn event_label(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}

/// Returns labels for transitions, one line for each event: `tick [time is up | close limit due]`.
pub(super) fn arrow_labels(chart: &Chart, arrows: &[&ChartTransition]) -> Vec<String> {
    let mut events: Vec<(&str, Vec<String>)> = Vec::new();
    for arrow in arrows {
        let guard = guard_label(chart, arrow);
        match events.iter_mut().find(|(event, _)| *event == arrow.event) {
            Some((_, guards)) => guards.extend(guard),
            None => events.push((&arrow.event, guard.into_iter().collect())),
        }
    }
    let label = |(name, guards): &(&str, Vec<String>)| match guards.as_slice() {
        [] => event_label(name),
        guards => format!("{} [{}]", event_label(name), guards.join(" | ")),
    };
    events.iter().map(label).collect()
}

/// Returns the guard of a transition as words. A transition without a guard is taken if no other one is.
fn guard_label(chart: &Chart, arrow: &ChartTransition) -> Option<String> {
    let has_rivals = || {
        let same =
            |other: &&ChartTransition| other.from == arrow.from && other.event == arrow.event;
        chart.transitions.iter().filter(same).count() > 1
    };
    match &arrow.guard {
        Some(name) => Some(split_camel_case(name)),
        None => has_rivals().then(|| "otherwise".to_owned()),
    }
}

/// Returns a name in camel case as words.
fn split_camel_case(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_line_for_each_event_with_its_guards() {
        let chart = Chart::parse(
            r#"{ "id": "c", "initial": "A", "states": { "B": {}, "A": { "on": {
                "TICK": [{ "target": "B", "guard": "timeIsUp" }, { "target": "B" }],
                "STORE_FAILED": { "target": "B" } } } } }"#,
        );
        let chart = chart.unwrap();
        let labels = arrow_labels(&chart, &chart.transitions.iter().collect::<Vec<_>>());
        assert_eq!(labels, ["tick [time is up | otherwise]", "store failed"]);
    }
}
