//! Restoring: changes files from one recorded state to another, all of them or none.
//!
//! New contents are first written into a separate folder in the workspace. Then files are moved there, folders are
//! removed and created, and the new files are exchanged with the old ones. A file that was exchanged and is neither the
//! old content nor the new one was saved by someone at that time: it is kept beside its path. If a step fails, the
//! steps before it are undone. The changes are stored in a [`RestoreLog`](super::restore_log::RestoreLog) before the
//! first step, so that the next command completes the restore of a killed process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, fchown, fstat, fsync, mkdirat, openat,
    readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::content_store::ContentStore;
use super::error::CheckpointError;
use super::restore_log::STAGING_PREFIX;
use super::scan::{WorkspaceScanner, folder_names, open_folder};
use super::tree::{PathChange, PathState};
use crate::port::CancellationToken;
use crate::types::{Durability, Sha256Digest};
use crate::workspace::edit_batch::rename_to_new;
use crate::workspace::open_folder::{copy_entry, is_gone, open_parent, remove_unneeded};
use crate::workspace::root::WorkspaceRoot;
use crate::workspace::{IoContext, IoError};

/// Changes files of a workspace to a recorded state.
#[derive(Debug)]
pub struct Restorer<'a> {
    scanner: &'a mut WorkspaceScanner,
    store: &'a ContentStore,
    durability: Durability,
    /// The name of the folder for new contents.
    staging: &'a str,
    /// The new paths of files that were saved during the restore.
    kept: Vec<PathBuf>,
}

/// Changes that are being made.
struct FileTransition<'a> {
    root: &'a WorkspaceRoot,
    store: &'a ContentStore,
    durability: Durability,
    staging: &'a str,
    changes: &'a [PathChange],
    /// Folders that were made writable, with their original permissions.
    opened: BTreeMap<PathBuf, u32>,
}

/// All permissions of the owner of a folder.
const OWNER: u32 = 0o700;

impl<'a> Restorer<'a> {
    /// Creates a restorer that uses a folder of this name in the workspace for new contents.
    pub fn new(
        scanner: &'a mut WorkspaceScanner,
        store: &'a ContentStore,
        durability: Durability,
        staging: &'a str,
    ) -> Self {
        Self { scanner, store, durability, staging, kept: Vec::new() }
    }

    /// Applies the changes from the state `from`, which must be the current one, to the state `to`.
    ///
    /// # Errors
    ///
    /// Fails if a change can't be made. The files are then unchanged, unless the error is
    /// [`CheckpointError::HalfRestored`].
    pub fn restore(
        &mut self,
        from: &Sha256Digest,
        to: &Sha256Digest,
    ) -> Result<(), CheckpointError> {
        let changes = self.store.changes(from, to)?;
        let applied = self.apply(&changes);
        self.settle_staging(&changes);
        let Err(cause) = applied else { return Ok(()) };
        let staging = format!("{}-back", self.staging);
        let mut back = Restorer::new(self.scanner, self.store, self.durability, &staging);
        let undone = back.complete(to, from);
        let kept = back.kept;
        self.kept.extend(kept);
        match undone {
            Ok(left) if left.is_empty() => Err(cause),
            Ok(_) | Err(_) => Err(CheckpointError::HalfRestored { cause: Box::new(cause) }),
        }
    }

    /// Returns the new paths of files that someone saved during the restore.
    pub fn kept(&self) -> &[PathBuf] {
        &self.kept
    }

    /// Completes changes from the state `from` to the state `to` that were interrupted at any point. Returns the paths
    /// that are in neither state; these stay as they are.
    ///
    /// # Errors
    ///
    /// Fails if a change can't be made.
    pub fn complete(
        &mut self,
        from: &Sha256Digest,
        to: &Sha256Digest,
    ) -> Result<Vec<PathBuf>, CheckpointError> {
        let planned = self.store.changes(from, to)?;
        self.settle_staging(&planned);
        let present = self.scanner.scan(self.store, &CancellationToken::new())?.tree;
        let (mut changes, mut foreign) = (BTreeMap::new(), Vec::new());
        for PathChange { path, before, after } in &planned {
            let now = self.store.state_of(&present, path)?;
            if now == *after {
                continue;
            }
            // Interrupted between the removal of a file and the creation of a folder in its place, or the other way
            // round.
            let is_between = now.is_none()
                && before.is_some()
                && after.is_some()
                && is_folder(before.as_ref()) != is_folder(after.as_ref());
            let is_ours = now == *before
                || is_between
                || is_folder(now.as_ref())
                    && (is_folder(before.as_ref()) || is_folder(after.as_ref()));
            match is_ours {
                true => {
                    let change =
                        PathChange { path: path.clone(), before: now, after: after.clone() };
                    changes.insert(path.clone(), change);
                }
                false => foreign.push(path.clone()),
            }
        }
        foreign.extend(self.remove_blocked(&present, &mut changes)?);
        // Folders that were made writable for the restore.
        for folder in planned.iter().flat_map(|change| change.path.ancestors().skip(1)) {
            let (now, then) =
                (self.store.state_of(&present, folder)?, self.store.state_of(to, folder)?);
            if let (Some(PathState::Folder { mode: is }), Some(PathState::Folder { mode })) =
                (&now, &then)
                && *is == mode | OWNER
                && is != mode
            {
                let path = folder.to_owned();
                changes.insert(path.clone(), PathChange { path, before: now, after: then });
            }
        }
        let changes: Vec<PathChange> = changes.into_values().collect();
        let applied = self.apply(&changes);
        self.settle_staging(&changes);
        applied.map(|()| foreign)
    }

    /// Removes the changes that can't be made because of changes by others, and returns their paths.
    fn remove_blocked(
        &self,
        present: &Sha256Digest,
        changes: &mut BTreeMap<PathBuf, PathChange>,
    ) -> Result<Vec<PathBuf>, CheckpointError> {
        let mut blocked = Vec::new();
        let paths: Vec<PathBuf> = changes.keys().cloned().collect();
        // Innermost folders first: a folder that stays keeps those above it.
        for path in paths.iter().rev() {
            let change = &changes[path];
            if !is_folder(change.before.as_ref()) || is_folder(change.after.as_ref()) {
                continue;
            }
            let mut is_used = false;
            self.store.walk_below(present, path, &mut |below, _| {
                is_used |= changes.get(below).is_none_or(|change| change.after.is_some());
            })?;
            if is_used {
                changes.remove(path);
                blocked.push(path.clone());
            }
        }
        for path in &paths {
            let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) else {
                continue;
            };
            let is_there = match changes.get(parent) {
                Some(change) => is_folder(change.after.as_ref()),
                None => is_folder(self.store.state_of(present, parent)?.as_ref()),
            };
            if !is_there && changes.get(path).is_some_and(|change| change.after.is_some()) {
                changes.remove(path);
                blocked.push(path.clone());
            }
        }
        Ok(blocked)
    }

    fn apply(&self, changes: &[PathChange]) -> Result<(), CheckpointError> {
        let Self { store, durability, staging, .. } = *self;
        let root = self.scanner.root();
        let opened = BTreeMap::new();
        FileTransition { root, store, durability, staging, changes, opened }.apply()
    }

    /// Removes the folder of new contents. Files that someone saved during these changes are moved beside their paths
    /// first. If something can't be removed, it is left for the next restore.
    fn settle_staging(&mut self, changes: &[PathChange]) {
        let root = self.scanner.root();
        for name in staging_folders(root, self.staging) {
            let staging = match open_folder(root.dir().as_fd(), &name) {
                Ok(staging) => staging,
                Err(error) => {
                    let path = root.path().join(&name);
                    log::warn!("could not remove the temporary folder {}: {error}", path.display());
                    continue;
                }
            };
            let mut is_kept_there = false;
            for PathChange { path, before, after } in changes {
                let staged = staged_name(path);
                // A call that fails is repeated once.
                let is_known = |state: &PathState| (0..2).any(|_| is_at(&staging, &staged, state));
                if statat(&staging, &staged, AtFlags::SYMLINK_NOFOLLOW).is_err()
                    || [before, after].into_iter().flatten().any(is_known)
                {
                    continue;
                }
                let kept = keep_beside(root, &staging, &staged, path);
                is_kept_there |= kept.is_none();
                self.kept.push(kept.unwrap_or_else(|| {
                    // The next restore removes only new contents, which this name isn't.
                    let other = path.file_name().unwrap_or_default();
                    let renamed = rename_to_new(&staging, &staged, &staging, other);
                    Path::new(&name).join(renamed.map_or(staged.as_ref(), |()| other))
                }));
            }
            if !is_kept_there {
                remove_folder(root, &name);
            }
        }
    }
}

/// The way in which files or folders are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncMode {
    Not,
    /// Each file by a call that waits for the disk.
    Each,
    /// All files by one call. It also waits for data that other processes have written to the same file system.
    Together,
}

/// The maximum number of files or folders that are made durable by a call for each.
const MAX_SINGLE_SYNCS: usize = 16;

impl SyncMode {
    fn new(durability: Durability, count: usize) -> Self {
        match durability {
            Durability::Os => Self::Not,
            Durability::Full if HAS_SYNCFS && count > MAX_SINGLE_SYNCS => Self::Together,
            Durability::Full => Self::Each,
        }
    }
}

const HAS_SYNCFS: bool = cfg!(target_os = "linux");

/// Syncs the file system of a folder. All files of the restore are on it.
#[cfg(target_os = "linux")]
fn sync_file_system(folder: impl AsFd) -> rustix::io::Result<()> {
    rustix::fs::syncfs(folder)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: impl AsFd) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

fn is_folder(state: Option<&PathState>) -> bool {
    state.is_some_and(PathState::is_folder)
}

/// Returns the name of a path's file in the folder of new contents.
fn staged_name(path: &Path) -> String {
    Sha256Digest::of(path.as_os_str().as_bytes()).to_string()
}

/// Returns the name of a new content's file until it is durable.
fn part_name(staged: &str) -> String {
    format!("{staged}.part")
}

/// Returns whether a file or link has this content, regardless of its permissions.
fn is_at(folder: &OwnedFd, name: &str, state: &PathState) -> bool {
    match state {
        PathState::Link { target } => readlinkat(folder, name, Vec::new())
            .is_ok_and(|found| found.as_bytes() == target.as_bytes()),
        PathState::File { size, hash, .. } => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = openat(folder, name, flags, Mode::empty()) else { return false };
            let mut file = File::from(file);
            let mut content = Vec::new();
            file.metadata().is_ok_and(|found| found.is_file() && found.len() == *size)
                && file.read_to_end(&mut content).is_ok()
                && Sha256Digest::of(&content) == *hash
        }
        PathState::Folder { .. } | PathState::LeftOut(_) => false,
    }
}

/// Moves a file to a free name beside a path, or to the workspace's folder if that fails.
fn keep_beside(root: &WorkspaceRoot, from: &OwnedFd, name: &str, path: &Path) -> Option<PathBuf> {
    for parent in [path.parent().unwrap_or(Path::new("")), Path::new("")] {
        let Ok(folder) = open_path(root, parent) else { continue };
        for copy in copy_names(path) {
            match rename_to_new(from, name, &folder, &copy) {
                Ok(()) => return Some(parent.join(copy)),
                Err(Errno::EXIST) => {}
                Err(_) => break,
            }
        }
    }
    None
}

/// Copies a file to a free name beside it. Returns the path of the copy.
///
/// # Errors
///
/// Fails on an error of the system, and if a link is in the place of a folder.
pub fn copy_beside(root: &WorkspaceRoot, path: &Path) -> io::Result<PathBuf> {
    let (folder, name) = open_parent(root.dir(), path)?;
    for copy in copy_names(path) {
        match copy_entry(&folder, name, &folder, &copy) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            copied => return copied.map(|()| path.with_file_name(copy)),
        }
    }
    Ok(path.to_owned())
}

/// The maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns names for copies of a file.
fn copy_names(path: &Path) -> impl Iterator<Item = OsString> {
    let name = path.file_name().unwrap_or_default();
    (1..10_000).map(move |number| {
        let end = format!(".before-undo-{number}");
        let mut copy = shorten_name(name, MAX_NAME_BYTES - end.len());
        copy.push(end);
        copy
    })
}

/// Returns a name of at most this many bytes. A longer name loses characters before its extension.
fn shorten_name(name: &OsStr, most: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= most {
        return name.to_owned();
    }
    let extension = Path::new(name).extension().map_or(0, |extension| extension.len() + 1);
    let extension = if extension <= most / 2 { extension } else { 0 };
    let mut end = most - extension;
    // The bytes of a character stay together.
    while end > 0 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    OsStr::from_bytes(&[&bytes[..end], &bytes[bytes.len() - extension..]].concat()).to_owned()
}

/// Removes the folders of new contents that interrupted or failed restores have left. No restore may be running.
pub fn remove_leftovers(root: &WorkspaceRoot) {
    for name in staging_folders(root, STAGING_PREFIX) {
        remove_folder(root, &name);
    }
}

/// Returns the folders of new contents with this prefix.
fn staging_folders(root: &WorkspaceRoot, prefix: &str) -> Vec<OsString> {
    let names = open_folder(root.dir().as_fd(), OsStr::new("."));
    let mut names = names.and_then(|folder| folder_names(&folder)).unwrap_or_default();
    names.retain(|name| name.as_bytes().starts_with(prefix.as_bytes()));
    names
}

/// Removes a folder of files. A failed call is repeated once. If something stays, it is logged, and the next restore
/// tries again.
fn remove_folder(root: &WorkspaceRoot, name: &OsStr) {
    let remove = || {
        let folder = open_folder(root.dir().as_fd(), name)?;
        let names = folder_names(&folder)?;
        let is_content = |name: &&OsString| {
            let name = name.to_str().unwrap_or_default();
            name.strip_suffix(".part").unwrap_or(name).parse::<Sha256Digest>().is_ok()
        };
        for name in names.iter().filter(is_content) {
            // If a file stays, the folder stays, too.
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
        Ok::<_, io::Error>(unlinkat(root.dir(), name, AtFlags::REMOVEDIR)?)
    };
    let path = root.path().join(name);
    remove_unneeded(format_args!("the temporary folder {}", path.display()), remove);
}

impl FileTransition<'_> {
    fn apply(mut self) -> Result<(), CheckpointError> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let staging = self.write_contents()?;
        self.open_folders()?;
        let is_file = |state: &Option<PathState>| {
            matches!(state, Some(PathState::File { .. } | PathState::Link { .. }))
        };
        for change in self.changes {
            if is_file(&change.before) && !is_file(&change.after) {
                let (folder, name) = self.folder_of(&change.path)?;
                move_away(&folder, name, &staging, &staged_name(&change.path))
                    .io_context("remove", &change.path)?;
            }
        }
        // Innermost folders first.
        for change in self.changes.iter().rev() {
            if is_folder(change.before.as_ref()) && !is_folder(change.after.as_ref()) {
                let (folder, name) = self.folder_of(&change.path)?;
                unlinkat(&folder, name, AtFlags::REMOVEDIR).io_context("remove", &change.path)?;
                self.opened.remove(&change.path);
            }
        }
        for change in self.changes {
            if is_folder(change.after.as_ref()) && !is_folder(change.before.as_ref()) {
                let (folder, name) = self.folder_of(&change.path)?;
                mkdirat(&folder, name, Mode::RWXU).io_context("create the folder", &change.path)?;
                self.set_owner(&self.open_folder(&change.path)?, None);
            }
            if is_file(&change.after) {
                let (folder, name) = self.folder_of(&change.path)?;
                let from = staged_name(&change.path);
                match is_file(&change.before) {
                    true => exchange(&staging, &from, &folder, name),
                    false => rename_to_new(&staging, &from, &folder, name),
                }
                .io_context("replace", &change.path)?;
            }
        }
        for change in self.changes {
            if let Some(PathState::Folder { mode }) = &change.after {
                self.opened.insert(change.path.clone(), *mode);
            }
        }
        // Innermost folders first, because a folder that is not writable may not be accessible either.
        for (path, mode) in self.opened.iter().rev() {
            set_mode(self.open_folder(path)?, *mode).io_context("change", path)?;
        }
        self.sync_folders()
    }

    /// Writes the new files and links. A file gets its final name once it is complete.
    fn write_contents(&self) -> Result<OwnedFd, CheckpointError> {
        let root = self.root.dir();
        let path = self.root.path().join(self.staging);
        mkdirat(root, self.staging, Mode::RWXU).io_context("create the folder", &path)?;
        let staging =
            open_folder(root.as_fd(), OsStr::new(self.staging)).io_context("open", &path)?;
        let is_file = |change: &&PathChange| matches!(change.after, Some(PathState::File { .. }));
        let files = self.changes.iter().filter(is_file);
        let sync = SyncMode::new(self.durability, files.clone().count());
        for change in self.changes {
            let name = staged_name(&change.path);
            match &change.after {
                Some(PathState::Link { target }) => {
                    symlinkat(target, &staging, &name).io_context("write", &change.path)?;
                }
                Some(PathState::File { mode, hash, .. }) => {
                    let content = self.store.get(hash)?;
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    let part = part_name(&name);
                    let file = openat(&staging, &part, flags, Mode::from_raw_mode(0o600));
                    let mut file = File::from(file.io_context("write", &change.path)?);
                    file.write_all(&content).io_context("write", &change.path)?;
                    self.set_owner(&file, Some(&change.path));
                    let mode = Permissions::from_mode(*mode);
                    file.set_permissions(mode).io_context("write", &change.path)?;
                    if sync == SyncMode::Each {
                        file.sync_all().io_context("make durable", &change.path)?;
                    }
                }
                Some(PathState::Folder { .. } | PathState::LeftOut(_)) | None => {}
            }
        }
        if sync == SyncMode::Together {
            sync_file_system(&staging).io_context("make durable", &path)?;
        }
        for change in files {
            let name = staged_name(&change.path);
            renameat(&staging, part_name(&name), &staging, &name)
                .io_context("write", &change.path)?;
        }
        Ok(staging)
    }

    /// Sets the owner of a new file to that of the file that it replaces, or to that of the workspace if the superuser
    /// creates it.
    fn set_owner(&self, file: &impl AsFd, replaced: Option<&Path>) {
        let old = replaced.and_then(|path| {
            let (folder, name) = self.folder_of(path).ok()?;
            statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()
        });
        let old = old.filter(|old| FileType::from_raw_mode(old.st_mode) == FileType::RegularFile);
        let workspace = || geteuid().is_root().then(|| fstat(self.root.dir()).ok()).flatten();
        if let (Some(old), Ok(new)) = (old.or_else(workspace), fstat(file))
            && (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid)
        {
            let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
            let _ = fchown(file, Some(uid), Some(gid));
        }
    }

    /// Makes the folders writable whose entries change.
    fn open_folders(&mut self) -> Result<(), CheckpointError> {
        let folders: BTreeSet<&Path> =
            self.changes.iter().filter_map(|change| change.path.parent()).collect();
        for path in folders.into_iter().filter(|path| *path != Path::new("")) {
            let folder = match self.open_folder(path) {
                Ok(folder) => folder,
                // The folder will be created.
                Err(error) if is_gone(&error.source) => continue,
                Err(error) => return Err(error.into()),
            };
            let folder = File::from(folder);
            let mode = folder.metadata().io_context("inspect", path)?.mode() & 0o7777;
            if mode & OWNER != OWNER && !geteuid().is_root() {
                self.opened.insert(path.to_owned(), mode);
                set_mode(folder.into(), mode | OWNER).io_context("change", path)?;
            }
        }
        Ok(())
    }

    fn open_folder(&self, path: &Path) -> Result<OwnedFd, IoError> {
        open_path(self.root, path)
    }

    /// Returns the folder of a path, opened without following links, and the name in it.
    fn folder_of<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), CheckpointError> {
        let name = path.file_name();
        let name = name.ok_or_else(|| CheckpointError::damaged("a path of a tree is empty"))?;
        Ok((self.open_folder(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn sync_folders(&self) -> Result<(), CheckpointError> {
        let folders: BTreeSet<&Path> =
            self.changes.iter().filter_map(|change| change.path.parent()).collect();
        match SyncMode::new(self.durability, folders.len()) {
            SyncMode::Not => return Ok(()),
            SyncMode::Together => {
                let folder = self.open_folder(Path::new(""))?;
                return Ok(sync_file_system(folder).io_context("make durable", self.root.path())?);
            }
            SyncMode::Each => {}
        }
        for path in folders {
            // A removed folder is an entry of another folder.
            if let Ok(folder) = self.open_folder(path) {
                fsync(&folder).io_context("make durable", path)?;
            }
        }
        Ok(())
    }
}

/// Opens a folder of the workspace without following links.
fn open_path(root: &WorkspaceRoot, path: &Path) -> Result<OwnedFd, IoError> {
    let mut folder =
        open_folder(root.dir().as_fd(), OsStr::new(".")).io_context("open", root.path())?;
    for name in path {
        folder = open_folder(folder.as_fd(), name).io_context("open the folder", path)?;
    }
    Ok(folder)
}

/// Moves a file away, so that its content can be verified when its name is gone.
fn move_away(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new: &str) -> rustix::io::Result<()> {
    refuse_folder(from, name)?;
    match rename_to_new(from, name, to, new) {
        // The file is a mount point of the same file system.
        Err(Errno::XDEV) => unlinkat(from, name, AtFlags::empty()),
        moved => moved,
    }
}

/// Exchanges a file with another one.
fn exchange(from: &OwnedFd, name: &str, to: &OwnedFd, new: &OsStr) -> rustix::io::Result<()> {
    match refuse_folder(to, new) {
        Err(Errno::NOENT) | Ok(()) => {}
        refused => return refused,
    }
    match renameat_with(from, name, to, new, RenameFlags::EXCHANGE) {
        // Someone has removed the other file.
        Err(Errno::NOENT) => rename_to_new(from, name, to, new),
        // Some file systems don't support this, nor does Linux before 3.15. The replaced file can't be verified there.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(from, name, to, new),
        exchanged => exchanged,
    }
}

/// Fails if someone has put a folder in the place of a file.
fn refuse_folder(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Err(Errno::ISDIR),
        _ => Ok(()),
    }
}

fn set_mode(folder: OwnedFd, mode: u32) -> io::Result<()> {
    File::from(folder).set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_copy_is_as_short_as_the_file_system_wants() {
        let copy = |name: &str| copy_names(Path::new(name)).next().unwrap().into_string().unwrap();
        assert_eq!(copy("d/a.txt"), "a.txt.before-undo-1");
        for (name, expected) in [
            ("n".repeat(255), "n".repeat(241)),
            ("é".repeat(127) + "x", "é".repeat(120)),
            ("é".repeat(125) + "a.txt", "é".repeat(118) + ".txt"),
            ("n".to_owned() + "." + &"x".repeat(253), "n.".to_owned() + &"x".repeat(239)),
        ] {
            assert_eq!(copy(&name), expected + ".before-undo-1");
        }
    }
}
