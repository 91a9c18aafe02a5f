//! The guards of the statechart: each name is one function of a state and an event.
//!
//! The states decide with the same functions that the guards are made of ([`preparing::plan`], [`calling::meaning`],
//! [`retry::decide`], …). What the guards add is the chart's point of view, so that a test can hold the arms of the code
//! against the arrows of the chart.

use crate::machine::budget;
use crate::machine::calls::attempt::CallAttempt;
use crate::machine::calls::retry::{self, RetryDecision};
use crate::machine::deadline::DeadlineKind;
use crate::machine::effect::CallPurpose;
use crate::machine::event::{Authorization, Event};
use crate::machine::output::StepBuilder;
use crate::machine::state::State;
use crate::machine::states::calling::{self, CallingStage, ReplyKind};
use crate::machine::states::closing;
use crate::machine::states::compacting;
use crate::machine::states::executing::{self, CallState};
use crate::machine::states::preparing::{self, NextCallPlan};
use crate::machine::step;
use crate::model::{Fault, FaultClass, Reply, RunTime, ToolStatus};

/// A condition on an arrow of the statechart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// The time for the run, or for one model call, is over.
    TimeIsUp,
    /// The time for the closing call is over.
    ClosingTimeoutDue,
    /// An effect of this program itself did not come back.
    EffectTimeoutDue,
    /// An attempt did not come back, and another one may follow.
    TimeoutMayRetry,
    /// An attempt did not come back.
    AttemptTimeoutDue,
    /// The wait before a retry is over, and the budget still allows it.
    RetryAffordable,
    /// The wait before a retry is over.
    RetryDue,
    /// The last tools that were awaited did not come back.
    LastToolsOverdue,
    /// A tool did not come back.
    ToolTimeoutDue,
    /// A watchdog closes the run.
    LimitReached,
    /// The context is over its threshold, and a summary is worthwhile, allowed and affordable.
    ContextOverThreshold,
    /// The context is too full, and older exchanges can go.
    ContextTooFull,
    /// The reply has tool calls, none of them can run, and that happened too often.
    TooManyInvalidReplies,
    /// The reply has tool calls, and none of them can run.
    NoCallCanRun,
    /// The reply has tool calls.
    HasCalls,
    /// The reply is a final answer that has to be checked.
    AnswerToCheck,
    /// The reply is a piece of an answer, empty or paused, and may be asked for again.
    AskedAgain,
    /// The reply is not understood, and another attempt may follow.
    UnrecognizedMayRetry,
    /// The context does not fit, and the model can sum it up.
    OverflowSummarized,
    /// The context does not fit, and it can be made smaller without the model.
    OverflowTrimmed,
    /// The context does not fit.
    ContextOverflow,
    /// The call failed, and another attempt may follow.
    MayRetry,
    /// The user aborts.
    UserAborts,
    /// The call may run.
    CallApproved,
    /// The call was the last one; none of the reply's calls could run, and that happened too often.
    LastCallTooManyInvalid,
    /// The call was the last one that was not answered.
    LastCall,
    /// The final answer did not pass, and may be asked for again.
    CheckAsksAgain,
    /// The limits leave room for the closing call.
    FinalSummaryPossible,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 28] = [
        Self::TimeIsUp,
        Self::ClosingTimeoutDue,
        Self::EffectTimeoutDue,
        Self::TimeoutMayRetry,
        Self::AttemptTimeoutDue,
        Self::RetryAffordable,
        Self::RetryDue,
        Self::LastToolsOverdue,
        Self::ToolTimeoutDue,
        Self::LimitReached,
        Self::ContextOverThreshold,
        Self::ContextTooFull,
        Self::TooManyInvalidReplies,
        Self::NoCallCanRun,
        Self::HasCalls,
        Self::AnswerToCheck,
        Self::AskedAgain,
        Self::UnrecognizedMayRetry,
        Self::OverflowSummarized,
        Self::OverflowTrimmed,
        Self::ContextOverflow,
        Self::MayRetry,
        Self::UserAborts,
        Self::CallApproved,
        Self::LastCallTooManyInvalid,
        Self::LastCall,
        Self::CheckAsksAgain,
        Self::FinalSummaryPossible,
    ];

    /// Returns the name that the statechart uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeIsUp => "timeIsUp",
            Self::ClosingTimeoutDue => "closeLimitDue",
            Self::EffectTimeoutDue => "watchLimitDue",
            Self::TimeoutMayRetry => "attemptMayRepeat",
            Self::AttemptTimeoutDue => "attemptLimitDue",
            Self::RetryAffordable => "retryAffordable",
            Self::RetryDue => "retryDue",
            Self::LastToolsOverdue => "lastToolsOverdue",
            Self::ToolTimeoutDue => "toolLimitDue",
            Self::LimitReached => "safetyNetHolds",
            Self::ContextOverThreshold => "contextOverThreshold",
            Self::ContextTooFull => "contextTooFull",
            Self::TooManyInvalidReplies => "callsHopeless",
            Self::NoCallCanRun => "callsUnrunnable",
            Self::HasCalls => "hasCalls",
            Self::AnswerToCheck => "answerToCheck",
            Self::AskedAgain => "askedAgain",
            Self::UnrecognizedMayRetry => "garbledMayRepeat",
            Self::OverflowSummarized => "overflowSummed",
            Self::OverflowTrimmed => "overflowTrimmed",
            Self::ContextOverflow => "overflows",
            Self::MayRetry => "mayRepeat",
            Self::UserAborts => "aborts",
            Self::CallApproved => "cleared",
            Self::LastCallTooManyInvalid => "lastHopeless",
            Self::LastCall => "lastCall",
            Self::CheckAsksAgain => "checkGoesOn",
            Self::FinalSummaryPossible => "lastWordPossible",
        }
    }

    /// Returns whether the guard lets this event pass in this state.
    pub fn holds(self, state: &State, event: &Event) -> bool {
        match self {
            Self::TimeIsUp => matches!(
                due_deadline(state, event),
                Some(DeadlineKind::RunTimeout | DeadlineKind::StepTimeout)
            ),
            Self::ClosingTimeoutDue => {
                due_deadline(state, event) == Some(DeadlineKind::ClosingTimeout)
            }
            Self::EffectTimeoutDue => {
                due_deadline(state, event) == Some(DeadlineKind::EffectTimeout)
            }
            Self::TimeoutMayRetry => timeout_may_retry(state, event),
            Self::AttemptTimeoutDue => {
                due_deadline(state, event) == Some(DeadlineKind::AttemptTimeout)
            }
            Self::RetryAffordable => retry_affordable(state, event),
            Self::RetryDue => due_deadline(state, event) == Some(DeadlineKind::RetryDue),
            Self::LastToolsOverdue => last_tools_overdue(state, event),
            Self::ToolTimeoutDue => due_deadline(state, event) == Some(DeadlineKind::ToolTimeout),
            Self::LimitReached => matches!(call_plan(state, event), Some(NextCallPlan::Close(_))),
            Self::ContextOverThreshold => call_plan(state, event) == Some(NextCallPlan::Summarize),
            Self::ContextTooFull => call_plan(state, event) == Some(NextCallPlan::Trim),
            Self::TooManyInvalidReplies => statuses_without_running(state, event)
                .is_some_and(|all| too_many_invalid(state, all)),
            Self::NoCallCanRun => statuses_without_running(state, event).is_some(),
            Self::HasCalls => reply_kind(state, event) == Some(ReplyKind::ToolCalls),
            Self::AnswerToCheck => {
                reply_kind(state, event) == Some(ReplyKind::FinalAnswer)
                    && state.run().rules.has_checks
            }
            Self::AskedAgain => matches!(
                reply_kind(state, event),
                Some(ReplyKind::PartialAnswer | ReplyKind::EmptyRetryable | ReplyKind::Paused)
            ),
            Self::UnrecognizedMayRetry => {
                reply_kind(state, event) == Some(ReplyKind::Unrecognized)
                    && event_reply(event)
                        .is_some_and(|reply| may_retry(state, &calling::unrecognized_fault(reply)))
            }
            Self::OverflowSummarized => {
                overflow_handling(state, event) == Some(OverflowHandling::Summarized)
            }
            Self::OverflowTrimmed => {
                overflow_handling(state, event) == Some(OverflowHandling::Trimmed)
            }
            Self::ContextOverflow => overflow_handling(state, event).is_some(),
            Self::MayRetry => {
                matches!(event, Event::CallFailed { fault, .. } if may_retry(state, fault))
            }
            Self::UserAborts => {
                matches!(event, Event::Authorized { authorization: Authorization::Abort, .. })
            }
            Self::CallApproved => {
                matches!(
                    event,
                    Event::Authorized { authorization: Authorization::Approved { .. }, .. }
                )
            }
            Self::LastCallTooManyInvalid => {
                statuses_after_last(state, event).is_some_and(|all| too_many_invalid(state, all))
            }
            Self::LastCall => statuses_after_last(state, event).is_some(),
            Self::CheckAsksAgain => {
                matches!(event, Event::Checked { result, .. } if calling::may_ask_again(state.run(), result))
            }
            Self::FinalSummaryPossible => {
                matches!(event, Event::Prepared { size, .. }
                    if closing::reserve_summary(state.run(), size).is_ok())
            }
        }
    }
}

/// Returns which deadline a tick finds passed.
fn due_deadline(state: &State, event: &Event) -> Option<DeadlineKind> {
    step::due_deadline(state, tick_time(state, event)?)
}

/// Returns what time it is after a tick.
fn tick_time(state: &State, event: &Event) -> Option<RunTime> {
    let Event::Tick { now } = event else { return None };
    Some(state.run().now.max(*now))
}

fn timeout_may_retry(state: &State, event: &Event) -> bool {
    let (Some(DeadlineKind::AttemptTimeout), Some(now)) =
        (due_deadline(state, event), tick_time(state, event))
    else {
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
    let fault = CallAttempt::timeout_fault(run);
    may_retry(&state, &fault)
}

/// Returns whether another attempt may follow one that failed in this way.
fn may_retry(state: &State, fault: &Fault) -> bool {
    let (attempt, limit) = match state {
        State::Calling(state) => match state.stage {
            CallingStage::Requesting(attempt) => (attempt, state.retry_deadline()),
            CallingStage::Checking { .. } => return false,
        },
        State::Compacting(state) => (state.attempt, state.run.closing_time()),
        State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => {
            return false;
        }
    };
    matches!(retry::decide(state.run(), attempt.number(), fault, limit), RetryDecision::After(_))
}

fn retry_affordable(state: &State, event: &Event) -> bool {
    due_deadline(state, event) == Some(DeadlineKind::RetryDue)
        && match state {
            State::Calling(state) => {
                budget::reserve(&state.run, &state.size, CallPurpose::Agent).is_ok()
            }
            State::Compacting(state) => {
                compacting::reserve_summary(&state.run, &state.size).is_ok()
            }
            State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => false,
        }
}

fn last_tools_overdue(state: &State, event: &Event) -> bool {
    let (State::Executing(executing), Some(now)) = (state, tick_time(state, event)) else {
        return false;
    };
    due_deadline(state, event) == Some(DeadlineKind::ToolTimeout)
        && executing.calls.iter().all(|call| match call.state {
            CallState::Queued => false,
            CallState::Authorizing { due, .. } | CallState::Running { due, .. } => due <= now,
            CallState::Completed(_) => true,
        })
}

fn call_plan(state: &State, event: &Event) -> Option<NextCallPlan> {
    let State::Preparing(state) = state else { return None };
    let Event::Prepared { size, .. } = event else { return None };
    Some(preparing::plan_next_call(&state.run, size))
}

fn event_reply(event: &Event) -> Option<&Reply> {
    let Event::Replied { reply, .. } = event else { return None };
    Some(reply)
}

fn reply_kind(state: &State, event: &Event) -> Option<ReplyKind> {
    Some(calling::classify_reply(state.run(), event_reply(event)?))
}

/// What can be done about a context that does not fit.
#[derive(PartialEq)]
enum OverflowHandling {
    Summarized,
    Trimmed,
    Impossible,
}

fn overflow_handling(state: &State, event: &Event) -> Option<OverflowHandling> {
    let State::Calling(calling) = state else { return None };
    let mut run = calling.run.clone();
    // Whether a summary is affordable is decided after the failed call was paid for.
    if let Event::CallFailed { fault, .. } = event
        && fault.class() == FaultClass::Overflow
    {
        let call = (&calling.size, CallPurpose::Agent);
        budget::charge_failed_call(&mut run, fault, call, &mut StepBuilder::default());
    } else if let Event::Replied { reply, .. } = event
        && calling::classify_reply(&run, reply) == ReplyKind::ContextOverflow
    {
        run.charge_usage(&reply.usage, &mut StepBuilder::default());
    } else {
        return None;
    }
    Some(match calling::can_shrink(&run, &calling.size) {
        false => OverflowHandling::Impossible,
        true if compacting::reserve_summary(&run, &calling.size).is_ok() => {
            OverflowHandling::Summarized
        }
        true => OverflowHandling::Trimmed,
    })
}

/// Returns how the calls of a reply are answered, when none of them has to run for that.
fn statuses_without_running(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    if reply_kind(state, event)? != ReplyKind::ToolCalls {
        return None;
    }
    let calls = executing::track_calls(&state.run().rules, event_reply(event)?, &[]);
    calls.iter().map(|call| call.state.result().map(|result| result.status)).collect()
}

/// Returns how the calls will have been answered, when this event answers the last one.
fn statuses_after_last(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    let State::Executing(executing) = state else { return None };
    let (id, status) =
        if let Event::ToolCompleted { id, result }
        | Event::Authorized { id, authorization: Authorization::Rejected { result } } = event
        {
            (*id, result.status)
        } else {
            return None;
        };
    let status = |slot: &CallState| slot.result().map_or(status, |result| result.status);
    executing::is_last_pending(executing, id)
        .then(|| executing.calls.iter().map(|call| status(&call.state)).collect())
}

fn too_many_invalid(state: &State, statuses: Vec<ToolStatus>) -> bool {
    executing::too_many_invalid(state.run(), statuses.into_iter())
}
