//! When the machine wants to be woken although nothing happened, and why.

use serde::{Deserialize, Serialize};

use crate::model::Time;

/// The next moment at which time alone changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    /// When.
    pub at: Time,
    /// Why.
    pub why: Why,
}

/// Why the machine wants to be woken; the gravest reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The time of the whole run is over, but for the share of the closing call.
    RunLimit,
    /// The time of one model call, its retries included, is over.
    StepLimit,
    /// The time of the closing call is over.
    CloseLimit,
    /// The time of one attempt at a model call is over.
    AttemptLimit,
    /// The wait before a retry is over.
    RetryDue,
    /// A tool, or its judgement, did not come back.
    ToolLimit,
    /// An effect of this program itself did not come back.
    WatchLimit,
}

/// The deadlines of a state.
pub(super) struct Deadlines<const N: usize>(pub(super) [Option<Deadline>; N]);

impl<const N: usize> Deadlines<N> {
    /// Returns the earliest one: when the machine wants to be woken.
    pub(super) fn next(self) -> Option<Deadline> {
        self.0.into_iter().flatten().min()
    }

    /// Returns why the machine has to act now. When several moments have passed, after a suspend say, it is not the
    /// earliest one that counts: the end of the run comes before a retry that was due before it.
    pub(super) fn due(self, now: Time) -> Option<Why> {
        let passed = self.0.into_iter().flatten().filter(|deadline| deadline.at <= now);
        passed.map(|deadline| deadline.why).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_wakes_and_the_gravest_acts() {
        let deadline = |at, why| Some(Deadline { at: Time(at), why });
        let deadlines =
            || Deadlines([deadline(5, Why::RetryDue), None, deadline(7, Why::RunLimit)]);
        assert_eq!(deadlines().next(), deadline(5, Why::RetryDue));
        assert_eq!(deadlines().due(Time(4)), None);
        assert_eq!(deadlines().due(Time(6)), Some(Why::RetryDue));
        assert_eq!(deadlines().due(Time(7)), Some(Why::RunLimit));
    }
}
