//! The events of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::effect::EffectKind;
use crate::types::{
    CallAccess, EffectId, Fault, FilePath, MicroUsd, Reply, RunTime, Signal, TimeSpan, Tokens,
    ToolResult, Usage, UserMessage, word_enum,
};

/// An event of a run. Events are the machine's only source of information about its environment.
///
/// A completion carries the id of its effect. If that effect isn't pending, the event changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Time has passed.
    Tick {
        /// The current time.
        now: RunTime,
    },
    /// The run is asked to stop.
    Interrupt {
        /// The signal.
        signal: Signal,
    },
    /// The journal can't be written.
    StoreFailed {
        /// The error.
        error: Arc<str>,
    },
    /// An error in this program: a panic, or an effect that never completed.
    #[serde(rename = "defect")]
    InternalError {
        /// The error.
        error: Arc<str>,
    },
    /// The next model call is prepared.
    Prepared {
        /// The effect that this completes.
        id: EffectId,
        /// The size of the call.
        #[serde(rename = "facts")]
        size: RequestSize,
        /// Messages for the model before the call: steering messages, and messages of hooks.
        messages: Arc<[UserMessage]>,
    },
    /// A model call has a complete reply.
    Replied {
        /// The effect that this completes.
        id: EffectId,
        /// The reply.
        reply: Reply,
        /// The files that each of its tool calls touches, in call order.
        access: Arc<[CallAccess]>,
    },
    /// A model call failed. No part of its reply counts.
    #[serde(rename = "failed")]
    CallFailed {
        /// The effect that this completes.
        id: EffectId,
        /// The fault.
        fault: Fault,
    },
    /// The authorization of a tool call was decided by its arguments, the rules, its hooks and, if required, the user.
    #[serde(rename = "vetted")]
    Authorized {
        /// The effect that this completes.
        id: EffectId,
        /// The decision.
        #[serde(rename = "verdict")]
        authorization: Authorization,
    },
    /// A tool has ended.
    #[serde(rename = "settled")]
    ToolCompleted {
        /// The effect that this completes.
        id: EffectId,
        /// The result.
        result: ToolResult,
    },
    /// A command that a call has left running has ended, or was never started.
    CommandEnded {
        /// The effect that this completes.
        id: EffectId,
    },
    /// A running tool has used a part of its budget share. It keeps running.
    #[serde(rename = "charged")]
    UsageReported {
        /// The running effect.
        id: EffectId,
        /// The usage of one model call.
        usage: Usage,
        /// Its cost, or zero if the model has no price.
        cost: MicroUsd,
    },
    /// A final answer was checked.
    Checked {
        /// The effect that this completes.
        id: EffectId,
        /// The result of the check.
        #[serde(rename = "check")]
        result: CheckResult,
    },
}

/// The size of the next model call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestSize {
    /// The estimated input tokens.
    #[serde(rename = "context")]
    pub estimate: Tokens,
    /// The upper bound of the input tokens, which is reserved.
    #[serde(rename = "bound")]
    pub upper_bound: Tokens,
    /// The number of exchanges that a compaction could replace.
    pub exchanges: u32,
    /// The estimated input tokens of a closing call, with its tool results shortened if necessary. Zero if no closing call is
    /// prepared, and in journals of older releases.
    #[serde(default, rename = "shortened", skip_serializing_if = "Tokens::is_zero")]
    pub shortened_estimate: Tokens,
}

impl RequestSize {
    /// Returns the estimated usage of a request without a complete reply, with this received output.
    pub(crate) fn estimate_usage(&self, output: Tokens) -> Usage {
        let input = self.estimate.min(self.upper_bound);
        Usage { input, output, is_estimated: true, ..Usage::default() }
    }
}

/// The decision on a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authorization {
    /// The call may run. This is the stored intent: the tool starts once it is durable.
    #[serde(rename = "cleared")]
    Approved {
        /// The time after which the machine continues without the tool's result.
        #[serde(rename = "limit")]
        timeout: TimeSpan,
        /// The information that a resume needs about the call if the process ends while it runs.
        intent: CallIntent,
        /// The rule that allows the call.
        #[serde(rename = "grounds")]
        reason: Arc<str>,
    },
    /// The call may not run.
    #[serde(rename = "refused")]
    Rejected {
        /// The result for the model.
        result: ToolResult,
    },
    /// The user aborts the run.
    Abort,
}

/// The reason for the approval of a call that is proved to only read. It is stored, so that a replay knows it, too.
pub const READS_ONLY: &str = "allowed: it only reads";

impl Authorization {
    /// Returns whether the call may run, and changes nothing in the workspace.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Approved { intent, reason, .. } => {
                *intent == CallIntent::ReadOnly || **reason == *READS_ONLY
            }
            Self::Rejected { .. } | Self::Abort => false,
        }
    }
}

/// The information that a resume needs about a call that started and has no result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIntent {
    /// The call changes nothing; it may run again.
    #[serde(rename = "pure")]
    ReadOnly,
    /// The call replaces files. Their digests show whether it was completed.
    Edit {
        /// The files.
        files: Arc<[FileDigests]>,
    },
    /// Nothing shows whether the call had an effect.
    Opaque,
    /// The call starts a command that continues after it, until the end of the run. Nothing shows its progress.
    Background {
        /// The command line.
        command: Arc<str>,
        /// Whether an answer has to wait for the end of the command. `None` in journals of older releases, which have
        /// no events for its end: the machine doesn't track such a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<bool>,
    },
    /// The call is a run of its own, with a budget share. Nothing here shows its progress.
    Delegated {
        /// The session of that run, if it is stored.
        session: Option<Arc<str>>,
        /// The worktree of that run, if it is not the workspace. Its changes are applied when the run is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worktree: Option<Arc<str>>,
    },
}

impl CallIntent {
    /// Returns the worktree of a delegated run.
    pub fn worktree(&self) -> Option<&Arc<str>> {
        match self {
            Self::Delegated { worktree, .. } => worktree.as_ref(),
            Self::ReadOnly | Self::Edit { .. } | Self::Opaque | Self::Background { .. } => None,
        }
    }

    /// Returns whether a call with this access may change the workspace.
    pub fn may_change(&self, access: &CallAccess) -> bool {
        match self {
            Self::ReadOnly => false,
            // Delegated calls with worktrees run concurrently, and their access doesn't show their changes.
            Self::Delegated { worktree: Some(_), .. } => true,
            Self::Edit { .. }
            | Self::Opaque
            | Self::Background { .. }
            | Self::Delegated { worktree: None, .. } => !matches!(access, CallAccess::Read(_)),
        }
    }
}

/// A file that an edit replaces, with SHA-256 digests in hexadecimal. `None` means that there is no file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileDigests {
    /// The file, relative to the workspace.
    pub path: FilePath,
    /// The digest before the edit.
    pub before: Option<Arc<str>>,
    /// The digest after the edit.
    pub after: Option<Arc<str>>,
}

/// The result of the check of a final answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The answer is accepted.
    Passed,
    /// A stop hook or a quality gate rejects the answer.
    SentBack {
        /// The message for the model.
        message: Arc<str>,
    },
    /// The answer doesn't match its schema.
    #[serde(rename = "unfit")]
    SchemaViolation {
        /// The message for the model.
        message: Arc<str>,
    },
    /// The answer is accepted, but the user has queued a follow-up message.
    FollowUp {
        /// The message.
        message: Arc<str>,
    },
}

word_enum! {
    /// The kinds of events.
    pub enum EventKind {
        /// [`Event::Tick`]
        Tick = "TICK",
        /// [`Event::Interrupt`]
        Interrupt = "INTERRUPT",
        /// [`Event::StoreFailed`]
        StoreFailed = "STORE_FAILED",
        /// [`Event::InternalError`]
        InternalError = "DEFECT",
        /// [`Event::Prepared`]
        Prepared = "PREPARED",
        /// [`Event::Replied`]
        Replied = "REPLIED",
        /// [`Event::CallFailed`]
        CallFailed = "FAILED",
        /// [`Event::Authorized`]
        Authorized = "VETTED",
        /// [`Event::ToolCompleted`]
        ToolCompleted = "SETTLED",
        /// [`Event::CommandEnded`]
        CommandEnded = "COMMAND_ENDED",
        /// [`Event::UsageReported`]
        UsageReported = "CHARGED",
        /// [`Event::Checked`]
        Checked = "CHECKED",
    }
}

impl EventKind {
    /// Returns whether an effect of that kind can cause events of this kind.
    pub(crate) fn is_caused_by(self, effect: EffectKind) -> bool {
        match self {
            Self::Prepared => effect == EffectKind::Prepare,
            Self::Replied | Self::CallFailed => effect == EffectKind::CallModel,
            Self::Authorized => effect == EffectKind::Authorize,
            Self::ToolCompleted => matches!(effect, EffectKind::RunTool | EffectKind::RunSubagent),
            Self::CommandEnded => effect == EffectKind::RunCommand,
            Self::UsageReported => effect == EffectKind::RunSubagent,
            Self::Checked => effect == EffectKind::CheckAnswer,
            Self::Tick | Self::Interrupt | Self::StoreFailed | Self::InternalError => false,
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
            Self::CommandEnded { .. } => EventKind::CommandEnded,
            Self::UsageReported { .. } => EventKind::UsageReported,
            Self::Checked { .. } => EventKind::Checked,
        }
    }

    /// Returns the effect that the event belongs to. The event counts only while that effect is pending.
    pub fn effect_id(&self) -> Option<EffectId> {
        match self {
            Self::Tick { .. }
            | Self::Interrupt { .. }
            | Self::StoreFailed { .. }
            | Self::InternalError { .. } => None,
            Self::Prepared { id, .. }
            | Self::Replied { id, .. }
            | Self::CallFailed { id, .. }
            | Self::Authorized { id, .. }
            | Self::ToolCompleted { id, .. }
            | Self::CommandEnded { id }
            | Self::UsageReported { id, .. }
            | Self::Checked { id, .. } => Some(*id),
        }
    }

    /// Returns the effect that the event completes, if it completes one.
    pub fn completed_effect(&self) -> Option<EffectId> {
        self.effect_id().filter(|_| !matches!(self, Self::UsageReported { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_only_reads_by_its_intent_or_by_the_reason_of_its_approval() {
        let reads = |intent, reason: &str| {
            let timeout = TimeSpan::from_secs(1);
            Authorization::Approved { timeout, intent, reason: reason.into() }.is_read_only()
        };
        assert!(reads(CallIntent::ReadOnly, "allowed"));
        assert!(reads(CallIntent::Opaque, READS_ONLY));
        assert!(!reads(CallIntent::Opaque, "allowed"));
        assert!(!Authorization::Abort.is_read_only());
    }

    #[test]
    fn a_call_may_change_the_workspace_unless_it_reads() {
        let delegated = |worktree| CallIntent::Delegated { session: None, worktree };
        let apart = delegated(Some("tree".into()));
        assert_eq!(apart.worktree().map(|tree| &**tree), Some("tree"));
        let may_change = |intent: &CallIntent| {
            [CallAccess::read("a"), CallAccess::Exclusive].map(|access| intent.may_change(&access))
        };
        assert_eq!(may_change(&CallIntent::ReadOnly), [false, false]);
        assert_eq!(may_change(&CallIntent::Opaque), [false, true]);
        assert_eq!(may_change(&delegated(None)), [false, true]);
        assert_eq!(may_change(&apart), [true, true]);
    }

    #[test]
    fn what_is_sent_without_a_reply_is_an_estimate() {
        let size = |estimate, upper_bound| RequestSize {
            estimate: Tokens(estimate),
            upper_bound: Tokens(upper_bound),
            ..RequestSize::default()
        };
        let usage = |input| Usage {
            input: Tokens(input),
            output: Tokens(3),
            is_estimated: true,
            ..Usage::default()
        };
        assert_eq!(size(5, 9).estimate_usage(Tokens(3)), usage(5));
        assert_eq!(size(9, 5).estimate_usage(Tokens(3)), usage(5));
    }

    #[test]
    fn a_report_of_usage_completes_no_effect() {
        let id = EffectId(7);
        let event = Event::UsageReported { id, usage: Usage::default(), cost: MicroUsd::ZERO };
        assert_eq!((event.effect_id(), event.completed_effect()), (Some(id), None));
        assert_eq!(Event::CommandEnded { id }.completed_effect(), Some(id));
    }
}
