//! The types of the public events.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::serialize::{TokenUsage, dollars, millis, reason, seconds};
use crate::machine::{
    Authorization, CallPurpose, CloseReason, NoFinalSummary, RunStatus, StopReason,
};
use crate::port::{HookOutcome, HookPoint};
use crate::types::{
    CallId, Decision, EffectId, FaultKind, FileChange, MicroUsd, ReplyFinish, RunLimits,
    Sha256Digest, TimeSpan, Tokens, ToolStatus, Usage,
};

/// One public event.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicEvent {
    /// The number, counted from 1 without gaps.
    pub seq: u64,
    /// The wall-clock time, which never decreases.
    pub ts: Timestamp,
    /// The id of the session.
    pub session_id: Arc<str>,
    /// The kind and the content.
    pub kind: PublicEventKind,
}

/// Declares the kinds of events, each with its content type, its name and its description.
macro_rules! event_kinds {
    ($($kind:ident($content:ident) = $name:literal, $description:literal;)*) => {
        /// The kind of an event, with its content.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum PublicEventKind {
            $(#[doc = $description] $kind($content),)*
        }

        impl PublicEventKind {
            /// The names of all kinds of events and their descriptions, in the order of the documentation.
            pub const ALL: [(&'static str, &'static str); [$($name),*].len()] =
                [$(($name, $description)),*];

            /// Returns the name of the event, which never changes.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => $name,)*
                }
            }
        }

        /// Returns the schema of each kind of event, and adds the descriptions to the generator's definitions.
        fn kind_schemas(generator: &mut SchemaGenerator) -> Vec<Value> {
            vec![$({
                let content = generator.subschema_for::<$content>();
                let definition = generator.definitions_mut().get_mut(stringify!($content));
                if let Some(definition) = definition {
                    definition["description"] = $description.into();
                }
                line_schema($name, content)
            }),*]
        }

        $(impl From<$content> for PublicEventKind {
            fn from(content: $content) -> Self {
                Self::$kind(content)
            }
        })*
    };
}

event_kinds! {
    AgentStart(AgentStart) = "agent_start",
        "A run begins: schema, version, agent, model, workspace, limits.";
    AgentEnd(AgentEnd) = "agent_end",
        "A run ends: status, stop reason, exit code, steps, calls, cost, hash of the journal.";
    StateChange(StateChange) = "state_change",
        "The state machine changed its state: event, guard, time in the previous state.";
    ApiCallStart(ApiCallStart) = "api_call_start",
        "A request is sent to the model: purpose, attempt, messages, size.";
    ApiCallEnd(ApiCallEnd) = "api_call_end",
        "The request ended: `replied`, `failed` or `cancelled`; usage and cost.";
    Retry(RetryCause) = "retry",
        "The model is called again: after a fault, or because a reply is incomplete.";
    ModelFallback(ModelFallback) = "model_fallback",
        "The model is unreachable, and a fallback is used from now on: both models, the fault.";
    TextDelta(TextDelta) = "text_delta",
        "A part of a reply; it is valid only if its call ends as `replied`.";
    ToolCallStart(ToolCallStart) = "tool_call_start",
        "A tool call is authorized, and then runs: tool and arguments.";
    ToolCallEnd(ToolCallEnd) = "tool_call_end",
        "A tool call ended: status, decision and its rule, duration, output, files.";
    SubagentCall(SubagentCall) = "subagent_call",
        "A sub-agent made a model call: its tool call, usage and cost.";
    SubagentDenied(SubagentDenied) = "subagent_denied",
        "A tool call of a sub-agent was denied: agent, tool, arguments, reason.";
    HookComplete(HookComplete) = "hook_complete", "A hook completed: point, outcome, duration.";
    SteeringReceived(SteeringReceived) = "steering_received",
        "A message of the user was delivered to the run.";
    CompactionTriggered(CompactionTriggered) = "compaction_triggered",
        "The context is being compacted.";
    CompactionComplete(CompactionComplete) = "compaction_complete",
        "The context was compacted: by the model, or by the program.";
    LimitReached(LimitAction) = "safety_net",
        "A limit ends the run (with or without a summary), lowers the output limit, or warns about the cost.";
    LoopDetected(LoopDetected) = "loop_detected", "The same turn was repeated.";
    Error(ErrorEvent) = "error",
        "Something went wrong; `severity` says whether the run continues.";
}

/// See [`PublicEventKind::AgentStart`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// The confinement of commands, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Arc<str>>,
    /// Whether the session has run before.
    pub resumed: bool,
    /// The limits of the run.
    #[serde(with = "EffectiveLimits")]
    pub limits: RunLimits,
}

/// The limits of a run; null means no limit.
#[derive(Serialize, JsonSchema)]
#[serde(remote = "RunLimits")]
struct EffectiveLimits {
    max_steps: u32,
    #[serde(rename = "budget_usd", serialize_with = "dollars")]
    budget: Option<MicroUsd>,
    max_tokens: Option<Tokens>,
    #[serde(rename = "timeout_seconds", serialize_with = "seconds")]
    timeout: Option<TimeSpan>,
    #[serde(rename = "step_timeout_seconds", serialize_with = "seconds")]
    step_timeout: Option<TimeSpan>,
}

/// See [`PublicEventKind::AgentEnd`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AgentEnd {
    /// The status of the run.
    pub status: RunStatus,
    /// The stop reason.
    #[serde(rename = "stop_reason", serialize_with = "reason")]
    pub reason: StopReason,
    /// The exit code.
    pub exit_code: u8,
    /// The number of replies with tool calls.
    pub steps: u32,
    /// The number of model calls, including those of sub-agents.
    pub llm_calls: u32,
    /// The duration of the run.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: TimeSpan,
    /// The cost, if the model has a price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
    /// The SHA-256 of the journal at the end of the run; missing without a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub journal_hash: Option<Sha256Digest>,
    /// The final text, if any; part of the result document.
    #[serde(skip)]
    pub output: Option<Arc<str>>,
    /// The error, if any; part of an `error` event and of the result document.
    #[serde(skip)]
    pub error: Option<Arc<str>>,
}

/// See [`PublicEventKind::StateChange`]. Names are those of the statechart.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StateChange {
    /// The state that was left.
    pub from: &'static str,
    /// The state that was entered.
    pub to: &'static str,
    /// The event that caused the change.
    pub event: &'static str,
    /// The guard of the transition, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Arc<str>>,
    /// The time that the run was in the state that was left.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
}

/// See [`PublicEventKind::ApiCallStart`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ApiCallStart {
    /// The number of the request. Its end and its deltas have the same number.
    pub call: EffectId,
    /// Its purpose.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The step to which its tool calls would belong.
    pub step: u32,
    /// The number of messages in the request, without the system prompt.
    pub messages: u32,
    /// The estimated size of the request.
    pub context_tokens: Tokens,
    /// The output limit, if there is one.
    pub max_output_tokens: Option<Tokens>,
    /// The model, if it differs from that of `agent_start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

/// See [`PublicEventKind::ApiCallEnd`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ApiCallEnd {
    /// The number of the request.
    pub call: EffectId,
    /// The purpose.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The model, if it differs from that of `agent_start`; part of the start.
    #[serde(skip)]
    pub called_model: Option<Arc<str>>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: CallOutcome,
    /// The duration of the request.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The time until the first byte, if one arrived.
    #[serde(rename = "first_byte_ms", serialize_with = "millis")]
    pub first_byte: Option<TimeSpan>,
    /// The usage: reported by the provider, or estimated for a call that was sent but not answered.
    #[serde(with = "TokenUsage")]
    pub usage: Usage,
    /// The cost, if the model has a price.
    #[serde(rename = "cost_usd", serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CallOutcome {
    /// A complete reply arrived.
    Replied {
        /// The finish reason of the model.
        finish: ReplyFinish,
        /// The text of the reply.
        text: Arc<str>,
        /// The number of tool calls in the reply.
        tool_calls: u32,
        /// The model that answered, if the provider reports it.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Arc<str>>,
    },
    /// The request failed. The text of its reply is discarded.
    Failed {
        /// The kind of the fault.
        fault: FaultKind,
        /// The message for users.
        message: Arc<str>,
    },
    /// The request was cancelled: by an interrupt or a time limit.
    Cancelled,
}

/// See [`PublicEventKind::Retry`]: the reason for another model call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum RetryCause {
    /// A request failed, and is retried.
    Fault {
        /// The kind of the fault.
        fault: FaultKind,
        /// The next attempt, counted from one.
        attempt: u32,
        /// The delay before the next attempt.
        #[serde(rename = "wait_ms", serialize_with = "millis")]
        wait: TimeSpan,
    },
    /// A reply was incomplete, and the model is asked to continue.
    #[serde(rename = "unfinished")]
    IncompleteReply {
        /// The reason why the reply is incomplete.
        #[serde(rename = "why")]
        reason: IncompleteReply,
    },
}

/// The reason why a reply is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteReply {
    /// The output limit cut it off.
    Length,
    /// It is empty.
    Empty,
    /// The provider paused it.
    Pause,
}

/// See [`PublicEventKind::ModelFallback`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelFallback {
    /// The previous model.
    pub from: Arc<str>,
    /// The model that is called from now on.
    pub to: Arc<str>,
    /// The fault of the last attempt.
    pub fault: FaultKind,
}

/// See [`PublicEventKind::TextDelta`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TextDelta {
    /// The number of the request.
    pub call: EffectId,
    /// The purpose of the request.
    pub purpose: CallPurpose,
    /// The part of the text.
    pub text: Arc<str>,
}

/// See [`PublicEventKind::ToolCallStart`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolCallStart {
    /// The id of the call.
    pub id: CallId,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The arguments; a string if they are not a JSON object.
    pub arguments: Arc<Value>,
    /// The step to which the call belongs.
    pub step: u32,
}

/// See [`PublicEventKind::ToolCallEnd`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolCallEnd {
    /// The id of the call.
    pub id: CallId,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The status of the call.
    pub status: ToolStatus,
    /// Whether the tool succeeded.
    pub success: bool,
    /// The file or folder that the call names, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// The decision of the policy and its rule; `None` for a call that was not authorized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The duration of the tool's run.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The text for the model.
    pub output: Arc<str>,
    /// The files that the tool changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// The step to which the call belongs.
    pub step: u32,
}

/// Returns the decision to report for an authorization; `None` if the policy did not decide about the call.
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

/// See [`PublicEventKind::SubagentCall`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SubagentCall {
    /// The id of the tool call that started the sub-agent.
    pub tool_call_id: CallId,
    /// The usage of the model call.
    #[serde(with = "TokenUsage")]
    pub usage: Usage,
    /// The cost, if the model has a price.
    #[serde(rename = "cost_usd", serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
}

/// See [`PublicEventKind::SubagentDenied`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SubagentDenied {
    /// The id of the tool call that started the sub-agent.
    pub tool_call_id: CallId,
    /// The name of the sub-agent.
    pub agent: Arc<str>,
    /// The name of the tool whose call was denied.
    pub name: Arc<str>,
    /// The arguments; a string if they are not a JSON object.
    pub arguments: Arc<Value>,
    /// The reason for the denial, with the rule.
    pub reason: Arc<str>,
}

/// See [`PublicEventKind::HookComplete`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HookComplete {
    /// The name of the hook.
    pub name: Arc<str>,
    /// The hook point.
    pub point: HookPoint,
    /// The outcome of the hook.
    pub outcome: HookOutcome,
    /// The duration of the hook's run.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The id of the tool call to which the run of the hook belongs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<CallId>,
    /// The message of the hook, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

/// See [`PublicEventKind::SteeringReceived`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SteeringReceived {
    /// The time at which the model reads it.
    pub kind: MessageTiming,
    /// The message.
    pub text: Arc<str>,
}

/// The time at which the model reads a message of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageTiming {
    /// Before the next model call.
    Steering,
    /// When the run would otherwise end.
    FollowUp,
}

/// See [`PublicEventKind::CompactionTriggered`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompactionTriggered {
    /// The size of the context before the compaction.
    pub context_tokens: Tokens,
}

/// See [`PublicEventKind::CompactionComplete`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompactionComplete {
    /// The estimated size of the context after the compaction.
    pub context_tokens: Tokens,
    /// The author of the summary.
    pub summary: SummaryAuthor,
}

/// The author of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SummaryAuthor {
    /// The model.
    Model,
    /// The program: a list of tools and files.
    Program,
    /// No author, because the run ended before.
    #[serde(rename = "nobody")]
    None,
}

/// See [`PublicEventKind::LimitReached`]: the effect of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum LimitAction {
    /// The limit ends the run: the model is asked for a final summary, if the limits leave room for that.
    Close {
        /// The limit.
        reason: CloseReason,
        /// The smallest budget with which another call would have been made.
        #[serde(serialize_with = "dollars", skip_serializing_if = "Option::is_none")]
        least_budget_usd: Option<MicroUsd>,
        /// The smallest token limit with which another call would have been made.
        #[serde(skip_serializing_if = "Option::is_none")]
        least_max_tokens: Option<Tokens>,
    },
    /// The limit ends the run without a final summary.
    NoSummary {
        /// The reason why there is no final summary.
        cause: NoFinalSummary,
    },
    /// The budget lowers the output limit of a call, since it does not cover more.
    LowerOutput {
        /// The new output limit.
        max_output_tokens: Tokens,
    },
    /// The cost exceeds the user's warning threshold.
    Warn {
        /// The cost so far.
        #[serde(serialize_with = "dollars")]
        cost_usd: MicroUsd,
    },
}

/// See [`PublicEventKind::LoopDetected`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoopDetected {
    /// The number of repetitions of the turn.
    pub times: u32,
}

/// See [`PublicEventKind::Error`].
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ErrorEvent {
    /// Whether the run continues.
    pub severity: Severity,
    /// The message for users.
    pub message: Arc<str>,
}

/// Whether a run continues after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The run continues.
    Warning,
    /// The run ends.
    Error,
}

impl Serialize for PublicEvent {
    /// Writes the name first, then the common fields, then the fields of the kind.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct EventLine<'a> {
            r#type: &'static str,
            seq: u64,
            #[serde(serialize_with = "time")]
            ts: &'a Timestamp,
            session_id: &'a str,
            #[serde(flatten)]
            kind: &'a PublicEventKind,
        }
        let Self { seq, ts, session_id, kind } = self;
        EventLine { r#type: kind.name(), seq: *seq, ts, session_id, kind }.serialize(to)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // asked for by serde
fn time<S: Serializer>(time: &&Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.6}"))
}

/// Returns the schema of a line with this type.
fn line_schema(name: &str, content: Schema) -> Value {
    let mut line = content.to_value();
    line["properties"] = json!({ "type": { "const": name } });
    line["required"] = json!(["type"]);
    line
}

/// Returns the JSON Schema of one line of `--output-format stream-json`. The last line is a result.
pub(in crate::view) fn line_schema_with<Result: JsonSchema>(
    generator: &mut SchemaGenerator,
) -> Schema {
    let events = kind_schemas(generator);
    let result = line_schema("result", generator.subschema_for::<Result>());
    json_schema!({
        "title": "Event",
        "description": "A line of `--output-format stream-json`. The last line has the type `result`.",
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "seq": { "description": "The number of the event, from 1 and without gaps.", "type": "integer", "minimum": 1 },
                    "ts": { "description": "The wall-clock time, which never goes back.", "type": "string", "format": "date-time" },
                    "session_id": { "description": "The session.", "type": "string" },
                },
                "required": ["type", "seq", "ts", "session_id"],
                "oneOf": events,
            },
            result,
        ],
    })
}
