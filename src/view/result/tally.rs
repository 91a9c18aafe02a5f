//! From public events to the result document.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::files::Files;
use super::output::output;
use super::{Brief, Costs, Denied, RunResult, ToolUsed};
use crate::machine::StopReason;
use crate::model::{CallId, Micros, Span, ToolStatus, Usage};
use crate::view::failure::brief;
use crate::view::human::summary::summary;
use crate::view::public::{
    AgentEnd, ApiCallEnd, ApiCallStart, Kind, PublicEvent, SCHEMA, ToolCallEnd, ToolCallStart, Used,
};
use crate::view::{About, Lang, Source, clean};

/// Folds the public events of a run into its result. It can be asked for the result at any time, so that there is one
/// on every way out of the program.
#[derive(Clone, Debug)]
pub struct Tally {
    about: Arc<About>,
    begun: Option<jiff::Timestamp>,
    latest: Option<jiff::Timestamp>,
    steps: u32,
    llm_calls: u32,
    used: Used,
    by_source: BTreeMap<Source, Micros>,
    has_price: bool,
    /// In call order; what has not ended is not there yet.
    tools: Vec<Option<ToolUsed>>,
    open: HashMap<CallId, Open>,
    /// The names and paths that were told, each kept once however many calls there are.
    words: HashSet<Arc<str>>,
    files: Files,
    denied: Vec<Denied>,
    end: Option<AgentEnd>,
}

/// A tool call that has not ended.
#[derive(Clone, Debug)]
struct Open {
    /// Its place among the calls.
    place: usize,
    arguments: Arc<Value>,
}

/// How much of a failed tool's answer is told.
const LONGEST_ERROR: usize = 500;

/// How much of it is told in one line.
const LONGEST_BRIEF: usize = 160;

impl Tally {
    /// Returns the tally of a run of which nothing has been seen yet. What its session has used before counts, as it
    /// does for the limits.
    pub fn new(about: Arc<About>) -> Self {
        let (mut used, mut by_source) = (Used::default(), BTreeMap::new());
        for (source, charge) in about.charged_earlier() {
            used += charge.usage.into();
            let sum: &mut Micros = by_source.entry(source).or_default();
            *sum = *sum + charge.cost;
        }
        by_source.retain(|_, cost| *cost > Micros::ZERO);
        Self {
            begun: None,
            latest: None,
            steps: about.earlier.steps,
            llm_calls: about.earlier.llm_calls,
            used,
            has_price: !by_source.is_empty(),
            by_source,
            about,
            tools: Vec::new(),
            open: HashMap::new(),
            words: HashSet::new(),
            files: Files::default(),
            denied: Vec::new(),
            end: None,
        }
    }

    /// Takes an event in.
    pub fn add(&mut self, event: &PublicEvent) {
        self.begun.get_or_insert(event.ts);
        self.latest = Some(event.ts);
        match &event.kind {
            Kind::ApiCallStart(start) => self.call_started(start),
            Kind::ApiCallEnd(end) => self.call_ended(end),
            Kind::ToolCallStart(start) => self.tool_started(start),
            Kind::ToolCallEnd(end) => self.tool_ended(end),
            Kind::SubagentCall(call) => {
                self.llm_calls += 1;
                self.pay(&call.usage, call.cost, Source::Subagent);
            }
            Kind::AgentEnd(end) => self.end = Some(end.clone()),
            Kind::AgentStart(_)
            | Kind::StateChange(_)
            | Kind::Retry(_)
            | Kind::TextDelta(_)
            | Kind::HookComplete(_)
            | Kind::SteeringReceived(_)
            | Kind::CompactionTriggered(_)
            | Kind::CompactionComplete(_)
            | Kind::SafetyNet(_)
            | Kind::LoopDetected(_)
            | Kind::Error(_) => {}
        }
    }

    /// Returns whether the run has told how it ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the result. A run that has not told how it ended has broken down for this reason.
    pub fn result(&self, broken: (StopReason, &str)) -> RunResult {
        match &self.end {
            Some(end) => self.document(end),
            None => self.document(&self.break_down(broken)),
        }
    }

    /// What is known of a run that ended without saying how.
    fn break_down(&self, (reason, error): (StopReason, &str)) -> AgentEnd {
        let duration = self.begun.zip(self.latest).map(|(begun, latest)| {
            let micros = latest.duration_since(begun).as_micros();
            Span(u64::try_from(micros).unwrap_or(0))
        });
        AgentEnd {
            status: reason.status(),
            reason,
            exit_code: self.about.exit_code(reason),
            steps: self.steps,
            llm_calls: self.llm_calls,
            duration: duration.unwrap_or_default(),
            cost: self.has_price.then(|| self.told_cost()),
            output: None,
            error: Some(error.into()),
        }
    }

    fn document(&self, end: &AgentEnd) -> RunResult {
        // A model without a price does not tell what a part of the session cost that another one made.
        let mut by_source = end.cost.map(|_| self.by_source.clone()).unwrap_or_default();
        // What was charged when the session went on, for a call that nobody had heard the end of.
        let earlier = end.cost.unwrap_or_default().minus(self.told_cost());
        if earlier > Micros::ZERO {
            let agent = by_source.entry(self.about.source).or_default();
            *agent = *agent + earlier;
        }
        let output = output(end.reason, end.output.as_ref(), end.error.as_deref(), end.steps);
        RunResult {
            schema: SCHEMA,
            session_id: Some(Arc::clone(&self.about.session_id)),
            status: end.status,
            stop_reason: Some(end.reason),
            exit_code: end.exit_code,
            structured_output: self.structured(end),
            output,
            steps: end.steps,
            llm_calls: end.llm_calls,
            duration: end.duration,
            model: Some(Arc::clone(&self.about.model)),
            tools_used: self.tools.iter().flatten().cloned().collect(),
            files_modified: self.files.told(),
            usage: self.used,
            cost: end.cost,
            costs: Costs { total: end.cost, by_source },
            denied: self.denied.clone(),
            error: end.error.clone(),
            resume: None,
            evaluation: None,
        }
    }

    fn structured(&self, end: &AgentEnd) -> Option<Value> {
        let is_fit = self.about.structured && end.reason == StopReason::LlmDone;
        end.output.as_ref().filter(|_| is_fit).and_then(|text| serde_json::from_str(text).ok())
    }

    fn told_cost(&self) -> Micros {
        self.by_source.values().fold(Micros::ZERO, |sum, cost| sum + *cost)
    }

    fn call_started(&mut self, start: &ApiCallStart) {
        self.llm_calls += u32::from(start.attempt == 1);
    }

    fn call_ended(&mut self, end: &ApiCallEnd) {
        self.pay(&end.usage, end.cost, self.about.charged_to(end.purpose));
    }

    fn pay(&mut self, usage: &Usage, cost: Option<Micros>, source: Source) {
        self.used += (*usage).into();
        if let Some(cost) = cost {
            self.has_price = true;
            let source = self.by_source.entry(source).or_default();
            *source = *source + cost;
        }
    }

    fn tool_started(&mut self, start: &ToolCallStart) {
        self.steps = self.steps.max(start.step);
        let open = Open { place: self.tools.len(), arguments: Arc::clone(&start.arguments) };
        // An id may come back in a later reply; the newest call with it is meant.
        self.open.insert(start.id.clone(), open);
        self.tools.push(None);
    }

    fn tool_ended(&mut self, end: &ToolCallEnd) {
        let open = self.open.remove(&end.id);
        let what = open.as_ref().map(|open| summary(&end.name, &open.arguments, Lang::En));
        if end.status == ToolStatus::Denied {
            let arguments = open.as_ref().map(|open| Arc::clone(&open.arguments));
            let (tool, reason) = (Arc::clone(&end.name), Arc::clone(&end.output));
            let arguments = arguments.unwrap_or_default();
            self.denied.push(Denied { tool, arguments, reason });
        }
        for change in &end.changes {
            self.files.add(change);
        }
        let tool = ToolUsed {
            name: self.word(&end.name),
            success: end.success,
            path: end.path.as_ref().map(|path| self.word(path)),
            duration: end.took,
            error: (!end.success).then(|| clean::cut(end.output.trim(), LONGEST_ERROR).into()),
            brief: Brief {
                what: self.word(&what.unwrap_or_default().into()),
                error: (!end.success).then(|| brief(&end.name, &end.output, LONGEST_BRIEF).into()),
            },
        };
        if let Some(slot) = open.and_then(|open| self.tools.get_mut(open.place)) {
            *slot = Some(tool);
        }
    }

    fn word(&mut self, word: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        self.words.insert(Arc::clone(word));
        Arc::clone(word)
    }
}
