//! The chart as a Graphviz graph.

use std::fmt::Write as _;

use super::labels::{identifier, local_name};
use super::{ArrowGroup, children, group_arrows, stay_labels};
use crate::machine::chart::Chart;

/// The first lines of the graph: its layout, and the style of its nodes and edges.
const HEADER: &str = r#"digraph run {
    compound=true; rankdir=TB; nodesep=0.6; ranksep=0.7;
    node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];
    edge [fontname="Helvetica", fontsize=10];
    start [shape=circle, label="", width=0.2, style=filled, fillcolor=black];
"#;

/// Returns the chart as a Graphviz graph.
pub(super) fn render(chart: &Chart) -> String {
    let mut text = String::from(HEADER);
    write_states(&mut text, chart, "", 1);
    let _ = writeln!(text, "    start -> {};", identifier(chart.initial_leaf(&chart.initial)));
    for group in group_arrows(chart) {
        write_arrow(&mut text, chart, &group);
    }
    for label in stay_labels(chart) {
        let _ = writeln!(text, "    every -> every [label=\"{label}\\l\"];");
    }
    text.push_str("}\n");
    text
}

fn write_states(text: &mut String, chart: &Chart, parent: &str, depth: usize) {
    let indent = "    ".repeat(depth);
    for node in children(chart, parent) {
        let (id, name) = (identifier(&node.path), local_name(&node.path));
        if node.initial.is_some() {
            let _ = writeln!(text, "{indent}subgraph cluster_{id} {{");
            let _ = writeln!(
                text,
                "{indent}    label=\"{name}\"; fontname=\"Helvetica\"; style=\"rounded,filled\"; fillcolor=\"#f3f3f3\";"
            );
            write_states(text, chart, &node.path, depth + 1);
            let _ = writeln!(text, "{indent}}}");
        } else {
            let look = if node.is_final { ", peripheries=2" } else { "" };
            let _ = writeln!(text, "{indent}{id} [label=\"{name}\"{look}];");
        }
    }
    if parent.is_empty() {
        let _ = writeln!(text, "{indent}every [label=\"every state\", shape=plain, style=\"\"];");
    }
}

/// Writes an arrow. An arrow from or to a compound state begins or ends at the border of that state.
fn write_arrow(text: &mut String, chart: &Chart, group: &ArrowGroup<'_>) {
    let is_around = |path: &str| chart.states.iter().any(|n| n.path == path && n.initial.is_some());
    let mut attributes = vec![format!("label=\"{}\"", group.labels(chart).join("\\l") + "\\l")];
    let from = match group.from {
        "" => "every".to_owned(),
        from => identifier(chart.initial_leaf(from)),
    };
    if is_around(group.from) {
        attributes.push(format!("ltail=cluster_{}", identifier(group.from)));
    }
    if is_around(group.to) {
        attributes.push(format!("lhead=cluster_{}", identifier(group.to)));
    }
    let to = identifier(chart.initial_leaf(group.to));
    // The edge back to the start must not turn the graph upside down.
    if group.to == chart.initial {
        attributes.push("constraint=false".to_owned());
    }
    let _ = writeln!(text, "    {from} -> {to} [{}];", attributes.join(", "));
}
