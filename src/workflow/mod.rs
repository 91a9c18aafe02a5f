//! Workflows of several runs, and scripted runs ([`scenario`]).
//!
//! The runs of a workflow share one budget: the usage of a run is subtracted from the limits of the next one
//! (`limits`). They share one reporter, and their results are joined at the end.

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
