//! The report of a run: a document that is kept, mailed, or put below a pull request.
//!
//! Everything in it that a user, a model or a tool wrote is made inert for its format: it can neither become a table
//! row, a heading, a link or a mention, nor run.

mod github;
mod html;
mod json;
mod markdown;
mod prose;
mod sections;

use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use super::about::About;
use super::result::RunResult;

/// What a report is made of.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// What was known of the run beforehand.
    pub about: &'a About,
    /// What it came to.
    pub result: &'a RunResult,
}

/// A format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The result document with what was known beforehand.
    Json,
    /// Markdown for a file.
    Markdown,
    /// Markdown for a comment on GitHub, of a length that it accepts.
    Github,
    /// A page that needs nothing else.
    Html,
}

/// A format that there is none of.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown report format '{0}'; there are: json, markdown, github, html")]
pub struct UnknownFormat(String);

impl Format {
    /// Returns the format that a file's ending asks for, if it does.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "md" | "markdown" => Some(Self::Markdown),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        match word {
            "json" => Ok(Self::Json),
            "markdown" => Ok(Self::Markdown),
            "github" => Ok(Self::Github),
            "html" => Ok(Self::Html),
            _ => Err(UnknownFormat(word.to_owned())),
        }
    }
}

impl Report<'_> {
    /// Returns the report in a format.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Json => json::render(self),
            Format::Markdown => markdown::render(self),
            Format::Github => github::render(self),
            Format::Html => html::render(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_file_tells_the_format() {
        let of = |path| Format::of(Path::new(path));
        assert_eq!(of("out/report.JSON"), Some(Format::Json));
        assert_eq!(of("report.md"), Some(Format::Markdown));
        assert_eq!(of("report.htm"), Some(Format::Html));
        assert_eq!([of("report"), of("report.txt"), of(".md")], [None; 3]);
    }
}
