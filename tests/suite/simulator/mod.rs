//! The driver in a simulated environment: a seed determines what the model replies and how long it takes, what tools, their
//! servers and hooks do, and when the journal fails or the process dies. Time is virtual. Where only the order of completions
//! matters, `interleavings` runs all orders.
//!
//! After every event the machine's invariants are checked; before every effect, that the records it depends on are durable;
//! after every session, that its journal replays to the final state. `SEEDS=100000` runs more sessions, `SEED=7` runs one.

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

/// The default number of simulated sessions.
const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a session, and prints its seed if it fails.
fn simulate_seed(seed: u64, trouble: InjectedFault) -> SessionLife {
    let lived = std::panic::catch_unwind(|| SessionLife::simulate(seed, trouble));
    lived.unwrap_or_else(|_| panic!("SEED={seed} with {trouble:?} breaks it"))
}

#[test]
fn whatever_happens_a_run_ends_and_breaks_no_invariant() {
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let mut reasons = std::collections::BTreeSet::new();
    let mut crashes = 0;
    for seed in seeds.clone() {
        let life = simulate_seed(seed, InjectedFault::Chance);
        reasons.insert(life.reason());
        crashes += life.crashes;
    }
    if seeds.end - seeds.start >= SEEDS {
        // A simulation in which nothing happens shows nothing.
        assert!(reasons.len() >= 14, "only these ends were met: {reasons:?}");
        assert!(crashes > seeds.end / 4, "only {crashes} crashes");
    }
}

#[test]
fn the_same_seed_is_the_same_life() {
    for seed in 0..20 {
        let (first, second) = (
            simulate_seed(seed, InjectedFault::Chance),
            simulate_seed(seed, InjectedFault::Chance),
        );
        assert_eq!(first.records, second.records, "seed {seed}");
    }
}

/// A journal that fails at its Nth use, once or from then on: the run ends with an error.
#[test]
fn the_nth_use_of_the_journal_fails() {
    for seed in 0..4 {
        let uses = simulate_seed(seed, InjectedFault::None).uses;
        assert!(uses > 5, "seed {seed} hardly writes");
        for nth in 0..uses {
            for trouble in [InjectedFault::FailsOnce(nth), InjectedFault::FailsFrom(nth)] {
                let life = simulate_seed(seed, trouble);
                // What fails at the very end may only have been the record of the end.
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

/// The observer disconnects at the Nth event: the run ends soon.
#[test]
fn the_reader_leaves_at_the_nth_thing_that_is_shown() {
    for seed in 0..4 {
        let shown = simulate_seed(seed, InjectedFault::None).shown;
        for nth in 0..shown.min(60) {
            let reason = simulate_seed(seed, InjectedFault::ReaderLeaves(nth)).reason();
            assert!(reason == "user_interrupt" || nth + 4 >= shown, "seed {seed}, {nth}: {reason}");
        }
    }
}

/// The Nth task panics or never completes, once or from then on, or the process dies after it: the run ends all the same,
/// and its journal has the reason.
#[test]
fn the_nth_piece_of_work_fails() {
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
