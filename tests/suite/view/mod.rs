//! The output of a run for people and programs.

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
