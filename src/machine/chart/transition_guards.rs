//! The guards of the statechart: each name is a function of a state and an event.
//!
//! The guards use the same functions as the states ([`preparing::plan_next_call`], [`calling::classify_reply`],
//! [`retry::decide`], …). They name the conditions of the chart, so that a test can compare code and chart.

use crate::machine::budget;
use crate::machine::deadline::DeadlineKind;
use crate::machine::effect::CallPurpose;
use crate::machine::event::{Authorization, Event, RequestSize};
use crate::machine::model_calls::attempt::CallAttempt;
use crate::machine::model_calls::fallback::{self, FallbackDecision};
use crate::machine::model_calls::retry::{self, RetryDecision};
use crate::machine::output::StepBuilder;
use crate::machine::state::State;
use crate::machine::states::calling::{self, CallingStage, ReplyKind};
use crate::machine::states::closing;
use crate::machine::states::executing::{self, CallState};
use crate::machine::states::preparing::{self, NextCallPlan};
use crate::machine::step;
use crate::machine::stop_reason::CloseReason;
use crate::types::{Fault, FaultClass, Reply, RunTime, ToolStatus, word_enum};

word_enum! {
    /// A condition on a transition of the statechart.
    pub enum Guard {
        /// The time for the run, or for one model call, is over.
        TimeIsUp = "timeIsUp",
        /// The time for the closing call is over.
        ClosingTimeoutDue = "closingTimeoutDue",
        /// An effect of this program itself timed out.
        EffectTimeoutDue = "effectTimeoutDue",
        /// An attempt timed out, and another one may follow.
        TimeoutMayRetry = "timeoutMayRetry",
        /// An attempt timed out, and another model may answer.
        TimeoutMayFallBack = "timeoutMayFallBack",
        /// An attempt timed out.
        AttemptTimeoutDue = "attemptTimeoutDue",
        /// The wait before a retry is over, and the budget covers the retry.
        RetryAffordable = "retryAffordable",
        /// The wait before a retry is over.
        RetryDue = "retryDue",
        /// All tools that are still pending timed out.
        LastToolsOverdue = "lastToolsOverdue",
        /// A tool timed out.
        ToolTimeoutDue = "toolTimeoutDue",
        /// A limit closes the run.
        LimitReached = "limitReached",
        /// The context is over its threshold, and a summary is worthwhile, allowed and affordable.
        ContextOverThreshold = "contextOverThreshold",
        /// The context is too full, and older exchanges can be replaced.
        ContextTooFull = "contextTooFull",
        /// The reply has only invalid tool calls, for too many times in a row.
        TooManyInvalidReplies = "tooManyInvalidReplies",
        /// The reply has only invalid tool calls.
        NoCallCanRun = "noCallCanRun",
        /// The reply has tool calls.
        HasCalls = "hasCalls",
        /// The reply is a final answer that must be checked: there are checks, or it has to wait for a command.
        AnswerToCheck = "answerToCheck",
        /// The reply is a part of an answer, empty or paused, and the model may be asked again.
        AskedAgain = "askedAgain",
        /// The reply has an unexpected finish reason, and another attempt may follow.
        UnrecognizedMayRetry = "unrecognizedMayRetry",
        /// The context doesn't fit, and the model can summarize it.
        OverflowSummarized = "overflowSummarized",
        /// The context doesn't fit, and can be trimmed without the model.
        OverflowTrimmed = "overflowTrimmed",
        /// The context doesn't fit.
        ContextOverflow = "contextOverflow",
        /// The call failed, and another attempt may follow.
        MayRetry = "mayRetry",
        /// The call failed because the model is out of reach, and another model may answer.
        MayFallBack = "mayFallBack",
        /// The user aborts the run.
        UserAborts = "userAborts",
        /// The call may run.
        CallApproved = "callApproved",
        /// The last call is complete; all were invalid, for too many times in a row.
        LastCallTooManyInvalid = "lastCallTooManyInvalid",
        /// The last call is complete.
        LastCall = "lastCall",
        /// The final answer is sent back, or a follow-up message is queued.
        CheckAsksAgain = "checkAsksAgain",
        /// The limits cover the closing call.
        FinalSummaryPossible = "finalSummaryPossible",
    }
}

impl Guard {
    /// Returns whether the guard holds for this event in this state.
    pub fn holds(self, state: &State, event: &Event) -> bool {
        let due = due_deadline(state, event);
        let run = state.run();
        match self {
            Self::TimeIsUp => {
                matches!(due, Some(DeadlineKind::RunTimeout | DeadlineKind::StepTimeout))
            }
            Self::ClosingTimeoutDue => due == Some(DeadlineKind::ClosingTimeout),
            Self::EffectTimeoutDue => due == Some(DeadlineKind::EffectTimeout),
            Self::TimeoutMayRetry => timeout_may_retry(state, event),
            Self::TimeoutMayFallBack => timeout_may_fall_back(state, event),
            Self::AttemptTimeoutDue => due == Some(DeadlineKind::AttemptTimeout),
            Self::RetryAffordable => {
                due == Some(DeadlineKind::RetryDue)
                    && current_call(state)
                        .is_some_and(|call| budget::reserve(run, &call.size, call.purpose).is_ok())
            }
            Self::RetryDue => due == Some(DeadlineKind::RetryDue),
            Self::LastToolsOverdue => {
                due == Some(DeadlineKind::ToolTimeout) && all_tools_overdue(state, event)
            }
            Self::ToolTimeoutDue => due == Some(DeadlineKind::ToolTimeout),
            Self::LimitReached => matches!(call_plan(state, event), Some(NextCallPlan::Close(_))),
            Self::ContextOverThreshold => call_plan(state, event) == Some(NextCallPlan::Summarize),
            Self::ContextTooFull => call_plan(state, event) == Some(NextCallPlan::Trim),
            Self::TooManyInvalidReplies => statuses_without_running(state, event)
                .is_some_and(|all| executing::too_many_invalid(run, all.into_iter())),
            Self::NoCallCanRun => statuses_without_running(state, event).is_some(),
            Self::HasCalls => reply_kind(state, event) == Some(ReplyKind::ToolCalls),
            Self::AnswerToCheck => {
                reply_kind(state, event) == Some(ReplyKind::FinalAnswer)
                    && calling::must_check_answer(run)
            }
            Self::AskedAgain => matches!(
                reply_kind(state, event),
                Some(ReplyKind::PartialAnswer | ReplyKind::EmptyRetryable | ReplyKind::Paused)
            ),
            Self::UnrecognizedMayRetry => event_reply(event).is_some_and(|reply| {
                calling::classify_reply(run, reply) == ReplyKind::Unrecognized
                    && may_retry(state, &calling::unrecognized_fault(reply))
            }),
            Self::OverflowSummarized => {
                overflow_plan(state, event) == Some(NextCallPlan::Summarize)
            }
            Self::OverflowTrimmed => overflow_plan(state, event) == Some(NextCallPlan::Trim),
            Self::ContextOverflow => overflow_plan(state, event).is_some(),
            Self::MayRetry => {
                matches!(event, Event::CallFailed { fault, .. } if may_retry(state, fault))
            }
            Self::MayFallBack => {
                matches!(event, Event::CallFailed { fault, .. } if may_fall_back(state, fault))
            }
            Self::UserAborts => {
                matches!(event, Event::Authorized { authorization: Authorization::Abort, .. })
            }
            Self::CallApproved => matches!(
                event,
                Event::Authorized { authorization: Authorization::Approved { .. }, .. }
            ),
            Self::LastCallTooManyInvalid => statuses_after_last(state, event)
                .is_some_and(|all| executing::too_many_invalid(run, all.into_iter())),
            Self::LastCall => statuses_after_last(state, event).is_some(),
            Self::CheckAsksAgain => {
                matches!(event, Event::Checked { result, .. } if calling::may_ask_again(run, result))
            }
            Self::FinalSummaryPossible => matches!(
                event,
                Event::Prepared { size, .. } if closing::reserve_summary(run, size).is_ok()
            ),
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

/// A model call that is being made or retried.
struct CurrentCall {
    attempt: CallAttempt,
    size: RequestSize,
    purpose: CallPurpose,
    /// The time by which the next attempt must have begun.
    retry_deadline: Option<RunTime>,
}

fn current_call(state: &State) -> Option<CurrentCall> {
    match state {
        State::Calling(state) => {
            let CallingStage::Requesting(attempt) = state.stage else { return None };
            let (size, purpose) = (state.size, CallPurpose::Agent);
            Some(CurrentCall { attempt, size, purpose, retry_deadline: state.retry_deadline() })
        }
        State::Compacting(state) => Some(CurrentCall {
            attempt: state.attempt,
            size: state.size,
            purpose: CallPurpose::Compaction,
            retry_deadline: state.run.closing_time(),
        }),
        State::Preparing(_) | State::Executing(_) | State::Closing(_) | State::Done(_) => None,
    }
}

fn timeout_may_retry(state: &State, event: &Event) -> bool {
    let Some(now) = tick_time(state, event) else { return false };
    let mut later = state.clone();
    later.run_mut().now = now;
    step::due_deadline(state, now) == Some(DeadlineKind::AttemptTimeout)
        && may_retry(&later, &CallAttempt::timeout_fault(later.run()))
}

/// Returns whether another attempt may follow after this fault.
fn may_retry(state: &State, fault: &Fault) -> bool {
    current_call(state).is_some_and(|call| {
        let retry = retry::decide(state.run(), call.attempt.number(), fault, call.retry_deadline);
        matches!(retry, RetryDecision::After(_))
    })
}

fn timeout_may_fall_back(state: &State, event: &Event) -> bool {
    let Some(now) = tick_time(state, event) else { return false };
    step::due_deadline(state, now) == Some(DeadlineKind::AttemptTimeout)
        && may_fall_back(state, &CallAttempt::timeout_fault(state.run()))
}

/// Returns whether another model may answer after this fault. The fault is charged first.
fn may_fall_back(state: &State, fault: &Fault) -> bool {
    let State::Calling(calling) = state else { return false };
    let (mut run, call) = (calling.run.clone(), (&calling.size, CallPurpose::Agent));
    budget::charge_failed_call(&mut run, fault, call, &mut StepBuilder::default());
    matches!(fallback::decide(&run, &calling.size, fault), FallbackDecision::To(_))
}

fn all_tools_overdue(state: &State, event: &Event) -> bool {
    let (State::Executing(executing), Some(now)) = (state, tick_time(state, event)) else {
        return false;
    };
    executing.calls.iter().all(|call| match call.state {
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

/// Returns the next action for a context that doesn't fit.
fn overflow_plan(state: &State, event: &Event) -> Option<NextCallPlan> {
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
        run.charge_usage(&reply.usage, CallPurpose::Agent, &mut StepBuilder::default());
    } else {
        return None;
    }
    Some(match calling::can_shrink(&run, &calling.size) {
        false => NextCallPlan::Close(CloseReason::ContextFull),
        true if budget::reserve(&run, &calling.size, CallPurpose::Compaction).is_ok() => {
            NextCallPlan::Summarize
        }
        true => NextCallPlan::Trim,
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
