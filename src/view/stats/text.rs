//! The statistics as tables for a terminal.

use std::fmt::Write as _;

use super::Statistics;
use super::sections::{StatisticsSection, headline, key_figures, sections};

/// Returns the key figures and the tables.
pub(super) fn render(statistics: &Statistics) -> String {
    let mut text = headline(statistics) + "\n";
    if statistics.sessions + statistics.subagents + statistics.evaluations == 0 {
        return text;
    }
    let figures = key_figures(statistics);
    let width = figures.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    text.push('\n');
    for (name, value) in figures {
        let _ = writeln!(text, "{name:<width$}  {value}");
    }
    for section in sections(statistics) {
        let _ = writeln!(text, "\n{}", section.title);
        text.push_str(&table(&section));
    }
    text
}

/// Returns a table; names are aligned left, numbers right.
fn table(section: &StatisticsSection) -> String {
    let header: Vec<String> = section.header.iter().map(|name| (*name).to_owned()).collect();
    let lines: Vec<&Vec<String>> = [&header].into_iter().chain(&section.rows).collect();
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells =
            line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                match column < section.names {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                }
            });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
