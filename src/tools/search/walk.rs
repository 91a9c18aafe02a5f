//! The files of the workspace that a search looks at.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use globset::GlobMatcher;
use ignore::{DirEntry, WalkBuilder};

use crate::port::Cancel;
use crate::tools::pattern::glob;
use crate::tools::permission::Judge;
use crate::tools::tool::Target;
use crate::workspace::{FileError, Kind, RelPath, Root, entries, is_generated};

/// The files below a folder, as far as a search may look at them.
#[derive(Clone)]
pub(in crate::tools) struct Walk {
    /// The workspace.
    pub root: Root,
    /// The folder, or a single file.
    pub path: RelPath,
    /// What the names of the files have to be.
    pub names: Option<GlobMatcher>,
    /// Who says which files may be looked at.
    pub judge: Arc<Judge>,
    /// The tool that looks at them.
    pub tool: &'static str,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tools) enum Walked {
    /// It has seen all files.
    #[default]
    All,
    /// Its time was over before.
    Late,
    /// Nobody waits for it any more.
    Cancelled,
}

/// Something that looks at files, on a thread of its own.
pub(in crate::tools) type Look<'a> = Box<dyn FnMut(RelPath) + Send + 'a>;

/// How long a walk may take.
const LONGEST: Duration = Duration::from_secs(60);

/// Returns what names of files have to be: a pattern without `/` is about the name alone.
pub(in crate::tools) fn names(pattern: &str) -> Result<GlobMatcher, String> {
    let pattern = pattern.trim_start_matches("./");
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    glob(&anywhere)
}

/// Threads that look at files, at the most.
const THREADS: usize = 12;

/// Files that were found and that no thread has looked at yet, at the most.
const QUEUE: usize = 1_024;

impl Walk {
    /// Looks at each file, in no order, from several threads, each with something of its own that looks. This thread walks;
    /// it looks, too, if the system has no other one. (The parallel walker of the library panics or waits for ever then.)
    ///
    /// # Errors
    ///
    /// Fails when there is no such folder or file.
    pub(in crate::tools) fn each<'a>(
        &self,
        cancel: &Cancel,
        looking: &dyn Fn() -> Look<'a>,
    ) -> Result<Walked, FileError> {
        if self.root.kind(&self.path)? == Kind::File {
            looking()(self.path.clone());
            return Ok(Walked::All);
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
            () if cancel.is_cancelled() => Walked::Cancelled,
            () if begun.elapsed() > LONGEST => Walked::Late,
            () => Walked::All,
        };
        let step = |look: &mut Look<'a>, entry: &DirEntry| {
            if stop() == Walked::All
                && entry.file_type().is_some_and(|kind| kind.is_file())
                && let Some(path) = self.wanted(entry.path())
            {
                look(path);
            }
        };
        let most = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        let walked = thread::scope(|scope| {
            let (found, to_look_at) = bounded::<DirEntry>(QUEUE);
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
                if stop != Walked::All {
                    return stop;
                }
                match &mut own {
                    Some(look) => step(look, &entry),
                    // The threads have broken down, and that is told when they are waited for.
                    None if found.send(entry).is_err() => break,
                    None => {}
                }
            }
            Walked::All
        });
        // The threads may have left files out that were found in time.
        Ok(if walked == Walked::All { stop() } else { walked })
    }

    /// Returns the path of a file that was come across, if it is one of those that are wanted.
    fn wanted(&self, found: &Path) -> Option<RelPath> {
        let path = found.strip_prefix(self.root.path()).ok()?;
        if let Some(names) = &self.names {
            // Below the workspace itself it is the same path, and matching is what a search of few files spends its time on.
            let below = || path.strip_prefix(self.path.as_path()).unwrap_or(path);
            if !names.is_match(path) && (self.path.is_root() || !names.is_match(below())) {
                return None;
            }
        }
        let path = RelPath::of_entry(path);
        let may = || self.judge.may_search(self.tool, &path.to_string());
        (!self.judge.limits_searches() || may()).then_some(path)
    }

    /// Returns where it looks, for the order among other calls; the empty text for the whole workspace.
    pub(in crate::tools) fn place(&self) -> String {
        if self.path.is_root() { String::new() } else { self.path.to_string() }
    }

    /// Returns where it really looks, when a symbolic link leads there.
    pub(in crate::tools) fn real_targets(&self) -> Vec<Target> {
        let real = self.root.real(&self.path);
        real.map(|path| Target::Search(path.to_string())).into_iter().collect()
    }
}
