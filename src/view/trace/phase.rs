//! The phases within a state.

use serde::Serialize;

use crate::machine::{CallState, Machine, State};

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TracePhase {
    /// Preparing a model call: steering messages, and what hooks add.
    Preparing,
    /// Encoding a request.
    Encoding,
    /// Waiting for the first byte of the reply.
    FirstByte,
    /// Receiving the reply after its first byte.
    Stream,
    /// Waiting before a retry.
    Backoff,
    /// Rules, hooks and the user authorize a tool call, and no tool runs.
    Hooks,
    /// Tools run.
    Tools,
    /// Checking a final answer: its schema, stop hooks, quality gates.
    Checks,
    /// Syncing the journal.
    Sync,
    /// The run is over, and cancelled effects come to their end.
    Ending,
}

impl TracePhase {
    /// Every phase, in the order of a step.
    pub const ALL: [Self; 10] = [
        Self::Preparing,
        Self::Encoding,
        Self::FirstByte,
        Self::Stream,
        Self::Backoff,
        Self::Hooks,
        Self::Tools,
        Self::Checks,
        Self::Sync,
        Self::Ending,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Encoding => "encoding",
            Self::FirstByte => "first byte",
            Self::Stream => "stream",
            Self::Backoff => "backoff",
            Self::Hooks => "hooks",
            Self::Tools => "tools",
            Self::Checks => "checks",
            Self::Sync => "sync",
            Self::Ending => "ending",
        }
    }

    /// Returns the phase of a machine. A running request counts as waiting for its first byte until it completes.
    pub(super) fn from_state(machine: &Machine) -> Self {
        match &machine.state {
            State::Preparing(_) => Self::Preparing,
            State::Done(_) => Self::Ending,
            State::Executing(state) => {
                let runs = |slot: &CallState| matches!(slot, CallState::Running { .. });
                match state.calls.iter().any(|call| runs(&call.state)) {
                    true => Self::Tools,
                    false => Self::Hooks,
                }
            }
            State::Calling(_) | State::Compacting(_) | State::Closing(_) => {
                use crate::machine::StateKind as Kind;
                match machine.state.kind() {
                    Kind::CallingWaiting | Kind::CompactingWaiting => Self::Backoff,
                    Kind::CallingChecking => Self::Checks,
                    Kind::ClosingPreparing => Self::Preparing,
                    Kind::Preparing
                    | Kind::CompactingSending
                    | Kind::CallingSending
                    | Kind::Executing
                    | Kind::ClosingSending
                    | Kind::Done => Self::FirstByte,
                }
            }
        }
    }
}
