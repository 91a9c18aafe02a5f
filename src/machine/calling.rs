//! Calling: the model is asked; its reply decides how the run goes on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::budget::{self, Unaffordable};
use super::closing::Closing;
use super::compacting::Compacting;
use super::deadline::{Deadline, Deadlines, Why};
use super::done::Done;
use super::effect::{Change, Effect, Note, Purpose};
use super::event::{Check, Event, Facts};
use super::executing::Executing;
use super::instructions;
use super::next::{Next, Out};
use super::preparing::Preparing;
use super::retry::Retry;
use super::run::{Run, Streaks};
use super::state::State;
use super::stop::{CloseReason, StopReason};
use crate::model::{
    Access, Arguments, EffectId, Fault, FaultKind, Finish, Item, Origin, Part, Reply, Time, Tokens,
    UnknownFinish,
};

/// The model is asked, or its final answer is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Calling {
    /// The account of the run.
    pub run: Run,
    /// What the call is like.
    pub facts: Facts,
    /// When the time of the call, its retries included, is over.
    pub due: Option<Time>,
    /// How far it has come.
    pub stage: Stage,
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The model is asked.
    Asking(Attempt),
    /// The final answer is checked.
    Checking {
        /// The check that is awaited.
        id: EffectId,
        /// The answer, with the pieces before it.
        answer: Arc<str>,
        /// When the check is given up.
        due: Time,
    },
}

/// What a reply amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Tool calls that have to be answered.
    Act,
    /// The final answer.
    Answer,
    /// A piece of an answer; the rest is asked for.
    Piece,
    /// A piece of an answer, and there were too many, or nobody knows why it ended.
    Truncated,
    /// Nothing; it is asked again.
    Nothing,
    /// Nothing, and that too often.
    Empty,
    /// A turn that the provider paused; it is sent back.
    Paused,
    /// A refusal.
    Refused,
    /// The context window is full.
    Overflow,
    /// Something that is not understood.
    Garbled,
}

/// Decides what a reply amounts to.
pub(super) fn meaning(run: &Run, reply: &Reply) -> Meaning {
    let bounds = &run.rules.bounds;
    let cut_again = run.streaks.cut < bounds.continuations;
    if reply.has_calls() {
        return match has_cut_call(reply) && !cut_again {
            true => Meaning::Truncated,
            false => Meaning::Act,
        };
    }
    match (&reply.finish, reply.has_text()) {
        (Finish::Refused, _) => Meaning::Refused,
        (Finish::ContextFull, _) => Meaning::Overflow,
        (Finish::Pause, _) if run.streaks.pauses < bounds.pauses => Meaning::Paused,
        (Finish::Length, _) if cut_again => Meaning::Piece,
        (Finish::Pause | Finish::Length, _) => Meaning::Truncated,
        (Finish::Stop, true) => Meaning::Answer,
        (Finish::Stop, false) if run.streaks.empty < bounds.empty => Meaning::Nothing,
        (Finish::Stop, false) => Meaning::Empty,
        (Finish::Other(_), true) if run.rules.unknown_finish == UnknownFinish::Keep => {
            Meaning::Truncated
        }
        // A reply that ends for its tool calls and has none is as little understood as an unknown reason.
        (Finish::ToolCalls | Finish::Other(_), _) => Meaning::Garbled,
    }
}

/// Returns whether a context that does not fit can be made smaller.
pub(super) fn can_shrink(run: &Run, facts: &Facts) -> bool {
    run.compactions.allowed(&run.rules) && facts.exchanges > 0
}

/// Returns whether a final answer that failed its check may be asked for again.
pub(super) fn goes_on(run: &Run, check: &Check) -> bool {
    let (streaks, bounds) = (&run.streaks, &run.rules.bounds);
    match check {
        Check::Passed => false,
        Check::SentBack { .. } => streaks.sent_back < bounds.sent_back,
        Check::Unfit { .. } => streaks.unfit < bounds.repairs,
        Check::FollowUp { .. } => run.takes_follow_up(),
    }
}

fn has_cut_call(reply: &Reply) -> bool {
    reply.calls().any(|call| matches!(call.arguments, Arguments::Cut { .. }))
}

/// Returns the fault of a reply that is not understood.
pub(super) fn garbled(reply: &Reply) -> Fault {
    let message = match &reply.finish {
        Finish::Other(reason) => format!("the reply ended for an unknown reason, '{reason}'"),
        Finish::ToolCalls => "the reply ended for its tool calls, but has none".to_owned(),
        Finish::Stop | Finish::Length | Finish::Pause | Finish::Refused | Finish::ContextFull => {
            "the reply is not understood".to_owned()
        }
    };
    Fault::new(FaultKind::Protocol, message)
}

impl Calling {
    /// Asks the model.
    pub(super) fn enter(
        mut run: Run,
        mut out: Out,
        facts: Facts,
        max_output: Option<Tokens>,
    ) -> Next {
        let due = run.rules.limits.step_timeout.map(|span| run.now.after(span));
        let attempt = Attempt::send(&mut run, &mut out, Purpose::Agent, 1, max_output);
        out.to(State::Calling(Self { run, facts, due, stage: Stage::Asking(attempt) }))
    }

    /// Checks a final answer.
    pub(super) fn check(mut run: Run, mut out: Out, facts: Facts, answer: Arc<str>) -> Next {
        let id = run.next.take();
        let due = run.now.after(run.rules.watch.check);
        out.effect(Effect::Check { id, answer: Arc::clone(&answer) });
        let stage = Stage::Checking { id, answer, due };
        out.to(State::Calling(Self { run, facts, due: None, stage }))
    }

    pub(super) fn deadlines(&self) -> Deadlines<3> {
        let (own, step) = match &self.stage {
            Stage::Asking(attempt) => {
                let step = self.due.map(|at| Deadline { at, why: Why::StepLimit });
                (attempt.deadline(), step)
            }
            Stage::Checking { due, .. } => (Deadline { at: *due, why: Why::WatchLimit }, None),
        };
        Deadlines([Some(own), step, self.run.closes()])
    }

    /// Returns when a retry has to have begun.
    pub(super) fn retry_limit(&self) -> Option<Time> {
        let closes = self.run.closes().map(|deadline| deadline.at);
        [closes, self.due].into_iter().flatten().min()
    }

    /// Returns the check that is awaited.
    pub(super) fn checks(&self) -> Option<EffectId> {
        match self.stage {
            Stage::Asking(_) => None,
            Stage::Checking { id, .. } => Some(id),
        }
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
            Event::Replied { reply, access, .. } => self.replied(reply, &access),
            Event::Failed { fault, .. } => self.failed(Out::default(), fault),
            Event::Checked { check, .. } => self.checked(check),
            Event::Prepared { .. }
            | Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. } => Out::default().to(State::Calling(self)),
        }
    }

    fn tick(mut self, now: Time) -> Next {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(Why::RunLimit | Why::StepLimit) => {
                let (run, out) = self.leave();
                Closing::enter(run, out, CloseReason::Timeout)
            }
            Some(Why::RetryDue) => self.retry(),
            Some(Why::AttemptLimit | Why::CloseLimit | Why::ToolLimit | Why::WatchLimit) => {
                self.overdue()
            }
            None => Out::default().to(State::Calling(self)),
        }
    }

    /// Makes the next attempt, unless the one before has cost what it would need.
    fn retry(self) -> Next {
        let Self { mut run, facts, due, stage } = self;
        let mut out = Out::default();
        let number = match stage {
            Stage::Asking(attempt) => attempt.number(),
            Stage::Checking { .. } => 1,
        };
        match budget::reserve(&run, &facts, Purpose::Agent) {
            Ok(max_output) => {
                let attempt = Attempt::send(&mut run, &mut out, Purpose::Agent, number, max_output);
                out.to(State::Calling(Self { run, facts, due, stage: Stage::Asking(attempt) }))
            }
            Err(Unaffordable) => Closing::enter(run, out, CloseReason::BudgetExceeded),
        }
    }

    fn overdue(self) -> Next {
        match self.stage {
            Stage::Asking(attempt) => {
                let mut out = Out::default();
                attempt.stop(&mut out);
                let fault = Attempt::overdue(&self.run);
                self.failed(out, fault)
            }
            Stage::Checking { .. } => {
                let (run, out) = self.leave();
                let error = "the check of the final answer did not come back".into();
                Done::fail(run, out, StopReason::InternalError, error)
            }
        }
    }

    fn failed(mut self, mut out: Out, fault: Fault) -> Next {
        let call = (&self.facts, Purpose::Agent);
        budget::charge_failed(&mut self.run, &fault, call, &mut out);
        let attempt = match self.stage {
            Stage::Asking(attempt) => attempt,
            Stage::Checking { .. } => return out.to(State::Calling(self)),
        };
        match attempt.failed(&self.run, &fault, self.retry_limit()) {
            Retry::After(wait) => {
                let attempt = attempt.wait(&self.run, &mut out, wait, fault.kind);
                self.stage = Stage::Asking(attempt);
                out.to(State::Calling(self))
            }
            Retry::Smaller => self.overflow(out),
            Retry::Never => Done::fail(self.run, out, StopReason::from(fault.kind), fault.message),
        }
    }

    /// Makes the context smaller, if that can help; half of it at the most may stay, since the window is evidently
    /// smaller than was thought.
    fn overflow(self, out: Out) -> Next {
        if can_shrink(&self.run, &self.facts) {
            let fit = self.facts.context.percent(50);
            Compacting::enter(self.run, out, self.facts, fit)
        } else {
            Closing::enter(self.run, out, CloseReason::ContextFull)
        }
    }

    fn replied(mut self, reply: Reply, access: &[Access]) -> Next {
        let mut out = Out::default();
        self.run.charge(&reply.usage, &mut out);
        let meaning = meaning(&self.run, &reply);
        match meaning {
            Meaning::Garbled => return self.failed(out, garbled(&reply)),
            Meaning::Overflow => return self.overflow(out),
            Meaning::Act
            | Meaning::Answer
            | Meaning::Piece
            | Meaning::Truncated
            | Meaning::Nothing
            | Meaning::Empty
            | Meaning::Paused
            | Meaning::Refused => {}
        }
        let mut run = self.run;
        run.compactions.accepted();
        match meaning {
            Meaning::Act => {
                // The step that is made here pays for starting all streaks anew, but not for cutting calls short.
                let cut = if has_cut_call(&reply) { run.streaks.cut + 1 } else { 0 };
                let Streaks { invalid, follow_ups, .. } = run.streaks;
                run.streaks = Streaks { cut, invalid, follow_ups, ..Streaks::default() };
                run.partial = None;
                Executing::enter(run, out, reply, access)
            }
            Meaning::Answer => {
                let answer = joined(run.partial.take(), reply.text());
                out.change(Change::Append { item: Item::Assistant(reply) });
                if run.rules.checked {
                    Self::check(run, out, self.facts, answer)
                } else {
                    let reason = run.answered();
                    Done::answer(run, out, reason, Some(answer))
                }
            }
            Meaning::Piece => {
                run.streaks.cut += 1;
                if reply.has_text() {
                    run.partial = Some(joined(run.partial.take(), reply.text()));
                    out.change(Change::Append { item: Item::Assistant(reply) });
                    out.change(Change::Append { item: instructions::go_on() });
                }
                again(run, out)
            }
            Meaning::Nothing => {
                run.streaks.empty += 1;
                again(run, out)
            }
            Meaning::Paused => {
                run.streaks.pauses += 1;
                out.change(Change::Append { item: Item::Assistant(reply) });
                again(run, out)
            }
            Meaning::Truncated => {
                if matches!(reply.finish, Finish::Other(_)) {
                    out.note(Note::UnknownFinish);
                }
                last(run, out, StopReason::Truncated, &reply)
            }
            Meaning::Refused => last(run, out, StopReason::Refused, &reply),
            Meaning::Empty | Meaning::Garbled | Meaning::Overflow => {
                last(run, out, StopReason::EmptyResponse, &reply)
            }
        }
    }

    fn checked(self, check: Check) -> Next {
        let (mut run, mut out) = (self.run, Out::default());
        let answer = match self.stage {
            Stage::Checking { answer, .. } => Some(answer),
            Stage::Asking(_) => None,
        };
        let (goes_on, done) = (goes_on(&run, &check), run.answered());
        let (count, origin, message, otherwise) = match check {
            Check::Passed => return Done::answer(run, out, done, answer),
            Check::SentBack { message } => {
                (&mut run.streaks.sent_back, Origin::Check, message, StopReason::ChecksFailed)
            }
            Check::Unfit { message } => {
                (&mut run.streaks.unfit, Origin::Check, message, StopReason::SchemaNotMet)
            }
            Check::FollowUp { message } => {
                (&mut run.streaks.follow_ups, Origin::FollowUp, message, done)
            }
        };
        if goes_on {
            *count += 1;
            out.change(Change::Append { item: Item::user(origin, message) });
            Preparing::enter(run, out)
        } else {
            Done::answer(run, out, otherwise, answer)
        }
    }

    /// Gives up what is under way.
    fn leave(mut self) -> (Run, Out) {
        let mut out = Out::default();
        match self.stage {
            Stage::Asking(attempt) => attempt.abandon(&mut self.run, &mut out, &self.facts),
            Stage::Checking { id, .. } => out.effect(Effect::Cancel { id }),
        }
        (self.run, out)
    }
}

/// Asks the model to go on.
fn again(run: Run, mut out: Out) -> Next {
    out.note(Note::AskedAgain);
    Preparing::enter(run, out)
}

/// Ends with a reply that is no answer; what text there is, is the output.
fn last(mut run: Run, mut out: Out, reason: StopReason, reply: &Reply) -> Next {
    let text = joined(run.partial.take(), reply.text());
    if reply.has_text() {
        out.change(Change::Append { item: Item::Assistant(without_calls(reply)) });
    }
    Done::answer(run, out, reason, Some(text).filter(|text| !text.trim().is_empty()))
}

/// Returns the reply without its tool calls, which will not be answered any more.
fn without_calls(reply: &Reply) -> Reply {
    let parts = reply.parts.iter().filter(|part| !matches!(part, Part::Call(_)));
    Reply { parts: parts.cloned().collect(), ..reply.clone() }
}

fn joined(first: Option<Arc<str>>, second: Arc<str>) -> Arc<str> {
    match first {
        Some(first) => format!("{first}{second}").into(),
        None => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::step;
    use crate::model::{Bounds, Limits, Rules, Span, ToolCall, Usage};

    fn run() -> Run {
        Run::new(Rules::default())
    }

    fn reply(parts: &[Part], finish: Finish) -> Reply {
        Reply { parts: parts.into(), finish, usage: Usage::default(), model: None }
    }

    fn text() -> Part {
        Part::Text("so far".into())
    }

    fn cut() -> Part {
        Part::Call(ToolCall::new("1".into(), "write_file", "{\"").cut_short())
    }

    fn replied(run: Run, reply: Reply) -> Next {
        let next = Calling::enter(run, Out::default(), Facts::default(), None);
        let id = next.state.outstanding()[0];
        step(next.state, Event::Replied { id, reply, access: [].into() })
    }

    #[test]
    fn a_context_shrinks_only_if_something_can_go_and_that_was_not_just_tried() {
        let mut run = run();
        let facts = |exchanges| Facts { exchanges, ..Facts::default() };
        assert!(can_shrink(&run, &facts(1)));
        assert!(!can_shrink(&run, &facts(0)));
        run.compactions.begin(Tokens(1));
        assert!(!can_shrink(&run, &facts(1)));
    }

    #[test]
    fn a_step_starts_all_streaks_anew_that_it_has_paid_for() {
        let streaks = Streaks {
            cut: 1,
            empty: 1,
            pauses: 1,
            invalid: 1,
            sent_back: 1,
            unfit: 1,
            follow_ups: 1,
        };
        let after = |part| {
            let run = Run { streaks, partial: Some("old".into()), ..run() };
            let next = replied(run, reply(&[part], Finish::ToolCalls));
            assert_eq!(next.state.run().partial, None);
            next.state.run().streaks
        };
        let whole = Part::Call(ToolCall::new("1".into(), "read_file", "{}"));
        let kept = Streaks { invalid: 1, follow_ups: 1, ..Streaks::default() };
        assert_eq!(after(whole), kept);
        // A call that was cut off makes no turn: nothing was run, and nothing starts anew.
        assert_eq!(after(cut()).cut, 2);
    }

    #[test]
    fn the_last_reply_stays_without_the_calls_that_nobody_will_answer() {
        let bounds = Bounds { continuations: 0, ..Bounds::default() };
        let run = || Run::new(Rules { bounds: bounds.clone(), ..Rules::default() });
        let next = replied(run(), reply(&[text(), cut()], Finish::Length));
        let State::Done(done) = &next.state else { panic!("not done") };
        assert_eq!(done.outcome.output.as_deref(), Some("so far"));
        let item = Item::Assistant(reply(&[text()], Finish::Length));
        assert_eq!(next.changes, [Change::Append { item }]);

        let next = replied(run(), reply(&[cut()], Finish::Length));
        let State::Done(done) = &next.state else { panic!("not done") };
        assert_eq!((&done.outcome.output, next.changes), (&None, vec![]));
    }

    #[test]
    fn a_reply_that_was_not_understood_says_why_it_ended() {
        let message = |finish| garbled(&reply(&[], finish)).message.to_string();
        assert!(message(Finish::Other("new".into())).contains("'new'"));
        assert!(message(Finish::ToolCalls).contains("has none"));
    }

    /// Half of it at the most may stay, since the window is evidently smaller than was thought.
    #[test]
    fn an_overflow_halves_the_context() {
        let facts =
            Facts { context: Tokens(90), bound: Tokens(100), exchanges: 3, ..Facts::default() };
        let next = Calling::enter(run(), Out::default(), facts, None);
        let id = next.state.outstanding()[0];
        let fault = Fault::new(FaultKind::Overflow, "too long");
        let next = step(next.state, Event::Failed { id, fault });
        let State::Compacting(compacting) = next.state else { panic!("not compacting") };
        assert_eq!(compacting.fit, Tokens(45));
    }

    #[test]
    fn a_retry_has_to_begin_in_the_time_of_the_call_and_in_that_of_the_run() {
        let limit = |timeout, step_timeout| {
            let limits = Limits { timeout, step_timeout, ..Limits::default() };
            let run = Run::new(Rules { limits, ..Rules::default() });
            let next = Calling::enter(run, Out::default(), Facts::default(), None);
            let State::Calling(calling) = next.state else { panic!("not calling") };
            calling.retry_limit()
        };
        // A tenth of the run is for its closing call.
        assert_eq!(limit(Some(Span(100)), Some(Span(80))), Some(Time(80)));
        assert_eq!(limit(Some(Span(100)), Some(Span(95))), Some(Time(90)));
        assert_eq!(limit(Some(Span(100)), None), Some(Time(90)));
        assert_eq!(limit(None, None), None);
    }
}
