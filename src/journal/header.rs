//! The first record of a session: what it was begun with.

use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ReadOnly;
use super::id::SessionId;
use super::workspace::Workspace;
use crate::machine::{Change, Conversation, Fold, Mark, Outcomes, Resumption};
use crate::model::{CallId, Item, Rules, Time};
use crate::port::ToolSpec;

/// The format that this release writes. A release that adds something which an older one must not overlook counts it up.
pub const FORMAT: u32 = 1;

/// What a session was begun with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format of the journal.
    pub format: u32,
    /// What the digests of its marks cover; see [`Mark::RELEASE`].
    pub marks: u32,
    /// The session.
    pub session: SessionId,
    /// The program that began it, with its version.
    pub program: String,
    /// When it was begun.
    pub created: Wall,
    /// Where it comes from, when it is a fork or was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Lineage>,
    /// The last record that came from elsewhere, when it was imported: nobody knows who wrote what is up to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<u64>,
    /// Who sent it, when another session did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatched_by: Option<Dispatcher>,
    /// What it works with.
    pub setting: Setting,
    /// The rules that it obeys.
    pub rules: Rules,
    /// Bytes of system prompt and tools, for the estimate of the context's size.
    pub fixed: u64,
    /// The conversation before its task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Item>,
    /// Its task.
    pub task: Item,
}

/// What a session works with. It may be another one each time that the session goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The model, as the user names it.
    pub model: Arc<str>,
    /// The agent.
    pub agent: Arc<str>,
    /// The workspace.
    pub workspace: Workspace,
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools that the model is told of.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema of the final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// What else whoever began the session wants to find again.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// Where a session comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The session whose records it begins with.
    pub session: SessionId,
    /// The last one of those records.
    pub seq: u64,
    /// The tool result among them that was replaced by another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
}

/// A session that has sent another one to work on a part of its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatcher {
    /// The session.
    pub session: SessionId,
    /// The tool call of it; [`EVALUATION`](Self::EVALUATION) when the other one evaluates its answer.
    pub call: CallId,
}

impl Dispatcher {
    /// What stands in the place of a tool call in a session that evaluates the answer of another one.
    pub const EVALUATION: &str = "evaluation";

    /// Returns the dispatcher of a session that evaluates the answer of another one.
    pub fn evaluation(session: SessionId) -> Self {
        Self { session, call: Self::EVALUATION.into() }
    }

    /// Returns whether the dispatched session evaluates an answer.
    pub fn is_evaluation(&self) -> bool {
        self.call.as_str() == Self::EVALUATION
    }
}

/// A session goes on: after a crash, an interrupt or its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// What it works with from now on; none when that has not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<Setting>,
    /// How it goes on.
    #[serde(flatten)]
    pub resumption: Resumption,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// `success`, `partial` or `failed`.
    pub status: String,
    /// Why it ended.
    pub reason: String,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls.
    pub calls: u32,
    /// Micro-dollars.
    pub cost: u64,
    /// Input and output tokens.
    pub tokens: u64,
}

/// A time of day. In a journal it stands where people look for it; records are ordered by their sequence alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Wall(Timestamp);

/// What a new session is begun with.
#[derive(Clone, Debug)]
pub struct Begin {
    /// When.
    pub now: SystemTime,
    /// Who sent it, when another session did.
    pub dispatched_by: Option<Dispatcher>,
    /// What it works with.
    pub setting: Setting,
    /// The rules that it obeys.
    pub rules: Rules,
    /// Bytes of system prompt and tools.
    pub fixed: u64,
    /// The conversation before its task.
    pub history: Vec<Item>,
    /// Its task.
    pub task: Item,
}

impl Header {
    /// Returns the header of a session that begins like this.
    pub fn new(session: SessionId, begin: Begin) -> Self {
        let Begin { now, dispatched_by, setting, rules, fixed, history, task } = begin;
        Self {
            format: FORMAT,
            marks: Mark::RELEASE,
            session,
            program: concat!("architect ", env!("CARGO_PKG_VERSION")).to_owned(),
            created: now.into(),
            lineage: None,
            imported: None,
            dispatched_by,
            setting,
            rules,
            fixed,
            history,
            task,
        }
    }

    /// Returns why the session can only be read, if a newer release began it.
    pub(super) fn newer(&self) -> Option<ReadOnly> {
        let format = self.format;
        (format > FORMAT).then_some(ReadOnly::Newer { format })
    }

    /// Begins the run.
    pub fn start(&self) -> (Fold, Outcomes) {
        let mut conversation = Conversation::new(self.fixed);
        for item in &self.history {
            conversation.apply(Change::Append { item: item.clone() });
        }
        Fold::start(self.rules.clone(), conversation, self.task.clone())
    }
}

impl Wall {
    /// Returns the time of day so long after this one.
    pub fn after(self, time: Time) -> Self {
        let micros = i64::try_from(time.0).unwrap_or(i64::MAX);
        let later = Timestamp::from_microsecond(self.micros().saturating_add(micros));
        Self(later.unwrap_or(Timestamp::MAX))
    }

    /// Returns the time of day so long before this one.
    pub fn before(self, time: Time) -> Self {
        let micros = i64::try_from(time.0).unwrap_or(i64::MAX);
        let earlier = Timestamp::from_microsecond(self.micros().saturating_sub(micros));
        Self(earlier.unwrap_or(Timestamp::MIN))
    }

    /// Returns the microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.0.as_microsecond()
    }
}

impl From<SystemTime> for Wall {
    /// A clock that stands before the year -9999 or after 9999 says 1970.
    fn from(time: SystemTime) -> Self {
        let stamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
        Self(Timestamp::from_microsecond(stamp.as_microsecond()).unwrap_or(stamp))
    }
}

impl From<Wall> for String {
    fn from(wall: Wall) -> Self {
        wall.to_string()
    }
}

impl TryFrom<String> for Wall {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl std::fmt::Display for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_time_of_day_is_read_back_as_it_was_written() {
        let wall = Wall::from(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456));
        let text = serde_json::to_string(&wall).unwrap();
        assert_eq!(text, r#""2023-11-14T22:13:20.123456Z""#);
        assert_eq!(serde_json::from_str::<Wall>(&text).unwrap(), wall);
        assert_eq!(wall.after(Time(44)).to_string(), "2023-11-14T22:13:20.1235Z");
        assert_eq!(wall.after(Time(44)).before(Time(44)), wall);
    }

    #[test]
    fn absurd_times_don_t_overflow() {
        let wall = Wall::from(UNIX_EPOCH);
        assert!(wall.after(Time(u64::MAX)) > wall);
        assert!(wall.before(Time(u64::MAX)) < wall);
    }
}
