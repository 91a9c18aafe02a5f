//! Where the time of a session went, state by state: as a table, as JSON, and as a page that needs nothing else.
//!
//! A [`Tracer`] is shown the records of a session one after the other, each with where the run stood then, and makes
//! one [`Trace`] of them. Time is never guessed: each stretch between two records belongs to the state that the later
//! one met, and within that state to what is known to have gone on.

mod chart;
mod messages;
mod page;
mod phase;
mod time_account;
mod time_table;
mod timeline;
mod tracer;
mod usage_chart;

use serde::{Serialize, Serializer};

pub use messages::{Speaker, TraceMessage};
pub use phase::TracePhase;
pub use time_account::{PhaseTime, StateTime, TransitionCount};
pub use timeline::{CallEnd, CallSpan, SubagentSpan, ToolSpan};
pub use tracer::{RecordContent, TraceStep, Tracer};

use crate::machine::{StateKind, StopReason};
use crate::model::{MicroUsd, RunTime, TimeSpan, Tokens};
use crate::view::public::{maybe_dollars, millis};

/// What is known of a session without its events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceSubject {
    /// The session.
    pub session_id: String,
    /// When it was begun, in RFC 3339.
    pub created: String,
    /// The program that began it, with its version.
    pub program: String,
    /// The model, as the user names it.
    pub model: String,
    /// The agent.
    pub agent: String,
    /// The folder that it works in.
    pub workspace: String,
}

/// Where the time of a session went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// The session.
    #[serde(flatten)]
    pub subject: TraceSubject,
    /// The state in which it stands.
    #[serde(serialize_with = "state_name")]
    pub state: StateKind,
    /// Why it ended; none while it has not.
    #[serde(serialize_with = "reason_name")]
    pub stop_reason: Option<StopReason>,
    /// How long it ran, without the time between its processes.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls, those of sub-agents included.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: Tokens,
    /// What it cost, in dollars; none when the model has no price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
    /// The time in each state that was entered, in the order of the chart.
    pub states: Vec<StateTime>,
    /// The ways that were taken from state to state.
    pub edges: Vec<TransitionCount>,
    /// The requests to the model, as they were sent.
    pub calls: Vec<CallSpan>,
    /// The tool calls, as they were judged.
    pub tools: Vec<ToolSpan>,
    /// What model calls of sub-agents used, in the order in which they were charged.
    pub subagents: Vec<SubagentSpan>,
    /// What was said, oldest first.
    pub messages: Vec<TraceMessage>,
}

impl Trace {
    /// Returns the time of each state as lines for a terminal.
    pub fn table(&self) -> String {
        time_table::render(self)
    }

    /// Returns all of it as a page that loads nothing and runs nothing.
    pub fn html(&self) -> String {
        page::render(self)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn state_name<S: Serializer>(state: &StateKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(state.name())
}

#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn reason_name<S: Serializer>(reason: &Option<StopReason>, to: S) -> Result<S::Ok, S::Error> {
    reason.map(StopReason::name).serialize(to)
}

/// Writes a time of the session in milliseconds since it began.
#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn moment<S: Serializer>(time: &RunTime, to: S) -> Result<S::Ok, S::Error> {
    millis(&time.since(RunTime::START), to)
}
