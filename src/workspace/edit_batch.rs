//! Atomic changes of several files.
//!
//! Every new content is written to a temporary file in the same folder and synced. Then the folders are locked, and
//! each original is checked again. If all are unchanged, the new files are renamed into place. If a step fails, the
//! previous ones are undone. If two processes change the same content, the second one fails.
//!
//! A killed process leaves temporary files behind. Their names are digests of the original's name and the content
//! ([`leftover_path`]), so they can be found. Temporary files that can't be removed are returned.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, fchown, flock, fstat, openat,
    renameat, renameat_with, statat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use super::error::FileError;
use super::open_folder::{remove_unneeded, twice};
use super::path::RelPath;
use super::root::WorkspaceRoot;
use crate::port;
use crate::types::Sha256Digest;

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchedChange {
    /// The file.
    pub path: RelPath,
    /// The SHA-256 digest of the expected current content; `None` if the file must not exist.
    pub before: Option<Arc<str>>,
    /// The new content; `None` to delete the file.
    pub after: Option<Arc<[u8]>>,
    /// The new permissions; `None` to keep them, or for the default of a new file.
    pub mode: Option<u32>,
}

/// The maximum size of a file that is read for the comparison, in bytes.
const MAX_COMPARED_SIZE: u64 = 1 << 30;

/// The temporary files of a batch that could not be removed.
#[derive(Default)]
struct Leftovers(RefCell<Vec<PathBuf>>);

impl Leftovers {
    /// Removes a temporary file next to a file.
    fn remove(&self, folder: &Dir, path: &RelPath, name: &str) {
        let temporary = path.as_path().with_file_name(name);
        let shown = format_args!("the temporary file {}", temporary.display());
        if !remove_unneeded(shown, || folder.remove_file(name)) {
            self.0.borrow_mut().push(temporary);
        }
    }
}

/// A prepared change: its new content is in a temporary file, if there is any.
struct StagedChange<'a> {
    change: &'a BatchedChange,
    leftovers: &'a Leftovers,
    folder: Dir,
    name: std::ffi::OsString,
    /// The temporary file; `None` once renamed into place.
    temp_name: Option<String>,
}

/// The treatment of old files until all changes are made. A single change needs no undo.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackupMode {
    Keep,
    Discard,
}

/// A change that was made and can be undone.
struct CommittedChange<'a> {
    folder: &'a Dir,
    path: &'a RelPath,
    name: &'a OsStr,
    /// The name of the old file; `None` if there was no old file.
    backup_name: Option<String>,
}

/// Applies changes together. No file may occur twice. Returns the temporary files that could not be removed afterwards.
///
/// # Errors
///
/// Fails if a change cannot be made. All files are then unchanged, except those named in the error.
pub fn apply_changes(
    root: &WorkspaceRoot,
    changes: &[BatchedChange],
) -> Result<Vec<PathBuf>, FileError> {
    let leftovers = Leftovers::default();
    let new_folders = missing_folders(root, changes);
    let applied = apply_together(root, changes, &leftovers);
    if applied.is_err() {
        // Inner folders first. Folders that are not empty stay.
        for folder in new_folders.iter().rev() {
            let _ = root.dir().remove_dir(folder.as_path());
        }
    }
    let left = leftovers.0.into_inner();
    match applied {
        Ok(()) => Ok(left),
        Err(cause) if left.is_empty() => Err(cause),
        Err(cause) => Err(FileError::Leftovers { cause: Box::new(cause), left }),
    }
}

/// Returns the folders that have to be created for new files, outer folders first.
fn missing_folders(root: &WorkspaceRoot, changes: &[BatchedChange]) -> BTreeSet<RelPath> {
    let created = changes.iter().filter(|change| change.before.is_none());
    let folders =
        created.flat_map(|change| iter::successors(change.path.parent(), RelPath::parent));
    folders.filter(|folder| !root.exists(folder)).collect()
}

fn apply_together(
    root: &WorkspaceRoot,
    changes: &[BatchedChange],
    leftovers: &Leftovers,
) -> Result<(), FileError> {
    let staged = changes.iter().map(|change| StagedChange::new(root, change, leftovers));
    let mut staged = staged.collect::<Result<Vec<_>, _>>()?;
    let _locks = lock_folders(&staged)?;
    changes.iter().try_for_each(|change| change.check_unchanged(root))?;
    let mut made: Vec<CommittedChange<'_>> = Vec::with_capacity(staged.len());
    let keep = if changes.len() > 1 { BackupMode::Keep } else { BackupMode::Discard };
    for change in &mut staged {
        match change.commit(root, keep) {
            Ok(done) => made.push(done),
            Err(error) => {
                let left: Vec<String> =
                    made.iter().rev().filter_map(|made| made.undo().err()).collect();
                return Err(match left.is_empty() {
                    true => error,
                    false => FileError::PartlyApplied { cause: Box::new(error), left },
                });
            }
        }
    }
    made.iter().for_each(|made| made.remove_backup(leftovers));
    Ok(())
}

/// The longest wait for other processes that change files in the same folder, in attempts of a millisecond.
const MAX_LOCK_ATTEMPTS: usize = 10_000;

/// Locks the folders of changes until the result is dropped, in one order for all processes.
///
/// The locks hold between processes of this program. A folder that can't be locked, as on some network file systems, is
/// changed without a lock.
fn lock_folders(staged: &[StagedChange<'_>]) -> Result<Vec<OwnedFd>, FileError> {
    let mut folders = BTreeMap::new();
    for change in staged {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat(&change.folder, ".", flags, Mode::empty()) else { continue };
        let Ok(stat) = fstat(&folder) else { continue };
        folders.insert((stat.st_dev, stat.st_ino), (folder, &change.change.path));
    }
    let locked = folders.into_values().map(|(folder, path)| {
        for _ in 0..MAX_LOCK_ATTEMPTS {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(1)),
                Ok(()) | Err(_) => return Ok(folder),
            }
        }
        Err(FileError::Locked(path.clone()))
    });
    locked.collect()
}

/// Renames a file. An existing file is never replaced.
pub(in crate::workspace) fn rename_to_new(
    from: impl AsFd,
    name: impl Arg + Copy,
    to: impl AsFd,
    new: impl Arg + Copy,
) -> rustix::io::Result<()> {
    match renameat_with(&from, name, &to, new, RenameFlags::NOREPLACE) {
        // Some file systems don't support this, nor does Linux before 3.15.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => renameat(from, name, to, new),
            }
        }
        renamed => renamed,
    }
}

impl BatchedChange {
    /// Fails if the file has changed.
    fn check_unchanged(&self, root: &WorkspaceRoot) -> Result<(), FileError> {
        let found = match root.read(&self.path, MAX_COMPARED_SIZE) {
            Ok(content) => Some(sha256(&content)),
            Err(FileError::Missing(_)) => None,
            Err(error) => return Err(error),
        };
        if found == self.before { Ok(()) } else { Err(FileError::Changed(self.path.clone())) }
    }
}

impl<'a> StagedChange<'a> {
    fn new(
        root: &WorkspaceRoot,
        change: &'a BatchedChange,
        leftovers: &'a Leftovers,
    ) -> Result<Self, FileError> {
        let path = &change.path;
        let failed = |error: io::Error| FileError::from_io("write", path, error);
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(FileError::IsDirectory(path.clone()));
        };
        // Checked before folders are created, which would be left behind.
        let existing = iter::successors(Some(parent.clone()), RelPath::parent);
        let mut existing = existing.filter_map(|folder| {
            let rest = path.strip_folder(&folder);
            Some((root.open_folder(&folder).ok()?, rest))
        });
        if let Some((folder, rest)) = existing.next() {
            root.check_write(folder.as_fd(), rest.as_os_str(), path)?;
        }
        let folder = match change.before {
            None => root
                .create_folder(&parent)
                .map_err(|error| FileError::from_io("create the directory of", path, error))?,
            Some(_) => root.open_folder(&parent).map_err(failed)?,
        };
        root.check_write(folder.as_fd(), name, path)?;
        let mut staged = Self { change, leftovers, folder, name: name.to_owned(), temp_name: None };
        if let Some(content) = &change.after {
            staged.write(content)?;
        }
        Ok(staged)
    }

    /// Writes the new content to a temporary file with the final owner and permissions.
    fn write(&mut self, content: &[u8]) -> Result<(), FileError> {
        let path = &self.change.path;
        let failed = |error: io::Error| FileError::from_io("write", path, error);
        let replaced = self.change.before.as_ref().map(|_| self.folder.metadata(&self.name));
        let old = replaced.transpose().map_err(failed)?;
        let digest = sha256(content);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if old.is_some() {
            // The file is private until it has the permissions of the original.
            options.mode(0o600);
        }
        let open = |name: &String| self.folder.open_with(name, &options);
        let (name, file) = create_unique(&self.name, &digest, open).map_err(failed)?;
        self.temp_name = Some(name);
        let mut file = file.into_std();
        file.write_all(content).map_err(failed)?;
        if let Some(old) = old {
            set_owner(&file, &old).map_err(|()| FileError::ForeignOwner(path.clone()))?;
            let mode = cap_std::fs::PermissionsExt::mode(&old.permissions());
            set_mode(&file, self.change.mode.unwrap_or(mode)).map_err(failed)?;
        } else if let Some(mode) = self.change.mode {
            set_mode(&file, mode).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }

    /// Renames the new file into place.
    fn commit(
        &mut self,
        root: &WorkspaceRoot,
        keep: BackupMode,
    ) -> Result<CommittedChange<'_>, FileError> {
        // Earlier changes of the batch may have turned the folder into a repository.
        root.check_write(self.folder.as_fd(), &self.name, &self.change.path)?;
        let path = &self.change.path;
        let failed = |error: io::Error| FileError::from_io("replace", path, error);
        // A file to delete is moved away first, so that an undo works even if nothing can be removed.
        let is_moved = self.temp_name.is_none() && keep == BackupMode::Keep;
        let old = match (&self.change.before, keep) {
            (None, _) | (Some(_), BackupMode::Discard) => None,
            (Some(digest), BackupMode::Keep) if is_moved => {
                let rename =
                    |old: &String| Ok(rename_to_new(&self.folder, &self.name, &self.folder, old)?);
                Some(create_unique(&self.name, digest, rename).map_err(failed)?.0)
            }
            (Some(digest), BackupMode::Keep) => {
                // The old file gets a second name, so that its path is never missing.
                let link = |old: &String| self.folder.hard_link(&self.name, &self.folder, old);
                let linked = create_unique(&self.name, digest, link).or_else(|_| {
                    // Some file systems have no hard links.
                    let old = temp_file_name(&self.name, &port::unique_id().to_string());
                    self.folder.copy(&self.name, &self.folder, &old).map(|_| (old, ()))
                });
                Some(linked.map_err(failed)?.0)
            }
        };
        let done = match &self.temp_name {
            Some(beside) if self.change.before.is_none() => {
                rename_to_new(&self.folder, beside, &self.folder, &self.name).map_err(Into::into)
            }
            Some(beside) => self.folder.rename(beside, &self.folder, &self.name),
            None if is_moved => Ok(()),
            None => self.folder.remove_file(&self.name),
        };
        if let Err(error) = done {
            if let Some(old) = old {
                self.leftovers.remove(&self.folder, path, &old);
            }
            return Err(failed(error));
        }
        self.temp_name = None;
        Ok(CommittedChange { folder: &self.folder, path, name: &self.name, backup_name: old })
    }
}

impl Drop for StagedChange<'_> {
    fn drop(&mut self) {
        if let Some(beside) = &self.temp_name {
            self.leftovers.remove(&self.folder, &self.change.path, beside);
        }
    }
}

impl CommittedChange<'_> {
    /// Undoes the change. On failure, returns the location of the old content.
    fn undo(&self) -> Result<(), String> {
        let Self { path, name, .. } = self;
        match &self.backup_name {
            Some(old) => twice(|| self.folder.rename(old, self.folder, name)).map_err(|error| {
                let old = path.as_path().with_file_name(old);
                format!(
                    "'{path}' is changed, and its old content is in '{}' ({error})",
                    old.display()
                )
            }),
            None => twice(|| self.folder.remove_file(name)).map_err(|error| {
                format!("'{path}' was created, and could not be removed ({error})")
            }),
        }
    }

    fn remove_backup(&self, leftovers: &Leftovers) {
        if let Some(old) = &self.backup_name {
            leftovers.remove(self.folder, self.path, old);
        }
    }
}

/// Returns a name for a temporary file next to another one, with this content.
pub(in crate::workspace) fn temp_file_name(name: &OsStr, digest: &str) -> String {
    let whole = sha256(&[name.as_bytes(), b"/", digest.as_bytes()].concat());
    format!(".architect-{}.tmp", &whole[..32])
}

/// Returns whether a file has the name of a temporary file.
pub(in crate::workspace) fn is_leftover_name(name: &str) -> bool {
    let digest = name.strip_prefix(".architect-").and_then(|rest| rest.strip_suffix(".tmp"));
    digest.is_some_and(|it| it.len() == 32 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Creates a file with a unique name next to another one. Tries again if another process has just taken the name.
fn create_unique<T>(
    name: &OsStr,
    digest: &str,
    make: impl Fn(&String) -> io::Result<T>,
) -> io::Result<(String, T)> {
    let usual = temp_file_name(name, digest);
    match make(&usual) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let other = temp_file_name(name, &port::unique_id().to_string());
            make(&other).map(|made| (other, made))
        }
        made => made.map(|made| (usual, made)),
    }
}

/// Returns the path at which a killed process would have left this content for a file.
pub fn leftover_path(path: &Path, digest: &str) -> PathBuf {
    path.with_file_name(temp_file_name(path.file_name().unwrap_or_default(), digest))
}

/// Sets the owner of a file to that of another one, if it differs.
fn set_owner(file: &File, old: &cap_std::fs::Metadata) -> Result<(), ()> {
    use cap_std::fs::MetadataExt;

    let (uid, gid) = (old.uid(), old.gid());
    let meta = file.metadata().map_err(|_| ())?;
    if meta.gid() != gid {
        // A user who may not change owners may still be a member of the group.
        let _ = fchown(file, None, Some(Gid::from_raw(gid)));
    }
    if meta.uid() == uid {
        return Ok(());
    }
    fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(|_| ())
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode & 0o7777))
}

/// Returns the SHA-256 digest of a content, in hexadecimal.
pub fn sha256(content: &[u8]) -> Arc<str> {
    Sha256Digest::of(content).to_string().into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn workspace() -> (tempfile::TempDir, WorkspaceRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        (folder, root)
    }

    fn change(path: &str, before: Option<&str>, after: Option<&str>) -> BatchedChange {
        BatchedChange {
            path: RelPath::new(path).unwrap(),
            before: before.map(|text| sha256(text.as_bytes())),
            after: after.map(|text| text.as_bytes().into()),
            mode: None,
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_created_replaced_and_deleted_without_leftovers() {
        let (folder, root) = workspace();
        fs::write(folder.path().join("a"), "1").unwrap();
        fs::write(folder.path().join("b"), "2").unwrap();
        let changes =
            [("a", Some("1"), Some("one")), ("b", Some("2"), None), ("n/c", None, Some("3"))];
        let changes = changes.map(|(path, before, after)| change(path, before, after));
        apply_changes(&root, &changes).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "one");
        assert_eq!(fs::read_to_string(folder.path().join("n/c")).unwrap(), "3");
        assert_eq!(names(folder.path()), ["a", "n"]);
        assert_eq!(names(&folder.path().join("n")), ["c"]);
    }

    #[test]
    fn a_temporary_file_that_stays_is_named() {
        let (folder, root) = workspace();
        // A folder can't be removed like a file.
        fs::create_dir_all(folder.path().join("d/x")).unwrap();
        let leftovers = Leftovers::default();
        let (folder, path) = (root.dir().open_dir("d").unwrap(), RelPath::new("d/a").unwrap());
        for name in ["x", "missing"] {
            leftovers.remove(&folder, &path, name);
        }
        assert_eq!(leftovers.0.into_inner(), [Path::new("d/x")]);
    }

    #[test]
    fn leftovers_of_a_killed_process_are_found_and_harmless() {
        let (folder, root) = workspace();
        let (change, leftovers) = (change("d/a", None, Some("1")), Leftovers::default());
        let mut staged = StagedChange::new(&root, &change, &leftovers).unwrap();
        staged.temp_name = None;
        drop(staged);
        let left = folder.path().join(leftover_path(Path::new("d/a"), &sha256(b"1")));
        assert_eq!(fs::read_to_string(&left).unwrap(), "1");
        apply_changes(&root, &[change]).unwrap();
        fs::remove_file(left).unwrap();
        assert_eq!(names(&folder.path().join("d")), ["a"]);
    }

    /// Faults T20, T24: a failed change leaves everything unchanged.
    #[test]
    fn all_or_nothing() {
        let (folder, root) = workspace();
        fs::write(folder.path().join("a"), "1").unwrap();
        fs::write(folder.path().join("b"), "2").unwrap();
        fs::create_dir(folder.path().join("c")).unwrap();
        for bad in [
            change("b", Some("not this"), Some("x")),
            change("b", None, Some("x")),
            change("c", None, Some("x")),
            change("b/x", None, Some("x")),
        ] {
            let new = change("n/m/x", None, Some("x"));
            let changes = [change("a", Some("1"), Some("one")), new, bad];
            assert!(apply_changes(&root, &changes).is_err());
            assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1");
            assert_eq!(names(folder.path()), ["a", "b", "c"]);
        }
    }

    #[test]
    fn earlier_changes_are_undone_when_a_later_one_fails() {
        let (folder, root) = workspace();
        fs::write(folder.path().join("a"), "1").unwrap();
        let first = change("a", Some("1"), Some("one"));
        let leftovers = Leftovers::default();
        let mut staged = StagedChange::new(&root, &first, &leftovers).unwrap();
        let made = staged.commit(&root, BackupMode::Keep).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "one");
        made.undo().unwrap();
        drop(staged);
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn an_undo_that_fails_names_the_old_content() {
        let (folder, root) = workspace();
        fs::write(folder.path().join("a"), "1").unwrap();
        let first = change("a", Some("1"), Some("one"));
        let leftovers = Leftovers::default();
        let mut staged = StagedChange::new(&root, &first, &leftovers).unwrap();
        let made = staged.commit(&root, BackupMode::Keep).unwrap();
        let old = made.backup_name.clone().unwrap();
        // A file cannot replace a folder.
        fs::remove_file(folder.path().join("a")).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let left = made.undo().unwrap_err();
        assert!(
            left.starts_with(&format!("'a' is changed, and its old content is in '{old}' (")),
            "{left}"
        );
        assert_eq!(fs::read_to_string(folder.path().join(&old)).unwrap(), "1");
        let cause = Box::new(FileError::Changed(RelPath::new("b").unwrap()));
        let message = FileError::PartlyApplied { cause, left: vec![left] }.to_string();
        assert!(message.contains("'b' changed") && message.contains(&old), "{message}");
    }

    #[test]
    fn permissions_are_kept_and_can_be_set() {
        let (folder, root) = workspace();
        let file = folder.path().join("a");
        fs::write(&file, "1").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o751)).unwrap();
        apply_changes(&root, &[change("a", Some("1"), Some("2"))]).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o751);
        let changed = BatchedChange { mode: Some(0o600), ..change("a", Some("2"), Some("3")) };
        apply_changes(&root, &[changed]).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    }

    /// Fault T20: a hard link, which may be outside, keeps the old content.
    #[test]
    fn a_hard_link_is_not_written_through() {
        let (folder, root) = workspace();
        let outside = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
        fs::write(outside.path().join("a"), "1").unwrap();
        fs::hard_link(outside.path().join("a"), folder.path().join("a")).unwrap();
        apply_changes(&root, &[change("a", Some("1"), Some("2"))]).unwrap();
        assert_eq!(fs::read_to_string(outside.path().join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "2");
    }

    /// Fault T20.
    #[test]
    fn a_link_is_followed_inside_and_refused_outside() {
        let (folder, root) = workspace();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/a"), "1").unwrap();
        symlink("d/a", folder.path().join("inside")).unwrap();
        symlink("/etc/hostname", folder.path().join("outside")).unwrap();
        symlink("nothing", folder.path().join("dangling")).unwrap();
        let canonical = |path: &str| root.canonical(&RelPath::new(path).unwrap());
        assert_eq!(canonical("inside").unwrap().to_string(), "d/a");
        symlink("d", folder.path().join("folder")).unwrap();
        for (path, expected) in [("folder/a", "d/a"), ("folder/n/b", "d/n/b"), ("n/b", "n/b")] {
            assert_eq!(canonical(path).unwrap().to_string(), expected);
        }
        assert!(matches!(canonical("outside"), Err(FileError::Escapes(_))));
        assert!(matches!(canonical("dangling"), Err(FileError::Dangling(_))));
    }

    #[test]
    fn the_digest_matches_the_published_value() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(&*sha256(b"abc"), expected);
    }
}
