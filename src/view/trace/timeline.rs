//! When each request and each tool call began and ended.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::moment;
use crate::machine::{Authorization, CallPurpose, Effect, Event, Machine, MachineOutput, State};
use crate::model::{
    CallId, Decision, EffectId, MicroUsd, Reply, ReplyFinish, RunTime, TimeSpan, ToolCall,
    ToolStatus,
};
use crate::port::CallTiming;
use crate::view::public::{decision_of, maybe_dollars, maybe_millis, message_count, millis};

/// A request to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallSpan {
    /// What it was for.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// Messages in the request, without the system prompt.
    pub messages: u32,
    /// When it was sent.
    #[serde(rename = "begun_ms", serialize_with = "moment")]
    pub started_at: RunTime,
    /// How long it took.
    #[serde(rename = "time_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The time to encode it.
    #[serde(rename = "encode_ms", serialize_with = "maybe_millis")]
    pub encode: Option<TimeSpan>,
    /// Waiting for the first byte of the reply.
    #[serde(rename = "first_byte_ms", serialize_with = "maybe_millis")]
    pub first_byte: Option<TimeSpan>,
    /// How it ended.
    #[serde(flatten)]
    pub end: CallEnd,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum CallEnd {
    /// With a reply.
    Replied {
        /// Why the model stopped.
        finish: ReplyFinish,
        /// Tokens of the request.
        input_tokens: u64,
        /// Tokens of the reply.
        output_tokens: u64,
        /// The part of the request that was read from the provider's cache.
        cached_input_tokens: u64,
        /// Its cost in dollars, including lost attempts before it; `None` if the model has no price.
        #[serde(serialize_with = "maybe_dollars")]
        cost: Option<MicroUsd>,
    },
    /// Without one.
    Failed {
        /// The reason.
        #[serde(rename = "why")]
        reason: Arc<str>,
    },
    /// It was cancelled: by an interrupt, or a time limit.
    Cancelled,
    /// The process ended before it.
    Lost,
    /// It is still running, as far as the journal shows.
    Open,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpan {
    /// The model call.
    pub call: CallId,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments, as the model wrote them.
    pub arguments: Arc<str>,
    /// When its authorization began.
    #[serde(rename = "judged_ms", serialize_with = "moment")]
    pub authorized_at: RunTime,
    /// When it began to run; `None` if it did not.
    #[serde(rename = "begun_ms", serialize_with = "maybe_moment")]
    pub started_at: Option<RunTime>,
    /// When it ended.
    #[serde(rename = "ended_ms", serialize_with = "moment")]
    pub ended_at: RunTime,
    /// How it ended; `None` if unknown.
    pub status: Option<ToolStatus>,
    /// The decision of the policy and its rule; `None` for a call that was not authorized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// The usage of a sub-agent's model call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubagentSpan {
    /// When it was charged.
    #[serde(rename = "at_ms", serialize_with = "moment")]
    pub at: RunTime,
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// The part of the request that was read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Its cost in dollars; `None` if the model has no price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
}

#[allow(clippy::ref_option)] // asked for by serde
fn maybe_moment<S: serde::Serializer>(time: &Option<RunTime>, to: S) -> Result<S::Ok, S::Error> {
    maybe_millis(&time.map(|time| time.since(RunTime::START)), to)
}

/// Collects the spans.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    calls: Vec<CallSpan>,
    tools: Vec<ToolSpan>,
    subagents: Vec<SubagentSpan>,
    /// The running requests.
    open_calls: HashMap<EffectId, usize>,
    /// The tool calls that are being authorized, or run.
    open_tools: HashMap<EffectId, usize>,
    spent: MicroUsd,
}

impl Timeline {
    /// Adds an event that led to this machine.
    pub(super) fn on_event(
        &mut self,
        at: RunTime,
        event: &Event,
        times: Option<CallTiming>,
        machine: &Machine,
    ) {
        match event {
            Event::Replied { id, reply, .. } => {
                let run = machine.state.run();
                let cost = run.used.cost.saturating_sub(self.spent);
                self.spent = run.used.cost;
                let end = replied_end(reply, run.rules.price.map(|_| cost));
                self.call_ended(*id, at, times, end);
            }
            Event::CallFailed { id, fault } => {
                let reason = Arc::clone(&fault.message);
                self.call_ended(*id, at, times, CallEnd::Failed { reason });
            }
            Event::Authorized { id, authorization } => {
                if let Some(index) = self.open_tools.remove(id) {
                    let status = match authorization {
                        Authorization::Rejected { result } => Some(result.status),
                        Authorization::Abort => Some(ToolStatus::Denied),
                        Authorization::Approved { .. } => None,
                    };
                    let tool = &mut self.tools[index];
                    (tool.ended_at, tool.status) = (at, status);
                    tool.decision = decision_of(authorization);
                }
            }
            Event::ToolCompleted { id, result } => {
                if let Some(index) = self.open_tools.remove(id) {
                    let tool = &mut self.tools[index];
                    (tool.ended_at, tool.status) = (at, Some(result.status));
                }
            }
            Event::UsageReported { usage, cost, .. } => {
                self.spent = self.spent + *cost;
                self.subagents.push(SubagentSpan {
                    at,
                    input_tokens: usage.input.0,
                    output_tokens: usage.output.0,
                    cached_input_tokens: usage.cached_input.0,
                    cost: machine.state.run().rules.price.map(|_| *cost),
                });
            }
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. }
            | Event::Prepared { .. }
            | Event::Checked { .. } => {}
        }
        // The machine itself ends what is open, after a deadline or an interrupt.
        if matches!(machine.state, State::Done(_)) {
            self.cancel_all(at);
        }
    }

    /// Adds the effects.
    pub(super) fn on_effects(&mut self, at: RunTime, machine: &Machine, output: &MachineOutput) {
        for effect in &output.effects {
            match effect {
                Effect::CallModel { id, purpose, attempt, .. } => {
                    self.open_calls.insert(*id, self.calls.len());
                    self.calls.push(CallSpan {
                        purpose: *purpose,
                        attempt: *attempt,
                        messages: message_count(machine),
                        started_at: at,
                        duration: TimeSpan::ZERO,
                        encode: None,
                        first_byte: None,
                        end: CallEnd::Open,
                    });
                }
                Effect::Authorize { id, call } => {
                    self.open_tools.insert(*id, self.tools.len());
                    self.tools.push(new_tool_span(call, at));
                }
                Effect::RunTool { id, call, .. } => {
                    if let Some(index) = self.tools.iter().rposition(|tool| tool.call == call.id) {
                        self.tools[index].started_at = Some(at);
                        self.open_tools.insert(*id, index);
                    }
                }
                Effect::Cancel { id } => {
                    self.call_ended(*id, at, None, CallEnd::Cancelled);
                    if let Some(index) = self.open_tools.remove(id) {
                        let tool = &mut self.tools[index];
                        (tool.ended_at, tool.status) = (at, Some(ToolStatus::Interrupted));
                    }
                }
                Effect::Prepare { .. } | Effect::CheckAnswer { .. } | Effect::End => {}
            }
        }
    }

    /// Ends what was running when its process ended.
    pub(super) fn on_process_end(&mut self, at: RunTime) {
        let open: Vec<EffectId> = self.open_calls.keys().copied().collect();
        for id in open {
            self.call_ended(id, at, None, CallEnd::Lost);
        }
        for (_, index) in self.open_tools.drain() {
            self.tools[index].ended_at = at;
        }
    }

    fn cancel_all(&mut self, at: RunTime) {
        let open: Vec<EffectId> = self.open_calls.keys().copied().collect();
        for id in open {
            self.call_ended(id, at, None, CallEnd::Cancelled);
        }
        for (_, index) in self.open_tools.drain() {
            let tool = &mut self.tools[index];
            (tool.ended_at, tool.status) = (at, Some(ToolStatus::Interrupted));
        }
    }

    fn call_ended(&mut self, id: EffectId, at: RunTime, times: Option<CallTiming>, end: CallEnd) {
        if let Some(index) = self.open_calls.remove(&id) {
            let call = &mut self.calls[index];
            (call.duration, call.end) = (at.since(call.started_at), end);
            call.encode = times.map(|times| times.encode);
            call.first_byte = times.and_then(|times| times.first_byte);
        }
    }

    /// Returns the spans; open ones end here.
    pub(super) fn finish(
        mut self,
        at: RunTime,
    ) -> (Vec<CallSpan>, Vec<ToolSpan>, Vec<SubagentSpan>) {
        for index in self.open_calls.into_values() {
            self.calls[index].duration = at.since(self.calls[index].started_at);
        }
        for index in self.open_tools.into_values() {
            self.tools[index].ended_at = at;
        }
        (self.calls, self.tools, self.subagents)
    }
}

fn replied_end(reply: &Reply, cost: Option<MicroUsd>) -> CallEnd {
    let usage = &reply.usage;
    CallEnd::Replied {
        finish: reply.finish.clone(),
        input_tokens: usage.input.0,
        output_tokens: usage.output.0,
        cached_input_tokens: usage.cached_input.0,
        cost,
    }
}

fn new_tool_span(call: &ToolCall, at: RunTime) -> ToolSpan {
    ToolSpan {
        call: call.id.clone(),
        name: Arc::clone(&call.name),
        arguments: call.arguments.text().into(),
        authorized_at: at,
        started_at: None,
        ended_at: at,
        status: None,
        decision: None,
    }
}
