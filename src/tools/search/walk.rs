//! The files of the workspace that a search looks at.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use globset::GlobMatcher;
use ignore::{DirEntry, WalkBuilder};

use crate::policy::{CallTarget, PolicyEngine};
use crate::port::CancellationToken;
use crate::tools::glob::compile_glob;

use crate::workspace::{FileError, FileKind, RelPath, WorkspaceRoot, entries, is_generated};

/// The files below a folder, as far as a search may look at them.
#[derive(Clone)]
pub(in crate::tools) struct FileWalk {
    /// The workspace.
    pub root: WorkspaceRoot,
    /// The folder, or a single file.
    pub path: RelPath,
    /// What the names of the files have to be.
    pub names: Option<GlobMatcher>,
    /// Who says which files may be looked at.
    pub policy: Arc<PolicyEngine>,
    /// The tool that looks at them.
    pub tool: &'static str,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum WalkEnd {
    /// It has seen all files.
    #[default]
    Complete,
    /// Its time was over before.
    TimedOut,
    /// It was cancelled.
    Cancelled,
}

/// Something that looks at files, on a thread of its own.
pub(in crate::tools) type FileVisitor<'a> = Box<dyn FnMut(RelPath) + Send + 'a>;

/// How long a walk may take.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// Returns what names of files have to be: a pattern without `/` is about the name alone.
pub(in crate::tools) fn compile_name_pattern(pattern: &str) -> Result<GlobMatcher, String> {
    let pattern = pattern.trim_start_matches("./");
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    compile_glob(&anywhere)
}

/// Threads that look at files, at the most.
const MAX_THREADS: usize = 12;

/// Files that were found and that no thread has looked at yet, at the most.
const MAX_QUEUED_FILES: usize = 1_024;

impl FileWalk {
    /// Looks at each file, in no order, from several threads, each with something of its own that looks. This thread walks;
    /// it looks, too, if the system has no other one. (The parallel walker of the library panics or waits for ever then.)
    ///
    /// # Errors
    ///
    /// Fails when there is no such folder or file.
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
        let mut walk = WalkBuilder::new(&from);
        // What begins with a dot belongs to the project; what git keeps for itself does not.
        walk.hidden(false).require_git(false).git_global(false).follow_links(false);
        walk.filter_entry(|entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            // The folder that was asked for is searched, whatever it is.
            let is_left_out = is_folder && entry.depth() > 0 && is_generated(entry.path());
            entry.file_name() != ".git" && !is_left_out
        });
        let stop = || match () {
            () if cancel.is_cancelled() => WalkEnd::Cancelled,
            () if begun.elapsed() > MAX_DURATION => WalkEnd::TimedOut,
            () => WalkEnd::Complete,
        };
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
                    // The threads have panicked, which joining them reports.
                    None if found.send(entry).is_err() => break,
                    None => {}
                }
            }
            WalkEnd::Complete
        });
        // The threads may have left files out that were found in time.
        Ok(if walked == WalkEnd::Complete { stop() } else { walked })
    }

    /// Returns the path of a file that was come across, if it is one of those that are wanted.
    fn searchable_path(&self, found: &Path) -> Option<RelPath> {
        let path = found.strip_prefix(self.root.path()).ok()?;
        if let Some(names) = &self.names {
            // Below the workspace itself it is the same path, and matching is what a search of few files spends its time on.
            let below = || path.strip_prefix(self.path.as_path()).unwrap_or(path);
            if !names.is_match(path) && (self.path.is_root() || !names.is_match(below())) {
                return None;
            }
        }
        let path = RelPath::from_entry(path);
        let may = || self.policy.can_search(self.tool, &path.to_string());
        (!self.policy.has_search_limits() || may()).then_some(path)
    }

    /// Returns where it looks, for the order among other calls; the empty text for the whole workspace.
    pub(in crate::tools) fn shown_path(&self) -> String {
        if self.path.is_root() { String::new() } else { self.path.to_string() }
    }

    /// Returns where it really looks, when a symbolic link leads there.
    pub(in crate::tools) fn real_targets(&self) -> Vec<CallTarget> {
        let real = self.root.real_path(&self.path);
        real.map(|path| CallTarget::Search(path.to_string())).into_iter().collect()
    }
}
