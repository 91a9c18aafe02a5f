//! A breadth-first search over every state that the small model can reach.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use architect::machine::{
    BudgetUsage, CallAttempt, CallState, Calling, CallingStage, ClosingStage, EventKind, State,
    StateKind, Step, start,
};
use architect::machine::{Event, step};
use architect::types::{EffectId, TimeSpan, Tokens};
use rayon::prelude::*;

use crate::small_model::SmallModel;
use crate::{invariants, liveness, small_model};

/// The explored function: the transition function, or one with a seeded defect.
pub(crate) type TransitionFn = fn(State, Event) -> Step;

/// A step of a search.
pub(crate) struct Visit<'a> {
    pub(crate) state: &'a State,
    pub(crate) event: &'a Event,
    pub(crate) next: &'a Step,
    /// The hashes of the canonical forms of the states before and after.
    pub(crate) hash: u64,
    pub(crate) next_hash: u64,
}

/// The results of a search.
#[derive(Default)]
pub(crate) struct SearchReport {
    pub(crate) states: usize,
    pub(crate) pairs: usize,
    pub(crate) edges: BTreeSet<(StateKind, EventKind, StateKind)>,
    pub(crate) violations: BTreeSet<String>,
    /// For the hash of each state but the first: how it was found.
    pub(crate) discoveries: HashMap<u64, Discovery>,
}

/// The first discovery of a state.
pub(crate) struct Discovery {
    /// The hash of the state before.
    pub(crate) from: u64,
    /// The event in that state.
    pub(crate) event: Event,
    /// The number of steps from the start, which is the smallest one.
    pub(crate) depth: usize,
}

impl SearchReport {
    /// Returns the number of steps from the start to a state that was found.
    pub(crate) fn depth(&self, state: u64) -> usize {
        self.discoveries.get(&state).map_or(0, |discovery| discovery.depth)
    }

    /// Returns the events that lead to a state that was found, by a shortest path.
    pub(crate) fn path_to(&self, state: u64) -> Vec<Event> {
        let discoveries = |state: &u64| self.discoveries.get(state);
        let way = std::iter::successors(discoveries(&state), |next| discoveries(&next.from));
        let mut path: Vec<Event> = way.map(|discovery| discovery.event.clone()).collect();
        path.reverse();
        path
    }
}

/// Explores every state from the start, up to this number of states, calling `visit` with each step.
/// The states of a batch are processed in parallel and their successors are added in order, so that a search is
/// deterministic; `visit` is called in no particular order.
pub(crate) fn explore(
    world: &SmallModel,
    step: TransitionFn,
    most: usize,
    visit: impl Fn(&Visit<'_>) + Sync,
) -> SearchReport {
    let mut report = SearchReport::default();
    let mut seen = StateSet::default();
    let mut queue = VecDeque::new();
    let first = CanonicalState::of(start(world.rules.clone(), small_model::task()).state);
    seen.insert(first.clone());
    queue.push_back(first);
    while !queue.is_empty() {
        let batch: Vec<_> = queue.drain(..queue.len().min(BATCH)).collect();
        let looks =
            batch.par_chunks(CHUNK).map(|states| expand(world, step, states, &seen, &visit));
        for look in looks.collect::<Vec<_>>() {
            report.pairs += look.report.pairs;
            report.edges.extend(look.report.edges);
            report.violations.extend(look.report.violations);
            for (canonical, from, event) in look.new {
                if seen.count < most && seen.insert(canonical.clone()) {
                    let depth = report.depth(from) + 1;
                    report.discoveries.insert(canonical.hash, Discovery { from, event, depth });
                    queue.push_back(canonical);
                }
            }
        }
    }
    report.states = seen.count;
    report
}

/// The number of states that are processed before their successors are added. Small batches find more states twice.
const BATCH: usize = 4_096;

/// The number of states that one thread processes in a row.
const CHUNK: usize = 64;

/// The successors of some states.
#[derive(Default)]
struct Expansion {
    report: SearchReport,
    /// New states, in the order of discovery, each with the hash of the state before and the event.
    new: Vec<(CanonicalState, u64, Event)>,
}

fn expand(
    world: &SmallModel,
    step: TransitionFn,
    states: &[CanonicalState],
    seen: &StateSet,
    visit: impl Fn(&Visit<'_>),
) -> Expansion {
    let mut look = Expansion::default();
    let mut met = StateSet::default();
    for CanonicalState { hash, state } in states {
        for event in small_model::events(state, world.words) {
            let next = step(State::clone(state), event.clone());
            look.report.pairs += 1;
            look.report.violations.extend(invariants::violations(state, &event, &next));
            look.report.violations.extend(liveness::violations(state, &event, &next));
            let stays = next.state == **state;
            if !stays || !next.effects.is_empty() {
                look.report.edges.insert((state.kind(), event.kind(), next.state.kind()));
            }
            let seen_step = |next_hash| {
                visit(&Visit { state, event: &event, next: &next, hash: *hash, next_hash });
            };
            // A state that is being processed has been seen.
            if stays {
                seen_step(*hash);
                continue;
            }
            let canonical = CanonicalState::of(next.state.clone());
            seen_step(canonical.hash);
            if !seen.has(&canonical) && met.insert(canonical.clone()) {
                look.new.push((canonical, *hash, event));
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

/// Returns the same state without irrelevant details: effects are numbered from one; without a time limit from the
/// start of the run, the time is always that of the start, or, while a call is repeated for a time, counted from its
/// first failure; without a budget, nothing was used.
pub(crate) fn canonical(mut state: State) -> State {
    let run = state.run();
    let failing_since = run.failing_since.filter(|_| is_repeated(&state));
    let shift = match run.rules.limits.timeout {
        Some(_) => TimeSpan(0),
        None => TimeSpan(failing_since.unwrap_or(run.now).0),
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
    // Only that of a pending call counts, and a call begins without one.
    run.received = Tokens::ZERO;
    run.requests = 0;
    run.now = run.now.before(shift);
    run.failing_since = failing_since.map(|since| since.before(shift));
    if run.rules.limits.budget.is_none() && run.rules.limits.max_tokens.is_none() {
        run.used = BudgetUsage::default();
    }
    state
}

/// Returns whether an attempt at a model call follows one that failed.
fn is_repeated(state: &State) -> bool {
    let attempt = match state {
        State::Compacting(state) => state.attempt,
        State::Calling(Calling { stage: CallingStage::Requesting(attempt), .. }) => *attempt,
        _ => return false,
    };
    let (CallAttempt::Sending { number, .. } | CallAttempt::Waiting { number, .. }) = attempt;
    number > 1
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

/// Returns the results of the search through all states of all small models, which runs once for all tests.
pub(crate) fn complete_search() -> &'static [(&'static str, SearchReport)] {
    static FOUND: OnceLock<Vec<(&'static str, SearchReport)>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let search = |world: SmallModel| {
            let begun = Instant::now();
            let mut report = explore(&world, step, usize::MAX, |_| {});
            report.discoveries = HashMap::new(); // large, and not looked at
            let SmallModel { name, .. } = world;
            let SearchReport { states, pairs, .. } = report;
            println!("{name}: {states} states, {pairs} pairs, {:?}", begun.elapsed());
            (name, report)
        };
        small_model::small_models().into_iter().map(search).collect()
    })
}

/// Explores the small models, each up to this number of states and to a part of it first, until the search has found
/// violations that begin with each of these texts.
pub(crate) fn assert_found(step: TransitionFn, most: usize, violations: &[&str]) {
    let mut missing = violations.to_vec();
    let mut found = BTreeSet::new();
    for most in [most / 16, most] {
        for world in small_model::small_models() {
            found.extend(explore(&world, step, most, |_| {}).violations);
            missing.retain(|text| !found.iter().any(|violation| violation.starts_with(text)));
            if missing.is_empty() {
                return;
            }
        }
    }
    panic!("not found: {missing:?} in {found:#?}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes unless optimized: cargo test --release")]
fn every_invariant_holds_in_every_reachable_state() {
    let mut states = 0;
    for (name, report) in complete_search() {
        assert_eq!(report.violations, BTreeSet::new(), "{name}");
        states += report.states;
    }
    assert!(states > 200_000, "only {states} states: the exploration has become shallow");
}
