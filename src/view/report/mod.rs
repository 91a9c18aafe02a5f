//! The report of a run, for a file, a message or a pull request.
//!
//! All text of a user, a model or a tool is escaped for the format. It can't become a table row, a heading, a link or a
//! mention, and it can't run.

use crate::types::word_enum;

mod html;
mod inert_markdown;
mod markdown;
mod sections;
mod table_report;

use std::path::Path;

use serde::Serialize;

use super::jsonl;
use super::result::RunResult;
use super::run_info::RunInfo;
use super::trace::StepChange;

pub(crate) use markdown::code_fence;
pub use sections::{ReportTable, TableRow};
pub use table_report::TableReport;

/// The content of a report.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// The information known before the run.
    pub info: &'a RunInfo,
    /// The result of the run.
    pub result: &'a RunResult,
    /// The changes of the steps in the workspace, as far as they were recorded.
    pub changes: &'a [StepChange],
}

word_enum! {
    /// The format of a report.
    pub enum ReportFormat {
        /// The result document with the information known before the run.
        Json = "json",
        /// Markdown for a file.
        Markdown = "markdown",
        /// Markdown for a GitHub comment, limited in length.
        Github = "github",
        /// A self-contained HTML page.
        Html = "html",
    }
}

impl ReportFormat {
    /// Returns the format for a file extension; `None` if there is no such format.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "md" | "markdown" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

impl RunReport<'_> {
    /// Returns the report in a format.
    pub fn render(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Json => self.to_json(),
            ReportFormat::Markdown => markdown::render(self),
            ReportFormat::Github => markdown::render_comment(self),
            ReportFormat::Html => html::render(self),
        }
    }

    /// Returns the result document, with the information known before the run.
    fn to_json(self) -> String {
        #[derive(Serialize)]
        struct ReportDocument<'a> {
            task: &'a str,
            agent: &'a str,
            workspace: &'a str,
            sandbox: Option<&'a str>,
            began: String,
            version: &'static str,
            #[serde(flatten)]
            result: &'a RunResult,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            changes: &'a [StepChange],
        }
        let Self { info, result, changes } = self;
        let document = ReportDocument {
            task: &info.task,
            agent: &info.agent,
            workspace: &info.workspace,
            sandbox: info.sandbox.as_deref(),
            began: info.started_at.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            result,
            changes,
        };
        // All values can be serialized to JSON.
        String::from_utf8(jsonl::to_line(&document).unwrap_or_default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_extension_determines_the_format() {
        let of = |path| ReportFormat::from_path(Path::new(path));
        assert_eq!(of("out/report.JSON"), Some(ReportFormat::Json));
        assert_eq!(of("report.md"), Some(ReportFormat::Markdown));
        assert_eq!(of("report.htm"), Some(ReportFormat::Html));
        assert_eq!([of("report"), of("report.txt"), of(".md")], [None; 3]);
    }
}
