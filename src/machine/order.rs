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

/// Returns which calls may start now, in call order.
pub(super) fn startable(calls: &[(&Access, Progress)], parallel: u32) -> Vec<usize> {
    let open = calls.iter().filter(|(_, progress)| *progress == Progress::Open).count();
    let places = (parallel.max(1) as usize).saturating_sub(open);
    let free = |index: usize| {
        let (access, progress) = &calls[index];
        *progress == Progress::Queued
            && calls[..index].iter().all(|(earlier, progress)| {
                *progress == Progress::Settled || !earlier.conflicts(access)
            })
    };
    (0..calls.len()).filter(|index| free(*index)).take(places).collect()
}

#[cfg(test)]
mod tests {
    use super::Progress::{Open, Queued, Settled};
    use super::*;

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
