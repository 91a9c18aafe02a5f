//! The order in which the tool calls of one reply run.
//!
//! A call may start once every earlier call that conflicts with it is complete, and while fewer calls than allowed are
//! running. Calls without conflicts run concurrently; an exclusive call runs alone.

use crate::types::CallAccess;

/// The progress of a call, for the order of other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulingState {
    /// The call waits.
    Queued,
    /// The call is being authorized, or runs.
    Started,
    /// The call is complete.
    Completed,
}

/// Returns the first call that may start now. `view` returns the access and the progress of a call.
pub(crate) fn next_startable<C>(
    calls: &[C],
    view: impl Fn(&C) -> (&CallAccess, SchedulingState),
    parallel: u32,
) -> Option<usize> {
    let is_started = |call: &&C| view(call).1 == SchedulingState::Started;
    if calls.iter().filter(is_started).count() >= parallel.max(1) as usize {
        return None;
    }
    (0..calls.len()).find(|index| {
        let (access, state) = view(&calls[*index]);
        state == SchedulingState::Queued
            && calls[..*index].iter().map(&view).all(|(earlier, state)| {
                state == SchedulingState::Completed || !earlier.conflicts_with(access)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::SchedulingState::{Completed, Queued, Started};
    use super::*;

    /// Returns the calls that start now, in call order.
    fn startable(calls: &[(&CallAccess, SchedulingState)], parallel: u32) -> Vec<usize> {
        let mut calls = calls.to_vec();
        let mut started = Vec::new();
        while let Some(index) = next_startable(&calls, |call| *call, parallel) {
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
