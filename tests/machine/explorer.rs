//! A breadth-first search over every state that the small model can reach.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use architect::machine::{
    BudgetUsage, CallAttempt, CallState, CallingStage, ClosingStage, EventKind, State, StateKind,
    Step, start,
};
use architect::machine::{Event, step};
use architect::model::{EffectId, TimeSpan};
use rayon::prelude::*;

use crate::small_model::SmallModel;
use crate::{invariants, liveness, small_model};

/// What is explored: the transition function, or one with a seeded defect.
pub(crate) type TransitionFn = fn(State, Event) -> Step;

/// The results of a search.
#[derive(Default)]
pub(crate) struct SearchReport {
    pub(crate) states: usize,
    pub(crate) pairs: usize,
    pub(crate) edges: BTreeSet<(StateKind, EventKind, StateKind)>,
    pub(crate) violations: BTreeSet<String>,
}

/// Explores every state from the start, up to this number of states, calling `visit` with each state, event and result.
/// The states of a batch are processed in parallel and their successors are added in order, so that a search is
/// deterministic; `visit` is called in no particular order.
pub(crate) fn explore(
    world: &SmallModel,
    step: TransitionFn,
    most: usize,
    visit: impl Fn(&State, &Event, &Step) + Sync,
) -> SearchReport {
    let mut report = SearchReport::default();
    let mut seen = StateSet::default();
    let mut queue = VecDeque::new();
    let first = start(world.rules.clone(), small_model::task()).state;
    seen.insert(CanonicalState::of(first.clone()));
    queue.push_back(Arc::new(first));
    while !queue.is_empty() {
        let batch: Vec<_> = queue.drain(..queue.len().min(BATCH)).collect();
        let looks =
            batch.par_chunks(CHUNK).map(|states| expand(world, step, states, &seen, &visit));
        for look in looks.collect::<Vec<_>>() {
            report.pairs += look.report.pairs;
            report.edges.extend(look.report.edges);
            report.violations.extend(look.report.violations);
            for canonical in look.new {
                let state = Arc::clone(&canonical.state);
                if seen.count < most && seen.insert(canonical) {
                    queue.push_back(state);
                }
            }
        }
    }
    report.states = seen.count;
    report
}

/// How many states are processed before their successors are added. With fewer, less is found twice.
const BATCH: usize = 4_096;

/// How many states one thread processes in a row.
const CHUNK: usize = 64;

/// The successors of some states.
#[derive(Default)]
struct Expansion {
    report: SearchReport,
    /// New states, in the order of discovery.
    new: Vec<CanonicalState>,
}

fn expand(
    world: &SmallModel,
    step: TransitionFn,
    states: &[Arc<State>],
    seen: &StateSet,
    visit: impl Fn(&State, &Event, &Step),
) -> Expansion {
    let mut look = Expansion::default();
    let mut met = StateSet::default();
    for state in states {
        for event in small_model::events(state, world.words) {
            let next = step(State::clone(state), event.clone());
            look.report.pairs += 1;
            look.report.violations.extend(invariants::violations(state, &event, &next));
            look.report.violations.extend(liveness::violations(state, &event, &next));
            let stays = next.state == **state;
            if !stays || !next.effects.is_empty() {
                look.report.edges.insert((state.kind(), event.kind(), next.state.kind()));
            }
            visit(state, &event, &next);
            // A state that is being processed has been seen.
            if stays {
                continue;
            }
            let canonical = CanonicalState::of(next.state);
            if !seen.has(&canonical) && met.insert(canonical.clone()) {
                look.new.push(canonical);
            }
        }
    }
    look
}

/// A state in its canonical form, and its hash, which is computed once.
#[derive(Clone)]
struct CanonicalState {
    hash: u64,
    state: Arc<State>,
}

impl CanonicalState {
    fn of(state: State) -> Self {
        let state = canonical(state);
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        Self { hash: hasher.finish(), state: Arc::new(state) }
    }
}

/// Returns the hash of the canonical form of a state, which is the same for all states that count as one.
pub(crate) fn canonical_hash(state: &State) -> u64 {
    CanonicalState::of(state.clone()).hash
}

/// A set of states by their hashes. States with the same hash are compared.
#[derive(Default)]
struct StateSet {
    states: HashMap<u64, Vec<Arc<State>>>,
    count: usize,
}

impl StateSet {
    fn has(&self, canonical: &CanonicalState) -> bool {
        self.states.get(&canonical.hash).is_some_and(|states| states.contains(&canonical.state))
    }

    /// Adds a state; returns whether it is new.
    fn insert(&mut self, canonical: CanonicalState) -> bool {
        let states = self.states.entry(canonical.hash).or_default();
        let is_new = !states.contains(&canonical.state);
        if is_new {
            states.push(canonical.state);
            self.count += 1;
        }
        is_new
    }
}

/// The same state without what affects nothing: effects are numbered from one; without a time limit from the start of
/// the run, the time is always that of the start; without a budget, nothing was used.
pub(crate) fn canonical(mut state: State) -> State {
    let now = state.run().now;
    let shift = match state.run().rules.limits.timeout {
        Some(_) => TimeSpan(0),
        None => TimeSpan(now.0),
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
            state.step_deadline = state.step_deadline.map(|due| due.before(shift));
            match &mut state.stage {
                CallingStage::Requesting(asking) => attempt(asking, shift, fresh),
                CallingStage::Checking { id, due, .. } => {
                    fresh(id);
                    *due = due.before(shift);
                }
            }
        }
        State::Executing(state) => {
            for call in &mut state.calls {
                match &mut call.state {
                    CallState::Authorizing { id, due } | CallState::Running { id, due, .. } => {
                        fresh(id);
                        *due = due.before(shift);
                    }
                    CallState::Queued | CallState::Completed(_) => {}
                }
            }
        }
        State::Closing(state) => {
            state.due = state.due.before(shift);
            match &mut state.stage {
                ClosingStage::Preparing { id } | ClosingStage::Sending { id, .. } => fresh(id),
            }
        }
        State::Done(_) => {}
    }
    let run = small_model::run_mut(&mut state);
    run.next_effect = EffectId(100);
    for (number, command) in (10..).zip(&mut run.commands) {
        command.id = EffectId(number);
    }
    run.model_calls = 0;
    run.requests = 0;
    run.now = run.now.before(shift);
    if run.rules.limits.budget.is_none() && run.rules.limits.max_tokens.is_none() {
        run.used = BudgetUsage::default();
    }
    state
}

fn attempt(attempt: &mut CallAttempt, shift: TimeSpan, mut fresh: impl FnMut(&mut EffectId)) {
    match attempt {
        CallAttempt::Sending { id, due, .. } => {
            fresh(id);
            *due = due.before(shift);
        }
        CallAttempt::Waiting { until, .. } => *until = until.before(shift),
    }
}

#[test]
fn every_invariant_holds_in_every_reachable_state() {
    let mut states = 0;
    for world in small_model::small_models() {
        let begun = Instant::now();
        let report = explore(&world, step, usize::MAX, |_, _, _| {});
        let SmallModel { name, .. } = world;
        println!("{name}: {} states, {} pairs, {:?}", report.states, report.pairs, begun.elapsed());
        assert_eq!(report.violations, BTreeSet::new(), "{name}");
        states += report.states;
    }
    assert!(states > 200_000, "only {states} states: the exploration has become shallow");
}
