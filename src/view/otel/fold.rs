//! From public events to spans.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ids::{Ids, SpanId, TraceId, TraceParent};
use super::span::{Happening, Span, SpanKind};
use crate::machine::{Purpose, Status};
use crate::model::{CallId, EffectId, FaultKind, Finish, Micros, ToolStatus};
use crate::view::public::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, Kind, PublicEvent, SubagentCall,
    ToolCallEnd, ToolCallStart, Used,
};

/// Folds the public events of a run into spans.
pub(super) struct Spans {
    pub(super) trace: TraceId,
    root: SpanId,
    parent: Option<SpanId>,
    ids: Ids,
    model: Arc<str>,
    run: Option<Span>,
    call: Option<(EffectId, Span)>,
    tools: HashMap<CallId, Tool>,
    used: Used,
    latest: Timestamp,
}

/// A tool call that has not ended.
struct Tool {
    span: Span,
    /// What model calls of its own used, and cost.
    used: Used,
    cost: Option<Micros>,
}

impl Spans {
    /// Returns the spans of a run that began at this time, as a part of what `parent` says.
    pub(super) fn new(session: &str, began: Timestamp, parent: Option<TraceParent>) -> Self {
        let mut ids = Ids::new(session, began);
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
            used: Used::default(),
            latest: began,
        }
    }

    /// Returns what the commands of the run are told to be a part of.
    pub(super) fn within(&self) -> TraceParent {
        TraceParent { trace: self.trace, span: self.root, is_sampled: true }
    }

    /// Takes an event in; returns the spans that it ends.
    pub(super) fn see(&mut self, event: &PublicEvent) -> Vec<Span> {
        let at = event.ts;
        self.latest = at;
        match &event.kind {
            Kind::AgentStart(start) => self.begin(at, &event.session_id, start),
            Kind::AgentEnd(end) => return self.end(at, end),
            Kind::ApiCallStart(start) => self.call_started(at, start),
            Kind::ApiCallEnd(end) => return self.call_ended(at, end).into_iter().collect(),
            Kind::ToolCallStart(start) => self.tool_started(at, start),
            Kind::ToolCallEnd(end) => return self.tool_ended(at, end).into_iter().collect(),
            Kind::Retry(_)
            | Kind::HookComplete(_)
            | Kind::SteeringReceived(_)
            | Kind::CompactionTriggered(_)
            | Kind::CompactionComplete(_)
            | Kind::SafetyNet(_)
            | Kind::LoopDetected(_)
            | Kind::Error(_) => self.happened(at, event.kind.name()),
            Kind::SubagentCall(call) => self.subagent_called(at, call),
            Kind::StateChange(_) | Kind::TextDelta(_) => {}
        }
        Vec::new()
    }

    /// Returns what is still open, when nothing more will be seen.
    pub(super) fn break_off(&mut self) -> Vec<Span> {
        let call = self.call.take().map(|(_, span)| span);
        let open = call.into_iter().chain(self.tools.drain().map(|(_, tool)| tool.span));
        let mut spans: Vec<Span> = open.chain(self.run.take()).collect();
        for span in &mut spans {
            span.ended = self.latest;
            span.fail("internal_error", "the run broke off");
        }
        spans
    }

    fn span(&mut self, at: Timestamp, name: String, kind: SpanKind) -> Span {
        Span {
            id: self.ids.span(),
            parent: Some(self.root),
            name,
            kind,
            began: at,
            ended: at,
            attributes: Vec::new(),
            events: Vec::new(),
            error: None,
        }
    }

    fn happened(&mut self, at: Timestamp, name: &'static str) {
        if let Some(run) = &mut self.run {
            run.events.push(Happening { at, name });
        }
    }

    fn begin(&mut self, at: Timestamp, session: &str, start: &AgentStart) {
        self.model = Arc::clone(&start.model);
        let name = format!("invoke_agent {}", start.agent);
        let mut run = self.span(at, name, SpanKind::Internal);
        (run.id, run.parent) = (self.root, self.parent);
        run.set("gen_ai.operation.name", "invoke_agent");
        run.set("gen_ai.provider.name", provider(&start.model));
        run.set("gen_ai.request.model", model(&start.model));
        run.set("gen_ai.agent.name", &*start.agent);
        run.set("gen_ai.agent.version", start.version);
        run.set("gen_ai.conversation.id", session);
        self.run = Some(run);
    }

    fn end(&mut self, at: Timestamp, end: &AgentEnd) -> Vec<Span> {
        let Some(mut run) = self.run.take() else { return Vec::new() };
        run.ended = at;
        usage(&mut run, self.used);
        run.set("architect.stop_reason", end.reason.name());
        run.set("architect.exit_code", u32::from(end.exit_code));
        run.set("architect.steps", end.steps);
        run.set("architect.llm_calls", end.llm_calls);
        if let Some(cost) = end.cost {
            run.set("architect.cost_usd", cost.dollars());
        }
        if end.status == Status::Failed {
            run.fail(end.reason.name(), end.error.as_deref().unwrap_or(end.reason.name()));
        }
        vec![run]
    }

    fn call_started(&mut self, at: Timestamp, start: &ApiCallStart) {
        let whole = Arc::clone(&self.model);
        let mut call = self.span(at, format!("chat {}", model(&whole)), SpanKind::Client);
        call.set("gen_ai.operation.name", "chat");
        call.set("gen_ai.provider.name", provider(&whole));
        call.set("gen_ai.request.model", model(&whole));
        if let Some(most) = start.max_output_tokens {
            call.set("gen_ai.request.max_tokens", most.0);
        }
        call.set("architect.attempt", start.attempt);
        call.set(
            "architect.purpose",
            match start.purpose {
                Purpose::Agent => "agent",
                Purpose::Compaction => "compaction",
                Purpose::Closing => "closing",
            },
        );
        self.call = Some((start.call, call));
    }

    fn call_ended(&mut self, at: Timestamp, end: &ApiCallEnd) -> Option<Span> {
        let (_, mut call) = self.call.take().filter(|(id, _)| *id == end.call)?;
        let used = Used::from(end.usage);
        self.used += used;
        call.ended = at;
        match &end.outcome {
            CallOutcome::Replied { finish, model, .. } => {
                usage(&mut call, used);
                call.set("gen_ai.response.finish_reasons", vec![finish_reason(finish)]);
                if let Some(model) = model {
                    call.set("gen_ai.response.model", &**model);
                }
            }
            CallOutcome::Failed { fault, message } => call.fail(fault_name(*fault), &**message),
            CallOutcome::Cancelled => call.fail("cancelled", "nobody waits for the reply"),
        }
        if let Some(first) = end.first_byte {
            call.set("gen_ai.response.time_to_first_chunk", first.as_secs_f64());
        }
        if let Some(cost) = end.cost {
            call.set("architect.cost_usd", cost.dollars());
        }
        Some(call)
    }

    fn tool_started(&mut self, at: Timestamp, start: &ToolCallStart) {
        let mut tool = self.span(at, format!("execute_tool {}", start.name), SpanKind::Internal);
        tool.set("gen_ai.operation.name", "execute_tool");
        tool.set("gen_ai.tool.name", &*start.name);
        tool.set("gen_ai.tool.type", "function");
        tool.set("gen_ai.tool.call.id", start.id.as_str());
        let tool = Tool { span: tool, used: Used::default(), cost: None };
        self.tools.insert(start.id.clone(), tool);
    }

    /// A model call of a sub-agent is an event of the tool call that sent it, and counts for the run.
    fn subagent_called(&mut self, at: Timestamp, call: &SubagentCall) {
        let used = Used::from(call.usage);
        self.used += used;
        if let Some(tool) = self.tools.get_mut(&call.tool_call_id) {
            tool.span.events.push(Happening { at, name: "subagent_call" });
            tool.used += used;
            if let Some(cost) = call.cost {
                tool.cost = Some(tool.cost.unwrap_or_default() + cost);
            }
        }
    }

    fn tool_ended(&mut self, at: Timestamp, end: &ToolCallEnd) -> Option<Span> {
        let Tool { span: mut tool, used, cost } = self.tools.remove(&end.id)?;
        tool.ended = at;
        if used != Used::default() {
            usage(&mut tool, used);
        }
        if let Some(cost) = cost {
            tool.set("architect.cost_usd", cost.dollars());
        }
        if let Some(kind) = tool_error(end.status) {
            // What a tool answers may be anybody's secret; its status is enough.
            tool.fail(kind, kind);
        }
        Some(tool)
    }
}

fn usage(span: &mut Span, used: Used) {
    let amounts = [
        ("gen_ai.usage.input_tokens", used.input_tokens),
        ("gen_ai.usage.output_tokens", used.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", used.cached_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", used.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", used.reasoning_tokens),
    ];
    for (index, (name, tokens)) in amounts.into_iter().enumerate() {
        if index < 2 || tokens.0 > 0 {
            span.set(name, tokens.0);
        }
    }
}

/// Returns the name of the provider, as the conventions spell it.
fn provider(model: &str) -> &str {
    match model.split_once('/').map_or("", |(provider, _)| provider) {
        "openai-chat" => "openai",
        "gemini" => "gcp.gemini",
        provider => provider,
    }
}

/// Returns the name of the model without its provider.
fn model(model: &str) -> &str {
    model.split_once('/').map_or(model, |(_, name)| name)
}

fn finish_reason(finish: &Finish) -> String {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::Pause => "pause",
        Finish::Refused => "content_filter",
        Finish::ContextFull => "context_full",
        Finish::Other(reason) => reason,
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

fn tool_error(status: ToolStatus) -> Option<&'static str> {
    match status {
        ToolStatus::Ok => None,
        ToolStatus::Failed => Some("failed"),
        ToolStatus::TimedOut => Some("timeout"),
        ToolStatus::Unknown => Some("unknown_tool"),
        ToolStatus::Malformed => Some("malformed_arguments"),
        ToolStatus::Denied => Some("denied"),
        ToolStatus::Cut => Some("cut"),
        ToolStatus::Skipped => Some("skipped"),
        ToolStatus::Interrupted => Some("interrupted"),
        ToolStatus::Abandoned => Some("abandoned"),
        ToolStatus::InDoubt => Some("in_doubt"),
    }
}
