//! Liveness: every run ends. The facts about a single step that `machine::rank` names, in every explored state and in the
//! lives of the property tests, and defects that make a run endless.

use architect::machine::{CallState, CompactionHistory, Streaks};
use architect::machine::{Event, Rank, State, StateKind, Step, deadline, rank, step};
use architect::types::RunRules;

use crate::explorer::{self, TransitionFn};
use crate::graph::StateGraph;
use crate::small_model::{self, EventSet, SmallModel};

/// Returns the facts about the rank that a step contradicts.
pub(crate) fn violations(before: &State, event: &Event, next: &Step) -> Vec<String> {
    let (old, new) = (rank(before), rank(&next.state));
    let stutters = is_stutter(before, event, next);
    let due =
        matches!(event, Event::Tick { now } if deadline(before).is_some_and(|due| due.at <= *now));
    let facts = [
        ("the rank falls unless only clock or usage change", stutters || new < old),
        ("clock and usage leave rank and deadline as they are", {
            !stutters || (new == old && deadline(before) == deadline(&next.state))
        }),
        ("the deadline changes the state", !due || !stutters),
        ("only the final state has the phase zero", {
            (new.phase == 0) == (next.state.kind() == StateKind::Done)
        }),
    ];
    let place = || {
        let kinds = (before.kind(), event.kind(), next.state.kind());
        format!("{} on {} -> {}", kinds.0.as_str(), kinds.1.as_str(), kinds.2.as_str())
    };
    let broken = facts.into_iter().filter(|(_, holds)| !holds);
    broken.map(|(name, _)| format!("{name}: {}", place())).collect()
}

/// Returns whether a step changes at most the clock, the usage, and the budget shares of sub-agents. The rest of a
/// state is compared field by field, so that a new field counts as a change.
fn is_stutter(before: &State, event: &Event, next: &Step) -> bool {
    let changes_little = matches!(event, Event::Tick { .. } | Event::UsageReported { .. });
    if next.state == *before {
        return true;
    }
    changes_little && next.effects.is_empty() && without_clock(before) == without_clock(&next.state)
}

fn without_clock(state: &State) -> State {
    let mut state = state.clone();
    if let State::Executing(executing) = &mut state {
        for call in &mut executing.calls {
            if let CallState::Running { budget, .. } = &mut call.state {
                *budget = None;
            }
        }
    }
    let run = small_model::run_mut(&mut state);
    (run.now, run.used) = Default::default();
    state
}

/// Asserts that the search finds, at each of these places, that the rank doesn't fall.
fn assert_found(step: TransitionFn, places: &[&str]) {
    let name = "the rank falls unless only clock or usage change";
    let violations: Vec<_> = places.iter().map(|place| format!("{name}: {place}")).collect();
    let violations: Vec<_> = violations.iter().map(String::as_str).collect();
    explorer::assert_found(step, 4_000, &violations);
}

/// Returns the counters of a run, which the defects set back.
fn streaks(state: &State) -> Streaks {
    state.run().streaks
}

#[test]
fn a_retry_that_does_not_count_is_found() {
    fn endless(state: State, event: Event) -> Step {
        let fails = matches!(event, Event::CallFailed { .. }) && state.awaits(&event);
        let mut next = step(state, event);
        if let (true, Some(attempt)) = (fails, small_model::waiting_attempt(&mut next.state)) {
            *attempt -= 1;
        }
        next
    }
    assert_found(
        endless,
        &[
            "Calling.Sending on FAILED -> Calling.Waiting",
            "Compacting.Sending on FAILED -> Compacting.Waiting",
        ],
    );
}

/// Each failure is taken for the first one.
#[test]
fn a_retry_whose_time_begins_again_is_found() {
    fn endless(state: State, event: Event) -> Step {
        let mut next = step(state, event);
        if small_model::waiting_attempt(&mut next.state).is_some() {
            let run = small_model::run_mut(&mut next.state);
            run.failing_since = run.failing_since.and(Some(run.now));
        }
        next
    }
    assert_found(
        endless,
        &[
            "Calling.Sending on FAILED -> Calling.Waiting",
            "Compacting.Sending on FAILED -> Compacting.Waiting",
        ],
    );
}

/// A compaction that did not make the context smaller is forgotten, and follows again.
#[test]
fn a_compaction_that_does_not_shrink_and_does_not_count_is_found() {
    fn endless(state: State, event: Event) -> Step {
        let before = state.run().compactions;
        let is_futile = |new: CompactionHistory| new.is_futile || new.count > before.count;
        let mut next = step(state, event);
        if is_futile(next.state.run().compactions) {
            small_model::run_mut(&mut next.state).compactions = before;
        }
        next
    }
    assert_found(
        endless,
        &["Preparing on PREPARED -> Compacting.Sending", "Preparing on PREPARED -> Preparing"],
    );
}

#[test]
fn a_steering_message_that_resets_a_counter_is_found() {
    fn endless(state: State, event: Event) -> Step {
        let steers = matches!(&event, Event::Prepared { messages, .. } if !messages.is_empty());
        let mut next = step(state, event);
        if steers {
            small_model::run_mut(&mut next.state).streaks = Streaks::default();
        }
        next
    }
    assert_found(endless, &["Preparing on PREPARED -> Calling.Sending"]);
}

fn always_send_back(state: State, event: Event) -> Step {
    let before = streaks(&state);
    let mut next = step(state, event);
    let run = small_model::run_mut(&mut next.state);
    if run.streaks.sent_back > before.sent_back {
        run.streaks = before;
    }
    next
}

#[test]
fn a_check_that_always_sends_back_is_found() {
    assert_found(always_send_back, &["Calling.Checking on CHECKED -> Preparing"]);
}

#[test]
fn a_change_of_the_model_that_does_not_count_is_found() {
    fn endless(state: State, event: Event) -> Step {
        let (model, rules) = (state.run().model, state.run().rules.clone());
        let mut next = step(state, event);
        let run = small_model::run_mut(&mut next.state);
        if run.model > model {
            (run.model, run.rules) = (model, rules);
        }
        next
    }
    assert_found(
        endless,
        &["Calling.Sending on FAILED -> Preparing", "Calling.Sending on TICK -> Preparing"],
    );
}

/// The defect also shows without the rank: there is a cycle of states, and none in the function itself.
#[test]
fn a_run_without_an_end_is_a_cycle_of_states() {
    let mut rules = RunRules { has_checks: true, ..small_model::rules() };
    rules.limits.max_steps = 1;
    let world = SmallModel { name: "checked", rules, words: EventSet::Small };
    assert!(StateGraph::of(&world, always_send_back).longest_path().is_none());
    assert!(StateGraph::of(&world, step).longest_path().is_some());
}

#[test]
fn ranks_are_compared_from_left_to_right() {
    let least = Rank { steps: 0, repeats: 0, phase: 0, work: 0, commands: 0 };
    let later = Rank { steps: 0, repeats: 9, phase: 7, work: 9, commands: 9 };
    assert!(least < later && later < Rank { steps: 1, ..least });
}
