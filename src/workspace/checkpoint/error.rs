//! Errors of checkpoints.

use std::time::Duration;

use thiserror::Error;

use crate::workspace::IoError;

/// Why a state could not be recorded, read or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What is stored is damaged or missing.
    #[error("{0}")]
    Damaged(String),
    /// The workspace has more files than are recorded.
    #[error("the workspace has more than {0} files (checkpoints.max_files)")]
    TooManyFiles(u64),
    /// A pattern of `checkpoints.exclude` is invalid.
    #[error("invalid pattern '{0}' in checkpoints.exclude")]
    Pattern(String),
    /// It takes too long.
    #[error("it takes longer than {} s; checkpoints.exclude can leave folders out", .0.as_secs())]
    TooSlow(Duration),
    /// The caller has cancelled it.
    #[error("it was cancelled")]
    Cancelled,
    /// Files were changed while they were about to be restored.
    #[error("{0} was changed in the meantime; nothing was restored")]
    ChangedMeanwhile(String),
    /// A restore failed, and what it had changed could not be changed back. The next run or undo completes it.
    #[error(
        "{cause}; the files are half restored, and the next run or undo in this workspace completes it"
    )]
    HalfRestored {
        /// Why it failed.
        cause: Box<CheckpointError>,
    },
}

impl CheckpointError {
    pub(super) fn damaged(text: impl Into<String>) -> Self {
        Self::Damaged(text.into())
    }
}
