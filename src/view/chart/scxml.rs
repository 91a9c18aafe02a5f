//! The chart as State Chart XML, the W3C's exchange format.

use std::fmt::Write as _;

use super::children;
use super::labels::identifier;
use crate::machine::chart::Chart;

/// Returns the chart as State Chart XML.
///
/// A guard is a call of the function of that name, which the interpreter of the document has to supply. Since the root
/// may not have transitions, its transitions are written in a state around all states that are not final.
pub(super) fn render(chart: &Chart) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let id = escape(&chart.id);
    let _ = writeln!(
        xml,
        "<scxml xmlns=\"http://www.w3.org/2005/07/scxml\" version=\"1.0\" datamodel=\"ecmascript\" name=\"{id}\" initial=\"{id}\">"
    );
    write_comment(&mut xml, "  ", &chart.description);
    let _ = writeln!(xml, "  <state id=\"{id}\" initial=\"{}\">", escape(&chart.initial));
    write_inside(&mut xml, chart, "", "    ");
    xml.push_str("  </state>\n");
    for node in children(chart, "").filter(|node| node.is_final) {
        write_comment(&mut xml, "  ", &node.description);
        let _ = writeln!(xml, "  <final id=\"{}\"/>", identifier(&node.path));
    }
    xml.push_str("</scxml>\n");
    xml
}

/// Writes the transitions of a state, in the order in which they are tried, and its child states.
fn write_inside(xml: &mut String, chart: &Chart, parent: &str, indent: &str) {
    for arrow in chart.transitions.iter().filter(|arrow| arrow.from == parent) {
        let guard = arrow.guard.as_deref().map(|guard| format!(" cond=\"{}()\"", escape(guard)));
        let (event, guard) = (escape(&arrow.event), guard.unwrap_or_default());
        let target = identifier(&arrow.to);
        let _ = writeln!(xml, "{indent}<transition event=\"{event}\"{guard} target=\"{target}\"/>");
    }
    for node in children(chart, parent).filter(|node| !node.is_final) {
        let initial = node.initial.as_deref().map(identifier);
        let initial = initial.map(|initial| format!(" initial=\"{initial}\""));
        let (id, initial) = (identifier(&node.path), initial.unwrap_or_default());
        write_comment(xml, indent, &node.description);
        let _ = writeln!(xml, "{indent}<state id=\"{id}\"{initial}>");
        write_inside(xml, chart, &node.path, &format!("{indent}  "));
        let _ = writeln!(xml, "{indent}</state>");
    }
}

fn write_comment(xml: &mut String, indent: &str, text: &str) {
    if !text.is_empty() {
        // Two hyphens would end the comment.
        let _ = writeln!(xml, "{indent}<!-- {} -->", text.replace("--", "- -"));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
