//! From what the driver shows to public events.

use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use super::calls::OpenCall;
use super::throttle::Throttle;
use super::tools::Tools;
use super::{
    AgentEnd, AgentStart, ApiCallStart, CompactionComplete, CompactionTriggered, Error,
    GivenLimits, HookComplete, Kind, LoopDetected, Measure, PublicEvent, Retry, RetryCause, SCHEMA,
    SafetyNet, Severity, StateChange, Steering, SteeringReceived, SubagentCall, SummaryBy,
    TextDelta, Unfinished,
};
use crate::machine::chart::Chart;
use crate::machine::{
    Charge, Check, Effect, Event, EventKind, Fold, Move, Note, Outcome, Outcomes, Run, Slot, Spent,
    State, StateKind, StopReason,
};
use crate::model::{EffectId, Finish, Item, Origin, Reply, Time, Tokens};
use crate::port::{Delta, HookRun, Notice, Seen};
use crate::view::About;

/// Folds what the driver shows into public events. Pure: the same run gives the same events.
pub struct Projector {
    about: Arc<About>,
    seq: u64,
    /// When the run began, on its own clock.
    begun: Time,
    /// When the present state was entered.
    entered: Time,
    call: Option<OpenCall>,
    tools: Tools,
    /// Whether a compaction was told of that has not ended.
    is_compacting: bool,
    spent: Spent,
    /// Model calls of sub-agents, those before this run included.
    subagent_calls: u32,
    /// Where the run stood when the next event comes; the chart tells by it which guard held.
    before: Option<State>,
    warnings: Throttle,
    out: Vec<PublicEvent>,
}

impl Projector {
    /// Returns a projector for a run that has shown nothing yet; its first event will have the number after `seq`.
    pub fn new(about: Arc<About>, seq: u64) -> Self {
        let subagent_calls = about.earlier.bill.subagent_calls;
        Self {
            about,
            seq,
            subagent_calls,
            before: None,
            begun: Time::START,
            entered: Time::START,
            call: None,
            tools: Tools::default(),
            is_compacting: false,
            spent: Spent::default(),
            warnings: Throttle::new(),
            out: Vec::new(),
        }
    }

    /// Returns the number of the newest event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the events that something amounts to.
    pub fn see(&mut self, seen: &Seen<'_>) -> Vec<PublicEvent> {
        match *seen {
            Seen::Begun { at, fold, outcomes } => self.begin(at, fold, outcomes),
            Seen::Event { at, event, fold, outcomes } => self.event(at, event, fold, outcomes),
            Seen::Delta { at, id, delta } => self.delta(at, id, delta),
            Seen::Notice { at, notice, .. } => self.notice(at, notice),
            Seen::Ended { at, fold } => self.end(at, fold),
        }
        std::mem::take(&mut self.out)
    }

    fn tell(&mut self, at: Time, kind: Kind) {
        self.seq += 1;
        let since = at.since(self.begun).0;
        let since = SignedDuration::from_micros(i64::try_from(since).unwrap_or(i64::MAX));
        self.out.push(PublicEvent {
            seq: self.seq,
            ts: self.about.began.saturating_add(since).unwrap_or(Timestamp::MAX),
            session_id: Arc::clone(&self.about.session_id),
            kind,
        });
    }

    fn begin(&mut self, at: Time, fold: &Fold, outcomes: &Outcomes) {
        let run = fold.state.run();
        (self.begun, self.entered, self.spent) = (at, at, run.spent);
        self.before = Some(fold.state.clone());
        self.tools.begin(fold);
        let limits = &run.rules.limits;
        let start = AgentStart {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            agent: Arc::clone(&self.about.agent),
            model: Arc::clone(&self.about.model),
            workspace: Arc::clone(&self.about.workspace),
            sandbox: self.about.sandbox.clone(),
            resumed: run.calls > 0,
            limits: GivenLimits {
                max_steps: limits.max_steps,
                budget_usd: limits.budget,
                max_tokens: limits.max_tokens,
                timeout_seconds: limits.timeout,
                step_timeout_seconds: limits.step_timeout,
            },
        };
        self.tell(at, Kind::AgentStart(start));
        self.follow(at, fold, outcomes);
    }

    /// First what is over, then what the machine notes, then where it went, then what begins.
    fn event(&mut self, at: Time, event: &Event, fold: &Fold, outcomes: &Outcomes) {
        self.call_ended(at, event, fold, outcomes);
        self.delegated(at, event, fold);
        self.spent = fold.state.run().spent;
        self.tools.decided(event);
        for end in self.tools.ended(fold) {
            self.tell(at, end);
        }
        self.messages(at, event, fold);
        for note in &outcomes.notes {
            self.note(at, note, event, fold);
        }
        let mut before = self.before.replace(fold.state.clone());
        for change in &outcomes.moves {
            // What lies between two changes of state at once is not known.
            let guard = before.take().and_then(|state| guard(&state, at, event, *change));
            let duration = at.since(self.entered);
            self.entered = at;
            let (from, to) = (change.from, change.to);
            let event = change.event;
            self.tell(at, Kind::StateChange(StateChange { from, to, event, guard, duration }));
            if to == StateKind::Done {
                self.failure(at, fold);
            }
        }
        self.follow(at, fold, outcomes);
    }

    /// Tells what begins.
    fn follow(&mut self, at: Time, fold: &Fold, outcomes: &Outcomes) {
        let run = fold.state.run();
        for effect in &outcomes.effects {
            if let Effect::Call { id, purpose, attempt, max_output } = *effect {
                self.call = Some(OpenCall::new(id, purpose, attempt, at));
                let start = ApiCallStart {
                    call: id,
                    purpose,
                    attempt,
                    step: run.steps + 1,
                    messages: messages(fold),
                    context_tokens: fold.conversation.gauge().estimate(),
                    max_output_tokens: max_output,
                };
                self.tell(at, Kind::ApiCallStart(start));
            }
        }
        let starts = self.tools.started(&outcomes.effects, run.steps);
        for start in starts {
            self.tell(at, start);
        }
    }

    fn call_ended(&mut self, at: Time, event: &Event, fold: &Fold, outcomes: &Outcomes) {
        let outcome = self.call.as_ref().and_then(|call| call.outcome(event, outcomes));
        let Some((call, outcome)) = outcome.and_then(|outcome| Some((self.call.take()?, outcome)))
        else {
            return;
        };
        let Run { rules, spent, .. } = fold.state.run();
        let Charge { usage, cost } = Charge::between(self.spent, *spent, Some(event));
        let cost = rules.price.map(|_| cost);
        self.tell(at, Kind::ApiCallEnd(call.end(at, outcome, usage, cost)));
    }

    /// Tells what a run within the run has used.
    fn delegated(&mut self, at: Time, event: &Event, fold: &Fold) {
        let (Event::Charged { id, usage, cost }, State::Executing(state)) = (event, &fold.state)
        else {
            return;
        };
        let is_it = |slot: &Slot| matches!(slot, Slot::Running { id: open, .. } if open == id);
        if let Some(call) = state.calls.iter().find(|call| is_it(&call.slot)) {
            let (tool_call_id, usage) = (call.call.id.clone(), *usage);
            let cost = state.run.rules.price.map(|_| *cost);
            self.subagent_calls += 1;
            self.tell(at, Kind::SubagentCall(SubagentCall { tool_call_id, usage, cost }));
        }
    }

    /// Tells which messages of the user the run has taken in.
    fn messages(&mut self, at: Time, event: &Event, fold: &Fold) {
        match event {
            Event::Prepared { messages, .. } => {
                let steering = messages.iter().filter(|message| message.origin == Origin::Steering);
                for message in steering {
                    let text = Arc::clone(&message.text);
                    let kind = Steering::Steering;
                    self.tell(at, Kind::SteeringReceived(SteeringReceived { kind, text }));
                }
            }
            Event::Checked { check: Check::FollowUp { message }, .. }
                if !matches!(fold.state, State::Done(_)) =>
            {
                let (kind, text) = (Steering::FollowUp, Arc::clone(message));
                self.tell(at, Kind::SteeringReceived(SteeringReceived { kind, text }));
            }
            _ => {}
        }
    }

    fn note(&mut self, at: Time, note: &Note, event: &Event, fold: &Fold) {
        let context_tokens = fold.conversation.gauge().estimate();
        let measure = |measure| Kind::SafetyNet(SafetyNet { measure });
        let kind = match *note {
            Note::SafetyNet { reason } => {
                self.give_up_compaction(at, fold);
                measure(Measure::Close { reason })
            }
            Note::NoSummary { cause } => measure(Measure::NoSummary { cause }),
            Note::OutputLowered { to } => measure(Measure::LowerOutput { max_output_tokens: to }),
            Note::Spent { cost } => measure(Measure::Warn { cost_usd: cost }),
            Note::Retry { attempt, wait, fault } => {
                Kind::Retry(Retry { cause: RetryCause::Fault { fault, attempt, wait } })
            }
            Note::AskedAgain => {
                let why = unfinished(event);
                Kind::Retry(Retry { cause: RetryCause::Unfinished { why } })
            }
            Note::UnknownFinish => {
                let message = unknown_finish(event).into();
                Kind::Error(Error { severity: Severity::Warning, message })
            }
            Note::LoopDetected { times } => Kind::LoopDetected(LoopDetected { times }),
            // Its text is told with the event that brought it.
            Note::Steered { .. } => return,
            Note::Compacting { context } => {
                self.is_compacting = true;
                Kind::CompactionTriggered(CompactionTriggered { context_tokens: context })
            }
            Note::Compacted { written } => {
                if !std::mem::take(&mut self.is_compacting) {
                    let triggered = CompactionTriggered { context_tokens: before(event, fold) };
                    self.tell(at, Kind::CompactionTriggered(triggered));
                }
                let summary = if written { SummaryBy::Model } else { SummaryBy::Program };
                Kind::CompactionComplete(CompactionComplete { context_tokens, summary })
            }
        };
        self.tell(at, kind);
    }

    /// A run that ends while it compacts has not compacted.
    fn give_up_compaction(&mut self, at: Time, fold: &Fold) {
        if std::mem::take(&mut self.is_compacting) {
            let context_tokens = fold.conversation.gauge().estimate();
            let summary = SummaryBy::Nobody;
            let complete = CompactionComplete { context_tokens, summary };
            self.tell(at, Kind::CompactionComplete(complete));
        }
    }

    /// Tells what went wrong, when the run failed.
    fn failure(&mut self, at: Time, fold: &Fold) {
        self.give_up_compaction(at, fold);
        if let State::Done(done) = &fold.state
            && let Some(error) = &done.outcome.error
        {
            let (severity, message) = (Severity::Error, Arc::clone(error));
            self.tell(at, Kind::Error(Error { severity, message }));
        }
    }

    fn delta(&mut self, at: Time, id: EffectId, delta: &Delta) {
        let Some(call) = self.call.as_mut().filter(|call| call.id == id) else { return };
        call.heard(at);
        let purpose = call.purpose;
        if let Delta::Text(text) = delta {
            let text = text.as_str().into();
            self.tell(at, Kind::TextDelta(TextDelta { call: id, purpose, text }));
        }
    }

    fn notice(&mut self, at: Time, notice: &Notice) {
        match notice {
            Notice::Hook(HookRun { name, point, outcome, took, call, said }) => {
                let hook = HookComplete {
                    name: Arc::clone(name),
                    point: *point,
                    outcome: *outcome,
                    took: *took,
                    tool_call_id: call.clone(),
                    message: said.clone(),
                };
                self.tell(at, Kind::HookComplete(hook));
            }
            Notice::Warning { text } => {
                let message = match self.warnings.pass(at) {
                    Some(0) => Arc::clone(text),
                    Some(more) => {
                        format!("{text} ({more} warnings before it were not shown)").into()
                    }
                    None => return,
                };
                let severity = Severity::Warning;
                self.tell(at, Kind::Error(Error { severity, message }));
            }
            Notice::Progress { .. } => {}
        }
    }

    fn end(&mut self, at: Time, fold: &Fold) {
        let run = fold.state.run();
        let outcome = match &fold.state {
            State::Done(done) => done.outcome.clone(),
            State::Preparing(_)
            | State::Compacting(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_) => Outcome {
                reason: StopReason::InternalError,
                output: None,
                error: Some("the run ended before it was over".into()),
            },
        };
        let end = AgentEnd {
            status: outcome.reason.status(),
            reason: outcome.reason,
            exit_code: self.about.exit_code(outcome.reason),
            steps: run.steps,
            llm_calls: run.calls + self.subagent_calls,
            duration: at.since(self.begun),
            cost: run.rules.price.map(|_| run.spent.cost),
            output: outcome.output,
            error: outcome.error,
        };
        self.tell(at, Kind::AgentEnd(end));
    }
}

/// Returns the warning of a reply that ended for an unknown reason.
fn unknown_finish(event: &Event) -> String {
    let reason = match event {
        Event::Replied { reply: Reply { finish: Finish::Other(reason), .. }, .. } => reason,
        _ => "",
    };
    format!("the reply ended for an unknown reason, '{reason}'; its text is kept, and the run ends")
}

/// Returns the guard that held when a state was left, as the statechart names it; none when the way has none.
fn guard(before: &State, at: Time, event: &Event, change: Move) -> Option<Arc<str>> {
    static CHART: OnceLock<Option<Chart>> = OnceLock::new();
    let chart = CHART.get_or_init(|| Chart::of_run().ok()).as_ref()?;
    let tick = Event::Tick { now: at };
    let event = if change.event == EventKind::Tick { &tick } else { event };
    let (to, arrow) = chart.interpret(before, event).ok()?;
    let is_it = before.kind() == change.from && to == change.to && event.kind() == change.event;
    arrow.filter(|_| is_it)?.guard.as_deref().map(Arc::from)
}

/// Returns how large the context was before it was compacted without the model.
fn before(event: &Event, fold: &Fold) -> Tokens {
    match event {
        Event::Prepared { facts, .. } => facts.context,
        _ => fold.conversation.gauge().estimate(),
    }
}

/// Returns why the reply that an event brought is not whole.
fn unfinished(event: &Event) -> Unfinished {
    match event {
        Event::Replied { reply, .. } => match reply.finish {
            Finish::Length => Unfinished::Length,
            Finish::Pause => Unfinished::Pause,
            Finish::Stop
            | Finish::ToolCalls
            | Finish::Refused
            | Finish::ContextFull
            | Finish::Other(_) => Unfinished::Empty,
        },
        _ => Unfinished::Empty,
    }
}

/// Returns how many messages a request with the whole conversation has.
pub(in crate::view) fn messages(fold: &Fold) -> u32 {
    let count = |item: &Item| match item {
        Item::User(_) | Item::Assistant(_) => 1,
        Item::Exchange(exchange) => 1 + exchange.results().len(),
    };
    let messages: usize = fold.conversation.entries().iter().map(|entry| count(&entry.item)).sum();
    u32::try_from(messages).unwrap_or(u32::MAX)
}
