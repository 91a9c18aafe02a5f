//! The chart as State Chart XML, the W3C's exchange format.

use std::fmt::Write as _;

use super::children;
use super::labels::identifier;
use crate::machine::chart::Chart;

/// Returns the chart as State Chart XML.
///
/// A guard is a call of a function with its name, which the interpreter of the document has to supply. The
/// transitions of the root are written in a state around all states that are not final, since the root may not have
/// transitions.
pub(super) fn render(chart: &Chart) -> String {
    let mut xml = XmlWriter(String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"), 0);
    let root = [
        ("xmlns", "http://www.w3.org/2005/07/scxml"),
        ("version", "1.0"),
        ("datamodel", "ecmascript"),
        ("name", &chart.id),
        ("initial", &chart.id),
    ];
    xml.element("scxml", &root, |xml| {
        xml.comment(&chart.description);
        let attributes = [("id", chart.id.as_str()), ("initial", chart.initial.as_str())];
        xml.element("state", &attributes, |xml| {
            write_arrows(xml, chart, "");
            write_states(xml, chart, "");
        });
        for node in children(chart, "").filter(|node| node.is_final) {
            xml.comment(&node.description);
            xml.empty_element("final", &[("id", &identifier(&node.path))]);
        }
    });
    xml.0
}

fn write_states(xml: &mut XmlWriter, chart: &Chart, parent: &str) {
    for node in children(chart, parent).filter(|node| !node.is_final) {
        let (id, initial) = (identifier(&node.path), node.initial.as_deref().map(identifier));
        let mut attributes = vec![("id", id.as_str())];
        attributes.extend(initial.as_deref().map(|initial| ("initial", initial)));
        xml.comment(&node.description);
        xml.element("state", &attributes, |xml| {
            write_arrows(xml, chart, &node.path);
            write_states(xml, chart, &node.path);
        });
    }
}

/// The transitions of a state, in the order in which they are tried.
fn write_arrows(xml: &mut XmlWriter, chart: &Chart, from: &str) {
    for arrow in chart.transitions.iter().filter(|arrow| arrow.from == from) {
        let (cond, to) =
            (arrow.guard.as_deref().map(|guard| format!("{guard}()")), identifier(&arrow.to));
        let mut attributes = vec![("event", arrow.event.as_str())];
        attributes.extend(cond.as_deref().map(|cond| ("cond", cond)));
        attributes.push(("target", &to));
        xml.empty_element("transition", &attributes);
    }
}

/// Writes XML from top to bottom; every element is closed by construction.
struct XmlWriter(String, usize);

impl XmlWriter {
    fn element(&mut self, name: &str, attributes: &[(&str, &str)], inside: impl FnOnce(&mut Self)) {
        self.tag(name, attributes, ">");
        self.1 += 1;
        inside(self);
        self.1 -= 1;
        let _ = writeln!(self.0, "{}</{name}>", "  ".repeat(self.1));
    }

    fn empty_element(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.tag(name, attributes, "/>");
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        let _ = write!(self.0, "{}<{name}", "  ".repeat(self.1));
        for (name, value) in attributes {
            let _ = write!(self.0, " {name}=\"{}\"", escape(value));
        }
        let _ = writeln!(self.0, "{end}");
    }

    fn comment(&mut self, text: &str) {
        if !text.is_empty() {
            // Two hyphens would end the comment.
            let text = text.replace("--", "- -");
            let _ = writeln!(self.0, "{}<!-- {text} -->", "  ".repeat(self.1));
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
