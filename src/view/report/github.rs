//! The report as a comment on GitHub.

use std::fmt::Write as _;

use super::RunReport;
use super::markdown::{code_span, escape, prose, quote, table};
use super::sections::{key_figures, names, outcome, tables, title};
use crate::view::sanitize;

/// The longest comment, in bytes; GitHub takes 65 536 characters.
const MAX_COMMENT: usize = 60_000;

/// The lengths of the task and of the answer, and the rows of each table: all, and less each time that it does not
/// fit.
const SIZES: [(usize, usize, usize); 5] =
    [(2_000, 30_000, 200), (1_000, 15_000, 60), (500, 6_000, 20), (200, 2_000, 5), (100, 500, 1)];

/// Marks the comment, so that a later run can replace it.
const MARKER: &str = "<!-- architect-report -->";

/// Returns the report as a comment.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let mut sizes = SIZES.into_iter().map(|size| render_within(report, size));
    let fitting = sizes.by_ref().find(|text| text.len() <= MAX_COMMENT);
    fitting.unwrap_or_else(|| render_within(report, (0, 0, 0)))
}

fn render_within(report: &RunReport<'_>, (task, answer, rows): (usize, usize, usize)) -> String {
    let (sign, word) = outcome(report);
    let mut text = format!("{MARKER}\n### {sign} {}\n\n", escape(&title(report)));
    let _ = writeln!(text, "**{word}** · {}\n", escape(&key_figures(report).join(" · ")));
    let _ = writeln!(text, "{}", prose(&sanitize::truncate(&report.result.output, answer)));
    for facts in tables(report) {
        let _ = writeln!(text, "<details>\n<summary>{}</summary>\n", facts.heading());
        let _ = writeln!(text, "{}\n</details>\n", table(&facts, rows));
    }
    let _ = writeln!(text, "<details>\n<summary>Task and run</summary>\n");
    let _ = writeln!(text, "{}", quote(&sanitize::truncate(&report.info.task, task)));
    for (name, value) in names(report) {
        let _ = writeln!(text, "- {name}: {}", code_span(&value));
    }
    text.push_str("\n</details>\n");
    text
}
