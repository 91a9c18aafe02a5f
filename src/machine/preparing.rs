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

/// Returns the limit of the call's output, unless steps or budget are used up: the watchdogs that come before time.
fn within_limits(run: &Run, facts: &Facts) -> Result<Option<Tokens>, CloseReason> {
    if run.limited_steps() >= run.rules.limits.max_steps {
        return Err(CloseReason::MaxSteps);
    }
    budget::reserve(run, facts, Purpose::Agent).map_err(|Unaffordable| CloseReason::BudgetExceeded)
}

/// Decides what a prepared call leads to.
pub(super) fn plan(run: &Run, facts: &Facts) -> Plan {
    let rules = &run.rules;
    let max_output = match within_limits(run, facts) {
        Ok(max_output) => max_output,
        Err(reason) => return Plan::Close(reason),
    };
    if !run.rules.limits.allow_calls() {
        return Plan::Close(CloseReason::Timeout);
    }
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
                // How large the call would be is not known yet, so only a budget that covers none counts here.
                let earlier = within_limits(&run, &Facts::default()).err();
                Closing::enter(run, out, earlier.unwrap_or(CloseReason::Timeout))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::effect::NoSummary;
    use crate::machine::repeats::Repeats;
    use crate::model::{ContextRules, Digest, Item, LimitBase, Limits, LoopRules, Rules, Span};

    /// A window of a hundred tokens: over its threshold above 75, too full above 95.
    fn rules() -> Rules {
        let context = ContextRules {
            window: Tokens(100),
            summarize_after: 3,
            keep_recent: 2,
            ..ContextRules::default()
        };
        Rules { context, ..Rules::default() }
    }

    fn planned(run: &Run, context: u64, exchanges: u32) -> Plan {
        let context = Tokens(context);
        plan(run, &Facts { context, bound: context, exchanges, ..Facts::default() })
    }

    #[test]
    fn the_context_is_summed_up_above_its_threshold_when_that_is_worthwhile() {
        let run = Run::new(rules());
        assert_eq!(planned(&run, 75, 4), Plan::Call(None));
        assert_eq!(planned(&run, 76, 4), Plan::Compact);
        assert_eq!(planned(&run, 76, 3), Plan::Call(None));
        // What stays word for word is not worth a summary.
        let mut rules = rules();
        rules.context.keep_recent = 5;
        let run = Run::new(rules);
        assert_eq!(planned(&run, 76, 5), Plan::Call(None));
        assert_eq!(planned(&run, 76, 6), Plan::Compact);
    }

    #[test]
    fn no_call_is_made_with_a_context_that_is_too_full() {
        let mut run = Run::new(rules());
        assert_eq!(planned(&run, 95, 2), Plan::Call(None));
        assert_eq!(planned(&run, 96, 2), Plan::Trim);
        assert_eq!(planned(&run, 96, 1), Plan::Close(CloseReason::ContextFull));
        run.compactions.begin(Tokens(200));
        assert_eq!(planned(&run, 96, 9), Plan::Close(CloseReason::ContextFull));
        assert_eq!(planned(&run, 95, 9), Plan::Call(None));
    }

    #[test]
    fn a_summary_that_is_too_dear_is_done_without() {
        let mut rules = rules();
        rules.limits = Limits { max_tokens: Some(Tokens(1_000)), ..Limits::default() };
        rules.output.ceiling = Tokens(100);
        rules.output.least = Tokens(10);
        assert_eq!(planned(&Run::new(rules.clone()), 76, 4), Plan::Compact);
        rules.limits.max_tokens = Some(Tokens(10));
        let broke = Run::new(rules);
        assert_eq!(planned(&broke, 76, 4), Plan::Close(CloseReason::BudgetExceeded));
    }

    #[test]
    fn steps_and_repeated_turns_close_a_run() {
        let loops = LoopRules { warn: 2, end: 3 };
        let limits = Limits { max_steps: 2, ..Limits::default() };
        let mut run = Run::new(Rules { limits, loops, ..rules() });
        for expected in [Plan::Call(None), Plan::Call(None), Plan::Close(CloseReason::LoopDetected)]
        {
            run.repeats.push(Digest::EMPTY);
            assert_eq!(planned(&run, 1, 1), expected);
        }
        run.steps = 2;
        assert_eq!(planned(&run, 1, 1), Plan::Close(CloseReason::MaxSteps));
        // What was made before the limits began does not count.
        let from = LimitBase { steps: 1, ..LimitBase::default() };
        run.repeats = Repeats::default();
        run.rules = Rules { from, ..(*run.rules).clone() }.into();
        assert_eq!(planned(&run, 1, 1), Plan::Call(None));
    }

    /// Steps, budget, time: the first of them that is used up is the reason.
    #[test]
    fn limits_of_zero_close_a_run_in_their_order() {
        let closed = |max_steps, max_tokens, timeout| {
            let limits = Limits { max_steps, max_tokens, timeout, ..Limits::default() };
            let run = Run::new(Rules { limits, ..rules() });
            let next = Preparing::enter(run, Out::default());
            let next = super::super::step(next.state, Event::Tick { now: Time::START });
            match next.state {
                State::Closing(closing) => closing.reason,
                other => panic!("{other:?}"),
            }
        };
        let (no_tokens, no_time) = (Some(Tokens(0)), Some(Span::ZERO));
        assert_eq!(closed(0, no_tokens, no_time), CloseReason::MaxSteps);
        assert_eq!(closed(0, None, no_time), CloseReason::MaxSteps);
        assert_eq!(closed(9, no_tokens, no_time), CloseReason::BudgetExceeded);
        assert_eq!(closed(9, Some(Tokens(9_000)), no_time), CloseReason::Timeout);
    }

    /// No time for a model call is a time limit like the others: after steps and budget, and before any request.
    #[test]
    fn a_step_timeout_of_zero_closes_a_run_before_any_request() {
        let closed = |max_steps, max_tokens| {
            let step_timeout = Some(Span::ZERO);
            let limits = Limits { max_steps, max_tokens, step_timeout, ..Limits::default() };
            let next = Preparing::enter(Run::new(Rules { limits, ..rules() }), Out::default());
            let prepared =
                |id| Event::Prepared { id, facts: Facts::default(), messages: [].into() };
            let next = super::super::step(next.state, prepared(EffectId(1)));
            let State::Closing(closing) = &next.state else { panic!("{:?}", next.state) };
            let reason = closing.reason;
            // The closing call is a model call, too.
            let next = super::super::step(next.state, prepared(EffectId(2)));
            assert!(matches!(&next.state, State::Done(done) if done.run.sends == 0));
            assert_eq!(next.notes, [Note::NoSummary { cause: NoSummary::Time }]);
            reason
        };
        assert_eq!(closed(0, Some(Tokens(0))), CloseReason::MaxSteps);
        assert_eq!(closed(9, Some(Tokens(0))), CloseReason::BudgetExceeded);
        assert_eq!(closed(9, None), CloseReason::Timeout);
    }

    #[test]
    fn the_model_is_told_what_others_say_and_the_user_that_his_words_arrived() {
        let message = |origin| UserMessage { origin, text: "mind the gap".into() };
        let mut out = Out::default();
        append(&mut out, &[message(Origin::Steering), message(Origin::Check)]);
        let next = Preparing::enter(Run::new(rules()), out);
        assert_eq!(next.notes, [Note::Steered { messages: 1 }]);
        let said = [
            Item::user(Origin::Steering, "[STEERING] mind the gap"),
            Item::user(Origin::Check, "mind the gap"),
        ];
        assert_eq!(next.changes, said.map(|item| Change::Append { item }));

        let mut out = Out::default();
        append(&mut out, &[message(Origin::Check)]);
        assert_eq!(Preparing::enter(Run::new(rules()), out).notes, []);
    }
}
