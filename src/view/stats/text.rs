//! The statistics as tables for a terminal.

use std::fmt::Write as _;

use super::Statistics;
use super::sections::{StatisticsSection, headline, key_figures, sections};
use crate::view::{TERMINAL_WIDTH, in_columns, in_columns_within};

/// Returns the key figures and the tables.
pub(super) fn render(statistics: &Statistics) -> String {
    let mut text = headline(statistics) + "\n";
    if statistics.sessions + statistics.subagents + statistics.evaluations == 0 {
        return text;
    }
    let figures = key_figures(statistics);
    let figures: Vec<_> =
        figures.into_iter().map(|(name, value)| [name.to_owned(), value]).collect();
    text.push('\n');
    text.push_str(&in_columns(&figures, |_| false));
    for section in sections(statistics) {
        let _ = writeln!(text, "\n{}", section.title);
        text.push_str(&table(&section));
    }
    text
}

/// The indentation of a table.
const INDENTATION: &str = "  ";

/// Returns a table. Names are aligned left, numbers right.
fn table(section: &StatisticsSection) -> String {
    let header: Vec<String> = section.header.iter().map(|name| (*name).to_owned()).collect();
    let lines: Vec<&Vec<String>> = [&header].into_iter().chain(&section.rows).collect();
    let width = TERMINAL_WIDTH - INDENTATION.len();
    let table = in_columns_within(width, &lines, |column| column >= section.names);
    table.lines().fold(String::new(), |text, line| text + INDENTATION + line + "\n")
}
