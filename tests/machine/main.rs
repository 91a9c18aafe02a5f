//! The machine, proved: explored exhaustively, driven with long random lists of events, and held against its chart.

#![allow(clippy::unwrap_used, clippy::expect_used)] // in tests, helpers included

mod alphabet;
mod bounds;
mod chart;
mod defects;
mod explorer;
mod guards;
mod invariants;
mod properties;
