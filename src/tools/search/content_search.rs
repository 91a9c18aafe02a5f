//! Content search.

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};

use super::matches::{FileMatches, SearchMatches};
use super::walk::{FileWalk, WalkEnd};
use crate::port::CancellationToken;
use crate::tools::error_hints;
use crate::tools::tool::ToolOutput;
use crate::workspace::OpenFile;

/// A search in the content of files.
pub(in crate::tools) struct ContentSearch {
    /// The files.
    pub walk: FileWalk,
    /// Matches the lines to find.
    pub matcher: RegexMatcher,
    /// The number of lines shown before and after each match.
    pub context: usize,
    /// The maximum number of matches shown.
    pub max_matches: usize,
}

/// The syntax of a search pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum PatternSyntax {
    /// A regular expression.
    Regex,
    /// Literal text.
    Literal,
}

/// The heap limit for the search of a file, in bytes. Only very long lines reach it.
const MAX_MEMORY: usize = 64 << 20;

/// The maximum size of a file that is read into a buffer before it is searched, in bytes.
const MAX_BUFFERED_FILE: usize = 128 << 10;

impl ContentSearch {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// Fails if the pattern is not a valid regular expression.
    pub(in crate::tools) fn matcher(
        text: &str,
        kind: PatternSyntax,
        case_sensitive: bool,
    ) -> Result<RegexMatcher, String> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .multi_line(true)
            .case_insensitive(!case_sensitive)
            .fixed_strings(kind == PatternSyntax::Literal);
        builder.line_terminator(Some(b'\n'));
        builder.build(text).map_err(|error| error.to_string())
    }

    /// Searches the files.
    pub(in crate::tools) fn run(&self, cancel: &CancellationToken) -> ToolOutput {
        let found = Mutex::new(SearchMatches::new(self.max_matches));
        let found_in = &found;
        let walked = self.walk.for_each_file(cancel, &|| {
            let mut searcher = self.searcher();
            let mut buffer = Vec::new();
            Box::new(move |path| {
                let Ok(opened) = self.walk.root.open_file(&path) else { return };
                let mut hits = FileMatches::new(self.max_matches);
                // Matches before a read error are kept.
                let _ = self.search_file(&mut searcher, &mut buffer, opened, &mut hits);
                if !hits.is_empty() {
                    found_in.lock().unwrap_or_else(PoisonError::into_inner).add(path, hits);
                }
            })
        });
        let walked = match walked {
            Ok(walked) => walked,
            Err(error) => {
                return ToolOutput::failed(error_hints::describe_missing(&self.walk.root, &error));
            }
        };
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut text = if found.is_empty() { "No matches.\n".to_owned() } else { found.format() };
        match walked {
            WalkEnd::Complete => {}
            WalkEnd::TimedOut => {
                text += "[not all files were searched: it took too long; narrow path or file_pattern]\n";
            }
            WalkEnd::Cancelled => text += "[not all files were searched]\n",
        }
        ToolOutput::ok(text.trim_end())
    }

    /// Searches a file. Most files are small, so the number of system calls per file determines the speed.
    fn search_file(
        &self,
        searcher: &mut Searcher,
        buffer: &mut Vec<u8>,
        OpenFile { mut file, size }: OpenFile,
        hits: &mut FileMatches,
    ) -> io::Result<()> {
        // A file whose size is reported as zero may still have content.
        let size = usize::try_from(size).ok().filter(|size| (1..=MAX_BUFFERED_FILE).contains(size));
        let Some(size) = size else { return searcher.search_file(&self.matcher, &file, hits) };
        buffer.resize(MAX_BUFFERED_FILE, 0);
        let mut read = 0;
        while read < size {
            match file.read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        searcher.search_slice(&self.matcher, &buffer[..read], hits)
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            // Files are not mapped: one that shrinks meanwhile would end the process by SIGBUS.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_MEMORY))
            .build()
    }
}
