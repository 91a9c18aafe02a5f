//! Turns public events into the result document.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::changed_files::ChangedFiles;
use super::{DeniedCall, RunCosts, RunResult, ToolCallBrief, ToolUsed};
use crate::machine::StopReason;
use crate::model::{CallId, MicroUsd, TimeSpan, ToolStatus, Usage};
use crate::view::human::call_summary::summarize_call;
use crate::view::public::{
    AgentEnd, ApiCallEnd, ApiCallStart, PublicEvent, PublicEventKind, SCHEMA, TokenUsage,
    ToolCallEnd, ToolCallStart,
};
use crate::view::tool_failure::failure_line;
use crate::view::{CostSource, Language, RunInfo, sanitize};

/// Collects the public events of a run into its result, which is available at any time, on every way out of the
/// program.
#[derive(Clone, Debug)]
pub struct RunResultBuilder {
    info: Arc<RunInfo>,
    started_at: Option<jiff::Timestamp>,
    latest_at: Option<jiff::Timestamp>,
    steps: u32,
    llm_calls: u32,
    usage: TokenUsage,
    by_source: BTreeMap<CostSource, MicroUsd>,
    has_price: bool,
    /// In call order; `None` for a call that has not ended.
    tools: Vec<Option<ToolUsed>>,
    open_calls: HashMap<CallId, OpenToolCall>,
    /// The names and paths, each stored once.
    interned: HashSet<Arc<str>>,
    files: ChangedFiles,
    denied: Vec<DeniedCall>,
    end: Option<AgentEnd>,
}

/// A tool call that has not ended.
#[derive(Clone, Debug)]
struct OpenToolCall {
    /// Its index among the calls.
    index: usize,
    arguments: Arc<Value>,
}

/// The maximum length of a tool's error, in characters.
const LONGEST_ERROR: usize = 500;

/// The maximum length of its one-line summary, in characters.
const LONGEST_BRIEF: usize = 160;

impl RunResultBuilder {
    /// Returns a builder for a new run, including the earlier usage of its session, as the limits do.
    pub fn new(info: Arc<RunInfo>) -> Self {
        let (mut used, mut by_source) = (TokenUsage::default(), BTreeMap::new());
        for (source, charge) in info.prior_charges() {
            used += charge.usage.into();
            let sum: &mut MicroUsd = by_source.entry(source).or_default();
            *sum = *sum + charge.cost;
        }
        by_source.retain(|_, cost| *cost > MicroUsd::ZERO);
        Self {
            started_at: None,
            latest_at: None,
            steps: info.prior_usage.steps,
            llm_calls: info.prior_usage.llm_calls,
            usage: used,
            has_price: !by_source.is_empty(),
            by_source,
            info,
            tools: Vec::new(),
            open_calls: HashMap::new(),
            interned: HashSet::new(),
            files: ChangedFiles::default(),
            denied: Vec::new(),
            end: None,
        }
    }

    /// Adds an event.
    pub fn on_event(&mut self, event: &PublicEvent) {
        self.started_at.get_or_insert(event.ts);
        self.latest_at = Some(event.ts);
        match &event.kind {
            PublicEventKind::ApiCallStart(start) => self.call_started(start),
            PublicEventKind::ApiCallEnd(end) => self.call_ended(end),
            PublicEventKind::ToolCallStart(start) => self.tool_started(start),
            PublicEventKind::ToolCallEnd(end) => self.tool_ended(end),
            PublicEventKind::SubagentCall(call) => {
                self.llm_calls += 1;
                self.add_usage(&call.usage, call.cost, CostSource::Subagent);
            }
            PublicEventKind::AgentEnd(end) => self.end = Some(end.clone()),
            PublicEventKind::AgentStart(_)
            | PublicEventKind::StateChange(_)
            | PublicEventKind::Retry(_)
            | PublicEventKind::TextDelta(_)
            | PublicEventKind::HookComplete(_)
            | PublicEventKind::SteeringReceived(_)
            | PublicEventKind::CompactionTriggered(_)
            | PublicEventKind::CompactionComplete(_)
            | PublicEventKind::LimitReached(_)
            | PublicEventKind::LoopDetected(_)
            | PublicEventKind::Error(_) => {}
        }
    }

    /// Returns whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the result. A run without an end has broken down for this reason.
    pub fn result(&self, broken: (StopReason, &str)) -> RunResult {
        match &self.end {
            Some(end) => self.document(end),
            None => self.document(&self.end_after_breakdown(broken)),
        }
    }

    /// Returns the known part of the end of a run that broke down.
    fn end_after_breakdown(&self, (reason, error): (StopReason, &str)) -> AgentEnd {
        let duration = self.started_at.zip(self.latest_at).map(|(started, latest)| {
            let micros = latest.duration_since(started).as_micros();
            TimeSpan(u64::try_from(micros).unwrap_or(0))
        });
        AgentEnd {
            status: reason.status(),
            reason,
            exit_code: self.info.exit_code(reason),
            steps: self.steps,
            llm_calls: self.llm_calls,
            duration: duration.unwrap_or_default(),
            cost: self.has_price.then(|| self.reported_cost()),
            output: None,
            error: Some(error.into()),
        }
    }

    fn document(&self, end: &AgentEnd) -> RunResult {
        // Without a price, the cost of an earlier part of the session is not shown.
        let mut by_source = end.cost.map(|_| self.by_source.clone()).unwrap_or_default();
        // The cost that was charged on a resume, for a call that was lost.
        let earlier = end.cost.unwrap_or_default().saturating_sub(self.reported_cost());
        if earlier > MicroUsd::ZERO {
            let agent = by_source.entry(self.info.cost_source).or_default();
            *agent = *agent + earlier;
        }
        let output =
            answer_or_reason(end.reason, end.output.as_ref(), end.error.as_deref(), end.steps);
        RunResult {
            schema: SCHEMA,
            session_id: Some(Arc::clone(&self.info.session_id)),
            status: end.status,
            stop_reason: Some(end.reason),
            exit_code: end.exit_code,
            structured_output: self.structured(end),
            output,
            steps: end.steps,
            llm_calls: end.llm_calls,
            duration: end.duration,
            model: Some(Arc::clone(&self.info.model)),
            tools_used: self.tools.iter().flatten().cloned().collect(),
            files_modified: self.files.changed(),
            usage: self.usage,
            cost: end.cost,
            costs: RunCosts { total: end.cost, by_source },
            denied: self.denied.clone(),
            error: end.error.clone(),
            resume_command: None,
            evaluation: None,
        }
    }

    fn structured(&self, end: &AgentEnd) -> Option<Value> {
        let is_fit = self.info.has_schema && end.reason == StopReason::LlmDone;
        end.output.as_ref().filter(|_| is_fit).and_then(|text| serde_json::from_str(text).ok())
    }

    fn reported_cost(&self) -> MicroUsd {
        self.by_source.values().fold(MicroUsd::ZERO, |sum, cost| sum + *cost)
    }

    fn call_started(&mut self, start: &ApiCallStart) {
        self.llm_calls += u32::from(start.attempt == 1);
    }

    fn call_ended(&mut self, end: &ApiCallEnd) {
        self.add_usage(&end.usage, end.cost, self.info.source_of(end.purpose));
    }

    fn add_usage(&mut self, usage: &Usage, cost: Option<MicroUsd>, source: CostSource) {
        self.usage += (*usage).into();
        if let Some(cost) = cost {
            self.has_price = true;
            let source = self.by_source.entry(source).or_default();
            *source = *source + cost;
        }
    }

    fn tool_started(&mut self, start: &ToolCallStart) {
        self.steps = self.steps.max(start.step);
        let open =
            OpenToolCall { index: self.tools.len(), arguments: Arc::clone(&start.arguments) };
        // An id may be used again in a later reply; the newest call is meant.
        self.open_calls.insert(start.id.clone(), open);
        self.tools.push(None);
    }

    fn tool_ended(&mut self, end: &ToolCallEnd) {
        let open = self.open_calls.remove(&end.id);
        let what =
            open.as_ref().map(|open| summarize_call(&end.name, &open.arguments, Language::En));
        if end.status == ToolStatus::Denied {
            let arguments = open.as_ref().map(|open| Arc::clone(&open.arguments));
            let (tool, reason) = (Arc::clone(&end.name), Arc::clone(&end.output));
            let arguments = arguments.unwrap_or_default();
            self.denied.push(DeniedCall { tool, arguments, reason });
        }
        for change in &end.changes {
            self.files.add(change);
        }
        let tool = ToolUsed {
            name: self.intern(&end.name),
            success: end.success,
            path: end.path.as_ref().map(|path| self.intern(path)),
            duration: end.duration,
            error: (!end.success)
                .then(|| sanitize::truncate(end.output.trim(), LONGEST_ERROR).into()),
            brief: ToolCallBrief {
                arguments: self.intern(&what.unwrap_or_default().into()),
                error: (!end.success)
                    .then(|| failure_line(&end.name, &end.output, LONGEST_BRIEF).into()),
            },
        };
        if let Some(slot) = open.and_then(|open| self.tools.get_mut(open.index)) {
            *slot = Some(tool);
        }
    }

    fn intern(&mut self, word: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.interned.get(word) {
            return Arc::clone(known);
        }
        self.interned.insert(Arc::clone(word));
        Arc::clone(word)
    }
}

/// Returns the output of a run: its answer, or a sentence that explains why it is missing. Scripts rely on these
/// sentences; they are not translated.
fn answer_or_reason(
    reason: StopReason,
    answer: Option<&Arc<str>>,
    error: Option<&str>,
    steps: u32,
) -> Arc<str> {
    if let (None, StopReason::ChecksFailed, Some(error)) = (answer, reason, error) {
        return format!("The agent stopped ({reason}): {error}").into();
    }
    let error = error.unwrap_or("unknown");
    match (answer, reason) {
        (Some(answer), _) => Arc::clone(answer),
        (None, StopReason::UserInterrupt(_)) => "Interrupted by the user.".into(),
        (None, StopReason::LlmError(_)) => format!("Unrecoverable LLM error: {error}").into(),
        (None, StopReason::StoreError) => {
            format!("The session could not be stored: {error}").into()
        }
        (None, StopReason::InternalError) => format!("Internal error: {error}").into(),
        (
            None,
            StopReason::LlmDone
            | StopReason::Closed(_)
            | StopReason::Truncated
            | StopReason::EmptyResponse
            | StopReason::Refused
            | StopReason::InvalidToolCalls
            | StopReason::SchemaNotMet
            | StopReason::ChecksFailed
            | StopReason::EvaluationFailed,
        ) => format!("The agent stopped ({reason}). Steps completed: {steps}.").into(),
    }
}
