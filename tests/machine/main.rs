//! The machine, proved: explored exhaustively, driven with long random lists of events, and held against its chart.
//!
//! Whether these tests can fail is tried by mutation: `cargo mutants` changes the machine place by place, and each change
//! has to turn a test red. In a crate that holds nothing but `src/model`, `src/machine` and these tests, with fewer
//! states and cases, that takes seconds for each. The chart and the exploration ask the code itself where a bound lies;
//! one that moves is seen by [`bounds`] and by the unit tests alone.

#![allow(clippy::unwrap_used, clippy::expect_used)] // in tests, helpers included

mod bounds;
mod chart;
mod explorer;
mod guards;
mod invariants;
mod properties;
mod seeded_defects;
mod small_model;
