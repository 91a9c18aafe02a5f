//! Protected files on systems where nothing can be mounted over them.
//!
//! Access rules of the kernel grant a folder as a whole; a file in it cannot be excluded. So the content of protected
//! files is read before a command starts, and restored after the command and all its processes have ended.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use rustix::fs::{Gid, Uid, fchown};

use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};
use crate::port::unique_id;
use crate::types::Durability;
use crate::workspace::{
    OWNER, create_private_folder, open_below, open_canonical, open_canonical_parent, open_file,
    replace_entry, replace_file, set_folder_mode,
};

/// Protected paths to restore after a command.
pub(in crate::exec) struct ProtectedPaths {
    paths: Vec<PathBuf>,
    /// The folders that commands can write, with links resolved.
    writable: Vec<PathBuf>,
    /// Paths that this program writes while commands run.
    own: Vec<PathBuf>,
    /// The folder in which the content of unrestorable files is saved.
    saved: Option<PathBuf>,
}

/// The result of restoring changed paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::exec) struct RestoredPaths {
    /// Paths that have their previous state again.
    pub restored: Vec<PathBuf>,
    /// A sentence for each file or folder that could not be restored.
    pub failed: Vec<String>,
}

/// The folder in the state folder for the content of files that can't be restored.
const SAVED_FOLDER: &str = "unrestored";

/// The state of protected paths at one moment.
pub(in crate::exec) struct PathSnapshot<'a> {
    protected: &'a ProtectedPaths,
    roots: Vec<PathBuf>,
    entries: SavedEntries,
}

type SavedEntries = BTreeMap<PathBuf, SavedEntry>;

/// The state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SavedEntry {
    Folder { mode: u32 },
    File { mode: u32, owner: (u32, u32), content: Vec<u8> },
    Link { to: PathBuf },
}

/// Limits for all protected files together: bytes, and number of files.
const MAX_READ: (u64, usize) = (32 << 20, 10_000);

impl ProtectedPaths {
    /// Returns the existing protected paths of a policy that commands could write.
    pub(in crate::exec) fn new(policy: &SandboxPolicy) -> Self {
        let roots = policy.writable_roots();
        let writable = roots.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let paths =
            if policy.mode == SandboxMode::Off { Vec::new() } else { policy.protected.clone() };
        // The record is in a folder of the state folder.
        let state = policy.record_path.as_deref().and_then(|path| path.parent()?.parent());
        let saved = state.map(|state| state.join(SAVED_FOLDER));
        Self { paths, writable, own: policy.exposed_state(), saved }
    }

    /// Returns an empty list.
    pub(in crate::exec) fn empty() -> Self {
        Self { paths: Vec::new(), writable: Vec::new(), own: Vec::new(), saved: None }
    }

    /// Returns whether all paths can be restored.
    #[cfg(any(target_os = "linux", test))]
    pub(in crate::exec) fn can_restore(&self) -> bool {
        self.snapshot().is_ok()
    }

    /// Returns the current state of the paths.
    ///
    /// # Errors
    ///
    /// Fails when a limit is exceeded, or when something cannot be read.
    pub(in crate::exec) fn snapshot(&self) -> io::Result<PathSnapshot<'_>> {
        let (mut roots, mut entries, mut left) = (Vec::new(), BTreeMap::new(), MAX_READ);
        // Parents are resolved, so that a link found later is known to come from the command.
        let real =
            |path: &PathBuf| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        for path in self.paths.iter().filter_map(real) {
            let is_writable = self.writable.iter().any(|root| path.starts_with(root));
            if is_writable && entry_at(&path).is_ok() {
                self.read_at(&path, &mut left, &mut entries)?;
                roots.push(path);
            }
        }
        Ok(PathSnapshot { protected: self, roots, entries })
    }

    fn read_at(
        &self,
        path: &Path,
        left: &mut (u64, usize),
        entries: &mut SavedEntries,
    ) -> io::Result<()> {
        let (folder, name) = open_canonical_parent(path)?;
        self.read_below(&folder, name, path, left, entries)
    }

    fn read_below(
        &self,
        folder: &Dir,
        name: &OsStr,
        path: &Path,
        left: &mut (u64, usize),
        entries: &mut SavedEntries,
    ) -> io::Result<()> {
        if self.own.iter().any(|own| own == path) {
            return Ok(());
        }
        let entry = read_entry(folder, name, &mut left.0)?;
        left.1 = left.1.checked_sub(1).ok_or(io::ErrorKind::FileTooLarge)?;
        let is_folder = matches!(entry, SavedEntry::Folder { .. });
        entries.insert(path.to_owned(), entry);
        if is_folder {
            let folder = open_below(folder, Path::new(name))?;
            for inner in folder.entries()? {
                let name = inner?.file_name();
                self.read_below(&folder, &name, &path.join(&name), left, entries)?;
            }
        }
        Ok(())
    }
}

impl PathSnapshot<'_> {
    /// Restores changed paths. The content of a file that can't be restored is saved in the state folder.
    pub(in crate::exec) fn restore_changed(self) -> RestoredPaths {
        let mut changed: Vec<PathBuf> = Vec::new();
        let mut errors = BTreeMap::new();
        // Restoring a path can remove a link through which another path was found.
        for _ in 0..=self.roots.len() {
            let found = self.roots.iter().filter(|root| !self.is_unchanged(root)).cloned();
            let found: Vec<PathBuf> = found.collect();
            if found.is_empty() {
                break;
            }
            errors.clear();
            found.iter().for_each(|root| self.restore(root, &mut errors));
            changed.extend(found);
        }
        changed.sort();
        changed.dedup();
        // A later round may have restored the path, or removed an obstacle.
        errors.retain(|path, _| read_at_path(path).ok().as_ref() != self.entries.get(path));
        changed.retain(|root| !errors.keys().any(|path| path.starts_with(root)));
        let failed = errors.iter().map(|(path, error)| self.describe_failure(path, error));
        RestoredPaths { failed: failed.collect(), restored: changed }
    }

    /// Saves the content of a file that can't be restored. Returns a sentence about it.
    fn describe_failure(&self, path: &Path, error: &io::Error) -> String {
        let shown = path.display();
        let failed = format!(
            "sandbox denied: {shown} is protected, and could not be restored after a command changed it: {error}"
        );
        let Some(SavedEntry::File { content, .. }) = self.entries.get(path) else { return failed };
        let save = |folder: &Path| {
            create_private_folder(folder)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let copy = folder.join(format!("{}-{name}", unique_id()));
            replace_file(&copy, content, Durability::Full).map(|()| copy)
        };
        match self.protected.saved.as_deref().map(save) {
            Some(Ok(copy)) => format!("{failed}; its content is in {}", copy.display()),
            Some(Err(error)) => format!("{failed}; its content could not be saved: {error}"),
            None => format!("{failed}; its content is lost"),
        }
    }

    fn is_unchanged(&self, root: &Path) -> bool {
        let (mut now, mut left) = (BTreeMap::new(), MAX_READ);
        self.writable_ancestors(root).iter().all(|folder| is_folder(folder))
            && self.protected.read_at(root, &mut left, &mut now).is_ok()
            && now.iter().eq(self.entries_below(root))
    }

    /// Returns the previous entries at and below a path, outer folders first.
    fn entries_below<'a>(
        &'a self,
        root: &'a Path,
    ) -> impl Iterator<Item = (&'a PathBuf, &'a SavedEntry)> {
        let own = self.entries.range(root.to_owned()..);
        own.take_while(move |(path, _)| path.starts_with(root))
    }

    /// Restores everything at and below a path, outer folders first. Adds failures to `errors`.
    fn restore(&self, root: &Path, errors: &mut BTreeMap<PathBuf, io::Error>) {
        self.restore_ancestors(root);
        let saved: Vec<_> = self.entries_below(root).collect();
        if let Ok((folder, name)) = open_canonical_parent(root) {
            let was_there = |path: &Path| self.entries.contains_key(path);
            remove_others(&folder, name, root, &self.protected.own, &was_there);
        }
        for (path, entry) in &saved {
            if read_at_path(path).is_ok_and(|now| now == **entry) {
                continue;
            }
            let written = open_canonical_parent(path)
                .and_then(|(folder, name)| write_entry(&folder, name, entry));
            if let Err(error) = written {
                errors.insert((*path).clone(), error);
            }
        }
        // The permissions of a folder are set after its content.
        for (path, entry) in saved.iter().rev() {
            if let SavedEntry::Folder { mode } = entry {
                let _ = open_canonical(path).and_then(|folder| set_folder_mode(&folder, *mode));
            }
        }
    }

    /// Returns the folders above a path that commands can write, outer folders first.
    fn writable_ancestors(&self, root: &Path) -> Vec<PathBuf> {
        let writable = &self.protected.writable;
        let is_inside = |folder: &&Path| writable.iter().any(|own| folder.starts_with(own));
        let mut way: Vec<PathBuf> =
            root.ancestors().skip(1).filter(is_inside).map(Path::to_owned).collect();
        way.reverse();
        way
    }

    /// Creates the folders above a path again if a command has removed or replaced them. Links are not followed, since
    /// they may lead anywhere.
    fn restore_ancestors(&self, root: &Path) {
        for path in self.writable_ancestors(root) {
            let Ok((folder, name)) = open_canonical_parent(&path) else { continue };
            if open_to_owner(&folder, name).is_err() {
                let _ = remove_entry(&folder, name);
                let _ = folder.create_dir(name);
            }
        }
    }
}

fn entry_at(path: &Path) -> io::Result<Metadata> {
    let (folder, name) = open_canonical_parent(path)?;
    folder.symlink_metadata(name)
}

fn read_at_path(path: &Path) -> io::Result<SavedEntry> {
    let (folder, name) = open_canonical_parent(path)?;
    let mut left = u64::MAX;
    read_entry(&folder, name, &mut left)
}

fn is_folder(path: &Path) -> bool {
    entry_at(path).is_ok_and(|found| found.is_dir())
}

/// Opens a folder, and gives its owner the permissions to work in it.
fn open_to_owner(parent: &Dir, name: &OsStr) -> io::Result<Dir> {
    let folder = open_below(parent, Path::new(name))?;
    set_folder_mode(&folder, folder.dir_metadata()?.mode() & 0o7777 | OWNER)?;
    Ok(folder)
}

fn read_entry(folder: &Dir, name: &OsStr, left: &mut u64) -> io::Result<SavedEntry> {
    let found = folder.symlink_metadata(name)?;
    let mode = found.mode() & 0o7777;
    if found.is_dir() {
        return Ok(SavedEntry::Folder { mode });
    }
    if found.is_symlink() {
        return Ok(SavedEntry::Link { to: folder.read_link_contents(name)? });
    }
    if !found.is_file() {
        // Reading a pipe would block.
        return Err(io::ErrorKind::InvalidData.into());
    }
    *left = left.checked_sub(found.len()).ok_or(io::ErrorKind::FileTooLarge)?;
    let mut content = Vec::new();
    open_file(folder, name)?.take(found.len() + 1).read_to_end(&mut content)?;
    Ok(SavedEntry::File { mode, owner: (found.uid(), found.gid()), content })
}

fn write_entry(folder: &Dir, name: &OsStr, entry: &SavedEntry) -> io::Result<()> {
    match entry {
        SavedEntry::Folder { .. } => {
            if open_to_owner(folder, name).is_err() {
                let _ = remove_entry(folder, name);
                folder.create_dir(name)?;
            }
            Ok(())
        }
        SavedEntry::Link { to } => {
            let _ = remove_entry(folder, name);
            folder.symlink_contents(to, name)
        }
        SavedEntry::File { mode, owner, content } => {
            let write = || replace_below(folder, name, content, *owner, *mode);
            // Removing the command's version of the file may free the needed space.
            write().or_else(|_| remove_entry(folder, name).and_then(|()| write()))
        }
    }
}

/// Replaces an entry by a file once the file is complete. It is not written in place: the old file may be a hard link.
fn replace_below(
    folder: &Dir,
    name: &OsStr,
    content: &[u8],
    (uid, gid): (u32, u32),
    mode: u32,
) -> io::Result<()> {
    replace_entry(folder, name, &format!(".{}", unique_id()), |file| {
        file.write_all(content)?;
        let found = file.metadata()?;
        if (found.uid(), found.gid()) != (uid, gid) {
            // The content is restored even if the owner can't be set.
            let _ = fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        if folder.symlink_metadata(name).is_ok_and(|found| found.is_dir()) {
            let _ = remove_entry(folder, name);
        }
        Ok(())
    })
}

/// Removes all entries that did not exist before, except those that this program writes.
fn remove_others(
    folder: &Dir,
    name: &OsStr,
    path: &Path,
    own: &[PathBuf],
    was_there: &dyn Fn(&Path) -> bool,
) {
    if own.iter().any(|own| own == path) {
        return;
    }
    if !was_there(path) {
        let _ = remove_entry(folder, name);
        return;
    }
    if let Ok(folder) = open_to_owner(folder, name) {
        for inner in folder.entries().into_iter().flatten().flatten() {
            let name = inner.file_name();
            remove_others(&folder, &name, &path.join(&name), own, was_there);
        }
    }
}

/// Removes a file, or a folder with all its content, even if folders are not writable.
pub(in crate::exec) fn remove_entry(parent: &Dir, name: &OsStr) -> io::Result<()> {
    if !parent.symlink_metadata(name)?.is_dir() {
        return parent.remove_file(name);
    }
    let folder = open_to_owner(parent, name)?;
    for inner in folder.entries()? {
        let _ = remove_entry(&folder, &inner?.file_name());
    }
    parent.remove_dir(name)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{Path, ProtectedPaths, RestoredPaths, SandboxMode, SandboxPolicy};

    type Attack = fn(&Path);

    #[test]
    fn every_kind_of_change_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("w");
        let path = |name: &str| root.join(name);
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            temp: folder.path().join("t"),
            protected: vec![path(".git/hooks"), path(".git/config"), path("none")],
            ..SandboxPolicy::off(&root)
        };
        let attacks: [Attack; 9] = [
            |root| fs::write(root.join(".git/config"), "evil").unwrap(),
            |root| fs::remove_file(root.join(".git/config")).unwrap(),
            |root| fs::rename(root.join(".git"), root.join("old")).unwrap(),
            |root| fs::write(root.join(".git/hooks/new"), "evil").unwrap(),
            |root| {
                fs::remove_dir_all(root.join(".git/hooks")).unwrap();
                symlink("..", root.join(".git/hooks")).unwrap();
            },
            |root| {
                let hook = root.join(".git/hooks/a");
                fs::set_permissions(&hook, Permissions::from_mode(0o777)).unwrap();
            },
            |root| {
                fs::remove_file(root.join(".git/config")).unwrap();
                fs::create_dir_all(root.join(".git/config/deep")).unwrap();
                fs::set_permissions(root.join(".git/config"), Permissions::from_mode(0o555))
                    .unwrap();
                fs::set_permissions(root.join(".git"), Permissions::from_mode(0o555)).unwrap();
            },
            |root| {
                fs::rename(root.join(".git"), root.join("old")).unwrap();
                symlink("old", root.join(".git")).unwrap();
                fs::write(root.join("old/config"), "evil").unwrap();
            },
            |root| {
                fs::remove_dir_all(root.join(".git")).unwrap();
                symlink("../outside", root.join(".git")).unwrap();
            },
        ];
        let outside = folder.path().join("outside/config");
        fs::create_dir(outside.parent().unwrap()).unwrap();
        fs::write(&outside, "other").unwrap();
        for attack in attacks {
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(path(".git/hooks")).unwrap();
            fs::write(path(".git/config"), "mine").unwrap();
            fs::write(path(".git/hooks/a"), "mine").unwrap();
            fs::set_permissions(path(".git/hooks/a"), Permissions::from_mode(0o755)).unwrap();
            let protected = ProtectedPaths::new(&policy);
            assert!(protected.can_restore());
            let before = protected.snapshot().unwrap();
            attack(&root);
            let done = before.restore_changed();
            assert!(!done.restored.is_empty() && done.failed.is_empty(), "{done:?}");
            assert_eq!(fs::read_to_string(path(".git/config")).unwrap(), "mine");
            assert_eq!(fs::read_dir(path(".git/hooks")).unwrap().count(), 1);
            let hook = fs::symlink_metadata(path(".git/hooks/a")).unwrap();
            assert_eq!(hook.mode() & 0o7777, 0o755);
            assert!(!fs::symlink_metadata(path(".git")).unwrap().is_symlink());
            assert_eq!(protected.snapshot().unwrap().restore_changed(), RestoredPaths::default());
            assert_eq!(fs::read_to_string(&outside).unwrap(), "other");
        }
    }

    /// The file size limit of a separate process simulates a full disk.
    #[test]
    fn what_can_not_be_written_is_not_destroyed_and_not_called_restored() {
        let line = "trap '' XFSZ; ulimit -f 1; exec \"$0\" --exact --ignored \"$1\"";
        let name = concat!(module_path!(), "::inside_a_file_size_limit");
        let name = name.split_once("::").unwrap().1;
        let test = std::env::current_exe().unwrap();
        let ran = std::process::Command::new("sh").args(["-c", line]).arg(test).arg(name).output();
        let ran = ran.unwrap();
        let output = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && output.contains("1 passed"), "{ran:?}");
    }

    #[test]
    #[ignore = "run by the test above"]
    fn inside_a_file_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("w")).unwrap();
        // The content of `large` exceeds the file size limit; that of `small` does not.
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: vec![path("w/large"), path("w/small")],
            record_path: Some(path("state/repositories/record")),
            ..SandboxPolicy::off(path("w"))
        };
        let protected = ProtectedPaths::new(&policy);
        fs::write(path("w/large"), "0123456789").unwrap();
        fs::write(path("w/small"), "small").unwrap();
        let mut before = protected.snapshot().unwrap();
        let large = path("w/large").canonicalize().unwrap();
        let Some(super::SavedEntry::File { content, .. }) = before.entries.get_mut(&large) else {
            panic!("it was recorded")
        };
        *content = vec![b'x'; 1 << 20];
        fs::write(path("w/small"), "evil").unwrap();
        let done = before.restore_changed();
        assert_eq!(done.restored, [path("w/small").canonicalize().unwrap()]);
        assert_eq!(fs::read_to_string(path("w/small")).unwrap(), "small");
        let [failed] = &done.failed[..] else { panic!("{done:?}") };
        assert!(failed.contains("large is protected, and could not be restored"), "{failed}");
        // No incomplete file is left.
        assert!(fs::read_dir(path("w")).unwrap().count() <= 2);
    }

    #[test]
    fn the_content_of_a_file_that_can_not_be_restored_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("w")).unwrap();
        fs::write(path("w/a"), "mine").unwrap();
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: vec![path("w/a")],
            record_path: Some(path("state/repositories/record")),
            ..SandboxPolicy::off(path("w"))
        };
        let protected = ProtectedPaths::new(&policy);
        let before = protected.snapshot().unwrap();
        let file = path("w/a").canonicalize().unwrap();
        let sentence = before.describe_failure(&file, &std::io::ErrorKind::StorageFull.into());
        let copy = Path::new(sentence.split_once("its content is in ").unwrap().1);
        assert_eq!(fs::read_to_string(copy).unwrap(), "mine");
        assert_eq!(fs::metadata(copy).unwrap().mode() & 0o777, 0o600);
    }
}
