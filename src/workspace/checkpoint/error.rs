//! Errors of checkpoints.

use std::time::Duration;

use thiserror::Error;

use crate::workspace::IoError;

/// The reason why a state could not be recorded, read or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The stored data is damaged or missing.
    #[error("{0}")]
    Damaged(String),
    /// The workspace has more files than are recorded.
    #[error("the workspace has more than {0} files (checkpoints.max_files)")]
    TooManyFiles(u64),
    /// A pattern of `checkpoints.exclude` is invalid.
    #[error("invalid pattern '{0}' in checkpoints.exclude")]
    Pattern(String),
    /// The operation takes too long.
    #[error("it takes longer than {} s; checkpoints.exclude can leave folders out", .0.as_secs())]
    TooSlow(Duration),
    /// The caller has cancelled the operation.
    #[error("it was cancelled")]
    Cancelled,
    /// Files were changed just before they were restored.
    #[error("{0} was changed in the meantime; nothing was restored")]
    ChangedMeanwhile(String),
    /// A restore failed, and its changes could not be undone. The next run or undo completes it.
    #[error(
        "{cause}; the files are half restored, and the next run or undo in this workspace completes it"
    )]
    HalfRestored {
        /// The reason for the failure.
        cause: Box<CheckpointError>,
    },
}

impl CheckpointError {
    pub(super) fn damaged(text: impl Into<String>) -> Self {
        Self::Damaged(text.into())
    }
}
