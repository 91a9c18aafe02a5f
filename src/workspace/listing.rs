//! Entries of folders.

use std::ffi::OsString;
use std::io;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cap_std::fs::{FileType, FileTypeExt};

use super::error::FileError;
use super::path::RelPath;
use super::root::WorkspaceRoot;

/// Returns the entries of a walk, without those that cannot be read. The walker panics if its first folder is replaced
/// during the walk, which then ends.
pub fn entries(mut walk: ignore::Walk) -> impl Iterator<Item = ignore::DirEntry> {
    let next = move || catch_unwind(AssertUnwindSafe(|| walk.next())).ok().flatten();
    iter::from_fn(next).flatten()
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderEntry {
    /// Its name.
    pub name: OsString,
    /// Its kind; symbolic links are not followed.
    pub kind: FileKind,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

impl FileKind {
    /// Returns the kind with an article, for messages.
    pub fn description(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }

    pub(super) fn from_file_type(kind: FileType) -> Self {
        if kind.is_file() {
            Self::File
        } else if kind.is_dir() {
            Self::Directory
        } else if kind.is_symlink() {
            Self::Link
        } else if kind.is_fifo() {
            Self::Pipe
        } else if kind.is_socket() {
            Self::Socket
        } else {
            Self::Device
        }
    }
}

impl WorkspaceRoot {
    /// Returns the entries of a folder, sorted by name: at most `most`, and whether there are more.
    ///
    /// # Errors
    ///
    /// Fails when the folder cannot be read. Entries that vanish meanwhile are skipped.
    pub fn list(&self, path: &RelPath, most: usize) -> Result<(Vec<FolderEntry>, bool), FileError> {
        let failed = |error: io::Error| FileError::from_io("list", path, error);
        let mut entries = Vec::new();
        let mut more = false;
        for entry in self.dir().read_dir(path.as_path()).map_err(failed)? {
            let Ok(entry) = entry else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if entries.len() == most {
                more = true;
                break;
            }
            entries.push(FolderEntry {
                name: entry.file_name(),
                kind: FileKind::from_file_type(kind),
            });
        }
        entries.sort();
        Ok((entries, more))
    }
}
