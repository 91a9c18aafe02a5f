//! Conversion of public events to spans.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use serde_json::json;

use super::ids::{TraceIdGenerator, TraceParent};
use super::span::{OtelSpan, SpanKind};
use crate::machine::RunStatus;
use crate::types::{CallId, EffectId, MicroUsd, ReplyFinish, Tokens, ToolStatus, Usage};
use crate::view::public_events::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, PublicEvent, PublicEventKind,
    SubagentCall, ToolCallEnd, ToolCallStart,
};

/// Builds the spans of a run from its public events.
pub(super) struct SpanBuilder {
    pub(super) trace: u128,
    root: u64,
    parent: Option<u64>,
    ids: TraceIdGenerator,
    model: Arc<str>,
    run: Option<OtelSpan>,
    call: Option<(EffectId, OtelSpan)>,
    /// The tool calls that have not ended, with the usage and cost of model calls of their sub-agents.
    tools: HashMap<CallId, (OtelSpan, Usage, Option<MicroUsd>)>,
    usage: Usage,
    latest: Timestamp,
    /// The task, if content is sent: prompts, replies, and the arguments and results of tool calls.
    content: Option<Arc<str>>,
}

/// Length limit of a sent message, argument or result, in characters.
const MAX_CONTENT: usize = 32 << 10;

impl SpanBuilder {
    /// Returns a builder for a run that began at this time, with the span `parent` above it.
    pub(super) fn new(
        session: &str,
        began: Timestamp,
        parent: Option<TraceParent>,
        content: Option<Arc<str>>,
    ) -> Self {
        let mut ids = TraceIdGenerator::new(session, began);
        let (trace, root) = (ids.trace(), ids.span());
        Self {
            trace: parent.map_or(trace, |parent| parent.trace),
            root,
            parent: parent.map(|parent| parent.span),
            ids,
            model: "".into(),
            run: None,
            call: None,
            tools: HashMap::new(),
            usage: Usage::default(),
            latest: began,
            content,
        }
    }

    /// Returns a builder for the run of a sub-agent dispatched by a tool call; `None` if the call does not run.
    pub(super) fn below_call(&self, call: &CallId) -> Option<Self> {
        let (span, ..) = self.tools.get(call)?;
        let parent = TraceParent { trace: self.trace, span: span.id, is_sampled: true };
        // The task is among the arguments in the span of the call.
        let content = self.content.as_ref().map(|_| "".into());
        Some(Self::new(&format!("{:016x}", span.id), self.latest, Some(parent), content))
    }

    /// Returns the trace parent for the commands of the run.
    pub(super) fn trace_parent(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.root, is_sampled: true }
    }

    /// Adds an event. Returns the span that the event ends.
    pub(super) fn on_event(&mut self, event: &PublicEvent) -> Option<OtelSpan> {
        let at = event.ts;
        self.latest = at;
        match &event.kind {
            PublicEventKind::AgentStart(start) => self.begin(at, &event.session_id, start),
            PublicEventKind::AgentEnd(end) => return self.end(at, end),
            PublicEventKind::ApiCallStart(start) => self.call_started(at, start),
            PublicEventKind::ApiCallEnd(end) => return self.call_ended(at, end),
            PublicEventKind::ToolCallStart(start) => self.tool_started(at, start),
            PublicEventKind::ToolCallEnd(end) => return self.tool_ended(at, end),
            PublicEventKind::Retry(_)
            | PublicEventKind::ModelFallback(_)
            | PublicEventKind::HookComplete(_)
            | PublicEventKind::SteeringReceived(_)
            | PublicEventKind::CompactionTriggered(_)
            | PublicEventKind::CompactionComplete(_)
            | PublicEventKind::LimitReached(_)
            | PublicEventKind::LoopDetected(_)
            | PublicEventKind::Error(_) => {
                if let Some(run) = &mut self.run {
                    run.add_event(at, event.kind.name());
                }
            }
            PublicEventKind::SubagentCall(call) => self.add_subagent_call(at, call),
            PublicEventKind::SubagentDenied(denied) => {
                if let Some((span, ..)) = self.tools.get_mut(&denied.tool_call_id) {
                    span.add_event(at, event.kind.name());
                }
            }
            PublicEventKind::StateChange(_) | PublicEventKind::TextDelta(_) => {}
        }
        None
    }

    /// Returns the open spans, at the end of the events.
    pub(super) fn close_all(&mut self) -> Vec<OtelSpan> {
        let call = self.call.take().map(|(_, span)| span);
        let open = call.into_iter().chain(self.tools.drain().map(|(_, (span, ..))| span));
        let mut spans: Vec<OtelSpan> = open.chain(self.run.take()).collect();
        for span in &mut spans {
            span.ended_at = self.latest;
            span.set_error("internal_error", "the run was interrupted");
        }
        spans
    }

    fn span(&mut self, at: Timestamp, name: String, kind: SpanKind, operation: &str) -> OtelSpan {
        let mut span = OtelSpan {
            id: self.ids.span(),
            parent: Some(self.root),
            name,
            kind,
            started_at: at,
            ended_at: at,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        };
        span.set_text("gen_ai.operation.name", operation);
        span
    }

    fn begin(&mut self, at: Timestamp, session: &str, start: &AgentStart) {
        self.model = Arc::clone(&start.model);
        let name = format!("invoke_agent {}", start.agent);
        let mut run = self.span(at, name, SpanKind::Internal, "invoke_agent");
        (run.id, run.parent) = (self.root, self.parent);
        set_model(&mut run, &start.model);
        run.set_text("gen_ai.agent.name", &start.agent);
        run.set_text("gen_ai.agent.version", start.version);
        run.set_text("gen_ai.conversation.id", session);
        if let Some(task) = self.content.as_deref().filter(|task| !task.is_empty()) {
            run.set_text("gen_ai.input.messages", &message("user", task, None));
        }
        self.run = Some(run);
    }

    fn end(&mut self, at: Timestamp, end: &AgentEnd) -> Option<OtelSpan> {
        let mut run = self.run.take()?;
        run.ended_at = at;
        set_usage(&mut run, self.usage);
        run.set_text("architect.stop_reason", end.reason.name());
        run.set_number("architect.exit_code", end.exit_code);
        run.set_number("architect.steps", end.steps);
        run.set_number("architect.llm_calls", end.llm_calls);
        set_cost(&mut run, end.cost);
        if end.status == RunStatus::Failed {
            run.set_error(end.reason.name(), end.error.as_deref().unwrap_or(end.reason.name()));
        }
        Some(run)
    }

    fn call_started(&mut self, at: Timestamp, start: &ApiCallStart) {
        let model = Arc::clone(start.model.as_ref().unwrap_or(&self.model));
        let name = format!("chat {}", model_name(&model));
        let mut call = self.span(at, name, SpanKind::Client, "chat");
        set_model(&mut call, &model);
        if let Some(most) = start.max_output_tokens {
            call.set_number("gen_ai.request.max_tokens", most.0);
        }
        call.set_number("architect.attempt", start.attempt);
        call.set_text("architect.purpose", start.purpose.as_str());
        self.call = Some((start.call, call));
    }

    fn call_ended(&mut self, at: Timestamp, end: &ApiCallEnd) -> Option<OtelSpan> {
        let (_, mut call) = self.call.take().filter(|(id, _)| *id == end.call)?;
        self.usage = self.usage + end.usage;
        call.ended_at = at;
        match &end.outcome {
            CallOutcome::Replied { finish, model, text, .. } => {
                set_usage(&mut call, end.usage);
                let finish = match finish {
                    ReplyFinish::Refused => "content_filter",
                    finish => finish.name(),
                };
                if self.content.is_some() && !text.is_empty() {
                    let reply = message("assistant", text, Some(finish));
                    call.set_text("gen_ai.output.messages", &reply);
                }
                let finish = json!({ "arrayValue": { "values": [{ "stringValue": finish }] } });
                call.set("gen_ai.response.finish_reasons", &finish);
                if let Some(model) = model {
                    call.set_text("gen_ai.response.model", model);
                }
            }
            CallOutcome::Failed { fault, message } => call.set_error(fault.as_str(), message),
            CallOutcome::Cancelled => call.set_error("cancelled", "the request was cancelled"),
        }
        if let Some(first) = end.first_byte {
            call.set_float("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        set_cost(&mut call, end.cost);
        Some(call)
    }

    fn tool_started(&mut self, at: Timestamp, start: &ToolCallStart) {
        let name = format!("execute_tool {}", start.name);
        let mut span = self.span(at, name, SpanKind::Internal, "execute_tool");
        span.set_text("gen_ai.tool.name", &start.name);
        span.set_text("gen_ai.tool.type", "function");
        span.set_text("gen_ai.tool.call.id", start.id.as_str());
        if self.content.is_some() {
            let arguments = start.arguments.to_string();
            span.set_text("gen_ai.tool.call.arguments", bounded(&arguments));
        }
        self.tools.insert(start.id.clone(), (span, Usage::default(), None));
    }

    /// Adds a sub-agent's model call as an event of the dispatching tool call. Its usage counts for the run.
    fn add_subagent_call(&mut self, at: Timestamp, call: &SubagentCall) {
        self.usage = self.usage + call.usage;
        if let Some((span, usage, sum)) = self.tools.get_mut(&call.tool_call_id) {
            span.add_event(at, "subagent_call");
            *usage = *usage + call.usage;
            *sum = call.cost.map(|cost| sum.unwrap_or_default() + cost).or(*sum);
        }
    }

    fn tool_ended(&mut self, at: Timestamp, end: &ToolCallEnd) -> Option<OtelSpan> {
        let (mut tool, used, cost) = self.tools.remove(&end.id)?;
        tool.ended_at = at;
        if used.total() > Tokens::ZERO {
            set_usage(&mut tool, used);
        }
        set_cost(&mut tool, cost);
        // The output of a tool may be secret; without the user's consent, only the status is sent.
        if self.content.is_some() {
            tool.set_text("gen_ai.tool.call.result", bounded(&end.output));
        }
        let kind = match end.status {
            ToolStatus::Ok => return Some(tool),
            ToolStatus::TimedOut => "timeout",
            ToolStatus::Unknown => "unknown_tool",
            ToolStatus::Malformed => "malformed_arguments",
            status => status.as_str(),
        };
        tool.set_error(kind, kind);
        Some(tool)
    }
}

/// Returns a message in the form of the conventions.
fn message(role: &str, text: &str, finish: Option<&str>) -> String {
    let parts = json!([{ "type": "text", "content": bounded(text) }]);
    let mut message = json!({ "role": role, "parts": parts });
    if let Some(finish) = finish {
        message["finish_reason"] = finish.into();
    }
    json!([message]).to_string()
}

/// Returns a text, cut to the length limit.
fn bounded(text: &str) -> &str {
    text.char_indices().nth(MAX_CONTENT).map_or(text, |(end, _)| &text[..end])
}

fn set_usage(span: &mut OtelSpan, used: Usage) {
    let amounts = [
        ("gen_ai.usage.input_tokens", used.input),
        ("gen_ai.usage.output_tokens", used.output),
        ("gen_ai.usage.cache_read.input_tokens", used.cached_input),
        ("gen_ai.usage.cache_creation.input_tokens", used.cache_write),
        ("gen_ai.usage.reasoning.output_tokens", used.reasoning),
    ];
    for (index, (name, tokens)) in amounts.into_iter().enumerate() {
        if index < 2 || tokens.0 > 0 {
            span.set_number(name, tokens.0);
        }
    }
}

fn set_cost(span: &mut OtelSpan, cost: Option<MicroUsd>) {
    if let Some(cost) = cost {
        span.set_float("architect.cost_usd", cost.as_dollars());
    }
}

/// Sets the name of the model, and its provider under the name that the conventions use.
fn set_model(span: &mut OtelSpan, model: &str) {
    let provider = match model.split_once('/').map_or("", |(provider, _)| provider) {
        "openai-chat" => "openai",
        "gemini" => "gcp.gemini",
        provider => provider,
    };
    span.set_text("gen_ai.provider.name", provider);
    span.set_text("gen_ai.request.model", model_name(model));
}

/// Returns the name of the model without its provider.
fn model_name(model: &str) -> &str {
    model.split_once('/').map_or(model, |(_, name)| name)
}
