//! The record of a workspace's state, as a session's journal contains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A record of the workspace's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Why it was made.
    pub kind: CheckpointKind,
    /// The step that it belongs to.
    pub step: u32,
    /// What of the run has worked since the record before.
    #[serde(default, skip_serializing_if = "RunActivity::is_unknown")]
    pub since: RunActivity,
    /// The record whose state was restored, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// What was recorded.
    #[serde(flatten)]
    pub outcome: CheckpointOutcome,
}

/// Why a state was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// Tool calls of a step are about to change something.
    Step,
    /// The calls of a step are over, and one of them may have changed anything.
    StepEnd,
    /// A run that may have changed something ends.
    End,
    /// The user is about to restore an earlier state.
    BeforeUndo,
    /// The user has restored an earlier state.
    Restored,
}

/// What of a run has worked in some time. A later one includes the earlier ones.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunActivity {
    /// Nothing that may change files: what has changed, others have changed.
    Idle,
    /// The checks of an answer. What they may have changed depends on the configuration.
    Checks,
    /// Tools whose changes of files are in the journal: all others are those of others.
    Edits,
    /// Commands, servers or hooks, which may have changed anything.
    Commands,
    /// It is not recorded.
    #[default]
    Unknown,
}

impl RunActivity {
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointOutcome {
    /// The state.
    Recorded(RecordedState),
    /// Nothing, for this reason.
    Failed(Arc<str>),
}

/// A recorded state of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedState {
    /// The SHA-256 digest of the workspace's tree, in hexadecimal.
    pub tree: Arc<str>,
    /// The number of its files and links.
    pub files: u64,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The number of files and folders that are there and not recorded.
    pub left_out: u64,
    /// The files of contents that the state needs, with their lengths in bytes.
    pub contents: BTreeMap<Arc<str>, u64>,
}

impl CheckpointKind {
    /// Returns whether the change from the state to the next one is the session's, where nothing else shows it.
    pub fn is_before_change(self) -> bool {
        match self {
            Self::Step | Self::BeforeUndo => true,
            Self::StepEnd | Self::End | Self::Restored => false,
        }
    }
}

impl CheckpointRecord {
    /// Returns the recorded state, if there is one.
    pub fn state(&self) -> Option<&RecordedState> {
        match &self.outcome {
            CheckpointOutcome::Recorded(state) => Some(state),
            CheckpointOutcome::Failed(_) => None,
        }
    }
}
