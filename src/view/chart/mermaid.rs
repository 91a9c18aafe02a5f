//! The chart as a Mermaid state diagram: whole, or as an overview.

use std::fmt::Write as _;

use super::words::{event, id, name};
use super::{bundles, children};
use crate::machine::chart::Chart;

/// Returns the whole chart.
pub(super) fn draw(chart: &Chart) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let _ = writeln!(text, "    [*] --> {}", id(&chart.initial));
    states(&mut text, chart, "", 1);
    let bundles = bundles(chart);
    for bundle in bundles.iter().filter(|bundle| !bundle.from.is_empty()) {
        arrow(&mut text, bundle.from, bundle.to, &bundle.labels(chart));
    }
    ends(&mut text, chart);
    for bundle in bundles.iter().filter(|bundle| bundle.from.is_empty()) {
        everywhere(&mut text, bundle.to, &bundle.labels(chart));
    }
    text
}

/// Returns the states at the top and the events that lead from one to another, without their guards.
pub(super) fn overview(chart: &Chart) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let _ = writeln!(text, "    [*] --> {}", id(top(&chart.initial)));
    let mut ways: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for arrow in &chart.arrows {
        let (from, to, event) = (top(&arrow.from), top(&arrow.to), event(&arrow.event));
        match ways.iter_mut().find(|way| (way.0, way.1) == (from, to)) {
            _ if from == to => {}
            Some((.., events)) if events.contains(&event) => {}
            Some((.., events)) => events.push(event),
            None => ways.push((from, to, vec![event])),
        }
    }
    for (from, to, events) in ways.iter().filter(|(from, ..)| !from.is_empty()) {
        arrow(&mut text, from, to, &[events.join(", ")]);
    }
    ends(&mut text, chart);
    for (_, to, events) in ways.iter().filter(|(from, ..)| from.is_empty()) {
        everywhere(&mut text, to, events);
    }
    text
}

fn states(text: &mut String, chart: &Chart, parent: &str, depth: usize) {
    let indent = "    ".repeat(depth);
    for node in children(chart, parent) {
        let (id, name) = (id(&node.path), name(&node.path));
        match &node.initial {
            None if parent.is_empty() => {
                let _ = writeln!(text, "{indent}{id}");
            }
            None => {
                let _ = writeln!(text, "{indent}state \"{name}\" as {id}");
            }
            Some(initial) => {
                let _ = writeln!(text, "{indent}state {id} {{");
                let _ = writeln!(text, "{indent}    [*] --> {}", self::id(initial));
                states(text, chart, &node.path, depth + 1);
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

fn arrow(text: &mut String, from: &str, to: &str, labels: &[String]) {
    let _ = writeln!(text, "    {} --> {}: {}", id(from), id(to), labels.join("<br/>"));
}

fn ends(text: &mut String, chart: &Chart) {
    for node in chart.nodes.iter().filter(|node| node.is_final) {
        let _ = writeln!(text, "    {} --> [*]", id(&node.path));
    }
}

/// What leads to a state from every other one would be an arrow from each; it is a note.
fn everywhere(text: &mut String, to: &str, labels: &[String]) {
    let _ = writeln!(text, "    note right of {}", id(to));
    let _ = writeln!(text, "        from every state on");
    let _ = writeln!(text, "        {}", labels.join(", "));
    let _ = writeln!(text, "    end note");
}

/// Returns the outermost state of a path.
fn top(path: &str) -> &str {
    path.split_once('.').map_or(path, |(top, _)| top)
}
