//! Closing: a watchdog asked for the last word, which comes without tools.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::budget::{self, Unaffordable};
use super::conversation::Conversation;
use super::deadline::{Deadline, Deadlines, Why};
use super::done::Done;
use super::effect::{Change, Effect, NoSummary, Note, Purpose, Summary};
use super::event::{Event, Facts};
use super::instructions;
use super::next::{Next, Out};
use super::run::Run;
use super::state::State;
use super::stop::{CloseReason, StopReason};
use crate::model::{EffectId, Item, Reply, Time, Tokens};

/// The run is closing, for this reason; there is at most one closing call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Closing {
    /// The account of the run.
    pub run: Run,
    /// Why the run closes.
    pub reason: CloseReason,
    /// When it ends, with or without a last word.
    pub due: Time,
    /// How far it has come.
    pub stage: Stage,
}

/// How far closing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The closing call is being prepared.
    Preparing {
        /// The preparation that is awaited.
        id: EffectId,
    },
    /// The closing call is under way.
    Sending {
        /// The call that is awaited.
        id: EffectId,
        /// What the call is like.
        facts: Facts,
    },
}

impl Stage {
    /// Returns the effect that is awaited.
    pub(super) fn awaited(self) -> EffectId {
        match self {
            Self::Preparing { id } | Self::Sending { id, .. } => id,
        }
    }
}

/// Returns the limit of the closing call's output, unless time, context window or budget have no room for the call.
pub(super) fn possible(run: &Run, facts: &Facts) -> Result<Option<Tokens>, NoSummary> {
    if !run.rules.limits.allow_calls() {
        return Err(NoSummary::Time);
    }
    if facts.shortened > run.rules.context.window {
        return Err(NoSummary::Context);
    }
    budget::reserve(run, facts, Purpose::Closing).map_err(|Unaffordable| NoSummary::Budget)
}

/// Returns the facts of a closing call with how large it is as it would be sent.
pub(super) fn shortened(
    run: &Run,
    conversation: &Conversation,
    system: u64,
    facts: Facts,
) -> Facts {
    let mut conversation = Cow::Borrowed(conversation);
    if too_full(run, &facts) {
        conversation.to_mut().apply(trim(run, &facts));
    }
    let (_, bytes) = conversation.fitted(conversation.entries(), system, &run.rules.context);
    let gauge = conversation.gauge();
    Facts { shortened: gauge.measure(bytes), bound: facts.bound.min(gauge.most(bytes)), ..facts }
}

/// Returns how the oldest exchanges make room for the closing call.
fn trim(run: &Run, facts: &Facts) -> Change {
    let context = &run.rules.context;
    let fit = context.window.percent(context.threshold);
    Change::Compact { summary: Summary::Mechanical, keep: facts.exchanges, fit }
}

/// Returns whether the oldest exchanges have to go before the last word can be asked for.
pub(super) fn too_full(run: &Run, facts: &Facts) -> bool {
    let context = &run.rules.context;
    facts.context > context.window.percent(context.full) && facts.exchanges > 1
}

impl Closing {
    /// Tells the model to sum up, and prepares the call.
    pub(super) fn enter(mut run: Run, mut out: Out, reason: CloseReason) -> Next {
        out.note(Note::SafetyNet { reason });
        out.change(Change::Append { item: instructions::close(reason) });
        let id = run.next.take();
        out.effect(Effect::Prepare { id, purpose: Purpose::Closing });
        let due = Self::due(&run);
        out.to(State::Closing(Self { run, reason, due, stage: Stage::Preparing { id } }))
    }

    /// Returns when closing has to be over that begins now: it is a model call like others, in what time is left.
    pub(super) fn due(run: &Run) -> Time {
        let limit = run.rules.limits.step_timeout.unwrap_or(run.rules.watch.attempt);
        let due = run.now.after(limit);
        run.ends().map_or(due, |ends| ends.min(due))
    }

    pub(super) fn deadlines(&self) -> Deadlines<1> {
        Deadlines([Some(Deadline { at: self.due, why: Why::CloseLimit })])
    }

    pub(super) fn step(self, event: Event) -> Next {
        let reason = self.reason;
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
            Event::Prepared { facts, .. } => self.prepared(facts),
            Event::Replied { reply, .. } => self.replied(reply),
            Event::Failed { fault, .. } => {
                let mut out = Out::default();
                let mut run = self.run;
                if let Stage::Sending { facts, .. } = self.stage {
                    let call = (&facts, Purpose::Closing);
                    budget::charge_failed(&mut run, &fault, call, &mut out);
                }
                Done::end(run, out, StopReason::Closed(reason))
            }
            Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. }
            | Event::Checked { .. } => Out::default().to(State::Closing(self)),
        }
    }

    fn tick(mut self, now: Time) -> Next {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(
                Why::CloseLimit
                | Why::RunLimit
                | Why::StepLimit
                | Why::AttemptLimit
                | Why::RetryDue
                | Why::ToolLimit
                | Why::WatchLimit,
            ) => {
                let (reason, stage) = (self.reason, self.stage);
                let (run, mut out) = self.leave();
                match stage {
                    Stage::Preparing { .. } => out.note(Note::NoSummary { cause: NoSummary::Time }),
                    Stage::Sending { .. } => {}
                }
                Done::end(run, out, StopReason::Closed(reason))
            }
            None => Out::default().to(State::Closing(self)),
        }
    }

    fn prepared(self, facts: Facts) -> Next {
        let Self { mut run, reason, due, .. } = self;
        let mut out = Out::default();
        let max_output = match possible(&run, &facts) {
            Ok(max_output) => max_output,
            Err(cause) => {
                out.note(Note::NoSummary { cause });
                return Done::end(run, out, StopReason::Closed(reason));
            }
        };
        if too_full(&run, &facts) {
            out.change(trim(&run, &facts));
        }
        // What is sent is what a call that is lost is charged for.
        let sent = if facts.shortened > Tokens::ZERO { facts.shortened } else { facts.context };
        let facts = Facts { context: sent, ..facts };
        run.calls += 1;
        run.sends += 1;
        let id = run.next.take();
        out.effect(Effect::Call { id, purpose: Purpose::Closing, attempt: 1, max_output });
        out.to(State::Closing(Self { run, reason, due, stage: Stage::Sending { id, facts } }))
    }

    fn replied(self, reply: Reply) -> Next {
        let (mut run, mut out) = (self.run, Out::default());
        run.charge(&reply.usage, &mut out);
        let text = Some(reply.text()).filter(|text| !text.trim().is_empty());
        if text.is_some() && !reply.has_calls() {
            out.change(Change::Append { item: Item::Assistant(reply) });
        }
        Done::answer(run, out, StopReason::Closed(self.reason), text)
    }

    /// Gives up what is under way.
    fn leave(mut self) -> (Run, Out) {
        let mut out = Out::default();
        out.effect(Effect::Cancel { id: self.stage.awaited() });
        match self.stage {
            Stage::Preparing { .. } => {}
            Stage::Sending { facts, .. } => self.run.charge_lost(&facts, &mut out),
        }
        (self.run, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::step;
    use crate::model::{
        ContextRules, Fault, FaultKind, Finish, Limits, Part, Rules, Span, ToolCall, Usage,
    };

    #[test]
    fn what_is_too_full_for_the_last_word_loses_its_oldest_exchanges() {
        let context = ContextRules { window: Tokens(100), ..ContextRules::default() };
        let run = Run::new(Rules { context, ..Rules::default() });
        let facts =
            |context, exchanges| Facts { context: Tokens(context), exchanges, ..Facts::default() };
        assert!(too_full(&run, &facts(96, 2)));
        assert!(!too_full(&run, &facts(95, 2)));
        // The newest one stays.
        assert!(!too_full(&run, &facts(96, 1)));
    }

    #[test]
    fn a_closing_call_that_the_window_has_no_room_for_is_not_made() {
        let context = ContextRules { window: Tokens(100), ..ContextRules::default() };
        let ended = |shortened| {
            let run = Run::new(Rules { context: context.clone(), ..Rules::default() });
            let next = Closing::enter(run, Out::default(), CloseReason::MaxSteps);
            let facts = Facts { context: Tokens(900), shortened, exchanges: 1, ..Facts::default() };
            step(next.state, Event::Prepared { id: EffectId(1), facts, messages: [].into() })
        };
        let next = ended(Tokens(101));
        assert!(matches!(next.state, State::Done(_)));
        assert_eq!(next.notes, [Note::NoSummary { cause: NoSummary::Context }]);
        let next = ended(Tokens(100));
        let State::Closing(Closing { stage: Stage::Sending { facts, .. }, .. }) = next.state else {
            panic!("not sent")
        };
        // What is sent is what is charged.
        assert_eq!(facts.context, Tokens(100));
    }

    #[test]
    fn who_has_neither_money_nor_time_for_a_closing_call_is_told_so() {
        let notes = |limits, event: fn(EffectId) -> Event| {
            let run = Run::new(Rules { limits, ..Rules::default() });
            let next = Closing::enter(run, Out::default(), CloseReason::MaxSteps);
            let next = step(next.state, event(EffectId(1)));
            assert!(matches!(next.state, State::Done(_)));
            next.notes
        };
        let prepared = |id| Event::Prepared { id, facts: Facts::default(), messages: [].into() };
        let limits = Limits { max_tokens: Some(Tokens(0)), ..Limits::default() };
        assert_eq!(notes(limits, prepared), [Note::NoSummary { cause: NoSummary::Budget }]);
        let limits = Limits { timeout: Some(Span::ZERO), ..Limits::default() };
        let tick = |_| Event::Tick { now: Time::START };
        assert_eq!(notes(limits, tick), [Note::NoSummary { cause: NoSummary::Time }]);
    }

    /// Returns the closing call of a run, when it is asked for.
    fn asked() -> State {
        let next =
            Closing::enter(Run::new(Rules::default()), Out::default(), CloseReason::MaxSteps);
        let (id, facts) = (
            EffectId(1),
            Facts { context: Tokens(70), bound: Tokens(80), exchanges: 0, ..Facts::default() },
        );
        step(next.state, Event::Prepared { id, facts, messages: [].into() }).state
    }

    #[test]
    fn the_last_word_is_a_call_like_others() {
        let state = asked();
        assert_eq!((state.run().calls, state.run().sends), (1, 1));
        let billed = Fault { billed: true, ..Fault::new(FaultKind::Server, "broken") };
        let lost = step(state.clone(), Event::Failed { id: EffectId(2), fault: billed });
        let free = Fault::new(FaultKind::Server, "broken");
        let failed = step(state, Event::Failed { id: EffectId(2), fault: free });
        let paid = [lost, failed].map(|next| next.state.run().spent.tokens);
        assert_eq!(paid, [Tokens(70), Tokens(0)]);
    }

    #[test]
    fn a_last_word_is_kept_unless_it_wants_to_go_on() {
        let text = || Part::Text("so much".into());
        let call = || Part::Call(ToolCall::new("1".into(), "tool", "{}"));
        for (parts, output, kept) in [
            (vec![text()], Some("so much"), 1),
            // What it says counts, but nobody will answer its call.
            (vec![text(), call()], Some("so much"), 0),
            (vec![Part::Text(" ".into())], None, 0),
        ] {
            let (finish, usage) = (Finish::Stop, Usage::default());
            let reply = Reply { parts: parts.into(), finish, usage, model: None };
            let event = Event::Replied { id: EffectId(2), reply, access: [].into() };
            let next = step(asked(), event);
            let State::Done(done) = &next.state else { panic!("not done") };
            assert_eq!((done.outcome.output.as_deref(), next.changes.len()), (output, kept));
        }
    }

    #[test]
    fn closing_ends_with_its_own_time_and_before_that_of_the_run() {
        let due = |timeout, step_timeout| {
            let limits = Limits { timeout, step_timeout, ..Limits::default() };
            Closing::due(&Run::new(Rules { limits, ..Rules::default() }))
        };
        assert_eq!(due(None, None), Time::START.after(Span::secs(600)));
        assert_eq!(due(None, Some(Span::secs(5))), Time::START.after(Span::secs(5)));
        assert_eq!(due(Some(Span::millis(1_000)), None), Time::START.after(Span::millis(950)));
        assert_eq!(due(Some(Span::secs(9)), Some(Span::secs(5))), Time::START.after(Span::secs(5)));
    }
}
