//! The report for programs.

use std::sync::Arc;

use serde::Serialize;

use super::Report;
use crate::view::jsonl;
use crate::view::result::RunResult;

/// The result document, after what was known beforehand.
#[derive(Serialize)]
struct Document<'a> {
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
pub(super) fn render(report: &Report<'_>) -> String {
    let Report { about, result } = report;
    let document = Document {
        task: &about.task,
        agent: &about.agent,
        workspace: &about.workspace,
        sandbox: about.sandbox.as_ref(),
        began: about.began.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        result,
    };
    // There is nothing in it that JSON could not express.
    let line = jsonl::line(&document).unwrap_or_default();
    String::from_utf8(line).unwrap_or_default()
}
