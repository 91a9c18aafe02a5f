//! A fault directly after a certain transition of the chart, which random faults hit rarely.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pairs::transition_count;
use super::rng::Rng;

/// The kind of a directed fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectedKind {
    /// A signal arrives.
    Signal,
    /// A task reports an internal error.
    InternalError,
    /// The journal fails.
    StoreError,
    /// The process dies.
    Crash,
    /// The tasks that are started then never return.
    Hang,
}

/// A fault of a process, and the newest transition that the process has taken.
#[derive(Clone, Default)]
pub(super) struct DirectedFault(Arc<Mutex<DirectedState>>);

#[derive(Default)]
struct DirectedState {
    after: Option<(usize, DirectedKind)>,
    newest: Option<usize>,
    has_occurred: bool,
}

impl DirectedFault {
    pub(super) fn random(chance: &Rng) -> Self {
        const KINDS: [DirectedKind; 6] = [
            DirectedKind::Signal,
            DirectedKind::InternalError,
            DirectedKind::StoreError,
            DirectedKind::Crash,
            DirectedKind::Hang,
            DirectedKind::Hang,
        ];
        let after = chance.once_in(2).then(|| {
            let number = chance.below(transition_count() as u64);
            (usize::try_from(number).unwrap(), chance.of(&KINDS))
        });
        Self(Arc::new(Mutex::new(DirectedState { after, ..DirectedState::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, DirectedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a transition; returns the one before it.
    pub(super) fn take(&self, number: usize) -> Option<usize> {
        self.lock().newest.replace(number)
    }

    /// Records the start of another process.
    pub(super) fn begin(&self) {
        self.lock().newest = None;
    }

    /// Returns whether this fault occurs now. Each occurs once, except `Hang`: all tasks that start then hang.
    pub(super) fn occurs(&self, kind: DirectedKind) -> bool {
        let mut state = self.lock();
        let is_due = state.newest.is_some()
            && state.after.is_some_and(|(number, due)| Some(number) == state.newest && due == kind)
            && !state.has_occurred;
        state.has_occurred |= is_due && kind != DirectedKind::Hang;
        is_due
    }
}
