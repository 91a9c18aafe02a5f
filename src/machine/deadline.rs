//! Deadlines: the times at which time alone changes a state.

use serde::{Deserialize, Serialize};

use crate::types::RunTime;

/// The next moment at which time alone changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    /// The time of the change.
    pub at: RunTime,
    /// The limit that has passed.
    pub kind: DeadlineKind,
}

/// The limit that a deadline enforces. If several have passed, the first in this order takes effect. The numbers are a
/// part of fingerprints, and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineKind {
    /// The whole run, without the time that is reserved for the closing call.
    RunTimeout = 1,
    /// One model call, its retries included.
    StepTimeout = 2,
    /// The closing call.
    ClosingTimeout = 3,
    /// One attempt at a model call.
    AttemptTimeout = 4,
    /// The wait before a retry.
    RetryDue = 5,
    /// The authorization of a tool call, or its execution.
    ToolTimeout = 6,
    /// A preparation or a check, which this program performs itself.
    EffectTimeout = 7,
}

/// Declares the deadlines that a state can have, as a subset of [`DeadlineKind`] in the same order.
macro_rules! state_deadlines {
    ($($name:ident { $($kind:ident),+ })+) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($kind),+
        }

        impl From<$name> for DeadlineKind {
            fn from(kind: $name) -> Self {
                match kind {
                    $($name::$kind => Self::$kind),+
                }
            }
        }
    )+};
}

state_deadlines! {
    PreparingDeadline { RunTimeout, EffectTimeout }
    CompactingDeadline { RunTimeout, AttemptTimeout, RetryDue }
    CallingDeadline { RunTimeout, StepTimeout, AttemptTimeout, RetryDue, EffectTimeout }
    ExecutingDeadline { RunTimeout, ToolTimeout }
    ClosingDeadline { ClosingTimeout }
}

/// The deadlines of a state.
pub(crate) struct StateDeadlines<K, const N: usize>(pub(crate) [Option<(RunTime, K)>; N]);

impl<K: Copy + Ord + Into<DeadlineKind>, const N: usize> StateDeadlines<K, N> {
    /// Returns the earliest deadline.
    pub(crate) fn next(self) -> Option<Deadline> {
        let (at, kind) = self.0.into_iter().flatten().min()?;
        Some(Deadline { at, kind: kind.into() })
    }

    /// Returns the deadline that takes effect at this time. If several have passed, as after a suspend, the order of
    /// their kinds decides, not their times: the end of the run comes before a retry that was due before it.
    pub(crate) fn due(self, now: RunTime) -> Option<K> {
        let passed = self.0.into_iter().flatten().filter(|(at, _)| *at <= now);
        passed.map(|(_, kind)| kind).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_deadline_is_the_earliest_and_the_due_one_the_gravest() {
        use CompactingDeadline::{RetryDue, RunTimeout};
        let deadlines =
            || StateDeadlines([Some((RunTime(5), RetryDue)), None, Some((RunTime(7), RunTimeout))]);
        let first = Deadline { at: RunTime(5), kind: DeadlineKind::RetryDue };
        assert_eq!(deadlines().next(), Some(first));
        assert_eq!(deadlines().due(RunTime(4)), None);
        assert_eq!(deadlines().due(RunTime(6)), Some(RetryDue));
        assert_eq!(deadlines().due(RunTime(7)), Some(RunTimeout));
    }
}
