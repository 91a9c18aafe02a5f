//! Errors of the coordination of a batch.

use std::path::PathBuf;

use thiserror::Error;

use super::CellId;
use crate::workspace::IoError;

/// The result of an operation on the log of a batch.
pub(super) type Result<T, E = CoordinationError> = std::result::Result<T, E>;

/// The reason why a request failed.
#[derive(Debug, Error)]
pub enum CoordinationError {
    /// The lease has ended, or another worker has the cell. The run of the cell has to stop; its result doesn't count.
    #[error("the lease on {} has ended, and another worker may run it", .0.0)]
    LeaseLost(CellId),
    /// The log can't be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A record of the log is damaged, and others follow it.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The start of the damaged record.
        offset: u64,
    },
    /// Another process holds the lock of the log for too long.
    #[error("{} stays locked by another process; is one suspended?", .0.display())]
    Locked(PathBuf),
    /// The file system refuses file locks.
    #[error("{} can't be locked: the file system has no file locks, which keep the processes of a batch apart", .0.display())]
    NoLocks(PathBuf),
    /// File locks don't reach other processes or machines.
    #[error("file locks in {} are local to each machine, so a budget can't be shared there", .0.display())]
    LocalLocks(PathBuf),
}

/// The reason why nothing was reserved.
#[derive(Debug, Error)]
pub enum ReserveError {
    /// The limits of the batch don't cover the call, whatever the calls under way will cost.
    #[error("the budget of the batch is reached")]
    BudgetReached,
    /// The limits may cover the call once others are settled.
    #[error("the rest of the budget of the batch is reserved by other calls")]
    Pending,
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] CoordinationError),
}
