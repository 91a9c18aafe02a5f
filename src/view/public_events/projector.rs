//! Conversion of the driver's events to public events.

use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use super::throttle::Throttle;
use super::tool_calls::{self, ToolCallTracker};
use super::{
    AgentEnd, AgentStart, ApiCallEnd, ApiCallStart, CallOutcome, CompactionComplete,
    CompactionTriggered, ErrorEvent, HookComplete, IncompleteReply, LimitAction, LoopDetected,
    MessageTiming, ModelFallback, PublicEvent, PublicEventKind, RetryCause, SCHEMA, Severity,
    StateChange, SteeringReceived, SubagentCall, SubagentDenied, SummaryAuthor, TextDelta,
};
use crate::machine::chart::Chart;
use crate::machine::{
    BudgetUsage, CallPurpose, CallState, CheckResult, CloseReason, Effect, Event, EventKind,
    Machine, MachineNote, MachineOutput, PricedUsage, RunOutcome, State, StateKind, StopReason,
    Transition, least_limits,
};
use crate::port::{self, EffectNotice, HookOutcome, HookPoint, HookRun, ReplyDelta, RunEvent};
use crate::types::{
    ConversationItem, EffectId, MessageOrigin, ReplyFinish, RunTime, Sha256Digest, TimeSpan,
};
use crate::view::RunInfo;

/// Converts the driver's events to public events. The conversion is pure: the same run gives the same events.
pub struct EventProjector {
    info: Arc<RunInfo>,
    seq: u64,
    /// The start of the run, in session time.
    started_at: RunTime,
    /// The time of the present event, in session time.
    now: RunTime,
    /// The time at which the present state was entered, in session time.
    entered_at: RunTime,
    call: Option<OpenModelCall>,
    tools: ToolCallTracker,
    /// Whether a reported compaction has not ended.
    is_compacting: bool,
    usage: BudgetUsage,
    /// Model calls of sub-agents, including those before this run.
    subagent_calls: u32,
    /// The state before the next event, from which the chart determines the guard.
    state_before: Option<State>,
    warnings: Throttle,
    /// The failed checks of the present answer, with the last output of their commands.
    failed_checks: Vec<String>,
    /// The reason why the last answer was not accepted.
    rejection: Option<Arc<str>>,
    events: Vec<PublicEvent>,
}

/// The running model call. There is never more than one.
#[derive(Clone)]
struct OpenModelCall {
    id: EffectId,
    purpose: CallPurpose,
    attempt: u32,
    started_at: RunTime,
    first_byte: Option<TimeSpan>,
    /// The model, if it differs from that of the run.
    model: Option<Arc<str>>,
}

impl EventProjector {
    /// Returns a projector for a new run. The first event gets the number after `seq`.
    pub fn new(info: Arc<RunInfo>, seq: u64) -> Self {
        let subagent_calls = info.prior_usage.costs.subagent_calls;
        Self {
            info,
            seq,
            subagent_calls,
            state_before: None,
            started_at: RunTime::START,
            now: RunTime::START,
            entered_at: RunTime::START,
            call: None,
            tools: ToolCallTracker::default(),
            is_compacting: false,
            usage: BudgetUsage::default(),
            warnings: Throttle::new(),
            failed_checks: Vec::new(),
            rejection: None,
            events: Vec::new(),
        }
    }

    /// Returns the number of the newest event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the public events for an event of the driver.
    pub fn project(&mut self, event: &RunEvent<'_>) -> Vec<PublicEvent> {
        match *event {
            RunEvent::Started { at, .. }
            | RunEvent::Handled { at, .. }
            | RunEvent::ReplyDelta { at, .. }
            | RunEvent::Notice { at, .. }
            | RunEvent::Ended { at, .. } => self.now = at,
        }
        match *event {
            RunEvent::Started { machine, output, .. } => self.begin(machine, output),
            RunEvent::Handled { event, machine, output, .. } => self.event(event, machine, output),
            RunEvent::ReplyDelta { id, delta, .. } => self.delta(id, delta),
            RunEvent::Notice { notice, .. } => self.notice(notice),
            RunEvent::Ended { machine, journal_hash, .. } => self.end(machine, journal_hash),
        }
        std::mem::take(&mut self.events)
    }

    fn emit(&mut self, content: impl Into<PublicEventKind>) {
        self.seq += 1;
        let since = self.now.since(self.started_at).0;
        let since = SignedDuration::from_micros(i64::try_from(since).unwrap_or(i64::MAX));
        self.events.push(PublicEvent {
            seq: self.seq,
            ts: self.info.started_at.saturating_add(since).unwrap_or(Timestamp::MAX),
            session_id: Arc::clone(&self.info.session_id),
            kind: content.into(),
        });
    }

    fn begin(&mut self, machine: &Machine, output: &MachineOutput) {
        let run = machine.state.run();
        (self.started_at, self.entered_at, self.usage) = (self.now, self.now, run.used);
        self.state_before = Some(machine.state.clone());
        self.tools.begin(machine);
        let start = AgentStart {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            agent: Arc::clone(&self.info.agent),
            model: Arc::clone(&self.info.model),
            workspace: Arc::clone(&self.info.workspace),
            sandbox: self.info.sandbox.clone(),
            resumed: run.model_calls > 0 && !self.info.is_new_fork,
            limits: run.rules.limits.clone(),
        };
        self.emit(start);
        self.emit_starts(machine, output);
    }

    /// Emits ends first, then the machine's notes, then its transitions, then starts.
    fn event(&mut self, event: &Event, machine: &Machine, output: &MachineOutput) {
        self.call_ended(event, machine, output);
        self.emit_subagent_usage(event, machine);
        self.usage = machine.state.run().used;
        self.tools.on_event(event);
        for end in self.tools.take_ends(machine) {
            self.emit(end);
        }
        self.messages(event, machine);
        if let Event::Checked { result, .. } = event {
            let failed = std::mem::take(&mut self.failed_checks);
            self.rejection = rejection(result, &failed).map(Into::into);
        }
        for note in &output.notes {
            self.emit_note(note, event, machine);
        }
        let mut before = self.state_before.replace(machine.state.clone());
        for change in &output.transitions {
            // The state between two transitions of one event is unknown.
            let guard =
                before.take().and_then(|state| guard_name(&state, self.now, event, *change));
            let duration = self.now.since(self.entered_at);
            self.entered_at = self.now;
            let (from, to, event) =
                (change.from.as_str(), change.to.as_str(), change.event.as_str());
            self.emit(StateChange { from, to, event, guard, duration });
            if change.to == StateKind::Done {
                self.emit_failure(machine);
            }
        }
        self.emit_starts(machine, output);
    }

    /// Emits the starts of calls.
    fn emit_starts(&mut self, machine: &Machine, output: &MachineOutput) {
        let run = machine.state.run();
        for effect in &output.effects {
            if let Effect::CallModel { id, purpose, attempt, max_output } = *effect {
                let model = run.called_model(purpose).filter(|name| **name != self.info.model);
                let start = ApiCallStart {
                    call: id,
                    purpose,
                    attempt,
                    step: run.steps + 1,
                    messages: message_count(machine),
                    context_tokens: machine.conversation.context_usage().estimate(),
                    max_output_tokens: max_output,
                    model: model.cloned(),
                };
                let (started_at, first_byte, model) = (self.now, None, model.cloned());
                self.call =
                    Some(OpenModelCall { id, purpose, attempt, started_at, first_byte, model });
                self.emit(start);
            }
        }
        for start in self.tools.take_starts(&output.effects, run.steps) {
            self.emit(start);
        }
    }

    fn call_ended(&mut self, event: &Event, machine: &Machine, output: &MachineOutput) {
        let Some(call) = self.call.clone() else { return };
        let OpenModelCall { id, purpose, attempt, started_at, first_byte, model } = call;
        let outcome = match event {
            Event::Replied { id: replied, reply, .. } if *replied == id => CallOutcome::Replied {
                finish: reply.finish.clone(),
                text: reply.text(),
                tool_calls: u32::try_from(reply.calls().count()).unwrap_or(u32::MAX),
                model: reply.model.clone(),
            },
            Event::CallFailed { id: failed, fault } if *failed == id => {
                CallOutcome::Failed { fault: fault.kind, message: fault.message.clone() }
            }
            _ if output.effects.contains(&Effect::Cancel { id }) => CallOutcome::Cancelled,
            _ => return,
        };
        self.call = None;
        let run = machine.state.run();
        let PricedUsage { usage, cost } = PricedUsage::between(self.usage, run, Some(event));
        // This event may have changed the model, and the new model may have another price.
        let has_price =
            self.state_before.as_ref().is_some_and(|state| state.run().rules.price.is_some());
        let (cost, duration) = (has_price.then_some(cost), self.now.since(started_at));
        self.emit(ApiCallEnd {
            call: id,
            purpose,
            attempt,
            called_model: model,
            outcome,
            duration,
            first_byte,
            usage,
            cost,
        });
    }

    /// Emits the usage of a sub-agent.
    fn emit_subagent_usage(&mut self, event: &Event, machine: &Machine) {
        let (Event::UsageReported { id, usage, cost }, State::Executing(state)) =
            (event, &machine.state)
        else {
            return;
        };
        let is_it =
            |slot: &CallState| matches!(slot, CallState::Running { id: open, .. } if open == id);
        if let Some(call) = state.calls.iter().find(|call| is_it(&call.state)) {
            let (tool_call_id, usage) = (call.call.id.clone(), *usage);
            let cost = state.run.rules.price.map(|_| *cost);
            self.subagent_calls += 1;
            self.emit(SubagentCall { tool_call_id, usage, cost });
        }
    }

    /// Emits the delivered messages of the user.
    fn messages(&mut self, event: &Event, machine: &Machine) {
        match event {
            Event::Prepared { messages, .. } => {
                let is_steering = |origin| origin == MessageOrigin::Steering;
                for message in messages.iter().filter(|message| is_steering(message.origin)) {
                    let (kind, text) = (MessageTiming::Steering, Arc::clone(&message.text));
                    self.emit(SteeringReceived { kind, text });
                }
            }
            Event::Checked { result: CheckResult::FollowUp { message }, .. }
                if !matches!(machine.state, State::Done(_)) =>
            {
                let (kind, text) = (MessageTiming::FollowUp, Arc::clone(message));
                self.emit(SteeringReceived { kind, text });
            }
            _ => {}
        }
    }

    fn emit_note(&mut self, note: &MachineNote, event: &Event, machine: &Machine) {
        let context_tokens = machine.conversation.context_usage().estimate();
        let kind: PublicEventKind = match *note {
            MachineNote::LimitReached { reason } => {
                self.abort_compaction(machine);
                let (least_budget_usd, least_max_tokens) = match (reason, event) {
                    (CloseReason::BudgetExceeded, Event::Prepared { size, .. }) => {
                        least_limits(machine.state.run(), size)
                    }
                    _ => (None, None),
                };
                LimitAction::Close { reason, least_budget_usd, least_max_tokens }.into()
            }
            MachineNote::NoFinalSummary { cause } => LimitAction::NoSummary { cause }.into(),
            MachineNote::OutputLimitLowered { limit: max_output_tokens } => {
                LimitAction::LowerOutput { max_output_tokens }.into()
            }
            MachineNote::CostWarning { cost: cost_usd } => LimitAction::Warn { cost_usd }.into(),
            MachineNote::Retry { attempt, wait, fault } => {
                RetryCause::Fault { fault, attempt, wait }.into()
            }
            MachineNote::FellBack { from, to, fault } => {
                let (from, to) = (model_name(machine, from), model_name(machine, to));
                ModelFallback { from, to, fault }.into()
            }
            MachineNote::FallbackUnaffordable { model } => {
                let model = model_name(machine, model);
                let message =
                    format!("the budget does not cover a call of {model}; it is passed over");
                ErrorEvent { severity: Severity::Warning, message: message.into() }.into()
            }
            MachineNote::AskedAgain => {
                RetryCause::IncompleteReply { reason: incomplete_reason(event) }.into()
            }
            MachineNote::UnknownFinish => {
                let reason = match event {
                    Event::Replied { reply, .. } => reply.finish.name(),
                    _ => "",
                };
                let message = format!(
                    "the reply ended for an unknown reason, '{reason}'; its text is kept, and the run ends"
                );
                ErrorEvent { severity: Severity::Warning, message: message.into() }.into()
            }
            MachineNote::LoopDetected { times } => LoopDetected { times }.into(),
            // The text is emitted with the event that contains the message.
            MachineNote::SteeringReceived { .. } => return,
            MachineNote::Compacting { context: context_tokens } => {
                self.is_compacting = true;
                CompactionTriggered { context_tokens }.into()
            }
            MachineNote::Compacted { by_model } => {
                if !std::mem::take(&mut self.is_compacting) {
                    let context_tokens = match event {
                        Event::Prepared { size, .. } => size.estimate,
                        _ => context_tokens,
                    };
                    self.emit(CompactionTriggered { context_tokens });
                }
                let summary = if by_model { SummaryAuthor::Model } else { SummaryAuthor::Program };
                CompactionComplete { context_tokens, summary }.into()
            }
        };
        self.emit(kind);
    }

    /// Ends the compaction of a run that ends during it, without a summary.
    fn abort_compaction(&mut self, machine: &Machine) {
        if std::mem::take(&mut self.is_compacting) {
            let context_tokens = machine.conversation.context_usage().estimate();
            self.emit(CompactionComplete { context_tokens, summary: SummaryAuthor::None });
        }
    }

    /// Emits the error of a failed run.
    fn emit_failure(&mut self, machine: &Machine) {
        self.abort_compaction(machine);
        if let Some(message) = machine.state.outcome().and_then(|outcome| self.error(outcome)) {
            self.emit(ErrorEvent { severity: Severity::Error, message });
        }
    }

    /// Returns the reason why a run did not end with an accepted answer.
    fn error(&self, outcome: &RunOutcome) -> Option<Arc<str>> {
        let is_rejected =
            matches!(outcome.reason, StopReason::SchemaNotMet | StopReason::ChecksFailed);
        let rejection = self.rejection.clone().filter(|_| is_rejected);
        let is_denied = outcome.reason == StopReason::ChecksFailed;
        let denied = || is_denied.then(|| "a tool call was denied".into());
        outcome.error.clone().or(rejection).or_else(denied)
    }

    fn delta(&mut self, id: EffectId, delta: &ReplyDelta) {
        let Some(call) = self.call.as_mut().filter(|call| call.id == id) else { return };
        call.first_byte.get_or_insert(self.now.since(call.started_at));
        let purpose = call.purpose;
        if let ReplyDelta::Text(text) = delta {
            let text = text.as_str().into();
            self.emit(TextDelta { call: id, purpose, text });
        }
    }

    fn notice(&mut self, notice: &EffectNotice) {
        match notice {
            EffectNotice::Hook(hook) => {
                let HookRun { name, point, outcome, duration, call: tool_call_id, message } =
                    hook.clone();
                if point == HookPoint::Stop && outcome == HookOutcome::Blocked {
                    let why = message.as_deref().map(first_and_last_line).unwrap_or_default();
                    self.failed_checks.push(format!("{name}: {why}"));
                }
                self.emit(HookComplete { name, point, outcome, duration, tool_call_id, message });
            }
            EffectNotice::SubagentDenied(denial) => {
                let port::SubagentDenial { dispatched_by, agent, call, reason } = denial;
                self.emit(SubagentDenied {
                    tool_call_id: dispatched_by.clone(),
                    agent: Arc::clone(agent),
                    name: Arc::clone(&call.name),
                    arguments: Arc::new(tool_calls::arguments(call)),
                    reason: Arc::clone(reason),
                });
            }
            EffectNotice::Warning { text } => {
                let message = match self.warnings.try_pass(self.now) {
                    Some(0) => Arc::clone(text),
                    Some(more) => {
                        format!("{text} ({more} warnings before it were suppressed)").into()
                    }
                    None => return,
                };
                self.emit(ErrorEvent { severity: Severity::Warning, message });
            }
            EffectNotice::Progress { .. }
            | EffectNotice::Output { .. }
            | EffectNotice::Diff { .. } => {}
        }
    }

    fn end(&mut self, machine: &Machine, journal_hash: Option<Sha256Digest>) {
        let run = machine.state.run();
        let outcome = machine.state.outcome().cloned().unwrap_or_else(|| RunOutcome {
            reason: StopReason::InternalError,
            output: None,
            error: Some("the run ended unexpectedly".into()),
        });
        let error = self.error(&outcome);
        let end = AgentEnd {
            status: outcome.reason.status(),
            reason: outcome.reason,
            exit_code: self.info.exit_code(outcome.reason),
            steps: run.steps,
            llm_calls: run.model_calls + self.subagent_calls,
            duration: self.now.since(self.started_at),
            cost: run.rules.price.map(|_| run.used.cost),
            journal_hash,
            output: outcome.output,
            error,
        };
        self.emit(end);
    }
}

/// Returns the reason why a check did not accept an answer, for the user; `None` if it accepted the answer.
fn rejection(result: &CheckResult, failed: &[String]) -> Option<String> {
    match result {
        CheckResult::SentBack { .. } if !failed.is_empty() => Some(failed.join("; ")),
        result => port::rejection(result),
    }
}

/// Returns the first and the last line of a text. The last one usually has the error.
fn first_and_last_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(last) => format!("{first}: {last}"),
        None => first.to_owned(),
    }
}

/// Returns the name of one of the models of a run.
fn model_name(machine: &Machine, index: u32) -> Arc<str> {
    let model = machine.state.run().rules.model(index);
    model.map_or_else(|| "".into(), |model| Arc::clone(&model.name))
}

/// Returns the guard of a transition by its name in the statechart; `None` if it has no guard.
fn guard_name(before: &State, at: RunTime, event: &Event, change: Transition) -> Option<Arc<str>> {
    static CHART: OnceLock<Option<Chart>> = OnceLock::new();
    let chart = CHART.get_or_init(|| Chart::for_run().ok()).as_ref()?;
    let tick = Event::Tick { now: at };
    let event = if change.event == EventKind::Tick { &tick } else { event };
    let (to, arrow) = chart.next_state(before, event).ok()?;
    let is_it = before.kind() == change.from && to == change.to && event.kind() == change.event;
    arrow.filter(|_| is_it)?.guard.as_deref().map(Arc::from)
}

/// Returns the reason why the reply in an event is incomplete.
fn incomplete_reason(event: &Event) -> IncompleteReply {
    let Event::Replied { reply, .. } = event else { return IncompleteReply::Empty };
    match reply.finish {
        ReplyFinish::Length => IncompleteReply::Length,
        ReplyFinish::Pause => IncompleteReply::Pause,
        _ => IncompleteReply::Empty,
    }
}

/// Returns the number of messages in a request with the whole conversation.
pub(in crate::view) fn message_count(machine: &Machine) -> u32 {
    let count = |item: &ConversationItem| match item {
        ConversationItem::User(_) | ConversationItem::Assistant(_) => 1,
        ConversationItem::Exchange(exchange) => 1 + exchange.results().len(),
    };
    let messages: usize =
        machine.conversation.entries().iter().map(|entry| count(&entry.item)).sum();
    u32::try_from(messages).unwrap_or(u32::MAX)
}
