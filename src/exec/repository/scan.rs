//! Finding what git executes or follows below a folder.
//!
//! Everything is reached through a handle of that folder, so that nothing leads out of it, whoever changes it meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::{
    Dir, FileType, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, PermissionsExt,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// Something that git executes or follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Item {
    pub kind: Kind,
    pub content: Content,
}

/// What git does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// It reads its settings there.
    Config,
    /// It runs it.
    Hook,
    /// It goes on in another folder, which a file names: `.git` or `commondir`.
    Pointer,
    /// It writes through it.
    Link,
    /// It carries out what stands there when the user continues a rebase, a merge, or a series of commits.
    Todo,
    /// Another program follows it; it stays what it is.
    Exact,
}

/// What is found at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    File(Vec<u8>),
    Link(PathBuf),
    /// Neither of them, or too large to be kept.
    Other,
}

/// The items below a folder, by their path relative to it.
pub(super) type Items = BTreeMap<PathBuf, Item>;

/// The most that is kept of a file, in bytes.
const LARGEST: u64 = 1 << 20;

/// How old a change of a folder has to be, for the next one to have another time.
const SETTLED: Duration = Duration::from_secs(1);

/// Files that tell git how to continue.
const TODO: [&str; 5] = ["git-rebase-todo", "todo", "strategy", "opts", "applyopts"];

/// Folders of them in the folder of a repository.
const OPERATIONS: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];

/// Finds items, and remembers folders that have not changed.
#[derive(Default)]
pub(super) struct Scanner {
    folders: HashMap<PathBuf, Folder>,
    /// The device of the root.
    device: Option<u64>,
}

/// What is known of a folder.
#[derive(Clone, Default)]
struct Folder {
    /// Its number, and when it changed last; zeros if that may be too short ago to tell.
    changed: (u64, i128, i128),
    folders: Vec<OsString>,
    /// Entries that are neither folders nor plain files, and those that git may follow.
    special: Vec<OsString>,
    is_repository: bool,
}

/// Where a folder lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a work tree.
    WorkTree,
    /// It may become one; what lies below is not looked at.
    Shallow,
    /// It is the folder of a repository.
    Repository,
    /// It is one of the folders in which git keeps how to continue.
    Operation,
    /// It has the hooks.
    Hooks,
    /// It lies elsewhere in the folder of a repository.
    Inside,
    /// It has the objects, by the first two digits of their names or in packs.
    Objects,
}

impl Scanner {
    /// Returns the items below a folder, which is itself in a work tree or the folder of a repository, and the folders of
    /// repositories.
    pub(super) fn scan(&mut self, root: &Dir, first: Place) -> (Items, Vec<PathBuf>) {
        let (mut items, mut repositories) = (Items::new(), Vec::new());
        let mut todo = vec![(PathBuf::new(), first)];
        let mut seen = HashMap::new();
        while let Some((path, place)) = todo.pop() {
            let Some(folder) = self.folder(root, &path) else { continue };
            let place = match place {
                Place::WorkTree | Place::Shallow | Place::Inside if folder.is_repository => {
                    Place::Repository
                }
                place => place,
            };
            if place == Place::Repository {
                repositories.push(path.clone());
            }
            for name in &folder.special {
                let path = path.join(name);
                if let Some(item) = item(root, &path, name, place) {
                    items.insert(path, item);
                }
            }
            for name in &folder.folders {
                if let Some(place) = place.of(name) {
                    todo.push((path.join(name), place));
                }
            }
            seen.insert(path, folder);
        }
        self.folders = seen;
        (items, repositories)
    }

    /// Returns whether the last scan has looked into a folder.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.folders.contains_key(path)
    }

    /// Returns what is known of a folder; looks at it only if it has changed.
    fn folder(&mut self, root: &Dir, path: &Path) -> Option<Folder> {
        let known = self.folders.remove(path);
        if let Some(known) = known
            && changed(root, path) == Some(known.changed)
        {
            return Some(known);
        }
        let dir = opened(root, path)?;
        let meta = dir.dir_metadata().ok()?;
        if *self.device.get_or_insert(meta.dev()) != meta.dev() && is_of_the_kernel(&dir) {
            return None;
        }
        let changed = (meta.ino(), meta.ctime().into(), meta.ctime_nsec().into());
        let mut folder = Folder::default();
        let (mut head, mut objects, mut refs, mut common) = (false, false, false, false);
        for entry in dir.entries().ok()?.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            match name.as_bytes() {
                b"HEAD" => head = true,
                b"objects" => objects = true,
                b"refs" => refs = true,
                b"commondir" => common = true,
                _ => {}
            }
            match kind.is_dir() {
                true => folder.folders.push(name),
                false if is_special(kind, &name) => folder.special.push(name),
                false => {}
            }
        }
        folder.is_repository = head && (objects && refs || common);
        let is_settled = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|now| now.as_secs() > meta.ctime().unsigned_abs() + SETTLED.as_secs());
        if is_settled {
            folder.changed = changed;
        }
        Some(folder)
    }
}

impl Place {
    /// Returns where a folder of this name lies in it; `None` for one without anything that git follows.
    fn of(self, name: &OsStr) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|other| name == *other);
        match self {
            Self::WorkTree | Self::Shallow if is_git(name) => Some(Self::Repository),
            Self::Shallow => None,
            Self::WorkTree => Some(Self::WorkTree),
            Self::Repository if name == "hooks" => Some(Self::Hooks),
            Self::Repository if name == "objects" => Some(Self::Objects),
            Self::Repository if is(&OPERATIONS) => Some(Self::Operation),
            Self::Repository | Self::Operation | Self::Inside => Some(Self::Inside),
            // Git runs no hook in a folder below, and follows nothing among the objects.
            Self::Hooks | Self::Objects => None,
        }
    }
}

/// Returns whether a name is `.git` for a file system that takes upper and lower case for the same.
pub(super) fn is_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}

/// Returns whether an entry may be followed somewhere.
fn is_special(kind: FileType, name: &OsStr) -> bool {
    kind.is_symlink()
        || is_git(name)
        || ["config", "config.worktree", "commondir"].iter().any(|other| name == *other)
        || TODO.iter().any(|other| name == *other)
        || !name.as_bytes().ends_with(b".sample") && kind.is_file() && is_hook(name)
}

/// The hooks that git runs, so far.
fn is_hook(name: &OsStr) -> bool {
    const HOOKS: [&str; 29] = [
        "applypatch-msg",
        "commit-msg",
        "fsmonitor-watchman",
        "p4-changelist",
        "p4-post-changelist",
        "p4-pre-submit",
        "p4-prepare-changelist",
        "post-applypatch",
        "post-checkout",
        "post-commit",
        "post-index-change",
        "post-merge",
        "post-receive",
        "post-rewrite",
        "post-update",
        "pre-applypatch",
        "pre-auto-gc",
        "pre-commit",
        "pre-merge-commit",
        "pre-push",
        "pre-rebase",
        "pre-receive",
        "prepare-commit-msg",
        "proc-receive",
        "push-to-checkout",
        "reference-transaction",
        "sendemail-validate",
        "update",
        "post-upload-pack",
    ];
    HOOKS.iter().any(|hook| name == *hook)
}

/// Returns an entry as an item; `None` if git doesn't follow it where it is.
fn item(root: &Dir, path: &Path, name: &OsStr, place: Place) -> Option<Item> {
    if matches!(place, Place::WorkTree | Place::Shallow) && !is_git(name) {
        return None;
    }
    let meta = root.symlink_metadata(path).ok()?;
    let is_link = meta.is_symlink();
    let kind = match (place, name.as_bytes()) {
        (Place::WorkTree | Place::Shallow, _) if is_link => Kind::Link,
        (Place::WorkTree | Place::Shallow, _) => Kind::Pointer,
        (Place::Inside, _) | (_, b"HEAD") if is_link => Kind::Link,
        (_, _) if is_link => Kind::Pointer,
        (Place::Repository, b"config" | b"config.worktree") => Kind::Config,
        (Place::Repository, b"commondir") => Kind::Pointer,
        (Place::Operation, name) if TODO.iter().any(|other| other.as_bytes() == name) => Kind::Todo,
        (Place::Hooks, name) if !name.ends_with(b".sample") => Kind::Hook,
        _ => return None,
    };
    Some(Item { kind, content: content(root, path, &meta) })
}

/// Returns what is at a path.
pub(super) fn content(root: &Dir, path: &Path, meta: &Metadata) -> Content {
    if meta.is_symlink() {
        return root.read_link_contents(path).map_or(Content::Other, Content::Link);
    }
    read(root, path).map_or(Content::Other, Content::File)
}

/// Reads a regular file, and nothing else.
pub(super) fn read(root: &Dir, path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = root.open_with(path, &options)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut content = Vec::new();
    file.take(LARGEST).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns whether a folder shows what the kernel knows, and no files.
#[cfg(target_os = "linux")]
fn is_of_the_kernel(dir: &Dir) -> bool {
    const KINDS: [i64; 6] =
        [0x9fa0, 0x6265_6572, 0x6367_7270, 0x0027_e0eb, 0x6462_6720, 0x7472_6163];
    let found = rustix::fs::fstatfs(dir);
    found.is_ok_and(|found| KINDS.contains(&found.f_type))
}

/// Returns whether a folder shows what the kernel knows, and no files.
#[cfg(not(target_os = "linux"))]
fn is_of_the_kernel(_: &Dir) -> bool {
    false
}

/// Returns the number of a folder, and when it changed last. It is only compared, so it doesn't matter where a link on the
/// way leads.
fn changed(root: &Dir, path: &Path) -> Option<(u64, i128, i128)> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let found = rustix::fs::statat(root, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((found.st_ino, found.st_ctime.into(), found.st_ctime_nsec.into()))
}

/// Opens a folder, also one that a command has closed; that one is left open.
fn opened(root: &Dir, path: &Path) -> Option<Dir> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match root.open_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            root.set_permissions(path, cap_std::fs::Permissions::from_mode(0o700)).ok()?;
            root.open_dir(path).ok()
        }
        opened => opened.ok(),
    }
}
