//! The results of queries, as `--json` prints them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::journal::{
    EndedRecord, ListedSession, SessionHeader, SessionId, SessionSetup, WallTime,
};
use crate::types::{
    ConversationItem, FaultKind, FileAction, FilePath, MicroUsd, Tokens, ToolStatus, WordEnum as _,
    word_enum,
};

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    /// The session.
    pub session_id: SessionId,
    /// Its status.
    pub status: SessionStatus,
    /// The stop reason of its newest run; `None` if it has not ended.
    pub stop_reason: Option<String>,
    /// The time of its creation, in RFC 3339; `None` if its journal can't be read.
    pub created: Option<String>,
    /// The time of the last write, in RFC 3339.
    pub modified: String,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls.
    pub llm_calls: u32,
    /// The number of input and output tokens.
    pub tokens: Tokens,
    /// Its cost in dollars; `None` if the model has no price.
    #[serde(with = "dollars")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<MicroUsd>,
    /// The model, as the user names it.
    pub model: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The workspace.
    pub workspace: Option<String>,
    /// The first line of its task that is not blank.
    pub prompt: Option<String>,
    /// The session from which it was forked or which dispatched it.
    pub parent: Option<SessionId>,
    /// The number of records in its journal.
    pub records: u64,
    /// The size of its journal in bytes.
    pub bytes: u64,
    /// The damage of its journal, if any.
    pub problem: Option<String>,
    /// Whether records are missing because of the damage.
    pub damaged: bool,
}

word_enum! {
    /// The status of a session.
    pub enum SessionStatus {
        /// The task was answered.
        Success = "success",
        /// The run ended before the model declared it done.
        Partial = "partial",
        /// The run failed.
        Failed = "failed",
        /// A process runs the session.
        Running = "running",
        /// Its process ended before the run did. The session can be resumed.
        Unfinished = "unfinished",
        /// Its journal can't be read.
        Unreadable = "unreadable",
    }
}

/// The details of a session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionDetail {
    /// The list entry.
    #[serde(flatten)]
    pub session: SessionRow,
    /// The reason why its newest run did not succeed; `None` if it did, or if the reason is not recorded.
    pub error: Option<String>,
    /// The messages, oldest first, including compacted ones.
    pub messages: Vec<MessageRow>,
    /// The model calls that were answered or charged, oldest first.
    pub calls: Vec<CallRow>,
    /// The files that its tools changed, by name.
    pub files: Vec<FileRow>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MessageRow {
    /// The sequence number of its record.
    pub seq: u64,
    /// The time, in RFC 3339.
    pub ts: String,
    /// Its role.
    pub role: MessageRole,
    /// The tool, or the origin of a message to the model.
    pub name: Option<String>,
    /// The text; for a tool call, its arguments.
    pub text: String,
}

word_enum! {
    /// The role of a message.
    pub enum MessageRole {
        /// A message to the model.
        User = "user",
        /// The model.
        Assistant = "assistant",
        /// A tool call of the model.
        ToolCall = "tool_call",
        /// A tool result.
        ToolResult = "tool_result",
        /// The model's summary of older messages.
        Summary = "summary",
        /// The model, in a reply that was cancelled and discarded.
        Partial = "partial",
    }
}

/// A model call that was answered, or charged without a reply.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallRow {
    /// The record of the reply or, without one, of the charge.
    pub seq: u64,
    /// The time, in RFC 3339.
    pub ts: String,
    /// The model.
    pub model: String,
    /// Its purpose: `agent`, `compaction` or `closing`.
    pub purpose: String,
    /// Tokens of the request; an estimate without a reply.
    pub input_tokens: Tokens,
    /// Tokens of the reply, or of the part that had arrived.
    pub output_tokens: Tokens,
    /// The part of the request that was read from the provider's cache.
    pub cached_input_tokens: Tokens,
    /// Its cost in dollars; `None` if the model has no price.
    #[serde(with = "dollars")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<MicroUsd>,
    /// The attempt, counted from one.
    #[serde(skip)]
    pub(super) attempt: u32,
    /// The step that the reply began; `None` if the reply has no tool call.
    #[serde(skip)]
    pub(super) step: Option<u32>,
    /// The duration in microseconds of session time; `None` if its start is in no record.
    #[serde(skip)]
    pub(super) micros: Option<u64>,
}

/// A model call that failed.
pub(super) struct FailureRow {
    /// The record of the failure.
    pub(super) seq: u64,
    /// The time, in RFC 3339.
    pub(super) ts: String,
    /// The model.
    pub(super) model: String,
    /// The kind of the fault.
    pub(super) kind: FaultKind,
    /// The attempt, counted from one.
    pub(super) attempt: u32,
}

/// A tool call that has ended.
pub(super) struct ToolRow {
    /// The record that ended it.
    pub(super) seq: u64,
    /// The time, in RFC 3339.
    pub(super) ts: String,
    /// The tool.
    pub(super) name: Arc<str>,
    /// The outcome of the call.
    pub(super) status: ToolStatus,
    /// The running time in microseconds of session time; `None` if it did not run.
    pub(super) micros: Option<u64>,
}

/// The time of a session in one state.
#[derive(Default)]
pub(super) struct StateRow {
    /// The number of times that the state was entered.
    pub(super) visits: u64,
    /// The total time in the state, in microseconds of session time.
    pub(super) micros: u64,
}

/// A file that tools have changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileRow {
    /// The file, relative to the workspace. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[schemars(with = "String")]
    pub path: FilePath,
    /// The last action.
    pub action: FileAction,
    /// The number of lines that all calls added.
    pub added: u64,
    /// The number of lines that all calls removed.
    pub removed: u64,
}

/// A message that a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchHit {
    /// The session.
    pub session_id: SessionId,
    /// The record.
    pub seq: u64,
    /// The time, in RFC 3339.
    pub ts: String,
    /// Its role.
    pub role: MessageRole,
    /// The tool, or the origin of a message to the model.
    pub name: Option<String>,
    /// The matching words with their surroundings.
    pub snippet: String,
    /// The first line of the session's task.
    pub prompt: Option<String>,
}

/// The cost of a day, a model and a purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// The day, in UTC, as `2026-11-22`.
    pub day: String,
    /// The model.
    pub model: String,
    /// The purpose: `agent`, `compaction`, `closing`, `eval` or `subagent`.
    pub purpose: String,
    /// The number of answered or charged model calls. A cut-off attempt counts, too.
    pub llm_calls: u64,
    /// The number of tokens of the requests.
    pub input_tokens: Tokens,
    /// The number of tokens of the replies.
    pub output_tokens: Tokens,
    /// The cost in dollars; `None` if no call had a price.
    #[serde(with = "dollars")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<MicroUsd>,
}

/// The maximum length of a task's title, in characters.
const MAX_PROMPT_CHARS: usize = 200;

impl SessionRow {
    /// Creates the entry of an unreadable journal.
    pub(super) fn unreadable(listed: &ListedSession, problem: String) -> Self {
        Self {
            session_id: listed.session,
            status: SessionStatus::Unreadable,
            stop_reason: None,
            created: None,
            modified: WallTime::from(listed.modified).to_string(),
            steps: 0,
            llm_calls: 0,
            tokens: Tokens::ZERO,
            cost: None,
            model: None,
            agent: None,
            workspace: None,
            prompt: None,
            parent: None,
            records: 0,
            bytes: listed.bytes,
            problem: Some(problem),
            damaged: true,
        }
    }

    /// Creates the entry of a session, without its totals. `ended` is the end of its newest run, if it has ended.
    pub(super) fn new(
        listed: &ListedSession,
        header: &SessionHeader,
        setup: &SessionSetup,
        ended: Option<&EndedRecord>,
    ) -> Self {
        let status = ended.map_or(Some(SessionStatus::Unfinished), |ended| {
            SessionStatus::from_word(&ended.status)
        });
        let task = match &header.task {
            ConversationItem::User(message) => &*message.text,
            _ => "",
        };
        let title = task.lines().map(str::trim).find(|line| !line.is_empty());
        let dispatcher = header.dispatched_by.as_ref().map(|dispatcher| dispatcher.session);
        Self {
            status: status.unwrap_or(SessionStatus::Failed),
            stop_reason: ended.map(|ended| ended.reason.clone()),
            created: Some(header.created.to_string()),
            model: Some(setup.model.to_string()),
            agent: Some(setup.agent.to_string()),
            workspace: Some(setup.workspace.root.to_string_lossy().into_owned()),
            prompt: title.map(|line| line.chars().take(MAX_PROMPT_CHARS).collect()),
            parent: header.ancestry.map(|ancestry| ancestry.session).or(dispatcher),
            problem: None,
            damaged: false,
            ..Self::unreadable(listed, String::new())
        }
    }
}

impl From<SessionRow> for SessionDetail {
    /// Returns the details of a session without known content.
    fn from(session: SessionRow) -> Self {
        Self { session, error: None, messages: Vec::new(), calls: Vec::new(), files: Vec::new() }
    }
}

/// Amounts of money in dollars.
#[allow(clippy::ref_option)] // asked for by serde
mod dollars {
    use super::{Deserialize, Deserializer, MicroUsd, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        money: &Option<MicroUsd>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        money.map(MicroUsd::as_dollars).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<MicroUsd>, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.and_then(MicroUsd::from_dollars))
    }
}
