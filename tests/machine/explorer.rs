//! A breadth-first search over every state that the small world can reach.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use architect::machine::{
    Attempt, CallStage, CloseStage, EventKind, Next, Slot, Spent, State, StateKind, start,
};
use architect::machine::{Event, step};
use architect::model::{EffectId, Span};
use rayon::prelude::*;

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

/// Explores every state from the start, calling `visit` with each state, event and result, up to so many states. The
/// states of a batch are looked at in parallel, and what follows from them is taken in their order, so that the same
/// states are found each time; `visit` is called in no particular order.
pub(crate) fn explore(
    world: &World,
    step: Step,
    most: usize,
    visit: impl Fn(&State, &Event, &Next) + Sync,
) -> Report {
    let mut report = Report::default();
    let mut seen = Seen::default();
    let mut queue = VecDeque::new();
    let first = start(world.rules.clone(), alphabet::task()).state;
    seen.insert(Canonical::of(first.clone()));
    queue.push_back(Arc::new(first));
    while !queue.is_empty() {
        let batch: Vec<_> = queue.drain(..queue.len().min(BATCH)).collect();
        let looks = batch.par_chunks(CHUNK).map(|states| look(world, step, states, &seen, &visit));
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

/// How many states are looked at before what follows from them is taken; the fewer, the less is found twice.
const BATCH: usize = 4_096;

/// How many states one thread looks at in a row.
const CHUNK: usize = 64;

/// What some states lead to.
#[derive(Default)]
struct Look {
    report: Report,
    /// States that had not been seen before, in the order in which they were met.
    new: Vec<Canonical>,
}

fn look(
    world: &World,
    step: Step,
    states: &[Arc<State>],
    seen: &Seen,
    visit: impl Fn(&State, &Event, &Next),
) -> Look {
    let mut look = Look::default();
    let mut met = Seen::default();
    for state in states {
        for event in alphabet::events(state, world.words) {
            let next = step(State::clone(state), event.clone());
            look.report.pairs += 1;
            look.report.violations.extend(invariants::broken(state, &event, &next));
            let stays = next.state == **state;
            if !stays || !next.effects.is_empty() {
                look.report.edges.insert((state.kind(), event.kind(), next.state.kind()));
            }
            visit(state, &event, &next);
            // A state that is looked at has been seen.
            if stays {
                continue;
            }
            let canonical = Canonical::of(next.state);
            if !seen.has(&canonical) && met.insert(canonical.clone()) {
                look.new.push(canonical);
            }
        }
    }
    look
}

/// A state in its canonical form, and its hash, which is computed once.
#[derive(Clone)]
struct Canonical {
    hash: u64,
    state: Arc<State>,
}

impl Canonical {
    fn of(state: State) -> Self {
        let state = canonical(state);
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        Self { hash: hasher.finish(), state: Arc::new(state) }
    }
}

/// A set of states by their hashes. States of the same hash are compared, so that none is taken for another one.
#[derive(Default)]
struct Seen {
    states: HashMap<u64, Vec<Arc<State>>>,
    count: usize,
}

impl Seen {
    fn has(&self, canonical: &Canonical) -> bool {
        self.states.get(&canonical.hash).is_some_and(|states| states.contains(&canonical.state))
    }

    /// Adds a state; returns whether it is new.
    fn insert(&mut self, canonical: Canonical) -> bool {
        let states = self.states.entry(canonical.hash).or_default();
        let is_new = !states.contains(&canonical.state);
        if is_new {
            states.push(canonical.state);
            self.count += 1;
        }
        is_new
    }
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
