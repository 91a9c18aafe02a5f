//! What there is to know of a run before it begins.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::machine::{Bill, Charge, Purpose, Status, StopReason};

/// What there is to know of a run before it begins, apart from its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The session.
    pub session_id: Arc<str>,
    /// The agent.
    pub agent: Arc<str>,
    /// The model, as `provider/name`.
    pub model: Arc<str>,
    /// The workspace.
    pub workspace: Arc<str>,
    /// The task, as the user gave it.
    pub task: Arc<str>,
    /// How commands are confined, where that is worth telling.
    pub sandbox: Option<Arc<str>>,
    /// The time of day at which it begins.
    pub began: Timestamp,
    /// What its calls with tools are charged to.
    pub source: Source,
    /// Whether its answer has to be JSON that satisfies a schema.
    pub structured: bool,
    /// The exit code of a partial run, where the user wants another one.
    pub exit_on_partial: Option<u8>,
    /// What its session has used and done before.
    pub earlier: Earlier,
}

/// What a session has used and done before a run goes on with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// What it has used.
    pub bill: Bill,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls, those of its sub-agents included.
    pub llm_calls: u32,
}

/// What a model call is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The task itself.
    Agent,
    /// The last word after a watchdog.
    Closing,
    /// Summaries of older parts of the conversation.
    Compaction,
    /// The evaluation of an answer.
    Eval,
    /// The plan that goes before a task.
    Plan,
    /// The sub-agents of the task.
    Subagent,
}

impl About {
    /// Returns the exit code of a run that ended for this reason.
    pub fn exit_code(&self, reason: StopReason) -> u8 {
        match (self.exit_on_partial, reason.status(), reason) {
            // Who interrupts a run wants the exit code of the signal.
            (Some(code), Status::Partial, reason)
                if !matches!(reason, StopReason::UserInterrupt(_)) =>
            {
                code
            }
            (_, _, reason) => reason.exit_code(),
        }
    }

    /// Returns what was charged before the run, and to what.
    pub fn charged_earlier(&self) -> impl Iterator<Item = (Source, Charge)> {
        let Bill { agent, closing, compaction, subagents, .. } = self.earlier.bill;
        let charges = [
            (self.charged_to(Purpose::Agent), agent),
            (self.charged_to(Purpose::Closing), closing),
            (self.charged_to(Purpose::Compaction), compaction),
            (Source::Subagent, subagents),
        ];
        charges.into_iter().filter(|(_, charge)| *charge != Charge::default())
    }

    /// Returns what a call of the run is charged to: in an evaluation and in a sub-agent, all of it to that.
    pub fn charged_to(&self, purpose: Purpose) -> Source {
        match (self.source, purpose) {
            (Source::Eval | Source::Subagent, _) | (_, Purpose::Agent) => self.source,
            (_, Purpose::Closing) => Source::Closing,
            (_, Purpose::Compaction) => Source::Compaction,
        }
    }
}

impl Source {
    /// Returns the name that users see; it never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Closing => "closing",
            Self::Compaction => "compaction",
            Self::Eval => "eval",
            Self::Plan => "plan",
            Self::Subagent => "subagent",
        }
    }
}
