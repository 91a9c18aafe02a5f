//! The driver: the one loop that everything goes through.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::executor::{DriverInput, Executor};
use crate::machine::{
    Authorization, CallIntent, Effect, Event, Fingerprint, Machine, MachineOutput, State,
};
use crate::model::{CallId, EffectId, RunTime, Signal, TimeSpan, UserMessage};
use crate::port::{
    AnswerChecks, ApprovedCall, AuthorizationOutcome, CallTiming, CancellationToken, Clock,
    Disconnected, Journal, JournalRecord, MessageSource, Model, NoAnswerChecks, NoJournal,
    NoMessages, NoObserver, NoPreCallHooks, NoTools, Observer, PreCallHooks, PreparedCall,
    ReplyDelta, RunEvent, StoreError, ToolSpec, Toolbox,
};

/// Drives one run from its first effects to its end.
pub struct Driver<H> {
    pub(super) executor: H,
    pub(super) ports: Ports,
    pub(super) request_context: RequestContext,
    pub(super) fold: Machine,
    pub(super) clock: Arc<dyn Clock>,
    /// What is under way, with what ends it.
    pub(super) cancellations: HashMap<EffectId, CancellationToken>,
    /// Calls of the newest reply that are not authorized yet. A resumed session has none and prepares them again.
    pub(super) prepared: HashMap<CallId, Box<dyn PreparedCall>>,
    /// Calls that were cleared and wait for their turn to start.
    pub(super) approved: HashMap<CallId, PendingCall>,
    /// Completions that needed nobody's help.
    pub(super) local_events: VecDeque<Event>,
    /// What the call that is under way has said so far.
    pub(super) partial_text: String,
    /// Where the time of the call that is under way went so far.
    pub(super) timing: Option<PendingTiming>,
    /// What is to be done, once what justifies it is durable.
    pending: Vec<Effect>,
    /// Where the run stands, for the record of what comes next.
    fingerprint: Fingerprint,
    journal_state: JournalState,
    observer_state: ObserverState,
}

/// What a run needs of the world.
pub struct Ports {
    /// The model.
    pub model: Box<dyn Model>,
    /// The tools.
    pub tools: Arc<dyn Toolbox>,
    /// Where the run is written down.
    pub journal: Box<dyn Journal>,
    /// Who watches.
    pub observer: Box<dyn Observer>,
    /// Where messages for the run arrive.
    pub messages: Box<dyn MessageSource>,
    /// What a final answer has to pass.
    pub checks: Arc<dyn AnswerChecks>,
    /// What is done before the model is called.
    pub pre_call_hooks: Arc<dyn PreCallHooks>,
}

impl Ports {
    /// Returns a model alone: no tools, nothing written down, nobody who watches.
    pub fn new(model: Box<dyn Model>) -> Self {
        Self {
            model,
            tools: Arc::new(NoTools),
            journal: Box::new(NoJournal),
            observer: Box::new(NoObserver),
            messages: Box::new(NoMessages),
            checks: Arc::new(NoAnswerChecks),
            pre_call_hooks: Arc::new(NoPreCallHooks),
        }
    }
}

/// What goes along with every request of a run.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema of the final answer.
    pub schema: Option<Arc<Value>>,
}

/// A call that was cleared.
pub(super) struct PendingCall {
    pub(super) call: Box<dyn ApprovedCall>,
    pub(super) intent: CallIntent,
}

/// Where the time of a model call goes while it is under way.
#[derive(Clone, Copy)]
pub(super) struct PendingTiming {
    pub(super) id: EffectId,
    /// When the request was written down.
    pub(super) encoded_at: RunTime,
    pub(super) timing: CallTiming,
}

/// Whether the journal can be relied on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JournalState {
    Usable,
    Failed,
}

/// Whether somebody reads what is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObserverState {
    Connected,
    Disconnected,
}

/// How long the driver waits at the end for what it has cancelled.
const SHUTDOWN_TIMEOUT: TimeSpan = TimeSpan::from_secs(3);

impl RequestContext {
    /// Returns the bytes of the system prompt, which goes along with calls without tools too.
    pub(super) fn system_bytes(&self) -> u64 {
        self.system.len() as u64
    }

    /// Returns how many bytes go along with every request, for the estimate of its size.
    pub fn request_bytes(&self) -> u64 {
        let tool = |tool: &ToolSpec| {
            tool.name.len() + tool.description.len() + tool.schema.to_string().len()
        };
        (self.system.len() + self.tools.iter().map(tool).sum::<usize>()) as u64
    }
}

impl<H: Executor> Driver<H> {
    /// Returns a driver for a run that stands here.
    pub fn new(hands: H, ports: Ports, brief: RequestContext, fold: Machine) -> Self {
        Self {
            clock: hands.clock(),
            executor: hands,
            ports,
            request_context: brief,
            cancellations: HashMap::new(),
            prepared: HashMap::new(),
            approved: HashMap::new(),
            local_events: VecDeque::new(),
            partial_text: String::new(),
            timing: None,
            pending: Vec::new(),
            fingerprint: Fingerprint::of(&fold, &[]),
            fold,
            journal_state: JournalState::Usable,
            observer_state: ObserverState::Connected,
        }
    }

    /// Drives the run to its end, and returns where it then stands.
    pub fn run(mut self, first: MachineOutput) -> Machine {
        let begun = RunEvent::Started { at: self.clock.now(), machine: &self.fold, output: &first };
        let seen = self.ports.observer.on_event(&begun);
        self.check_observer(seen);
        self.fingerprint = Fingerprint::of(&self.fold, &first.effects);
        self.pending = first.effects;
        loop {
            // What has arrived meanwhile is written down together, and made durable once.
            while let Some(arrival) = self.executor.try_input() {
                self = self.handle_input(arrival);
            }
            self = self.perform_pending();
            if self.is_over() {
                break;
            }
            self = match self.local_events.pop_front() {
                Some(event) => self.handle_event(&event),
                None => match self.executor.wait_input(self.fold.deadline()) {
                    Some(arrival) => self.handle_input(arrival),
                    None => self.handle_tick(),
                },
            };
        }
        if !self.executor.wait_idle(self.shutdown_timeout()) {
            log::warn!("something that was cancelled is still running");
        }
        let ended = RunEvent::Ended { at: self.clock.now(), machine: &self.fold };
        let seen = self.ports.observer.on_event(&ended);
        self.check_observer(seen);
        self.fold
    }

    /// Returns how long to wait for what was cancelled; never longer than the run may take.
    fn shutdown_timeout(&self) -> TimeSpan {
        let run = self.fold.state.run();
        let ends = run.rules.limits.timeout.map(|timeout| run.started_at.after(timeout));
        ends.map_or(SHUTDOWN_TIMEOUT, |ends| ends.since(self.clock.now()).min(SHUTDOWN_TIMEOUT))
    }

    fn is_over(&self) -> bool {
        matches!(self.fold.state, State::Done(_)) && self.pending.is_empty()
    }

    /// Takes in what arrived.
    fn handle_input(mut self, arrival: DriverInput) -> Self {
        match arrival {
            DriverInput::Event(event) => self.handle_event(&event),
            DriverInput::Replied { id, reply, access, calls } => {
                self.prepared = reply.calls().map(|call| call.id.clone()).zip(calls).collect();
                self.handle_event(&Event::Replied { id, reply, access })
            }
            DriverInput::Authorized { id, call, outcome: vetted } => {
                let verdict = match vetted {
                    AuthorizationOutcome::Approved {
                        call: job,
                        timeout: limit,
                        intent,
                        reason: grounds,
                    } => {
                        self.approved
                            .insert(call, PendingCall { call: job, intent: intent.clone() });
                        Authorization::Approved { timeout: limit, intent, reason: grounds }
                    }
                    AuthorizationOutcome::Rejected(result) => Authorization::Rejected { result },
                    AuthorizationOutcome::Abort => Authorization::Abort,
                };
                self.handle_event(&Event::Authorized { id, authorization: verdict })
            }
            DriverInput::PreCallHooksRun { id, messages } => self.handle_prepared(id, messages),
            DriverInput::ReplyDelta { id, delta } => {
                if self.cancellations.contains_key(&id) {
                    let at = self.clock.now();
                    match &delta {
                        ReplyDelta::Started => self.record_first_byte(id, at),
                        ReplyDelta::Text(text) => self.partial_text.push_str(text),
                        ReplyDelta::Reasoning(_) => {}
                    }
                    let seen = self.ports.observer.on_event(&RunEvent::ReplyDelta {
                        at,
                        id,
                        delta: &delta,
                    });
                    self.check_observer(seen);
                }
                self
            }
            DriverInput::Notice { id, notice } => {
                if self.cancellations.contains_key(&id) {
                    let at = self.clock.now();
                    let seen =
                        self.ports.observer.on_event(&RunEvent::Notice { at, id, notice: &notice });
                    self.check_observer(seen);
                }
                self
            }
        }
    }

    fn handle_prepared(self, id: EffectId, messages: Vec<UserMessage>) -> Self {
        let facts = self.fold.request_size(&messages, self.request_context.system_bytes());
        self.handle_event(&Event::Prepared { id, size: facts, messages: messages.into() })
    }

    fn handle_tick(self) -> Self {
        let now = self.clock.now();
        self.handle_event(&Event::Tick { now })
    }

    /// Writes an event down, folds it, and keeps what follows from it for when it is durable.
    fn handle_event(mut self, event: &Event) -> Self {
        if let Some(id) = event.completed_effect() {
            self.cancellations.remove(&id);
        }
        if event.effect_id().is_some() && !self.fold.state.awaits(event) {
            return self;
        }
        let at = self.clock.now();
        let call = event.completed_effect().and_then(|id| self.take_timing(id));
        match self
            .write(at, JournalRecord::Event { event, fingerprint: self.fingerprint, timing: call })
        {
            Ok(()) => self.fold(at, event),
            Err(error) => self.fail_journal(&error),
        }
    }

    fn fold(self, at: RunTime, event: &Event) -> Self {
        let (fold, outcomes) = self.fold.handle(at, event.clone());
        let mut driver = Self { fold, ..self };
        let seen = RunEvent::Handled { at, event, machine: &driver.fold, output: &outcomes };
        let seen = driver.ports.observer.on_event(&seen);
        driver.check_observer(seen);
        driver.fingerprint = Fingerprint::of(&driver.fold, &outcomes.effects);
        driver.pending.extend(outcomes.effects);
        driver
    }

    /// Notes when the first byte of a reply came.
    fn record_first_byte(&mut self, id: EffectId, at: RunTime) {
        if let Some(timing) = self.timing.as_mut().filter(|timing| timing.id == id) {
            timing.timing.first_byte.get_or_insert(at.since(timing.encoded_at));
        }
    }

    /// Returns where the time of a call went that is over now; none when this is no model call.
    pub(super) fn take_timing(&mut self, id: EffectId) -> Option<CallTiming> {
        self.timing.take_if(|timing| timing.id == id).map(|timing| timing.timing)
    }

    /// Does what is pending, after making durable what justifies it.
    fn perform_pending(mut self) -> Self {
        if self.pending.contains(&Effect::End) {
            self.write_end_record();
        }
        if self.pending.iter().any(|effect| self.needs_durable_journal(effect))
            && let Err(error) = self.sync()
        {
            self = self.fail_journal(&error);
        }
        for effect in std::mem::take(&mut self.pending) {
            self.perform_effect(effect);
        }
        self
    }

    /// Writes a record. Once the journal has failed, nobody relies on it any more, but the end of the run may still fit
    /// into what it has kept free.
    pub(super) fn write(
        &mut self,
        at: RunTime,
        record: JournalRecord<'_>,
    ) -> Result<(), StoreError> {
        let written = self.ports.journal.append(at, record);
        if self.journal_state == JournalState::Failed { Ok(()) } else { written }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.ports.journal.sync();
        if self.journal_state == JournalState::Failed { Ok(()) } else { synced }
    }

    /// Writes how the run ended. That tells what the events before it say already, so it may be missing.
    fn write_end_record(&mut self) {
        let State::Done(done) = &self.fold.state else { return };
        let record = JournalRecord::Ended { done, fingerprint: self.fingerprint };
        if let Err(error) = self.ports.journal.append(self.clock.now(), record) {
            log::warn!("the end of the run is not in its journal: {error}");
        }
    }

    /// The journal cannot be kept any more. That is the last event of the run.
    fn fail_journal(mut self, error: &StoreError) -> Self {
        self.journal_state = JournalState::Failed;
        if matches!(self.fold.state, State::Done(_)) {
            log::error!("the run is over, but its end may get lost: {error}");
        }
        let (at, met) = (self.clock.now(), self.fingerprint);
        let event = Event::StoreFailed { error: Arc::clone(&error.0) };
        let _ =
            self.write(at, JournalRecord::Event { event: &event, fingerprint: met, timing: None });
        self.fold(at, &event)
    }

    /// Ends the run when nobody reads any more what it shows.
    fn check_observer(&mut self, seen: Result<(), Disconnected>) {
        if seen == Err(Disconnected) && self.observer_state == ObserverState::Connected {
            self.observer_state = ObserverState::Disconnected;
            self.local_events.push_back(Event::Interrupt { signal: Signal::Pipe });
        }
    }
}
