//! The guards of the statechart: each name is one function of a state and an event.
//!
//! The states decide with the same functions that the guards are made of ([`preparing::plan`], [`calling::meaning`],
//! [`retry::decide`], …). What the guards add is the chart's point of view, so that a test can hold the arms of the code
//! against the arrows of the chart.

use super::attempt::Attempt;
use super::calling::{self, Meaning, Stage};
use super::deadline::Why;
use super::effect::Purpose;
use super::event::{Event, Verdict};
use super::executing::{self, Slot};
use super::next::Out;
use super::preparing::{self, Plan};
use super::retry::{self, Retry};
use super::state::{self, State};
use super::{budget, closing, compacting};
use crate::model::{Fault, FaultClass, Reply, Time, ToolStatus};

/// A condition on an arrow of the statechart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// The time for the run, or for one model call, is over.
    TimeIsUp,
    /// The time for the closing call is over.
    CloseLimitDue,
    /// An effect of this program itself did not come back.
    WatchLimitDue,
    /// An attempt did not come back, and another one may follow.
    AttemptMayRepeat,
    /// An attempt did not come back.
    AttemptLimitDue,
    /// The wait before a retry is over, and the budget still allows it.
    RetryAffordable,
    /// The wait before a retry is over.
    RetryDue,
    /// The last tools that were awaited did not come back.
    LastToolsOverdue,
    /// A tool did not come back.
    ToolLimitDue,
    /// A watchdog closes the run.
    SafetyNetHolds,
    /// The context is over its threshold, and a summary is worthwhile, allowed and affordable.
    ContextOverThreshold,
    /// The context is too full, and older exchanges can go.
    ContextTooFull,
    /// The reply has tool calls, none of them can run, and that happened too often.
    CallsHopeless,
    /// The reply has tool calls, and none of them can run.
    CallsUnrunnable,
    /// The reply has tool calls.
    HasCalls,
    /// The reply is a final answer that has to be checked.
    AnswerToCheck,
    /// The reply is a piece of an answer, empty or paused, and may be asked for again.
    AskedAgain,
    /// The reply is not understood, and another attempt may follow.
    GarbledMayRepeat,
    /// The context does not fit, and the model can sum it up.
    OverflowSummed,
    /// The context does not fit, and it can be made smaller without the model.
    OverflowTrimmed,
    /// The context does not fit.
    Overflows,
    /// The call failed, and another attempt may follow.
    MayRepeat,
    /// The user aborts.
    Aborts,
    /// The call may run.
    Cleared,
    /// The call was the last one; none of the reply's calls could run, and that happened too often.
    LastHopeless,
    /// The call was the last one that was not answered.
    LastCall,
    /// The final answer did not pass, and may be asked for again.
    CheckGoesOn,
    /// The limits leave room for the closing call.
    LastWordPossible,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 28] = [
        Self::TimeIsUp,
        Self::CloseLimitDue,
        Self::WatchLimitDue,
        Self::AttemptMayRepeat,
        Self::AttemptLimitDue,
        Self::RetryAffordable,
        Self::RetryDue,
        Self::LastToolsOverdue,
        Self::ToolLimitDue,
        Self::SafetyNetHolds,
        Self::ContextOverThreshold,
        Self::ContextTooFull,
        Self::CallsHopeless,
        Self::CallsUnrunnable,
        Self::HasCalls,
        Self::AnswerToCheck,
        Self::AskedAgain,
        Self::GarbledMayRepeat,
        Self::OverflowSummed,
        Self::OverflowTrimmed,
        Self::Overflows,
        Self::MayRepeat,
        Self::Aborts,
        Self::Cleared,
        Self::LastHopeless,
        Self::LastCall,
        Self::CheckGoesOn,
        Self::LastWordPossible,
    ];

    /// Returns the name that the statechart uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeIsUp => "timeIsUp",
            Self::CloseLimitDue => "closeLimitDue",
            Self::WatchLimitDue => "watchLimitDue",
            Self::AttemptMayRepeat => "attemptMayRepeat",
            Self::AttemptLimitDue => "attemptLimitDue",
            Self::RetryAffordable => "retryAffordable",
            Self::RetryDue => "retryDue",
            Self::LastToolsOverdue => "lastToolsOverdue",
            Self::ToolLimitDue => "toolLimitDue",
            Self::SafetyNetHolds => "safetyNetHolds",
            Self::ContextOverThreshold => "contextOverThreshold",
            Self::ContextTooFull => "contextTooFull",
            Self::CallsHopeless => "callsHopeless",
            Self::CallsUnrunnable => "callsUnrunnable",
            Self::HasCalls => "hasCalls",
            Self::AnswerToCheck => "answerToCheck",
            Self::AskedAgain => "askedAgain",
            Self::GarbledMayRepeat => "garbledMayRepeat",
            Self::OverflowSummed => "overflowSummed",
            Self::OverflowTrimmed => "overflowTrimmed",
            Self::Overflows => "overflows",
            Self::MayRepeat => "mayRepeat",
            Self::Aborts => "aborts",
            Self::Cleared => "cleared",
            Self::LastHopeless => "lastHopeless",
            Self::LastCall => "lastCall",
            Self::CheckGoesOn => "checkGoesOn",
            Self::LastWordPossible => "lastWordPossible",
        }
    }

    /// Returns whether the guard lets this event pass in this state.
    pub fn holds(self, state: &State, event: &Event) -> bool {
        match self {
            Self::TimeIsUp => matches!(due(state, event), Some(Why::RunLimit | Why::StepLimit)),
            Self::CloseLimitDue => due(state, event) == Some(Why::CloseLimit),
            Self::WatchLimitDue => due(state, event) == Some(Why::WatchLimit),
            Self::AttemptMayRepeat => attempt_may_repeat(state, event),
            Self::AttemptLimitDue => due(state, event) == Some(Why::AttemptLimit),
            Self::RetryAffordable => retry_affordable(state, event),
            Self::RetryDue => due(state, event) == Some(Why::RetryDue),
            Self::LastToolsOverdue => last_tools_overdue(state, event),
            Self::ToolLimitDue => due(state, event) == Some(Why::ToolLimit),
            Self::SafetyNetHolds => matches!(plan(state, event), Some(Plan::Close(_))),
            Self::ContextOverThreshold => plan(state, event) == Some(Plan::Compact),
            Self::ContextTooFull => plan(state, event) == Some(Plan::Trim),
            Self::CallsHopeless => unrunnable(state, event).is_some_and(|all| hopeless(state, all)),
            Self::CallsUnrunnable => unrunnable(state, event).is_some(),
            Self::HasCalls => meaning(state, event) == Some(Meaning::Act),
            Self::AnswerToCheck => {
                meaning(state, event) == Some(Meaning::Answer) && state.run().rules.checked
            }
            Self::AskedAgain => matches!(
                meaning(state, event),
                Some(Meaning::Piece | Meaning::Nothing | Meaning::Paused)
            ),
            Self::GarbledMayRepeat => {
                meaning(state, event) == Some(Meaning::Garbled)
                    && reply(event).is_some_and(|reply| may_repeat(state, &calling::garbled(reply)))
            }
            Self::OverflowSummed => overflow(state, event) == Some(Overflow::Summed),
            Self::OverflowTrimmed => overflow(state, event) == Some(Overflow::Trimmed),
            Self::Overflows => overflow(state, event).is_some(),
            Self::MayRepeat => {
                matches!(event, Event::Failed { fault, .. } if may_repeat(state, fault))
            }
            Self::Aborts => matches!(event, Event::Vetted { verdict: Verdict::Abort, .. }),
            Self::Cleared => {
                matches!(event, Event::Vetted { verdict: Verdict::Cleared { .. }, .. })
            }
            Self::LastHopeless => last(state, event).is_some_and(|all| hopeless(state, all)),
            Self::LastCall => last(state, event).is_some(),
            Self::CheckGoesOn => {
                matches!(event, Event::Checked { check, .. } if calling::goes_on(state.run(), check))
            }
            Self::LastWordPossible => {
                matches!(event, Event::Prepared { facts, .. }
                    if closing::possible(state.run(), facts).is_ok())
            }
        }
    }
}

/// Returns which deadline a tick finds passed.
fn due(state: &State, event: &Event) -> Option<Why> {
    state::due(state, now(state, event)?)
}

/// Returns what time it is after a tick.
fn now(state: &State, event: &Event) -> Option<Time> {
    let Event::Tick { now } = event else { return None };
    Some(state.run().now.max(*now))
}

fn attempt_may_repeat(state: &State, event: &Event) -> bool {
    let (Some(Why::AttemptLimit), Some(now)) = (due(state, event), now(state, event)) else {
        return false;
    };
    let mut state = state.clone();
    let run = match &mut state {
        State::Calling(state) => &mut state.run,
        State::Compacting(state) => &mut state.run,
        State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => {
            return false;
        }
    };
    run.now = now;
    let fault = Attempt::overdue(run);
    may_repeat(&state, &fault)
}

/// Returns whether another attempt may follow one that failed in this way.
fn may_repeat(state: &State, fault: &Fault) -> bool {
    let (attempt, limit) = match state {
        State::Calling(state) => match state.stage {
            Stage::Asking(attempt) => (attempt, state.retry_limit()),
            Stage::Checking { .. } => return false,
        },
        State::Compacting(state) => (state.attempt, state.run.closes().map(|limit| limit.at)),
        State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => {
            return false;
        }
    };
    matches!(retry::decide(state.run(), attempt.number(), fault, limit), Retry::After(_))
}

fn retry_affordable(state: &State, event: &Event) -> bool {
    due(state, event) == Some(Why::RetryDue)
        && match state {
            State::Calling(state) => {
                budget::reserve(&state.run, &state.facts, Purpose::Agent).is_ok()
            }
            State::Compacting(state) => compacting::affordable(&state.run, &state.facts).is_ok(),
            State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => false,
        }
}

fn last_tools_overdue(state: &State, event: &Event) -> bool {
    let (State::Executing(executing), Some(now)) = (state, now(state, event)) else { return false };
    due(state, event) == Some(Why::ToolLimit)
        && executing.calls.iter().all(|call| match call.slot {
            Slot::Queued => false,
            Slot::Vetting { due, .. } | Slot::Running { due, .. } => due <= now,
            Slot::Settled(_) => true,
        })
}

fn plan(state: &State, event: &Event) -> Option<Plan> {
    let State::Preparing(state) = state else { return None };
    let Event::Prepared { facts, .. } = event else { return None };
    Some(preparing::plan(&state.run, facts))
}

fn reply(event: &Event) -> Option<&Reply> {
    let Event::Replied { reply, .. } = event else { return None };
    Some(reply)
}

fn meaning(state: &State, event: &Event) -> Option<Meaning> {
    Some(calling::meaning(state.run(), reply(event)?))
}

/// What can be done about a context that does not fit.
#[derive(PartialEq)]
enum Overflow {
    Summed,
    Trimmed,
    Hopeless,
}

fn overflow(state: &State, event: &Event) -> Option<Overflow> {
    let State::Calling(calling) = state else { return None };
    let mut run = calling.run.clone();
    // Whether a summary is affordable is decided after the failed call was paid for.
    if let Event::Failed { fault, .. } = event
        && fault.class() == FaultClass::Overflow
    {
        let call = (&calling.facts, Purpose::Agent);
        budget::charge_failed(&mut run, fault, call, &mut Out::default());
    } else if let Event::Replied { reply, .. } = event
        && calling::meaning(&run, reply) == Meaning::Overflow
    {
        run.charge(&reply.usage, &mut Out::default());
    } else {
        return None;
    }
    Some(match calling::can_shrink(&run, &calling.facts) {
        false => Overflow::Hopeless,
        true if compacting::affordable(&run, &calling.facts).is_ok() => Overflow::Summed,
        true => Overflow::Trimmed,
    })
}

/// Returns how the calls of a reply are answered, when none of them has to run for that.
fn unrunnable(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    if meaning(state, event)? != Meaning::Act {
        return None;
    }
    let calls = executing::open(&state.run().rules, reply(event)?, &[]);
    calls.iter().map(|call| call.slot.answer().map(|result| result.status)).collect()
}

/// Returns how the calls will have been answered, when this event answers the last one.
fn last(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    let State::Executing(executing) = state else { return None };
    let (id, status) = if let Event::Settled { id, result }
    | Event::Vetted { id, verdict: Verdict::Refused { result } } = event
    {
        (*id, result.status)
    } else {
        return None;
    };
    let status = |slot: &Slot| slot.answer().map_or(status, |result| result.status);
    executing::is_last(executing, id)
        .then(|| executing.calls.iter().map(|call| status(&call.slot)).collect())
}

fn hopeless(state: &State, statuses: Vec<ToolStatus>) -> bool {
    executing::too_many_invalid(state.run(), statuses.into_iter())
}
