//! A search in the content of files.

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
    /// What is searched.
    pub matcher: RegexMatcher,
    /// Lines around each match that are shown.
    pub context: usize,
    /// Matches that are shown.
    pub max_matches: usize,
}

/// How the searched text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum PatternSyntax {
    /// It is a regular expression.
    Regex,
    /// It is what is searched, letter by letter.
    Literal,
}

/// Memory that the search of one file may take; only a line that is longer needs it.
const MAX_MEMORY: usize = 64 << 20;

/// The largest file that is read at one go, in bytes.
const MAX_BUFFERED_FILE: usize = 128 << 10;

impl ContentSearch {
    /// Returns what to search for.
    ///
    /// # Errors
    ///
    /// Fails when it is no regular expression.
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

    /// Searches.
    pub(in crate::tools) fn run(&self, cancel: &CancellationToken) -> ToolOutput {
        let found = Mutex::new(SearchMatches::new(self.max_matches));
        let found_in = &found;
        let walked = self.walk.for_each_file(cancel, &|| {
            let mut searcher = self.searcher();
            let mut buffer = Vec::new();
            Box::new(move |path| {
                let Ok(opened) = self.walk.root.open_file(&path) else { return };
                let mut hits = FileMatches::new(self.max_matches);
                // What was found before a file could not be read any more still counts.
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

    /// Searches a file. Most are small, and the fewer system calls each of them takes, the sooner all are done.
    fn search_file(
        &self,
        searcher: &mut Searcher,
        buffer: &mut Vec<u8>,
        OpenFile { mut file, size }: OpenFile,
        hits: &mut FileMatches,
    ) -> io::Result<()> {
        // One without a size may have a content all the same.
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
            // A file that shrinks while it is mapped would end the process.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_MEMORY))
            .build()
    }
}
