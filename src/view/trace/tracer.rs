//! Building the trace of a session from its records.

use super::messages::{MessageCollector, MessagePosition};
use super::phase::TracePhase;
use super::time_account::TimeAccount;
use super::timeline::{CallEnd, Timeline};
use super::{Trace, TraceSubject};
use crate::machine::{Event, Machine, MachineOutput, StateKind};
use crate::port::CallTiming;
use crate::types::{RunTime, TimeSpan};

/// A record of a session, with the state before it and the machine after it.
#[derive(Clone, Copy, Debug)]
pub struct TraceStep<'a> {
    /// The sequence number of the record.
    pub seq: u64,
    /// The session time of the record.
    pub at: RunTime,
    /// The content of the record.
    pub content: RecordContent<'a>,
    /// The state before the record.
    pub state_before: StateKind,
    /// The timing of the model call that the record completes, if any.
    pub call: Option<CallTiming>,
    /// The time for syncs since the previous record.
    pub sync: TimeSpan,
    /// The machine after the record.
    pub machine: &'a Machine,
    /// The machine's output.
    pub output: &'a MachineOutput,
}

/// The content of a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordContent<'a> {
    /// An event.
    Event(&'a Event),
    /// The session was resumed.
    Resumed,
    /// The partial text of a cancelled request.
    Partial(&'a str),
    /// A record without effect on the machine.
    Other,
}

/// Builds the trace of a session from its records.
#[derive(Debug)]
pub struct Tracer {
    subject: TraceSubject,
    /// The time of the previous record, and the state and phase after it.
    at: RunTime,
    state: StateKind,
    phase: TracePhase,
    /// The time that a request has been running in this state, without syncs.
    waited: TimeSpan,
    account: TimeAccount,
    timeline: Timeline,
    messages: MessageCollector,
}

impl Tracer {
    /// Begins with a session without records, in its first state and with its first effects.
    pub fn begin(subject: TraceSubject, machine: &Machine, output: &MachineOutput) -> Self {
        let mut account = TimeAccount::default();
        account.enter(machine.state.kind());
        let (mut timeline, mut messages) = (Timeline::default(), MessageCollector::default());
        messages.add_new(machine, output);
        timeline.on_effects(RunTime::START, machine, output);
        let (at, waited) = (RunTime::START, TimeSpan::ZERO);
        let (state, phase) = (machine.state.kind(), TracePhase::from_state(machine));
        Self { subject, at, state, phase, waited, account, timeline, messages }
    }

    /// Adds the next record.
    pub fn add(&mut self, step: &TraceStep<'_>) {
        self.add_time(step);
        match step.content {
            RecordContent::Event(event) => {
                for way in &step.output.transitions {
                    self.account.count_edge(way.from, way.to, way.event.as_str());
                }
                self.timeline.on_event(step.at, event, step.call, step.machine);
            }
            RecordContent::Resumed => {
                let state = step.machine.state.kind();
                if state != step.state_before {
                    self.account.count_edge(step.state_before, state, "RESUMED");
                }
                self.timeline.charge_open_call(None, step.machine);
                self.timeline.end_open(step.at, &CallEnd::Lost, None);
            }
            RecordContent::Partial(text) => {
                self.set_position(step);
                self.messages.add_partial(text);
                return;
            }
            RecordContent::Other => return,
        }
        // A message added by a step is part of the request that the step sends.
        self.set_position(step);
        self.messages.add_new(step.machine, step.output);
        self.timeline.on_effects(step.at, step.machine, step.output);
        let (state, phase) = (step.machine.state.kind(), TracePhase::from_state(step.machine));
        if state != self.state || !step.output.transitions.is_empty() {
            self.waited = TimeSpan::ZERO;
        }
        (self.state, self.phase) = (state, phase);
    }

    fn set_position(&mut self, step: &TraceStep<'_>) {
        self.messages.set_position(MessagePosition {
            seq: step.seq,
            at: step.at,
            next_request: self.timeline.calls.len(),
            last_reply: self.timeline.last_reply,
        });
    }

    /// Adds the time since the previous record to the state before this one.
    fn add_time(&mut self, step: &TraceStep<'_>) {
        let gap = step.at.since(self.at);
        let sync = step.sync.min(gap);
        let work = TimeSpan(gap.0 - sync.0);
        self.at = self.at.max(step.at);
        self.account.add_time(step.state_before, TracePhase::Sync, sync);
        self.account.add_time(step.state_before, self.phase, work);
        if self.phase == TracePhase::FirstByte {
            self.waited = TimeSpan(self.waited.0.saturating_add(work.0));
            if let Some(times) = step.call.filter(|times| times.received.is_zero()) {
                self.account.split_call(step.state_before, self.waited, times);
                self.waited = TimeSpan::ZERO;
            }
        }
    }

    /// Returns the trace of the session so far.
    pub fn finish(self, machine: &Machine) -> Trace {
        let Self { subject, at, account, mut timeline, mut messages, .. } = self;
        messages.add_open_reply(at, machine);
        // Open calls end with the trace.
        timeline.end_open(at, &CallEnd::Open, None);
        let Timeline { calls, tools, subagents, .. } = timeline;
        let subagent_calls = u32::try_from(subagents.len()).unwrap_or(u32::MAX);
        let run = machine.state.run();
        Trace {
            subject,
            state: machine.state.kind(),
            stop_reason: machine.state.outcome().map(|outcome| outcome.reason),
            duration: account.total,
            steps: run.steps,
            llm_calls: run.model_calls.saturating_add(subagent_calls),
            tokens: run.used.tokens,
            cost: run.rules.price.map(|_| run.used.cost),
            states: account.states(),
            edges: account.edges(),
            calls,
            tools,
            subagents,
            messages: messages.messages,
            changes: Vec::new(),
            subagent_traces: Vec::new(),
        }
    }
}
