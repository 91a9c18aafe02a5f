//! The order in which the tool calls of one reply run.
//!
//! A call may start once every earlier call that conflicts with it is complete, and while fewer calls than allowed are
//! running. Calls without conflicts run concurrently; an exclusive call runs alone.

use crate::model::CallAccess;

/// The progress of a call, as far as it affects the order of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulingState {
    /// It waits.
    Queued,
    /// It is being authorized, or runs.
    Started,
    /// It is complete.
    Completed,
}

/// A call, as far as it affects the order.
pub(crate) trait Schedulable {
    /// What it touches.
    fn access(&self) -> &CallAccess;

    /// Its progress.
    fn scheduling_state(&self) -> SchedulingState;
}

/// Returns the first call that may start now.
pub(crate) fn next_startable<C: Schedulable>(calls: &[C], parallel: u32) -> Option<usize> {
    let open =
        calls.iter().filter(|call| call.scheduling_state() == SchedulingState::Started).count();
    if open >= parallel.max(1) as usize {
        return None;
    }
    (0..calls.len()).find(|index| {
        let call = &calls[*index];
        call.scheduling_state() == SchedulingState::Queued
            && calls[..*index].iter().all(|earlier| {
                earlier.scheduling_state() == SchedulingState::Completed
                    || !earlier.access().conflicts_with(call.access())
            })
    })
}

#[cfg(test)]
mod tests {
    use super::SchedulingState::{Completed, Queued, Started};
    use super::*;

    impl Schedulable for (&CallAccess, SchedulingState) {
        fn access(&self) -> &CallAccess {
            self.0
        }

        fn scheduling_state(&self) -> SchedulingState {
            self.1
        }
    }

    /// Returns the calls that start now, in call order.
    fn startable(calls: &[(&CallAccess, SchedulingState)], parallel: u32) -> Vec<usize> {
        let mut calls = calls.to_vec();
        let mut started = Vec::new();
        while let Some(index) = next_startable(&calls, parallel) {
            calls[index].1 = Started;
            started.push(index);
        }
        started
    }

    #[test]
    fn reads_start_together_up_to_the_limit() {
        let read = CallAccess::read("");
        let calls = [(&read, Queued); 6];
        assert_eq!(startable(&calls, 4), [0, 1, 2, 3]);
        assert_eq!(startable(&calls, 1), [0]);
        let mut calls = calls;
        calls[0].1 = Completed;
        calls[1].1 = Started;
        assert_eq!(startable(&calls, 4), [2, 3, 4]);
    }

    #[test]
    fn changes_of_one_file_and_commands_keep_their_order() {
        let (a, b, any) = (CallAccess::write("a"), CallAccess::write("b"), CallAccess::Exclusive);
        assert_eq!(startable(&[(&a, Queued), (&a, Queued), (&b, Queued)], 4), [0, 2]);
        assert_eq!(startable(&[(&any, Queued), (&a, Queued), (&any, Queued)], 4), [0]);
        assert_eq!(startable(&[(&a, Started), (&any, Queued), (&b, Queued)], 4), [0; 0]);
        assert_eq!(startable(&[(&a, Completed), (&any, Queued), (&b, Queued)], 4), [1]);
    }
}
