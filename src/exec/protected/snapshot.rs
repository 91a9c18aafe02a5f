//! Protected files where nothing can be mounted over them.
//!
//! Access rules of the kernel grant a folder as a whole; a file in it cannot be excluded. So its content is read before
//! a command starts, and restored after the command and all its processes have ended.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};

/// Protected paths to restore after a command.
pub(in crate::exec) struct ProtectedPaths {
    paths: Vec<PathBuf>,
    /// The folders that commands can write, with links resolved.
    writable: Vec<PathBuf>,
    /// What this program writes meanwhile.
    own: Vec<PathBuf>,
}

/// The state of protected paths at one moment.
pub(in crate::exec) struct PathSnapshot<'a> {
    protected: &'a ProtectedPaths,
    roots: Vec<PathBuf>,
    entries: SavedEntries,
}

type SavedEntries = BTreeMap<PathBuf, SavedEntry>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SavedEntry {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
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
        Self { paths, writable, own: policy.exposed_state() }
    }

    /// Returns an empty list.
    pub(in crate::exec) fn empty() -> Self {
        Self { paths: Vec::new(), writable: Vec::new(), own: Vec::new() }
    }

    /// Returns whether all of them can be restored.
    #[cfg(any(target_os = "linux", test))]
    pub(in crate::exec) fn can_restore(&self) -> bool {
        self.snapshot().is_ok()
    }

    /// Returns the current state of the paths.
    ///
    /// # Errors
    ///
    /// Fails when a limit is exceeded, and when something cannot be read.
    pub(in crate::exec) fn snapshot(&self) -> io::Result<PathSnapshot<'_>> {
        let (mut roots, mut entries, mut left) = (Vec::new(), BTreeMap::new(), MAX_READ);
        // Resolve the parents, so that a link found later is known to be the command's.
        let real =
            |path: &PathBuf| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        for path in self.paths.iter().filter_map(real) {
            let is_writable = self.writable.iter().any(|root| path.starts_with(root));
            if is_writable && path.symlink_metadata().is_ok() {
                self.read_below(&path, &mut left, &mut entries)?;
                roots.push(path);
            }
        }
        Ok(PathSnapshot { protected: self, roots, entries })
    }

    fn read_below(
        &self,
        path: &Path,
        left: &mut (u64, usize),
        entries: &mut SavedEntries,
    ) -> io::Result<()> {
        if self.own.iter().any(|own| own == path) {
            return Ok(());
        }
        let entry = read_entry(path, &mut left.0)?;
        left.1 = left.1.checked_sub(1).ok_or(io::ErrorKind::FileTooLarge)?;
        let is_folder = matches!(entry, SavedEntry::Folder { .. });
        entries.insert(path.to_owned(), entry);
        if is_folder {
            for inner in fs::read_dir(path)? {
                self.read_below(&inner?.path(), left, entries)?;
            }
        }
        Ok(())
    }
}

impl PathSnapshot<'_> {
    /// Restores changed paths, and returns them.
    pub(in crate::exec) fn restore_changed(self) -> Vec<PathBuf> {
        let mut changed: Vec<PathBuf> = Vec::new();
        // Restoring one path can remove a link through which another one was still found.
        for _ in 0..=self.roots.len() {
            let found = self.roots.iter().filter(|root| !self.is_unchanged(root)).cloned();
            let found: Vec<PathBuf> = found.collect();
            if found.is_empty() {
                break;
            }
            found.iter().for_each(|root| self.restore(root));
            changed.extend(found);
        }
        changed.sort();
        changed.dedup();
        changed
    }

    fn is_unchanged(&self, root: &Path) -> bool {
        let (mut now, mut left) = (BTreeMap::new(), MAX_READ);
        self.writable_ancestors(root).iter().all(|folder| is_folder(folder))
            && self.protected.read_below(root, &mut left, &mut now).is_ok()
            && now.iter().eq(self.entries_below(root))
    }

    /// Returns what was at and below a path, outer folders first.
    fn entries_below<'a>(
        &'a self,
        root: &'a Path,
    ) -> impl Iterator<Item = (&'a PathBuf, &'a SavedEntry)> {
        let own = self.entries.range(root.to_owned()..);
        own.take_while(move |(path, _)| path.starts_with(root))
    }

    /// Restores everything at and below a path, outer folders first.
    fn restore(&self, root: &Path) {
        self.restore_ancestors(root);
        let own: Vec<_> = self.entries_below(root).collect();
        remove_others(root, &self.protected.own, &|path| self.entries.contains_key(path));
        for (path, entry) in &own {
            let mut left = u64::MAX;
            if read_entry(path, &mut left).is_ok_and(|now| now == **entry) {
                continue;
            }
            let _ = write_entry(path, entry);
        }
        // Set the permissions of a folder after its content.
        for (path, entry) in own.iter().rev() {
            if let SavedEntry::Folder { mode } = entry {
                let _ = fs::set_permissions(path, Permissions::from_mode(*mode));
            }
        }
    }

    /// Returns the folders above a path that a command can write, outer ones first.
    fn writable_ancestors(&self, root: &Path) -> Vec<PathBuf> {
        let writable = &self.protected.writable;
        let is_inside = |folder: &&Path| writable.iter().any(|own| folder.starts_with(own));
        let mut way: Vec<PathBuf> =
            root.ancestors().skip(1).filter(is_inside).map(Path::to_owned).collect();
        way.reverse();
        way
    }

    /// Creates the folders above a path again if a command removed or replaced them. Links are not followed: they may
    /// lead anywhere.
    fn restore_ancestors(&self, root: &Path) {
        for folder in self.writable_ancestors(root) {
            if is_folder(&folder) {
                let _ = fs::set_permissions(&folder, owner_writable(&folder));
            } else {
                let _ = remove(&folder);
                let _ = fs::create_dir(&folder);
            }
        }
    }
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns permissions that let the owner work in a folder.
fn owner_writable(path: &Path) -> Permissions {
    let mode = fs::symlink_metadata(path).map_or(0o700, |found| found.mode() & 0o7777);
    Permissions::from_mode(mode | 0o700)
}

fn read_entry(path: &Path, left: &mut u64) -> io::Result<SavedEntry> {
    let found = fs::symlink_metadata(path)?;
    let mode = found.mode() & 0o7777;
    if found.is_dir() {
        return Ok(SavedEntry::Folder { mode });
    }
    if found.is_symlink() {
        return Ok(SavedEntry::Link { to: fs::read_link(path)? });
    }
    if !found.is_file() {
        // Reading a pipe would block.
        return Err(io::ErrorKind::InvalidData.into());
    }
    *left = left.checked_sub(found.len()).ok_or(io::ErrorKind::FileTooLarge)?;
    Ok(SavedEntry::File { mode, content: fs::read(path)? })
}

fn write_entry(path: &Path, entry: &SavedEntry) -> io::Result<()> {
    match entry {
        SavedEntry::Folder { .. } => {
            if !is_folder(path) {
                let _ = remove(path);
                fs::create_dir(path)?;
            }
            fs::set_permissions(path, owner_writable(path))
        }
        SavedEntry::Link { to } => {
            let _ = remove(path);
            symlink(to, path)
        }
        SavedEntry::File { mode, content } => {
            // Not written in place: the file may be a hard link to another one.
            let _ = remove(path);
            fs::write(path, content)?;
            fs::set_permissions(path, Permissions::from_mode(*mode))
        }
    }
}

/// Removes everything that did not exist, except what this program writes.
fn remove_others(path: &Path, own: &[PathBuf], was_there: &dyn Fn(&Path) -> bool) {
    if own.iter().any(|own| own == path) {
        return;
    }
    if !was_there(path) {
        let _ = remove(path);
        return;
    }
    if is_folder(path) {
        let _ = fs::set_permissions(path, owner_writable(path));
        for inner in fs::read_dir(path).into_iter().flatten().flatten() {
            remove_others(&inner.path(), own, was_there);
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    fs::set_permissions(path, owner_writable(path))?;
    for inner in fs::read_dir(path)? {
        let _ = remove(&inner?.path());
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let _ = remove(&root);
            fs::create_dir_all(path(".git/hooks")).unwrap();
            fs::write(path(".git/config"), "mine").unwrap();
            fs::write(path(".git/hooks/a"), "mine").unwrap();
            fs::set_permissions(path(".git/hooks/a"), Permissions::from_mode(0o755)).unwrap();
            let protected = ProtectedPaths::new(&policy);
            assert!(protected.can_restore());
            let before = protected.snapshot().unwrap();
            attack(&root);
            assert!(!before.restore_changed().is_empty());
            assert_eq!(fs::read_to_string(path(".git/config")).unwrap(), "mine");
            assert_eq!(fs::read_dir(path(".git/hooks")).unwrap().count(), 1);
            let hook = fs::symlink_metadata(path(".git/hooks/a")).unwrap();
            assert_eq!(hook.mode() & 0o7777, 0o755);
            assert!(!fs::symlink_metadata(path(".git")).unwrap().is_symlink());
            assert_eq!(protected.snapshot().unwrap().restore_changed(), Vec::<PathBuf>::new());
            assert_eq!(fs::read_to_string(&outside).unwrap(), "other");
        }
    }
}
