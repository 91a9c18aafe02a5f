//! What people and programs get to see of a run.

mod chart;
mod final_answer;
mod fixture;
mod log;
mod otel;
mod report;
mod slow_readers;
mod stream;
mod terminal;
mod trace_page;
