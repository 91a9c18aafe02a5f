//! Protected files where nothing can be mounted over them.
//!
//! Access rules of the kernel grant a folder as a whole; a file in it cannot be excluded. So its content is read before
//! a command starts, and restored after the command and all its processes have ended.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions, Permissions, PermissionsExt};

use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};
use crate::workspace::{
    OWNER, open_below, open_canonical, open_canonical_parent, open_file, set_folder_mode,
};

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
            && self.protected.read_at(root, &mut left, &mut now).is_ok()
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
        let saved: Vec<_> = self.entries_below(root).collect();
        if let Ok((folder, name)) = open_canonical_parent(root) {
            let was_there = |path: &Path| self.entries.contains_key(path);
            remove_others(&folder, name, root, &self.protected.own, &was_there);
        }
        for (path, entry) in &saved {
            let Ok((folder, name)) = open_canonical_parent(path) else { continue };
            let mut left = u64::MAX;
            if read_entry(&folder, name, &mut left).is_ok_and(|now| now == **entry) {
                continue;
            }
            let _ = write_entry(&folder, name, entry);
        }
        // Set the permissions of a folder after its content.
        for (path, entry) in saved.iter().rev() {
            if let SavedEntry::Folder { mode } = entry {
                let _ = open_canonical(path).and_then(|folder| set_folder_mode(&folder, *mode));
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
        for path in self.writable_ancestors(root) {
            let Ok((folder, name)) = open_canonical_parent(&path) else { continue };
            if open_to_owner(&folder, name).is_err() {
                let _ = remove(&folder, name);
                let _ = folder.create_dir(name);
            }
        }
    }
}

fn entry_at(path: &Path) -> io::Result<Metadata> {
    let (folder, name) = open_canonical_parent(path)?;
    folder.symlink_metadata(name)
}

fn is_folder(path: &Path) -> bool {
    entry_at(path).is_ok_and(|found| found.is_dir())
}

/// Opens a folder, and lets its owner work in it.
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
    Ok(SavedEntry::File { mode, content })
}

fn write_entry(folder: &Dir, name: &OsStr, entry: &SavedEntry) -> io::Result<()> {
    match entry {
        SavedEntry::Folder { .. } => {
            if open_to_owner(folder, name).is_err() {
                let _ = remove(folder, name);
                folder.create_dir(name)?;
            }
            Ok(())
        }
        SavedEntry::Link { to } => {
            let _ = remove(folder, name);
            folder.symlink_contents(to, name)
        }
        SavedEntry::File { mode, content } => {
            // Not written in place: the file may be a hard link to another one.
            let _ = remove(folder, name);
            let mut file =
                folder.open_with(name, OpenOptions::new().write(true).create_new(true))?;
            file.write_all(content)?;
            file.set_permissions(Permissions::from_mode(*mode))
        }
    }
}

/// Removes everything that did not exist, except what this program writes.
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
        let _ = remove(folder, name);
        return;
    }
    if let Ok(folder) = open_to_owner(folder, name) {
        for inner in folder.entries().into_iter().flatten().flatten() {
            let name = inner.file_name();
            remove_others(&folder, &name, &path.join(&name), own, was_there);
        }
    }
}

fn remove(parent: &Dir, name: &OsStr) -> io::Result<()> {
    if !parent.symlink_metadata(name)?.is_dir() {
        return parent.remove_file(name);
    }
    let folder = open_to_owner(parent, name)?;
    for inner in folder.entries()? {
        let _ = remove(&folder, &inner?.file_name());
    }
    parent.remove_dir(name)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::{Path, PathBuf, ProtectedPaths, SandboxMode, SandboxPolicy};

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
