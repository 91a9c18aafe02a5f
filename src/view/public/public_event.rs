//! The public events, as types.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::TokenUsage;
use super::serialize::{dollars, maybe_dollars, maybe_millis, maybe_seconds, millis, seconds};
use crate::machine::{
    Authorization, CallPurpose, CloseReason, EventKind, NoFinalSummary, RunStatus, StateKind,
    StopReason,
};
use crate::model::{
    CallId, Decision, EffectId, FaultKind, FileChange, MicroUsd, ReplyFinish, TimeSpan, Tokens,
    ToolStatus, Usage,
};
use crate::port::{HookOutcome, HookPoint};

/// One public event.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicEvent {
    /// Its number; the first one has 1, and each is one more than the one before.
    pub seq: u64,
    /// When it happened, by the time of day; it never goes back.
    pub ts: Timestamp,
    /// The session.
    pub session_id: Arc<str>,
    /// What happened.
    pub kind: PublicEventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PublicEventKind {
    /// A run begins.
    AgentStart(AgentStart),
    /// A run is over.
    AgentEnd(AgentEnd),
    /// The machine went from one state to another.
    StateChange(StateChange),
    /// A request goes to the model.
    ApiCallStart(ApiCallStart),
    /// A request came back, or nobody waits for it any more.
    ApiCallEnd(ApiCallEnd),
    /// The model is asked again.
    Retry(RetryEvent),
    /// A piece of text of a reply that is not complete; it counts only when its call ends as `replied`.
    TextDelta(TextDelta),
    /// A tool call is judged, and then runs.
    ToolCallStart(ToolCallStart),
    /// A tool call is answered.
    ToolCallEnd(ToolCallEnd),
    /// A sub-agent made a model call.
    SubagentCall(SubagentCall),
    /// A hook came back.
    HookComplete(HookComplete),
    /// A message of the user reached the run.
    SteeringReceived(SteeringReceived),
    /// The context is being compacted.
    CompactionTriggered(CompactionTriggered),
    /// The context was compacted, or that was given up.
    CompactionComplete(CompactionComplete),
    /// A watchdog did something.
    LimitReached(LimitReached),
    /// Turns repeat.
    LoopDetected(LoopDetected),
    /// Something went wrong.
    Error(ErrorEvent),
}

/// See [`Kind::AgentStart`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentStart {
    /// The version of the events.
    pub schema: u32,
    /// The version of the program.
    pub version: &'static str,
    /// The agent.
    pub agent: Arc<str>,
    /// The model, as `provider/name`.
    pub model: Arc<str>,
    /// The workspace.
    pub workspace: Arc<str>,
    /// How commands are confined, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Arc<str>>,
    /// Whether the session has run before.
    pub resumed: bool,
    /// What the run may use.
    pub limits: EffectiveLimits,
}

/// What a run may use; null means no limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EffectiveLimits {
    /// Replies whose tool calls may run.
    pub max_steps: u32,
    /// Money.
    #[serde(serialize_with = "maybe_dollars")]
    pub budget_usd: Option<MicroUsd>,
    /// Input and output tokens.
    pub max_tokens: Option<Tokens>,
    /// Time for the whole run.
    #[serde(serialize_with = "maybe_seconds")]
    pub timeout_seconds: Option<TimeSpan>,
    /// Time for one model call.
    #[serde(serialize_with = "maybe_seconds")]
    pub step_timeout_seconds: Option<TimeSpan>,
}

/// See [`Kind::AgentEnd`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentEnd {
    /// How the run went, in one word.
    pub status: RunStatus,
    /// Why it ended.
    #[serde(rename = "stop_reason", serialize_with = "name")]
    pub reason: StopReason,
    /// The exit code.
    pub exit_code: u8,
    /// Replies whose tool calls ran.
    pub steps: u32,
    /// Model calls, those of sub-agents included.
    pub llm_calls: u32,
    /// How long it took.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// What it cost, where the model has a price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
    /// The final text, if the model had one; told by the result document.
    #[serde(skip)]
    pub output: Option<Arc<str>>,
    /// What went wrong, if something did; told by an `error` event and the result document.
    #[serde(skip)]
    pub error: Option<Arc<str>>,
}

/// See [`Kind::StateChange`]. Names are those of the statechart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateChange {
    /// The state that was left.
    #[serde(serialize_with = "state")]
    pub from: StateKind,
    /// The state that was entered.
    #[serde(serialize_with = "state")]
    pub to: StateKind,
    /// What led from one to the other.
    #[serde(serialize_with = "trigger")]
    pub event: EventKind,
    /// The guard that held, where the way has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Arc<str>>,
    /// How long the run was in the state that was left.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
}

/// See [`Kind::ApiCallStart`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiCallStart {
    /// The number of the request, which its end and its deltas carry too.
    pub call: EffectId,
    /// What it is for.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The step that its tool calls would be.
    pub step: u32,
    /// Messages in the request, without the system prompt.
    pub messages: u32,
    /// How large the request probably is.
    pub context_tokens: Tokens,
    /// How much the reply may have, where that is limited.
    pub max_output_tokens: Option<Tokens>,
}

/// See [`Kind::ApiCallEnd`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiCallEnd {
    /// The number of the request.
    pub call: EffectId,
    /// What it was for.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: CallOutcome,
    /// How long it took.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// How long the first byte took, if one came.
    #[serde(rename = "first_byte_ms", serialize_with = "maybe_millis")]
    pub first_byte: Option<TimeSpan>,
    /// What it used: as the provider says, or as estimated for a call that was sent and not answered.
    #[serde(serialize_with = "usage")]
    pub usage: Usage,
    /// What it cost, where the model has a price.
    #[serde(rename = "cost_usd", serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CallOutcome {
    /// A complete reply came.
    Replied {
        /// Why the model stopped.
        finish: ReplyFinish,
        /// The text of the reply.
        text: Arc<str>,
        /// How many tools it calls.
        tool_calls: u32,
        /// The model that answered, where the provider says so.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Arc<str>>,
    },
    /// It failed; nothing of it counts.
    Failed {
        /// What happened.
        fault: FaultKind,
        /// What to tell people.
        message: Arc<str>,
    },
    /// Nobody waits for it any more: an interrupt, a time limit.
    Cancelled,
}

/// See [`Kind::Retry`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetryEvent {
    /// Why the model is asked again.
    #[serde(flatten)]
    pub cause: RetryCause,
}

/// Why the model is asked again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum RetryCause {
    /// A request failed, and is sent again.
    Fault {
        /// What happened.
        fault: FaultKind,
        /// The attempt that will be made, counted from one.
        attempt: u32,
        /// How long it waits.
        #[serde(rename = "wait_ms", serialize_with = "millis")]
        wait: TimeSpan,
    },
    /// A reply came, but it is not whole, and the model is asked to go on.
    #[serde(rename = "unfinished")]
    IncompleteReply {
        /// What about it is not whole.
        #[serde(rename = "why")]
        reason: IncompleteReply,
    },
}

/// Why a reply is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReply {
    /// The output limit cut it off.
    Length,
    /// It is empty.
    Empty,
    /// The provider paused it.
    Pause,
}

/// See [`Kind::TextDelta`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextDelta {
    /// The number of the request.
    pub call: EffectId,
    /// What the request is for.
    pub purpose: CallPurpose,
    /// The piece of text.
    pub text: Arc<str>,
}

/// See [`Kind::ToolCallStart`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCallStart {
    /// The id of the call.
    pub id: CallId,
    /// The tool.
    pub name: Arc<str>,
    /// What it is called with; a string where that is no JSON object.
    pub arguments: Arc<Value>,
    /// The step that the call belongs to.
    pub step: u32,
}

/// See [`Kind::ToolCallEnd`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCallEnd {
    /// The id of the call.
    pub id: CallId,
    /// The tool.
    pub name: Arc<str>,
    /// How it ended.
    pub status: ToolStatus,
    /// Whether the tool did what it was asked for.
    pub success: bool,
    /// The file or folder that the call names, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// What the policy said, and by which rule; none for a call that was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// How long the tool ran.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// What the model is told.
    pub output: Arc<str>,
    /// The files that it changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// The step that the call belongs to.
    pub step: u32,
}

/// Returns the decision that an event reports; `None` for a call that the policy did not see.
pub(in crate::view) fn decision_of(authorization: &Authorization) -> Option<Decision> {
    match authorization {
        Authorization::Approved { reason, .. } => Some(Decision::allow(Arc::clone(reason))),
        Authorization::Rejected { result } if result.status == ToolStatus::Denied => {
            Some(Decision::deny(Arc::clone(&result.text)))
        }
        Authorization::Abort => Some(Decision::deny("the user aborted the run")),
        Authorization::Rejected { .. } => None,
    }
}

/// See [`Kind::SubagentCall`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubagentCall {
    /// The tool call that the sub-agent works for.
    pub tool_call_id: CallId,
    /// What the model call used.
    #[serde(serialize_with = "usage")]
    pub usage: Usage,
    /// What it cost, where the model has a price.
    #[serde(rename = "cost_usd", serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
}

/// See [`Kind::HookComplete`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookComplete {
    /// The name of the hook.
    pub name: Arc<str>,
    /// Where it is hooked in.
    pub point: HookPoint,
    /// How it ended.
    pub outcome: HookOutcome,
    /// How long it ran.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The tool call that it belongs to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<CallId>,
    /// What it said, if that is worth telling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

/// See [`Kind::SteeringReceived`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SteeringReceived {
    /// When the model reads it.
    pub kind: MessageTiming,
    /// The message.
    pub text: Arc<str>,
}

/// When the model reads a message of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageTiming {
    /// Before its next call.
    Steering,
    /// When the run would have ended.
    FollowUp,
}

/// See [`Kind::CompactionTriggered`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactionTriggered {
    /// How large the context is.
    pub context_tokens: Tokens,
}

/// See [`Kind::CompactionComplete`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactionComplete {
    /// How large the context now probably is.
    pub context_tokens: Tokens,
    /// Who wrote the summary.
    pub summary: SummaryAuthor,
}

/// Who wrote a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryAuthor {
    /// The model.
    Model,
    /// The program: a list of tools and files.
    Program,
    /// Nobody; the run ended before.
    #[serde(rename = "nobody")]
    None,
}

/// See [`Kind::LimitReached`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitReached {
    /// What the watchdog did.
    #[serde(flatten)]
    pub action: LimitAction,
}

/// What a watchdog does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum LimitAction {
    /// It closes the run: the model is asked to sum up, if the limits leave room for that call.
    Close {
        /// Which limit was reached.
        reason: CloseReason,
    },
    /// It ends the run without the closing call.
    NoSummary {
        /// What leaves no room for the call.
        cause: NoFinalSummary,
    },
    /// It lowers the output limit of a call, since the budget has no room for more.
    LowerOutput {
        /// To what.
        max_output_tokens: Tokens,
    },
    /// It tells that more money was used than the user wants to hear of.
    Warn {
        /// How much was used.
        #[serde(serialize_with = "dollars")]
        cost_usd: MicroUsd,
    },
}

/// See [`Kind::LoopDetected`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoopDetected {
    /// How often the same turns were made in a row.
    pub times: u32,
}

/// See [`Kind::Error`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorEvent {
    /// Whether the run goes on.
    pub severity: Severity,
    /// What to tell people.
    pub message: Arc<str>,
}

/// Whether a run goes on after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It goes on.
    Warning,
    /// It ends.
    Error,
}

impl PublicEventKind {
    /// The names of all kinds of events with what they tell, in the order of the documentation.
    pub const ALL: [(&'static str, &'static str); 17] = [
        ("agent_start", "A run begins: schema, version, agent, model, workspace, limits."),
        ("agent_end", "A run is over: status, stop reason, exit code, steps, calls, cost."),
        ("state_change", "The machine went to another state: event, guard, how long it was there."),
        ("api_call_start", "A request goes to the model: purpose, attempt, messages, size."),
        ("api_call_end", "It came back: `replied`, `failed` or `cancelled`; usage and cost."),
        ("retry", "The model is asked again: after a fault, or because a reply is not whole."),
        ("text_delta", "A piece of a reply; it counts only when its call ends as `replied`."),
        ("tool_call_start", "A tool call is judged, and then runs: tool and arguments."),
        (
            "tool_call_end",
            "It is answered: status, decision and its rule, duration, output, files.",
        ),
        ("subagent_call", "A sub-agent made a model call: its tool call, usage and cost."),
        ("hook_complete", "A hook came back: point, outcome, duration."),
        ("steering_received", "A message of the user reached the run."),
        ("compaction_triggered", "The context is being compacted."),
        ("compaction_complete", "It was compacted: by the model, or by the program."),
        (
            "safety_net",
            "A watchdog closes the run, ends it without a summary, lowers the output limit or warns of cost.",
        ),
        ("loop_detected", "The same turns were made again and again."),
        ("error", "Something went wrong; `severity` tells whether the run goes on."),
    ];

    /// Returns the name of the event; it never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AgentStart(_) => "agent_start",
            Self::AgentEnd(_) => "agent_end",
            Self::StateChange(_) => "state_change",
            Self::ApiCallStart(_) => "api_call_start",
            Self::ApiCallEnd(_) => "api_call_end",
            Self::Retry(_) => "retry",
            Self::TextDelta(_) => "text_delta",
            Self::ToolCallStart(_) => "tool_call_start",
            Self::ToolCallEnd(_) => "tool_call_end",
            Self::SubagentCall(_) => "subagent_call",
            Self::HookComplete(_) => "hook_complete",
            Self::SteeringReceived(_) => "steering_received",
            Self::CompactionTriggered(_) => "compaction_triggered",
            Self::CompactionComplete(_) => "compaction_complete",
            Self::LimitReached(_) => "safety_net",
            Self::LoopDetected(_) => "loop_detected",
            Self::Error(_) => "error",
        }
    }
}

impl Serialize for PublicEvent {
    /// Writes the name first, then what all events have, then what only this one has.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'static str,
            seq: u64,
            #[serde(serialize_with = "time")]
            ts: &'a Timestamp,
            session_id: &'a str,
            #[serde(flatten)]
            kind: &'a PublicEventKind,
        }
        let Self { seq, ts, session_id, kind } = self;
        Line { r#type: kind.name(), seq: *seq, ts, session_id, kind }.serialize(to)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn time<S: Serializer>(time: &&Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.6}"))
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn name<S: Serializer>(reason: &StopReason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reason.name())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn state<S: Serializer>(state: &StateKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(state.name())
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn trigger<S: Serializer>(event: &EventKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(event.name())
}

fn usage<S: Serializer>(usage: &Usage, to: S) -> Result<S::Ok, S::Error> {
    TokenUsage::from(*usage).serialize(to)
}
