//! Protected paths that do not exist yet.
//!
//! An existing path can be made read-only, a missing one cannot. So after each command, once all its processes have
//! ended, files that it created at such paths are renamed to names that no program reads.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::exec::confine::policy::{SandboxMode, SandboxPolicy};
use crate::exec::stored_path;
use crate::workspace::{
    OWNER, enter_canonical_parent, open_canonical_parent, real_path, set_folder_mode,
};

/// Protected paths that did not exist when the list was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::exec) struct AbsentPaths(#[serde(with = "stored_path")] Vec<PathBuf>);

/// Suffix of renamed files.
pub(in crate::exec) const DENIED_SUFFIX: &str = ".denied";

impl AbsentPaths {
    /// Returns the protected paths of a policy that do not exist. Paths in a repository that does not exist are left
    /// out: a command that creates a repository creates its hooks.
    pub(in crate::exec) fn new(policy: &SandboxPolicy) -> Self {
        if policy.mode == SandboxMode::Off {
            return Self::default();
        }
        let is_in_new = |path: &Path| {
            let is_git = |folder: &Path| folder.file_name().is_some_and(|name| name == ".git");
            path.ancestors().skip(1).any(|folder| is_git(folder) && !folder.is_dir())
        };
        let is_absent = |path: &&PathBuf| is_missing(path) && !is_in_new(path);
        // Links are resolved, so that a link found later is known to come from a command.
        let absent = policy.protected.iter().filter(is_absent).map(|path| real_path(path));
        Self(absent.collect())
    }

    /// Returns whether one of the paths exists now.
    pub(in crate::exec) fn is_outdated(&self) -> bool {
        let exists = |path| exists(&open_canonical_parent(path)?);
        self.0.iter().any(|path| exists(path).unwrap_or_else(|_| !is_missing(path)))
    }

    /// Returns whether the list is empty.
    pub(in crate::exec) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the list contains a path.
    pub(in crate::exec) fn contains(&self, path: &PathBuf) -> bool {
        self.0.contains(path)
    }

    /// Returns the paths that exist now.
    pub(in crate::exec) fn existing(&self) -> Self {
        let exists = |path: &&PathBuf| matches!(find_created(path), Ok(Some(_)));
        Self(self.0.iter().filter(exists).cloned().collect())
    }

    /// Renames the paths that exist now, and returns them, including those that cannot be renamed. The target of a link
    /// stays; the link is renamed.
    pub(in crate::exec) fn rename_created(&self) -> Vec<PathBuf> {
        let is_created = |path: &&PathBuf| {
            let Ok(Some((folder, name))) = find_created(path) else { return false };
            if rename_denied(&folder, name).is_err() {
                // The command may have removed the folder's permissions; the owner can set them again.
                let _ = set_folder_mode(&folder, OWNER);
                let _ = rename_denied(&folder, name);
            }
            true
        };
        self.0.iter().filter(is_created).cloned().collect()
    }
}

/// Returns whether a path does not exist. A path that can't be accessed may exist.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    })
}

/// Returns the entry that a command has created at a path, or a link that replaces one of the path's folders.
fn find_created(path: &Path) -> io::Result<Option<(Dir, &OsStr)>> {
    match enter_canonical_parent(path) {
        Ok(place) => return Ok(exists(&place)?.then_some(place)),
        Err(_) if is_missing(path) => return Ok(None),
        Err(_) => {}
    }
    let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
    // The root is not an entry of a folder.
    folders.pop();
    while let Some(folder) = folders.pop() {
        let (parent, name) = enter_canonical_parent(folder)?;
        if parent.symlink_metadata(name)?.is_symlink() {
            return Ok(Some((parent, name)));
        }
    }
    Ok(None)
}

fn rename_denied(folder: &Dir, name: &OsStr) -> io::Result<()> {
    let is_free = |new: &PathBuf| folder.symlink_metadata(new).is_err();
    let mut free = denied_names(Path::new(name)).filter(is_free);
    free.next().map_or(Ok(()), |free| folder.rename(name, folder, free))
}

/// Returns the possible new names of a denied file, in order; the last name is always free.
pub(in crate::exec) fn denied_names(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    const MAX_NUMBER: u32 = 100;
    // A shorter limit than the system's leaves room for the suffix.
    const MAX_NAME: usize = 200;

    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = OsStr::from_bytes(&name[..name.len().min(MAX_NAME)]);
    let path = path.with_file_name(name);
    let numbered = (2..MAX_NUMBER).map(|number| number.to_string());
    let last = std::iter::once_with(|| Uuid::now_v7().simple().to_string());
    let endings = numbered.chain(last).map(|ending| format!("{DENIED_SUFFIX}-{ending}"));
    std::iter::once(DENIED_SUFFIX.to_owned()).chain(endings).map(move |ending| {
        let mut name = OsString::from(&path);
        name.push(ending);
        name.into()
    })
}

/// Returns whether a name may be one of [`denied_names`].
pub(in crate::exec) fn is_denied_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let number = name.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let numbered = name[..name.len() - number].strip_suffix(b"-").filter(|_| number > 0);
    numbered.unwrap_or(name).ends_with(DENIED_SUFFIX.as_bytes())
}

/// Returns whether an entry exists; a dangling link counts, too.
fn exists((folder, name): &(Dir, &OsStr)) -> io::Result<bool> {
    match folder.symlink_metadata(name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_with_a_long_name_is_renamed_however_many_were_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(255));
        for name in denied_names(&path).take(100) {
            fs::write(name, "").unwrap();
        }
        fs::write(&path, "").unwrap();
        let (folder, name) = open_canonical_parent(&path).unwrap();
        rename_denied(&folder, name).unwrap();
        assert!(!path.exists());
        assert_eq!(folder.entries().unwrap().count(), 101);
    }

    #[test]
    fn the_names_of_denied_files_are_recognized() {
        assert!(
            denied_names(Path::new("a/b")).all(|name| is_denied_name(name.file_name().unwrap()))
        );
        for other in ["denied", "a.denied-", "a.denied.b", "a-2", "a.denied-2.b", ""] {
            assert!(!is_denied_name(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn new_files_are_renamed_and_existing_ones_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "").unwrap();
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: vec![path("old"), path("new"), path("none/x"), path("n/.git/hooks")],
            ..SandboxPolicy::off(folder.path())
        };
        let absent = AbsentPaths::new(&policy);
        assert!(!absent.is_outdated() && absent.rename_created().is_empty());
        for round in 1..=3 {
            fs::create_dir_all(path("new/closed")).unwrap();
            fs::set_permissions(path("new"), Permissions::from_mode(0o555)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
            assert!(absent.is_outdated());
            assert_eq!(absent.rename_created(), [path("new")]);
            assert!(!absent.is_outdated());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1 + round);
            fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        }
        assert!(path("new.denied/closed").exists());
        // A missing folder may appear meanwhile; hooks of a new repository are its own.
        fs::create_dir_all(path("none/x")).unwrap();
        fs::create_dir_all(path("n/.git/hooks")).unwrap();
        assert_eq!(absent.rename_created(), [path("none/x")]);
    }

    /// A command of another session may replace a folder at any time.
    #[test]
    fn what_is_behind_a_new_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(path("w/a")).unwrap();
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: vec![path("w/a/hooks")],
            ..SandboxPolicy::off(path("w"))
        };
        let absent = AbsentPaths::new(&policy);
        fs::rename(path("w/a"), path("w/b")).unwrap();
        fs::create_dir_all(path("mine/hooks")).unwrap();
        symlink(path("mine"), path("w/a")).unwrap();
        assert!(absent.is_outdated());
        assert_eq!(absent.rename_created(), [path("w/a/hooks")]);
        assert!(path("mine/hooks").exists() && !absent.is_outdated());
        assert!(!path("w/a").exists() && path("w/a.denied").is_symlink());
        assert!(absent.rename_created().is_empty());
    }

    /// A command may remove the permissions of the folder that holds a created file.
    #[test]
    fn what_is_in_a_closed_folder_is_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: vec![path("a/b/new")],
            ..SandboxPolicy::off(folder.path())
        };
        let absent = AbsentPaths::new(&policy);
        fs::write(path("a/b/new"), "").unwrap();
        for closed in ["a/b", "a"] {
            fs::set_permissions(path(closed), Permissions::from_mode(0o0)).unwrap();
        }
        assert_eq!(absent.rename_created(), [path("a/b/new")]);
        assert!(path("a/b/new.denied").exists());
    }
}
