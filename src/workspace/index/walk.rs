//! The walk through a workspace, on a background thread.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder};

use super::cache::IndexCache;
use super::{IndexError, IndexSettings, WorkspaceIndex, language};
use crate::port::lock;
use crate::workspace::generated_folders::is_generated;
use crate::workspace::listing::{entries, has_readable_ignore_files, walk_builder};
use crate::workspace::path::RelPath;
use crate::workspace::root::WorkspaceRoot;

/// A file that the walk has found.
#[derive(Clone, Debug)]
pub(super) struct IndexedFile {
    pub(super) path: RelPath,
    pub(super) language: Option<&'static str>,
}

/// A running or finished walk.
pub(super) struct IndexWalk {
    shared: Arc<WalkState>,
    /// Whether the walk continues when the caller has stopped waiting.
    continues_in_background: bool,
}

#[derive(Default)]
struct WalkState {
    progress: Mutex<WalkProgress>,
    finished: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
struct WalkProgress {
    found: Vec<IndexedFile>,
    /// The number of entries visited, of any kind.
    entries: usize,
    is_finished: bool,
}

/// The maximum number of visited files. A larger folder is not a project.
const MAX_FILES: usize = 1_000_000;

/// The maximum time for which a walk continues in the background, for the cache.
const MAX_BACKGROUND_DURATION: Duration = Duration::from_secs(60);

/// The interval between checks of the number of entries.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Folders of version control systems.
pub(in crate::workspace) const VERSION_CONTROL_FOLDERS: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

impl IndexWalk {
    /// Starts a walk.
    pub(super) fn start(
        root: &WorkspaceRoot,
        settings: &IndexSettings,
        cache: Option<IndexCache>,
    ) -> Result<Self, IndexError> {
        let builder =
            index_walk_builder(root.path(), exclude_patterns(root.path(), &settings.exclude)?);
        let shared = Arc::new(WalkState::default());
        let walk = Self { shared: Arc::clone(&shared), continues_in_background: cache.is_some() };
        let (path, largest) = (root.path().to_owned(), settings.max_file_size);
        let job = move || {
            match path.ancestors().all(has_readable_ignore_files) {
                true => shared.walk(&builder, &path, largest),
                false => shared.stopped.store(true, Ordering::Relaxed),
            }
            if let Some(cache) = cache.filter(|_| !shared.stopped.load(Ordering::Relaxed)) {
                cache.write(&WorkspaceIndex::from_files(&lock(&shared.progress).found));
            }
            lock(&shared.progress).is_finished = true;
            shared.finished.notify_all();
        };
        // Without a thread, there is no index, and the run continues without one.
        if let Err(error) = thread::Builder::new().name("index".to_owned()).spawn(job) {
            log::warn!("the workspace is not indexed: {error}");
            walk.shared.stopped.store(true, Ordering::Relaxed);
            lock(&walk.shared.progress).is_finished = true;
        }
        Ok(walk)
    }

    /// Waits for the end of the walk, and returns whether it is complete. Waits until `due`, and until `entries`
    /// entries were visited, because a busy computer takes longer for the same small workspace.
    pub(super) fn wait(&self, due: Instant, entries: usize) -> bool {
        let mut progress = lock(&self.shared.progress);
        loop {
            if progress.is_finished {
                return !self.shared.stopped.load(Ordering::Relaxed);
            }
            let mut left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if progress.entries >= entries {
                    break;
                }
                left = POLL_INTERVAL;
            }
            let waited = self.shared.finished.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !self.continues_in_background {
            self.shared.stopped.store(true, Ordering::Relaxed);
        }
        false
    }

    /// Returns a walk that never ends.
    #[cfg(test)]
    pub(super) fn endless(continues_in_background: bool) -> Self {
        Self { shared: Arc::default(), continues_in_background }
    }

    /// Returns whether the walk has to stop.
    #[cfg(test)]
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Returns the index of the files found so far.
    pub(super) fn index(&self) -> WorkspaceIndex {
        // A copy, so that a running walk is not blocked.
        let found = lock(&self.shared.progress).found.clone();
        WorkspaceIndex::from_files(&found)
    }
}

impl WalkState {
    fn walk(&self, builder: &WalkBuilder, root: &Path, largest: u64) {
        let begun = Instant::now();
        for entry in entries(builder.build()) {
            let found = indexed_file(&entry, root, largest);
            let mut progress = lock(&self.progress);
            progress.entries += 1;
            progress.found.extend(found);
            let full = progress.found.len() >= MAX_FILES;
            drop(progress);
            if full || begun.elapsed() > MAX_BACKGROUND_DURATION {
                self.stopped.store(true, Ordering::Relaxed);
            }
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

/// Returns an entry as a file of the index; `None` if it is not a regular file.
fn indexed_file(entry: &DirEntry, root: &Path, largest: u64) -> Option<IndexedFile> {
    if !entry.file_type()?.is_file() {
        return None;
    }
    let path = RelPath::new(entry.path().strip_prefix(root).ok()?).ok()?;
    let language = language::language_of(path.name()?)
        .filter(|_| entry.metadata().is_ok_and(|meta| meta.len() <= largest));
    Some(IndexedFile { path, language })
}

fn index_walk_builder(root: &Path, excluded: Override) -> WalkBuilder {
    let mut builder = walk_builder(root, root);
    builder
        // Ignore files of parent folders count only in a repository: an ignore file in a home folder may ignore
        // everything.
        .parents(root.ancestors().any(|folder| folder.join(".git").exists()))
        .overrides(excluded)
        .filter_entry(|entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            !VERSION_CONTROL_FOLDERS.iter().any(|name| entry.file_name() == *name)
                && (!is_folder
                    || has_readable_ignore_files(entry.path())
                        && (entry.depth() == 0 || !is_generated(entry.path())))
        });
    builder
}

fn exclude_patterns(root: &Path, patterns: &[String]) -> Result<Override, IndexError> {
    let mut builder = OverrideBuilder::new(root);
    let wrong = |pattern: &str| {
        let pattern = pattern.to_owned();
        move |source| IndexError { pattern, source }
    };
    for pattern in patterns {
        builder.add(&format!("!{pattern}")).map_err(wrong(pattern))?;
    }
    builder.build().map_err(wrong(&patterns.join(", ")))
}
