//! The time of a session, by state and step by step: as a table, as JSON, and as a self-contained page.
//!
//! A [`Tracer`] receives the records of a session in order, each with the machine after it, and builds a [`Trace`].
//! Times are never estimated: the time between two records counts for the state before the later one and, within that
//! state, for the known phase.

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
    /// The id of the session.
    pub session_id: String,
    /// The time of its creation, in RFC 3339.
    pub created: String,
    /// The program that created it, with the version.
    pub program: String,
    /// The model, as named by the user.
    pub model: String,
    /// The agent.
    pub agent: String,
    /// The workspace.
    pub workspace: String,
}

/// The time of a session, with its calls, messages and changes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Trace {
    /// The session.
    #[serde(flatten)]
    pub subject: TraceSubject,
    /// The present state.
    pub state: StateKind,
    /// The stop reason; `None` if the session has not ended.
    #[serde(serialize_with = "reason")]
    pub stop_reason: Option<StopReason>,
    /// The duration, without the time between processes.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls, including those of sub-agents.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: Tokens,
    /// The cost in dollars; `None` if the model has no price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
    /// The time in each entered state, in the order of the chart.
    pub states: Vec<StateTime>,
    /// The taken transitions, with their counts.
    pub edges: Vec<TransitionCount>,
    /// The requests to the model, in the order in which they were sent.
    pub calls: Vec<CallSpan>,
    /// The tool calls, in the order in which they were authorized.
    pub tools: Vec<ToolSpan>,
    /// The usage of model calls of sub-agents, in the order in which they were charged.
    pub subagents: Vec<SubagentSpan>,
    /// The messages, oldest first.
    pub messages: Vec<TraceMessage>,
    /// The changes of the steps in the workspace, as far as they were recorded.
    pub changes: Vec<StepChange>,
    /// The traces of sub-agents, as far as they are stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subagent_traces: Vec<SubagentTrace>,
}

/// The trace of a sub-agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SubagentTrace {
    /// The tool call on which it worked, if known.
    pub call: Option<CallId>,
    /// The start, in the time of the dispatching session.
    #[serde(rename = "begun_ms", serialize_with = "moment")]
    pub started_at: RunTime,
    /// The trace. The usage of the dispatching session includes its usage.
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
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
    /// The patch; empty if it is too long or missing.
    pub patch: String,
}

impl Trace {
    /// Returns the time by state as lines for a terminal.
    pub fn table(&self) -> String {
        time_table::render(self)
    }

    /// Returns the trace as a page without external content. Its only script is the search.
    pub fn html(&self) -> String {
        page::render(self)
    }

    /// Replaces each text of the model, the tools and the user by the result of `map`.
    pub fn map_texts(&mut self, map: &impl Fn(&str) -> String) {
        for message in &mut self.messages {
            message.text = map(&message.text).into();
        }
        for tool in &mut self.tools {
            tool.arguments = map(&tool.arguments).into();
        }
        for change in &mut self.changes {
            // The sign at the start of a line would look like part of a word.
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
