//! In which order the tool calls of one reply run.
//!
//! A call may start when every earlier call that conflicts with it has settled, and when fewer calls than allowed are
//! under way. Calls that don't conflict form a wave and run together; an exclusive call is a wave of its own.

use crate::model::Access;

/// How far a call has come, as far as the order of the others depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its turn has not come.
    Queued,
    /// It is being judged, or runs.
    Open,
    /// It is answered.
    Settled,
}

/// A call, as far as the order depends on it.
pub(super) trait Waiting {
    /// What it touches.
    fn access(&self) -> &Access;

    /// How far it has come.
    fn progress(&self) -> Progress;
}

/// Returns the first call that may start now.
pub(super) fn next<C: Waiting>(calls: &[C], parallel: u32) -> Option<usize> {
    let open = calls.iter().filter(|call| call.progress() == Progress::Open).count();
    if open >= parallel.max(1) as usize {
        return None;
    }
    (0..calls.len()).find(|index| {
        let call = &calls[*index];
        call.progress() == Progress::Queued
            && calls[..*index].iter().all(|earlier| {
                earlier.progress() == Progress::Settled
                    || !earlier.access().conflicts(call.access())
            })
    })
}

#[cfg(test)]
mod tests {
    use super::Progress::{Open, Queued, Settled};
    use super::*;

    impl Waiting for (&Access, Progress) {
        fn access(&self) -> &Access {
            self.0
        }

        fn progress(&self) -> Progress {
            self.1
        }
    }

    /// Returns the calls that start now, in call order.
    fn startable(calls: &[(&Access, Progress)], parallel: u32) -> Vec<usize> {
        let mut calls = calls.to_vec();
        let mut started = Vec::new();
        while let Some(index) = next(&calls, parallel) {
            calls[index].1 = Open;
            started.push(index);
        }
        started
    }

    #[test]
    fn reads_start_together_up_to_the_limit() {
        let read = Access::read("");
        let calls = [(&read, Queued); 6];
        assert_eq!(startable(&calls, 4), [0, 1, 2, 3]);
        assert_eq!(startable(&calls, 1), [0]);
        let mut calls = calls;
        calls[0].1 = Settled;
        calls[1].1 = Open;
        assert_eq!(startable(&calls, 4), [2, 3, 4]);
    }

    #[test]
    fn changes_of_one_file_and_commands_keep_their_order() {
        let (a, b, any) = (Access::write("a"), Access::write("b"), Access::Exclusive);
        assert_eq!(startable(&[(&a, Queued), (&a, Queued), (&b, Queued)], 4), [0, 2]);
        assert_eq!(startable(&[(&any, Queued), (&a, Queued), (&any, Queued)], 4), [0]);
        assert_eq!(startable(&[(&a, Open), (&any, Queued), (&b, Queued)], 4), [0; 0]);
        assert_eq!(startable(&[(&a, Settled), (&any, Queued), (&b, Queued)], 4), [1]);
    }
}
