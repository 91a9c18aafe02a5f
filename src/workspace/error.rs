//! Errors of file access in the workspace, and of operations on the program's own files.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::file_kind::FileKind;
use super::path::{PathError, RelPath};

/// The reason why a file of the workspace could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path is not in the workspace.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A symbolic link in the path leads outside.
    #[error("'{0}' leads outside the workspace through a symbolic link")]
    Escapes(RelPath),
    /// The file does not exist.
    #[error("'{0}' does not exist")]
    Missing(RelPath),
    /// A folder where a file is expected.
    #[error("'{0}' is a directory, not a file")]
    IsDirectory(RelPath),
    /// A parent of the path is a file.
    #[error("'{0}' is not a directory")]
    NotADirectory(RelPath),
    /// Neither a file nor a folder.
    #[error("'{0}' is {kind}, not a regular file", kind = .1.description())]
    Special(RelPath, FileKind),
    /// A dangling symbolic link.
    #[error("'{0}' is a symbolic link whose target does not exist")]
    Dangling(RelPath),
    /// A cycle of symbolic links.
    #[error("'{0}' is a symbolic link that leads back to itself")]
    LinkLoop(RelPath),
    /// The file exceeds the limit for editing.
    #[error("'{path}' has {size} bytes, more than the {limit} that can be edited")]
    TooLarge {
        /// The file.
        path: RelPath,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file has changed since it was read.
    #[error("'{0}' changed in the meantime; nothing was written. Read it again")]
    Changed(RelPath),
    /// Another process keeps the folder of the file locked.
    #[error(
        "another process keeps the directory of '{0}' locked; nothing was written. Try again later"
    )]
    Locked(RelPath),
    /// Access to the real path is denied.
    #[error("access to '{0}' is denied: {1}")]
    Denied(RelPath, String),
    /// The file belongs to another user, and a new file would not.
    #[error("'{0}' belongs to another user, which could not be kept; nothing was written")]
    ForeignOwner(RelPath),
    /// A change of several files failed, and could not be undone completely.
    #[error("{cause}. Of the other files, these could not be restored: {}", .left.join("; "))]
    PartlyApplied {
        /// The failure.
        cause: Box<Self>,
        /// The files that are changed, with the location of their old content and the failure to restore it.
        left: Vec<String>,
    },
    /// A change failed, and temporary files could not be removed.
    #[error("{cause}. These temporary files could not be removed: {}", list_paths(.left))]
    Leftovers {
        /// The failure.
        cause: Box<Self>,
        /// The temporary files.
        left: Vec<PathBuf>,
    },
    /// The system reported an error.
    #[error("could not {action} '{path}': {source}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns a list of paths for a sentence.
fn list_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl FileError {
    /// Returns the error for a system error about a path.
    pub(super) fn from_io(action: &'static str, path: &RelPath, source: io::Error) -> Self {
        let path = path.clone();
        let errno = source.raw_os_error();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::NotADirectory => Self::NotADirectory(path),
            io::ErrorKind::IsADirectory => Self::IsDirectory(path),
            // Reported by the confining library itself, not by the system.
            io::ErrorKind::PermissionDenied if errno.is_none() => Self::Escapes(path),
            _ if errno == Some(Errno::LOOP.raw_os_error()) => Self::LinkLoop(path),
            _ => Self::Io { action, path, source },
        }
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// A failed operation on a file or folder.
#[derive(Debug, Error)]
#[error("could not {operation} {}: {source}", path.display())]
pub struct IoError {
    /// The operation.
    pub operation: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl IoError {
    /// Returns whether the file or folder does not exist.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Adds the operation and the path to an I/O error.
pub trait IoContext<T> {
    /// Adds the operation and the path.
    ///
    /// # Errors
    ///
    /// Fails if the operation has failed.
    fn io_context(self, operation: &'static str, path: &Path) -> Result<T, IoError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn io_context(self, operation: &'static str, path: &Path) -> Result<T, IoError> {
        self.map_err(|error| IoError { operation, path: path.to_owned(), source: error.into() })
    }
}
