//! The chart as a Mermaid state diagram: whole, or as an overview.

use std::fmt::Write as _;

use super::labels::{event_label, identifier, local_name};
use super::{children, group_arrows, stay_labels};
use crate::machine::chart::Chart;

/// Returns the whole chart.
pub(super) fn render(chart: &Chart) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let _ = writeln!(text, "    [*] --> {}", identifier(&chart.initial));
    write_states(&mut text, chart, "", 1);
    let groups = group_arrows(chart);
    for group in groups.iter().filter(|group| !group.from.is_empty()) {
        write_arrow(&mut text, group.from, group.to, &group.labels(chart));
    }
    write_final_states(&mut text, chart);
    for group in groups.iter().filter(|group| group.from.is_empty()) {
        write_note(&mut text, group.to, &group.labels(chart));
    }
    write_stays(&mut text, chart);
    text
}

/// Returns the top-level states and the events between them, without guards.
pub(super) fn overview(chart: &Chart) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let _ = writeln!(text, "    [*] --> {}", identifier(outermost(&chart.initial)));
    let mut ways: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for arrow in &chart.transitions {
        let (from, to, event) =
            (outermost(&arrow.from), outermost(&arrow.to), event_label(&arrow.event));
        match ways.iter_mut().find(|way| (way.0, way.1) == (from, to)) {
            _ if from == to => {}
            Some((.., events)) if events.contains(&event) => {}
            Some((.., events)) => events.push(event),
            None => ways.push((from, to, vec![event])),
        }
    }
    for (from, to, events) in ways.iter().filter(|(from, ..)| !from.is_empty()) {
        write_arrow(&mut text, from, to, &[events.join(", ")]);
    }
    write_final_states(&mut text, chart);
    for (_, to, events) in ways.iter().filter(|(from, ..)| from.is_empty()) {
        write_note(&mut text, to, events);
    }
    write_stays(&mut text, chart);
    text
}

fn write_states(text: &mut String, chart: &Chart, parent: &str, depth: usize) {
    let indent = "    ".repeat(depth);
    for node in children(chart, parent) {
        let (id, name) = (identifier(&node.path), local_name(&node.path));
        match &node.initial {
            None if parent.is_empty() => text.push_str(&format!("{indent}{id}\n")),
            None => text.push_str(&format!("{indent}state \"{name}\" as {id}\n")),
            Some(initial) => {
                let initial = identifier(initial);
                let _ = writeln!(text, "{indent}state {id} {{\n{indent}    [*] --> {initial}");
                write_states(text, chart, &node.path, depth + 1);
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

fn write_arrow(text: &mut String, from: &str, to: &str, labels: &[String]) {
    let _ =
        writeln!(text, "    {} --> {}: {}", identifier(from), identifier(to), labels.join("<br/>"));
}

fn write_final_states(text: &mut String, chart: &Chart) {
    for node in chart.states.iter().filter(|node| node.is_final) {
        let _ = writeln!(text, "    {} --> [*]", identifier(&node.path));
    }
}

/// Writes a transition from every state as a note, instead of an arrow from each state.
fn write_note(text: &mut String, to: &str, labels: &[String]) {
    let _ = writeln!(text, "    note right of {}", identifier(to));
    let _ = writeln!(text, "        from every state on");
    let _ = writeln!(text, "        {}", labels.join(", "));
    let _ = writeln!(text, "    end note");
}

/// Writes a note about the events that leave every state unchanged.
fn write_stays(text: &mut String, chart: &Chart) {
    let labels = stay_labels(chart);
    if !labels.is_empty() {
        let _ = writeln!(text, "    note left of {}", identifier(outermost(&chart.initial)));
        let _ = writeln!(text, "        every state stays on");
        let _ = writeln!(text, "        {}", labels.join(", "));
        let _ = writeln!(text, "    end note");
    }
}

/// Returns the outermost state of a path.
fn outermost(path: &str) -> &str {
    path.split_once('.').map_or(path, |(top, _)| top)
}
