//! The pairs of consecutive transitions of the chart that the runs take.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

use architect::machine::chart::Chart;
use architect::machine::{Event, EventKind, Guard, State, StateKind};
use architect::types::WordEnum as _;

use super::pair_names::{label, meet, short_label, why_impossible};

/// For each transition of the chart, those that followed it, as the bits of their numbers.
#[derive(Clone, Default, Debug, PartialEq)]
pub(super) struct TakenPairs(Vec<u128>);

/// The pairs that the processes of a session and its sub-agents take.
#[derive(Clone, Default)]
pub(super) struct SharedPairs(Arc<Mutex<TakenPairs>>);

/// The transitions of the chart by state and event, in the order of evaluation: their numbers and guards.
type TransitionTable = Vec<Vec<Vec<(usize, Option<Guard>)>>>;

fn chart() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    CHART.get_or_init(|| Chart::for_run().unwrap())
}

/// Returns the number of the chart's transitions.
pub(super) fn transition_count() -> usize {
    chart().transitions.len()
}

fn transition_table() -> &'static TransitionTable {
    static TABLE: OnceLock<TransitionTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let number =
            |arrow| chart().transitions.iter().position(|other| std::ptr::eq(other, arrow));
        let guard = |name: &str| Guard::from_word(name).unwrap();
        let arrows = |state: StateKind, event: EventKind| {
            let arrows = chart().transitions_for(state.as_str(), event.as_str());
            arrows
                .map(|arrow| (number(arrow).unwrap(), arrow.guard.as_deref().map(guard)))
                .collect()
        };
        let events = |state| EventKind::ALL.into_iter().map(|event| arrows(state, event)).collect();
        StateKind::ALL.into_iter().map(events).collect()
    })
}

/// Returns the number of the transition that the chart names for an event.
pub(super) fn transition_number(state: &State, event: &Event) -> Option<usize> {
    if event.effect_id().is_some() && !state.awaits(event) {
        return None;
    }
    let arrows = &transition_table()[state.kind() as usize][event.kind() as usize];
    let taken =
        arrows.iter().find(|(_, guard)| guard.is_none_or(|guard| guard.holds(state, event)));
    taken.map(|(number, _)| *number)
}

impl SharedPairs {
    /// Adds a transition and the one before it, if there is one.
    pub(super) fn add(&self, first: Option<usize>, second: usize) {
        let Some(first) = first else { return };
        let mut taken = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        taken.0.resize(chart().transitions.len(), 0);
        taken.0[first] |= 1 << second;
    }

    pub(super) fn taken(&self) -> TakenPairs {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl TakenPairs {
    pub(super) fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(taken, other)| *taken |= other);
    }

    /// Returns the number of taken pairs, and the names of the possible pairs that were not taken.
    pub(super) fn count(&self) -> (usize, BTreeSet<String>) {
        let (mut count, mut missing) = (0, BTreeSet::new());
        for (number, first) in chart().transitions.iter().enumerate() {
            for (other, second) in chart().transitions.iter().enumerate() {
                let is_taken = self.0.get(number).is_some_and(|taken| taken >> other & 1 == 1);
                let name = || format!("{}, then {}", label(first), short_label(second));
                let is_possible =
                    meet(chart(), first, second) && why_impossible(first, second).is_none();
                assert!(is_possible || !is_taken, "an impossible pair was taken: {}", name());
                count += usize::from(is_taken);
                if is_possible && !is_taken {
                    missing.insert(name());
                }
            }
        }
        (count, missing)
    }
}
