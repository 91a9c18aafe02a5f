//! Going on from a stored state: after a crash, after an interrupt, or with another task.
//!
//! What was under way when the engine died is decided here, effect by effect. Nothing that may have had an effect
//! outside is done a second time, unless somebody has found out that it may be.

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::calling::{Calling, Stage as CallStage};
use super::closing::{Closing, Stage as CloseStage};
use super::compacting::Compacting;
use super::done::Done;
use super::effect::{Change, Effect, Purpose};
use super::executing::{Executing, Slot};
use super::instructions;
use super::next::{Next, Out};
use super::preparing::Preparing;
use super::repeats::Repeats;
use super::run::{Run, Streaks};
use super::state::State;
use super::stop::StopReason;
use crate::model::{CallId, Rules, Time, ToolResult};

/// How a session goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// The rules from now on.
    pub rules: Rules,
    /// What was found out about the calls that were running; one that is missing here may run again.
    pub found: Vec<Found>,
    /// What makes a run go on that was over.
    pub opening: Opening,
}

/// What was found out about a call that was running when the engine died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The call.
    pub call: CallId,
    /// Its answer: recovered, or that nobody knows.
    pub result: ToolResult,
}

/// What makes a run go on that was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// The user has another message, which arrives with the next preparation.
    Message,
    /// The model is told to go on.
    GoOn,
}

/// Goes on from a stored state at this time.
pub fn resume(state: State, now: Time, resumption: Resumption) -> Next {
    let Resumption { rules, found, opening } = resumption;
    let renew = |mut run: Run| {
        run.rules = rules.clone().into();
        run.now = run.now.max(now);
        run.began = run.now;
        run
    };
    match state {
        State::Preparing(state) => Preparing::enter(renew(state.run), Out::default()),
        State::Compacting(state) => compacting(Compacting { run: renew(state.run), ..state }),
        State::Calling(state) => calling(Calling { run: renew(state.run), ..state }, opening),
        State::Executing(state) => executing(Executing { run: renew(state.run), ..state }, &found),
        State::Closing(state) => closing(Closing { run: renew(state.run), ..state }, opening),
        State::Done(state) => reopen(renew(state.run), Out::default(), opening),
    }
}

/// A summary that was asked for is asked for again, as long as there are attempts left.
fn compacting(state: Compacting) -> Next {
    let Compacting { mut run, facts, fit, attempt } = state;
    let mut out = Out::default();
    if attempt.awaited().is_some() {
        run.charge_lost(&facts, &mut out);
    }
    Compacting::again(run, out, facts, fit, attempt.number() + 1)
}

/// A call that was sent may have been answered, but nobody heard it: it is prepared anew. An answer is checked again,
/// unless the user has another message; then it is none that the run could end with.
fn calling(state: Calling, opening: Opening) -> Next {
    let Calling { mut run, facts, stage, .. } = state;
    let mut out = Out::default();
    match stage {
        CallStage::Asking(attempt) => {
            if matches!(attempt, Attempt::Sending { .. }) {
                run.charge_lost(&facts, &mut out);
            }
            Preparing::enter(run, out)
        }
        CallStage::Checking { answer, .. } => match opening {
            Opening::Message => Preparing::enter(run, out),
            Opening::GoOn => Calling::check(run, out, facts, answer),
        },
    }
}

/// Calls that had not started start as if nothing had happened; those that ran are answered with what was found out.
fn executing(mut state: Executing, found: &[Found]) -> Next {
    for call in &mut state.calls {
        let answer = found.iter().find(|found| found.call == call.call.id);
        call.slot = match (std::mem::replace(&mut call.slot, Slot::Queued), answer) {
            (Slot::Settled(result), _) => Slot::Settled(result),
            (Slot::Running { .. }, Some(found)) => Slot::Settled(found.result.clone()),
            (Slot::Queued | Slot::Vetting { .. } | Slot::Running { .. }, _) => Slot::Queued,
        };
    }
    state.proceed(Out::default())
}

/// There is one closing call, also across a crash: when it was sent, the run is over. When the user has another message,
/// it is over in any case, and goes on.
fn closing(state: Closing, opening: Opening) -> Next {
    let Closing { mut run, reason, stage, .. } = state;
    let mut out = Out::default();
    match stage {
        CloseStage::Preparing { .. } => {}
        CloseStage::Sending { facts, .. } => run.charge_lost(&facts, &mut out),
    }
    match (opening, stage) {
        (Opening::Message, _) => reopen(run, out, opening),
        (Opening::GoOn, CloseStage::Sending { .. }) => {
            Done::end(run, out, StopReason::Closed(reason))
        }
        (Opening::GoOn, CloseStage::Preparing { .. }) => {
            let id = run.next.take();
            out.effect(Effect::Prepare { id, purpose: Purpose::Closing });
            let due = Closing::due(&run);
            let preparing = CloseStage::Preparing { id };
            out.to(State::Closing(Closing { run, reason, due, stage: preparing }))
        }
    }
}

/// A run that was over goes on: what it used stays used, what it repeated is forgotten.
fn reopen(mut run: Run, mut out: Out, opening: Opening) -> Next {
    run.streaks = Streaks::default();
    run.repeats = Repeats::default();
    run.partial = None;
    match opening {
        Opening::Message => {}
        Opening::GoOn => out.change(Change::Append { item: instructions::resume() }),
    }
    Preparing::enter(run, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Event, Facts, Intent, Verdict, start, step};
    use crate::model::{
        Access, Backoff, EffectId, Finish, Item, Origin, Part, Reply, Span, Tokens, ToolCall,
        ToolStatus, Usage,
    };

    fn rules(retries: u32) -> Rules {
        let backoff = Backoff { retries, ..Backoff::default() };
        let mut rules = Rules { backoff, ..Rules::default() };
        (rules.context.window, rules.context.summarize_after) = (Tokens(100), 1);
        rules.context.keep_recent = 1;
        rules
    }

    /// Returns the state in which a first call was prepared with a context of this size.
    fn prepared(retries: u32, context: u64) -> State {
        let state = start(rules(retries), Item::user(Origin::Task, "task")).state;
        let facts = Facts {
            context: Tokens(context),
            bound: Tokens(context),
            exchanges: 3,
            ..Facts::default()
        };
        step(state, Event::Prepared { id: EffectId(1), facts, messages: [].into() }).state
    }

    fn resumed(state: State, retries: u32) -> Next {
        let (rules, found, opening) = (rules(retries), vec![], Opening::GoOn);
        resume(state, Time::START, Resumption { rules, found, opening })
    }

    #[test]
    fn a_summary_is_asked_for_again_as_long_as_there_are_attempts() {
        let next = resumed(prepared(1, 80), 1);
        let [Effect::Call { purpose: Purpose::Compaction, attempt: 2, .. }] = next.effects[..]
        else {
            panic!("{:?}", next.effects)
        };
        // What was sent was probably read.
        assert_eq!(next.state.run().spent.tokens, Tokens(80));
        let next = resumed(next.state, 1);
        assert!(matches!(next.state, State::Preparing(_)), "{:?}", next.state);
        assert_eq!(next.state.run().spent.tokens, Tokens(160));
    }

    #[test]
    fn a_call_that_ran_is_answered_with_what_was_found_out_about_it() {
        let call = |id: &str| Part::Call(ToolCall::new(id.into(), "tool", "{}"));
        let (parts, finish) = ([call("a"), call("b")].into(), Finish::ToolCalls);
        let reply = Reply { parts, finish, usage: Usage::default(), model: None };
        let mut state = prepared(1, 10);
        let access = [Access::read("a"), Access::read("b")].into();
        state = step(state, Event::Replied { id: EffectId(2), reply, access }).state;
        for id in [3, 4].map(EffectId) {
            let (limit, intent) = (Span::secs(1), Intent::Opaque);
            let verdict = Verdict::Cleared { limit, intent, grounds: "".into() };
            state = step(state, Event::Vetted { id, verdict }).state;
        }
        let result = ToolResult::new("b".into(), ToolStatus::InDoubt, "nobody knows");
        let found = vec![Found { call: "b".into(), result: result.clone() }];
        let (rules, opening) = (rules(1), Opening::GoOn);
        let next = resume(state, Time::START, Resumption { rules, found, opening });
        let State::Executing(state) = next.state else { panic!("not executing") };
        let slots: Vec<_> = state.calls.into_iter().map(|call| call.slot).collect();
        // The other one may run again, and is judged again.
        assert!(
            matches!(&slots[..], [Slot::Vetting { .. }, Slot::Settled(found)] if *found == result)
        );
    }

    #[test]
    fn a_run_goes_on_by_new_rules_and_its_time_begins_anew() {
        let (rules, found, opening) = (rules(7), vec![], Opening::GoOn);
        let resumption = Resumption { rules: rules.clone(), found, opening };
        for state in [
            start(Rules::default(), Item::user(Origin::Task, "task")).state,
            prepared(1, 10),
            prepared(1, 80),
        ] {
            let now = Time::START.after(Span::secs(9));
            let next = resume(state.clone(), now, resumption.clone());
            let run = next.state.run();
            assert_eq!((&*run.rules, run.now, run.began), (&rules, now, now));
            // A clock that is behind does not turn time back.
            let mut later = next.state;
            later = resume(later, Time::START, resumption.clone()).state;
            assert_eq!(later.run().now, now);
        }
    }
}
