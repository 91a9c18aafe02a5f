//! The report of a run, for a file, a message or a pull request.
//!
//! All text of a user, a model or a tool is escaped for its format: it can neither become a table row, a heading, a
//! link or a mention, nor run.

mod github;
mod html;
mod inert_markdown;
mod json;
mod markdown;
mod sections;

use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use super::result::RunResult;
use super::run_info::RunInfo;

/// The content of a report.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    /// What was known before the run.
    pub info: &'a RunInfo,
    /// The result of the run.
    pub result: &'a RunResult,
}

/// A format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// The result document with the information known before the run.
    Json,
    /// Markdown for a file.
    Markdown,
    /// Markdown for a GitHub comment, limited in length.
    Github,
    /// A self-contained HTML page.
    Html,
}

/// An unknown format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown report format '{0}'; there are: json, markdown, github, html")]
pub struct UnknownReportFormat(String);

impl ReportFormat {
    /// Returns the format for a file extension, if it has one.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "md" | "markdown" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

impl FromStr for ReportFormat {
    type Err = UnknownReportFormat;

    fn from_str(word: &str) -> Result<Self, UnknownReportFormat> {
        match word {
            "json" => Ok(Self::Json),
            "markdown" => Ok(Self::Markdown),
            "github" => Ok(Self::Github),
            "html" => Ok(Self::Html),
            _ => Err(UnknownReportFormat(word.to_owned())),
        }
    }
}

impl RunReport<'_> {
    /// Returns the report in a format.
    pub fn render(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Json => json::render(self),
            ReportFormat::Markdown => markdown::render(self),
            ReportFormat::Github => github::render(self),
            ReportFormat::Html => html::render(self),
        }
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
