//! Records of the workspace's state.

use super::EffectContext;
use crate::types::{CheckpointKind, CheckpointRecord, RunActivity};

/// Records the state of the workspace before a step that may change it, after a step that may have changed anything,
/// and at the end of a run that may have changed it.
pub trait Checkpoints: Send + Sync {
    /// Returns whether anything is recorded. Fast and without I/O.
    fn is_enabled(&self) -> bool;

    /// Returns whether an earlier process of the session has ended without recording its changes. The state is then
    /// recorded at the beginning and the end of the run. Fast and without I/O.
    fn has_open_change(&self) -> bool {
        false
    }

    /// Returns the activity to record for an activity that the driver has observed: it includes hooks, and checks that
    /// are commands. Fast and without I/O.
    fn weigh(&self, seen: RunActivity) -> RunActivity {
        seen
    }

    /// Records the current state. Its contents are durable when this returns. Returns `None` if it was cancelled. A
    /// failure is part of the record: the run continues without the state.
    fn record(
        &self,
        kind: CheckpointKind,
        step: u32,
        since: RunActivity,
        scope: &EffectContext,
    ) -> Option<CheckpointRecord>;
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpoints;

impl Checkpoints for NoCheckpoints {
    fn is_enabled(&self) -> bool {
        false
    }

    fn record(
        &self,
        _: CheckpointKind,
        _: u32,
        _: RunActivity,
        _: &EffectContext,
    ) -> Option<CheckpointRecord> {
        None
    }
}
