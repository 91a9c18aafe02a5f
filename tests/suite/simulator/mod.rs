//! The driver in a simulated environment: random replies of the model, delays, tools, servers and hooks, journal failures and
//! crashes. Time is virtual, and a seed determines everything. Where only the order of inputs matters, all orders are tried
//! (`interleavings`).
//!
//! After every event the machine's invariants are checked; before every effect, that its reason is durable; after every
//! run, that its journal replays to the same state. `SEEDS=100000` runs more seeds, `SEED=7` runs one. A life that fails is
//! made as small as possible, and printed as a scenario.

#[path = "../../machine/invariants.rs"]
mod invariants;

mod executor;
mod failing_life;
mod hooks;
mod interleavings;
mod journal;
mod model;
pub(crate) mod rng;
mod session_life;
mod tools;

use std::collections::BTreeMap;
use std::path::Path;

use architect::machine::Event;
use architect::workflow::scenario::Scenario;
use rayon::prelude::*;

use journal::{SharedDisk, StoredRecord};
use rng::Rng;
use session_life::{InjectedFault, SessionLife};

/// How many seeds are run by default.
const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed, and says what is known of it if it fails.
fn simulate_seed(seed: u64, trouble: InjectedFault) -> SessionLife {
    let life = || SessionLife::simulate(&Rng::new(seed), trouble, &SharedDisk::default());
    std::panic::catch_unwind(life).unwrap_or_else(|_| {
        panic!("a life fails:\n{}", failing_life::report(seed, trouble));
    })
}

/// What the lives of some seeds had.
#[derive(Default)]
struct LifeCounts {
    reasons: BTreeMap<&'static str, u64>,
    crashes: u64,
    checkpoints: u64,
    subagents: u64,
    fallbacks: u64,
}

impl LifeCounts {
    fn of(life: &SessionLife) -> Self {
        let reports = |event: &Event| matches!(event, Event::UsageReported { .. });
        let has = |is: &dyn Fn(&StoredRecord) -> bool| {
            u64::from(life.records.iter().any(|(_, record)| is(record)))
        };
        Self {
            reasons: [(life.reason(), 1)].into(),
            crashes: life.crashes,
            checkpoints: has(&|record| *record == StoredRecord::Checkpoint),
            subagents: has(
                &|record| matches!(record, StoredRecord::Event(event) if reports(event)),
            ),
            fallbacks: u64::from(life.fold.state.run().model > 0),
        }
    }

    fn add(mut self, other: Self) -> Self {
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.crashes += other.crashes;
        self.checkpoints += other.checkpoints;
        self.subagents += other.subagents;
        self.fallbacks += other.fallbacks;
        self
    }
}

#[test]
fn any_run_ends_and_breaks_no_invariant() {
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let lives = seeds.clone().into_par_iter();
    let counts = lives
        .map(|seed| LifeCounts::of(&simulate_seed(seed, InjectedFault::Chance)))
        .reduce(LifeCounts::default, LifeCounts::add);
    let LifeCounts { reasons, crashes, checkpoints, subagents, fallbacks } = counts;
    println!(
        "{crashes} crashes; with checkpoints {checkpoints}, sub-agents {subagents}, other models {fallbacks}; {reasons:?}"
    );
    let many = seeds.end - seeds.start;
    if many >= SEEDS {
        // A simulation without variety shows nothing.
        assert!(reasons.len() >= 14, "only these stop reasons occurred: {reasons:?}");
        assert!(crashes > many / 4, "only {crashes} crashes");
        let rare = checkpoints.min(subagents).min(fallbacks);
        assert!(rare > many / 50, "{checkpoints}, {subagents}, {fallbacks} of {many}");
    }
}

/// A life is taken for a failing one because of a single interrupted call. What is left of it has nothing else, and is a
/// scenario.
#[test]
fn a_failing_life_becomes_small_and_a_scenario() {
    let is_interrupted = |chance: &Rng, disk: &SharedDisk| {
        let life = SessionLife::simulate(chance, InjectedFault::Chance, disk);
        life.reason() == "user_interrupt" && life.fold.state.run().steps > 0
    };
    let fails = |chance: &Rng| is_interrupted(chance, &SharedDisk::default());
    let seed = (0..).find(|seed| fails(&Rng::new(*seed))).unwrap();
    let quiet = failing_life::minimize(seed, fails);
    let (disk, whole) = (SharedDisk::default(), SharedDisk::default());
    assert!(is_interrupted(&Rng::with_quiet(seed, quiet), &disk));
    assert!(is_interrupted(&Rng::new(seed), &whole));
    let (small, large) = (disk.lock().records.len(), whole.lock().records.len());
    assert!(small < large && small < 14, "{small} of {large} records");
    let text = failing_life::scenario(&disk).unwrap();
    Scenario::parse(Path::new("life.toml"), &text).unwrap();
    assert!(text.contains("signal = "), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (first, second) = (
            simulate_seed(seed, InjectedFault::Chance),
            simulate_seed(seed, InjectedFault::Chance),
        );
        assert_eq!(first.records, second.records, "seed {seed}");
    }
}

/// A journal that fails at its Nth use, once or from then on: the run ends there with that reason.
#[test]
fn the_nth_use_of_the_journal_fails() {
    for seed in 0..4 {
        let uses = simulate_seed(seed, InjectedFault::None).uses;
        assert!(uses > 5, "seed {seed} hardly writes");
        for nth in 0..uses {
            for trouble in [InjectedFault::FailsOnce(nth), InjectedFault::FailsFrom(nth)] {
                let life = simulate_seed(seed, trouble);
                // A failure at the very end may only affect the end record.
                let is_reported = life.reason() == "store_error" || nth + 3 >= uses;
                assert!(is_reported, "seed {seed}, {trouble:?} of {uses}: {}", life.reason());
            }
        }
    }
}

/// The process dies at the Nth use of the journal, and the session is resumed.
#[test]
fn the_process_dies_at_the_nth_use_of_the_journal() {
    for seed in 0..8 {
        let uses = simulate_seed(seed, InjectedFault::None).uses;
        for nth in 0..uses {
            assert_eq!(
                simulate_seed(seed, InjectedFault::DiesAt(nth)).crashes,
                1,
                "seed {seed}, {nth}"
            );
        }
    }
}

/// The reader of the output is gone from the Nth output on: the run ends soon.
#[test]
fn the_reader_disappears_at_the_nth_output() {
    for seed in 0..4 {
        let shown = simulate_seed(seed, InjectedFault::None).shown;
        for nth in 0..shown.min(60) {
            let reason = simulate_seed(seed, InjectedFault::ReaderLeaves(nth)).reason();
            assert!(reason == "user_interrupt" || nth + 4 >= shown, "seed {seed}, {nth}: {reason}");
        }
    }
}

/// The Nth task panics or never returns, once or from then on, or the process dies with its result: the run ends anyway,
/// and its journal says how.
#[test]
fn the_nth_task_fails() {
    for seed in 0..12 {
        let works = simulate_seed(seed, InjectedFault::None).works;
        for nth in 0..works {
            for trouble in [
                InjectedFault::BreaksDownOnce(nth),
                InjectedFault::BreaksDownFrom(nth),
                InjectedFault::HangsOnce(nth),
                InjectedFault::HangsFrom(nth),
            ] {
                assert_eq!(simulate_seed(seed, trouble).crashes, 0, "seed {seed}, {trouble:?}");
            }
            assert_eq!(
                simulate_seed(seed, InjectedFault::DiesAfter(nth)).crashes,
                1,
                "seed {seed}, {nth}"
            );
        }
    }
}
