//! Turns the events of the driver into public events.

use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use super::open_model_call::OpenModelCall;
use super::throttle::Throttle;
use super::tool_calls::ToolCallTracker;
use super::{
    AgentEnd, AgentStart, ApiCallStart, CompactionComplete, CompactionTriggered, EffectiveLimits,
    ErrorEvent, HookComplete, IncompleteReply, LimitAction, LimitReached, LoopDetected,
    MessageTiming, PublicEvent, PublicEventKind, RetryCause, RetryEvent, SCHEMA, Severity,
    StateChange, SteeringReceived, SubagentCall, SummaryAuthor, TextDelta,
};
use crate::machine::chart::Chart;
use crate::machine::{
    BudgetUsage, CallState, CheckResult, Effect, Event, EventKind, Machine, MachineNote,
    MachineOutput, PricedUsage, RunContext, RunOutcome, State, StateKind, StopReason, Transition,
};
use crate::model::{
    ConversationItem, EffectId, MessageOrigin, Reply, ReplyFinish, RunTime, Tokens,
};
use crate::port::{EffectNotice, HookRun, ReplyDelta, RunEvent};
use crate::view::RunInfo;

/// Projects the events of the driver to public events. Pure: the same run gives the same events.
pub struct EventProjector {
    info: Arc<RunInfo>,
    seq: u64,
    /// When the run began, in session time.
    started_at: RunTime,
    /// When the present state was entered.
    entered_at: RunTime,
    call: Option<OpenModelCall>,
    tools: ToolCallTracker,
    /// Whether a compaction was reported that has not ended.
    is_compacting: bool,
    usage: BudgetUsage,
    /// Model calls of sub-agents, including those before this run.
    subagent_calls: u32,
    /// The state before the next event, by which the chart determines the guard.
    state_before: Option<State>,
    warnings: Throttle,
    events: Vec<PublicEvent>,
}

impl EventProjector {
    /// Returns a projector for a new run; its first event gets the number after `seq`.
    pub fn new(info: Arc<RunInfo>, seq: u64) -> Self {
        let subagent_calls = info.prior_usage.costs.subagent_calls;
        Self {
            info,
            seq,
            subagent_calls,
            state_before: None,
            started_at: RunTime::START,
            entered_at: RunTime::START,
            call: None,
            tools: ToolCallTracker::default(),
            is_compacting: false,
            usage: BudgetUsage::default(),
            warnings: Throttle::new(),
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
            RunEvent::Started { at, machine, output } => self.begin(at, machine, output),
            RunEvent::Handled { at, event, machine, output } => {
                self.event(at, event, machine, output)
            }
            RunEvent::ReplyDelta { at, id, delta } => self.delta(at, id, delta),
            RunEvent::Notice { at, notice, .. } => self.notice(at, notice),
            RunEvent::Ended { at, machine } => self.end(at, machine),
        }
        std::mem::take(&mut self.events)
    }

    fn emit(&mut self, at: RunTime, kind: PublicEventKind) {
        self.seq += 1;
        let since = at.since(self.started_at).0;
        let since = SignedDuration::from_micros(i64::try_from(since).unwrap_or(i64::MAX));
        self.events.push(PublicEvent {
            seq: self.seq,
            ts: self.info.started_at.saturating_add(since).unwrap_or(Timestamp::MAX),
            session_id: Arc::clone(&self.info.session_id),
            kind,
        });
    }

    fn begin(&mut self, at: RunTime, machine: &Machine, output: &MachineOutput) {
        let run = machine.state.run();
        (self.started_at, self.entered_at, self.usage) = (at, at, run.used);
        self.state_before = Some(machine.state.clone());
        self.tools.begin(machine);
        let limits = &run.rules.limits;
        let start = AgentStart {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            agent: Arc::clone(&self.info.agent),
            model: Arc::clone(&self.info.model),
            workspace: Arc::clone(&self.info.workspace),
            sandbox: self.info.sandbox.clone(),
            resumed: run.model_calls > 0,
            limits: EffectiveLimits {
                max_steps: limits.max_steps,
                budget_usd: limits.budget,
                max_tokens: limits.max_tokens,
                timeout_seconds: limits.timeout,
                step_timeout_seconds: limits.step_timeout,
            },
        };
        self.emit(at, PublicEventKind::AgentStart(start));
        self.emit_starts(at, machine, output);
    }

    /// First what has ended, then the machine's notes, then its transitions, then what begins.
    fn event(&mut self, at: RunTime, event: &Event, machine: &Machine, output: &MachineOutput) {
        self.call_ended(at, event, machine, output);
        self.emit_subagent_usage(at, event, machine);
        self.usage = machine.state.run().used;
        self.tools.on_event(event);
        for end in self.tools.take_ends(machine) {
            self.emit(at, end);
        }
        self.messages(at, event, machine);
        for note in &output.notes {
            self.emit_note(at, note, event, machine);
        }
        let mut before = self.state_before.replace(machine.state.clone());
        for change in &output.transitions {
            // The state between two transitions of one event is not known.
            let guard = before.take().and_then(|state| guard_name(&state, at, event, *change));
            let duration = at.since(self.entered_at);
            self.entered_at = at;
            let (from, to) = (change.from, change.to);
            let event = change.event;
            self.emit(
                at,
                PublicEventKind::StateChange(StateChange { from, to, event, guard, duration }),
            );
            if to == StateKind::Done {
                self.emit_failure(at, machine);
            }
        }
        self.emit_starts(at, machine, output);
    }

    /// Emits what begins.
    fn emit_starts(&mut self, at: RunTime, machine: &Machine, output: &MachineOutput) {
        let run = machine.state.run();
        for effect in &output.effects {
            if let Effect::CallModel { id, purpose, attempt, max_output } = *effect {
                self.call = Some(OpenModelCall::new(id, purpose, attempt, at));
                let start = ApiCallStart {
                    call: id,
                    purpose,
                    attempt,
                    step: run.steps + 1,
                    messages: message_count(machine),
                    context_tokens: machine.conversation.context_usage().estimate(),
                    max_output_tokens: max_output,
                };
                self.emit(at, PublicEventKind::ApiCallStart(start));
            }
        }
        let starts = self.tools.take_starts(&output.effects, run.steps);
        for start in starts {
            self.emit(at, start);
        }
    }

    fn call_ended(
        &mut self,
        at: RunTime,
        event: &Event,
        machine: &Machine,
        output: &MachineOutput,
    ) {
        let outcome = self.call.as_ref().and_then(|call| call.outcome(event, output));
        let Some((call, outcome)) = outcome.and_then(|outcome| Some((self.call.take()?, outcome)))
        else {
            return;
        };
        let RunContext { rules, used: spent, .. } = machine.state.run();
        let PricedUsage { usage, cost } = PricedUsage::between(self.usage, *spent, Some(event));
        let cost = rules.price.map(|_| cost);
        self.emit(at, PublicEventKind::ApiCallEnd(call.end(at, outcome, usage, cost)));
    }

    /// Emits the usage of a sub-agent.
    fn emit_subagent_usage(&mut self, at: RunTime, event: &Event, machine: &Machine) {
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
            self.emit(
                at,
                PublicEventKind::SubagentCall(SubagentCall { tool_call_id, usage, cost }),
            );
        }
    }

    /// Emits the user's messages that were delivered.
    fn messages(&mut self, at: RunTime, event: &Event, machine: &Machine) {
        match event {
            Event::Prepared { messages, .. } => {
                let steering =
                    messages.iter().filter(|message| message.origin == MessageOrigin::Steering);
                for message in steering {
                    let text = Arc::clone(&message.text);
                    let kind = MessageTiming::Steering;
                    self.emit(
                        at,
                        PublicEventKind::SteeringReceived(SteeringReceived { kind, text }),
                    );
                }
            }
            Event::Checked { result: CheckResult::FollowUp { message }, .. }
                if !matches!(machine.state, State::Done(_)) =>
            {
                let (kind, text) = (MessageTiming::FollowUp, Arc::clone(message));
                self.emit(at, PublicEventKind::SteeringReceived(SteeringReceived { kind, text }));
            }
            _ => {}
        }
    }

    fn emit_note(&mut self, at: RunTime, note: &MachineNote, event: &Event, machine: &Machine) {
        let context_tokens = machine.conversation.context_usage().estimate();
        let measure = |measure| PublicEventKind::LimitReached(LimitReached { action: measure });
        let kind = match *note {
            MachineNote::LimitReached { reason } => {
                self.abort_compaction(at, machine);
                measure(LimitAction::Close { reason })
            }
            MachineNote::NoFinalSummary { cause } => measure(LimitAction::NoSummary { cause }),
            MachineNote::OutputLimitLowered { limit: to } => {
                measure(LimitAction::LowerOutput { max_output_tokens: to })
            }
            MachineNote::CostWarning { cost } => measure(LimitAction::Warn { cost_usd: cost }),
            MachineNote::Retry { attempt, wait, fault } => PublicEventKind::Retry(RetryEvent {
                cause: RetryCause::Fault { fault, attempt, wait },
            }),
            MachineNote::AskedAgain => {
                let reason = incomplete_reason(event);
                PublicEventKind::Retry(RetryEvent { cause: RetryCause::IncompleteReply { reason } })
            }
            MachineNote::UnknownFinish => {
                let message = unknown_finish(event).into();
                PublicEventKind::Error(ErrorEvent { severity: Severity::Warning, message })
            }
            MachineNote::LoopDetected { times } => {
                PublicEventKind::LoopDetected(LoopDetected { times })
            }
            // Its text is emitted with the event that brought it.
            MachineNote::SteeringReceived { .. } => return,
            MachineNote::Compacting { context } => {
                self.is_compacting = true;
                PublicEventKind::CompactionTriggered(CompactionTriggered {
                    context_tokens: context,
                })
            }
            MachineNote::Compacted { by_model: written } => {
                if !std::mem::take(&mut self.is_compacting) {
                    let triggered =
                        CompactionTriggered { context_tokens: context_before(event, machine) };
                    self.emit(at, PublicEventKind::CompactionTriggered(triggered));
                }
                let summary = if written { SummaryAuthor::Model } else { SummaryAuthor::Program };
                PublicEventKind::CompactionComplete(CompactionComplete { context_tokens, summary })
            }
        };
        self.emit(at, kind);
    }

    /// A run that ends during a compaction has not compacted.
    fn abort_compaction(&mut self, at: RunTime, machine: &Machine) {
        if std::mem::take(&mut self.is_compacting) {
            let context_tokens = machine.conversation.context_usage().estimate();
            let summary = SummaryAuthor::None;
            let complete = CompactionComplete { context_tokens, summary };
            self.emit(at, PublicEventKind::CompactionComplete(complete));
        }
    }

    /// Emits what went wrong, if the run failed.
    fn emit_failure(&mut self, at: RunTime, machine: &Machine) {
        self.abort_compaction(at, machine);
        if let State::Done(done) = &machine.state
            && let Some(error) = &done.outcome.error
        {
            let (severity, message) = (Severity::Error, Arc::clone(error));
            self.emit(at, PublicEventKind::Error(ErrorEvent { severity, message }));
        }
    }

    fn delta(&mut self, at: RunTime, id: EffectId, delta: &ReplyDelta) {
        let Some(call) = self.call.as_mut().filter(|call| call.id == id) else { return };
        call.note_first_byte(at);
        let purpose = call.purpose;
        if let ReplyDelta::Text(text) = delta {
            let text = text.as_str().into();
            self.emit(at, PublicEventKind::TextDelta(TextDelta { call: id, purpose, text }));
        }
    }

    fn notice(&mut self, at: RunTime, notice: &EffectNotice) {
        match notice {
            EffectNotice::Hook(HookRun { name, point, outcome, duration, call, message }) => {
                let hook = HookComplete {
                    name: Arc::clone(name),
                    point: *point,
                    outcome: *outcome,
                    duration: *duration,
                    tool_call_id: call.clone(),
                    message: message.clone(),
                };
                self.emit(at, PublicEventKind::HookComplete(hook));
            }
            EffectNotice::Warning { text } => {
                let message = match self.warnings.try_pass(at) {
                    Some(0) => Arc::clone(text),
                    Some(more) => {
                        format!("{text} ({more} warnings before it were suppressed)").into()
                    }
                    None => return,
                };
                let severity = Severity::Warning;
                self.emit(at, PublicEventKind::Error(ErrorEvent { severity, message }));
            }
            EffectNotice::Progress { .. } => {}
        }
    }

    fn end(&mut self, at: RunTime, machine: &Machine) {
        let run = machine.state.run();
        let outcome = match &machine.state {
            State::Done(done) => done.outcome.clone(),
            State::Preparing(_)
            | State::Compacting(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_) => RunOutcome {
                reason: StopReason::InternalError,
                output: None,
                error: Some("the run ended unexpectedly".into()),
            },
        };
        let end = AgentEnd {
            status: outcome.reason.status(),
            reason: outcome.reason,
            exit_code: self.info.exit_code(outcome.reason),
            steps: run.steps,
            llm_calls: run.model_calls + self.subagent_calls,
            duration: at.since(self.started_at),
            cost: run.rules.price.map(|_| run.used.cost),
            output: outcome.output,
            error: outcome.error,
        };
        self.emit(at, PublicEventKind::AgentEnd(end));
    }
}

/// Returns the warning of a reply that ended for an unknown reason.
fn unknown_finish(event: &Event) -> String {
    let reason = match event {
        Event::Replied { reply: Reply { finish: ReplyFinish::Other(reason), .. }, .. } => reason,
        _ => "",
    };
    format!("the reply ended for an unknown reason, '{reason}'; its text is kept, and the run ends")
}

/// Returns the guard of a transition, as the statechart names it; `None` if it has none.
fn guard_name(before: &State, at: RunTime, event: &Event, change: Transition) -> Option<Arc<str>> {
    static CHART: OnceLock<Option<Chart>> = OnceLock::new();
    let chart = CHART.get_or_init(|| Chart::for_run().ok()).as_ref()?;
    let tick = Event::Tick { now: at };
    let event = if change.event == EventKind::Tick { &tick } else { event };
    let (to, arrow) = chart.next_state(before, event).ok()?;
    let is_it = before.kind() == change.from && to == change.to && event.kind() == change.event;
    arrow.filter(|_| is_it)?.guard.as_deref().map(Arc::from)
}

/// Returns the size of the context before it was compacted without the model.
fn context_before(event: &Event, machine: &Machine) -> Tokens {
    match event {
        Event::Prepared { size: facts, .. } => facts.estimate,
        _ => machine.conversation.context_usage().estimate(),
    }
}

/// Returns why the reply in an event is incomplete.
fn incomplete_reason(event: &Event) -> IncompleteReply {
    match event {
        Event::Replied { reply, .. } => match reply.finish {
            ReplyFinish::Length => IncompleteReply::Length,
            ReplyFinish::Pause => IncompleteReply::Pause,
            ReplyFinish::Stop
            | ReplyFinish::ToolCalls
            | ReplyFinish::Refused
            | ReplyFinish::ContextFull
            | ReplyFinish::Other(_) => IncompleteReply::Empty,
        },
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
