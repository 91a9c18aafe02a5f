//! The phases within a state.

use crate::machine::{CallState, Machine, State, StateKind};
use crate::types::word_enum;

word_enum! {
    /// A phase within a state.
    pub enum TracePhase {
        /// Preparing a model call: steering messages, and additions of hooks.
        Preparing = "preparing",
        /// Encoding a request.
        Encoding = "encoding",
        /// Waiting for the first byte of the reply.
        FirstByte = "first_byte",
        /// Receiving the reply after its first byte.
        Stream = "stream",
        /// Waiting before a retry.
        Backoff = "backoff",
        /// Authorizing a tool call by rules, hooks and the user, while no tool runs.
        Hooks = "hooks",
        /// Running tools.
        Tools = "tools",
        /// Checking a final answer: its schema, stop hooks, quality gates.
        Checks = "checks",
        /// Syncing the journal.
        Sync = "sync",
        /// Ending cancelled effects after the run.
        Ending = "ending",
    }
}

impl TracePhase {
    /// Returns the readable name.
    pub fn name(self) -> String {
        self.as_str().replace('_', " ")
    }

    /// Returns the phase of a machine. A running request counts as waiting for its first byte until it completes.
    pub(super) fn from_state(machine: &Machine) -> Self {
        if let State::Executing(state) = &machine.state {
            let runs = |slot: &CallState| matches!(slot, CallState::Running { .. });
            return match state.calls.iter().any(|call| runs(&call.state)) {
                true => Self::Tools,
                false => Self::Hooks,
            };
        }
        match machine.state.kind() {
            StateKind::Preparing | StateKind::ClosingPreparing => Self::Preparing,
            StateKind::CallingWaiting | StateKind::CompactingWaiting => Self::Backoff,
            StateKind::CallingChecking => Self::Checks,
            StateKind::Executing => Self::Hooks,
            StateKind::CompactingSending
            | StateKind::CallingSending
            | StateKind::ClosingSending => Self::FirstByte,
            StateKind::Done => Self::Ending,
        }
    }
}
