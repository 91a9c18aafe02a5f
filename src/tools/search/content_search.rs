//! Content search.

use std::fs;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use rustix::process::{Resource, getrlimit};

use super::matches::{FileMatches, SearchMatches};
use super::walk::{FileWalk, WalkEnd, compile_name_pattern};
use crate::policy::{CallTarget, PolicyEngine};
use crate::port::{CancellationToken, lock};
use crate::tools::calls::{ReadCall, resolve};
use crate::tools::tool::ToolOutput;
use crate::types::pluralize;
use crate::workspace::{FileError, OpenFile, RelPath, WorkspaceRoot};

/// The arguments of a call that searches the content of files.
pub(in crate::tools) struct SearchRequest {
    /// The tool.
    pub tool: &'static str,
    /// The syntax of the pattern.
    pub syntax: PatternSyntax,
    /// The text or expression to search for.
    pub pattern: String,
    /// The folder or file; by default the workspace.
    pub path: Option<String>,
    /// A glob for the files.
    pub file_pattern: Option<String>,
    /// The number of lines shown before and after each match.
    pub context_lines: u64,
    /// The maximum number of matches shown.
    pub max_results: u64,
    /// Whether upper and lower case differ.
    pub case_sensitive: bool,
}

/// A search in the content of files.
struct ContentSearch {
    walk: FileWalk,
    matcher: RegexMatcher,
    context: usize,
    max_matches: usize,
}

/// The files that could not be searched, at least not completely.
#[derive(Default)]
struct UnsearchedFiles {
    count: usize,
    /// The first of these files by path, with the reason.
    example: Option<(RelPath, String)>,
}

impl UnsearchedFiles {
    fn add(&mut self, path: RelPath, why: String) {
        self.count += 1;
        if self.example.as_ref().is_none_or(|(first, _)| path < *first) {
            self.example = Some((path, why));
        }
    }

    /// Returns a note for the result; empty if every file was searched.
    fn describe(&self) -> String {
        let Some((path, why)) = &self.example else { return String::new() };
        let files = pluralize(self.count, "file", "files");
        format!("[{files} could not be searched, e.g. {path}: {why}]\n")
    }
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

/// The divisor for the part of the remaining address space that searching a file may use. All threads together must
/// leave some space, although each holds an old and a new buffer of twice the size while its buffer grows.
const ADDRESS_SPACE_PART: u64 = 32;

/// The maximum size of a compiled pattern, in bytes. In the worst case, the time for a line is the product of both
/// sizes.
const MAX_PATTERN: usize = 1 << 20;

/// The maximum size of a file that is read into a buffer before it is searched, in bytes.
const MAX_BUFFERED_FILE: usize = 128 << 10;

impl SearchRequest {
    /// Returns the call.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model if an argument is invalid.
    pub(in crate::tools) fn into_call(
        self,
        root: &WorkspaceRoot,
        policy: &Arc<PolicyEngine>,
    ) -> Result<ReadCall, String> {
        let Self { tool, pattern, .. } = self;
        let (argument, hint) = match self.syntax {
            PatternSyntax::Regex => ("pattern", " To search for literal text, use grep."),
            PatternSyntax::Literal => ("text", ""),
        };
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .case_insensitive(!self.case_sensitive)
            .fixed_strings(self.syntax == PatternSyntax::Literal)
            .line_terminator(Some(b'\n'))
            .size_limit(MAX_PATTERN)
            .build(&pattern)
            .map_err(|error| format!("Invalid arguments for {tool}: {argument}: {error}.{hint}"))?;
        let path = resolve(root, self.path.as_deref())?;
        let names = self.file_pattern.map(|names| compile_name_pattern(&names)).transpose();
        let names = names
            .map_err(|error| format!("Invalid arguments for {tool}: file_pattern: {error}."))?;
        let summary = match path.is_root() {
            true => pattern,
            false => format!("{pattern} in {path}"),
        };
        let limit = |number: u64, most| usize::try_from(number).unwrap_or(most).min(most);
        let (own, policy) = (root.clone(), Arc::clone(policy));
        let search = ContentSearch {
            walk: FileWalk { root: own, path: path.clone(), names, policy, tool },
            matcher,
            context: limit(self.context_lines, 50),
            max_matches: limit(self.max_results.max(1), 1_000),
        };
        Ok(ReadCall {
            root: root.clone(),
            path,
            target: CallTarget::Search,
            summary,
            read: Box::new(move |_, _, context| search.run(&context.scope.cancel)),
        })
    }
}

impl ContentSearch {
    fn run(&self, cancel: &CancellationToken) -> Result<ToolOutput, FileError> {
        let found = Mutex::new(SearchMatches::new(self.max_matches));
        let unsearched = Mutex::new(UnsearchedFiles::default());
        let (found_in, unsearched_in) = (&found, &unsearched);
        let heap_limit = heap_limit();
        let walked = self.walk.for_each_file(cancel, &|| {
            let mut searcher = self.searcher(heap_limit);
            let mut buffer = Vec::new();
            Box::new(move |path| {
                let opened = match self.walk.root.open_file(&path) {
                    Ok(opened) => opened,
                    // The file was removed meanwhile.
                    Err(FileError::Missing(_)) => return,
                    // A link has replaced the folder of the file, so not even the name may be revealed.
                    Err(FileError::Escapes(_) | FileError::Denied(..))
                        if path != self.walk.path =>
                    {
                        return;
                    }
                    Err(FileError::Io { path, source, .. }) => {
                        return lock(unsearched_in).add(path, source.to_string());
                    }
                    Err(error) => return lock(unsearched_in).add(path, error.to_string()),
                };
                let mut hits = FileMatches::new(self.max_matches);
                let searched = self.search_file(&mut searcher, &mut buffer, opened, &mut hits);
                if let Err(error) = searched {
                    // Matches before a read error are kept.
                    lock(unsearched_in).add(path.clone(), error.to_string());
                }
                if !hits.is_empty() {
                    lock(found_in).add(path, hits);
                }
            })
        })?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut text = if found.is_empty() { "No matches.\n".to_owned() } else { found.format() };
        match walked {
            WalkEnd::Complete => {}
            WalkEnd::TimedOut => {
                text += "[not all files were searched: it took too long; narrow path or file_pattern]\n";
            }
            WalkEnd::Cancelled => text += "[not all files were searched]\n",
        }
        text += &unsearched.into_inner().unwrap_or_else(PoisonError::into_inner).describe();
        Ok(ToolOutput::ok(text.trim_end()))
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

    fn searcher(&self, heap_limit: usize) -> Searcher {
        SearcherBuilder::new()
            .line_number(true)
            .before_context(self.context)
            .after_context(self.context)
            .binary_detection(BinaryDetection::quit(0))
            // Files are not mapped: if a mapped file shrank meanwhile, SIGBUS would end the process.
            .memory_map(MmapChoice::never())
            .heap_limit(Some(heap_limit))
            .build()
    }
}

/// Returns the heap limit for searching a file, in bytes. If the system refused memory, the process would end.
fn heap_limit() -> usize {
    let Some(most) = getrlimit(Resource::As).current else { return MAX_MEMORY };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let used =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next());
    let used = used.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) << 10;
    let left = most.saturating_sub(used) / ADDRESS_SPACE_PART;
    usize::try_from(left).map_or(MAX_MEMORY, |left| left.min(MAX_MEMORY))
}
