//! What the index answers. The JSON of these types is what `--json` prints.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::journal::SessionId;
use crate::model::{FileAction, MicroUsd, RunTime, Tokens};

/// One session, in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionRow {
    /// The session.
    pub session_id: SessionId,
    /// How it stands.
    pub status: SessionStatus,
    /// Why its newest run ended; none while that has not ended.
    pub stop_reason: Option<String>,
    /// When it was begun, in RFC 3339; none when its journal can't be read.
    pub created: Option<String>,
    /// When it was written to last, in RFC 3339.
    pub modified: String,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: Tokens,
    /// What it cost, in dollars; none when the model has no price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
    /// The model, as the user names it.
    pub model: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The folder that it works in.
    pub workspace: Option<String>,
    /// The first line of its task that says something.
    pub prompt: Option<String>,
    /// The session that it was forked from, or sent by.
    pub parent: Option<SessionId>,
    /// Records in its journal.
    pub records: u64,
    /// Bytes of its journal.
    pub bytes: u64,
    /// What is wrong with its journal, when something is.
    pub problem: Option<String>,
    /// Whether records are missing here because of that.
    pub damaged: bool,
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// The task was answered.
    Success,
    /// The run ended before the model said that it was done.
    Partial,
    /// The run could not go on.
    Failed,
    /// A process runs it.
    Running,
    /// Its process is gone before its end; it can be gone on with.
    Unfinished,
    /// Its journal can't be read.
    Unreadable,
}

/// All that the index knows of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionDetail {
    /// The session, in short.
    #[serde(flatten)]
    pub session: SessionRow,
    /// What was said, oldest first; compactions have taken nothing away.
    pub messages: Vec<MessageRow>,
    /// The model calls that brought a reply, oldest first.
    pub calls: Vec<CallRow>,
    /// The files that its tools have changed, by name.
    pub files: Vec<FileRow>,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessageRow {
    /// The record that says it.
    pub seq: u64,
    /// When, in RFC 3339.
    pub ts: String,
    /// Who says it.
    pub role: MessageRole,
    /// The tool, or where a message to the model comes from.
    pub name: Option<String>,
    /// What is said; the arguments, when it is a tool call.
    pub text: String,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// Somebody tells the model something.
    User,
    /// The model.
    Assistant,
    /// The model, when it calls a tool.
    ToolCall,
    /// A tool.
    ToolResult,
    /// The model, when it sums up the older part of the conversation.
    Summary,
    /// The model, in a reply that was cancelled and counts for nothing.
    Partial,
}

/// A model call that brought a reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallRow {
    /// The record of the reply.
    pub seq: u64,
    /// When, in RFC 3339.
    pub ts: String,
    /// The model.
    pub model: String,
    /// What it was for: `agent`, `compaction` or `closing`.
    pub purpose: String,
    /// Tokens of the request.
    pub input_tokens: Tokens,
    /// Tokens of the reply.
    pub output_tokens: Tokens,
    /// The part of the request that was read from the provider's cache.
    pub cached_input_tokens: Tokens,
    /// What it cost, in dollars, with the lost attempts before it; none when the model has no price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
}

/// A file that tools have changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileRow {
    /// The file, relative to the workspace.
    pub path: String,
    /// What was done to it last.
    pub action: FileAction,
    /// Lines that were added, by all calls.
    pub added: u64,
    /// Lines that were removed, by all calls.
    pub removed: u64,
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRow {
    /// Its record.
    pub seq: u64,
    /// When it came: microseconds in the time of the session.
    pub at: RunTime,
    /// When it came, in RFC 3339.
    pub ts: String,
    /// The state that it met.
    pub state: String,
    /// Its name.
    pub event: String,
}

/// A message that a search has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchHit {
    /// The session.
    pub session_id: SessionId,
    /// The record.
    pub seq: u64,
    /// When, in RFC 3339.
    pub ts: String,
    /// Who says it.
    pub role: MessageRole,
    /// The tool, or where a message to the model comes from.
    pub name: Option<String>,
    /// The words with what stands around them.
    pub snippet: String,
    /// The first line of the session's task.
    pub prompt: Option<String>,
}

/// What was spent on a day, on a model, for a purpose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// The day, in UTC, as `2026-11-22`.
    pub day: String,
    /// The model.
    pub model: String,
    /// What for: `agent`, `compaction`, `closing`, `eval` or `subagent`.
    pub purpose: String,
    /// Model calls that brought a reply.
    pub llm_calls: u64,
    /// Tokens of the requests.
    pub input_tokens: Tokens,
    /// Tokens of the replies.
    pub output_tokens: Tokens,
    /// What it cost, in dollars; none when no call had a price.
    #[serde(serialize_with = "serialize_dollars")]
    pub cost: Option<MicroUsd>,
}

/// Writes an amount in dollars, as all JSON of this program does.
#[allow(clippy::ref_option)] // asked for by serde
fn serialize_dollars<S: Serializer>(money: &Option<MicroUsd>, to: S) -> Result<S::Ok, S::Error> {
    money.map(MicroUsd::as_dollars).serialize(to)
}

impl SessionStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Success,
        Self::Partial,
        Self::Failed,
        Self::Running,
        Self::Unfinished,
        Self::Unreadable,
    ];

    /// Returns the name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Unreadable => "unreadable",
        }
    }
}

impl MessageRole {
    const ALL: [Self; 6] = [
        Self::User,
        Self::Assistant,
        Self::ToolCall,
        Self::ToolResult,
        Self::Summary,
        Self::Partial,
    ];

    /// Returns the name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Summary => "summary",
            Self::Partial => "partial",
        }
    }
}

impl FromStr for SessionStatus {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|status| status.name() == name).ok_or(UnknownName)
    }
}

impl FromStr for MessageRole {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or(UnknownName)
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for MessageRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that the database should not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a word that means nothing here")]
pub struct UnknownName;
