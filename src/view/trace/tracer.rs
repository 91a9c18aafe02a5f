//! From the records of a session to its trace.

use super::account::Account;
use super::messages::Messages;
use super::phase::Phase;
use super::timeline::Timeline;
use super::{Subject, Trace};
use crate::machine::{Event, Fold, Outcomes, State, StateKind};
use crate::model::{Span, Time};
use crate::port::CallTimes;

/// A record of a session, with where the run stood when it came and where it stands since.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its place in the journal.
    pub seq: u64,
    /// When it came.
    pub at: Time,
    /// What it says.
    pub what: What<'a>,
    /// The state that it met.
    pub met: StateKind,
    /// Where the time of a request went, when it completes one.
    pub call: Option<CallTimes>,
    /// How long making records durable took since the record before.
    pub sync: Span,
    /// Where the run stands now.
    pub fold: &'a Fold,
    /// What followed.
    pub outcomes: &'a Outcomes,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// An event came.
    Event(&'a Event),
    /// Another process goes on.
    Resumed,
    /// A request that was cancelled had said this.
    Partial(&'a str),
    /// Nothing that leads anywhere.
    Nothing,
}

/// Makes a trace of the records of a session.
#[derive(Debug)]
pub struct Tracer {
    subject: Subject,
    last: Last,
    account: Account,
    timeline: Timeline,
    messages: Messages,
}

/// Where the run stood after the record before.
#[derive(Clone, Debug)]
struct Last {
    at: Time,
    state: StateKind,
    phase: Phase,
    /// How long a request has been under way in this state, without syncs.
    waited: Span,
}

impl Tracer {
    /// Begins with a session of which no record was seen: it stands in its first state, and its first effects are those
    /// that it began with.
    pub fn begin(subject: Subject, fold: &Fold, outcomes: &Outcomes) -> Self {
        let mut account = Account::default();
        account.enter(fold.state.kind());
        let mut timeline = Timeline::default();
        timeline.effects(Time::START, fold, outcomes);
        let mut messages = Messages::default();
        messages.said(0, Time::START, fold, outcomes);
        let last = Last {
            at: Time::START,
            state: fold.state.kind(),
            phase: Phase::of(fold),
            waited: Span::ZERO,
        };
        Self { subject, last, account, timeline, messages }
    }

    /// Takes the next record in.
    pub fn add(&mut self, step: &Step<'_>) {
        self.spend(step);
        match step.what {
            What::Event(event) => {
                for way in &step.outcomes.moves {
                    self.account.take(way.from, way.to, way.event.name());
                }
                self.timeline.event(step.at, event, step.call, step.fold);
            }
            What::Resumed => {
                let state = step.fold.state.kind();
                if state != step.met {
                    self.account.take(step.met, state, "RESUMED");
                }
                self.timeline.died(step.at);
            }
            What::Partial(text) => {
                self.messages.partial(step.seq, step.at, text);
                return;
            }
            What::Nothing => return,
        }
        self.timeline.effects(step.at, step.fold, step.outcomes);
        self.messages.said(step.seq, step.at, step.fold, step.outcomes);
        let (state, phase) = (step.fold.state.kind(), Phase::of(step.fold));
        let is_same = state == self.last.state && step.outcomes.moves.is_empty();
        let waited = if is_same { self.last.waited } else { Span::ZERO };
        self.last = Last { at: self.last.at, state, phase, waited };
    }

    /// Everything since the record before belongs to the state that this one met.
    fn spend(&mut self, step: &Step<'_>) {
        let gap = step.at.since(self.last.at);
        let sync = step.sync.min(gap);
        let work = Span(gap.0 - sync.0);
        self.last.at = self.last.at.max(step.at);
        self.account.spend(step.met, Phase::Sync, sync);
        self.account.spend(step.met, self.last.phase, work);
        if self.last.phase == Phase::FirstByte {
            self.last.waited = Span(self.last.waited.0.saturating_add(work.0));
            if let Some(times) = step.call {
                self.account.split(step.met, self.last.waited, times);
                self.last.waited = Span::ZERO;
            }
        }
    }

    /// Returns the trace of what was seen, of a session that stands here now.
    pub fn finish(self, fold: &Fold) -> Trace {
        let Self { subject, last, account, timeline, mut messages } = self;
        messages.open(last.at, fold);
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
            llm_calls: run.calls.saturating_add(subagent_calls),
            tokens: run.spent.tokens,
            cost: run.rules.price.map(|_| run.spent.cost),
            states: account.states(),
            edges: account.edges(),
            calls,
            tools,
            subagents,
            messages: messages.finish(),
        }
    }
}
