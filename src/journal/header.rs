//! The first record of a session.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ReadOnlyReason;
use super::implied_reads;
use super::session_id::SessionId;
use super::workspace_identity::WorkspaceIdentity;
use crate::machine::{
    Conversation, ConversationChange, Done, Fingerprint, Machine, MachineOutput, Resumption,
    StopReason,
};
use crate::port::ToolSpec;
use crate::types::{CallId, ConversationItem, RunRules, RunTime};

/// The journal format that this release writes. It is increased when older releases must not ignore a change.
pub const JOURNAL_FORMAT: u32 = 1;

/// The first record of a session: its setup, rules, history and task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// The format of the journal.
    pub format: u32,
    /// The version of the fingerprints' input; see [`Fingerprint::VERSION`].
    #[serde(rename = "marks")]
    pub fingerprint_version: u32,
    /// Whether each resume and each end has the hash of the records before it. The first releases wrote no hashes.
    #[serde(default, rename = "chains", skip_serializing_if = "std::ops::Not::not")]
    pub has_hashes: bool,
    /// The session.
    pub session: SessionId,
    /// The program that created it, with its version.
    pub program: String,
    /// The time of its creation.
    pub created: WallTime,
    /// Its origin, if it is a fork or was imported.
    #[serde(default, rename = "lineage", skip_serializing_if = "Option::is_none")]
    pub ancestry: Option<Ancestry>,
    /// The last imported record, if the session was imported: the origin of the records up to it is unknown.
    #[serde(default, rename = "imported", skip_serializing_if = "Option::is_none")]
    pub imported_up_to: Option<u64>,
    /// The folder in which the session was imported. Earlier releases wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_into: Option<String>,
    /// The session that dispatched it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_by: Option<ParentCall>,
    /// The setup.
    #[serde(rename = "setting")]
    pub setup: SessionSetup,
    /// The rules of the run.
    pub rules: RunRules,
    /// The bytes of the system prompt and the tools, for the estimate of the context size.
    #[serde(rename = "fixed")]
    pub fixed_bytes: u64,
    /// The conversation before the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ConversationItem>,
    /// The task.
    pub task: ConversationItem,
}

/// The setup of a session, which may change with each resume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSetup {
    /// The model, as the user names it.
    pub model: Arc<str>,
    /// The agent.
    pub agent: Arc<str>,
    /// The workspace.
    pub workspace: WorkspaceIdentity,
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools that the model can call.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema of the final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// The settings that the bytes of requests depend on; null if they are unknown.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub requests: Value,
    /// Further options of the run, which a resume uses.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// The origin of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestry {
    /// The session from which the first records were copied.
    pub session: SessionId,
    /// The last of the copied records.
    pub seq: u64,
    /// The copied record whose tool result was replaced, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
    /// Whether the session has its own files, in the workspace of its header. The workspace in the copied records then
    /// doesn't count.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_own_files: bool,
    /// Whether the session was created for a comparison with its original.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_lane: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn is_false(value: &bool) -> bool {
    !value
}

impl Ancestry {
    /// Returns whether the header's workspace replaces the workspace of this record.
    pub(super) fn moves(&self, seq: u64) -> bool {
        self.has_own_files && seq <= self.seq
    }
}

/// A session that dispatched another one to work on a part of its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentCall {
    /// The session.
    pub session: SessionId,
    /// Its tool call; [`EVALUATION`](Self::EVALUATION) if the other session evaluates its answer.
    pub call: CallId,
}

impl ParentCall {
    /// The id that replaces a tool call's id if the dispatched session evaluates the answer.
    pub const EVALUATION: &str = "evaluation";

    /// Creates the parent of a session that evaluates the answer of this session.
    pub fn evaluation(session: SessionId) -> Self {
        Self { session, call: Self::EVALUATION.into() }
    }

    /// Returns whether the dispatched session evaluates an answer.
    pub fn is_evaluation(&self) -> bool {
        self.call.as_str() == Self::EVALUATION
    }
}

/// The record of a resume: after a crash, an interrupt or the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedRecord {
    /// The setup from now on; `None` if unchanged.
    #[serde(default, rename = "setting", skip_serializing_if = "Option::is_none")]
    pub setup: Option<SessionSetup>,
    /// The parameters with which the machine continues.
    #[serde(flatten)]
    pub resumption: Resumption,
}

/// The record of a run's end. A second record follows if the evaluation of the answer decides otherwise; the newest one
/// counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRecord {
    /// `success`, `partial` or `failed`.
    pub status: String,
    /// The name of the stop reason.
    pub reason: String,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls.
    #[serde(rename = "calls")]
    pub model_calls: u32,
    /// The cost in micro-dollars.
    pub cost: u64,
    /// Input and output tokens.
    pub tokens: u64,
}

/// A wall-clock time, for display. Records are ordered by their sequence numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(Timestamp);

impl EndedRecord {
    /// Creates the record of a run's end, with its own stop reason or that of the evaluation of its answer.
    pub fn new(done: &Done, reason: StopReason) -> Self {
        Self {
            status: reason.status().as_str().to_owned(),
            reason: reason.name().to_owned(),
            steps: done.run.steps,
            model_calls: done.run.model_calls,
            cost: done.run.used.cost.0,
            tokens: done.run.used.tokens.0,
        }
    }
}

impl SessionHeader {
    /// Creates the header of a new session.
    pub fn new(
        session: SessionId,
        now: SystemTime,
        setup: SessionSetup,
        rules: RunRules,
        task: ConversationItem,
    ) -> Self {
        Self {
            format: JOURNAL_FORMAT,
            fingerprint_version: Fingerprint::VERSION,
            has_hashes: true,
            session,
            program: concat!("architect ", env!("CARGO_PKG_VERSION")).to_owned(),
            created: now.into(),
            ancestry: None,
            imported_up_to: None,
            imported_into: None,
            dispatched_by: None,
            setup,
            rules,
            fixed_bytes: 0,
            history: Vec::new(),
            task,
        }
    }

    /// Returns whether a record was imported with the session.
    pub fn is_imported(&self, seq: u64) -> bool {
        self.imported_up_to.is_some_and(|last| seq <= last)
    }

    /// Returns the reason why the session can only be read, if a newer release created it.
    pub(super) fn newer_format(&self) -> Option<ReadOnlyReason> {
        let format = self.format;
        (format > JOURNAL_FORMAT).then_some(ReadOnlyReason::NewerFormat { format })
    }

    /// Starts the machine.
    pub fn start_machine(&self) -> (Machine, MachineOutput) {
        let mut conversation = Conversation::new(self.fixed_bytes);
        for item in &self.history {
            let item = implied_reads::complete_item(item);
            conversation.apply(ConversationChange::Append { item });
        }
        Machine::start(self.rules.clone(), conversation, self.task.clone())
    }
}

impl WallTime {
    /// Returns the time that is later by this duration.
    pub fn plus(self, time: RunTime) -> Self {
        let later = self.0.saturating_add(Duration::from_micros(time.0));
        Self(later.unwrap_or(Timestamp::MAX))
    }

    /// Returns the time that is earlier by this duration.
    pub fn minus(self, time: RunTime) -> Self {
        let earlier = self.0.saturating_sub(Duration::from_micros(time.0));
        Self(earlier.unwrap_or(Timestamp::MIN))
    }

    /// Returns the microseconds since 1970.
    pub fn unix_micros(self) -> i64 {
        self.0.as_microsecond()
    }
}

impl From<SystemTime> for WallTime {
    /// A clock outside the years -9999 to 9999 counts as 1970.
    fn from(time: SystemTime) -> Self {
        let stamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        Self(Timestamp::from_microsecond(stamp.as_microsecond()).unwrap_or(stamp))
    }
}

impl std::fmt::Display for WallTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_time_of_day_is_read_back_as_it_was_written() {
        let wall = WallTime::from(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456));
        let text = serde_json::to_string(&wall).unwrap();
        assert_eq!(text, r#""2023-11-14T22:13:20.123456Z""#);
        assert_eq!(serde_json::from_str::<WallTime>(&text).unwrap(), wall);
        assert_eq!(wall.plus(RunTime(44)).to_string(), "2023-11-14T22:13:20.1235Z");
        assert_eq!(wall.plus(RunTime(44)).minus(RunTime(44)), wall);
    }

    #[test]
    fn absurd_times_don_t_overflow() {
        let wall = WallTime::from(UNIX_EPOCH);
        assert!(wall.plus(RunTime(u64::MAX)) > wall);
        assert!(wall.minus(RunTime(u64::MAX)) < wall);
    }
}
