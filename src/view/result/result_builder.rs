//! Building the result document from public events.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::changed_files::ChangedFiles;
use super::{DeniedCall, ModelUsed, RunCosts, RunResult, ToolUsed, UnappliedWork};
use crate::machine::{ModelUsage, StopReason};
use crate::types::{CallId, MicroUsd, TimeSpan, ToolStatus, Usage};
use crate::view::human::call_summary::summarize_call;
use crate::view::public_events::{
    AgentEnd, PublicEvent, PublicEventKind, ToolCallEnd, ToolCallStart,
};
use crate::view::tool_failure::failure_line;
use crate::view::{CostSource, Language, RunInfo, sanitize};

/// Builds the result of a run from its public events. The result is available at any time, and so on every way out of
/// the program.
#[derive(Clone, Debug)]
pub struct RunResultBuilder {
    info: Arc<RunInfo>,
    started_at: Option<jiff::Timestamp>,
    latest_at: Option<jiff::Timestamp>,
    /// The result so far, without the end, the tools and the files.
    result: RunResult,
    /// The tool calls in call order; `None` for a call that has not ended.
    tools: Vec<Option<ToolUsed>>,
    /// The index in `tools` and the arguments of each call that has not ended.
    open_calls: HashMap<CallId, (usize, Arc<Value>)>,
    files: ChangedFiles,
    end: Option<AgentEnd>,
}

/// Length limit of a tool's error, in characters.
const LONGEST_ERROR: usize = 500;

/// Length limit of the one-line form of a tool's error, in characters.
const LONGEST_BRIEF: usize = 160;

impl RunResultBuilder {
    /// Returns a builder for a new run. Like the limits, the result includes the earlier usage of the session.
    pub fn new(info: Arc<RunInfo>) -> Self {
        let (mut usage, mut costs) = (Usage::default(), RunCosts::default());
        for (source, charge) in info.prior_charges() {
            usage = usage + charge.usage;
            if charge.cost > MicroUsd::ZERO {
                costs.add(source, charge.cost);
            }
        }
        let models = info.prior_models.iter();
        let models = models.map(|ModelUsage { model, calls, cost }| ModelUsed {
            model: Arc::clone(model),
            calls: *calls,
            cost: *cost,
        });
        let result = RunResult {
            models: models.collect(),
            session_id: Some(Arc::clone(&info.session_id)),
            model: Some(Arc::clone(&info.model)),
            effort: info.effort,
            steps: info.prior_usage.steps,
            llm_calls: info.prior_usage.llm_calls,
            usage,
            costs,
            ..RunResult::not_started("")
        };
        Self {
            info,
            started_at: None,
            latest_at: None,
            result,
            tools: Vec::new(),
            open_calls: HashMap::new(),
            files: ChangedFiles::default(),
            end: None,
        }
    }

    /// Adds an event.
    pub fn on_event(&mut self, event: &PublicEvent) {
        self.started_at.get_or_insert(event.ts);
        self.latest_at = Some(event.ts);
        match &event.kind {
            PublicEventKind::ApiCallStart(start) => {
                let calls = u32::from(start.attempt == 1);
                self.result.llm_calls += calls;
                self.add_model(start.model.as_ref(), calls, None);
            }
            PublicEventKind::ApiCallEnd(end) => {
                self.add_usage(end.usage, end.cost, self.info.source_of(end.purpose));
                self.add_model(end.called_model.as_ref(), 0, end.cost);
            }
            PublicEventKind::ToolCallStart(start) => self.tool_started(start),
            PublicEventKind::ToolCallEnd(end) => self.tool_ended(end),
            PublicEventKind::SubagentCall(call) => {
                self.result.llm_calls += 1;
                self.add_usage(call.usage, call.cost, CostSource::Subagent);
                self.add_model(None, 1, call.cost);
            }
            PublicEventKind::SubagentDenied(denied) => self.result.denied.push(DeniedCall {
                agent: Some(Arc::clone(&denied.agent)),
                tool: Arc::clone(&denied.name),
                arguments: Arc::clone(&denied.arguments),
                reason: Arc::clone(&denied.reason),
            }),
            PublicEventKind::AgentEnd(end) => self.end = Some(end.clone()),
            _ => {}
        }
    }

    /// Adds unapplied work of sub-agents.
    pub fn add_unapplied_work(&mut self, work: Vec<UnappliedWork>) {
        self.result.unapplied_work.extend(work);
    }

    /// Returns the result. A run without an end is reported as broken down for this reason.
    pub fn result(&self, broken: (StopReason, &str)) -> RunResult {
        let end = self.end.clone().unwrap_or_else(|| self.end_after_breakdown(broken));
        // Without a price, the cost of an earlier part of the session is not shown.
        let mut costs = RunCosts::default();
        if let Some(cost) = end.cost {
            costs.clone_from(&self.result.costs);
            // The cost that a resume has charged for a lost call.
            let earlier = cost.saturating_sub(costs.total.unwrap_or_default());
            if earlier > MicroUsd::ZERO {
                costs.add(self.info.cost_source, earlier);
            }
            costs.total = end.cost;
        }
        let is_fit = self.info.has_schema && end.reason == StopReason::LlmDone;
        let answer = end.output.as_ref().filter(|_| is_fit);
        RunResult {
            journal_hash: end.journal_hash,
            status: end.status,
            stop_reason: Some(end.reason),
            exit_code: end.exit_code,
            structured_output: answer.and_then(|text| serde_json::from_str(text).ok()),
            output: answer_or_reason(&end),
            steps: end.steps,
            llm_calls: end.llm_calls,
            duration: end.duration,
            tools_used: self.tools.iter().flatten().cloned().collect(),
            files_modified: self.files.changed(),
            cost: end.cost,
            costs,
            error: end.error,
            ..self.result.clone()
        }
    }

    /// Returns the end of a run that broke down, as far as it is known.
    fn end_after_breakdown(&self, (reason, error): (StopReason, &str)) -> AgentEnd {
        let duration = self.started_at.zip(self.latest_at).map(|(started, latest)| {
            let micros = latest.duration_since(started).as_micros();
            TimeSpan(u64::try_from(micros).unwrap_or(0))
        });
        AgentEnd {
            status: reason.status(),
            reason,
            exit_code: self.info.exit_code(reason),
            steps: self.result.steps,
            llm_calls: self.result.llm_calls,
            duration: duration.unwrap_or_default(),
            cost: self.result.costs.total,
            journal_hash: None,
            output: None,
            error: Some(error.into()),
        }
    }

    fn add_usage(&mut self, usage: Usage, cost: Option<MicroUsd>, source: CostSource) {
        self.result.usage = self.result.usage + usage;
        if let Some(cost) = cost {
            self.result.costs.add(source, cost);
        }
    }

    /// Adds to the usage of a model; `None` is the model of the run.
    fn add_model(&mut self, model: Option<&Arc<str>>, calls: u32, cost: Option<MicroUsd>) {
        let model = Arc::clone(model.unwrap_or(&self.info.model));
        ModelUsed::add(&mut self.result.models, &model, calls, cost);
    }

    fn tool_started(&mut self, start: &ToolCallStart) {
        self.result.steps = self.result.steps.max(start.step);
        // An id may be used again in a later reply. It then means the newest call.
        let open = (self.tools.len(), Arc::clone(&start.arguments));
        self.open_calls.insert(start.id.clone(), open);
        self.tools.push(None);
    }

    fn tool_ended(&mut self, end: &ToolCallEnd) {
        let (index, arguments) = self.open_calls.remove(&end.id).unzip();
        let what = arguments.as_ref().map(|all| summarize_call(&end.name, all, Language::En));
        if end.status == ToolStatus::Denied {
            let (tool, reason) = (Arc::clone(&end.name), Arc::clone(&end.output));
            let arguments = arguments.unwrap_or_default();
            self.result.denied.push(DeniedCall { agent: None, tool, arguments, reason });
        }
        for change in &end.changes {
            self.files.add(change);
        }
        let failed = || (!end.success).then_some(&end.output);
        let tool = ToolUsed {
            name: Arc::clone(&end.name),
            success: end.success,
            path: end.path.clone(),
            duration: end.duration,
            error: failed().map(|text| sanitize::truncate(text.trim(), LONGEST_ERROR).into()),
            arguments_line: what.unwrap_or_default().into(),
            error_line: failed().map(|text| failure_line(&end.name, text, LONGEST_BRIEF).into()),
        };
        if let Some(slot) = index.and_then(|index: usize| self.tools.get_mut(index)) {
            *slot = Some(tool);
        }
    }
}

/// Returns the output of a run: its answer, or a sentence with the reason why it is missing. Scripts rely on these
/// sentences, so they are not translated.
fn answer_or_reason(end: &AgentEnd) -> Arc<str> {
    let AgentEnd { reason, steps, output, error, .. } = end;
    if let Some(answer) = output {
        return Arc::clone(answer);
    }
    let cause = error.as_deref().unwrap_or("unknown");
    let text = match reason {
        StopReason::ChecksFailed if error.is_some() => {
            format!("The agent stopped ({reason}): {cause}")
        }
        StopReason::UserInterrupt(_) => "Interrupted by the user.".to_owned(),
        StopReason::LlmError(_) => format!("Unrecoverable LLM error: {cause}"),
        StopReason::StoreError => format!("The session could not be stored: {cause}"),
        StopReason::InternalError => format!("Internal error: {cause}"),
        _ => format!("The agent stopped ({reason}). Steps completed: {steps}."),
    };
    text.into()
}
