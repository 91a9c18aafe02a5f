//! The ends of a run: the closed table of stop reasons, statuses and exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::{FaultKind, Signal, word_enum};

/// The reason why a run ended. Every run has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A complete, non-empty final text without tool calls.
    LlmDone,
    /// A limit closed the run.
    Closed(CloseReason),
    /// The output limit cut the answer off repeatedly.
    Truncated,
    /// The model returned nothing, even after retries.
    EmptyResponse,
    /// The model, or a filter before it, refused.
    Refused,
    /// Several replies in a row had only invalid tool calls.
    InvalidToolCalls,
    /// The answer did not match its schema, even after repairs.
    SchemaNotMet,
    /// The answer was rejected repeatedly, a hook blocked the run or a model call, or a tool call was denied and that
    /// counts as a failure.
    ChecksFailed,
    /// The self-evaluation rejected the answer.
    EvaluationFailed,
    /// The run was interrupted.
    UserInterrupt(Signal),
    /// The model could not be reached or rejected the request.
    LlmError(LlmFailure),
    /// The journal could not be written.
    StoreError,
    /// An error in this program.
    InternalError,
}

word_enum! {
    /// The limit that closed a run. The model is asked for a final summary, without tools.
    pub enum CloseReason {
        /// The maximum number of steps.
        MaxSteps = "max_steps",
        /// The time for the run, or for one model call.
        Timeout = "timeout",
        /// The context is too full for another call.
        ContextFull = "context_full",
        /// Another call could exceed the budget.
        BudgetExceeded = "budget_exceeded",
        /// The same turns were repeated.
        LoopDetected = "loop_detected",
    }
}

/// The kind of failure that ended a run, as exit codes distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmFailure {
    /// The key is missing, invalid or lacks permission.
    Auth,
    /// The call and its retries timed out.
    Timeout,
    /// Anything else.
    Other,
}

word_enum! {
    /// The outcome of a run in one word.
    pub enum RunStatus {
        /// The task was completed.
        Success = "success",
        /// The run ended before the model had finished.
        Partial = "partial",
        /// The run could not continue.
        Failed = "failed",
    }
}

impl StopReason {
    /// Every stop reason, in the order of the table.
    pub const ALL: [Self; 22] = [
        Self::LlmDone,
        Self::Closed(CloseReason::MaxSteps),
        Self::Closed(CloseReason::Timeout),
        Self::Closed(CloseReason::ContextFull),
        Self::Closed(CloseReason::BudgetExceeded),
        Self::Closed(CloseReason::LoopDetected),
        Self::Truncated,
        Self::EmptyResponse,
        Self::Refused,
        Self::InvalidToolCalls,
        Self::SchemaNotMet,
        Self::ChecksFailed,
        Self::EvaluationFailed,
        Self::UserInterrupt(Signal::Interrupt),
        Self::UserInterrupt(Signal::Terminate),
        Self::UserInterrupt(Signal::Hangup),
        Self::UserInterrupt(Signal::Pipe),
        Self::LlmError(LlmFailure::Other),
        Self::LlmError(LlmFailure::Auth),
        Self::LlmError(LlmFailure::Timeout),
        Self::StoreError,
        Self::InternalError,
    ];

    /// Returns the name that users see. It never changes.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the first reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Returns the status of a run with this reason.
    pub fn status(self) -> RunStatus {
        self.row().1
    }

    /// Returns the exit code of a run with this reason.
    pub fn exit_code(self) -> u8 {
        self.row().2
    }

    /// Returns the name, the status and the exit code.
    fn row(self) -> (&'static str, RunStatus, u8) {
        use RunStatus::{Failed, Partial, Success};
        match self {
            Self::LlmDone => ("llm_done", Success, 0),
            Self::Closed(reason) => (reason.as_str(), Partial, 2),
            Self::Truncated => ("truncated", Partial, 2),
            Self::EmptyResponse => ("empty_response", Partial, 2),
            Self::Refused => ("refused", Partial, 2),
            Self::InvalidToolCalls => ("invalid_tool_calls", Partial, 2),
            Self::SchemaNotMet => ("schema_not_met", Partial, 2),
            Self::ChecksFailed => ("checks_failed", Partial, 2),
            Self::EvaluationFailed => ("evaluation_failed", Partial, 2),
            Self::UserInterrupt(signal) => ("user_interrupt", Partial, signal.exit_code()),
            Self::LlmError(LlmFailure::Other) => ("llm_error", Failed, 1),
            Self::LlmError(LlmFailure::Auth) => ("llm_error", Failed, 4),
            Self::LlmError(LlmFailure::Timeout) => ("llm_error", Failed, 5),
            Self::StoreError => ("store_error", Failed, 1),
            Self::InternalError => ("internal_error", Failed, 1),
        }
    }
}

impl From<FaultKind> for StopReason {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Auth => Self::LlmError(LlmFailure::Auth),
            FaultKind::Timeout => Self::LlmError(LlmFailure::Timeout),
            FaultKind::Blocked => Self::ChecksFailed,
            FaultKind::Connect
            | FaultKind::RateLimited
            | FaultKind::Server
            | FaultKind::Truncated
            | FaultKind::Protocol
            | FaultKind::Overflow
            | FaultKind::Quota
            | FaultKind::Refused
            | FaultKind::Request
            | FaultKind::MissingModel
            | FaultKind::NotAnApi
            | FaultKind::Tls
            | FaultKind::Budget => Self::LlmError(LlmFailure::Other),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract, repeated here by hand.
    const TABLE: &str = "\
        llm_done success 0
        max_steps partial 2
        timeout partial 2
        context_full partial 2
        budget_exceeded partial 2
        loop_detected partial 2
        truncated partial 2
        empty_response partial 2
        refused partial 2
        invalid_tool_calls partial 2
        schema_not_met partial 2
        checks_failed partial 2
        evaluation_failed partial 2
        user_interrupt partial 130
        user_interrupt partial 143
        user_interrupt partial 129
        user_interrupt partial 141
        llm_error failed 1
        llm_error failed 4
        llm_error failed 5
        store_error failed 1
        internal_error failed 1";

    #[test]
    fn a_name_stands_for_the_first_reason_that_has_it() {
        for reason in StopReason::ALL {
            let named = StopReason::from_name(reason.name()).unwrap();
            assert_eq!(named.name(), reason.name());
        }
        let interrupted = StopReason::UserInterrupt(Signal::Interrupt);
        assert_eq!(StopReason::from_name("user_interrupt"), Some(interrupted));
        assert_eq!(StopReason::from_name("unknown"), None);
    }

    #[test]
    fn the_table_is_the_contract() {
        let row = |reason: StopReason| {
            format!("{reason} {} {}", reason.status().as_str(), reason.exit_code())
        };
        let rows: Vec<String> = StopReason::ALL.into_iter().map(row).collect();
        let contract: Vec<&str> = TABLE.lines().map(str::trim).collect();
        assert_eq!(rows, contract);
    }
}
