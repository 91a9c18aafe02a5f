//! The transition function: the statechart as one table.

use super::deadline::{
    CallingDeadline, ClosingDeadline, CompactingDeadline, Deadline, DeadlineKind,
    ExecutingDeadline, PreparingDeadline,
};
use super::event::Event;
use super::output::{Step, StepBuilder};
use super::run_context::{BudgetUsage, RunContext};
use super::state::State;
use super::states::closing::Closing;
use super::states::done::Done;
use super::states::preparing::Preparing;
use super::stop_reason::{CloseReason, StopReason};
use crate::types::{ConversationItem, RunRules, RunTime};

/// Begins a run: adds the task to the conversation and prepares the first model call.
pub fn start(rules: RunRules, task: ConversationItem) -> Step {
    let mut out = StepBuilder::default();
    out.append(task);
    Preparing::enter(RunContext::new(rules), out)
}

/// Returns the step for an event in a state. Every state accepts every event.
///
/// An event of an effect that isn't pending changes nothing.
pub fn step(state: State, event: Event) -> Step {
    if event.effect_id().is_some() && !state.awaits(&event) {
        return StepBuilder::default().finish(state);
    }
    match (state, event) {
        // Nothing leads out of the final state.
        (state @ State::Done(_), _) => StepBuilder::default().finish(state),

        // The same in every other state.
        (state, Event::Interrupt { signal }) => {
            let (run, out) = state.cancel();
            Done::end(run, out, StopReason::UserInterrupt(signal))
        }
        (state, Event::StoreFailed { error }) => {
            let (run, out) = state.cancel();
            Done::fail(run, out, StopReason::StoreError, error)
        }
        (state, Event::InternalError { error }) => {
            let (run, out) = state.cancel();
            Done::fail(run, out, StopReason::InternalError, error)
        }
        (mut state, Event::CommandEnded { id }) => {
            state.run_mut().remove_command(id);
            StepBuilder::default().finish(state)
        }
        (state, Event::Tick { now }) => tick(state, now),

        (State::Preparing(state), Event::Prepared { size, messages, .. }) => {
            state.on_prepared(size, &messages)
        }

        (State::Compacting(state), Event::Replied { reply, .. }) => state.on_reply(&reply),
        (State::Compacting(state), Event::CallFailed { fault, .. }) => {
            state.on_failure(StepBuilder::default(), &fault)
        }

        (State::Calling(state), Event::Replied { reply, access, .. }) => {
            state.on_reply(reply, &access)
        }
        (State::Calling(state), Event::CallFailed { fault, .. }) => {
            state.on_failure(StepBuilder::default(), fault)
        }
        (State::Calling(state), Event::Checked { result, .. }) => state.on_check(result),

        (State::Executing(state), Event::Authorized { id, authorization }) => {
            state.on_authorization(id, authorization)
        }
        (State::Executing(state), Event::UsageReported { id, usage, cost }) => {
            state.on_usage(id, BudgetUsage { cost, tokens: usage.total() })
        }
        (State::Executing(state), Event::ToolCompleted { id, result }) => {
            state.on_completion(id, result)
        }

        (State::Closing(state), Event::Prepared { size, .. }) => state.on_prepared(size),
        (State::Closing(state), Event::Replied { reply, .. }) => state.on_reply(reply),
        (State::Closing(state), Event::CallFailed { fault, .. }) => state.on_failure(&fault),

        // Not pending in the remaining states; `awaits` has dropped these.
        (
            state,
            Event::Prepared { .. }
            | Event::Replied { .. }
            | Event::CallFailed { .. }
            | Event::Authorized { .. }
            | Event::UsageReported { .. }
            | Event::ToolCompleted { .. }
            | Event::Checked { .. },
        ) => StepBuilder::default().finish(state),
    }
}

/// Advances the clock of a state, and returns the step of the deadline that is due then.
fn tick(mut state: State, now: RunTime) -> Step {
    let run = state.run_mut();
    run.now = run.now.max(now);
    let now = run.now;
    match state {
        State::Preparing(state) => match state.deadlines().due(now) {
            Some(PreparingDeadline::RunTimeout) => state.close(),
            Some(PreparingDeadline::EffectTimeout) => {
                fail(state.cancel(), "the preparation of a model call did not complete in time")
            }
            None => StepBuilder::default().finish(State::Preparing(state)),
        },
        State::Compacting(state) => match state.deadlines().due(now) {
            Some(CompactingDeadline::RunTimeout) => close(state.cancel()),
            Some(CompactingDeadline::AttemptTimeout) => state.on_attempt_timeout(),
            Some(CompactingDeadline::RetryDue) => state.send_retry(),
            None => StepBuilder::default().finish(State::Compacting(state)),
        },
        State::Calling(state) => match state.deadlines().due(now) {
            Some(CallingDeadline::RunTimeout | CallingDeadline::StepTimeout) => {
                close(state.cancel())
            }
            Some(CallingDeadline::AttemptTimeout) => state.on_attempt_timeout(),
            Some(CallingDeadline::RetryDue) => state.send_retry(),
            Some(CallingDeadline::EffectTimeout) => {
                fail(state.cancel(), "the check of the final answer did not complete in time")
            }
            None => StepBuilder::default().finish(State::Calling(state)),
        },
        State::Executing(state) => match state.deadlines().due(now) {
            Some(ExecutingDeadline::RunTimeout) => close(state.cancel()),
            Some(ExecutingDeadline::ToolTimeout) => state.on_tool_timeout(),
            None => StepBuilder::default().finish(State::Executing(state)),
        },
        State::Closing(state) => match state.deadlines().due(now) {
            Some(ClosingDeadline::ClosingTimeout) => state.end(),
            None => StepBuilder::default().finish(State::Closing(state)),
        },
        State::Done(state) => StepBuilder::default().finish(State::Done(state)),
    }
}

/// Closes the run because the time for it, or for a call, is over.
fn close((run, out): (Box<RunContext>, StepBuilder)) -> Step {
    Closing::enter(run, out, CloseReason::Timeout)
}

/// Ends the run because an effect of this program did not complete in time.
fn fail((run, out): (Box<RunContext>, StepBuilder), error: &str) -> Step {
    Done::fail(run, out, StopReason::InternalError, error.into())
}

/// Returns the next moment at which time alone changes the state, or `None` once the run is over.
pub fn deadline(state: &State) -> Option<Deadline> {
    match state {
        State::Preparing(state) => state.deadlines().next(),
        State::Compacting(state) => state.deadlines().next(),
        State::Calling(state) => state.deadlines().next(),
        State::Executing(state) => state.deadlines().next(),
        State::Closing(state) => state.deadlines().next(),
        State::Done(_) => None,
    }
}

/// Returns the deadline that takes effect at this time.
pub(crate) fn due_deadline(state: &State, now: RunTime) -> Option<DeadlineKind> {
    match state {
        State::Preparing(state) => state.deadlines().due(now).map(Into::into),
        State::Compacting(state) => state.deadlines().due(now).map(Into::into),
        State::Calling(state) => state.deadlines().due(now).map(Into::into),
        State::Executing(state) => state.deadlines().due(now).map(Into::into),
        State::Closing(state) => state.deadlines().due(now).map(Into::into),
        State::Done(_) => None,
    }
}
