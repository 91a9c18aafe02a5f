//! Checkpoints: recorded states of a workspace, from which it can be restored.
//!
//! ```text
//!  WorkspaceScanner ──▶ trees and contents ──▶ ContentStore ──▶ changes between two states ──▶ patch
//!        └─ StatCache (what is unchanged)                          └──▶ merge ──▶ restore (all or nothing)
//! ```
//!
//! A state is a tree of digests: a folder is a content that lists its entries, so that a checkpoint stores what has changed
//! since the one before, and nothing else. Files, links, folders (empty ones too) and permissions are recorded; owners, times
//! and extended attributes are not. What is left out (by size, by a pattern, because it can't be read) is an entry of the
//! tree too, with the reason, and is never touched by a restore. The data of version control systems is always left out.

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

pub use content_store::{ContentHash, ContentStore};
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
