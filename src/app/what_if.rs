//! Replay of a stored session with other settings, without a model: the calls with different decisions, and the record
//! after which the run would have taken another path.
//!
//! The records of the session are replayed twice: by the recorded rules, and by the same rules with the changed values.
//! The machine is the same, so the replays differ at most from where a changed limit takes effect. The answers of the
//! model after that are unknown.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::configured_tools::tool_settings;
use super::error::AppError;
use crate::config::{AgentDefinition, Config, ModelLimits, run_rules};
use crate::exec::{SandboxPolicy, Supervisor};
use crate::journal::{
    JournalError, ReadRecord, SessionHistory, SessionId, SessionStore, StoredContent, StoredRecord,
    WorkspaceIdentity,
};
use crate::machine::{
    Authorization, Closing, ClosingStage, Effect, Event, State, StateKind, StopReason,
};
use crate::tools::{
    BuiltInTool, ExecutionMode, MaxResultTokens, ToolRegistry, describe, standard_tools,
};
use crate::types::{Decision, EffectId, MicroUsd, RunRules, ToolStatus};
use crate::workspace::WorkspaceRoot;

/// The effects of other settings on a session. `architect what-if --json` prints the serialized form.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WhatIfReport {
    /// The session.
    pub session_id: SessionId,
    /// The reason why the newest run ended; `None` if it has not ended.
    pub stop_reason: Option<&'static str>,
    /// The recorded usage.
    pub recorded: SessionUsage,
    /// The first record after which the run would have been different: a limit takes effect, a call gets another
    /// outcome, or a result is shortened. `None` if there is no difference. Later fields assume that the model would
    /// have replied the same.
    pub first_difference: Option<u64>,
    /// The point at which limits of the run or of the context would have led to another path.
    pub divergence: Option<WhatIfDivergence>,
    /// The tool calls with different decisions, up to the divergence.
    pub decisions: Vec<ChangedDecision>,
    /// The number of tool results that would have been shortened, up to the divergence.
    pub shortened_results: usize,
}

/// The usage of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionUsage {
    /// Replies with tool calls.
    pub steps: u32,
    /// Model calls.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub tokens: u64,
    /// The cost in dollars; `None` if the model has no price.
    pub cost: Option<f64>,
}

impl SessionUsage {
    /// Returns the usage of a session so far.
    pub(crate) fn of(history: &SessionHistory) -> Self {
        let run = history.machine.state.run();
        Self {
            steps: run.steps,
            llm_calls: run.model_calls + history.costs.subagent_calls,
            tokens: run.used.tokens.0,
            cost: run.rules.price.map(|_| MicroUsd::as_dollars(run.used.cost)),
        }
    }

    /// Returns the usage since an earlier state of the same session.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            steps: self.steps.saturating_sub(earlier.steps),
            llm_calls: self.llm_calls.saturating_sub(earlier.llm_calls),
            tokens: self.tokens.saturating_sub(earlier.tokens),
            cost: self
                .cost
                .map(|cost| ((cost - earlier.cost.unwrap_or_default()) * 1e6).round() / 1e6),
        }
    }
}

/// The point at which a run would have taken another path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WhatIfDivergence {
    /// The record.
    pub seq: u64,
    /// The state after the record.
    pub recorded_state: StateKind,
    /// The state with the changed settings.
    pub state: StateKind,
    /// The reason why the run would have ended there; `None` if it would not have.
    pub stop_reason: Option<&'static str>,
    /// The usage up to this point.
    pub used: SessionUsage,
    /// The maximum usage of the final summary, which is not recorded and not part of `used`; `None` if the run would
    /// not have made a call for a summary.
    pub final_summary: Option<FinalSummaryBound>,
}

/// The maximum usage of a call for a final summary, as reserved before the call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FinalSummaryBound {
    /// Model calls.
    pub llm_calls: u32,
    /// Input and output tokens.
    pub max_tokens: u64,
    /// The cost in dollars; `None` if the model has no price.
    pub max_cost: Option<f64>,
}

/// A tool call with a different decision.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangedDecision {
    /// The record that led to the call.
    pub seq: u64,
    /// The step.
    pub step: u32,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments, as the model wrote them.
    pub arguments: Arc<str>,
    /// Whether the call ran in the recorded session; `None` if no record shows that.
    pub ran: Option<bool>,
    /// The decision with the settings of the session.
    pub before: Decision,
    /// The decision with the changed settings.
    pub after: Decision,
}

/// The settings of one of the two replays.
struct WhatIfSettings {
    agent: AgentDefinition,
    tools: ToolRegistry,
    max_result_tokens: MaxResultTokens,
}

impl WhatIfSettings {
    fn new(config: &Config, agent: &str, root: &WorkspaceRoot) -> Result<Self, AppError> {
        let agent = config.agent(agent)?;
        let settings = tool_settings(config, &agent, ExecutionMode::Real)?;
        // No call is executed.
        let policy = SandboxPolicy::off(root.path().to_owned());
        let supervisor = Supervisor::in_process(policy, Vec::new());
        let mut tools = standard_tools(root, &supervisor, &settings);
        if !config.settings.commands.enabled {
            let is_about_commands =
                |name: &str| describe(name).is_some_and(BuiltInTool::is_about_commands);
            tools.retain(|tool| !is_about_commands(&tool.spec().name));
        }
        let max_result_tokens = settings.max_result_tokens;
        Ok(Self { agent, tools: ToolRegistry::new(tools, settings), max_result_tokens })
    }
}

/// Returns the effects of changed settings on a session of this agent.
///
/// # Errors
///
/// Fails if the session can't be read, its workspace can't be opened, or a setting is invalid.
pub fn what_if(
    store: &SessionStore,
    session: SessionId,
    agent: &str,
    [before, after]: [&Config; 2],
) -> Result<WhatIfReport, AppError> {
    let mut reader = store.reader(session)?;
    let header = match reader.read()? {
        ReadRecord::Record(stored) => match stored.content {
            StoredContent::Header(header) => *header,
            _ => return Err(JournalError::UnknownSession(session.to_string()).into()),
        },
        _ => return Err(JournalError::UnknownSession(session.to_string()).into()),
    };
    let root = open_workspace(&header.setup.workspace)?;
    let settings = [before, after].map(|config| WhatIfSettings::new(config, agent, &root));
    let [old, new] = settings;
    let (old, new) = (old?, new?);
    let rules = ChangedRules::new((before, &old.agent), (after, &new.agent), &header.rules);
    let mut changed_header = header.clone();
    changed_header.rules = rules.apply(&header.rules)?;
    let mut replay = WhatIfReplay {
        old,
        new,
        rules,
        recorded: SessionHistory::start(header),
        changed: Some(SessionHistory::start(changed_header)),
        first_difference: None,
        divergence: None,
        decisions: Vec::new(),
        calls: HashMap::new(),
        shortened_results: 0,
    };
    replay.look_for_calls(0);
    while let ReadRecord::Record(stored) = reader.read()? {
        replay = replay.add(&stored)?;
    }
    Ok(replay.finish(session))
}

/// Opens a workspace; for a removed worktree, the original workspace. Nothing is run in it.
fn open_workspace(workspace: &WorkspaceIdentity) -> Result<WorkspaceRoot, AppError> {
    let path = workspace.root.clone();
    WorkspaceRoot::open(&path).or_else(|cause| {
        let origin = workspace.origin.as_deref().filter(|_| !path.exists());
        let opened = origin.and_then(|origin| WorkspaceRoot::open(origin).ok());
        opened.ok_or(AppError::Workspace { path, cause })
    })
}

/// The changed values of the rules of a run.
struct ChangedRules {
    before: Value,
    after: Value,
}

impl ChangedRules {
    fn new(
        (before, old): (&Config, &AgentDefinition),
        (after, new): (&Config, &AgentDefinition),
        recorded: &RunRules,
    ) -> Self {
        let limits = ModelLimits {
            price: recorded.price,
            summary_price: recorded.summary_price,
            window: Some(recorded.context.window),
            max_output: None,
        };
        let value = |config: &Config, agent| json!(run_rules(&config.settings, agent, &limits, 0));
        Self { before: value(before, old), after: value(after, new) }
    }

    /// Returns recorded rules with the changed values.
    fn apply(&self, recorded: &RunRules) -> Result<RunRules, AppError> {
        let merged = merge(json!(recorded), &self.before, &self.after);
        // The JSON form has a parser already: it is that of the journal.
        serde_json::from_slice(merged.to_string().as_bytes())
            .map_err(|error| AppError::system_error("apply the changed limits", &error))
    }
}

/// Applies the difference between two values to a third one.
fn merge(recorded: Value, before: &Value, after: &Value) -> Value {
    match (recorded, before, after) {
        (recorded, before, after) if before == after => recorded,
        (Value::Object(recorded), Value::Object(before), Value::Object(after)) => {
            let mut merged: Map<String, Value> = recorded;
            let keys = before.keys().chain(after.keys()).collect::<BTreeSet<_>>();
            for key in keys {
                let side =
                    |values: &Map<String, Value>| values.get(key).cloned().unwrap_or_default();
                let (before, after) = (side(before), side(after));
                let value = merge(merged.get(key).cloned().unwrap_or_default(), &before, &after);
                match value {
                    Value::Null => drop(merged.remove(key)),
                    value => drop(merged.insert(key.clone(), value)),
                }
            }
            Value::Object(merged)
        }
        (_, _, after) => after.clone(),
    }
}

/// Returns the maximum usage of a run's final summary, if the next call is for a summary. The machine decides that as
/// in a run.
fn final_summary(history: &SessionHistory) -> Option<FinalSummaryBound> {
    let machine = &history.machine;
    let State::Closing(Closing { run, stage: ClosingStage::Preparing { id }, .. }) = &machine.state
    else {
        return None;
    };
    let size = machine.request_size(&[], history.setup.system.len() as u64);
    let prepared = Event::Prepared { id: *id, size, messages: [].into() };
    let (_, output) = machine.clone().handle(run.now, prepared);
    let output_limit = output.effects.iter().find_map(|effect| match effect {
        Effect::CallModel { max_output, .. } => Some(*max_output),
        _ => None,
    })?;
    let output_limit = output_limit.unwrap_or(run.rules.output.model_limit);
    let cost = run.rules.price.map(|price| price.max_cost(size.upper_bound, output_limit));
    Some(FinalSummaryBound {
        llm_calls: 1,
        max_tokens: (size.upper_bound + output_limit).0,
        max_cost: cost.map(MicroUsd::as_dollars),
    })
}

/// The two replays.
struct WhatIfReplay {
    old: WhatIfSettings,
    new: WhatIfSettings,
    rules: ChangedRules,
    recorded: SessionHistory,
    /// The replay with the changed rules; `None` after it has diverged.
    changed: Option<SessionHistory>,
    first_difference: Option<u64>,
    divergence: Option<WhatIfDivergence>,
    decisions: Vec<ChangedDecision>,
    /// The indexes of `decisions`, by the effects of calls that are not authorized yet.
    calls: HashMap<EffectId, usize>,
    shortened_results: usize,
}

impl WhatIfReplay {
    fn add(mut self, stored: &StoredRecord) -> Result<Self, AppError> {
        let (recorded, replayed) = self.recorded.apply(stored);
        self.recorded = recorded;
        if let Some(changed) = self.changed.take() {
            let (changed, _) = changed.apply(&self.with_changed_rules(stored)?);
            self.look_for_divergence(stored, &changed);
            self.changed = self.divergence.is_none().then_some(changed);
        }
        if let StoredContent::Event(event) = &stored.content {
            self.look_at_event(stored.seq, event);
        }
        if replayed.is_advanced && self.divergence.is_none() {
            self.look_for_calls(stored.seq);
        }
        Ok(self)
    }

    /// Returns a record with the changed rules, if it contains rules.
    fn with_changed_rules(&self, stored: &StoredRecord) -> Result<StoredRecord, AppError> {
        let mut stored = stored.clone();
        if let StoredContent::Resumed(resumed) = &mut stored.content {
            resumed.resumption.rules = self.rules.apply(&resumed.resumption.rules)?;
        }
        Ok(stored)
    }

    fn look_for_divergence(&mut self, stored: &StoredRecord, changed: &SessionHistory) {
        let position = |history: &SessionHistory| {
            (history.machine.state.kind(), history.machine.state.pending_effects())
        };
        if position(&self.recorded) == position(changed) {
            return;
        }
        let stop_reason = match &changed.machine.state {
            State::Closing(closing) => Some(closing.reason.as_str()),
            State::Done(done) => Some(done.outcome.reason.name()),
            _ => None,
        };
        self.set_difference(stored.seq);
        self.divergence = Some(WhatIfDivergence {
            seq: stored.seq,
            recorded_state: self.recorded.machine.state.kind(),
            state: changed.machine.state.kind(),
            stop_reason,
            used: SessionUsage::of(changed),
            final_summary: final_summary(changed),
        });
    }

    /// Adds the calls that are about to be authorized and have different decisions.
    fn look_for_calls(&mut self, seq: u64) {
        for effect in &self.recorded.output.effects {
            let Effect::Authorize { id, call } = effect else { continue };
            let [before, after] = [&self.old, &self.new].map(|side| side.tools.decide(call));
            if mem::discriminant(&before) == mem::discriminant(&after) {
                continue;
            }
            self.calls.insert(*id, self.decisions.len());
            self.decisions.push(ChangedDecision {
                seq,
                step: self.recorded.machine.state.run().steps,
                tool: Arc::clone(&call.name),
                arguments: call.arguments.text().into(),
                ran: None,
                before,
                after,
            });
        }
    }

    fn look_at_event(&mut self, seq: u64, event: &Event) {
        let ran = match event {
            Event::Authorized { authorization: Authorization::Approved { .. }, .. } => true,
            Event::Authorized { authorization: Authorization::Rejected { result }, .. }
                if result.status == ToolStatus::Denied =>
            {
                false
            }
            Event::ToolCompleted { result, .. } if self.divergence.is_none() => {
                let is_long =
                    |side: &WhatIfSettings| side.max_result_tokens.is_exceeded(&result.text);
                if is_long(&self.new) && !is_long(&self.old) {
                    self.shortened_results += 1;
                    self.set_difference(seq);
                }
                return;
            }
            _ => return,
        };
        let index = event.effect_id().and_then(|id| self.calls.remove(&id));
        let Some(decision) = index.and_then(|index| self.decisions.get_mut(index)) else { return };
        decision.ran = Some(ran);
        let is_other = match decision.after {
            Decision::Allow { .. } => !ran,
            Decision::Deny { .. } => ran,
            // There is no user who could be asked.
            Decision::Ask { .. } => false,
        };
        if is_other {
            self.set_difference(seq);
        }
    }

    fn set_difference(&mut self, seq: u64) {
        self.first_difference = Some(self.first_difference.map_or(seq, |first| first.min(seq)));
    }

    fn finish(self, session: SessionId) -> WhatIfReport {
        WhatIfReport {
            session_id: session,
            stop_reason: self.recorded.stop_reason().map(StopReason::name),
            recorded: SessionUsage::of(&self.recorded),
            first_difference: self.first_difference,
            divergence: self.divergence,
            decisions: self.decisions,
            shortened_results: self.shortened_results,
        }
    }
}
