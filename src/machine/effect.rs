//! The requests of a step: effects, changes of the conversation, and notes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::budget::budget_share::BudgetShare;
use crate::machine::stop_reason::CloseReason;
use crate::types::{
    ConversationItem, EffectId, FaultKind, MicroUsd, TimeSpan, Tokens, ToolCall, word_enum,
};

/// An effect to perform. Its completion returns as an event with the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Collects the messages and the size of the next model call.
    Prepare {
        /// Completed by `Prepared`.
        id: EffectId,
        /// The purpose of the call.
        purpose: CallPurpose,
    },
    /// Calls the model.
    CallModel {
        /// Completed by `Replied` or `CallFailed`.
        id: EffectId,
        /// The purpose of the call. It determines the tools and the part of the history that are sent.
        purpose: CallPurpose,
        /// The attempt, counted from one.
        attempt: u32,
        /// The limit of the reply, or `None` to leave it to the provider.
        max_output: Option<Tokens>,
    },
    /// Decides whether a tool call may run.
    Authorize {
        /// Completed by `Authorized`.
        id: EffectId,
        /// The call.
        call: ToolCall,
    },
    /// Runs an approved tool call.
    RunTool {
        /// Completed by `ToolCompleted`.
        id: EffectId,
        /// The call.
        call: ToolCall,
        /// The budget share of a call that makes model calls of its own; `UsageReported` subtracts from it. Boxed
        /// because few calls have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Box<BudgetShare>>,
        /// The effect of the call's background command, which may continue after the call. Completed by `CommandEnded`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<EffectId>,
    },
    /// Checks a final answer.
    CheckAnswer {
        /// Completed by `Checked`.
        id: EffectId,
        /// The answer.
        answer: Arc<str>,
    },
    /// Cancels an effect. Its completion will be ignored.
    Cancel {
        /// The effect.
        id: EffectId,
    },
    /// Ends the run. It is the last effect.
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
    /// The background command of an [`Effect::RunTool`], which may continue after the call.
    RunCommand,
    /// [`Effect::CheckAnswer`]
    CheckAnswer,
}

word_enum! {
    /// The purpose of a model call.
    pub enum CallPurpose {
        /// The task itself, with tools.
        Agent = "agent",
        /// A summary of the older part of the history, without tools.
        Compaction = "compaction",
        /// The final summary, without tools.
        Closing = "closing",
    }
}

/// A change of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationChange {
    /// Adds an item at the end.
    Append {
        /// The item.
        item: ConversationItem,
    },
    /// Replaces older exchanges by a summary.
    Compact {
        /// The summary.
        summary: CompactionSummary,
        /// The number of newest exchanges that stay unchanged.
        keep: u32,
        /// The size to reach. More exchanges are replaced, oldest first, until the context fits.
        target_size: Tokens,
    },
    /// Prepares the conversation for another model: removes the blocks that are specific to the previous model, and
    /// measures the size without its counts.
    ChangeModel,
}

/// The text that replaces compacted exchanges.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionSummary {
    /// The text that the model wrote.
    FromModel(Arc<str>),
    /// A list of tools and changed files.
    Mechanical,
}

/// The reason why there is no closing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum NoFinalSummary {
    /// The budget doesn't cover the call.
    Budget,
    /// The call doesn't fit into the context window, even with shortened tool results.
    Context,
    /// The time is over.
    Time,
}

/// A notice for the user. A lost notice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineNote {
    /// A limit was reached, and the run closes.
    LimitReached {
        /// The limit.
        reason: CloseReason,
    },
    /// The run ends without a final summary.
    NoFinalSummary {
        /// The reason.
        cause: NoFinalSummary,
    },
    /// A failed call will be retried.
    Retry {
        /// The next attempt, counted from one.
        attempt: u32,
        /// The wait before it.
        wait: TimeSpan,
        /// The fault of the previous attempt.
        fault: FaultKind,
    },
    /// The model is out of reach, and another one is called from now on.
    FellBack {
        /// The index of the previous model.
        from: u32,
        /// The index of the other model.
        to: u32,
        /// The fault of the last attempt.
        fault: FaultKind,
    },
    /// The budget doesn't cover a call of the next fallback model.
    FallbackUnaffordable {
        /// The index of the model.
        model: u32,
    },
    /// Turns are repeated.
    LoopDetected {
        /// The number of times that the same turns were repeated.
        times: u32,
    },
    /// The model receives messages that the user sent during the run.
    SteeringReceived {
        /// The number of messages.
        messages: u32,
    },
    /// The context is being compacted.
    Compacting {
        /// The size of the context.
        context: Tokens,
    },
    /// The context was compacted.
    Compacted {
        /// Whether the model wrote the summary.
        by_model: bool,
    },
    /// A reply was cut off, empty or paused, and the model is asked to continue.
    AskedAgain,
    /// A reply ended for an unknown reason. Its text is kept, and the run ends.
    UnknownFinish,
    /// The budget lowered the output limit of a call.
    OutputLimitLowered {
        /// The new limit.
        limit: Tokens,
    },
    /// The run has reached the cost at which the user is warned.
    CostWarning {
        /// The cost so far.
        cost: MicroUsd,
    },
}
