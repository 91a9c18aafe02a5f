//! Turns public events into spans.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ids::{SpanId, TraceId, TraceIdGenerator, TraceParent};
use super::span::{OtelSpan, SpanEvent, SpanKind};
use crate::machine::{CallPurpose, RunStatus};
use crate::model::{CallId, EffectId, FaultKind, MicroUsd, ReplyFinish, ToolStatus};
use crate::view::public::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, PublicEvent, PublicEventKind,
    SubagentCall, TokenUsage, ToolCallEnd, ToolCallStart,
};

/// Folds the public events of a run into spans.
pub(super) struct SpanBuilder {
    pub(super) trace: TraceId,
    root: SpanId,
    parent: Option<SpanId>,
    ids: TraceIdGenerator,
    model: Arc<str>,
    run: Option<OtelSpan>,
    call: Option<(EffectId, OtelSpan)>,
    tools: HashMap<CallId, OpenToolSpan>,
    usage: TokenUsage,
    latest: Timestamp,
}

/// A tool call that has not ended.
struct OpenToolSpan {
    span: OtelSpan,
    /// The usage of its own model calls.
    usage: TokenUsage,
    cost: Option<MicroUsd>,
}

impl SpanBuilder {
    /// Returns a builder for a run that began at this time, below `parent`.
    pub(super) fn new(session: &str, began: Timestamp, parent: Option<TraceParent>) -> Self {
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
            usage: TokenUsage::default(),
            latest: began,
        }
    }

    /// Returns the parent for the commands of the run.
    pub(super) fn trace_parent(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.root, is_sampled: true }
    }

    /// Adds an event; returns the spans that it ends.
    pub(super) fn on_event(&mut self, event: &PublicEvent) -> Vec<OtelSpan> {
        let at = event.ts;
        self.latest = at;
        match &event.kind {
            PublicEventKind::AgentStart(start) => self.begin(at, &event.session_id, start),
            PublicEventKind::AgentEnd(end) => return self.end(at, end),
            PublicEventKind::ApiCallStart(start) => self.call_started(at, start),
            PublicEventKind::ApiCallEnd(end) => {
                return self.call_ended(at, end).into_iter().collect();
            }
            PublicEventKind::ToolCallStart(start) => self.tool_started(at, start),
            PublicEventKind::ToolCallEnd(end) => {
                return self.tool_ended(at, end).into_iter().collect();
            }
            PublicEventKind::Retry(_)
            | PublicEventKind::HookComplete(_)
            | PublicEventKind::SteeringReceived(_)
            | PublicEventKind::CompactionTriggered(_)
            | PublicEventKind::CompactionComplete(_)
            | PublicEventKind::LimitReached(_)
            | PublicEventKind::LoopDetected(_)
            | PublicEventKind::Error(_) => self.add_event(at, event.kind.name()),
            PublicEventKind::SubagentCall(call) => self.add_subagent_call(at, call),
            PublicEventKind::StateChange(_) | PublicEventKind::TextDelta(_) => {}
        }
        Vec::new()
    }

    /// Returns the open spans, when nothing more follows.
    pub(super) fn close_all(&mut self) -> Vec<OtelSpan> {
        let call = self.call.take().map(|(_, span)| span);
        let open = call.into_iter().chain(self.tools.drain().map(|(_, tool)| tool.span));
        let mut spans: Vec<OtelSpan> = open.chain(self.run.take()).collect();
        for span in &mut spans {
            span.ended_at = self.latest;
            span.set_error("internal_error", "the run was interrupted");
        }
        spans
    }

    fn span(&mut self, at: Timestamp, name: String, kind: SpanKind) -> OtelSpan {
        OtelSpan {
            id: self.ids.span(),
            parent: Some(self.root),
            name,
            kind,
            started_at: at,
            ended_at: at,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        }
    }

    fn add_event(&mut self, at: Timestamp, name: &'static str) {
        if let Some(run) = &mut self.run {
            run.events.push(SpanEvent { at, name });
        }
    }

    fn begin(&mut self, at: Timestamp, session: &str, start: &AgentStart) {
        self.model = Arc::clone(&start.model);
        let name = format!("invoke_agent {}", start.agent);
        let mut run = self.span(at, name, SpanKind::Internal);
        (run.id, run.parent) = (self.root, self.parent);
        run.set_attribute("gen_ai.operation.name", "invoke_agent");
        run.set_attribute("gen_ai.provider.name", provider_name(&start.model));
        run.set_attribute("gen_ai.request.model", model_name(&start.model));
        run.set_attribute("gen_ai.agent.name", &*start.agent);
        run.set_attribute("gen_ai.agent.version", start.version);
        run.set_attribute("gen_ai.conversation.id", session);
        self.run = Some(run);
    }

    fn end(&mut self, at: Timestamp, end: &AgentEnd) -> Vec<OtelSpan> {
        let Some(mut run) = self.run.take() else { return Vec::new() };
        run.ended_at = at;
        set_usage(&mut run, self.usage);
        run.set_attribute("architect.stop_reason", end.reason.name());
        run.set_attribute("architect.exit_code", u32::from(end.exit_code));
        run.set_attribute("architect.steps", end.steps);
        run.set_attribute("architect.llm_calls", end.llm_calls);
        if let Some(cost) = end.cost {
            run.set_attribute("architect.cost_usd", cost.as_dollars());
        }
        if end.status == RunStatus::Failed {
            run.set_error(end.reason.name(), end.error.as_deref().unwrap_or(end.reason.name()));
        }
        vec![run]
    }

    fn call_started(&mut self, at: Timestamp, start: &ApiCallStart) {
        let whole = Arc::clone(&self.model);
        let mut call = self.span(at, format!("chat {}", model_name(&whole)), SpanKind::Client);
        call.set_attribute("gen_ai.operation.name", "chat");
        call.set_attribute("gen_ai.provider.name", provider_name(&whole));
        call.set_attribute("gen_ai.request.model", model_name(&whole));
        if let Some(most) = start.max_output_tokens {
            call.set_attribute("gen_ai.request.max_tokens", most.0);
        }
        call.set_attribute("architect.attempt", start.attempt);
        call.set_attribute(
            "architect.purpose",
            match start.purpose {
                CallPurpose::Agent => "agent",
                CallPurpose::Compaction => "compaction",
                CallPurpose::Closing => "closing",
            },
        );
        self.call = Some((start.call, call));
    }

    fn call_ended(&mut self, at: Timestamp, end: &ApiCallEnd) -> Option<OtelSpan> {
        let (_, mut call) = self.call.take().filter(|(id, _)| *id == end.call)?;
        let used = TokenUsage::from(end.usage);
        self.usage += used;
        call.ended_at = at;
        match &end.outcome {
            CallOutcome::Replied { finish, model, .. } => {
                set_usage(&mut call, used);
                call.set_attribute(
                    "gen_ai.response.finish_reasons",
                    vec![finish_reason_name(finish)],
                );
                if let Some(model) = model {
                    call.set_attribute("gen_ai.response.model", &**model);
                }
            }
            CallOutcome::Failed { fault, message } => {
                call.set_error(fault_name(*fault), &**message)
            }
            CallOutcome::Cancelled => call.set_error("cancelled", "the request was cancelled"),
        }
        if let Some(first) = end.first_byte {
            call.set_attribute("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        if let Some(cost) = end.cost {
            call.set_attribute("architect.cost_usd", cost.as_dollars());
        }
        Some(call)
    }

    fn tool_started(&mut self, at: Timestamp, start: &ToolCallStart) {
        let mut tool = self.span(at, format!("execute_tool {}", start.name), SpanKind::Internal);
        tool.set_attribute("gen_ai.operation.name", "execute_tool");
        tool.set_attribute("gen_ai.tool.name", &*start.name);
        tool.set_attribute("gen_ai.tool.type", "function");
        tool.set_attribute("gen_ai.tool.call.id", start.id.as_str());
        let tool = OpenToolSpan { span: tool, usage: TokenUsage::default(), cost: None };
        self.tools.insert(start.id.clone(), tool);
    }

    /// A model call of a sub-agent is an event of the tool call that made it, and counts for the run.
    fn add_subagent_call(&mut self, at: Timestamp, call: &SubagentCall) {
        let used = TokenUsage::from(call.usage);
        self.usage += used;
        if let Some(tool) = self.tools.get_mut(&call.tool_call_id) {
            tool.span.events.push(SpanEvent { at, name: "subagent_call" });
            tool.usage += used;
            if let Some(cost) = call.cost {
                tool.cost = Some(tool.cost.unwrap_or_default() + cost);
            }
        }
    }

    fn tool_ended(&mut self, at: Timestamp, end: &ToolCallEnd) -> Option<OtelSpan> {
        let OpenToolSpan { span: mut tool, usage: used, cost } = self.tools.remove(&end.id)?;
        tool.ended_at = at;
        if used != TokenUsage::default() {
            set_usage(&mut tool, used);
        }
        if let Some(cost) = cost {
            tool.set_attribute("architect.cost_usd", cost.as_dollars());
        }
        if let Some(kind) = tool_error_kind(end.status) {
            // The output of a tool may be secret; its status is enough.
            tool.set_error(kind, kind);
        }
        Some(tool)
    }
}

fn set_usage(span: &mut OtelSpan, used: TokenUsage) {
    let amounts = [
        ("gen_ai.usage.input_tokens", used.input_tokens),
        ("gen_ai.usage.output_tokens", used.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", used.cached_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", used.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", used.reasoning_tokens),
    ];
    for (index, (name, tokens)) in amounts.into_iter().enumerate() {
        if index < 2 || tokens.0 > 0 {
            span.set_attribute(name, tokens.0);
        }
    }
}

/// Returns the provider's name in the conventions.
fn provider_name(model: &str) -> &str {
    match model.split_once('/').map_or("", |(provider, _)| provider) {
        "openai-chat" => "openai",
        "gemini" => "gcp.gemini",
        provider => provider,
    }
}

/// Returns the name of the model without its provider.
fn model_name(model: &str) -> &str {
    model.split_once('/').map_or(model, |(_, name)| name)
}

fn finish_reason_name(finish: &ReplyFinish) -> String {
    match finish {
        ReplyFinish::Stop => "stop",
        ReplyFinish::ToolCalls => "tool_calls",
        ReplyFinish::Length => "length",
        ReplyFinish::Pause => "pause",
        ReplyFinish::Refused => "content_filter",
        ReplyFinish::ContextFull => "context_full",
        ReplyFinish::Other(reason) => reason,
    }
    .to_owned()
}

fn fault_name(fault: FaultKind) -> &'static str {
    match fault {
        FaultKind::Connect => "connect",
        FaultKind::Timeout => "timeout",
        FaultKind::RateLimited => "rate_limited",
        FaultKind::Server => "server",
        FaultKind::Truncated => "truncated",
        FaultKind::Protocol => "protocol",
        FaultKind::Overflow => "overflow",
        FaultKind::Auth => "auth",
        FaultKind::Quota => "quota",
        FaultKind::Refused => "refused",
        FaultKind::Request => "request",
        FaultKind::NotAnApi => "not_an_api",
        FaultKind::Tls => "tls",
        FaultKind::Blocked => "blocked",
    }
}

fn tool_error_kind(status: ToolStatus) -> Option<&'static str> {
    match status {
        ToolStatus::Ok => None,
        ToolStatus::Failed => Some("failed"),
        ToolStatus::TimedOut => Some("timeout"),
        ToolStatus::Unknown => Some("unknown_tool"),
        ToolStatus::Malformed => Some("malformed_arguments"),
        ToolStatus::Denied => Some("denied"),
        ToolStatus::Truncated => Some("cut"),
        ToolStatus::Skipped => Some("skipped"),
        ToolStatus::Interrupted => Some("interrupted"),
        ToolStatus::Abandoned => Some("abandoned"),
        ToolStatus::InDoubt => Some("in_doubt"),
    }
}
