//! What goes on within a state.

use serde::Serialize;

use crate::machine::{CallState, Machine, State};

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TracePhase {
    /// Collecting what a model call depends on: steering, and what hooks add.
    Preparing,
    /// Writing a request down.
    Encoding,
    /// From there to the first byte of the reply.
    FirstByte,
    /// From the first byte to the end of the reply.
    Stream,
    /// Waiting before another attempt.
    Backoff,
    /// Rules, hooks and the user judge a tool call, and no tool runs meanwhile.
    Hooks,
    /// Tools run.
    Tools,
    /// A final answer is checked: its schema, stop hooks, quality gates.
    Checks,
    /// Making the journal durable.
    Sync,
    /// The run is over, and what was cancelled comes to its end.
    Ending,
}

impl TracePhase {
    /// Every phase, in the order in which a step goes through them.
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

    /// Returns its name, for people.
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

    /// Returns what goes on while a run stands here. A request that is under way waits for its first byte, as far as
    /// is known before it comes back.
    pub(super) fn from_state(fold: &Machine) -> Self {
        match &fold.state {
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
                match fold.state.kind() {
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
