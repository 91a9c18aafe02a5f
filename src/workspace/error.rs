//! What can go wrong with a file.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use super::listing::FileKind;
use super::path::{PathError, RelPath};

/// Why a file of the workspace could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path is none of the workspace.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A symbolic link on the way leads outside.
    #[error("'{0}' leads outside the workspace through a symbolic link")]
    Escapes(RelPath),
    /// There is nothing.
    #[error("'{0}' does not exist")]
    Missing(RelPath),
    /// It is a folder where a file is needed.
    #[error("'{0}' is a directory, not a file")]
    IsDirectory(RelPath),
    /// A part of the path is a file where a folder is needed.
    #[error("'{0}' is not a directory")]
    NotADirectory(RelPath),
    /// It is neither a file nor a folder.
    #[error("'{0}' is {kind}, not a regular file", kind = .1.description())]
    Special(RelPath, FileKind),
    /// It is a symbolic link to nothing.
    #[error("'{0}' is a symbolic link whose target does not exist")]
    Dangling(RelPath),
    /// Symbolic links lead in a circle.
    #[error("'{0}' is a symbolic link that leads back to itself")]
    LinkLoop(RelPath),
    /// It is larger than what may be loaded.
    #[error("'{path}' has {size} bytes, more than the {limit} that can be edited")]
    TooLarge {
        /// The file.
        path: RelPath,
        /// Its size in bytes.
        size: u64,
        /// The most that is loaded.
        limit: u64,
    },
    /// It is not what it was when the change was made up.
    #[error("'{0}' changed in the meantime; nothing was written. Read it again")]
    Changed(RelPath),
    /// What it really is may not be touched.
    #[error("'{0}' may not be touched: {1}")]
    Denied(RelPath, String),
    /// It belongs to somebody else, and a new file would not.
    #[error("'{0}' belongs to another user, which could not be kept; nothing was written")]
    ForeignOwner(RelPath),
    /// A change of several files failed half-way, and could not be taken back everywhere.
    #[error("{cause}. Of the other files, these could not be put back: {}", .left.join("; "))]
    PartlyApplied {
        /// Why the change failed.
        cause: Box<Self>,
        /// The files that are changed, with where their old content is and why it is not back.
        left: Vec<String>,
    },
    /// The system said no.
    #[error("could not {action} '{path}': {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: RelPath,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    /// Returns the error for what the system said about a path.
    pub(super) fn from_io(action: &'static str, path: &RelPath, source: io::Error) -> Self {
        let path = path.clone();
        let errno = source.raw_os_error();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::NotADirectory => Self::NotADirectory(path),
            io::ErrorKind::IsADirectory => Self::IsDirectory(path),
            // Said by the confining library itself, not by the system.
            io::ErrorKind::PermissionDenied if errno.is_none() => Self::Escapes(path),
            _ if errno == Some(Errno::LOOP.raw_os_error()) => Self::LinkLoop(path),
            _ => Self::Io { action, path, source },
        }
    }

    /// Returns whether there is simply no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}
