//! Preparing: the safety nets are looked at before every model call.

use serde::{Deserialize, Serialize};

use super::budget::{self, Unaffordable};
use super::calling::Calling;
use super::closing::Closing;
use super::compacting::{self, Compacting};
use super::deadline::{Deadline, Deadlines, Why};
use super::done::Done;
use super::effect::{Change, Effect, Note, Purpose, Summary};
use super::event::{Event, Facts};
use super::instructions;
use super::next::{Next, Out};
use super::run::Run;
use super::state::State;
use super::stop::{CloseReason, StopReason};
use crate::model::{EffectId, Origin, Time, Tokens, UserMessage};

/// The next model call is being prepared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Preparing {
    /// The account of the run.
    pub run: Run,
    /// The preparation that is awaited.
    pub id: EffectId,
    /// When it is given up.
    pub due: Time,
}

/// What a prepared call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// A safety net holds.
    Close(CloseReason),
    /// The context is over its threshold, and the model sums up.
    Compact,
    /// The context is too full, and the oldest exchanges go.
    Trim,
    /// The call is made, with this limit of its output.
    Call(Option<Tokens>),
}

/// Decides what a prepared call leads to.
pub(super) fn plan(run: &Run, facts: &Facts) -> Plan {
    let rules = &run.rules;
    if run.steps >= rules.limits.max_steps {
        return Plan::Close(CloseReason::MaxSteps);
    }
    let Ok(max_output) = budget::reserve(run, facts, Purpose::Agent) else {
        return Plan::Close(CloseReason::BudgetExceeded);
    };
    if run.repeats.times() >= rules.loops.end {
        return Plan::Close(CloseReason::LoopDetected);
    }
    let context = &rules.context;
    let over = facts.context > context.window.percent(context.threshold);
    let full = facts.context > context.window.percent(context.full);
    let mut compactions = run.compactions;
    compactions.judge(facts);
    let allowed = compactions.allowed(rules);
    let worthwhile = facts.exchanges > context.summarize_after.max(context.keep_recent);
    if over && worthwhile && allowed {
        return match compacting::affordable(run, facts) {
            Ok(_) => Plan::Compact,
            Err(Unaffordable) => Plan::Trim,
        };
    }
    match (full, facts.exchanges > 1 && allowed) {
        (true, true) => Plan::Trim,
        (true, false) => Plan::Close(CloseReason::ContextFull),
        (false, _) => Plan::Call(max_output),
    }
}

impl Preparing {
    /// Asks for what the next call depends on.
    pub(super) fn enter(mut run: Run, mut out: Out) -> Next {
        let id = run.next.take();
        out.effect(Effect::Prepare { id, purpose: Purpose::Agent });
        let due = run.now.after(run.rules.watch.prepare);
        out.to(State::Preparing(Self { run, id, due }))
    }

    pub(super) fn deadlines(&self) -> Deadlines<2> {
        let watch = Deadline { at: self.due, why: Why::WatchLimit };
        Deadlines([Some(watch), self.run.closes()])
    }

    pub(super) fn step(self, event: Event) -> Next {
        match event {
            Event::Tick { now } => self.tick(now),
            Event::Interrupt { signal } => {
                let (run, out) = self.leave();
                Done::end(run, out, StopReason::UserInterrupt(signal))
            }
            Event::StoreFailed { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::StoreError, error)
            }
            Event::Defect { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::InternalError, error)
            }
            Event::Prepared { facts, messages, .. } => self.prepared(facts, &messages),
            Event::Replied { .. }
            | Event::Failed { .. }
            | Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. }
            | Event::Checked { .. } => Out::default().to(State::Preparing(self)),
        }
    }

    fn tick(mut self, now: Time) -> Next {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(Why::RunLimit) => {
                let (run, out) = self.leave();
                Closing::enter(run, out, CloseReason::Timeout)
            }
            Some(
                Why::WatchLimit
                | Why::StepLimit
                | Why::CloseLimit
                | Why::AttemptLimit
                | Why::RetryDue
                | Why::ToolLimit,
            ) => {
                let (run, out) = self.leave();
                let error = "the preparation of a model call did not come back".into();
                Done::fail(run, out, StopReason::InternalError, error)
            }
            None => Out::default().to(State::Preparing(self)),
        }
    }

    fn prepared(self, facts: Facts, messages: &[UserMessage]) -> Next {
        let mut run = self.run;
        let mut out = Out::default();
        append(&mut out, messages);
        let plan = plan(&run, &facts);
        run.compactions.judge(&facts);
        match plan {
            Plan::Close(reason) => Closing::enter(run, out, reason),
            Plan::Compact => {
                let fit = run.rules.context.window.percent(run.rules.context.threshold);
                Compacting::enter(run, out, facts, fit)
            }
            Plan::Trim => {
                run.compactions.begin(facts.context);
                out.note(Note::Compacted { written: false });
                let fit = run.rules.context.window.percent(run.rules.context.threshold);
                let keep = facts.exchanges;
                out.change(Change::Compact { summary: Summary::Mechanical, keep, fit });
                Self::enter(run, out)
            }
            Plan::Call(max_output) => Calling::enter(run, out, facts, max_output),
        }
    }

    /// Gives the preparation up.
    fn leave(self) -> (Run, Out) {
        let mut out = Out::default();
        out.effect(Effect::Cancel { id: self.id });
        (self.run, out)
    }
}

/// Adds to the conversation what the model has to be told before a call.
pub(super) fn append(out: &mut Out, messages: &[UserMessage]) {
    let steered = messages.iter().filter(|message| message.origin == Origin::Steering).count();
    if let Ok(messages @ 1..) = u32::try_from(steered) {
        out.note(Note::Steered { messages });
    }
    for message in messages {
        out.change(Change::Append { item: instructions::message(message) });
    }
}
