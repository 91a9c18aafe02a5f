//! What can happen to a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    CallAccess, EffectId, Fault, MicroUsd, Reply, RunTime, Signal, TimeSpan, Tokens, ToolResult,
    Usage, UserMessage,
};

/// Something that happened. The machine sees the world through these alone.
///
/// A completion carries the id of its effect; one whose id is not outstanding changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Time went on.
    Tick {
        /// What time it is.
        now: RunTime,
    },
    /// Somebody asks the run to stop.
    Interrupt {
        /// Who.
        signal: Signal,
    },
    /// The journal cannot be kept any more.
    StoreFailed {
        /// What failed.
        error: Arc<str>,
    },
    /// A defect of this program was noticed: a panic, an effect that never came back.
    #[serde(rename = "defect")]
    InternalError {
        /// What was noticed.
        error: Arc<str>,
    },
    /// The next model call is prepared.
    Prepared {
        /// The effect that this completes.
        id: EffectId,
        /// What the call would be like.
        #[serde(rename = "facts")]
        size: RequestSize,
        /// What the model has to be told first: steering, and what hooks add.
        messages: Arc<[UserMessage]>,
    },
    /// A model call brought a complete reply.
    Replied {
        /// The effect that this completes.
        id: EffectId,
        /// The reply.
        reply: Reply,
        /// What each of its tool calls touches, in call order.
        access: Arc<[CallAccess]>,
    },
    /// A model call failed; nothing of it counts.
    #[serde(rename = "failed")]
    CallFailed {
        /// The effect that this completes.
        id: EffectId,
        /// Why.
        fault: Fault,
    },
    /// A tool call was judged: its arguments, the rules, its hooks, and where needed the user.
    #[serde(rename = "vetted")]
    Authorized {
        /// The effect that this completes.
        id: EffectId,
        /// Whether it may run.
        #[serde(rename = "verdict")]
        authorization: Authorization,
    },
    /// A tool came back.
    #[serde(rename = "settled")]
    ToolCompleted {
        /// The effect that this completes.
        id: EffectId,
        /// With what.
        result: ToolResult,
    },
    /// A tool that runs has used something of its allowance. Not the end of its effect.
    #[serde(rename = "charged")]
    UsageReported {
        /// The effect that runs.
        id: EffectId,
        /// What a model call of it used.
        usage: Usage,
        /// What that cost; nothing when the model has no price.
        cost: MicroUsd,
    },
    /// A final answer was checked.
    Checked {
        /// The effect that this completes.
        id: EffectId,
        /// Whether it counts.
        #[serde(rename = "check")]
        result: CheckResult,
    },
}

/// What the next model call would be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestSize {
    /// How large its input probably is.
    #[serde(rename = "context")]
    pub estimate: Tokens,
    /// How large its input is at the most; what is reserved for it.
    #[serde(rename = "bound")]
    pub upper_bound: Tokens,
    /// Exchanges in the history that a compaction could take.
    pub exchanges: u32,
    /// How large a closing call probably is, with its tool results shortened where it would be too full. Zero where no
    /// closing call is prepared, and in journals of older releases.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[serde(rename = "shortened")]
    pub shortened_estimate: Tokens,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn is_zero(tokens: &Tokens) -> bool {
    *tokens == Tokens::ZERO
}

impl RequestSize {
    /// Returns what a request without an answer probably used, of whose answer so much had come.
    pub(crate) fn estimate_usage(&self, output: Tokens) -> Usage {
        let input = self.estimate.min(self.upper_bound);
        Usage { input, output, is_estimated: true, ..Usage::default() }
    }
}

/// Whether a tool call may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authorization {
    /// It may. This is the stored intent: once it is durable, the tool starts.
    #[serde(rename = "cleared")]
    Approved {
        /// How long the tool may take before the machine goes on without it.
        #[serde(rename = "limit")]
        timeout: TimeSpan,
        /// What a resume needs to know of the call, should the engine die while it runs.
        intent: CallIntent,
        /// Which rule allows the call.
        #[serde(rename = "grounds")]
        reason: Arc<str>,
    },
    /// It may not, and this is its answer.
    #[serde(rename = "refused")]
    Rejected {
        /// The answer.
        result: ToolResult,
    },
    /// The user aborts the run.
    Abort,
}

/// What a resume needs to know of a call that was started and never settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIntent {
    /// The call changes nothing; it may run again.
    #[serde(rename = "pure")]
    ReadOnly,
    /// The call replaces files; whether it happened can be told from their digests.
    Edit {
        /// The files, with their contents before and after.
        files: Arc<[FileDigests]>,
    },
    /// Whether the call happened cannot be told.
    Opaque,
    /// The call is a run of its own, which has an allowance. How far it came cannot be told from here.
    Delegated {
        /// The session in which it is written down, if it is.
        session: Option<Arc<str>>,
    },
}

/// One file that an edit replaces: SHA-256 digests in hexadecimal, none where there is no file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileDigests {
    /// The file, relative to the workspace.
    pub path: Arc<str>,
    /// Its content before.
    pub before: Option<Arc<str>>,
    /// Its content after.
    pub after: Option<Arc<str>>,
}

/// Whether a final answer counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// It does.
    Passed,
    /// A stop hook or a quality gate sends it back.
    SentBack {
        /// What the model is told.
        message: Arc<str>,
    },
    /// It does not satisfy its schema.
    #[serde(rename = "unfit")]
    SchemaViolation {
        /// What the model is told.
        message: Arc<str>,
    },
    /// It does, but the user has another message waiting.
    FollowUp {
        /// The message.
        message: Arc<str>,
    },
}

/// The kinds of events, as the statechart names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// [`Event::Tick`]
    Tick,
    /// [`Event::Interrupt`]
    Interrupt,
    /// [`Event::StoreFailed`]
    StoreFailed,
    /// [`Event::Defect`]
    InternalError,
    /// [`Event::PreparedCall`]
    Prepared,
    /// [`Event::Replied`]
    Replied,
    /// [`Event::Failed`]
    CallFailed,
    /// [`Event::AuthorizationOutcome`]
    Authorized,
    /// [`Event::Settled`]
    ToolCompleted,
    /// [`Event::Charged`]
    UsageReported,
    /// [`Event::Checked`]
    Checked,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Tick,
        Self::Interrupt,
        Self::StoreFailed,
        Self::InternalError,
        Self::Prepared,
        Self::Replied,
        Self::CallFailed,
        Self::Authorized,
        Self::ToolCompleted,
        Self::UsageReported,
        Self::Checked,
    ];

    /// Returns the name that the statechart uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tick => "TICK",
            Self::Interrupt => "INTERRUPT",
            Self::StoreFailed => "STORE_FAILED",
            Self::InternalError => "DEFECT",
            Self::Prepared => "PREPARED",
            Self::Replied => "REPLIED",
            Self::CallFailed => "FAILED",
            Self::Authorized => "VETTED",
            Self::ToolCompleted => "SETTLED",
            Self::UsageReported => "CHARGED",
            Self::Checked => "CHECKED",
        }
    }
}

impl Event {
    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Tick { .. } => EventKind::Tick,
            Self::Interrupt { .. } => EventKind::Interrupt,
            Self::StoreFailed { .. } => EventKind::StoreFailed,
            Self::InternalError { .. } => EventKind::InternalError,
            Self::Prepared { .. } => EventKind::Prepared,
            Self::Replied { .. } => EventKind::Replied,
            Self::CallFailed { .. } => EventKind::CallFailed,
            Self::Authorized { .. } => EventKind::Authorized,
            Self::ToolCompleted { .. } => EventKind::ToolCompleted,
            Self::UsageReported { .. } => EventKind::UsageReported,
            Self::Checked { .. } => EventKind::Checked,
        }
    }

    /// Returns the effect that the event is about; it is heard only while that effect is outstanding.
    pub fn effect_id(&self) -> Option<EffectId> {
        match self {
            Self::UsageReported { id, .. } => Some(*id),
            event => event.completed_effect(),
        }
    }

    /// Returns the effect that the event completes, if it is a completion.
    pub fn completed_effect(&self) -> Option<EffectId> {
        match self {
            Self::Tick { .. }
            | Self::Interrupt { .. }
            | Self::StoreFailed { .. }
            | Self::InternalError { .. }
            | Self::UsageReported { .. } => None,
            Self::Prepared { id, .. }
            | Self::Replied { id, .. }
            | Self::CallFailed { id, .. }
            | Self::Authorized { id, .. }
            | Self::ToolCompleted { id, .. }
            | Self::Checked { id, .. } => Some(*id),
        }
    }
}
