//! The guards of the statechart: each name is a function of a state and an event.
//!
//! The guards use the same functions as the states ([`preparing::plan_next_call`], [`calling::classify_reply`],
//! [`retry::decide`], …). They name the conditions of the chart, so that a test can compare code and chart.

use crate::machine::budget;
use crate::machine::deadline::DeadlineKind;
use crate::machine::effect::CallPurpose;
use crate::machine::event::{Authorization, Event};
use crate::machine::model_calls::attempt::CallAttempt;
use crate::machine::model_calls::retry::{self, RetryDecision};
use crate::machine::output::StepBuilder;
use crate::machine::state::State;
use crate::machine::states::calling::{self, CallingStage, ReplyKind};
use crate::machine::states::closing;
use crate::machine::states::compacting;
use crate::machine::states::executing::{self, CallState};
use crate::machine::states::preparing::{self, NextCallPlan};
use crate::machine::step;
use crate::model::{Fault, FaultClass, Reply, RunTime, ToolStatus};

/// A condition on a transition of the statechart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// The time for the run, or for one model call, is over.
    TimeIsUp,
    /// The time for the closing call is over.
    ClosingTimeoutDue,
    /// An effect of this program itself timed out.
    EffectTimeoutDue,
    /// An attempt timed out, and another one may follow.
    TimeoutMayRetry,
    /// An attempt timed out.
    AttemptTimeoutDue,
    /// The wait before a retry is over, and the budget covers the retry.
    RetryAffordable,
    /// The wait before a retry is over.
    RetryDue,
    /// All tools that are still pending timed out.
    LastToolsOverdue,
    /// A tool timed out.
    ToolTimeoutDue,
    /// A limit closes the run.
    LimitReached,
    /// The context is over its threshold, and a summary is worthwhile, allowed and affordable.
    ContextOverThreshold,
    /// The context is too full, and older exchanges can be replaced.
    ContextTooFull,
    /// The reply has only invalid tool calls, for too many times in a row.
    TooManyInvalidReplies,
    /// The reply has only invalid tool calls.
    NoCallCanRun,
    /// The reply has tool calls.
    HasCalls,
    /// The reply is a final answer that must be checked.
    AnswerToCheck,
    /// The reply is a part of an answer, empty or paused, and the model may be asked again.
    AskedAgain,
    /// The reply has an unexpected finish reason, and another attempt may follow.
    UnrecognizedMayRetry,
    /// The context doesn't fit, and the model can summarize it.
    OverflowSummarized,
    /// The context doesn't fit, and can be trimmed without the model.
    OverflowTrimmed,
    /// The context doesn't fit.
    ContextOverflow,
    /// The call failed, and another attempt may follow.
    MayRetry,
    /// The user aborts the run.
    UserAborts,
    /// The call may run.
    CallApproved,
    /// The last call is complete; all were invalid, for too many times in a row.
    LastCallTooManyInvalid,
    /// The last call is complete.
    LastCall,
    /// The final answer is sent back, or a follow-up message is queued.
    CheckAsksAgain,
    /// The limits cover the closing call.
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

    /// Returns whether the guard holds for this event in this state.
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

/// Returns the deadline that a tick triggers.
fn due_deadline(state: &State, event: &Event) -> Option<DeadlineKind> {
    step::due_deadline(state, tick_time(state, event)?)
}

/// Returns the time after a tick.
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

/// Returns whether another attempt may follow one with this fault.
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

/// What can be done about a context that doesn't fit.
#[derive(PartialEq)]
enum OverflowHandling {
    Summarized,
    Trimmed,
    Impossible,
}

fn overflow_handling(state: &State, event: &Event) -> Option<OverflowHandling> {
    let State::Calling(calling) = state else { return None };
    let mut run = calling.run.clone();
    // The failed call is charged before the budget for a summary is checked.
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

/// Returns the statuses of the calls of a reply, if none of them has to run.
fn statuses_without_running(state: &State, event: &Event) -> Option<Vec<ToolStatus>> {
    if reply_kind(state, event)? != ReplyKind::ToolCalls {
        return None;
    }
    let calls = executing::track_calls(&state.run().rules, event_reply(event)?, &[]);
    calls.iter().map(|call| call.state.result().map(|result| result.status)).collect()
}

/// Returns the statuses of all calls, if this event completes the last one.
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
