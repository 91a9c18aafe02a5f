//! Checkpoints: recorded states of a workspace, which can be restored.
//!
//! ```text
//!  WorkspaceScanner ──▶ trees and contents ──▶ ContentStore ──▶ changes between two states ──▶ patch
//!        └─ StatCache (unchanged files)                            └──▶ merge ──▶ restore (all or nothing)
//! ```
//!
//! A state is a tree of digests: a folder is a content that lists its entries, so that a checkpoint stores only the
//! changes since the previous one. Files, links, folders (even empty ones) and permissions are recorded; owners, times
//! and extended attributes are not. An entry that is not recorded (because of its size or a pattern, or because it
//! can't be read) is in the tree, too, with the reason, and is never touched by a restore. The data of version control
//! systems is never recorded.

mod content_store;
mod error;
mod git_binary;
mod merge;
mod patch;
mod restore;
mod restore_log;
mod scan;
mod stat_cache;
mod tree;

pub use content_store::ContentStore;
pub use error::CheckpointError;
pub use merge::{
    AuthoredChange, ChangeAuthor, ChangeInterval, ForeignChanges, RestorePlan, ToolEdit,
    UnrestorablePath,
};
pub use patch::ChangePatch;
pub use restore::{Restorer, copy_beside, remove_leftovers};
pub use restore_log::{PendingRestore, RestoreLog};
pub use scan::{ScanOptions, ScanTotals, ScannedState, WorkspaceScanner};
pub use stat_cache::StatCache;
#[cfg(test)]
mod tests;

pub use tree::{PathChange, PathState, SkipReason, SkippedEntry};
