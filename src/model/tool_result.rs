//! The one answer that each tool call gets.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, Digest, TimeSpan};

/// The answer to one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that is answered.
    pub call: CallId,
    /// How it ended.
    pub status: ToolStatus,
    /// What the model is told.
    pub text: Arc<str>,
    /// The digest of status and text; equal for two answers that say the same.
    pub digest: Digest,
    /// How long the tool ran.
    #[serde(default)]
    #[serde(rename = "took")]
    pub duration: TimeSpan,
    /// The files it changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// The files it read, relative to the workspace. Only files whose content is in `text`: a search reads none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Arc<str>>,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool did what it was asked for.
    Ok,
    /// The tool ran and could not do it.
    Failed,
    /// The tool ran into its own time limit.
    TimedOut,
    /// There is no such tool.
    Unknown,
    /// The arguments are not what the tool takes.
    Malformed,
    /// A rule, a hook or the user said no.
    Denied,
    /// The call was cut off by the output limit and did not run.
    #[serde(rename = "cut")]
    Truncated,
    /// The call did not run, because its turn never came.
    Skipped,
    /// The call was running when the run was interrupted.
    Interrupted,
    /// The tool did not come back, and was left alone.
    Abandoned,
    /// The engine died while the call was running; it may have happened or not.
    InDoubt,
}

impl ToolStatus {
    /// Returns whether the model asked for something that cannot be run at all.
    pub fn is_invalid(self) -> bool {
        matches!(self, Self::Unknown | Self::Malformed | Self::Truncated)
    }
}

/// One file that a tool changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileChange {
    /// The file, relative to the workspace.
    pub path: Arc<str>,
    /// What was done to it.
    pub action: FileAction,
    /// Lines that were added.
    #[serde(default)]
    pub added: u64,
    /// Lines that were removed.
    #[serde(default)]
    pub removed: u64,
}

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAction {
    /// It is new.
    Created,
    /// Its content changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl ToolResult {
    /// Returns an answer that took no time and changed nothing.
    pub fn new(call: CallId, status: ToolStatus, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let digest = Digest::of(&text).with_bytes(&[status as u8]);
        Self {
            call,
            status,
            text,
            digest,
            duration: TimeSpan::ZERO,
            changes: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Returns whether the tool did what it was asked for.
    pub fn is_ok(&self) -> bool {
        self.status == ToolStatus::Ok
    }
}
