//! Entries of folders.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::iter;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use ignore::WalkBuilder;
use rustix::fs::{AtFlags, FileType as RawFileType, statat};

use super::access_guard;
use super::error::FileError;
use super::file_kind::FileKind;
use super::open_folder::open_below;
use super::path::RelPath;
use super::root::WorkspaceRoot;

/// Returns the entries of a walk, except unreadable ones. The walker panics if its first folder is replaced during the
/// walk; this ends the walk.
pub fn entries(mut walk: ignore::Walk) -> impl Iterator<Item = ignore::DirEntry> {
    let next = move || catch_unwind(AssertUnwindSafe(|| walk.next())).ok().flatten();
    iter::from_fn(next).flatten()
}

/// The ignore files that a walk reads in each folder.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The maximum size of an ignore file that is read, in bytes.
const MAX_IGNORE_FILE_SIZE: u64 = 1 << 20;

/// Returns whether each ignore file in a folder is a regular file of acceptable size, or missing.
///
/// The walk opens any file with such a name. A hostile workspace may have a pipe there, which would block, or a link to
/// an endless device.
pub fn has_readable_ignore_files(folder: &Path) -> bool {
    IGNORE_FILES.iter().all(|list| match fs::metadata(folder.join(list)) {
        Ok(meta) => is_readable_ignore_file(&meta) || meta.is_dir(),
        Err(_) => true,
    })
}

fn is_readable_ignore_file(meta: &Metadata) -> bool {
    meta.is_file() && meta.len() <= MAX_IGNORE_FILE_SIZE
}

/// Returns a walk from a folder of a workspace that includes hidden files, and leaves out those that ignore files name.
///
/// Of the files `.git/info/exclude`, it reads the workspace's own. For that of another folder, the walker would follow a
/// `.git` file to any path, for example to a pipe, which would block.
pub fn walk_builder(workspace: &Path, from: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(from);
    walk.hidden(false).require_git(false).git_global(false).git_exclude(false);
    walk.current_dir(workspace);
    let exclude = workspace.join(".git/info/exclude");
    if fs::metadata(&exclude).is_ok_and(|meta| is_readable_ignore_file(&meta)) {
        walk.add_ignore(exclude);
    }
    walk
}

/// A folder of the workspace that was opened to find files below it. No link below it is followed.
#[derive(Clone, Debug)]
pub struct FileLookup {
    dir: Arc<Dir>,
    path: RelPath,
    /// The path with links resolved; `None` if the folder was removed or moved out of the workspace.
    real_path: Option<RelPath>,
    /// The folder of the last file, with its path relative to the opened folder.
    last: Option<(PathBuf, Arc<Dir>)>,
}

impl FileLookup {
    /// Returns whether there is a regular file at this path below the folder, and no folder between them is a link.
    pub fn has_file(&mut self, path: &RelPath) -> bool {
        let inside = path.strip_folder(&self.path);
        let (Some(parent), Some(name)) = (inside.parent(), inside.file_name()) else {
            return false;
        };
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let opened = open_below(&self.dir, parent).ok();
            self.last = opened.map(|dir| (parent.to_owned(), Arc::new(dir)));
        }
        let Some((_, dir)) = &self.last else { return false };
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            RawFileType::from_raw_mode(found.st_mode) == RawFileType::RegularFile
        })
    }

    /// Returns the path of a file below the folder, with links resolved; `None` if the folder is no longer in the
    /// workspace.
    pub fn real_path(&self, path: &RelPath) -> Option<RelPath> {
        let real = self.real_path.as_ref()?;
        Some(RelPath::from_entry(&real.as_path().join(path.strip_folder(&self.path))))
    }
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderEntry {
    /// The name of the entry.
    pub name: OsString,
    /// The kind of the entry. Symbolic links are not followed.
    pub kind: FileKind,
}

impl WorkspaceRoot {
    /// Opens a folder to find files below it. Links in its own path are followed if they lead to a folder inside.
    ///
    /// # Errors
    ///
    /// Fails if it is not a readable folder, or its path leads outside.
    pub fn look_below(&self, path: &RelPath) -> Result<FileLookup, FileError> {
        let failed = |error: io::Error| FileError::from_io("list", path, error);
        let dir = self.dir().open_dir(path.as_path()).map_err(failed)?;
        let real_path = access_guard::real_path(self.dir().as_fd(), dir.as_fd());
        Ok(FileLookup { dir: Arc::new(dir), path: path.clone(), real_path, last: None })
    }

    /// Returns the entries of a folder, sorted by name: at most `most`, and whether there are more.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read. Entries that vanish meanwhile are skipped.
    pub fn list(&self, path: &RelPath, most: usize) -> Result<(Vec<FolderEntry>, bool), FileError> {
        let mut found: Vec<FolderEntry> =
            self.entries(path)?.take(most.saturating_add(1)).collect();
        let has_more = found.len() > most;
        found.truncate(most);
        found.sort();
        Ok((found, has_more))
    }

    /// Returns the entries of a folder in the system's order, unsorted.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read. Entries that vanish meanwhile are skipped.
    pub fn entries(&self, path: &RelPath) -> Result<impl Iterator<Item = FolderEntry>, FileError> {
        let failed = |error: io::Error| FileError::from_io("list", path, error);
        let entries = self.dir().read_dir(path.as_path()).map_err(failed)?;
        Ok(entries.flatten().filter_map(|entry| {
            let kind = FileKind::from_file_type(entry.file_type().ok()?);
            Some(FolderEntry { name: entry.file_name(), kind })
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_behind_a_link_below_the_folder_is_not_found() {
        let temp = tempfile::tempdir().unwrap();
        let at = |path: &str| temp.path().join(path);
        for folder in ["w/d/e", "out/e"] {
            fs::create_dir_all(at(folder)).unwrap();
            fs::write(at(folder).join("f"), "").unwrap();
        }
        symlink("d", at("w/inside")).unwrap();
        symlink("../out", at("w/outside")).unwrap();
        let root = WorkspaceRoot::open(at("w")).unwrap();
        let path = |text| RelPath::new(text).unwrap();
        let mut below = root.look_below(&RelPath::root()).unwrap();
        assert!(below.has_file(&path("d/e/f")));
        for other in ["inside/e/f", "outside/e/f", "d/e", "d/e/g", "inside"] {
            assert!(!below.has_file(&path(other)), "{other}");
        }
        assert!(root.look_below(&path("outside")).is_err());
        let mut linked = root.look_below(&path("inside")).unwrap();
        assert!(linked.has_file(&path("inside/e/f")));
        assert_eq!(linked.real_path(&path("inside/e/f")), Some(path("d/e/f")));
        fs::rename(at("w/d/e"), at("w/d/old")).unwrap();
        symlink("../../out/e", at("w/d/e")).unwrap();
        assert!(!linked.clone().has_file(&path("inside/e/g")));
        assert!(!root.look_below(&path("inside")).unwrap().has_file(&path("inside/e/f")));
    }
}
