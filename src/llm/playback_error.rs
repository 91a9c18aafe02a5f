//! Errors of files that are played instead of calling a model.

use std::path::PathBuf;

use thiserror::Error;

/// An error while loading a script or a recording.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaybackError {
    /// The file can't be read.
    #[error("could not read the {kind} {path}: {cause}")]
    Unreadable {
        /// `script` or `recording`.
        kind: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: String,
    },
    /// A line is invalid.
    #[error("{path}:{line}: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from one.
        line: usize,
        /// The reason.
        cause: String,
    },
}
