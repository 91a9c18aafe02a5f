//! Finds the files below a folder that git executes or follows.
//!
//! All access goes through a handle of that folder, so that a concurrent change can't lead out of it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, FileType, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, ReadDir};
use rustix::fs::{Access, AtFlags, OFlags};
use serde::{Deserialize, Serialize};

use super::watches::{WatchId, Watches};
use crate::exec::protected::absent_paths::is_denied_name;
use crate::exec::stored_path::{self, WithPaths};
use crate::workspace::{OWNER, open_below, set_folder_mode};

/// A file or link that git executes or follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitItem {
    pub kind: GitItemKind,
    pub content: ItemContent,
    /// The time of the last change, for an item without stored content.
    #[serde(default)]
    changed: Option<(i64, i64)>,
    /// The permissions of a file.
    #[serde(default)]
    pub mode: Option<u32>,
}

impl GitItem {
    /// Reads the item at a path.
    pub(super) fn read(root: &Dir, path: &Path, kind: GitItemKind, meta: &Metadata) -> Self {
        let content = match meta.is_symlink() {
            true => root.read_link_contents(path).map(ItemContent::Link),
            false => match kind {
                GitItemKind::Config => read(root, path, MAX_CONFIG),
                GitItemKind::Hook
                | GitItemKind::Pointer
                | GitItemKind::Link
                | GitItemKind::Todo
                | GitItemKind::Exact => read(root, path, MAX_CONTENT),
            }
            .map(ItemContent::File),
        };
        let content = content.unwrap_or(ItemContent::Other);
        let is_unknown = content == ItemContent::Other;
        Self {
            kind,
            content,
            changed: is_unknown.then(|| (meta.ctime(), meta.ctime_nsec())),
            mode: (!meta.is_symlink()).then(|| meta.mode() & PERMISSIONS),
        }
    }

    /// Returns whether the item is unchanged, apart from permissions without an effect.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        let is_as_before = |mode: &u32| before.mode.is_none_or(|before| before == *mode);
        self.kind == before.kind
            && self.content == before.content
            && self.changed == before.changed
            // Git does not run a hook that is not executable.
            && (!self.kind.is_run() || self.mode.iter().all(is_as_before))
    }
}

impl WithPaths for GitItem {
    type Stored = Self;

    fn to_stored(&self) -> Self {
        self.clone()
    }

    fn from_stored(stored: Self) -> Option<Self> {
        Some(stored)
    }
}

/// The way in which git uses an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum GitItemKind {
    /// Git reads settings from it.
    Config,
    /// Git runs it.
    Hook,
    /// Git continues in the folder that it names: `.git` or `commondir`.
    Pointer,
    /// Git writes through it.
    Link,
    /// Git executes its content when the user continues a rebase, a merge, or a series of commits.
    Todo,
    /// Another program uses it; it must stay unchanged.
    Exact,
}

impl GitItemKind {
    /// Returns whether git may run the item, so that its permissions matter.
    fn is_run(self) -> bool {
        match self {
            Self::Hook | Self::Exact => true,
            Self::Config | Self::Pointer | Self::Link | Self::Todo => false,
        }
    }
}

/// The content of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ItemContent {
    File(Vec<u8>),
    Link(#[serde(with = "stored_path")] PathBuf),
    /// Something else, or too large.
    Other,
}

/// The items below a folder, by relative path.
pub(super) type GitItems = BTreeMap<PathBuf, GitItem>;

/// The bits of a file's mode that are its permissions.
const PERMISSIONS: u32 = 0o7777;

/// The maximum size of a file whose content is kept, in bytes.
const MAX_CONTENT: u64 = 1 << 20;

/// The maximum size of a configuration, in bytes.
pub(super) const MAX_CONFIG: u64 = 64 << 20;

/// The minimum age at which the time of a folder's change distinguishes it from the next change.
const MIN_CHANGE_AGE: Duration = Duration::from_secs(1);

/// Files that control how git continues an operation.
const CONTINUATION_FILES: [&str; 5] = ["git-rebase-todo", "todo", "strategy", "opts", "apply-opt"];

/// The folders of these files in a repository.
const OPERATION_FOLDERS: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];

/// Folders of remotes in a repository.
const REMOTE_FOLDERS: [&str; 2] = ["branches", "remotes"];

/// The number of folders that are checked after each command; further folders are watched. Setting a watch costs more
/// than a check.
const UNWATCHED: usize = 256;

/// Finds items, and remembers unchanged folders.
#[derive(Default)]
pub(super) struct Scanner {
    /// The folders of the last scan, outer ones first.
    folders: Vec<KnownFolder>,
    /// The repositories found.
    repositories: Vec<PathBuf>,
    /// File names to look for in work trees.
    names: Vec<OsString>,
    /// Whether all folders could be read.
    is_complete: bool,
    /// The depth of the scan below the root.
    depth: ScanDepth,
    watches: Watches,
    /// The device of the root.
    device: Option<u64>,
}

/// The depth of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ScanDepth {
    /// No limit.
    #[default]
    Whole,
    /// All levels until the number of folders reaches a limit; the first scan determines the level.
    Bounded,
    /// This number of levels.
    Levels(usize),
}

/// The number of folders at which a bounded scan stops, after a whole level.
const MAX_FOLDERS: usize = 20_000;

/// A folder that was scanned.
struct KnownFolder {
    path: PathBuf,
    place: FolderRole,
    folder: ScannedFolder,
}

/// The state of a folder.
#[derive(Default)]
struct ScannedFolder {
    /// Device and inode number.
    identity: (u64, u64),
    /// The time of the last change; `None` if it is too recent to be distinguished from the next change.
    changed: Option<(i128, i128)>,
    /// The watch, which was set before the folder was read.
    watch: Option<WatchId>,
    folders: Vec<OsString>,
    /// Entries that are neither folders nor plain files, and those that git may follow.
    special: Vec<OsString>,
    /// Entries whose names are looked for.
    named: Vec<OsString>,
    is_repository: bool,
}

/// The role of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FolderRole {
    /// Part of a work tree, or of a folder of work trees.
    WorkTree,
    /// A repository.
    Repository,
    /// A folder with the state of an interrupted operation.
    Operation,
    /// A folder of hooks.
    Hooks,
    /// A folder of remotes, one per file; git's older form of the settings of remotes.
    Remotes,
    /// Another folder in a repository.
    Inside,
}

impl Scanner {
    /// Returns the items below a folder of the given role, and the folders that are repositories.
    pub(super) fn scan(&mut self, root: &Dir, first: FolderRole) -> (GitItems, Vec<PathBuf>) {
        self.watches.update();
        let is_same = |seen: &KnownFolder| {
            let KnownFolder { path, folder, .. } = seen;
            self.watches.is_set(folder.watch) || folder.is_at(root, path)
        };
        let mut extended = Vec::new();
        if !self.is_complete || !self.folders.iter().all(is_same) {
            extended = self.walk(root, first);
        }
        let mut items = GitItems::new();
        for KnownFolder { path, place, folder } in &self.folders {
            for name in &folder.special {
                let path = path.join(name);
                if let Some(item) = read_item(root, &path, name, *place) {
                    items.insert(path, item);
                }
            }
        }
        if !extended.is_empty() {
            // Found paths are protected or made harmless by path, so the folders that lead to them stay accessible.
            let named: Vec<PathBuf> = self.named().collect();
            let found = || items.keys().chain(&self.repositories).chain(&named);
            extended.retain(|folder| !found().any(|path| path.starts_with(&folder.path)));
            // Inner folders come first, since they are reached through the outer ones.
            extended.into_iter().rev().for_each(|folder| folder.give_back(root));
        }
        (items, self.repositories.clone())
    }

    /// Walks all folders. Returns those whose permissions were extended.
    fn walk(&mut self, root: &Dir, first: FolderRole) -> Vec<ExtendedFolder> {
        let known = self.folders.drain(..).map(|seen| (seen.path, seen.folder));
        let mut known: HashMap<PathBuf, ScannedFolder> = known.collect();
        self.repositories.clear();
        self.is_complete = true;
        let mut todo = VecDeque::from([(PathBuf::new(), first, false)]);
        let (mut level, mut count) = (0, 0);
        let mut extended = Vec::new();
        while let Some((path, place, is_parent_same)) = todo.pop_front() {
            if place == FolderRole::WorkTree {
                let own_level = path.components().count();
                if own_level > level {
                    // All folders of the next level are known now.
                    let waiting =
                        todo.iter().filter(|(_, place, _)| *place == FolderRole::WorkTree);
                    if self.depth == ScanDepth::Bounded && count + waiting.count() >= MAX_FOLDERS {
                        self.depth = ScanDepth::Levels(level);
                    }
                    level = own_level;
                }
                if self.depth.is_below(own_level) {
                    continue;
                }
                count += 1;
            }
            let old = known.remove(&path).filter(|old| {
                match (self.watches.is_set(old.watch), is_parent_same) {
                    (true, true) => true,
                    // The parent has changed, so the folder may be at another path now.
                    (true, false) => {
                        stat(root, &path).is_some_and(|(identity, _)| identity == old.identity)
                    }
                    (false, _) => old.is_at(root, &path),
                }
            });
            let is_same = old.is_some();
            let Some(folder) = old.or_else(|| self.read(root, &path, &mut extended)) else {
                self.is_complete = false;
                continue;
            };
            let place = match place {
                FolderRole::WorkTree | FolderRole::Inside if folder.is_repository => {
                    FolderRole::Repository
                }
                place => place,
            };
            if place == FolderRole::Repository {
                self.repositories.push(path.clone());
            }
            for name in &folder.folders {
                todo.push_back((path.join(name), place.child_role(name), is_same));
            }
            self.folders.push(KnownFolder { path, place, folder });
        }
        if self.depth == ScanDepth::Bounded {
            self.depth = ScanDepth::Whole;
        }
        extended
    }

    /// Returns the paths of the looked-for names that the last scan found in work trees.
    pub(super) fn named(&self) -> impl Iterator<Item = PathBuf> {
        let work_trees = self.folders.iter().filter(|seen| seen.place == FolderRole::WorkTree);
        work_trees.flat_map(|seen| seen.folder.named.iter().map(|name| seen.path.join(name)))
    }

    /// Adds names to look for.
    pub(super) fn with_names(self, names: Vec<OsString>) -> Self {
        Self { names, ..self }
    }

    /// Returns a scanner.
    pub(super) fn new(depth: ScanDepth) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Returns a scanner for repeated scans.
    pub(super) fn watching(depth: ScanDepth) -> Self {
        Self { watches: Watches::wanted(), ..Self::new(depth) }
    }

    /// Returns the depth of the scan.
    pub(super) fn depth(&self) -> ScanDepth {
        self.depth
    }

    /// Returns whether the last scan found that a folder is a repository.
    pub(super) fn is_repository(&self, path: &Path) -> bool {
        self.repositories.iter().any(|found| found == path)
    }

    /// Reads a folder. If its permissions have to be extended, it is added to `extended`.
    fn read(
        &mut self,
        root: &Dir,
        path: &Path,
        extended: &mut Vec<ExtendedFolder>,
    ) -> Option<ScannedFolder> {
        let (dir, entries, was_extended) = open_folder(root, path)?;
        // The content of such a folder is accessible only once it has been read again.
        let is_open = was_extended.is_none();
        extended.extend(was_extended);
        let meta = dir.dir_metadata().ok()?;
        if *self.device.get_or_insert(meta.dev()) != meta.dev() && is_kernel_file_system(&dir) {
            return None;
        }
        let is_watched = is_open && self.folders.len() >= UNWATCHED;
        let watch = is_watched.then(|| self.watches.add(&dir, meta.dev())).flatten();
        // A configuration can name any file in a folder of hooks.
        let lists_all = path.file_name().is_some_and(|name| {
            name == "hooks" || REMOTE_FOLDERS.iter().any(|other| name == *other)
        });
        let mut folder = ScannedFolder::default();
        let (mut head, mut objects, mut refs, mut common) = (false, false, false, false);
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            match name.as_bytes() {
                b"HEAD" => head = true,
                b"objects" => objects = true,
                b"refs" => refs = true,
                b"commondir" => common = true,
                _ => {}
            }
            if self.names.contains(&name) {
                folder.named.push(name.clone());
            }
            match kind.is_dir() {
                true => folder.folders.push(name),
                false if is_special(kind, &name) || lists_all && !is_sample(&name) => {
                    folder.special.push(name);
                }
                false => {}
            }
        }
        folder.is_repository = head && (objects && refs || common);
        let is_settled =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|now| {
                now.as_secs() > meta.ctime().unsigned_abs() + MIN_CHANGE_AGE.as_secs()
            });
        folder.identity = (meta.dev(), meta.ino());
        folder.changed =
            (is_settled && is_open).then(|| (meta.ctime().into(), meta.ctime_nsec().into()));
        folder.watch = watch;
        Some(folder)
    }
}

impl ScanDepth {
    /// Returns whether the folders of a level are too deep; the root has level 0.
    fn is_below(self, level: usize) -> bool {
        match self {
            Self::Whole | Self::Bounded => false,
            Self::Levels(levels) => level > levels,
        }
    }
}

impl ScannedFolder {
    /// Returns whether the folder is still at this path, and unchanged.
    fn is_at(&self, root: &Dir, path: &Path) -> bool {
        let known = self.changed.map(|changed| (self.identity, changed));
        known.is_some() && stat(root, path) == known
    }
}

impl FolderRole {
    /// Returns the role of a subfolder.
    fn child_role(self, name: &OsStr) -> Self {
        let is = |names: &[&str]| names.iter().any(|other| name == *other);
        match self {
            _ if is_git_name(name) => Self::Repository,
            Self::WorkTree => Self::WorkTree,
            // Each of these folders may be a repository, too.
            Self::Repository | Self::Operation | Self::Hooks | Self::Remotes if name == "hooks" => {
                Self::Hooks
            }
            Self::Repository if is(&OPERATION_FOLDERS) => Self::Operation,
            Self::Repository if is(&REMOTE_FOLDERS) => Self::Remotes,
            Self::Repository | Self::Operation | Self::Hooks | Self::Remotes | Self::Inside => {
                Self::Inside
            }
        }
    }
}

/// Returns whether a name is `.git` on a case-insensitive file system.
pub(super) fn is_git_name(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}

/// Returns whether git may follow an entry.
fn is_special(kind: FileType, name: &OsStr) -> bool {
    kind.is_symlink()
        || is_git_name(name)
        || ["config", "config.worktree", "commondir"].iter().any(|other| name == *other)
        || CONTINUATION_FILES.iter().any(|other| name == *other)
}

/// Returns whether git ignores a file in a folder of hooks.
fn is_sample(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".sample")
}

/// Reads an entry as an item; `None` if git does not follow the entry in this folder.
fn read_item(root: &Dir, path: &Path, name: &OsStr, place: FolderRole) -> Option<GitItem> {
    if place == FolderRole::WorkTree && !is_git_name(name) {
        return None;
    }
    let meta = root.symlink_metadata(path).ok()?;
    let is_link = meta.is_symlink();
    let kind = match (place, name.as_bytes()) {
        // A folder with the files of a repository may be a work tree as well.
        _ if is_git_name(name) && is_link => GitItemKind::Link,
        _ if is_git_name(name) => GitItemKind::Pointer,
        (FolderRole::Inside, _) | (_, b"HEAD") if is_link => GitItemKind::Link,
        (_, _) if is_link => GitItemKind::Pointer,
        (FolderRole::Repository | FolderRole::Operation, b"config" | b"config.worktree") => {
            GitItemKind::Config
        }
        (FolderRole::Repository | FolderRole::Operation, b"commondir") => GitItemKind::Pointer,
        (FolderRole::Operation, name)
            if CONTINUATION_FILES.iter().any(|other| other.as_bytes() == name) =>
        {
            GitItemKind::Todo
        }
        // Git runs hooks by their exact names, so a denied hook stays denied.
        (FolderRole::Hooks, bytes) if !bytes.ends_with(b".sample") && !is_denied_name(name) => {
            GitItemKind::Hook
        }
        (FolderRole::Remotes, _) => GitItemKind::Exact,
        _ => return None,
    };
    Some(GitItem::read(root, path, kind, &meta))
}

/// Reads a regular file; fails for anything else.
pub(super) fn read(root: &Dir, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = root.open_with(path, &options)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = Vec::new();
    file.take(max).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns whether a folder belongs to a virtual file system of the kernel.
#[cfg(target_os = "linux")]
fn is_kernel_file_system(dir: &Dir) -> bool {
    const KINDS: [i64; 6] =
        [0x9fa0, 0x6265_6572, 0x6367_7270, 0x0027_e0eb, 0x6462_6720, 0x7472_6163];
    let found = rustix::fs::fstatfs(dir);
    found.is_ok_and(|found| KINDS.contains(&found.f_type))
}

/// Returns whether a folder belongs to a virtual file system of the kernel.
#[cfg(not(target_os = "linux"))]
fn is_kernel_file_system(_: &Dir) -> bool {
    false
}

/// Returns device, inode number and last change of a folder. They are only used in comparisons, so links in the path do
/// not matter.
fn stat(root: &Dir, path: &Path) -> Option<((u64, u64), (i128, i128))> {
    let found = rustix::fs::statat(root, as_folder(path), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let changed = (found.st_ctime.into(), found.st_ctime_nsec.into());
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    // the type differs between systems
    Some(((found.st_dev as u64, found.st_ino), changed))
}

/// Opens a folder and its list of entries, after extending its permissions if necessary.
fn open_folder(root: &Dir, path: &Path) -> Option<(Dir, ReadDir, Option<ExtendedFolder>)> {
    let open = || {
        let folder = root.open_dir(as_folder(path))?;
        // Without the permission to search the folder, its content can't be reached.
        rustix::fs::accessat(&folder, ".", Access::EXEC_OK, AtFlags::empty())?;
        let entries = folder.entries()?;
        Ok::<_, io::Error>((folder, entries))
    };
    match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let extended = ExtendedFolder::extend(root, path).ok()?;
            let opened = open();
            if opened.is_err() {
                extended.give_back(root);
                return None;
            }
            opened.ok().map(|(folder, entries)| (folder, entries, Some(extended)))
        }
        opened => opened.ok().map(|(folder, entries)| (folder, entries, None)),
    }
}

/// Returns the relative path of a folder as a path that isn't empty.
fn as_folder(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// A folder on which the owner has all permissions until the original ones are restored.
pub(super) struct ExtendedFolder {
    path: PathBuf,
    /// Device and inode number.
    identity: (u64, u64),
    /// The permissions from before.
    mode: u32,
}

impl ExtendedFolder {
    /// Gives the owner all permissions on a folder.
    pub(super) fn extend(root: &Dir, path: &Path) -> io::Result<Self> {
        let folder = open_below(root, path)?;
        let meta = folder.dir_metadata()?;
        let mode = meta.mode() & PERMISSIONS;
        set_folder_mode(&folder, mode | OWNER)?;
        Ok(Self { path: path.to_owned(), identity: (meta.dev(), meta.ino()), mode })
    }

    /// Restores the original permissions, if the folder still exists.
    pub(super) fn give_back(self, root: &Dir) {
        let Ok(folder) = open_below(root, &self.path) else { return };
        let is_it = |meta: Metadata| (meta.dev(), meta.ino()) == self.identity;
        if folder.dir_metadata().is_ok_and(is_it) {
            let _ = set_folder_mode(&folder, self.mode);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    /// Most of these folders are watched, and not scanned again until they change.
    #[test]
    fn changes_in_watched_folders_are_found() {
        let around = tempfile::tempdir().unwrap();
        let path = |name: &str| around.path().join(name);
        for number in 0..2 * UNWATCHED {
            fs::create_dir_all(path(&format!("root/d{number}/e"))).unwrap();
        }
        let plant = |name: &str| {
            fs::create_dir_all(path(name).join(".git")).unwrap();
            fs::write(path(name).join(".git/config"), "[core]\nfsmonitor = x\n").unwrap();
        };
        let root = Dir::open_ambient_dir(path("root"), ambient_authority()).unwrap();
        let mut scanner = Scanner::watching(ScanDepth::Whole);
        let mut found = || {
            let (items, _) = scanner.scan(&root, FolderRole::WorkTree);
            let is_same = scanner.scan(&root, FolderRole::WorkTree).0 == items;
            assert!(is_same, "{items:?}");
            items.into_keys().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert!(found().is_empty());
        let mut expected = Vec::new();
        for number in 0..2 * UNWATCHED {
            let name = format!("d{number}/e");
            let (folder, inner) = (format!("root/d{number}"), format!("root/{name}"));
            match number % 8 {
                // The repository is created in place, or moved there with one of its parents.
                0 => plant(&inner),
                1 => {
                    plant("other");
                    fs::rename(path("other/.git"), path(&inner).join(".git")).unwrap();
                }
                2 => {
                    plant("new");
                    fs::remove_dir(path(&inner)).unwrap();
                    fs::rename(path("new"), path(&inner)).unwrap();
                }
                3 => {
                    plant("outer/e");
                    fs::rename(path(&folder), path(&format!("old{number}"))).unwrap();
                    fs::rename(path("outer"), path(&folder)).unwrap();
                }
                _ => continue,
            }
            expected.push(format!("{name}/.git/config"));
            if number % 50 < 8 {
                expected.sort();
                assert_eq!(found(), expected, "{number}");
            }
        }
        expected.sort();
        assert_eq!(found(), expected);
        // Two folders with equal entries are swapped.
        fs::rename(path("root/d0"), path("d0")).unwrap();
        fs::rename(path("root/d4"), path("root/d0")).unwrap();
        fs::rename(path("d0"), path("root/d4")).unwrap();
        expected.retain(|path| path != "d0/e/.git/config");
        expected.push("d4/e/.git/config".to_owned());
        expected.sort();
        assert_eq!(found(), expected);
    }
}
