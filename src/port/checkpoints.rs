//! Records of the workspace's state.

use super::EffectContext;
use crate::types::{CheckpointKind, CheckpointRecord, RunActivity};

/// Records the state of the workspace before a step changes it, after one that may have changed anything, and at the end of a
/// run that may have changed it.
pub trait Checkpoints: Send + Sync {
    /// Returns whether anything is recorded. Fast and without I/O.
    fn is_enabled(&self) -> bool;

    /// Returns whether an earlier process of the session has ended without recording what it had changed: the state is
    /// recorded at the beginning of the run then, and at its end. Fast and without I/O.
    fn has_open_change(&self) -> bool {
        false
    }

    /// Returns what may have worked where the driver has seen this: hooks, checks that are commands. Fast and without I/O.
    fn weigh(&self, seen: RunActivity) -> RunActivity {
        seen
    }

    /// Records the present state; its contents are durable when this returns. `None` if it was cancelled. A failure is
    /// part of the record: the run continues without it.
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
