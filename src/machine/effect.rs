//! What the machine wants done, shown and remembered.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::EventKind;
use crate::machine::budget::budget_share::BudgetShare;
use crate::machine::stop_reason::CloseReason;
use crate::model::{ConversationItem, EffectId, FaultKind, MicroUsd, TimeSpan, Tokens, ToolCall};

/// Something to be done. Its completion comes back as an event with the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Collect what the next model call depends on.
    Prepare {
        /// Completed by `PreparedCall`.
        id: EffectId,
        /// What the call will be for.
        purpose: CallPurpose,
    },
    /// Call the model.
    CallModel {
        /// Completed by `Replied` or `Failed`.
        id: EffectId,
        /// What the call is for; it says which tools and which part of the history go along.
        purpose: CallPurpose,
        /// The attempt, counted from one.
        attempt: u32,
        /// How much the reply may have; none leaves it to the provider.
        max_output: Option<Tokens>,
    },
    /// Judge a tool call.
    Authorize {
        /// Completed by `AuthorizationOutcome`.
        id: EffectId,
        /// The call.
        call: ToolCall,
    },
    /// Run a tool call that was cleared.
    RunTool {
        /// Completed by `Settled`.
        id: EffectId,
        /// The call.
        call: ToolCall,
        /// What it may use, when it makes model calls of its own; `Charged` tells what it has used. Few do, so it takes
        /// little room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Box<BudgetShare>>,
    },
    /// Check a final answer.
    CheckAnswer {
        /// Completed by `Checked`.
        id: EffectId,
        /// The answer.
        answer: Arc<str>,
    },
    /// Stop an effect; whatever it still says is not heard.
    Cancel {
        /// The effect.
        id: EffectId,
    },
    /// The run is over. Nothing comes after it.
    End,
}

/// The kinds of effects that are pending until an event completes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKind {
    /// [`Effect::Prepare`]
    Prepare,
    /// [`Effect::CallModel`]
    CallModel,
    /// [`Effect::Authorize`]
    Authorize,
    /// [`Effect::RunTool`]
    RunTool,
    /// [`Effect::RunTool`] with a budget of its own.
    RunSubagent,
    /// [`Effect::CheckAnswer`]
    CheckAnswer,
}

impl EffectKind {
    /// Returns whether an effect of this kind can cause events of that kind.
    pub(crate) fn can_cause(self, event: EventKind) -> bool {
        match self {
            Self::Prepare => event == EventKind::Prepared,
            Self::CallModel => matches!(event, EventKind::Replied | EventKind::CallFailed),
            Self::Authorize => event == EventKind::Authorized,
            Self::RunTool => event == EventKind::ToolCompleted,
            Self::RunSubagent => {
                matches!(event, EventKind::ToolCompleted | EventKind::UsageReported)
            }
            Self::CheckAnswer => event == EventKind::Checked,
        }
    }
}

/// What a model call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPurpose {
    /// The task itself, with tools.
    Agent,
    /// A summary of the older part of the history, without tools.
    Compaction,
    /// The last word, without tools.
    Closing,
}

impl Effect {
    /// Returns whether the world outside may notice the effect, so that what justifies it has to be durable first.
    pub fn is_visible(&self) -> bool {
        match self {
            Self::CallModel { .. }
            | Self::Authorize { .. }
            | Self::RunTool { .. }
            | Self::CheckAnswer { .. }
            | Self::End => true,
            Self::Prepare { .. } | Self::Cancel { .. } => false,
        }
    }
}

/// A change of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationChange {
    /// An entry is added at the end.
    Append {
        /// The entry.
        item: ConversationItem,
    },
    /// Older exchanges make room: what is not kept is replaced by a summary.
    Compact {
        /// What stands for the replaced ones.
        summary: CompactionSummary,
        /// Exchanges, counted from the newest, that stay word for word.
        keep: u32,
        /// How large the context may be afterwards; further exchanges go, oldest first, until it is.
        target_size: Tokens,
    },
}

/// What stands for exchanges that were compacted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionSummary {
    /// What the model wrote.
    FromModel(Arc<str>),
    /// A list of the tools that ran and the files that changed.
    Mechanical,
}

/// What leaves no room for a closing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoFinalSummary {
    /// The budget does not cover it.
    Budget,
    /// It does not fit into the context window, even with its tool results shortened.
    Context,
    /// The time is over.
    Time,
}

/// Something to be shown. Losing one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineNote {
    /// A watchdog closes the run.
    LimitReached {
        /// Which one.
        reason: CloseReason,
    },
    /// The run ends without a closing call.
    NoFinalSummary {
        /// What leaves no room for it.
        cause: NoFinalSummary,
    },
    /// A failed call is tried again.
    Retry {
        /// The attempt that will be made, counted from one.
        attempt: u32,
        /// How long it waits.
        wait: TimeSpan,
        /// What happened to the attempt before.
        fault: FaultKind,
    },
    /// Turns repeat.
    LoopDetected {
        /// How often the same turns were made.
        times: u32,
    },
    /// Messages of the user reached the model while the run was under way.
    SteeringReceived {
        /// How many.
        messages: u32,
    },
    /// The context is being compacted.
    Compacting {
        /// How large it is.
        context: Tokens,
    },
    /// The context was compacted.
    Compacted {
        /// Whether the model wrote the summary.
        by_model: bool,
    },
    /// A reply was cut off by its limit, was empty or was paused, and the model is asked to go on.
    AskedAgain,
    /// A reply ended for an unknown reason. Its text is kept, and the run ends.
    UnknownFinish,
    /// A call's output limit was lowered, because the budget has no room for more.
    OutputLimitLowered {
        /// To what.
        limit: Tokens,
    },
    /// The run has used more money than the user wants to hear of.
    CostWarning {
        /// How much.
        cost: MicroUsd,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What asks nobody outside need not wait for the disk.
    #[test]
    fn preparing_and_cancelling_are_seen_by_nobody() {
        let (id, purpose) = (EffectId(1), CallPurpose::Agent);
        assert!(!Effect::Prepare { id, purpose }.is_visible());
        assert!(!Effect::Cancel { id }.is_visible());
        assert!(Effect::CallModel { id, purpose, attempt: 1, max_output: None }.is_visible());
        assert!(Effect::End.is_visible());
    }
}
