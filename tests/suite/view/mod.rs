//! What people and programs get to see of a run.

mod answer;
mod chart;
mod log;
mod otel;
mod reader;
mod readme;
mod report;
mod stage;
mod stream;
mod terminal;
