//! Where the time of a session was spent, by state and step by step: as a table, as JSON, and as a self-contained page.
//!
//! A [`Tracer`] gets the records of a session one after the other, each with the machine after it, and builds one
//! [`Trace`]. Time is never guessed: the time between two records belongs to the state before the later one, and
//! within that state to the phase that is known.

mod call_details;
mod chart;
mod messages;
mod page;
mod phase;
mod time_account;
mod time_table;
mod timeline;
mod tracer;
mod turn;
mod usage_chart;
mod waterfall;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

pub(in crate::view) use messages::new_entries;
pub use messages::{Speaker, TraceMessage};
pub use phase::TracePhase;
pub use time_account::{PhaseTime, StateTime, TransitionCount};
pub use timeline::{CallEnd, CallSpan, SpanUsage, SubagentSpan, ToolSpan};
pub use tracer::{RecordContent, TraceStep, Tracer};

use crate::machine::{StateKind, StopReason};
use crate::types::{CallId, FilePath, MicroUsd, RunTime, TimeSpan, Tokens};
use crate::view::public_events::{dollars, millis, reason};

/// The session of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceSubject {
    /// The session.
    pub session_id: String,
    /// When it was created, in RFC 3339.
    pub created: String,
    /// The program that created it, with its version.
    pub program: String,
    /// The model, as the user names it.
    pub model: String,
    /// The agent.
    pub agent: String,
    /// The workspace.
    pub workspace: String,
}

/// Where the time of a session was spent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Trace {
    /// The session.
    #[serde(flatten)]
    pub subject: TraceSubject,
    /// Its present state.
    pub state: StateKind,
    /// Why it ended; `None` if it has not ended.
    #[serde(serialize_with = "reason")]
    pub stop_reason: Option<StopReason>,
    /// Its duration, without the time between its processes.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// Replies with tool calls.
    pub steps: u32,
    /// Model calls, including those of sub-agents.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: Tokens,
    /// Its cost in dollars; `None` if the model has no price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
    /// The time in each entered state, in the order of the chart.
    pub states: Vec<StateTime>,
    /// The transitions that were taken.
    pub edges: Vec<TransitionCount>,
    /// The requests to the model, in the order in which they were sent.
    pub calls: Vec<CallSpan>,
    /// The tool calls, in the order in which they were authorized.
    pub tools: Vec<ToolSpan>,
    /// The usage of model calls of sub-agents, in the order in which they were charged.
    pub subagents: Vec<SubagentSpan>,
    /// The messages, oldest first.
    pub messages: Vec<TraceMessage>,
    /// What the steps have changed in the workspace, as far as it was recorded.
    pub changes: Vec<StepChange>,
    /// The traces of its sub-agents, as far as they are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subagent_traces: Vec<SubagentTrace>,
}

/// The trace of a sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SubagentTrace {
    /// The tool call that it worked on, if known.
    pub call: Option<CallId>,
    /// When it began, in the time of the dispatching session.
    #[serde(rename = "begun_ms", serialize_with = "moment")]
    pub started_at: RunTime,
    /// Its trace. The usage of the dispatching session includes it.
    #[serde(flatten)]
    pub trace: Trace,
}

/// The change of a file by a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepChange {
    /// The step.
    pub step: u32,
    /// The file. A path that is not UTF-8 is a NUL character and its bytes in hexadecimal.
    #[schemars(with = "String")]
    pub path: FilePath,
    /// Lines that were added.
    pub added: u64,
    /// Lines that were removed.
    pub removed: u64,
    /// The patch; empty if it is too long, or there is none.
    pub patch: String,
}

impl Trace {
    /// Returns the time by state as lines for a terminal.
    pub fn table(&self) -> String {
        time_table::render(self)
    }

    /// Returns the trace as a page that loads nothing, and runs nothing but its own search.
    pub fn html(&self) -> String {
        page::render(self)
    }

    /// Replaces each text of the model, the tools and the user.
    pub fn map_texts(&mut self, map: &impl Fn(&str) -> String) {
        for message in &mut self.messages {
            message.text = map(&message.text).into();
        }
        for tool in &mut self.tools {
            tool.arguments = map(&tool.arguments).into();
        }
        for change in &mut self.changes {
            // The sign before a line would look like a part of a word.
            let lines = change.patch.lines().map(|line| {
                let (sign, text) = line.split_at_checked(1).unwrap_or(("", line));
                format!("{sign}{}\n", map(text))
            });
            change.patch = lines.collect();
        }
        for subagent in &mut self.subagent_traces {
            subagent.trace.map_texts(map);
        }
    }
}

/// Serializes a session time in milliseconds, if known.
fn moment<S: Serializer>(
    time: &(impl Copy + Into<Option<RunTime>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    millis(&(*time).into().map(|time| time.since(RunTime::START)), to)
}
