//! Search results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

use crate::tools::output_store::char_boundary;
use crate::workspace::RelPath;

/// The matches of a search by file, limited to those that are shown.
#[derive(Debug, Default)]
pub(super) struct SearchMatches {
    max_matches: usize,
    files: BTreeMap<RelPath, FileMatches>,
    kept: usize,
    matches: u64,
    files_with_matches: u64,
}

/// The matches in one file.
#[derive(Debug, Default)]
pub(super) struct FileMatches {
    lines: Vec<MatchLine>,
    shown_matches: usize,
    matches: u64,
    max_matches: usize,
}

#[derive(Debug)]
struct MatchLine {
    number: u64,
    is_match: bool,
    text: String,
}

/// The maximum length of a shown line, in bytes.
const MAX_LINE_LENGTH: usize = 400;

impl SearchMatches {
    /// Returns an empty result that keeps at most the given number of matches.
    pub(super) fn new(most: usize) -> Self {
        Self { max_matches: most, ..Self::default() }
    }

    /// Adds the matches in a file. The first files by name are kept.
    pub(super) fn add(&mut self, path: RelPath, hits: FileMatches) {
        self.matches += hits.matches;
        self.files_with_matches += 1;
        self.kept += hits.shown_matches;
        self.files.insert(path, hits);
        while let Some(last) = self.files.last_entry() {
            let without = self.kept - last.get().shown_matches;
            if without < self.max_matches {
                break;
            }
            self.kept = without;
            last.remove();
        }
    }

    /// Formats the matches.
    pub(super) fn format(&self) -> String {
        let mut text = String::new();
        let mut left = self.max_matches;
        for (path, hits) in &self.files {
            if left == 0 {
                break;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "{path}");
            left = hits.format(left, &mut text);
        }
        let shown = self.max_matches - left;
        if (shown as u64) < self.matches {
            let (matches, files) = (self.matches, self.files_with_matches);
            let _ = writeln!(
                text,
                "[{shown} of {matches} matches in {files} files are shown; narrow the search, or raise max_results]"
            );
        }
        text
    }

    /// Returns whether there are no matches.
    pub(super) fn is_empty(&self) -> bool {
        self.matches == 0
    }
}

impl FileMatches {
    /// Returns an empty result for one file that keeps at most the given number of matches.
    pub(super) fn new(most: usize) -> Self {
        Self { max_matches: most, ..Self::default() }
    }

    /// Returns whether there are no matches.
    pub(super) fn is_empty(&self) -> bool {
        self.matches == 0
    }

    /// Formats the first matches, up to the limit. Returns the remaining number.
    fn format(&self, mut left: usize, text: &mut String) -> usize {
        let mut before: Option<u64> = None;
        for line in &self.lines {
            if line.is_match {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            if before.is_some_and(|before| before + 1 < line.number) {
                text.push_str("--\n");
            }
            before = Some(line.number);
            let mark = if line.is_match { ':' } else { '-' };
            let _ = writeln!(text, "{}{mark}{}", line.number, line.text);
        }
        left
    }

    fn push_line(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\r', '\n']);
        let end = char_boundary(text, MAX_LINE_LENGTH);
        let more = if end < text.len() { "…" } else { "" };
        let text = format!("{}{more}", &text[..end]);
        self.lines.push(MatchLine { number: number.unwrap_or(0), is_match, text });
    }
}

impl Sink for &mut FileMatches {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.matches += 1;
        if self.shown_matches < self.max_matches {
            self.shown_matches += 1;
            self.push_line(found.line_number(), found.bytes(), true);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, Self::Error> {
        let is_wanted = match found.kind() {
            SinkContextKind::After => self.matches <= self.max_matches as u64,
            SinkContextKind::Before | SinkContextKind::Other => {
                self.shown_matches < self.max_matches
            }
        };
        if is_wanted {
            self.push_line(found.line_number(), found.bytes(), false);
        }
        Ok(true)
    }
}
