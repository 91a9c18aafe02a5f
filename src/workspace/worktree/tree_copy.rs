//! Copies of files and folders, and manifests of folders.
//!
//! A copied file shares its blocks with the original if the system supports that, but never its content: there are no
//! hard links. Commands may replace the entries meanwhile, so no link is followed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileTypeExt, MetadataExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::types::hex;
use crate::workspace::open_folder::{
    copy_entry, create_below, is_gone, open_below, open_file, open_parent, remove_tree,
    set_folder_mode,
};
use crate::workspace::{IoContext, IoError};

/// The files and links of a folder, each with a digest of its kind, mode and content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TreeManifest(Vec<(Vec<u8>, String)>);

/// The current content of a file or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryContent {
    /// There is no entry.
    Absent,
    /// A regular file, with its content and whether it is executable.
    File(Vec<u8>, bool),
    /// A symbolic link, with its target.
    Link(PathBuf),
    /// Another entry, such as a folder, a pipe or a device, which is not carried over.
    Other,
}

impl EntryContent {
    /// Reads an entry below a folder, without following a link. The entry counts as absent if a link is in the place of
    /// a folder.
    pub(super) fn read(top: &Dir, path: &Path) -> io::Result<Self> {
        let read = || {
            let (folder, name) = open_parent(top, path)?;
            let found = folder.symlink_metadata(name)?;
            if found.is_symlink() {
                return Ok(Self::Link(folder.read_link_contents(name)?));
            }
            if !found.is_file() {
                return Ok(Self::Other);
            }
            let mut content = Vec::new();
            open_file(&folder, name)?.read_to_end(&mut content)?;
            Ok(Self::File(content, found.mode() & 0o111 != 0))
        };
        match read() {
            Err(error) if is_gone(&error) => Ok(Self::Absent),
            read => read,
        }
    }

    /// Returns the number of its lines that are not lines of another version.
    pub(super) fn lines_not_in(&self, other: &Self) -> u64 {
        let mut others: BTreeMap<&[u8], u64> = BTreeMap::new();
        other.lines().for_each(|line| *others.entry(line).or_default() += 1);
        let mut new = 0;
        for line in self.lines() {
            match others.get_mut(line) {
                Some(left) if *left > 0 => *left -= 1,
                _ => new += 1,
            }
        }
        new
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let content = match self {
            Self::File(content, _) => &**content,
            Self::Absent | Self::Link(_) | Self::Other => &[],
        };
        content.split_inclusive(|byte| *byte == b'\n')
    }

    /// Returns the digest.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        match self {
            Self::Absent => hash.update(b"absent"),
            Self::Other => hash.update(b"other"),
            Self::Link(target) => {
                hash.update(b"link ");
                hash.update(target.as_os_str().as_bytes());
            }
            Self::File(content, is_executable) => {
                hash.update(if *is_executable { b"exec " } else { b"file " });
                hash.update(content);
            }
        }
        hex(&hash.finalize())
    }
}

/// Opens the folder of a tree. Its path is given by the user or in the state folder.
pub(super) fn open_tree(path: &Path) -> Result<Dir, IoError> {
    Dir::open_ambient_dir(path, ambient_authority()).io_context("open", path)
}

impl TreeManifest {
    /// Reads the entries of a folder.
    pub(super) fn of(top: &Dir) -> io::Result<Self> {
        let mut entries = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(inside) = folders.pop() {
            let folder = open_below(top, &inside)?;
            for entry in folder.entries()? {
                let entry = entry?;
                let name = entry.file_name();
                let path = inside.join(&name);
                if entry.file_type()?.is_dir() {
                    folders.push(path);
                    continue;
                }
                let digest = EntryContent::read(&folder, Path::new(&name))?.digest();
                entries.push((path.into_os_string().into_vec(), digest));
            }
        }
        entries.sort();
        Ok(Self(entries))
    }

    /// Reads these paths of a folder, which may be absent.
    pub(super) fn of_paths(
        top: &Dir,
        paths: impl IntoIterator<Item = PathBuf>,
    ) -> io::Result<Self> {
        let entries = paths.into_iter().map(|path| {
            let digest = EntryContent::read(top, &path)?.digest();
            Ok((path.into_os_string().into_vec(), digest))
        });
        let mut entries: Vec<_> = entries.collect::<io::Result<_>>()?;
        entries.sort();
        Ok(Self(entries))
    }

    /// Returns the digest of all entries.
    pub(super) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (path, digest) in &self.0 {
            hash.update(path);
            hash.update([0]);
            hash.update(digest);
        }
        hex(&hash.finalize())
    }

    /// Returns the paths that differ.
    pub(super) fn changes_to(&self, now: &Self) -> Vec<PathBuf> {
        let before: BTreeMap<_, _> = self.0.iter().map(|(path, digest)| (path, digest)).collect();
        let after: BTreeMap<_, _> = now.0.iter().map(|(path, digest)| (path, digest)).collect();
        let all = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
        let changed = all.filter(|path| before.get(*path) != after.get(*path));
        let mut changed: Vec<PathBuf> =
            changed.map(|path| std::ffi::OsString::from_vec((*path).clone()).into()).collect();
        changed.sort();
        changed
    }

    /// Returns the paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.0.iter().map(|(path, _)| std::ffi::OsString::from_vec(path.clone()).into())
    }

    /// Returns the digest of an entry.
    pub(super) fn entry(&self, path: &Path) -> Option<&str> {
        let bytes = path.as_os_str().as_bytes();
        let at = self.0.binary_search_by(|(path, _)| path.as_slice().cmp(bytes)).ok()?;
        Some(&self.0[at].1)
    }
}

/// Copies the content of a folder. Returns the paths that are neither files, folders nor links; they are omitted.
pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<Vec<PathBuf>, IoError> {
    let (source_tree, target_tree) = (open_tree(from)?, open_tree(to)?);
    let mut left_out = Vec::new();
    let mut folders = vec![PathBuf::new()];
    // The modes of folders are set last, because a folder may be read-only.
    let mut modes = Vec::new();
    while let Some(inside) = folders.pop() {
        let shown = from.join(&inside);
        let source = open_below(&source_tree, &inside).io_context("copy", &shown)?;
        let target = create_below(&target_tree, &inside).io_context("copy", &shown)?;
        let mode = source.dir_metadata().io_context("copy", &shown)?.mode();
        for entry in source.entries().io_context("copy", &shown)? {
            let entry = entry.io_context("copy", &shown)?;
            let (name, path) = (entry.file_name(), inside.join(entry.file_name()));
            let kind = entry.file_type().io_context("copy", &shown)?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_fifo()
                || kind.is_socket()
                || kind.is_char_device()
                || kind.is_block_device()
            {
                left_out.push(path);
            } else {
                let copied = copy_entry(&source, &name, &target, &name);
                copied.io_context("copy", &from.join(path))?;
            }
        }
        modes.push((inside, mode));
    }
    for (inside, mode) in modes.into_iter().rev() {
        let set = open_below(&target_tree, &inside)
            .and_then(|folder| set_folder_mode(&folder, mode & 0o777));
        set.io_context("copy", &to.join(inside))?;
    }
    Ok(left_out)
}

/// Removes an entry of a folder, with everything in it.
pub(super) fn remove_entry(folder: &Dir, name: &OsStr) -> io::Result<()> {
    let removed = match folder.symlink_metadata(name) {
        Ok(found) if found.is_dir() => folder.remove_dir_all(name),
        Ok(_) => folder.remove_file(name),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if is_gone(&error) => Ok(()),
        removed => removed,
    }
}

/// Removes a file or a link, or a folder with everything in it, regardless of its modes.
pub(super) fn remove_all(path: &Path) -> Result<(), IoError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if is_gone(&error) => Ok(()),
        removed => removed.io_context("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_is_the_same_and_shares_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("a/b/x"), "x").unwrap();
        fs::hard_link(from.join("a/b/x"), from.join("a/y")).unwrap();
        fs::set_permissions(from.join("a/b/x"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("/nowhere", from.join("link")).unwrap();
        fs::set_permissions(from.join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
        let [from_tree, to_tree] = [&from, &to].map(|path| open_tree(path).unwrap());
        copy_folder(&from, &to).unwrap();
        let [before, after] = [&from_tree, &to_tree].map(|tree| TreeManifest::of(tree).unwrap());
        assert!(before.changes_to(&after).is_empty());
        fs::write(to.join("a/y"), "z").unwrap();
        let after = TreeManifest::of(&to_tree).unwrap();
        assert_eq!(before.changes_to(&after), [PathBuf::from("a/y")]);
        assert_eq!(fs::read_to_string(from.join("a/b/x")).unwrap(), "x");
        remove_all(&to).unwrap();
        assert!(!to.exists());
    }
}
