//! From the records of a session to its trace.

use super::messages::MessageCollector;
use super::phase::TracePhase;
use super::time_account::TimeAccount;
use super::timeline::Timeline;
use super::{Trace, TraceSubject};
use crate::machine::{Event, Machine, MachineOutput, State, StateKind};
use crate::model::{RunTime, TimeSpan};
use crate::port::CallTiming;

/// A record of a session, with where the run stood when it came and where it stands since.
#[derive(Clone, Copy, Debug)]
pub struct TraceStep<'a> {
    /// Its place in the journal.
    pub seq: u64,
    /// When it came.
    pub at: RunTime,
    /// What it says.
    pub content: RecordContent<'a>,
    /// The state that it met.
    pub state_before: StateKind,
    /// Where the time of a request went, when it completes one.
    pub call: Option<CallTiming>,
    /// How long making records durable took since the record before.
    pub sync: TimeSpan,
    /// Where the run stands now.
    pub fold: &'a Machine,
    /// What followed.
    pub outcomes: &'a MachineOutput,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub enum RecordContent<'a> {
    /// An event came.
    Event(&'a Event),
    /// Another process goes on.
    Resumed,
    /// A request that was cancelled had said this.
    Partial(&'a str),
    /// Nothing that leads anywhere.
    Other,
}

/// Makes a trace of the records of a session.
#[derive(Debug)]
pub struct Tracer {
    subject: TraceSubject,
    position: TracePosition,
    account: TimeAccount,
    timeline: Timeline,
    messages: MessageCollector,
}

/// Where the run stood after the record before.
#[derive(Clone, Debug)]
struct TracePosition {
    at: RunTime,
    state: StateKind,
    phase: TracePhase,
    /// How long a request has been under way in this state, without syncs.
    waited: TimeSpan,
}

impl Tracer {
    /// Begins with a session of which no record was seen: it stands in its first state, and its first effects are those
    /// that it began with.
    pub fn begin(subject: TraceSubject, fold: &Machine, outcomes: &MachineOutput) -> Self {
        let mut account = TimeAccount::default();
        account.enter(fold.state.kind());
        let mut timeline = Timeline::default();
        timeline.on_effects(RunTime::START, fold, outcomes);
        let mut messages = MessageCollector::default();
        messages.add_new(0, RunTime::START, fold, outcomes);
        let last = TracePosition {
            at: RunTime::START,
            state: fold.state.kind(),
            phase: TracePhase::from_state(fold),
            waited: TimeSpan::ZERO,
        };
        Self { subject, position: last, account, timeline, messages }
    }

    /// Takes the next record in.
    pub fn add(&mut self, step: &TraceStep<'_>) {
        self.add_time(step);
        match step.content {
            RecordContent::Event(event) => {
                for way in &step.outcomes.transitions {
                    self.account.count_edge(way.from, way.to, way.event.name());
                }
                self.timeline.on_event(step.at, event, step.call, step.fold);
            }
            RecordContent::Resumed => {
                let state = step.fold.state.kind();
                if state != step.state_before {
                    self.account.count_edge(step.state_before, state, "RESUMED");
                }
                self.timeline.on_process_end(step.at);
            }
            RecordContent::Partial(text) => {
                self.messages.add_partial(step.seq, step.at, text);
                return;
            }
            RecordContent::Other => return,
        }
        self.timeline.on_effects(step.at, step.fold, step.outcomes);
        self.messages.add_new(step.seq, step.at, step.fold, step.outcomes);
        let (state, phase) = (step.fold.state.kind(), TracePhase::from_state(step.fold));
        let is_same = state == self.position.state && step.outcomes.transitions.is_empty();
        let waited = if is_same { self.position.waited } else { TimeSpan::ZERO };
        self.position = TracePosition { at: self.position.at, state, phase, waited };
    }

    /// Everything since the record before belongs to the state that this one met.
    fn add_time(&mut self, step: &TraceStep<'_>) {
        let gap = step.at.since(self.position.at);
        let sync = step.sync.min(gap);
        let work = TimeSpan(gap.0 - sync.0);
        self.position.at = self.position.at.max(step.at);
        self.account.add_time(step.state_before, TracePhase::Sync, sync);
        self.account.add_time(step.state_before, self.position.phase, work);
        if self.position.phase == TracePhase::FirstByte {
            self.position.waited = TimeSpan(self.position.waited.0.saturating_add(work.0));
            if let Some(times) = step.call {
                self.account.split_call(step.state_before, self.position.waited, times);
                self.position.waited = TimeSpan::ZERO;
            }
        }
    }

    /// Returns the trace of what was seen, of a session that stands here now.
    pub fn finish(self, fold: &Machine) -> Trace {
        let Self { subject, position: last, account, timeline, mut messages } = self;
        messages.add_open_reply(last.at, fold);
        let (calls, tools, subagents) = timeline.finish(last.at);
        let subagent_calls = u32::try_from(subagents.len()).unwrap_or(u32::MAX);
        let run = fold.state.run();
        let stop_reason = match &fold.state {
            State::Done(done) => Some(done.outcome.reason),
            State::Preparing(_)
            | State::Compacting(_)
            | State::Calling(_)
            | State::Executing(_)
            | State::Closing(_) => None,
        };
        Trace {
            subject,
            state: fold.state.kind(),
            stop_reason,
            duration: account.total(),
            steps: run.steps,
            llm_calls: run.model_calls.saturating_add(subagent_calls),
            tokens: run.used.tokens,
            cost: run.rules.price.map(|_| run.used.cost),
            states: account.states(),
            edges: account.edges(),
            calls,
            tools,
            subagents,
            messages: messages.finish(),
        }
    }
}
