//! Tests of the machine: explored exhaustively, driven with long random lists of events, and compared with its chart.
//!
//! Only `cargo test --release` explores all states, since that takes minutes unless it is optimized; otherwise it is the
//! first ones.
//!
//! Whether these tests can fail is checked by mutation: `tests/machine/mutants` changes the machine place by place, and each
//! change must fail a test. The chart and the explorer ask the code where a bound is, so only [`bounds`] and the unit tests
//! detect one that moved.

#![allow(clippy::unwrap_used, clippy::expect_used)] // in tests, helpers included
#![allow(clippy::print_stdout)] // what Spin prints, or why it is skipped

mod bounds;
mod chart;
mod driver_paths;
mod explorer;
mod graph;
mod guard_table;
mod guards;
mod invariants;
mod liveness;
mod pair_names;
mod properties;
mod run_bounds;
mod seeded_defects;
mod small_model;
mod smt;
#[cfg(feature = "cli")]
mod spin;
#[cfg(feature = "cli")]
mod tlc;
mod transition_pairs;
#[cfg(feature = "cli")] // the others need only the runner, and compile faster without the rest
mod workflow;
#[cfg(feature = "cli")]
mod workflow_guards;
