//! The driver: the event loop of a run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::checkpoints::CheckpointProgress;
use super::executor::{DriverInput, Executor};
use crate::machine::{
    Authorization, CallIntent, CallPurpose, Deadline, DeadlineKind, Effect, Event, Fingerprint,
    Machine, MachineOutput, State,
};
use crate::port::{
    AnswerChecks, ApprovedCall, AuthorizationOutcome, CallTiming, CancellationToken, Checkpoints,
    Clock, Disconnected, Journal, JournalRecord, MessageSource, Model, ModelRequest,
    NoAnswerChecks, NoCheckpoints, NoJournal, NoMessages, NoObserver, NoPreCallHooks, NoTools,
    Observer, PreCallHooks, PreparedCall, ReplyDelta, RunEvent, StoreError, ToolSpec, Toolbox,
};
use crate::types::{
    CallId, EffectId, RunTime, Signal, TimeSpan, Tokens, ToolResult, ToolStatus, UserMessage,
};

/// Drives one run from its first effects to its end.
pub struct Driver {
    pub(super) executor: Box<dyn Executor>,
    pub(super) ports: Ports,
    pub(super) request_context: RequestContext,
    pub(super) machine: Machine,
    pub(super) clock: Arc<dyn Clock>,
    /// The pending effects, with the tokens that cancel them.
    pub(super) cancellations: HashMap<EffectId, CancellationToken>,
    /// The calls of the newest reply that are not authorized yet. A resumed session has none and prepares its calls
    /// again.
    pub(super) prepared: HashMap<CallId, Box<dyn PreparedCall>>,
    /// Approved calls that haven't started.
    pub(super) approved: HashMap<CallId, PendingCall>,
    /// Completions that the driver produced itself.
    pub(super) local_events: VecDeque<Event>,
    /// The text of the current model call so far, up to [`MAX_PARTIAL_TEXT`].
    pub(super) partial_text: String,
    /// The timing of the current model call so far.
    pub(super) timing: Option<PendingTiming>,
    /// The recording of the workspace's state.
    pub(super) checkpoint: CheckpointProgress,
    /// Effects that start once their events are durable and, if they change the workspace, its state is recorded.
    pub(super) pending: Vec<Effect>,
    /// The fingerprint of the machine before the next event.
    fingerprint: Fingerprint,
    has_journal_failed: bool,
    /// The time at which to stop waiting for cancelled effects, once there was a reason to wait for them.
    shutdown_due: Option<RunTime>,
    /// Whether the driver has waited for cancelled effects at the end.
    has_waited: bool,
    /// Whether the reader of the observer's output is gone.
    is_reader_gone: bool,
}

/// The ports of a run.
pub struct Ports {
    /// The model.
    pub model: Box<dyn Model>,
    /// The tools.
    pub tools: Arc<dyn Toolbox>,
    /// The journal.
    pub journal: Box<dyn Journal>,
    /// The observer.
    pub observer: Box<dyn Observer>,
    /// The source of messages for the run.
    pub messages: Box<dyn MessageSource>,
    /// The checks of a final answer.
    pub checks: Arc<dyn AnswerChecks>,
    /// The hooks before a model call.
    pub pre_call_hooks: Arc<dyn PreCallHooks>,
    /// Records the workspace's state.
    pub checkpoints: Arc<dyn Checkpoints>,
}

impl Ports {
    /// Creates ports with this model and nothing else: no tools, no journal, no observer.
    pub fn new(model: Box<dyn Model>) -> Self {
        Self {
            model,
            tools: Arc::new(NoTools),
            journal: Box::new(NoJournal),
            observer: Box::new(NoObserver),
            messages: Box::new(NoMessages),
            checks: Arc::new(NoAnswerChecks),
            pre_call_hooks: Arc::new(NoPreCallHooks),
            checkpoints: Arc::new(NoCheckpoints),
        }
    }
}

/// The constant part of every request of a run.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSpec]>,
    /// The JSON Schema of the final answer.
    pub schema: Option<Arc<Value>>,
}

/// An approved call that hasn't started.
pub(super) struct PendingCall {
    pub(super) call: ApprovedCall,
    pub(super) intent: CallIntent,
    pub(super) is_read_only: bool,
}

/// The timing of the current model call, and the size of the part of its reply that has arrived.
#[derive(Clone, Copy)]
pub(super) struct PendingTiming {
    pub(super) id: EffectId,
    pub(super) received_bytes: u64,
    /// The time at which the request was encoded.
    pub(super) encoded_at: RunTime,
    pub(super) timing: CallTiming,
}

/// The maximum bytes of a model call's text that are kept in case the call breaks off. No model writes as much.
const MAX_PARTIAL_TEXT: usize = 4 << 20;

/// The total time that the driver waits for cancelled effects.
const SHUTDOWN_TIMEOUT: TimeSpan = TimeSpan::from_secs(3);

impl RequestContext {
    /// Returns the bytes of the system prompt, which is also part of calls without tools.
    pub(super) fn system_bytes(&self) -> u64 {
        self.system.len() as u64
    }

    /// Builds a request for this state of a run, and calls a function with the request and its estimated size.
    pub fn with_request<T>(
        &self,
        machine: &Machine,
        (purpose, attempt, max_output): (CallPurpose, u32, Option<Tokens>),
        of: impl FnOnce(&ModelRequest<'_>, Tokens) -> T,
    ) -> T {
        let no_tools = [].into();
        let content = machine.request_content(purpose, self.system_bytes());
        let tools = match purpose {
            CallPurpose::Agent => &self.tools,
            CallPurpose::Compaction | CallPurpose::Closing => &no_tools,
        };
        let request = ModelRequest {
            model: machine.state.run().model,
            purpose,
            attempt,
            system: &self.system,
            tools,
            entries: &content.entries,
            input_bound: content.upper_bound,
            instruction: content.instruction.as_deref(),
            max_output,
            schema: self.schema.as_ref().filter(|_| purpose == CallPurpose::Agent),
        };
        of(&request, content.size)
    }

    /// Returns the bytes that are part of every request, for estimates of its size.
    pub fn request_bytes(&self) -> u64 {
        self.system.len() as u64 + self.tools.iter().map(ToolSpec::request_bytes).sum::<u64>()
    }
}

impl Driver {
    /// Creates a driver for a run in this state.
    pub fn new(
        executor: Box<dyn Executor>,
        ports: Ports,
        request_context: RequestContext,
        machine: Machine,
    ) -> Self {
        Self {
            clock: executor.clock(),
            executor,
            ports,
            request_context,
            cancellations: HashMap::new(),
            prepared: HashMap::new(),
            approved: HashMap::new(),
            local_events: VecDeque::new(),
            partial_text: String::new(),
            timing: None,
            checkpoint: CheckpointProgress::default(),
            pending: Vec::new(),
            fingerprint: Fingerprint::of(&machine, &[]),
            machine,
            has_journal_failed: false,
            shutdown_due: None,
            has_waited: false,
            is_reader_gone: false,
        }
    }

    /// Drives the run to its end, and returns the final machine.
    pub fn run(mut self, first: MachineOutput) -> Machine {
        let begun =
            RunEvent::Started { at: self.clock.now(), machine: &self.machine, output: &first };
        let result = self.ports.observer.on_event(&begun);
        self.check_observer(result);
        self.fingerprint = Fingerprint::of(&self.machine, &first.effects);
        self.pending = first.effects;
        self.record_first_state();
        loop {
            // Inputs that have already arrived are written together and synced once.
            while let Some(input) = self.executor.try_input() {
                self = self.handle_input(input);
            }
            self = self.perform_pending();
            if self.is_over() {
                break;
            }
            let local = self.local_events.pop_front().map(DriverInput::Event);
            let input = local.or_else(|| self.executor.wait_input(self.machine.deadline()));
            let tick = || DriverInput::Event(Event::Tick { now: self.clock.now() });
            let input = input.unwrap_or_else(tick);
            self = self.handle_input(input);
        }
        self.wait_idle();
        let (at, journal_hash) = (self.clock.now(), self.ports.journal.head());
        let ended = RunEvent::Ended { at, machine: &self.machine, journal_hash };
        let result = self.ports.observer.on_event(&ended);
        self.check_observer(result);
        self.machine
    }

    /// Waits for cancelled effects, once.
    pub(super) fn wait_idle(&mut self) {
        let left = self.shutdown_due().since(self.clock.now());
        if !std::mem::replace(&mut self.has_waited, true) && !self.executor.wait_idle(left) {
            log::warn!("an effect that was cancelled is still running");
        }
    }

    /// Returns the time at which to stop waiting for cancelled effects, which is never later than the run's time limit.
    /// It is the same for sub-agents before an interrupt and for all effects after it.
    fn shutdown_due(&mut self) -> RunTime {
        let run = self.machine.state.run();
        let ends = run.rules.limits.timeout.map(|timeout| run.started_at.after(timeout));
        let latest = self.clock.now().after(SHUTDOWN_TIMEOUT);
        *self.shutdown_due.get_or_insert(ends.map_or(latest, |ends| ends.min(latest)))
    }

    fn is_over(&self) -> bool {
        matches!(self.machine.state, State::Done(_)) && self.pending.is_empty()
    }

    fn handle_input(mut self, input: DriverInput) -> Self {
        match input {
            DriverInput::Event(event @ Event::Interrupt { .. }) => {
                self.end_subagents().handle_event(&event)
            }
            DriverInput::Event(event) => self.handle_event(&event),
            DriverInput::Replied { id, reply, access, calls } => {
                // A reply that comes after its call was cancelled must not replace the calls of the current reply.
                if self.cancellations.contains_key(&id) {
                    // Free the partial text: the reply contains it, and a long one would take the memory twice.
                    self.partial_text = String::new();
                    self.prepared = reply.calls().map(|call| call.id.clone()).zip(calls).collect();
                }
                self.handle_event(&Event::Replied { id, reply, access })
            }
            DriverInput::Authorized { id, call, outcome } => {
                let authorization = match outcome {
                    AuthorizationOutcome::Approved { call: job, timeout, intent, reason } => {
                        let authorization =
                            Authorization::Approved { timeout, intent: intent.clone(), reason };
                        let is_read_only = authorization.is_read_only();
                        let pending = PendingCall { call: job, intent, is_read_only };
                        if self.cancellations.contains_key(&id) {
                            self.approved.insert(call, pending);
                        }
                        authorization
                    }
                    AuthorizationOutcome::Rejected(result) => Authorization::Rejected { result },
                    // The toolbox authorizes an edited call again; without that, the call doesn't run.
                    AuthorizationOutcome::Edited { .. } => Authorization::Rejected {
                        result: ToolResult::new(
                            call,
                            ToolStatus::Failed,
                            "the edited call was not authorized",
                        ),
                    },
                    AuthorizationOutcome::Abort => {
                        self = self.end_subagents();
                        Authorization::Abort
                    }
                };
                self.handle_event(&Event::Authorized { id, authorization })
            }
            DriverInput::ToolLost { id, result, command } => {
                let ended = command.map(|id| Event::CommandEnded { id });
                let events = ended.into_iter().chain([Event::ToolCompleted { id, result }]);
                events.fold(self, |driver, event| driver.handle_event(&event))
            }
            DriverInput::CheckpointTaken(record) => self.handle_checkpoint(record),
            DriverInput::PreCallHooksRun { id, messages } => {
                let event = self.prepared_event(id, messages);
                self.handle_event(&event)
            }
            DriverInput::ReplyDelta { id, delta } => {
                if self.cancellations.contains_key(&id) {
                    let at = self.clock.now();
                    self.count_received(id, &delta);
                    match &delta {
                        ReplyDelta::Started => self.record_first_byte(id, at),
                        ReplyDelta::Text(text) if self.partial_text.len() < MAX_PARTIAL_TEXT => {
                            self.partial_text.push_str(text);
                        }
                        ReplyDelta::Text(_) | ReplyDelta::Reasoning(_) | ReplyDelta::Call(_) => {}
                    }
                    let result = self.ports.observer.on_event(&RunEvent::ReplyDelta {
                        at,
                        id,
                        delta: &delta,
                    });
                    self.check_observer(result);
                }
                self
            }
            DriverInput::Notice { id, notice } => {
                if self.cancellations.contains_key(&id) {
                    let at = self.clock.now();
                    let result =
                        self.ports.observer.on_event(&RunEvent::Notice { at, id, notice: &notice });
                    self.check_observer(result);
                }
                self
            }
        }
    }

    /// Ends the sub-agents before the run is interrupted, so that their use until then is charged. All other inputs
    /// that arrive meanwhile are too late, as they would be after the interrupt.
    fn end_subagents(mut self) -> Self {
        let mut running = self.machine.state.pending_subagents();
        for token in running.iter().filter_map(|id| self.cancellations.get(id)) {
            token.cancel();
        }
        let until = Deadline { at: self.shutdown_due(), kind: DeadlineKind::EffectTimeout };
        while !running.is_empty()
            && let Some(input) = self.executor.wait_input(Some(until))
        {
            match input {
                DriverInput::Event(event @ Event::UsageReported { .. }) => {
                    self = self.handle_event(&event);
                }
                DriverInput::Event(Event::ToolCompleted { id, .. })
                | DriverInput::ToolLost { id, .. } => {
                    running.retain(|pending| *pending != id);
                }
                DriverInput::Event(Event::Interrupt { .. }) => break,
                _ => {}
            }
        }
        self
    }

    pub(super) fn prepared_event(&self, id: EffectId, messages: Vec<UserMessage>) -> Event {
        let size = self.machine.request_size(&messages, self.request_context.system_bytes());
        Event::Prepared { id, size, messages: messages.into() }
    }

    /// Writes an event to the journal, lets the machine handle it, and keeps its effects until the event is durable.
    fn handle_event(mut self, event: &Event) -> Self {
        if let Some(id) = event.completed_effect() {
            self.cancellations.remove(&id);
        }
        if event.effect_id().is_some() && !self.machine.state.awaits(event) {
            return self;
        }
        let at = self.clock.now();
        let received = self.received(at, event);
        let call = event.completed_effect().and_then(|id| self.take_timing(id));
        let call = match received {
            Tokens::ZERO => call,
            received => Some(CallTiming { received, ..call.unwrap_or_default() }),
        };
        match self
            .write(at, JournalRecord::Event { event, fingerprint: self.fingerprint, timing: call })
        {
            Ok(()) => {
                self.machine = self.machine.with_received(received);
                self.apply_event(at, event)
            }
            Err(error) => self.fail_journal(&error),
        }
    }

    fn apply_event(self, at: RunTime, event: &Event) -> Self {
        let (machine, output) = self.machine.handle(at, event.clone());
        let mut driver = Self { machine, ..self };
        let result = RunEvent::Handled { at, event, machine: &driver.machine, output: &output };
        let result = driver.ports.observer.on_event(&result);
        driver.check_observer(result);
        driver.fingerprint = Fingerprint::of(&driver.machine, &output.effects);
        driver.pending.extend(output.effects);
        driver
    }

    /// Returns the estimated tokens of the pending model call's reply that have arrived, or zero if the event completes
    /// an effect in time.
    fn received(&self, at: RunTime, event: &Event) -> Tokens {
        let bytes = self.timing.map_or(0, |timing| timing.received_bytes);
        let is_late = || self.machine.deadline().is_some_and(|due| due.at <= at);
        if bytes == 0 || event.completed_effect().is_some() && !is_late() {
            return Tokens::ZERO;
        }
        self.machine.conversation.context_usage().estimate_tokens(bytes)
    }

    /// Adds a part of a reply to the received bytes.
    fn count_received(&mut self, id: EffectId, delta: &ReplyDelta) {
        let bytes = match delta {
            ReplyDelta::Started => 0,
            ReplyDelta::Text(text) | ReplyDelta::Reasoning(text) => text.len(),
            ReplyDelta::Call(bytes) => *bytes,
        };
        if let Some(timing) = self.timing.as_mut().filter(|timing| timing.id == id) {
            timing.received_bytes += bytes as u64;
        }
    }

    /// Records when the first byte of a reply arrived.
    fn record_first_byte(&mut self, id: EffectId, at: RunTime) {
        if let Some(timing) = self.timing.as_mut().filter(|timing| timing.id == id) {
            timing.timing.first_byte.get_or_insert(at.since(timing.encoded_at));
        }
    }

    /// Takes the timing of a completed model call; `None` if the effect isn't the current model call.
    pub(super) fn take_timing(&mut self, id: EffectId) -> Option<CallTiming> {
        self.timing.take_if(|timing| timing.id == id).map(|timing| timing.timing)
    }

    /// Makes the events of the pending effects durable, and starts the effects.
    fn perform_pending(mut self) -> Self {
        let waiting = self.wait_for_checkpoint();
        // Partial texts of cancelled calls are written to the journal before the records that follow.
        let cancelled = self.pending.iter().filter_map(|effect| match effect {
            Effect::Cancel { id } => Some(*id),
            _ => None,
        });
        for id in cancelled.collect::<Vec<_>>() {
            if let Err(error) = self.cancel(id) {
                self = self.fail_journal(&error);
            }
        }
        if self.pending.contains(&Effect::End) {
            self.record_end_state();
            self.write_end_record();
        }
        if self.pending.iter().any(|effect| self.needs_durable_journal(effect))
            && let Err(error) = self.sync()
        {
            self = self.fail_journal(&error);
        }
        self.note_activity();
        for effect in std::mem::take(&mut self.pending) {
            self.perform_effect(effect);
        }
        self.pending = waiting;
        self
    }

    /// Writes a record. Once the journal has failed, errors are ignored, because the end of the run may still fit into
    /// the space that the journal has reserved.
    pub(super) fn write(
        &mut self,
        at: RunTime,
        record: JournalRecord<'_>,
    ) -> Result<(), StoreError> {
        let written = self.ports.journal.append(at, record);
        if self.has_journal_failed { Ok(()) } else { written }
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.ports.journal.sync();
        if self.has_journal_failed { Ok(()) } else { synced }
    }

    /// Writes the end of the run. The record may be missing, because it follows from the events before it.
    fn write_end_record(&mut self) {
        let State::Done(done) = &self.machine.state else { return };
        let record = JournalRecord::Ended { done, fingerprint: self.fingerprint };
        if let Err(error) = self.ports.journal.append(self.clock.now(), record) {
            log::warn!("the end of the run is not in its journal: {error}");
        }
    }

    /// Ends the run because the journal has failed.
    pub(super) fn fail_journal(mut self, error: &StoreError) -> Self {
        self.has_journal_failed = true;
        if matches!(self.machine.state, State::Done(_)) {
            log::error!("the run is over, but its end may be missing in the journal: {error}");
        }
        let (at, fingerprint) = (self.clock.now(), self.fingerprint);
        let event = Event::StoreFailed { error: Arc::clone(&error.0) };
        let _ = self.write(at, JournalRecord::Event { event: &event, fingerprint, timing: None });
        self.apply_event(at, &event)
    }

    /// Ends the run if the reader of the output is gone.
    fn check_observer(&mut self, result: Result<(), Disconnected>) {
        if result == Err(Disconnected) && !self.is_reader_gone {
            self.is_reader_gone = true;
            self.local_events.push_back(Event::Interrupt { signal: Signal::Pipe });
        }
    }
}
