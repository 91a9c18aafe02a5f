//! What the reports for people say, whatever their format.

use super::Report;
use crate::machine::{Status, StopReason};
use crate::model::{FileAction, count};
use crate::view::clean;

/// One line of facts about a file, a tool call or a cost; each cell is plain text.
pub(super) type Row = Vec<String>;

/// A table of facts. The first columns are names.
pub(super) struct Facts {
    pub(super) title: &'static str,
    pub(super) head: &'static [&'static str],
    pub(super) rows: Vec<Row>,
    /// How many columns, from the left, are names.
    pub(super) names: usize,
}

/// The most characters of one cell.
const CELL: usize = 160;

/// Returns a sign and a word for how the run went.
pub(super) fn verdict(report: &Report<'_>) -> (&'static str, &'static str) {
    match (report.result.status, report.result.stop_reason) {
        (Status::Success, _) => ("✅", "Completed"),
        (Status::Partial, Some(StopReason::UserInterrupt(_))) => ("🛑", "Interrupted"),
        (Status::Partial, _) => ("⚠️", "Stopped early"),
        (Status::Failed, _) => ("❌", "Failed"),
    }
}

/// Returns the task as a title.
pub(super) fn title(report: &Report<'_>) -> String {
    clean::headline(&report.about.task, 100)
}

/// Returns what there is to say of the run in a few numbers.
pub(super) fn numbers(report: &Report<'_>) -> Vec<String> {
    let result = report.result;
    let reason = result.stop_reason.map_or("not begun", StopReason::name);
    let mut numbers = vec![
        format!("{reason} (exit {})", result.exit_code),
        count(result.steps, "step", "steps"),
        count(result.llm_calls, "LLM call", "LLM calls"),
        result.duration.to_string(),
    ];
    numbers.extend(result.cost.map(|cost| cost.to_string()));
    if !result.denied.is_empty() {
        numbers.push(count(result.denied.len(), "denied call", "denied calls"));
    }
    numbers
}

/// Returns the names that belong to the run.
pub(super) fn names(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let about = report.about;
    let mut names = vec![
        ("session", about.session_id.to_string()),
        ("model", about.model.to_string()),
        ("agent", about.agent.to_string()),
        ("began", format!("{:.0}", about.began)),
    ];
    names.extend(about.sandbox.as_ref().map(|sandbox| ("sandbox", sandbox.to_string())));
    names.into_iter().map(|(name, value)| (name, cell(&value))).collect()
}

/// Returns the tables that have anything to say.
pub(super) fn tables(report: &Report<'_>) -> Vec<Facts> {
    let all = [files(report), tools(report), denied(report), costs(report)];
    all.into_iter().filter(|facts| !facts.rows.is_empty()).collect()
}

fn files(report: &Report<'_>) -> Facts {
    let row = |file: &crate::view::result::FileModified| {
        let action = match file.action {
            FileAction::Created => "created",
            FileAction::Modified => "modified",
            FileAction::Deleted => "deleted",
        };
        vec![cell(&file.path), action.to_owned(), format!("+{} −{}", file.added, file.removed)]
    };
    let rows = report.result.files_modified.iter().map(row).collect();
    Facts { title: "Files", head: &["file", "change", "lines"], rows, names: 1 }
}

fn tools(report: &Report<'_>) -> Facts {
    let row = |tool: &crate::view::result::ToolUsed| {
        let what = match &tool.path {
            Some(path) => cell(path),
            None => cell(&tool.brief.what),
        };
        let result = match (&tool.brief.error, &tool.error) {
            (None, None) => "ok".to_owned(),
            (Some(error), _) | (None, Some(error)) => clean::headline(error, CELL),
        };
        vec![cell(&tool.name), what, result, tool.duration.to_string()]
    };
    let rows = report.result.tools_used.iter().map(row).collect();
    Facts { title: "Tool calls", head: &["tool", "what", "result", "time"], rows, names: 2 }
}

fn denied(report: &Report<'_>) -> Facts {
    let row = |denied: &crate::view::result::Denied| {
        let arguments = cell(&denied.arguments.to_string());
        vec![cell(&denied.tool), arguments, clean::headline(&denied.reason, CELL)]
    };
    let rows = report.result.denied.iter().map(row).collect();
    Facts { title: "Denied", head: &["tool", "arguments", "reason"], rows, names: 2 }
}

fn costs(report: &Report<'_>) -> Facts {
    let (usage, costs) = (&report.result.usage, &report.result.costs);
    let mut rows: Vec<Row> = [
        ("input tokens", usage.input_tokens),
        ("from the cache", usage.cached_input_tokens),
        ("into the cache", usage.cache_write_tokens),
        ("output tokens", usage.output_tokens),
        ("for reasoning", usage.reasoning_tokens),
    ]
    .into_iter()
    .filter(|(_, tokens)| tokens.0 > 0)
    .map(|(name, tokens)| vec![name.to_owned(), tokens.0.to_string()])
    .collect();
    let source = |(source, cost): (&crate::view::Source, &crate::model::Micros)| {
        vec![format!("cost: {}", source.name()), cost.to_string()]
    };
    rows.extend(costs.by_source.iter().map(source));
    rows.extend(costs.total.map(|total| vec!["cost: total".to_owned(), total.to_string()]));
    Facts { title: "Usage", head: &["what", "how much"], rows, names: 0 }
}

fn cell(text: &str) -> String {
    clean::cut(&clean::line(text), CELL)
}
