//! When the machine wants to be woken although nothing happened, and why.

use serde::{Deserialize, Serialize};

use crate::model::RunTime;

/// The next moment at which time alone changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    /// When.
    pub at: RunTime,
    /// Why.
    pub kind: DeadlineKind,
}

/// Why the machine wants to be woken; the gravest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineKind {
    /// The time of the whole run is over, but for the share of the closing call.
    RunTimeout,
    /// The time of one model call, its retries included, is over.
    StepTimeout,
    /// The time of the closing call is over.
    ClosingTimeout,
    /// The time of one attempt at a model call is over.
    AttemptTimeout,
    /// The wait before a retry is over.
    RetryDue,
    /// A tool, or its judgement, did not come back.
    ToolTimeout,
    /// An effect of this program itself did not come back.
    EffectTimeout,
}

/// The deadlines of a state.
pub(super) struct StateDeadlines<const N: usize>(pub(super) [Option<Deadline>; N]);

impl<const N: usize> StateDeadlines<N> {
    /// Returns the earliest one: when the machine wants to be woken.
    pub(super) fn next(self) -> Option<Deadline> {
        self.0.into_iter().flatten().min()
    }

    /// Returns why the machine has to act now. When several moments have passed, after a suspend say, it is not the
    /// earliest one that counts: the end of the run comes before a retry that was due before it.
    pub(super) fn due(self, now: RunTime) -> Option<DeadlineKind> {
        let passed = self.0.into_iter().flatten().filter(|deadline| deadline.at <= now);
        passed.map(|deadline| deadline.kind).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wakes_and_the_gravest_acts() {
        let deadline = |at, why| Some(Deadline { at: RunTime(at), kind: why });
        let deadlines = || {
            StateDeadlines([
                deadline(5, DeadlineKind::RetryDue),
                None,
                deadline(7, DeadlineKind::RunTimeout),
            ])
        };
        assert_eq!(deadlines().next(), deadline(5, DeadlineKind::RetryDue));
        assert_eq!(deadlines().due(RunTime(4)), None);
        assert_eq!(deadlines().due(RunTime(6)), Some(DeadlineKind::RetryDue));
        assert_eq!(deadlines().due(RunTime(7)), Some(DeadlineKind::RunTimeout));
    }
}
