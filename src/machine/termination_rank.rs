//! The proof that every run ends: a rank that falls with each step.
//!
//! A [`Rank`] is a tuple of natural numbers that are compared from left to right, so that no sequence of ranks falls
//! forever. Each number is read from the public fields of a state and its rules, independently of the guards.
//!
//! Three facts about a single step hold for every state and event, and are checked by `tests/machine`:
//!
//! 1. A step that changes more than the clock or the usage has a lower rank than the state before.
//! 2. A step that changes only the clock or the usage has the same rank, and doesn't move the deadline.
//! 3. Every state but `Done` has a deadline, and the tick at a deadline is a step of the first kind.
//!
//! Therefore, a run ends in every environment in which time passes, for any behaviour of model, tools, checks and
//! users.

use crate::machine::model_calls::attempt::CallAttempt;
use crate::machine::run_context::RunContext;
use crate::machine::state::State;
use crate::machine::states::calling::CallingStage;
use crate::machine::states::closing::ClosingStage;
use crate::machine::states::executing::CallState;

/// The upper bounds of the rest of a run. Ranks are compared field by field, the first one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// Replies whose tool calls may still run. A step resets most counters below.
    pub steps: u64,
    /// The number of times that the model may still be asked again without a step: to continue a reply, to repeat an
    /// empty or a paused one, to repair an answer, with a follow-up message, after a compaction, and after a change of
    /// the model.
    pub repeats: u64,
    /// The phase of the turn. The last phase is zero.
    pub phase: u8,
    /// The rest of the phase: attempts at a model call, or the time for them, or tool calls that are not complete.
    pub work: u64,
    /// Commands that run in the background.
    pub commands: u64,
}

/// Returns the rank of a state. Only the final state has the phase zero.
pub fn rank(state: &State) -> Rank {
    let run = state.run();
    let (rules, streaks, bounds) = (&run.rules, &run.streaks, &run.rules.bounds);
    let left = |most: u32, count: u32| u64::from(most.saturating_sub(count));
    let repeats = left(bounds.continuations, streaks.truncated)
        + left(bounds.empty_replies, streaks.empty)
        + left(bounds.pauses, streaks.pauses)
        + left(bounds.sent_back, streaks.sent_back)
        + left(bounds.repairs, streaks.schema_violations)
        + left(bounds.follow_ups, streaks.follow_ups)
        + left(rules.context.max_compactions, run.compactions.count)
        + left(rules.fallbacks(), run.model);
    let most_steps = rules.limit_baseline.steps.saturating_add(rules.limits.max_steps);
    let attempts = |attempt| match attempt {
        CallAttempt::Waiting { .. } => 2 * retries(run, attempt) + 2,
        CallAttempt::Sending { .. } => 2 * retries(run, attempt) + 1,
    };
    let (phase, work) = match state {
        State::Executing(state) => (7, state.calls.iter().map(|call| open(&call.state)).sum()),
        State::Compacting(state) => (6, attempts(state.attempt)),
        State::Preparing(_) => (5, 0),
        State::Calling(state) => match state.stage {
            CallingStage::Requesting(attempt) => (4, attempts(attempt)),
            CallingStage::Checking { .. } => (3, 0),
        },
        State::Closing(state) => match state.stage {
            ClosingStage::Preparing { .. } => (2, 0),
            ClosingStage::Sending { .. } => (1, 0),
        },
        State::Done(_) => (0, 0),
    };
    let commands = run.commands.len() as u64;
    Rank { steps: left(most_steps, run.steps), repeats, phase, work, commands }
}

/// Returns the number of attempts that may still follow this one. If time limits them, returns the remaining
/// microseconds when this attempt begins. Each retry begins after a wait, and before that time is over.
fn retries(run: &RunContext, attempt: CallAttempt) -> u64 {
    let backoff = &run.rules.backoff;
    let (number, begins) = match attempt {
        CallAttempt::Waiting { number, until } => (number, until),
        CallAttempt::Sending { number, due, .. } => {
            (number, due.before(run.rules.timeouts.attempt))
        }
    };
    match (backoff.retry_for, run.failing_since) {
        // The time begins at the failure of the first attempt.
        (Some(time), Some(since)) if number > 1 => since.after(time).since(begins).0,
        (Some(time), _) => time.0,
        (None, _) => u64::from(backoff.retries.saturating_add(1).saturating_sub(number)),
    }
}

/// Returns the number of events that a tool call may still have.
fn open(call: &CallState) -> u64 {
    match call {
        CallState::Queued => 3,
        CallState::Authorizing { .. } => 2,
        CallState::Running { .. } => 1,
        CallState::Completed(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{RunRules, RunTime, TimeSpan};

    /// The failure time of an earlier call doesn't matter.
    #[test]
    fn the_time_for_retries_begins_when_the_first_attempt_has_failed() {
        let mut run = RunContext::new(RunRules::default());
        Arc::make_mut(&mut run.rules).backoff.retry_for = Some(TimeSpan::from_secs(60));
        run.failing_since = Some(RunTime::START);
        let until = RunTime::START.after(TimeSpan::from_secs(50));
        let left = |number| TimeSpan(retries(&run, CallAttempt::Waiting { number, until }));
        assert_eq!([left(1), left(2)], [60, 10].map(TimeSpan::from_secs));
    }
}
