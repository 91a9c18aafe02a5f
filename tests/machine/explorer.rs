//! A breadth-first search over every state that the small world can reach.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use architect::machine::{
    Attempt, CallStage, CloseStage, EventKind, Next, Slot, Spent, State, StateKind, start,
};
use architect::machine::{Event, step};
use architect::model::{EffectId, Span};

use crate::alphabet::World;
use crate::{alphabet, invariants};

/// What is explored: the transition function, or one with a defect in it.
pub(crate) type Step = fn(State, Event) -> Next;

/// What the search has seen.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) pairs: usize,
    pub(crate) edges: BTreeSet<(StateKind, EventKind, StateKind)>,
    pub(crate) violations: BTreeSet<String>,
}

/// Explores every state from the start, calling `visit` with each state, event and result, up to so many states.
pub(crate) fn explore(
    world: &World,
    step: Step,
    most: usize,
    mut visit: impl FnMut(&State, &Event, &Next),
) -> Report {
    let mut report = Report::default();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::new();
    let first = start(world.rules.clone(), alphabet::task()).state;
    seen.insert(canonical(first.clone()));
    queue.push_back(first);
    while let Some(state) = queue.pop_front() {
        for event in alphabet::events(&state, world.words) {
            let next = step(state.clone(), event.clone());
            report.pairs += 1;
            report.violations.extend(invariants::broken(&state, &event, &next));
            if next.state != state || !next.effects.is_empty() {
                report.edges.insert((state.kind(), event.kind(), next.state.kind()));
            }
            visit(&state, &event, &next);
            let canonical = canonical(next.state);
            if seen.len() < most && seen.insert(canonical.clone()) {
                queue.push_back(canonical);
            }
        }
    }
    report.states = seen.len();
    report
}

/// The same state without what decides nothing: effects are numbered from one; where no time limit counts from the
/// begin of the run, it is always the begin; where no budget is set, nothing was spent.
fn canonical(mut state: State) -> State {
    let now = state.run().now;
    let shift = match state.run().rules.limits.timeout {
        Some(_) => Span(0),
        None => Span(now.0),
    };
    let mut ids = (1..).map(EffectId);
    let mut fresh = |id: &mut EffectId| *id = ids.next().unwrap();
    match &mut state {
        State::Preparing(state) => {
            fresh(&mut state.id);
            state.due = state.due.before(shift);
        }
        State::Compacting(state) => attempt(&mut state.attempt, shift, fresh),
        State::Calling(state) => {
            state.due = state.due.map(|due| due.before(shift));
            match &mut state.stage {
                CallStage::Asking(asking) => attempt(asking, shift, fresh),
                CallStage::Checking { id, due, .. } => {
                    fresh(id);
                    *due = due.before(shift);
                }
            }
        }
        State::Executing(state) => {
            for call in &mut state.calls {
                match &mut call.slot {
                    Slot::Vetting { id, due } | Slot::Running { id, due, .. } => {
                        fresh(id);
                        *due = due.before(shift);
                    }
                    Slot::Queued | Slot::Settled(_) => {}
                }
            }
        }
        State::Closing(state) => {
            state.due = state.due.before(shift);
            match &mut state.stage {
                CloseStage::Preparing { id } | CloseStage::Sending { id, .. } => fresh(id),
            }
        }
        State::Done(_) => {}
    }
    let run = match &mut state {
        State::Preparing(state) => &mut state.run,
        State::Compacting(state) => &mut state.run,
        State::Calling(state) => &mut state.run,
        State::Executing(state) => &mut state.run,
        State::Closing(state) => &mut state.run,
        State::Done(state) => &mut state.run,
    };
    run.next = EffectId(10);
    run.calls = 0;
    run.sends = 0;
    run.now = run.now.before(shift);
    if run.rules.limits.budget.is_none() && run.rules.limits.max_tokens.is_none() {
        run.spent = Spent::default();
    }
    state
}

fn attempt(attempt: &mut Attempt, shift: Span, mut fresh: impl FnMut(&mut EffectId)) {
    match attempt {
        Attempt::Sending { id, due, .. } => {
            fresh(id);
            *due = due.before(shift);
        }
        Attempt::Waiting { until, .. } => *until = until.before(shift),
    }
}

#[test]
fn every_invariant_holds_in_every_reachable_state() {
    let mut states = 0;
    for world in alphabet::worlds() {
        let begun = Instant::now();
        let report = explore(&world, step, usize::MAX, |_, _, _| {});
        let World { name, .. } = world;
        println!("{name}: {} states, {} pairs, {:?}", report.states, report.pairs, begun.elapsed());
        assert_eq!(report.violations, BTreeSet::new(), "{name}");
        states += report.states;
    }
    assert!(states > 200_000, "only {states} states: the exploration has become shallow");
}
