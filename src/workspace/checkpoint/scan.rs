//! The scan of a workspace: a walk that reads only files that have changed since the previous scan.
//!
//! The walk opens each folder beneath its parent and follows no link, so that it never leaves the workspace. A file is
//! unchanged if its size, modification and change times, inode and permissions are unchanged. If its times are as new
//! as the scan that read it, it may have been changed again with the same times. Such a file is read again, as git
//! does.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::fs::{
    AtFlags, Dev, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::content_store::ContentStore;
use super::error::CheckpointError;
use super::tree::{RecordedNode, SkipReason, SkippedEntry, encode};
use crate::port::CancellationToken;
use crate::types::Sha256Digest;
use crate::workspace::edit_batch::is_leftover_name;
use crate::workspace::generated_folders::is_generated_among;
use crate::workspace::index::VERSION_CONTROL_FOLDERS;
use crate::workspace::root::WorkspaceRoot;
use crate::workspace::{FileId, IoContext};

/// The options that determine the recorded part of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanOptions {
    /// The size in bytes above which a file is not recorded.
    pub max_file_size: u64,
    /// The maximum bytes of the contents of a session.
    pub max_total: u64,
    /// The number of files above which nothing is recorded.
    pub max_files: u64,
    /// The patterns of paths that are not recorded, as in a `.gitignore`.
    pub exclude: Vec<String>,
    /// Whether folders of dependencies, caches and build outputs are recorded.
    pub generated: bool,
    /// Folders of this program, relative to the workspace.
    pub own_folders: Vec<PathBuf>,
}

impl Default for ScanOptions {
    /// Returns options without limits.
    fn default() -> Self {
        Self {
            max_file_size: u64::MAX,
            max_total: u64::MAX,
            max_files: u64::MAX,
            exclude: Vec::new(),
            generated: true,
            own_folders: Vec::new(),
        }
    }
}

/// A recorded state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedState {
    /// The tree of the workspace.
    pub tree: Sha256Digest,
    /// The size of the state.
    pub totals: ScanTotals,
}

/// The size of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanTotals {
    /// The number of files and links.
    pub files: u64,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The number of existing entries that are not recorded.
    pub left_out: u64,
}

/// A scanner that records states of a workspace.
#[derive(Debug)]
pub struct WorkspaceScanner {
    root: WorkspaceRoot,
    options: ScanOptions,
    exclude: Gitignore,
    state: Option<FolderState>,
    /// Whether all contents of the state are in the store.
    is_stored: bool,
    pool: Option<ThreadPool>,
    time_limit: Option<Duration>,
    /// The files that this program writes.
    output_files: Vec<FileId>,
    /// The maximum age of a temporary file of an edit.
    pub(super) leftover_age: Duration,
}

/// A folder at the last scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderState {
    pub(super) mode: u32,
    pub(super) tree: Sha256Digest,
    pub(super) totals: ScanTotals,
    /// Sorted by their names.
    pub(super) entries: Vec<EntryState>,
}

/// An entry of a folder at the last scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryState {
    pub(super) name: OsString,
    pub(super) node: NodeState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    File { stat: FileStat, hash: Sha256Digest },
    Link { stat: FileStat, target: OsString },
    Folder(Box<FolderState>),
    LeftOut(SkippedEntry),
}

/// The file status by which changes of a file are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) mode: u32,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Nanoseconds since 1970.
    pub(super) modified: i64,
    pub(super) changed: i64,
    /// Whether a later change could have the same times.
    pub(super) is_racy: bool,
}

/// One scan.
struct Scan<'a> {
    scanner: &'a WorkspaceScanner,
    store: &'a ContentStore,
    cancel: &'a CancellationToken,
    /// The earliest times that are too new, for time stamps of nanoseconds and of seconds.
    newest: [i64; 2],
    /// Temporary files that were last changed before this time are those of killed processes.
    leftovers_before: i64,
    device: Dev,
    files: AtomicU64,
    /// The maximum bytes of the session's contents on this disk.
    most_bytes: OnceLock<u64>,
    /// Whether threads share the work.
    is_parallel: bool,
    begun: Instant,
}

/// The minimum time between two changes with different time stamps: some ticks of a kernel, and two seconds for file
/// systems that count those.
const RESOLUTION: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(2_100)];

/// The age at which a temporary file is a leftover: much longer than an edit takes.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// The maximum depth of a folder that is walked.
const MAX_DEPTH: usize = 100;

/// The maximum number of files that one thread scans alone.
const MAX_FILES_ALONE: u64 = 1_000;

/// The maximum number of threads that read files.
const MAX_THREADS: usize = 4;

/// The prefix of the names of this program's temporary files.
const OWN_PREFIX: &str = ".architect-";

impl FileStat {
    // The types differ between systems.
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, clippy::cast_sign_loss)]
    fn new(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(rest)
        };
        Self {
            mode: stat.st_mode as u32 & 0o7777,
            inode: stat.st_ino as u64,
            size: stat.st_size.cast_unsigned(),
            modified: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            is_racy: false,
        }
    }

    /// Returns whether a file with this earlier state has the same content.
    fn is_unchanged_since(&self, old: &Self) -> bool {
        !old.is_racy && self == old
    }

    fn skipped(&self, reason: SkipReason) -> NodeState {
        NodeState::LeftOut(SkippedEntry { reason, size: self.size, modified: self.modified })
    }
}

fn skipped(reason: SkipReason) -> NodeState {
    NodeState::LeftOut(SkippedEntry { reason, size: 0, modified: 0 })
}

impl EntryState {
    fn to_recorded(&self) -> (&OsStr, RecordedNode) {
        let node = match &self.node {
            NodeState::File { stat, hash } => {
                RecordedNode::File { mode: stat.mode, size: stat.size, hash: *hash }
            }
            NodeState::Link { target, .. } => RecordedNode::Link { target: target.clone() },
            NodeState::Folder(folder) => {
                RecordedNode::Folder { mode: folder.mode, tree: folder.tree }
            }
            NodeState::LeftOut(skipped) => RecordedNode::LeftOut(*skipped),
        };
        (&self.name, node)
    }

    fn totals(&self) -> ScanTotals {
        match &self.node {
            NodeState::File { stat, .. } => {
                ScanTotals { files: 1, bytes: stat.size, ..ScanTotals::default() }
            }
            NodeState::Link { .. } => ScanTotals { files: 1, ..ScanTotals::default() },
            NodeState::Folder(folder) => folder.totals,
            NodeState::LeftOut(_) => ScanTotals { left_out: 1, ..ScanTotals::default() },
        }
    }

    /// Returns whether the entry is the same in a tree.
    fn is_same(&self, other: &Self) -> bool {
        let is_same = match (&self.node, &other.node) {
            (NodeState::File { stat: a, hash: x }, NodeState::File { stat: b, hash: y }) => {
                (a.mode, a.size, x) == (b.mode, b.size, y)
            }
            (NodeState::Link { target: a, .. }, NodeState::Link { target: b, .. }) => a == b,
            (NodeState::Folder(a), NodeState::Folder(b)) => (a.mode, a.tree) == (b.mode, b.tree),
            (NodeState::LeftOut(a), NodeState::LeftOut(b)) => a == b,
            _ => false,
        };
        is_same && self.name == other.name
    }
}

impl FolderState {
    fn entry(&self, name: &OsStr) -> Option<&EntryState> {
        let found = self.entries.binary_search_by(|entry| entry.name.as_os_str().cmp(name));
        found.ok().map(|position| &self.entries[position])
    }

    /// Calls `see` with the digest of each content of the state.
    pub(super) fn contents(&self, see: &mut dyn FnMut(Sha256Digest)) {
        see(self.tree);
        for entry in &self.entries {
            match &entry.node {
                NodeState::File { hash, .. } => see(*hash),
                NodeState::Folder(folder) => folder.contents(see),
                NodeState::Link { .. } | NodeState::LeftOut(_) => {}
            }
        }
    }
}

impl WorkspaceScanner {
    /// Creates a scanner without knowledge of the workspace.
    ///
    /// # Errors
    ///
    /// Fails if a pattern is invalid.
    pub fn new(root: &WorkspaceRoot, options: ScanOptions) -> Result<Self, CheckpointError> {
        let mut builder = GitignoreBuilder::new(root.path());
        for pattern in &options.exclude {
            let added = builder.add_line(None, pattern);
            added.map_err(|_| CheckpointError::Pattern(pattern.clone()))?;
        }
        let all = || CheckpointError::Pattern(options.exclude.join(", "));
        let exclude = builder.build().map_err(|_| all())?;
        let root = root.clone();
        Ok(Self {
            root,
            options,
            exclude,
            state: None,
            is_stored: false,
            pool: None,
            time_limit: None,
            output_files: Vec::new(),
            leftover_age: LEFTOVER_AGE,
        })
    }

    /// Sets the state of an earlier scan, by which unchanged files are detected.
    pub(super) fn set_state(&mut self, state: FolderState) {
        (self.state, self.is_stored) = (Some(state), false);
    }

    pub(super) fn state(&self) -> Option<&FolderState> {
        self.state.as_ref()
    }

    /// Forgets that the contents of the last scan are in the store, for the case that they could not be committed.
    pub fn distrust_store(&mut self) {
        self.is_stored = false;
    }

    /// Limits the time of a scan.
    pub fn set_time_limit(&mut self, limit: Duration) {
        self.time_limit = Some(limit);
    }

    /// Excludes these files, which this program writes.
    pub fn leave_out(&mut self, output_files: Vec<FileId>) {
        self.output_files = output_files;
    }

    /// Returns the options.
    pub fn options(&self) -> &ScanOptions {
        &self.options
    }

    /// Returns the workspace.
    pub fn root(&self) -> &WorkspaceRoot {
        &self.root
    }

    /// Records the current state. Its contents are put into the store, and the caller commits them.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error that concerns more than one entry, if there are too many files, and if it is cancelled.
    pub fn scan(
        &mut self,
        store: &ContentStore,
        cancel: &CancellationToken,
    ) -> Result<ScannedState, CheckpointError> {
        // Waking threads takes longer than a walk of a few files.
        let known = self.state.as_ref().map(|state| state.totals.files);
        let is_parallel = known.is_none_or(|files| files > MAX_FILES_ALONE);
        if is_parallel && self.pool.is_none() {
            self.pool = build_pool();
        }
        let pool = self.pool.as_ref().filter(|_| is_parallel);
        let path = self.root.path();
        let folder =
            open_folder(self.root.dir().as_fd(), OsStr::new(".")).io_context("read", path)?;
        let stat = fstat(&folder).io_context("read", path)?;
        let scan = Scan {
            scanner: self,
            store,
            cancel,
            newest: RESOLUTION.map(newest_time),
            leftovers_before: newest_time(self.leftover_age),
            device: stat.st_dev,
            files: AtomicU64::new(0),
            most_bytes: OnceLock::new(),
            is_parallel: pool.is_some(),
            begun: Instant::now(),
        };
        let old = self.state.as_ref();
        let names = folder_names(&folder).io_context("list", path)?;
        let mode = FileStat::new(&stat).mode;
        let work = || scan.folder(&folder, &names, Path::new(""), mode, old, 0);
        let state = match pool {
            Some(pool) => pool.install(work),
            None => work(),
        };
        let state = state?;
        let scanned = ScannedState { tree: state.tree, totals: state.totals };
        (self.state, self.is_stored) = (Some(state), true);
        Ok(scanned)
    }
}

/// Returns threads for a scan. The default pool belongs to the program that uses this library.
fn build_pool() -> Option<ThreadPool> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    pool.thread_name(|index| format!("scan-{index}")).build().ok()
}

fn newest_time(resolution: Duration) -> i64 {
    let now = SystemTime::now().checked_sub(resolution).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn open_folder(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| openat(parent, name, flags, Mode::empty()))
}

/// Repeats an interrupted call, and once a failed one, because an error of a disk may be temporary.
fn retry<T>(call: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let mut has_failed = false;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::IO) if !std::mem::replace(&mut has_failed, true) => {}
            result => return result,
        }
    }
}

/// Returns the names in a folder, sorted.
pub(super) fn folder_names(folder: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// An entry that is scanned after its siblings.
enum ScannedEntry {
    Entry(EntryState),
    Folder(OsString, u32),
}

impl Scan<'_> {
    fn folder(
        &self,
        folder: &OwnedFd,
        names: &[OsString],
        path: &Path,
        mode: u32,
        old: Option<&FolderState>,
        depth: usize,
    ) -> Result<FolderState, CheckpointError> {
        self.check_time()?;
        let entry = |name: &OsString| self.entry(folder, path, name, names, old, depth);
        let found: Result<Vec<Option<ScannedEntry>>, CheckpointError> = match self.is_parallel {
            true => names.par_iter().with_min_len(16).map(entry).collect(),
            false => names.iter().map(entry).collect(),
        };
        let enter = |found: ScannedEntry| match found {
            ScannedEntry::Entry(entry) => Ok(Some(entry)),
            ScannedEntry::Folder(name, mode) => {
                let node =
                    self.subfolder(folder, &path.join(&name), &name, mode, old, depth + 1)?;
                Ok(node.map(|node| EntryState { name, node }))
            }
        };
        let entries: Result<Vec<Option<EntryState>>, CheckpointError> = match self.is_parallel {
            true => {
                let few = if depth == 0 { 1 } else { 4 };
                found?.into_par_iter().with_min_len(few).flatten_iter().map(enter).collect()
            }
            false => found?.into_iter().flatten().map(enter).collect(),
        };
        let entries: Vec<EntryState> = entries?.into_iter().flatten().collect();
        self.finish_folder(mode, entries, old)
    }

    /// Computes the tree of a folder, unless it is unchanged.
    fn finish_folder(
        &self,
        mode: u32,
        entries: Vec<EntryState>,
        old: Option<&FolderState>,
    ) -> Result<FolderState, CheckpointError> {
        let is_same = |old: &&FolderState| {
            old.entries.len() == entries.len()
                && old.entries.iter().zip(&entries).all(|(old, new)| old.is_same(new))
                && (self.scanner.is_stored || self.store.contains(&old.tree))
        };
        if let Some(FolderState { tree, totals, .. }) = old.filter(is_same) {
            return Ok(FolderState { mode, tree: *tree, totals: *totals, entries });
        }
        let mut bytes = Vec::new();
        encode(entries.iter().map(EntryState::to_recorded), &mut bytes);
        let tree = Sha256Digest::of(&bytes);
        self.store.put(tree, &bytes)?;
        let totals =
            entries.iter().map(EntryState::totals).fold(ScanTotals::default(), |a, b| ScanTotals {
                files: a.files + b.files,
                bytes: a.bytes + b.bytes,
                left_out: a.left_out + b.left_out,
            });
        Ok(FolderState { mode, tree, totals, entries })
    }

    /// Returns an entry; `None` if it has vanished.
    fn entry(
        &self,
        folder: &OwnedFd,
        path: &Path,
        name: &OsString,
        siblings: &[OsString],
        old: Option<&FolderState>,
        depth: usize,
    ) -> Result<Option<ScannedEntry>, CheckpointError> {
        let stat = match retry(|| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => {
                let node = self.unreadable(error, "inspect", path, name, None)?;
                return Ok(Some(ScannedEntry::Entry(EntryState { name: name.clone(), node })));
            }
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        let file_stat = FileStat::new(&stat);
        let old = old.and_then(|old| old.entry(name)).map(|entry| &entry.node);
        if self.is_leftover(name, kind, &file_stat) {
            log::debug!("removing {}, which a killed process has left", path.join(name).display());
            if unlinkat(folder, name, AtFlags::empty()).is_ok() {
                return Ok(None);
            }
        }
        let is_output = kind == FileType::RegularFile
            && self.scanner.output_files.contains(&FileId::from(&stat));
        if is_output {
            // The size is not recorded, because the file grows all the time.
            let node = skipped(SkipReason::Own);
            return Ok(Some(ScannedEntry::Entry(EntryState { name: name.clone(), node })));
        }
        let node = match self.skip_by_name(path, name, is_folder, siblings, old) {
            Some(reason) if is_folder => Some(skipped(reason)),
            Some(reason) => Some(file_stat.skipped(reason)),
            None => match kind {
                FileType::Directory if stat.st_dev != self.device => {
                    Some(skipped(SkipReason::OtherFileSystem))
                }
                FileType::Directory if depth >= MAX_DEPTH => Some(skipped(SkipReason::TooDeep)),
                FileType::Directory => {
                    return Ok(Some(ScannedEntry::Folder(name.clone(), file_stat.mode)));
                }
                FileType::RegularFile => self.file(folder, path, name, file_stat, old)?,
                FileType::Symlink => self.link(folder, path, name, file_stat, old)?,
                _ => Some(skipped(SkipReason::Special)),
            },
        };
        Ok(node.map(|node| ScannedEntry::Entry(EntryState { name: name.clone(), node })))
    }

    /// Returns whether a file is a new content or a backup that a killed process has left.
    fn is_leftover(&self, name: &OsStr, kind: FileType, stat: &FileStat) -> bool {
        kind == FileType::RegularFile
            && name.to_str().is_some_and(is_leftover_name)
            && stat.changed < self.leftovers_before
    }

    /// Returns the reason why an entry is not recorded, regardless of its content. A folder that was recorded stays
    /// recorded, and a folder that counted as dependencies stays excluded: a state can only be restored if both are
    /// alike.
    fn skip_by_name(
        &self,
        path: &Path,
        name: &OsStr,
        is_folder: bool,
        siblings: &[OsString],
        old: Option<&NodeState>,
    ) -> Option<SkipReason> {
        let ScanOptions { own_folders, generated, .. } = &self.scanner.options;
        if VERSION_CONTROL_FOLDERS.iter().any(|folder| name == *folder) {
            return Some(SkipReason::Repository);
        }
        if name.as_bytes().starts_with(OWN_PREFIX.as_bytes())
            || is_folder && own_folders.iter().any(|own| *own == path.join(name))
        {
            return Some(SkipReason::Own);
        }
        let exclude = &self.scanner.exclude;
        if !exclude.is_empty() && exclude.matched(path.join(name), is_folder).is_ignore() {
            return Some(SkipReason::Excluded);
        }
        if !is_folder || *generated {
            return None;
        }
        let is_skipped = match old {
            Some(NodeState::Folder(_)) => false,
            Some(NodeState::LeftOut(SkippedEntry { reason: SkipReason::Generated, .. })) => true,
            _ => {
                let has = |file: &str| {
                    siblings
                        .binary_search_by(|other| other.as_os_str().cmp(OsStr::new(file)))
                        .is_ok()
                };
                is_generated_among(&self.scanner.root.path().join(path).join(name), has)
            }
        };
        is_skipped.then_some(SkipReason::Generated)
    }

    fn subfolder(
        &self,
        parent: &OwnedFd,
        path: &Path,
        name: &OsStr,
        mode: u32,
        old: Option<&FolderState>,
        depth: usize,
    ) -> Result<Option<NodeState>, CheckpointError> {
        let old = match old.and_then(|old| old.entry(name)).map(|entry| &entry.node) {
            Some(NodeState::Folder(folder)) => Some(&**folder),
            _ => None,
        };
        let opened = || {
            let folder = open_folder(parent.as_fd(), name)?;
            let names = folder_names(&folder)?;
            Ok((folder, names))
        };
        match retry(opened) {
            Ok((folder, names)) => {
                let state = self.folder(&folder, &names, path, mode, old, depth)?;
                Ok(Some(NodeState::Folder(Box::new(state))))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => self.unreadable(error, "open", path, OsStr::new(""), None).map(Some),
        }
    }

    /// Returns an unreadable entry, unless the error concerns more than this entry.
    fn unreadable(
        &self,
        error: Errno,
        operation: &'static str,
        folder: &Path,
        name: &OsStr,
        stat: Option<FileStat>,
    ) -> Result<NodeState, CheckpointError> {
        match error {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
                let path = self.scanner.root.path().join(folder).join(name);
                Ok(Err(error).io_context(operation, &path)?)
            }
            _ => {
                let path = folder.join(name);
                log::debug!("could not {operation} {}: {error}", path.display());
                let reason = SkipReason::Unreadable;
                Ok(stat.map_or_else(|| skipped(reason), |stat| stat.skipped(reason)))
            }
        }
    }

    fn check_time(&self) -> Result<(), CheckpointError> {
        match self.scanner.time_limit {
            _ if self.cancel.is_cancelled() => Err(CheckpointError::Cancelled),
            Some(limit) if self.begun.elapsed() > limit => Err(CheckpointError::TooSlow(limit)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the reason why a content of this size may not be stored, if there is one.
    fn limit_reached(&self, size: u64) -> Option<SkipReason> {
        let stored = self.store.total_bytes();
        let most = self.most_bytes.get_or_init(|| stored + self.store.free_bytes() / 2);
        let total = stored.saturating_add(size);
        let is_over = total > self.scanner.options.max_total;
        let reason = if is_over { SkipReason::OverTotal } else { SkipReason::LowSpace };
        (is_over || total > *most).then_some(reason)
    }

    fn count_file(&self) -> Result<(), CheckpointError> {
        let most = self.scanner.options.max_files;
        match self.files.fetch_add(1, Ordering::Relaxed) >= most {
            true => Err(CheckpointError::TooManyFiles(most)),
            false => Ok(()),
        }
    }

    fn link(
        &self,
        folder: &OwnedFd,
        path: &Path,
        name: &OsStr,
        stat: FileStat,
        old: Option<&NodeState>,
    ) -> Result<Option<NodeState>, CheckpointError> {
        self.count_file()?;
        if let Some(NodeState::Link { stat: old_stat, target }) = old
            && stat.is_unchanged_since(old_stat)
        {
            return Ok(Some(NodeState::Link { stat, target: target.clone() }));
        }
        match retry(|| readlinkat(folder, name, Vec::new())) {
            Ok(target) => {
                let target = OsString::from_vec(target.into_bytes());
                Ok(Some(NodeState::Link { stat: self.with_race(stat), target }))
            }
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(error) => self.unreadable(error, "read", path, name, Some(stat)).map(Some),
        }
    }

    /// Reads a file, unless it is unchanged.
    fn file(
        &self,
        folder: &OwnedFd,
        path: &Path,
        name: &OsStr,
        stat: FileStat,
        old: Option<&NodeState>,
    ) -> Result<Option<NodeState>, CheckpointError> {
        let max_file_size = self.scanner.options.max_file_size;
        if stat.size > max_file_size {
            return Ok(Some(stat.skipped(SkipReason::TooLarge)));
        }
        self.count_file()?;
        if let Some(NodeState::File { stat: old_stat, hash }) = old
            && stat.is_unchanged_since(old_stat)
            && (self.scanner.is_stored || self.store.contains(hash))
        {
            return Ok(Some(NodeState::File { stat, hash: *hash }));
        }
        self.check_time()?;
        if let Some(reason) = self.limit_reached(stat.size) {
            return Ok(Some(stat.skipped(reason)));
        }
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let read = || -> rustix::io::Result<Option<(FileStat, Vec<u8>)>> {
            let opened = File::from(openat(folder, name, flags, Mode::empty())?);
            let before = fstat(&opened)?;
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                return Ok(None);
            }
            let before = FileStat::new(&before);
            let expected = usize::try_from(before.size.min(max_file_size)).unwrap_or_default();
            let mut content = Vec::with_capacity(expected + 1);
            let all = (&opened).take(max_file_size.saturating_add(1)).read_to_end(&mut content);
            all.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let after = FileStat::new(&fstat(&opened)?);
            // A file that is being written is read again by the next scan.
            let is_racy = after != before;
            Ok(Some((FileStat { is_racy, size: content.len() as u64, ..before }, content)))
        };
        let (stat, content) = match retry(read) {
            Ok(Some(read)) => read,
            Ok(None) | Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return self.unreadable(error, "read", path, name, Some(stat)).map(Some),
        };
        if stat.size > max_file_size {
            return Ok(Some(stat.skipped(SkipReason::TooLarge)));
        }
        let hash = Sha256Digest::of(&content);
        if !self.store.contains(&hash) {
            if let Some(reason) = self.limit_reached(stat.size) {
                return Ok(Some(stat.skipped(reason)));
            }
            self.store.put(hash, &content)?;
        }
        Ok(Some(NodeState::File { stat: self.with_race(stat), hash }))
    }

    /// Marks a status that is as new as this scan.
    fn with_race(&self, stat: FileStat) -> FileStat {
        let is_whole = |time: i64| time % 1_000_000_000 == 0;
        let newest = self.newest[usize::from(is_whole(stat.modified) && is_whole(stat.changed))];
        let is_racy = stat.is_racy || stat.modified.max(stat.changed) >= newest;
        FileStat { is_racy, ..stat }
    }
}
