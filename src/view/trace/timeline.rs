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
    /// How long writing it down took.
    #[serde(rename = "encode_ms", serialize_with = "maybe_millis")]
    pub encode: Option<TimeSpan>,
    /// From there to the first byte of the reply.
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
        /// What it cost, in dollars, with what was lost before it; none when the model has no price.
        #[serde(serialize_with = "maybe_dollars")]
        cost: Option<MicroUsd>,
    },
    /// Without one.
    Failed {
        /// Why.
        #[serde(rename = "why")]
        reason: Arc<str>,
    },
    /// It was cancelled: by an interrupt, or because its time was over.
    Cancelled,
    /// The process ended meanwhile.
    Lost,
    /// It is still under way, as far as the journal tells.
    Open,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpan {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub name: Arc<str>,
    /// What the tool is called with, as the model wrote it.
    pub arguments: Arc<str>,
    /// When its judging began.
    #[serde(rename = "judged_ms", serialize_with = "moment")]
    pub authorized_at: RunTime,
    /// When it began to run; none when it did not.
    #[serde(rename = "begun_ms", serialize_with = "maybe_moment")]
    pub started_at: Option<RunTime>,
    /// When it was answered.
    #[serde(rename = "ended_ms", serialize_with = "moment")]
    pub ended_at: RunTime,
    /// How it ended; none when nobody knows.
    pub status: Option<ToolStatus>,
    /// What the policy said, and by which rule; none for a call that was not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What a model call of a sub-agent used.
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
    /// What it cost, in dollars; none when the model has no price.
    #[serde(serialize_with = "maybe_dollars")]
    pub cost: Option<MicroUsd>,
}

#[allow(clippy::ref_option)] // asked for by serde
fn maybe_moment<S: serde::Serializer>(time: &Option<RunTime>, to: S) -> Result<S::Ok, S::Error> {
    maybe_millis(&time.map(|time| time.since(RunTime::START)), to)
}

/// The spans, while they are collected.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    calls: Vec<CallSpan>,
    tools: Vec<ToolSpan>,
    subagents: Vec<SubagentSpan>,
    /// Which of the requests are under way.
    open_calls: HashMap<EffectId, usize>,
    /// Which of the tool calls are being judged, or run.
    open_tools: HashMap<EffectId, usize>,
    spent: MicroUsd,
}

impl Timeline {
    /// An event came, and led here.
    pub(super) fn on_event(
        &mut self,
        at: RunTime,
        event: &Event,
        times: Option<CallTiming>,
        fold: &Machine,
    ) {
        match event {
            Event::Replied { id, reply, .. } => {
                let run = fold.state.run();
                let cost = run.used.cost.saturating_sub(self.spent);
                self.spent = run.used.cost;
                let end = replied_end(reply, run.rules.price.map(|_| cost));
                self.call_ended(*id, at, times, end);
            }
            Event::CallFailed { id, fault } => {
                let why = Arc::clone(&fault.message);
                self.call_ended(*id, at, times, CallEnd::Failed { reason: why });
            }
            Event::Authorized { id, authorization: verdict } => {
                if let Some(index) = self.open_tools.remove(id) {
                    let status = match verdict {
                        Authorization::Rejected { result } => Some(result.status),
                        Authorization::Abort => Some(ToolStatus::Denied),
                        Authorization::Approved { .. } => None,
                    };
                    let tool = &mut self.tools[index];
                    (tool.ended_at, tool.status) = (at, status);
                    tool.decision = decision_of(verdict);
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
                    cost: fold.state.run().rules.price.map(|_| *cost),
                });
            }
            Event::Tick { .. }
            | Event::Interrupt { .. }
            | Event::StoreFailed { .. }
            | Event::InternalError { .. }
            | Event::Prepared { .. }
            | Event::Checked { .. } => {}
        }
        // What the machine has settled itself, because a time was over or somebody interrupted the run.
        if matches!(fold.state, State::Done(_)) {
            self.cancel_all(at);
        }
    }

    /// Effects follow.
    pub(super) fn on_effects(&mut self, at: RunTime, fold: &Machine, outcomes: &MachineOutput) {
        for effect in &outcomes.effects {
            match effect {
                Effect::CallModel { id, purpose, attempt, .. } => {
                    self.open_calls.insert(*id, self.calls.len());
                    self.calls.push(CallSpan {
                        purpose: *purpose,
                        attempt: *attempt,
                        messages: message_count(fold),
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

    /// The process of what was under way is gone.
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

    /// Returns the spans; what is still open ends here.
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
