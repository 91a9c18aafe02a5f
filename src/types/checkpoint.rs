//! The record of a workspace's state in a session's journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A record of the workspace's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The reason for the record.
    pub kind: CheckpointKind,
    /// The run's step at the time of the record.
    pub step: u32,
    /// The activity of the run since the previous record.
    #[serde(default, skip_serializing_if = "RunActivity::is_unknown")]
    pub since: RunActivity,
    /// The position of the record whose state was restored, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// The recorded state, or the reason for the failure.
    #[serde(flatten)]
    pub outcome: CheckpointOutcome,
}

/// The reason for recording a state.
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

/// The part of a run that was active in an interval and may have changed files. A later variant includes the earlier
/// ones.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunActivity {
    /// Nothing that may change files: all changes were made by others.
    Idle,
    /// The checks of an answer. The files that they may change depend on the configuration.
    Checks,
    /// Tools whose file changes are in the journal: all other changes were made by others.
    Edits,
    /// Commands, servers or hooks, which may have changed anything.
    Commands,
    /// The activity was not recorded.
    #[default]
    Unknown,
}

impl RunActivity {
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// The result of recording a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointOutcome {
    /// The state.
    Recorded(RecordedState),
    /// The state could not be recorded, for this reason.
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
    /// The number of existing files and folders that are not recorded.
    pub left_out: u64,
    /// The content files that the state needs, with their lengths in bytes.
    pub contents: BTreeMap<Arc<str>, u64>,
}

impl CheckpointKind {
    /// Returns whether the change from this state to the next one counts as the session's, if nothing else shows who
    /// made it.
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
