//! The results of queries. Their JSON is what `--json` prints.

use serde::{Serialize, Serializer};

use crate::journal::SessionId;
use crate::model::{FileAction, MicroUsd, RunTime, Tokens, word_enum};

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionRow {
    /// The session.
    pub session_id: SessionId,
    /// Its status.
    pub status: SessionStatus,
    /// Why its newest run ended; `None` if it has not ended.
    pub stop_reason: Option<String>,
    /// When it was created, in RFC 3339; `None` if its journal can't be read.
    pub created: Option<String>,
    /// When it was last written, in RFC 3339.
    pub modified: String,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: Tokens,
    /// Its cost in dollars; `None` if the model has no price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
    /// The model, as the user names it.
    pub model: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The workspace.
    pub workspace: Option<String>,
    /// The first line of its task that is not blank.
    pub prompt: Option<String>,
    /// The session that it was forked from or dispatched by.
    pub parent: Option<SessionId>,
    /// Records in its journal.
    pub records: u64,
    /// Bytes of its journal.
    pub bytes: u64,
    /// The damage of its journal, if any.
    pub problem: Option<String>,
    /// Whether records are missing because of that.
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
        /// A process runs it.
        Running = "running",
        /// Its process ended before the run did; it can be resumed.
        Unfinished = "unfinished",
        /// Its journal can't be read.
        Unreadable = "unreadable",
    }
}

/// The details of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionDetail {
    /// The list entry.
    #[serde(flatten)]
    pub session: SessionRow,
    /// The messages, oldest first, including those that were compacted.
    pub messages: Vec<MessageRow>,
    /// The model calls that brought a reply, oldest first.
    pub calls: Vec<CallRow>,
    /// The files that its tools changed, by name.
    pub files: Vec<FileRow>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageRow {
    /// Its record.
    pub seq: u64,
    /// When, in RFC 3339.
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

/// A model call with a reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallRow {
    /// The record of the reply.
    pub seq: u64,
    /// When, in RFC 3339.
    pub ts: String,
    /// The model.
    pub model: String,
    /// Its purpose: `agent`, `compaction` or `closing`.
    pub purpose: String,
    /// Tokens of the request.
    pub input_tokens: Tokens,
    /// Tokens of the reply.
    pub output_tokens: Tokens,
    /// The part of the request that was read from the provider's cache.
    pub cached_input_tokens: Tokens,
    /// Its cost in dollars, including lost attempts before it; `None` if the model has no price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
}

/// A file that tools changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRow {
    /// The file, relative to the workspace.
    pub path: String,
    /// The last action.
    pub action: FileAction,
    /// Lines added by all calls.
    pub added: u64,
    /// Lines removed by all calls.
    pub removed: u64,
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRow {
    /// Its record.
    pub seq: u64,
    /// The session time, in microseconds.
    pub at: RunTime,
    /// The wall-clock time, in RFC 3339.
    pub ts: String,
    /// The state before it.
    pub state: String,
    /// Its name.
    pub event: String,
}

/// A message that a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchHit {
    /// The session.
    pub session_id: SessionId,
    /// The record.
    pub seq: u64,
    /// When, in RFC 3339.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// The day, in UTC, as `2026-11-22`.
    pub day: String,
    /// The model.
    pub model: String,
    /// The purpose: `agent`, `compaction`, `closing`, `eval` or `subagent`.
    pub purpose: String,
    /// Model calls with a reply.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: Tokens,
    /// Tokens of the replies.
    pub output_tokens: Tokens,
    /// The cost in dollars; `None` if no call had a price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
}

/// Serializes an amount in dollars.
#[allow(clippy::ref_option)] // asked for by serde
fn serialize_dollars<S: Serializer>(money: &Option<MicroUsd>, to: S) -> Result<S::Ok, S::Error> {
    money.map(MicroUsd::as_dollars).serialize(to)
}
