//! What a search has found, and how it is shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

use crate::tools::results::boundary;
use crate::workspace::RelPath;

/// What was found, file by file, no more than is shown.
#[derive(Debug)]
pub(super) struct Found {
    most: usize,
    files: BTreeMap<RelPath, Hits>,
    kept: usize,
    matches: u64,
    in_files: u64,
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct Hits {
    lines: Vec<Line>,
    shown: usize,
    matches: u64,
    most: usize,
}

#[derive(Debug)]
struct Line {
    number: u64,
    is_match: bool,
    text: String,
}

/// Bytes of a line that are shown.
const LINE: usize = 400;

impl Found {
    /// Returns nothing found; of what comes, so many matches are kept.
    pub(super) fn new(most: usize) -> Self {
        Self { most, files: BTreeMap::new(), kept: 0, matches: 0, in_files: 0 }
    }

    /// Adds what was found in a file. Of all files, those are kept that come first by their names.
    pub(super) fn add(&mut self, path: RelPath, hits: Hits) {
        self.matches += hits.matches;
        self.in_files += 1;
        self.kept += hits.shown;
        self.files.insert(path, hits);
        while let Some(last) = self.files.last_entry() {
            let without = self.kept - last.get().shown;
            if without < self.most {
                break;
            }
            self.kept = without;
            last.remove();
        }
    }

    /// Returns what was found as a text.
    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        let mut left = self.most;
        for (path, hits) in &self.files {
            if left == 0 {
                break;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "{path}");
            left = hits.show(left, &mut text);
        }
        let shown = self.most - left;
        if (shown as u64) < self.matches {
            let (matches, files) = (self.matches, self.in_files);
            let _ = writeln!(
                text,
                "[{shown} of {matches} matches in {files} files are shown; narrow the search, or raise max_results]"
            );
        }
        text
    }

    /// Returns whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.matches == 0
    }
}

impl Hits {
    /// Returns a place for what is found in a file, of which so many matches are kept.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.matches == 0
    }

    /// Shows no more than so many matches; returns how many more may be shown.
    fn show(&self, mut left: usize, text: &mut String) -> usize {
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

    fn keep(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\r', '\n']);
        let end = boundary(text, LINE);
        let more = if end < text.len() { "…" } else { "" };
        let text = format!("{}{more}", &text[..end]);
        self.lines.push(Line { number: number.unwrap_or(0), is_match, text });
    }
}

impl Sink for &mut Hits {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.matches += 1;
        if self.shown < self.most {
            self.shown += 1;
            self.keep(found.line_number(), found.bytes(), true);
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, Self::Error> {
        let is_wanted = match found.kind() {
            SinkContextKind::After => self.matches <= self.most as u64,
            SinkContextKind::Before | SinkContextKind::Other => self.shown < self.most,
        };
        if is_wanted {
            self.keep(found.line_number(), found.bytes(), false);
        }
        Ok(true)
    }
}
