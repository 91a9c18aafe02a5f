//! The driver in a simulated environment: random replies of the model, delays, tools, servers and hooks, journal failures and
//! crashes. Time is virtual, and a seed determines everything. Where only the order of inputs matters, all orders are tried
//! (`interleavings`).
//!
//! After every event the machine's invariants are checked; before every effect, that its reason is durable; after every
//! run, that its journal replays to the same state. `SEEDS=100000` runs more seeds, `SEED=7` runs one.

#[path = "../../machine/invariants.rs"]
mod invariants;

mod executor;
mod hooks;
mod interleavings;
mod journal;
mod model;
pub(crate) mod rng;
mod session_life;
mod tools;

use session_life::{InjectedFault, SessionLife};

/// How many seeds are run by default.
const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed, and names it if it fails.
fn simulate_seed(seed: u64, trouble: InjectedFault) -> SessionLife {
    let lived = std::panic::catch_unwind(|| SessionLife::simulate(seed, trouble));
    lived.unwrap_or_else(|_| panic!("SEED={seed} with {trouble:?} breaks it"))
}

#[test]
fn any_run_ends_and_breaks_no_invariant() {
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let mut reasons = std::collections::BTreeSet::new();
    let mut crashes = 0;
    for seed in seeds.clone() {
        let life = simulate_seed(seed, InjectedFault::Chance);
        reasons.insert(life.reason());
        crashes += life.crashes;
    }
    if seeds.end - seeds.start >= SEEDS {
        // A simulation without variety shows nothing.
        assert!(reasons.len() >= 14, "only these stop reasons occurred: {reasons:?}");
        assert!(crashes > seeds.end / 4, "only {crashes} crashes");
    }
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
