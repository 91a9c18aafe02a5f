//! The times of requests and tool calls.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::moment;
use crate::machine::{
    Authorization, BudgetUsage, CallPurpose, Effect, Event, Machine, MachineOutput, PricedUsage,
    State,
};
use crate::port::CallTiming;
use crate::types::{
    CallId, Decision, EffectId, FileChange, MicroUsd, ReplyFinish, RunTime, TimeSpan, ToolStatus,
    Usage,
};
use crate::view::public_events::{decision_of, dollars, message_count, millis};

/// A request to the model.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallSpan {
    /// The purpose.
    pub purpose: CallPurpose,
    /// The attempt, counted from one.
    pub attempt: u32,
    /// The model, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The step that its reply began; `None` for a reply without tool calls.
    pub step: Option<u32>,
    /// The number of messages in the request, without the system prompt.
    pub messages: u32,
    /// The session time at which it was sent.
    #[serde(rename = "begun_ms", serialize_with = "moment")]
    pub started_at: RunTime,
    /// The duration of the request.
    #[serde(rename = "time_ms", serialize_with = "millis")]
    pub duration: TimeSpan,
    /// The time for encoding it.
    #[serde(rename = "encode_ms", serialize_with = "millis")]
    pub encode: Option<TimeSpan>,
    /// The time of waiting for the first byte of the reply.
    #[serde(rename = "first_byte_ms", serialize_with = "millis")]
    pub first_byte: Option<TimeSpan>,
    /// The end of the request.
    #[serde(flatten)]
    pub end: CallEnd,
    /// The charged usage of a request without a reply: its input, and the output that had arrived, both estimated.
    /// `None` if it has a reply, or nothing was charged.
    #[serde(flatten)]
    pub charged: Option<SpanUsage>,
}

impl CallSpan {
    /// Returns the usage: of the reply, or as charged without a reply.
    pub fn usage(&self) -> Option<&SpanUsage> {
        match &self.end {
            CallEnd::Replied { usage, .. } => Some(usage),
            _ => self.charged.as_ref(),
        }
    }
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum CallEnd {
    /// A reply arrived.
    Replied {
        /// The finish reason of the model.
        finish: ReplyFinish,
        /// The usage, without that of earlier failed attempts.
        #[serde(flatten)]
        usage: SpanUsage,
    },
    /// The request failed.
    Failed {
        /// The reason.
        #[serde(rename = "why")]
        reason: Arc<str>,
    },
    /// The request was cancelled: by an interrupt or a time limit.
    Cancelled,
    /// The process ended before the request did.
    Lost,
    /// The request is still running, as far as the journal shows.
    Open,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolSpan {
    /// The id of the call.
    pub call: CallId,
    /// The index of the request whose reply contains the call.
    pub request: usize,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The arguments, as the model wrote them.
    pub arguments: Arc<str>,
    /// The session time at which the authorization began.
    #[serde(rename = "judged_ms", serialize_with = "moment")]
    pub authorized_at: RunTime,
    /// The session time at which the tool began to run; `None` if it did not run.
    #[serde(rename = "begun_ms", serialize_with = "moment")]
    pub started_at: Option<RunTime>,
    /// The session time at which the call ended.
    #[serde(rename = "ended_ms", serialize_with = "moment")]
    pub ended_at: RunTime,
    /// The status of the call; `None` if unknown.
    pub status: Option<ToolStatus>,
    /// The decision of the policy and its rule; `None` for a call that was not authorized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The files that the call changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
}

/// The usage of a sub-agent's model call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SubagentSpan {
    /// The session time at which it was charged.
    #[serde(rename = "at_ms", serialize_with = "moment")]
    pub at: RunTime,
    /// The usage.
    #[serde(flatten)]
    pub usage: SpanUsage,
}

/// The usage of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SpanUsage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// Tokens of the request that were read from the provider's cache.
    pub cached_input_tokens: u64,
    /// The cost in dollars; `None` if the model has no price.
    #[serde(serialize_with = "dollars")]
    pub cost: Option<MicroUsd>,
}

impl SpanUsage {
    fn new(usage: &Usage, cost: Option<MicroUsd>) -> Self {
        Self {
            input_tokens: usage.input.0,
            output_tokens: usage.output.0,
            cached_input_tokens: usage.cached_input.0,
            cost,
        }
    }
}

/// Collects the spans.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    pub(super) calls: Vec<CallSpan>,
    pub(super) tools: Vec<ToolSpan>,
    pub(super) subagents: Vec<SubagentSpan>,
    /// The index of the newest request whose reply is part of the conversation.
    pub(super) last_reply: usize,
    /// The number of steps so far.
    steps: u32,
    /// The indexes of the running requests.
    open_calls: HashMap<EffectId, usize>,
    /// The indexes of the tool calls that are being authorized or run.
    open_tools: HashMap<EffectId, usize>,
    /// The usage of the spans so far.
    spent: BudgetUsage,
}

impl Timeline {
    /// Adds an event, with the machine after it.
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
                let cost = run.used.cost.saturating_sub(self.spent.cost);
                self.spent = run.used;
                let usage = SpanUsage::new(&reply.usage, run.rules.price.map(|_| cost));
                let finish = reply.finish.clone();
                if let Some(&index) = self.open_calls.get(id)
                    && self.calls[index].purpose != CallPurpose::Compaction
                {
                    self.last_reply = index;
                    self.calls[index].step = (run.steps > self.steps).then_some(run.steps);
                }
                self.steps = run.steps;
                self.call_ended(*id, at, times, CallEnd::Replied { finish, usage });
            }
            Event::CallFailed { id, fault } => {
                let reason = Arc::clone(&fault.message);
                self.charge_open_call(Some(event), machine);
                self.call_ended(*id, at, times, CallEnd::Failed { reason });
            }
            Event::Authorized { id, authorization } => {
                let status = match authorization {
                    Authorization::Rejected { result } => Some(result.status),
                    Authorization::Abort => Some(ToolStatus::Denied),
                    Authorization::Approved { .. } => None,
                };
                if let Some(tool) = self.tool_ended(*id, at, status) {
                    tool.decision = decision_of(authorization);
                }
            }
            Event::ToolCompleted { id, result } => {
                if let Some(tool) = self.tool_ended(*id, at, Some(result.status)) {
                    tool.changes.clone_from(&result.changes);
                }
            }
            Event::UsageReported { usage, cost, .. } => {
                self.spent = machine.state.run().used;
                let cost = machine.state.run().rules.price.map(|_| *cost);
                self.subagents.push(SubagentSpan { at, usage: SpanUsage::new(usage, cost) });
            }
            _ => self.charge_open_call(Some(event), machine),
        }
        // After a deadline or an interrupt, the machine itself ends open calls.
        if matches!(machine.state, State::Done(_)) {
            self.end_open(at, &CallEnd::Cancelled, Some(ToolStatus::Interrupted));
        }
    }

    /// Adds the charge since the last span to the running request, which failed or was cancelled without a reply.
    pub(super) fn charge_open_call(&mut self, event: Option<&Event>, machine: &Machine) {
        let run = machine.state.run();
        let before = mem::replace(&mut self.spent, run.used);
        if before == run.used {
            return;
        }
        let PricedUsage { usage, cost } = PricedUsage::between(before, run, event);
        if let Some(&index) = self.open_calls.values().max() {
            self.calls[index].charged = Some(SpanUsage::new(&usage, run.rules.price.map(|_| cost)));
        }
    }

    /// Adds the requests and tool calls that effects begin or cancel.
    pub(super) fn on_effects(&mut self, at: RunTime, machine: &Machine, output: &MachineOutput) {
        for effect in &output.effects {
            match effect {
                Effect::CallModel { id, purpose, attempt, .. } => {
                    self.open_calls.insert(*id, self.calls.len());
                    self.calls.push(CallSpan {
                        purpose: *purpose,
                        attempt: *attempt,
                        model: machine.state.run().called_model(*purpose).cloned(),
                        step: None,
                        messages: message_count(machine),
                        started_at: at,
                        duration: TimeSpan::ZERO,
                        encode: None,
                        first_byte: None,
                        end: CallEnd::Open,
                        charged: None,
                    });
                }
                Effect::Authorize { id, call } => {
                    self.open_tools.insert(*id, self.tools.len());
                    self.tools.push(ToolSpan {
                        call: call.id.clone(),
                        request: self.last_reply,
                        name: Arc::clone(&call.name),
                        arguments: call.arguments.text().into(),
                        authorized_at: at,
                        started_at: None,
                        ended_at: at,
                        status: None,
                        decision: None,
                        changes: Vec::new(),
                    });
                }
                Effect::RunTool { id, call, .. } => {
                    if let Some(index) = self.tools.iter().rposition(|tool| tool.call == call.id) {
                        self.tools[index].started_at = Some(at);
                        self.open_tools.insert(*id, index);
                    }
                }
                Effect::Cancel { id } => {
                    self.call_ended(*id, at, None, CallEnd::Cancelled);
                    self.tool_ended(*id, at, Some(ToolStatus::Interrupted));
                }
                Effect::Prepare { .. } | Effect::CheckAnswer { .. } | Effect::End => {}
            }
        }
    }

    /// Ends all open requests and tool calls.
    pub(super) fn end_open(&mut self, at: RunTime, end: &CallEnd, status: Option<ToolStatus>) {
        for id in self.open_calls.keys().copied().collect::<Vec<_>>() {
            self.call_ended(id, at, None, end.clone());
        }
        for id in self.open_tools.keys().copied().collect::<Vec<_>>() {
            self.tool_ended(id, at, status);
        }
    }

    fn tool_ended(
        &mut self,
        id: EffectId,
        at: RunTime,
        status: Option<ToolStatus>,
    ) -> Option<&mut ToolSpan> {
        let tool = &mut self.tools[self.open_tools.remove(&id)?];
        (tool.ended_at, tool.status) = (at, status);
        Some(tool)
    }

    fn call_ended(&mut self, id: EffectId, at: RunTime, times: Option<CallTiming>, end: CallEnd) {
        if let Some(index) = self.open_calls.remove(&id) {
            let call = &mut self.calls[index];
            (call.duration, call.end) = (at.since(call.started_at), end);
            call.encode = times.map(|times| times.encode);
            call.first_byte = times.and_then(|times| times.first_byte);
        }
    }
}
