//! The walk through a workspace, on a thread of its own, behind whoever waits for it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder};

use super::cache::Cache;
use super::{Index, IndexError, IndexSettings, guarded, language};
use crate::workspace::generated::is_generated;
use crate::workspace::listing::entries;
use crate::workspace::path::RelPath;
use crate::workspace::root::Root;

/// A file that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: RelPath,
    pub(super) language: Option<&'static str>,
}

/// A walk that is under way, or over.
pub(super) struct Walk {
    shared: Arc<Shared>,
    /// Whether it goes on when nobody waits any more.
    goes_on: bool,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    ended: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Progress {
    found: Vec<Found>,
    /// Entries that were come across, of any kind.
    entries: usize,
    over: bool,
}

/// The most files that are looked at. A folder with more is no project.
const MOST: usize = 1_000_000;

/// How long a walk goes on for the cache when nobody waits for it.
const LONGEST: Duration = Duration::from_secs(60);

/// How often it is looked whether there were enough entries.
const SLICE: Duration = Duration::from_millis(5);

/// What a version control keeps for itself.
const CONTROL: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

impl Walk {
    /// Starts a walk.
    pub(super) fn start(
        root: &Root,
        settings: &IndexSettings,
        cache: Option<Cache>,
    ) -> Result<Self, IndexError> {
        let builder = builder(root.path(), excluded(root.path(), &settings.exclude)?);
        let shared = Arc::new(Shared::default());
        let walk = Self { shared: Arc::clone(&shared), goes_on: cache.is_some() };
        let (path, largest) = (root.path().to_owned(), settings.largest);
        let job = move || {
            match path.ancestors().all(guarded::is_readable) {
                true => shared.walk(&builder, &path, largest),
                false => shared.stopped.store(true, Ordering::Relaxed),
            }
            if let Some(cache) = cache.filter(|_| !shared.stopped.load(Ordering::Relaxed)) {
                cache.write(&Index::new(&shared.progress().found));
            }
            shared.progress().over = true;
            shared.ended.notify_all();
        };
        // Without a thread there is no index; the run goes on without, and waits for none.
        if let Err(error) = thread::Builder::new().name("index".to_owned()).spawn(job) {
            log::warn!("the workspace is not indexed: {error}");
            walk.shared.stopped.store(true, Ordering::Relaxed);
            walk.shared.progress().over = true;
        }
        Ok(walk)
    }

    /// Waits for the end of the walk, and returns whether it found all there is by then. It waits until the time is over,
    /// and until so many entries were looked at: a machine that has much to do takes longer to say the same of a small
    /// workspace.
    pub(super) fn wait(&self, due: Instant, entries: usize) -> bool {
        let mut progress = self.shared.progress();
        loop {
            if progress.over {
                return !self.shared.stopped.load(Ordering::Relaxed);
            }
            let mut left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if progress.entries >= entries {
                    break;
                }
                left = SLICE;
            }
            let waited = self.shared.ended.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !self.goes_on {
            self.shared.stopped.store(true, Ordering::Relaxed);
        }
        false
    }

    /// Returns the index of what was found so far.
    pub(super) fn index(&self) -> Index {
        // A copy, so that a walk that goes on need not wait.
        let found = self.shared.progress().found.clone();
        Index::new(&found)
    }
}

impl Shared {
    fn walk(&self, builder: &WalkBuilder, root: &Path, largest: u64) {
        let begun = Instant::now();
        for entry in entries(builder.build()) {
            let found = found(&entry, root, largest);
            let mut progress = self.progress();
            progress.entries += 1;
            progress.found.extend(found);
            let full = progress.found.len() >= MOST;
            drop(progress);
            if full || begun.elapsed() > LONGEST {
                self.stopped.store(true, Ordering::Relaxed);
            }
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an entry as a file of the index; none unless it is a regular file.
fn found(entry: &DirEntry, root: &Path, largest: u64) -> Option<Found> {
    if !entry.file_type()?.is_file() {
        return None;
    }
    let path = RelPath::new(entry.path().strip_prefix(root).ok()?).ok()?;
    let language = language::of(path.name()?)
        .filter(|_| entry.metadata().is_ok_and(|meta| meta.len() <= largest));
    Some(Found { path, language })
}

fn builder(root: &Path, excluded: Override) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(false)
        .require_git(false)
        // To find it, a `.git` that is a file would be followed to wherever it leads.
        .git_exclude(false)
        // Lists of the folders above count in a repository only; a home may ignore all that lies in it.
        .parents(root.ancestors().any(|folder| folder.join(".git").exists()))
        .overrides(excluded)
        .current_dir(root)
        .filter_entry(|entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            !CONTROL.iter().any(|name| entry.file_name() == *name)
                && (!is_folder
                    || guarded::is_readable(entry.path())
                        && (entry.depth() == 0 || !is_generated(entry.path())))
        });
    builder
}

fn excluded(root: &Path, patterns: &[String]) -> Result<Override, IndexError> {
    let mut builder = OverrideBuilder::new(root);
    let wrong = |pattern: &str| {
        let pattern = pattern.to_owned();
        move |source| IndexError::Pattern { pattern, source }
    };
    for pattern in patterns {
        builder.add(&format!("!{pattern}")).map_err(wrong(pattern))?;
    }
    builder.build().map_err(wrong(&patterns.join(", ")))
}
