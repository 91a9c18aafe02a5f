//! How a run ends: the closed table of stop reasons, statuses and exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{FaultKind, Signal};

/// Why a run ended. Every run ends with exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A complete, non-empty final text and no tool call.
    LlmDone,
    /// A watchdog closed the run.
    Closed(CloseReason),
    /// The output limit cut the answer off again and again.
    Truncated,
    /// The model said nothing, also when asked again.
    EmptyResponse,
    /// The model, or a filter before it, refused.
    Refused,
    /// Reply after reply had no tool call that could be run.
    InvalidToolCalls,
    /// The answer did not satisfy its schema, also after its repairs.
    SchemaNotMet,
    /// The answer was sent back again and again, and did not pass; a hook blocked the run or a model call; or a tool call
    /// was denied, where the user counts that as a failure.
    ChecksFailed,
    /// The self-evaluation was not satisfied with the answer.
    EvaluationFailed,
    /// Somebody asked the run to stop.
    UserInterrupt(Signal),
    /// The model could not be reached or did not accept the request.
    LlmError(LlmFailure),
    /// The journal could not be kept.
    StoreError,
    /// A defect of this program.
    InternalError,
}

/// Which watchdog closed a run. The model is asked to sum up, without tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// As many steps as allowed were made.
    MaxSteps,
    /// The time for the run, or for one model call, is over.
    Timeout,
    /// The context is too full for another call.
    ContextFull,
    /// Another call might cost more than is left.
    BudgetExceeded,
    /// The same turns were made again and again.
    LoopDetected,
}

/// Which kind of failure ended a run, as far as the exit code tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmFailure {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// The call ran into a time limit, as did its retries.
    Timeout,
    /// Anything else.
    Other,
}

/// How a run went, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The task was answered.
    Success,
    /// The run ended before the model said that it was done.
    Partial,
    /// The run could not go on.
    Failed,
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

    /// Returns the name that users see; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::LlmDone => "llm_done",
            Self::Closed(reason) => reason.name(),
            Self::Truncated => "truncated",
            Self::EmptyResponse => "empty_response",
            Self::Refused => "refused",
            Self::InvalidToolCalls => "invalid_tool_calls",
            Self::SchemaNotMet => "schema_not_met",
            Self::ChecksFailed => "checks_failed",
            Self::EvaluationFailed => "evaluation_failed",
            Self::UserInterrupt(_) => "user_interrupt",
            Self::LlmError(_) => "llm_error",
            Self::StoreError => "store_error",
            Self::InternalError => "internal_error",
        }
    }

    /// Returns how a run with this reason went.
    pub fn status(self) -> RunStatus {
        match self {
            Self::LlmDone => RunStatus::Success,
            Self::Closed(_)
            | Self::Truncated
            | Self::EmptyResponse
            | Self::Refused
            | Self::InvalidToolCalls
            | Self::SchemaNotMet
            | Self::ChecksFailed
            | Self::EvaluationFailed
            | Self::UserInterrupt(_) => RunStatus::Partial,
            Self::LlmError(_) | Self::StoreError | Self::InternalError => RunStatus::Failed,
        }
    }

    /// Returns the exit code of a run with this reason.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::LlmDone => 0,
            Self::LlmError(LlmFailure::Other) | Self::StoreError | Self::InternalError => 1,
            Self::Closed(_)
            | Self::Truncated
            | Self::EmptyResponse
            | Self::Refused
            | Self::InvalidToolCalls
            | Self::SchemaNotMet
            | Self::ChecksFailed
            | Self::EvaluationFailed => 2,
            Self::LlmError(LlmFailure::Auth) => 4,
            Self::LlmError(LlmFailure::Timeout) => 5,
            Self::UserInterrupt(signal) => signal.exit_code(),
        }
    }
}

impl CloseReason {
    /// Returns the name that users see; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxSteps => "max_steps",
            Self::Timeout => "timeout",
            Self::ContextFull => "context_full",
            Self::BudgetExceeded => "budget_exceeded",
            Self::LoopDetected => "loop_detected",
        }
    }
}

impl RunStatus {
    /// Returns the name that users see; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
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
            | FaultKind::NotAnApi
            | FaultKind::Tls => Self::LlmError(LlmFailure::Other),
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

    /// The contract, written down a second time and by hand.
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
    fn the_table_is_the_contract() {
        let row = |reason: StopReason| {
            format!("{reason} {} {}", reason.status().name(), reason.exit_code())
        };
        let rows: Vec<String> = StopReason::ALL.into_iter().map(row).collect();
        let contract: Vec<&str> = TABLE.lines().map(str::trim).collect();
        assert_eq!(rows, contract);
    }
}
