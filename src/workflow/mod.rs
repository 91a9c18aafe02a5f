//! Runs made of runs, and scripted runs ([`scenario`]).
//!
//! Runs that belong together share one budget: what a run has used is taken from the limits of the next one (`limits`).
//! All have the same reporter, and their results are joined at the end.

pub mod batch;
mod command_check;
pub mod engine;
mod plan_first;
mod remaining_limits;
pub mod scenario;
mod self_eval;
pub mod what_if_lanes;

pub use plan_first::plan_first;
pub use remaining_limits::subtract_charge;
pub use self_eval::{
    EvaluatedRuns, Evaluation, RetryContext, evaluate, evaluation_charge, stored_evaluations,
    with_evaluator,
};
