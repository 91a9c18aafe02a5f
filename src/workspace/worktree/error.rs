//! Errors of creating, using, merging and removing isolated workspaces.

use std::path::PathBuf;

use thiserror::Error;

use crate::workspace::IoError;

/// The reason why an isolated workspace can't be created, used, merged or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorktreeError {
    /// No environment variable determines the folder for state.
    #[error("there is no folder for worktrees: set HOME or XDG_STATE_HOME")]
    NoStateFolder,
    /// The state folder is in the workspace, which would then contain its own worktrees.
    #[error("the worktree would be inside of {}: {}", .tree.display(), .folder.display())]
    InsideTree {
        /// The tree of the user.
        tree: PathBuf,
        /// The folder of the worktree.
        folder: PathBuf,
    },
    /// The name is invalid for a folder or a branch.
    #[error("invalid worktree name '{0}'")]
    InvalidName(String),
    /// A worktree or a branch with this name exists.
    #[error("the worktree name '{name}' is taken: there is {reason}")]
    NameTaken {
        /// The name.
        name: String,
        /// The entry that has the name.
        reason: String,
    },
    /// Git stores a branch as a file, and the branches below it in a folder of the same name.
    #[error("there can be no branch architect/{0} beside the branch architect")]
    BranchInTheWay(String),
    /// The project has no such worktree.
    #[error("unknown worktree '{0}'")]
    Unknown(String),
    /// The worktree of a session was removed.
    #[error("the worktree '{name}' is gone: {} does not exist", .folder.display())]
    Removed {
        /// Its name.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// A running process uses the worktree.
    #[error("the worktree '{0}' is in use by a running session")]
    InUse(String),
    /// Git is needed and was not found.
    #[error("{} is in a git repository, but git was not found", .0.display())]
    NoGit(PathBuf),
    /// The workspace is in no repository.
    #[error("{} is not in a git repository", .0.display())]
    NoRepository(PathBuf),
    /// The repository has no commit at which a branch could begin.
    #[error("the repository has no commit yet, so no branch can start there")]
    NoCommit,
    /// The uncommitted changes can't be carried over.
    #[error("the uncommitted changes can't be carried over: {0}")]
    NoChanges(String),
    /// The recorded files can't be written.
    #[error("could not write the recorded files: {0}")]
    Recorded(String),
    /// The workspace is a folder that the commit does not have.
    #[error("the folder '{}' is not in the commit {commit}", .folder.display())]
    NoSubfolder {
        /// The folder, below the top of the repository.
        folder: PathBuf,
        /// The commit.
        commit: String,
    },
    /// The worktree has changes that would be lost.
    #[error("the worktree '{name}' has work that would be lost: {loss}")]
    HasWork {
        /// Its name.
        name: String,
        /// The changes that would be lost.
        loss: String,
    },
    /// The worktree can't be merged. This attempt has changed nothing.
    #[error("the worktree '{name}' can't be merged; {}:\n{}", unchanged(.attempted), .conflicts.join("\n"))]
    Conflicts {
        /// Its name.
        name: String,
        /// The conflicts, each with one line or more.
        conflicts: Vec<String>,
        /// The files that an earlier, interrupted attempt or others have changed.
        attempted: Vec<String>,
    },
    /// Files were changed, and the merge failed before its end.
    #[error(
        "the merge of the worktree '{name}' is not complete: {reason}; `architect worktrees merge {name}` completes it"
    )]
    UnfinishedMerge {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Git failed.
    #[error("git {command} failed: {message}")]
    Git {
        /// The command.
        command: String,
        /// The message of git.
        message: String,
    },
    /// The system reported an error.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Describes the changes of a merge with conflicts.
fn unchanged(attempted: &[String]) -> String {
    match attempted {
        [] => "nothing was changed".to_owned(),
        files => format!(
            "this attempt changed nothing, but an earlier one was interrupted, and these files have changed: {}",
            files.join(", ")
        ),
    }
}

impl WorktreeError {
    /// Creates the error of a merge with conflicts that has changed nothing.
    pub(super) fn conflicts(name: &str, conflicts: Vec<String>) -> Self {
        Self::Conflicts { name: name.to_owned(), conflicts, attempted: Vec::new() }
    }

    /// Adds to conflicts the files that an earlier attempt has changed.
    pub(super) fn after_attempt(self, files: &[String]) -> Self {
        match self {
            Self::Conflicts { name, conflicts, .. } => {
                Self::Conflicts { name, conflicts, attempted: files.to_vec() }
            }
            other => other,
        }
    }

    /// Returns whether the user can fix the problem. Otherwise, it is a failure of the system.
    pub fn is_user_error(&self) -> bool {
        !matches!(
            self,
            Self::Git { .. } | Self::Io(_) | Self::Recorded(_) | Self::UnfinishedMerge { .. }
        )
    }
}
