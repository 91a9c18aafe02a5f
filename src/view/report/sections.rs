//! The sections of readable reports.

use super::RunReport;
use crate::machine::{RunStatus, StopReason};
use crate::types::{FileChange, MicroUsd, pluralize};
use crate::view::CostSource;
use crate::view::result::{DeniedCall, ModelUsed, ToolUsed};
use crate::view::sanitize;

/// The cells of a row, as plain text.
pub type TableRow = Vec<String>;

/// A table. The first columns are names.
#[derive(Clone, Debug)]
pub struct ReportTable {
    /// The title.
    pub title: &'static str,
    /// The names of the columns.
    pub header: &'static [&'static str],
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// The number of columns from the left that contain names.
    pub code_columns: usize,
}

impl ReportTable {
    /// Returns the title, with the number of rows if they are files or calls.
    pub(super) fn heading(&self) -> String {
        self.heading_for(self.rows.len())
    }

    /// Returns the heading of a table with `count` rows.
    pub(super) fn heading_for(&self, count: usize) -> String {
        match self.code_columns {
            0 => self.title.to_owned(),
            _ => format!("{} ({count})", self.title),
        }
    }
}

/// Length limit of a cell, in characters.
const MAX_CELL: usize = 160;

/// Returns an icon and a word for the outcome of the run.
pub(super) fn outcome(report: &RunReport<'_>) -> (&'static str, &'static str) {
    match (report.result.status, report.result.stop_reason) {
        (RunStatus::Success, _) => ("✅", "Completed"),
        (RunStatus::Partial, Some(StopReason::UserInterrupt(_))) => ("🛑", "Interrupted"),
        (RunStatus::Partial, _) => ("⚠️", "Stopped early"),
        (RunStatus::Failed, _) => ("❌", "Failed"),
    }
}

/// Returns the task as a title.
pub(super) fn title(report: &RunReport<'_>) -> String {
    sanitize::headline(&report.info.task, 100)
}

/// Returns the reason for a failure, unless the answer contains it.
pub(super) fn failure<'a>(report: &RunReport<'a>) -> Option<&'a str> {
    let error = report.result.error.as_deref()?;
    (!report.result.output.contains(error)).then_some(error)
}

/// Returns the key figures of the run.
pub(super) fn key_figures(report: &RunReport<'_>) -> Vec<String> {
    let result = report.result;
    let reason = result.stop_reason.map_or("not begun", StopReason::name);
    let mut numbers = vec![
        format!("{reason} (exit {})", result.exit_code),
        pluralize(result.steps, "step", "steps"),
        pluralize(result.llm_calls, "LLM call", "LLM calls"),
        result.duration.to_string(),
    ];
    numbers.extend(result.cost.map(|cost| cost.to_string()));
    if !result.denied.is_empty() {
        numbers.push(pluralize(result.denied.len(), "denied call", "denied calls"));
    }
    numbers
}

/// Returns the names and values of the run: session, model and others.
pub(super) fn names(report: &RunReport<'_>) -> Vec<(&'static str, String)> {
    let info = report.info;
    let mut names = vec![
        ("session", info.session_id.to_string()),
        ("model", info.model.to_string()),
        ("agent", info.agent.to_string()),
        ("began", format!("{:.0}", info.started_at)),
    ];
    names.extend(report.result.worktree.iter().flat_map(|worktree| {
        let name = worktree.branch.as_ref().unwrap_or(&worktree.name);
        let end = if worktree.kept { "" } else { " (removed)" };
        let merge = worktree.merge_command.clone().map(|command| ("merge", command));
        let remove = worktree.remove_command.clone().map(|command| ("remove", command));
        let summary = format!("{name}: {}{end}", worktree.summary);
        [Some(("worktree", summary)), merge, remove].into_iter().flatten()
    }));
    names.extend(info.sandbox.as_ref().map(|sandbox| ("sandbox", sandbox.to_string())));
    names.into_iter().map(|(name, value)| (name, cell(&value))).collect()
}

/// Returns the non-empty tables.
pub(super) fn tables(report: &RunReport<'_>) -> Vec<ReportTable> {
    let all = [files(report), tools(report), denied(report), models(report), costs(report)];
    all.into_iter().filter(|facts| !facts.rows.is_empty()).collect()
}

fn files(report: &RunReport<'_>) -> ReportTable {
    let row = |file: &FileChange| {
        vec![
            cell(&file.path.to_string()),
            file.action.to_string(),
            format!("+{} −{}", file.added, file.removed),
        ]
    };
    let rows = report.result.files_modified.iter().map(row).collect();
    ReportTable { title: "Files", header: &["file", "change", "lines"], rows, code_columns: 1 }
}

/// Returns the table of models. It is empty for a single model.
fn models(report: &RunReport<'_>) -> ReportTable {
    let row = |used: &ModelUsed| {
        let cost = used.cost.map_or_else(String::new, |cost| cost.to_string());
        vec![cell(&used.model), used.calls.to_string(), cost]
    };
    let all = &report.result.models;
    let rows = if all.len() > 1 { all.iter().map(row).collect() } else { Vec::new() };
    ReportTable { title: "Models", header: &["model", "calls", "cost"], rows, code_columns: 1 }
}

fn tools(report: &RunReport<'_>) -> ReportTable {
    let row = |tool: &ToolUsed| {
        let what = cell(tool.path.as_ref().unwrap_or(&tool.arguments_line));
        let error = tool.error_line.as_ref();
        let result = error.map_or("ok".to_owned(), |error| sanitize::headline(error, MAX_CELL));
        vec![cell(&tool.name), what, result, tool.duration.to_string()]
    };
    let rows = report.result.tools_used.iter().map(row).collect();
    ReportTable {
        title: "Tool calls",
        header: &["tool", "what", "result", "time"],
        rows,
        code_columns: 2,
    }
}

fn denied(report: &RunReport<'_>) -> ReportTable {
    let row = |denied: &DeniedCall| {
        let arguments = cell(&denied.arguments.to_string());
        let tool = match &denied.agent {
            Some(agent) => cell(&format!("{agent}: {}", denied.tool)),
            None => cell(&denied.tool),
        };
        vec![tool, arguments, sanitize::headline(&denied.reason, MAX_CELL)]
    };
    let rows = report.result.denied.iter().map(row).collect();
    ReportTable { title: "Denied", header: &["tool", "arguments", "reason"], rows, code_columns: 2 }
}

fn costs(report: &RunReport<'_>) -> ReportTable {
    let (usage, costs) = (&report.result.usage, &report.result.costs);
    let mut rows: Vec<TableRow> = [
        ("input tokens", usage.input),
        ("from the cache", usage.cached_input),
        ("into the cache", usage.cache_write),
        ("output tokens", usage.output),
        ("for reasoning", usage.reasoning),
    ]
    .into_iter()
    .filter(|(_, tokens)| tokens.0 > 0)
    .map(|(name, tokens)| vec![name.to_owned(), tokens.0.to_string()])
    .collect();
    let source = |(source, cost): (&CostSource, &MicroUsd)| {
        vec![format!("cost: {}", source.as_str()), cost.to_string()]
    };
    rows.extend(costs.by_source.iter().map(source));
    rows.extend(costs.total.map(|total| vec!["cost: total".to_owned(), total.to_string()]));
    ReportTable { title: "Usage", header: &["what", "how much"], rows, code_columns: 0 }
}

fn cell(text: &str) -> String {
    sanitize::truncate(&sanitize::line(text), MAX_CELL)
}
