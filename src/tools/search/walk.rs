//! The walk through the files of the workspace.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use globset::GlobMatcher;
use ignore::DirEntry;

use crate::policy::PolicyEngine;
use crate::port::CancellationToken;
use crate::tools::glob::compile_glob;

use crate::workspace::{
    FileError, FileKind, FileLookup, RelPath, WorkspaceRoot, entries, has_readable_ignore_files,
    is_generated, walk_builder,
};

/// A walk through the files below a folder that a search may read.
#[derive(Clone)]
pub(in crate::tools) struct FileWalk {
    /// The workspace.
    pub root: WorkspaceRoot,
    /// The folder, or a single file.
    pub path: RelPath,
    /// A pattern for the names of the files; `None` for all files.
    pub names: Option<GlobMatcher>,
    /// Decides which files may be read.
    pub policy: Arc<PolicyEngine>,
    /// The tool that reads the files.
    pub tool: &'static str,
}

/// The reason why a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum WalkEnd {
    /// All files were visited.
    #[default]
    Complete,
    /// The time limit was reached.
    TimedOut,
    /// It was cancelled.
    Cancelled,
}

impl WalkEnd {
    /// Returns whether a walk that began then has to end.
    pub(in crate::tools) fn of_limits(begun: Instant, cancel: &CancellationToken) -> Self {
        match () {
            () if cancel.is_cancelled() => Self::Cancelled,
            () if begun.elapsed() > MAX_DURATION => Self::TimedOut,
            () => Self::Complete,
        }
    }
}

/// A visitor of files, used by one thread.
pub(in crate::tools) type FileVisitor<'a> = Box<dyn FnMut(RelPath) + Send + 'a>;

/// The time limit of a walk.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// Compiles a pattern for paths; without `/` it matches the file name alone.
pub(in crate::tools) fn compile_name_pattern(pattern: &str) -> Result<GlobMatcher, String> {
    let pattern = pattern.trim_start_matches("./");
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    compile_glob(&anywhere)
}

/// The maximum number of threads that visit files.
const MAX_THREADS: usize = 12;

/// The maximum number of files that wait for a thread.
const MAX_QUEUED_FILES: usize = 1_024;

impl FileWalk {
    /// Visits each file in unspecified order, on several threads with a visitor each. The calling thread walks, and
    /// visits files itself if no thread can be started. (In that case, the parallel walker of `ignore` panics or blocks
    /// forever.)
    ///
    /// # Errors
    ///
    /// Fails if the folder or file does not exist.
    pub(in crate::tools) fn for_each_file<'a>(
        &self,
        cancel: &CancellationToken,
        looking: &dyn Fn() -> FileVisitor<'a>,
    ) -> Result<WalkEnd, FileError> {
        if self.root.kind(&self.path)? == FileKind::File {
            looking()(self.path.clone());
            return Ok(WalkEnd::Complete);
        }
        let begun = Instant::now();
        let from = self.root.path().join(self.path.as_path());
        let mut walk = walk_builder(self.root.path(), &from);
        // Hidden files belong to the project, but the repository's own folder does not.
        walk.follow_links(false).filter_entry(|entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            // The requested folder is always searched.
            let is_left_out = is_folder
                && entry.depth() > 0
                && (is_generated(entry.path()) || !has_readable_ignore_files(entry.path()));
            entry.file_name() != ".git" && !is_left_out
        });
        if !from.ancestors().all(has_readable_ignore_files) {
            walk.standard_filters(false);
        }
        let stop = || WalkEnd::of_limits(begun, cancel);
        let step = |look: &mut FileVisitor<'a>, entry: &DirEntry| {
            if stop() == WalkEnd::Complete
                && entry.file_type().is_some_and(|kind| kind.is_file())
                && let Some(path) = self.searchable_path(entry.path())
            {
                look(path);
            }
        };
        let most = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let walked = thread::scope(|scope| {
            let (found, to_look_at) = bounded::<DirEntry>(MAX_QUEUED_FILES);
            let start = |_| {
                let (entries, mut look) = (to_look_at.clone(), looking());
                let work = move || entries.iter().for_each(|entry| step(&mut look, &entry));
                thread::Builder::new().name("search".to_owned()).spawn_scoped(scope, work).ok()
            };
            let threads = (0..most).map_while(start).count();
            drop(to_look_at);
            let mut own = (threads == 0).then(looking);
            for entry in entries(walk.build()) {
                let stop = stop();
                if stop != WalkEnd::Complete {
                    return stop;
                }
                match &mut own {
                    Some(look) => step(look, &entry),
                    // All threads have panicked; joining them reports that.
                    None if found.send(entry).is_err() => break,
                    None => {}
                }
            }
            WalkEnd::Complete
        });
        // The threads may have skipped files that were found before the time limit.
        Ok(if walked == WalkEnd::Complete { stop() } else { walked })
    }

    /// Opens the folder, so that a visitor can check files in it with [`is_in_workspace`](Self::is_in_workspace).
    ///
    /// # Errors
    ///
    /// Fails if the path leads outside, or the folder can't be opened.
    pub(in crate::tools) fn lookup(&self) -> Result<Option<FileLookup>, FileError> {
        match self.root.kind(&self.path)? {
            FileKind::Directory => self.root.look_below(&self.path).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns whether a visited file is in the workspace, and not in a folder that is excluded from searches.
    ///
    /// The walk is by path: if another process replaces a folder by a link, it visits files behind the link.
    pub(in crate::tools) fn is_in_workspace(
        &self,
        lookup: &mut FileLookup,
        path: &RelPath,
    ) -> bool {
        let may =
            |real: RelPath| real == *path || self.policy.can_search(self.tool, &real.to_string());
        lookup.has_file(path)
            && (!self.policy.has_search_limits() || lookup.real_path(path).is_some_and(may))
    }

    /// Returns the path of an entry if it is a file to be visited.
    fn searchable_path(&self, found: &Path) -> Option<RelPath> {
        let path = found.strip_prefix(self.root.path()).ok()?;
        if let Some(names) = &self.names {
            // Directly below the workspace, both paths are the same; matching dominates the time of a small search.
            let below = || path.strip_prefix(self.path.as_path()).unwrap_or(path);
            if !names.is_match(path) && (self.path.is_root() || !names.is_match(below())) {
                return None;
            }
        }
        let path = RelPath::from_entry(path);
        let may = || self.policy.can_search(self.tool, &path.to_string());
        (!self.policy.has_search_limits() || may()).then_some(path)
    }
}
