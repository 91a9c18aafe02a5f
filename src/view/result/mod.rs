//! The result document of a run, for scripts.

mod changed_files;
mod document;
mod result_builder;

pub use document::{
    DeniedCall, ModelUsed, RunCosts, RunResult, ToolUsed, UnappliedWork, WorktreeResult,
};
pub use result_builder::RunResultBuilder;
