//! A search in the content of files.

use std::sync::{Mutex, PoisonError};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};

use super::found::{Found, Hits};
use super::walk::{Walk, Walked};
use crate::port::Cancel;
use crate::tools::advice;
use crate::tools::tool::Output;

/// A search in the content of files.
pub(in crate::tools) struct Search {
    /// The files.
    pub walk: Walk,
    /// What is searched.
    pub matcher: RegexMatcher,
    /// Lines around each match that are shown.
    pub context: usize,
    /// Matches that are shown.
    pub most: usize,
}

/// How text is told from a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Text {
    /// It is a regular expression.
    Expression,
    /// It is what is searched, letter by letter.
    Literal,
}

/// Memory that the search of one file may take; only a line that is longer needs it.
const MEMORY: usize = 64 << 20;

impl Search {
    /// Returns what to search for.
    ///
    /// # Errors
    ///
    /// Fails when it is no regular expression.
    pub(in crate::tools) fn matcher(
        text: &str,
        kind: Text,
        case_sensitive: bool,
    ) -> Result<RegexMatcher, String> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .multi_line(true)
            .case_insensitive(!case_sensitive)
            .fixed_strings(kind == Text::Literal);
        builder.line_terminator(Some(b'\n'));
        builder.build(text).map_err(|error| error.to_string())
    }

    /// Searches.
    pub(in crate::tools) fn run(&self, cancel: &Cancel) -> Output {
        let found = Mutex::new(Found::new(self.most));
        let found_in = &found;
        let walked = self.walk.each(cancel, &|| {
            let mut searcher = self.searcher();
            Box::new(move |path| {
                let Ok(opened) = self.walk.root.open_file(&path) else { return };
                let mut hits = Hits::new(self.most);
                // What was found before a file could not be read any more still counts.
                let _ = searcher.search_file(&self.matcher, &opened.file, &mut hits);
                if !hits.is_empty() {
                    found_in.lock().unwrap_or_else(PoisonError::into_inner).add(path, hits);
                }
            })
        });
        let walked = match walked {
            Ok(walked) => walked,
            Err(error) => return Output::failed(advice::missing(&self.walk.root, &error)),
        };
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut text = if found.is_empty() { "No matches.\n".to_owned() } else { found.shown() };
        match walked {
            Walked::All => {}
            Walked::Late => {
                text += "[not all files were searched: it took too long; narrow path or file_pattern]\n";
            }
            Walked::Cancelled => text += "[not all files were searched]\n",
        }
        Output::ok(text.trim_end())
    }

    fn searcher(&self) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            // A file that shrinks while it is mapped would end the process.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MEMORY))
            .build()
    }
}
