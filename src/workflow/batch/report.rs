//! The report of a batch: totals, variants with confidence intervals, paired differences, and all cells.

use std::collections::BTreeMap;
use std::io::{self, Write};

use maud::{PreEscaped, html};
use serde::Serialize;
use serde_json::{Value, json};

use super::comparison::Comparison;
use super::folder::{BatchFileError, BatchFolder};
use super::results::{BatchResults, CellFigures, CellRow, CellStatus, ChangeEvaluation};
use super::statistics::Estimate;
use crate::machine::RunStatus;
use crate::types::pluralize;
use crate::view::report::{ReportTable, TableReport, TableRow};
use crate::view::sanitize;
use crate::view::sanitize::xml_text;

/// The report of a batch.
#[derive(Debug)]
pub struct BatchReport {
    /// A readable name.
    pub name: String,
    /// The folder.
    pub folder: String,
    /// The results of all cells.
    pub results: BatchResults,
    /// The spent budget in dollars. It exceeds the sum of the cells if some were tried again.
    pub spent: f64,
    /// The exit code of the command.
    pub exit_code: u8,
    /// The comparison, if the variants of one task were compared.
    pub comparison: Option<Comparison>,
}

/// The summary of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct VariantSummary {
    variant: Option<String>,
    cells: usize,
    finished: usize,
    succeeded: usize,
    checks_passed: usize,
    checks_failed: usize,
    success_rate: Option<Estimate>,
    cost: Option<Estimate>,
    duration_seconds: Option<Estimate>,
    tokens: Option<Estimate>,
}

/// Mean differences between a variant and the first one, over the tasks that both have finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PairedDifference {
    variant: String,
    to: String,
    tasks: usize,
    /// Number of tasks in which only this variant succeeded.
    better: usize,
    /// Number of tasks in which only the first variant succeeded.
    worse: usize,
    success_rate: Option<Estimate>,
    cost: Option<Estimate>,
    duration_seconds: Option<Estimate>,
    tokens: Option<Estimate>,
}

/// Returns a figure of a cell; `None` if it is unknown.
type CellNumber = fn(&CellFigures) -> Option<f64>;

#[allow(clippy::unnecessary_wraps)] // a CellNumber
fn success(cell: &CellFigures) -> Option<f64> {
    Some(if cell.status == CellStatus::Success { 1.0 } else { 0.0 })
}

fn cost(cell: &CellFigures) -> Option<f64> {
    cell.cost
}

#[allow(clippy::unnecessary_wraps)] // a CellNumber
fn duration(cell: &CellFigures) -> Option<f64> {
    Some(cell.duration_seconds)
}

#[allow(clippy::cast_precision_loss, clippy::unnecessary_wraps)] // exact up to 2^53; a CellNumber
fn tokens(cell: &CellFigures) -> Option<f64> {
    Some(cell.tokens as f64)
}

/// The columns of the table of cells.
const COLUMNS: &[&str] =
    &["Cell", "Status", "Reason", "Checks", "Changes", "Cost", "Time", "Error"];

/// The columns if changes were evaluated.
const EVALUATED_COLUMNS: &[&str] =
    &["Cell", "Status", "Reason", "Checks", "Changes", "Cost", "Time", "Error", "Evaluation"];

/// The placeholder for the test cases in the report for build servers.
const CASES_MARK: &str = "<!-- cases -->";

impl BatchReport {
    fn count(&self, status: CellStatus) -> usize {
        self.results.figures.iter().filter(|cell| cell.status == status).count()
    }

    /// Returns the number of cells by status, in a line.
    pub fn totals(&self) -> String {
        let mut parts = vec![format!("{} succeeded", self.count(CellStatus::Success))];
        for status in [CellStatus::Partial, CellStatus::Failed, CellStatus::Unfinished] {
            match self.count(status) {
                0 => {}
                count => parts.push(format!("{count} {status}")),
            }
        }
        format!("{}: {}", pluralize(self.results.cells.len(), "cell", "cells"), parts.join(", "))
    }

    /// Returns the sum of the known values; `None` if all are unknown.
    fn total(&self, number: CellNumber) -> Option<f64> {
        self.results.figures.iter().filter_map(number).reduce(|sum, one| sum + one)
    }

    /// Returns the cost of the cells as text.
    pub fn cost_text(&self) -> String {
        // Unfinished cells have no result, but may have spent something; evaluations of changes are not a cost of their
        // cells.
        let is_unfinished = self.count(CellStatus::Unfinished) > 0;
        let has_more = (is_unfinished || self.has_evaluations()) && self.spent > 0.0;
        let known = [self.total(cost), has_more.then_some(self.spent)];
        let cost = known.into_iter().flatten().reduce(f64::max);
        cost.map_or("no price".to_owned(), |cost| format!("${cost:.6}"))
    }

    fn has_evaluations(&self) -> bool {
        self.results.figures.iter().any(|cell| cell.is_evaluated)
    }

    /// Returns the report as JSON, without the cells.
    pub fn summary(&self) -> Value {
        let is_success = self.exit_code == 0;
        let mut summary = json!({
            "schema": 1,
            "name": self.name,
            "folder": self.folder,
            "status": if is_success { RunStatus::Success } else { RunStatus::Partial },
            "exit_code": self.exit_code,
            "cells": self.results.cells.len(),
            "succeeded": self.count(CellStatus::Success),
            "partial": self.count(CellStatus::Partial),
            "failed": self.count(CellStatus::Failed),
            "unfinished": self.count(CellStatus::Unfinished),
            "cost": self.total(cost).map(round),
            "spent": self.spent,
            "duration_seconds": round(self.total(duration).unwrap_or_default()),
            "tokens": self.tokens(),
            "variants": self.variants(),
            "differences": self.differences(),
        });
        if let Some(comparison) = &self.comparison {
            summary["commit"] = json!(comparison.commit);
            summary["winner"] = json!(comparison.winner().map(|one| &one.variant));
            summary["winner_by"] = json!(comparison.winner().map(|one| one.by));
        }
        summary
    }

    fn tokens(&self) -> u64 {
        self.results.figures.iter().map(|cell| cell.tokens).sum()
    }

    /// Returns the ids of the variants, in the order of the manifest. Without variants, the only element is `None`.
    fn variant_names(&self) -> Vec<Option<&str>> {
        let mut names: Vec<Option<&str>> = Vec::new();
        for cell in &self.results.cells {
            if !names.contains(&cell.variant_id()) {
                names.push(cell.variant_id());
            }
        }
        names
    }

    /// Returns the task id and the figures of each cell of a variant.
    fn cells_of(&self, variant: Option<&str>) -> impl Iterator<Item = (&str, &CellFigures)> {
        let all = self.results.cells.iter().zip(&self.results.figures);
        let of_variant = all.filter(move |(cell, _)| cell.variant_id() == variant);
        of_variant.map(|(cell, figures)| (cell.task.id.as_str(), figures))
    }

    fn variants(&self) -> Vec<VariantSummary> {
        let summary = |variant: Option<&str>| {
            let finished: Vec<&CellFigures> = self
                .cells_of(variant)
                .map(|(_, cell)| cell)
                .filter(|cell| cell.status != CellStatus::Unfinished)
                .collect();
            let succeeded =
                finished.iter().filter(|cell| cell.status == CellStatus::Success).count();
            let mean = |number: CellNumber| {
                let values: Vec<f64> = finished.iter().filter_map(|cell| number(cell)).collect();
                // None of these figures can be negative.
                let estimate = Estimate::mean(&values)?;
                Some(Estimate { low: estimate.low.map(|low| low.max(0.0)), ..estimate })
            };
            VariantSummary {
                variant: variant.map(str::to_owned),
                cells: self.cells_of(variant).count(),
                finished: finished.len(),
                succeeded,
                checks_passed: finished.iter().map(|cell| cell.checks_passed).sum(),
                checks_failed: finished.iter().map(|cell| cell.checks_failed).sum(),
                success_rate: Estimate::proportion(succeeded, finished.len()),
                cost: mean(cost),
                duration_seconds: mean(duration),
                tokens: mean(tokens),
            }
        };
        self.variant_names().into_iter().map(summary).collect()
    }

    fn differences(&self) -> Vec<PairedDifference> {
        let names: Vec<&str> = self.variant_names().into_iter().flatten().collect();
        let [first, others @ ..] = &names[..] else { return Vec::new() };
        if others.is_empty() {
            return Vec::new();
        }
        let finished = |variant: &str| -> BTreeMap<&str, &CellFigures> {
            let cells = self.cells_of(Some(variant));
            cells.filter(|(_, cell)| cell.status != CellStatus::Unfinished).collect()
        };
        let base = finished(first);
        let is_success = |cell: &CellFigures| cell.status == CellStatus::Success;
        let difference = |variant: &&str| {
            let own = finished(variant);
            let pairs: Vec<(&CellFigures, &CellFigures)> =
                own.iter().filter_map(|(id, cell)| Some((*cell, *base.get(id)?))).collect();
            let mean = |number: CellNumber| {
                let one = |(cell, base): &(&CellFigures, &CellFigures)| {
                    Some(number(cell)? - number(base)?)
                };
                Estimate::mean(&pairs.iter().filter_map(one).collect::<Vec<f64>>())
            };
            let alone = |own: bool| {
                let of = |(cell, base): &&(&CellFigures, &CellFigures)| {
                    is_success(cell) == own && is_success(base) != own
                };
                pairs.iter().filter(of).count()
            };
            PairedDifference {
                variant: (*variant).to_owned(),
                to: (*first).to_owned(),
                tasks: pairs.len(),
                better: alone(true),
                worse: alone(false),
                success_rate: mean(success),
                cost: mean(cost),
                duration_seconds: mean(duration),
                tokens: mean(tokens),
            }
        };
        others.iter().map(difference).collect()
    }

    /// Writes the report in every format, cell by cell.
    ///
    /// # Errors
    ///
    /// Fails if a file can't be written. The old file is unchanged then.
    pub fn write(&self, folder: &BatchFolder) -> Result<(), BatchFileError> {
        let path = |extension: &str| folder.path().join(format!("report.{extension}"));
        let tables = self.tables();
        let has_evaluations = self.has_evaluations();
        let rows = || self.results.rows().map(|row| Ok(table_row(&row?, has_evaluations)));
        folder.write_parts(&path("json"), |file| self.write_json(file))?;
        folder.write_parts(&path("md"), |file| tables.write_markdown(file, rows()))?;
        folder.write_parts(&path("html"), |file| tables.write_html(file, rows()))?;
        folder.write_parts(&path("xml"), |file| self.write_junit(file))?;
        Ok(())
    }

    fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        let summary = self.summary().to_string();
        to.write_all(summary.strip_suffix('}').unwrap_or_default().as_bytes())?;
        to.write_all(b",\"results\":[")?;
        for (index, row) in self.results.rows().enumerate() {
            to.write_all(if index > 0 { b"," } else { b"" })?;
            serde_json::to_writer(&mut *to, &row?)?;
        }
        to.write_all(b"]}\n")
    }

    fn tables(&self) -> TableReport {
        let is_success = self.exit_code == 0;
        let status = if is_success { RunStatus::Success } else { RunStatus::Partial };
        let is_finished = self.count(CellStatus::Unfinished) == 0;
        let outcome = match (is_success, is_finished) {
            (true, true) => "✅ Completed",
            (_, false) => "🛑 Not finished",
            (false, true) => "⚠️ Completed with failures",
        };
        let mut facts = vec![
            ("Folder", self.folder.clone()),
            ("Intervals", "95 % (Wilson, Student)".to_owned()),
        ];
        if let Some(comparison) = &self.comparison {
            facts.insert(0, ("Winner", comparison.winner_text()));
        }
        let kind = if self.comparison.is_some() { "Comparison" } else { "Batch" };
        TableReport {
            heading: format!("{kind} {}", self.name),
            status,
            outcome: outcome.to_owned(),
            key_figures: vec![
                self.totals(),
                self.cost_text(),
                format!("{:.1} s of runs", self.total(duration).unwrap_or_default()),
                format!("{} tokens", self.tokens()),
            ],
            facts,
            tables: self.report_tables(),
            last: ReportTable {
                title: "Cells",
                header: if self.has_evaluations() { EVALUATED_COLUMNS } else { COLUMNS },
                rows: Vec::new(),
                code_columns: 1,
            },
            last_count: self.results.cells.len(),
        }
    }

    fn report_tables(&self) -> Vec<ReportTable> {
        let dollars = |estimate| format_estimate(estimate, 6, "$", "");
        let seconds = |estimate| format_estimate(estimate, 2, "", " s");
        let count = |estimate| format_estimate(estimate, 0, "", "");
        let percent = |estimate: Option<Estimate>| {
            let hundred = |value: f64| value * 100.0;
            let scaled = estimate.map(|one| Estimate {
                value: hundred(one.value),
                low: one.low.map(hundred),
                high: one.high.map(hundred),
            });
            format_estimate(scaled, 1, "", " %")
        };
        let variants = self.variants().into_iter().map(|one| {
            vec![
                one.variant.unwrap_or_else(|| "all".to_owned()),
                format!("{} of {}", one.finished, one.cells),
                percent(one.success_rate),
                format!("{} of {}", one.checks_passed, one.checks_passed + one.checks_failed),
                dollars(one.cost),
                seconds(one.duration_seconds),
                count(one.tokens),
            ]
        });
        let mut tables = vec![ReportTable {
            title: "Variants",
            header: &["Variant", "Finished", "Success", "Checks", "Cost", "Time", "Tokens"],
            rows: variants.collect(),
            code_columns: 1,
        }];
        let differences = self.differences().into_iter().map(|one| {
            vec![
                format!("{} − {}", one.variant, one.to),
                one.tasks.to_string(),
                format!("{} better, {} worse", one.better, one.worse),
                percent(one.success_rate),
                dollars(one.cost),
                seconds(one.duration_seconds),
                count(one.tokens),
            ]
        });
        let rows: Vec<_> = differences.collect();
        if !rows.is_empty() {
            tables.push(ReportTable {
                title: "Paired differences",
                header: &["Variants", "Tasks", "Alone", "Success", "Cost", "Time", "Tokens"],
                rows,
                code_columns: 1,
            });
        }
        tables
    }

    /// Writes the report as `JUnit` XML for build servers, with a test case for each cell.
    fn write_junit(&self, to: &mut impl Write) -> io::Result<()> {
        let failures = self.count(CellStatus::Partial);
        let errors = self.count(CellStatus::Failed);
        let skipped = self.count(CellStatus::Unfinished);
        let body = html! {
            testsuites {
                testsuite name=(xml_text(&self.name)) tests=(self.results.cells.len())
                    failures=(failures) errors=(errors) skipped=(skipped)
                    time=(format!("{:.3}", self.total(duration).unwrap_or_default())) {
                    (PreEscaped(CASES_MARK))
                }
            }
        };
        let body = body.into_string();
        let (before, after) = body.split_once(CASES_MARK).unwrap_or((&body, ""));
        write!(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{before}")?;
        for row in self.results.rows() {
            to.write_all(junit_case(&row?).as_bytes())?;
        }
        writeln!(to, "{after}")
    }
}

/// Returns the row of a cell in the readable table.
fn table_row(row: &CellRow, has_evaluations: bool) -> TableRow {
    let mut columns = vec![
        row.label(),
        row.status.clone(),
        row.stop_reason.clone().unwrap_or_default(),
        match row.checks_failed.len() {
            0 if row.checks_passed == 0 => String::new(),
            failed => format!("{} of {}", row.checks_passed, row.checks_passed + failed),
        },
        row.changes_text().unwrap_or_default(),
        row.cost.map_or(String::new(), |cost| format!("${cost:.6}")),
        format!("{:.2} s", row.duration_seconds),
        sanitize::headline(row.error.as_deref().unwrap_or_default(), 120),
    ];
    if has_evaluations {
        let evaluation = row.change_evaluation.as_ref();
        columns.push(evaluation.map_or_else(String::new, ChangeEvaluation::explanation));
    }
    columns
}

fn junit_case(row: &CellRow) -> String {
    let case = html! {
        testcase classname=(xml_text(row.variant.as_deref().unwrap_or("batch")))
            name=(xml_text(&row.id))
            time=(format!("{:.3}", row.duration_seconds)) {
            @match row.status.as_str() {
                "success" => {}
                "failed" => {
                    error message=(reason(row)) { (xml_text(&explanation(row))) }
                }
                "unfinished" => { skipped {} }
                _ => {
                    failure message=(reason(row)) { (xml_text(&explanation(row))) }
                }
            }
        }
    };
    case.into_string().replace("<skipped></skipped>", "<skipped/>")
}

fn reason(row: &CellRow) -> &str {
    row.stop_reason.as_deref().unwrap_or("not begun")
}

fn explanation(row: &CellRow) -> String {
    let checks = row.checks_failed.iter().map(|check| format!("failed check: {check}"));
    checks.chain(row.error.clone()).collect::<Vec<_>>().join("\n")
}

/// Returns an estimate with its interval as text.
fn format_estimate(estimate: Option<Estimate>, digits: usize, before: &str, after: &str) -> String {
    let number = |value: f64| {
        let sign = if value < 0.0 { "−" } else { "" };
        format!("{sign}{before}{:.digits$}{after}", value.abs())
    };
    match estimate {
        None => "-".to_owned(),
        Some(Estimate { value, low: Some(low), high: Some(high) }) => {
            format!("{} ({} to {})", number(value), number(low), number(high))
        }
        Some(Estimate { value, .. }) => number(value),
    }
}

/// Rounds to a millionth, so that sums of money show no floating-point digits.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(id: &str, variant: &str, exit_code: u64, cost: f64) -> Value {
        let status = ["success", "failed", "partial"][usize::try_from(exit_code).unwrap()];
        let error = (exit_code == 1).then_some("no <reply>\u{1b}");
        json!({
            "id": id, "variant": variant, "status": status, "stop_reason": "llm_done", "exit_code": exit_code,
            "cost": cost, "duration_seconds": 1.5, "usage": {"input_tokens": 10, "output_tokens": 5}, "error": error,
            "checks": [{"name": "true", "passed": true}, {"name": "test", "passed": exit_code == 0}],
        })
    }

    fn report() -> BatchReport {
        let results = BatchResults::from_documents(&[
            document("a", "x", 0, 0.1),
            document("a", "y", 0, 0.3),
            document("b", "x", 1, 0.1),
            document("b", "y", 0, 0.3),
        ]);
        let (name, folder) = ("n".to_owned(), "/f".to_owned());
        BatchReport { name, folder, results, spent: 0.8, exit_code: 2, comparison: None }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn variants_are_compared_pair_by_pair() {
        let summary = report().summary();
        assert_eq!(summary["succeeded"], 3);
        assert_eq!(summary["cost"], 0.8);
        assert_eq!(summary["variants"][0]["success_rate"]["value"], 0.5);
        let difference = &summary["differences"][0];
        assert_eq!((&difference["tasks"], &difference["better"]), (&json!(2), &json!(1)));
        assert!((difference["cost"]["value"].as_f64().unwrap() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn each_format_shows_what_failed() {
        let report = report();
        let xml = written(|to| report.write_junit(to));
        assert!(xml.contains("tests=\"4\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("failed check: test\nno &lt;reply&gt;\u{fffd}</error>"), "{xml}");
        let (tables, rows) =
            (report.tables(), || report.results.rows().map(|row| Ok(table_row(&row?, false))));
        let markdown = written(|to| tables.write_markdown(to, rows()));
        assert!(markdown.contains("`y − x`") && markdown.contains("## Cells (4)"), "{markdown}");
        assert!(markdown.ends_with("|  | \\$0.300000 | 1.50 s |  |\n"), "{markdown}");
        let html = written(|to| tables.write_html(to, rows()));
        assert!(html.contains("no &lt;reply&gt;") && html.ends_with("</html>"), "{html}");
        let json: Value = serde_json::from_str(&written(|to| report.write_json(to))).unwrap();
        assert_eq!((&json["cost"], &json["results"][3]["variant"]), (&json!(0.8), &json!("y")));
    }
}
