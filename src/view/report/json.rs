//! The report for programs.

use std::sync::Arc;

use serde::Serialize;

use super::RunReport;
use crate::view::jsonl;
use crate::view::result::RunResult;

/// The result document, with the information known before the run.
#[derive(Serialize)]
struct ReportDocument<'a> {
    task: &'a str,
    agent: &'a str,
    workspace: &'a str,
    sandbox: Option<&'a Arc<str>>,
    began: String,
    version: &'static str,
    #[serde(flatten)]
    result: &'a RunResult,
}

/// Returns the report in JSON.
pub(super) fn render(report: &RunReport<'_>) -> String {
    let RunReport { info, result } = report;
    let document = ReportDocument {
        task: &info.task,
        agent: &info.agent,
        workspace: &info.workspace,
        sandbox: info.sandbox.as_ref(),
        began: info.started_at.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        result,
    };
    // All values can be expressed in JSON.
    let line = jsonl::to_line(&document).unwrap_or_default();
    String::from_utf8(line).unwrap_or_default()
}
