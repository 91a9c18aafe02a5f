//! The result document: what a run came to, for scripts.

mod document;
mod files;
mod join;
mod output;
mod tally;

pub use document::{Brief, Costs, Denied, FileModified, RunResult, ToolUsed};
pub use tally::Tally;
