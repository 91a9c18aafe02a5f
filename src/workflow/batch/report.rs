//! The report of a batch: totals, variants with confidence intervals, paired differences, all cells.

use std::collections::BTreeMap;

use maud::html;
use serde::Serialize;
use serde_json::{Value, json};

use super::comparison::Comparison;
use super::folder::{BatchFileError, BatchFolder};
use super::results::CellRow;
use super::statistics::Estimate;
use crate::machine::RunStatus;
use crate::model::pluralize;
use crate::view::report::{ReportTable, TableReport};
use crate::view::sanitize;
use crate::workflow::xml_text::xml_text;

/// The report of a batch.
#[derive(Clone, Debug)]
pub struct BatchReport {
    /// A name for people.
    pub name: String,
    /// The folder.
    pub folder: String,
    /// All cells, in the order of the manifest.
    pub rows: Vec<CellRow>,
    /// What was spent in the folder, in dollars; more than the sum of the cells if some were tried again.
    pub spent: f64,
    /// The exit code of the command.
    pub exit_code: u8,
    /// The winner, if the variants of one task were compared.
    pub comparison: Option<Comparison>,
}

/// What is known of a variant.
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

/// The mean differences of a variant to the first one, over the tasks that both have finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PairedDifference {
    variant: String,
    to: String,
    tasks: usize,
    /// Tasks in which this variant alone succeeded.
    better: usize,
    /// Tasks in which the first variant alone succeeded.
    worse: usize,
    success_rate: Option<Estimate>,
    cost: Option<Estimate>,
    duration_seconds: Option<Estimate>,
    tokens: Option<Estimate>,
}

/// A number of a cell.
type CellNumber = fn(&CellRow) -> Option<f64>;

#[allow(clippy::unnecessary_wraps)] // a CellNumber
fn success(row: &CellRow) -> Option<f64> {
    Some(if row.is_success() { 1.0 } else { 0.0 })
}

fn cost(row: &CellRow) -> Option<f64> {
    row.cost
}

#[allow(clippy::unnecessary_wraps)] // a CellNumber
fn duration(row: &CellRow) -> Option<f64> {
    Some(row.duration_seconds)
}

#[allow(clippy::cast_precision_loss, clippy::unnecessary_wraps)] // exact up to 2^53; a CellNumber
fn tokens(row: &CellRow) -> Option<f64> {
    Some(row.tokens as f64)
}

impl BatchReport {
    fn count(&self, status: &str) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// Returns how the cells have ended, in a line.
    pub fn totals(&self) -> String {
        let mut parts = vec![format!("{} succeeded", self.count("success"))];
        for status in ["partial", "failed", "unfinished"] {
            match self.count(status) {
                0 => {}
                count => parts.push(format!("{count} {status}")),
            }
        }
        format!("{}: {}", pluralize(self.rows.len(), "cell", "cells"), parts.join(", "))
    }

    /// Returns the sum of the numbers that are known; `None` if none is.
    fn total(&self, number: CellNumber) -> Option<f64> {
        self.rows.iter().filter_map(number).reduce(|sum, one| sum + one)
    }

    /// Returns what the cells cost, for people.
    pub fn cost_text(&self) -> String {
        self.total(cost).map_or("no price".to_owned(), |cost| format!("${cost:.6}"))
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
            "cells": self.rows.len(),
            "succeeded": self.count("success"),
            "partial": self.count("partial"),
            "failed": self.count("failed"),
            "unfinished": self.count("unfinished"),
            "cost": self.total(cost).map(round),
            "spent": self.spent,
            "duration_seconds": round(self.total(duration).unwrap_or_default()),
            "tokens": self.rows.iter().map(|row| row.tokens).sum::<u64>(),
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

    /// Returns the names of the variants, in the order of the manifest; one without a name if there are none.
    fn variant_names(&self) -> Vec<Option<&str>> {
        let mut names: Vec<Option<&str>> = Vec::new();
        for row in &self.rows {
            if !names.contains(&row.variant.as_deref()) {
                names.push(row.variant.as_deref());
            }
        }
        names
    }

    fn rows_of(&self, variant: Option<&str>) -> impl Iterator<Item = &CellRow> {
        self.rows.iter().filter(move |row| row.variant.as_deref() == variant)
    }

    fn variants(&self) -> Vec<VariantSummary> {
        let summary = |variant: Option<&str>| {
            let rows: Vec<&CellRow> = self.rows_of(variant).collect();
            let finished: Vec<&CellRow> =
                rows.iter().copied().filter(|row| row.is_finished()).collect();
            let succeeded = finished.iter().filter(|row| row.is_success()).count();
            let mean = |number: CellNumber| {
                let values: Vec<f64> = finished.iter().filter_map(|row| number(row)).collect();
                // None of these numbers is negative.
                let estimate = Estimate::mean(&values)?;
                Some(Estimate { low: estimate.low.map(|low| low.max(0.0)), ..estimate })
            };
            VariantSummary {
                variant: variant.map(str::to_owned),
                cells: rows.len(),
                finished: finished.len(),
                succeeded,
                checks_passed: finished.iter().map(|row| row.checks_passed).sum(),
                checks_failed: finished.iter().map(|row| row.checks_failed.len()).sum(),
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
        let finished = |variant: &str| -> BTreeMap<String, CellRow> {
            let rows = self.rows_of(Some(variant)).filter(|row| row.is_finished());
            rows.map(|row| (row.id.clone(), row.clone())).collect()
        };
        let base = finished(first);
        let difference = |variant: &&str| {
            let own = finished(variant);
            let pairs: Vec<(&CellRow, &CellRow)> =
                own.iter().filter_map(|(id, row)| Some((row, base.get(id)?))).collect();
            let mean = |number: CellNumber| {
                let one = |(row, base): &(&CellRow, &CellRow)| Some(number(row)? - number(base)?);
                Estimate::mean(&pairs.iter().filter_map(one).collect::<Vec<f64>>())
            };
            let alone = |of: fn(&(&CellRow, &CellRow)) -> bool| {
                pairs.iter().filter(|pair| of(pair)).count()
            };
            PairedDifference {
                variant: (*variant).to_owned(),
                to: (*first).to_owned(),
                tasks: pairs.len(),
                better: alone(|(row, base)| row.is_success() && !base.is_success()),
                worse: alone(|(row, base)| !row.is_success() && base.is_success()),
                success_rate: mean(success),
                cost: mean(cost),
                duration_seconds: mean(duration),
                tokens: mean(tokens),
            }
        };
        others.iter().map(difference).collect()
    }

    /// Writes the report in every format.
    ///
    /// # Errors
    ///
    /// Fails if a file can't be written; the old one is unchanged then.
    pub fn write(&self, folder: &BatchFolder) -> Result<(), BatchFileError> {
        let mut json = self.summary();
        json["results"] = json!(self.rows);
        let table = self.tables();
        let formats = [
            ("json", format!("{json}\n")),
            ("md", table.to_markdown()),
            ("html", table.to_html()),
            ("xml", self.to_junit()),
        ];
        formats.into_iter().try_for_each(|(extension, text)| {
            let path = folder.path().join(format!("report.{extension}"));
            folder.write(&path, text.as_bytes())
        })
    }

    fn tables(&self) -> TableReport {
        let is_success = self.exit_code == 0;
        let status = if is_success { RunStatus::Success } else { RunStatus::Partial };
        let is_finished = self.rows.iter().all(CellRow::is_finished);
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
                format!("{} tokens", self.rows.iter().map(|row| row.tokens).sum::<u64>()),
            ],
            facts,
            tables: self.report_tables(),
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
        let cells = self.rows.iter().map(|row| {
            vec![
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
            ]
        });
        tables.push(ReportTable {
            title: "Cells",
            header: &["Cell", "Status", "Reason", "Checks", "Changes", "Cost", "Time", "Error"],
            rows: cells.collect(),
            code_columns: 1,
        });
        tables
    }

    /// Returns the report as `JUnit` XML, which build servers read: a test case for each cell.
    fn to_junit(&self) -> String {
        let failures = self.count("partial");
        let errors = self.count("failed");
        let skipped = self.count("unfinished");
        let body = html! {
            testsuites {
                testsuite name=(xml_text(&self.name)) tests=(self.rows.len()) failures=(failures)
                    errors=(errors) skipped=(skipped)
                    time=(format!("{:.3}", self.total(duration).unwrap_or_default())) {
                    @for row in &self.rows {
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
                    }
                }
            }
        };
        let text = body.into_string().replace("<skipped></skipped>", "<skipped/>");
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}\n")
    }
}

fn reason(row: &CellRow) -> &str {
    row.stop_reason.as_deref().unwrap_or("not begun")
}

fn explanation(row: &CellRow) -> String {
    let checks = row.checks_failed.iter().map(|check| format!("failed check: {check}"));
    checks.chain(row.error.clone()).collect::<Vec<_>>().join("\n")
}

/// Returns an estimate with its interval.
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

/// Rounds to a millionth, so that sums of money have no digits of floating-point numbers.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, variant: &str, exit_code: u64, cost: f64) -> CellRow {
        let status = ["success", "failed", "partial"][usize::try_from(exit_code).unwrap()];
        let error = (exit_code == 1).then_some("no <reply>\u{1b}");
        CellRow::from_result(&json!({
            "id": id, "variant": variant, "status": status, "stop_reason": "llm_done", "exit_code": exit_code,
            "cost": cost, "duration_seconds": 1.5, "usage": {"input_tokens": 10, "output_tokens": 5}, "error": error,
            "checks": [{"name": "true", "passed": true}, {"name": "test", "passed": exit_code == 0}],
        }))
    }

    fn report() -> BatchReport {
        let rows = vec![
            row("a", "x", 0, 0.1),
            row("a", "y", 0, 0.3),
            row("b", "x", 1, 0.1),
            row("b", "y", 0, 0.3),
        ];
        let (name, folder) = ("n".to_owned(), "/f".to_owned());
        BatchReport { name, folder, rows, spent: 0.8, exit_code: 2, comparison: None }
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
        let xml = report.to_junit();
        assert!(xml.contains("tests=\"4\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("failed check: test\nno &lt;reply&gt;\u{fffd}</error>"), "{xml}");
        let tables = report.tables();
        assert!(tables.to_markdown().contains("`y − x`"), "{}", tables.to_markdown());
        assert!(tables.to_html().contains("no &lt;reply&gt;"), "{}", tables.to_html());
    }
}
