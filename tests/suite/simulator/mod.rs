//! The driver in a simulated environment: random replies of the model, delays, tools, servers, commands in the background,
//! sub-agents, hooks and checkpoints, errors of the disk and crashes, and sessions that are continued after their end. Time
//! is virtual, and a seed determines everything. Where only the order of inputs matters, all orders are tried
//! (`interleavings`).
//!
//! After every event the machine's invariants are checked; before every effect, that its reason is durable, and that
//! the journal has not failed; after every crash and every run, that its journal replays to the same state; after every
//! run, that it kept its limits. `SEEDS=100000` runs more seeds, `FIRST_SEED` sets the first of them, `SEED=7` runs
//! one. A life that fails is minimized, and printed as a scenario; `LIFE=FILE` simulates the life of a scenario.

#[path = "../../machine/invariants.rs"]
mod invariants;
#[path = "../../machine/pair_names.rs"]
mod pair_names;

mod directed_fault;
mod executor;
mod failing_life;
mod hooks;
mod interleavings;
mod journal;
mod model;
mod pairs;
pub(crate) mod rng;
mod session_life;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use architect::app::ProcessEnv;
use architect::machine::Event;
use architect::workflow::scenario::{Scenario, ScenarioOutcome, run_all};
use rayon::prelude::*;

use failing_life::LifeSeed;
use journal::{SharedDisk, StoredRecord};
use pairs::TakenPairs;
use session_life::{InjectedFault, SessionLife};

/// The default number of seeds.
const SEEDS: u64 = 10_000;

/// The number of reported failing lives.
const REPORTED: usize = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Simulates the life of a seed, and panics with a report if it fails.
fn simulate_seed(seed: u64, fault: InjectedFault) -> SessionLife {
    let life = LifeSeed { seed, fault, choices: None };
    std::panic::catch_unwind(|| life.simulate(&SharedDisk::default()))
        .unwrap_or_else(|_| panic!("a life fails:\n{}", life.report()))
}

/// Counts over the lives of some seeds.
#[derive(Default)]
struct LifeCounts {
    reasons: BTreeMap<&'static str, u64>,
    /// The number of lives with each feature.
    features: BTreeMap<&'static str, u64>,
    crashes: u64,
    pairs: TakenPairs,
    failing: BTreeSet<u64>,
}

/// Features of lives. Of many lives, more than one in fifty has each of them.
const FEATURES: [&str; 8] = [
    "checkpoints",
    "commands in the background",
    "continued",
    "crashes",
    "errors of the disk",
    "other models",
    "servers of tools",
    "sub-agents",
];

impl LifeCounts {
    /// Simulates the life of a seed.
    fn of(seed: u64) -> Self {
        let life = LifeSeed { seed, fault: InjectedFault::Chance, choices: None };
        let lived = std::panic::catch_unwind(|| life.simulate(&SharedDisk::default()));
        let Ok(life) = lived else { return Self { failing: [seed].into(), ..Self::default() } };
        let has = |is: &dyn Fn(&StoredRecord) -> bool| life.records.iter().any(|(_, it)| is(it));
        let calls = |name: &str| {
            has(&|record| match record {
                StoredRecord::Event(Event::Replied { reply, .. }, _) => {
                    reply.calls().any(|call| &*call.name == name)
                }
                _ => false,
            })
        };
        let reports = |record: &StoredRecord| {
            matches!(record, StoredRecord::Event(Event::UsageReported { .. }, _))
        };
        let features = FEATURES.into_iter().filter(|feature| match *feature {
            "checkpoints" => has(&|record| matches!(record, StoredRecord::Checkpoint(_))),
            "commands in the background" => calls("background"),
            "continued" => life.continuations > 0,
            "crashes" => life.crashes > 0,
            "errors of the disk" => life.has_failed_disk,
            "other models" => life.fold.state.run().model > 0,
            "servers of tools" => calls("remote"),
            _ => has(&reports),
        });
        Self {
            features: features.map(|feature| (feature, 1)).collect(),
            reasons: [(life.reason(), 1)].into(),
            crashes: life.crashes,
            pairs: life.pairs,
            failing: BTreeSet::new(),
        }
    }

    fn add(mut self, other: Self) -> Self {
        for (all, counts) in
            [(&mut self.reasons, other.reasons), (&mut self.features, other.features)]
        {
            counts.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
        }
        self.crashes += other.crashes;
        self.pairs.add(&other.pairs);
        self.failing.extend(other.failing);
        self
    }
}

#[test]
fn any_run_ends_and_breaks_no_invariant() {
    let first = number("FIRST_SEED").unwrap_or(0);
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("SEEDS").unwrap_or(SEEDS),
    };
    let many = seeds.end - seeds.start;
    let counts = seeds
        .into_par_iter()
        .fold(LifeCounts::default, |counts, seed| counts.add(LifeCounts::of(seed)))
        .reduce(LifeCounts::default, LifeCounts::add);
    let LifeCounts { reasons, features, crashes, pairs, failing } = counts;
    let (taken, missing) = pairs.count();
    println!("{many} lives: {crashes} crashes; {features:?}; {reasons:?}");
    println!("{taken} pairs of transitions, but not these: {missing:#?}");
    for seed in failing.iter().take(REPORTED) {
        let life = LifeSeed { seed: *seed, fault: InjectedFault::Chance, choices: None };
        println!("{}\n", life.report());
    }
    assert!(failing.is_empty(), "{} lives fail: {failing:?}", failing.len());
    if many >= SEEDS {
        // A simulation without variety shows nothing.
        assert!(reasons.len() >= 14, "only these stop reasons occurred: {reasons:?}");
        assert!(crashes > many / 4, "only {crashes} crashes");
        let rare: Vec<_> = FEATURES
            .iter()
            .filter(|feature| features.get(*feature).is_none_or(|count| *count < many / 50))
            .collect();
        assert!(rare.is_empty(), "too rare: {rare:?} of {features:?}");
        assert!(taken >= PAIRS, "only {taken} pairs of transitions; not these: {missing:#?}");
    }
}

/// The least number of pairs of consecutive transitions that the default lives take. `statecharts/PAIRS.md` lists all
/// pairs.
const PAIRS: usize = 220;

/// A life counts as failing here when a signal interrupts it. The minimized life draws less than a twentieth of the
/// numbers; its scenario runs, and the same life can be simulated from it.
#[test]
fn a_failing_life_becomes_small_and_a_scenario() {
    let is_interrupted = |life: &LifeSeed| {
        let life = life.simulate(&SharedDisk::default());
        let is_signal = |(_, record): &(_, StoredRecord)| {
            matches!(record, StoredRecord::Event(Event::Interrupt { .. }, _))
        };
        life.records.iter().any(is_signal) && life.fold.state.run().steps > 0
    };
    let numbers_that_matter = |life: &LifeSeed| life.drawn().iter().flatten().count();
    let seeds = (0..).map(|seed| LifeSeed { seed, fault: InjectedFault::Chance, choices: None });
    let is_long = |life: &LifeSeed| life.simulate(&SharedDisk::default()).records.len() > 20;
    let whole = seeds.into_iter().find(|life| is_interrupted(life) && is_long(life)).unwrap();
    let small = whole.minimize(is_interrupted);
    let [left, all] = [&small, &whole].map(numbers_that_matter);
    assert!(left * 20 < all, "{left} of {all}");
    let disk = SharedDisk::default();
    small.simulate(&disk);
    let text = small.scenario(&disk).unwrap();
    assert_eq!(LifeSeed::find(&text).as_ref(), Some(&small), "{text}");
    assert!(text.contains("signal = "), "{text}");
    let scenario = Scenario::parse(Path::new("life.toml"), &text).unwrap();
    let variables = std::env::vars_os().collect();
    let world = ProcessEnv { variables, cwd: std::env::temp_dir(), ..ProcessEnv::default() };
    let results = run_all(&[scenario], &world);
    assert!(!matches!(results[0].outcome, ScenarioOutcome::Failed(_)), "{results:#?}\n{text}");
}

/// The life of the scenario `LIFE`, if there is one.
#[test]
fn a_life_from_a_scenario_breaks_no_invariant() {
    let Some(path) = std::env::var_os("LIFE") else { return };
    let text = std::fs::read_to_string(path).unwrap();
    let life = LifeSeed::find(&text).expect("a scenario with a line `# life: `");
    life.simulate(&SharedDisk::default());
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
    let seeds = (0..).map(|seed| (seed, simulate_seed(seed, InjectedFault::None).uses));
    for (seed, uses) in seeds.filter(|(_, uses)| *uses > 5).take(4) {
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

/// The Nth task panics or never returns, once or from then on, or the process dies with its result: the run ends
/// anyway, and its journal has the reason.
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
