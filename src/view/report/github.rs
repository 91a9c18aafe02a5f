//! The report as a comment on GitHub.

use std::fmt::Write as _;

use super::Report;
use super::markdown::{code, inert, prose, quoted, table};
use super::sections::{names, numbers, tables, title, verdict};
use crate::view::clean;

/// The longest comment, in bytes; GitHub takes 65 536 characters.
const LONGEST: usize = 60_000;

/// What may be said of the task, of the answer, and how many rows each table may have: all of it, and less each time
/// that it does not fit.
const SIZES: [(usize, usize, usize); 5] =
    [(2_000, 30_000, 200), (1_000, 15_000, 60), (500, 6_000, 20), (200, 2_000, 5), (100, 500, 1)];

/// A line by which a later run finds the comment of an earlier one, in order to replace it.
const MARKER: &str = "<!-- architect-report -->";

/// Returns the report as a comment.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut sizes = SIZES.into_iter().map(|size| sized(report, size));
    let fitting = sizes.by_ref().find(|text| text.len() <= LONGEST);
    fitting.unwrap_or_else(|| sized(report, (0, 0, 0)))
}

fn sized(report: &Report<'_>, (task, answer, rows): (usize, usize, usize)) -> String {
    let (sign, word) = verdict(report);
    let mut text = format!("{MARKER}\n### {sign} {}\n\n", inert(&title(report)));
    let _ = writeln!(text, "**{word}** · {}\n", inert(&numbers(report).join(" · ")));
    let _ = writeln!(text, "{}", prose(&clean::cut(&report.result.output, answer)));
    for facts in tables(report) {
        let (title, count) = (facts.title, facts.rows.len());
        let count = if facts.names > 0 { format!(" ({count})") } else { String::new() };
        let _ = writeln!(text, "<details>\n<summary>{title}{count}</summary>\n");
        let _ = writeln!(text, "{}\n</details>\n", table(&facts, rows));
    }
    let _ = writeln!(text, "<details>\n<summary>Task and run</summary>\n");
    let _ = writeln!(text, "{}", quoted(&clean::cut(&report.about.task, task)));
    for (name, value) in names(report) {
        let _ = writeln!(text, "- {name}: {}", code(&value));
    }
    text.push_str("\n</details>\n");
    text
}
