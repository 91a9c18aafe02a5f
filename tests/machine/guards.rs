//! Guards of time: if two of them lead back to the same state, the chart does not show which one applied.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use architect::machine::{DeadlineKind, Event, Guard, State, deadline, step};
use architect::types::RunTime;

use crate::explorer::{Visit, explore};
use crate::small_model;

/// The guards of time, with the deadlines for which each holds.
const GUARDS: [(Guard, &[DeadlineKind]); 6] = [
    (Guard::TimeIsUp, &[DeadlineKind::RunTimeout, DeadlineKind::StepTimeout]),
    (Guard::ClosingTimeoutDue, &[DeadlineKind::ClosingTimeout]),
    (Guard::EffectTimeoutDue, &[DeadlineKind::EffectTimeout]),
    (Guard::AttemptTimeoutDue, &[DeadlineKind::AttemptTimeout]),
    (Guard::RetryDue, &[DeadlineKind::RetryDue]),
    (Guard::ToolTimeoutDue, &[DeadlineKind::ToolTimeout]),
];

fn holding(state: &State, now: RunTime) -> Vec<&'static [DeadlineKind]> {
    let event = Event::Tick { now };
    GUARDS.iter().filter(|(guard, _)| guard.holds(state, &event)).map(|(_, why)| *why).collect()
}

/// All invariants hold in the first states as well.
#[test]
fn a_guard_of_time_holds_at_its_deadline_and_at_no_other() {
    let met = [const { AtomicU32::new(0) }; GUARDS.len()];
    for world in small_model::small_models() {
        let found = explore(&world, step, 4_000, |&Visit { state, .. }| {
            let Some(due) = deadline(state) else { return };
            assert!(holding(state, state.run().now).is_empty() || due.at <= state.run().now);
            if due.at > state.run().now {
                let before = RunTime(due.at.0 - 1);
                assert!(holding(state, before).is_empty(), "{before:?} is before {due:?}");
            }
            let now = holding(state, due.at);
            assert_eq!(now.len(), 1, "{due:?}: {now:?}");
            // If several deadlines coincide, the one that ends more takes effect.
            if now[0].contains(&due.kind) {
                let at = GUARDS.iter().position(|(_, why)| *why == now[0]).unwrap();
                met[at].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(found.violations, BTreeSet::new());
    }
    let met = met.map(AtomicU32::into_inner);
    assert!(met.iter().all(|count| *count > 0), "not each of them was due: {met:?}");
}
