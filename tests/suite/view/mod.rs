//! What people and programs get to see of a run.

mod answer;
mod chart;
mod log;
mod reader;
mod readme;
mod stage;
mod stream;
mod terminal;
