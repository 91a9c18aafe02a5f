//! Floor 7: runs made of runs, and runs that are known beforehand ([`scenario`]).
//!
//! Runs that belong together share one budget: what a run has used is taken from the limits of the next one (`limits`).
//! All are shown before the same audience, and their results go together in the end.

mod plan_first;
mod remaining_limits;
pub mod scenario;
mod self_eval;

pub use plan_first::plan_first;
pub use self_eval::{EvaluatedRuns, Evaluation, RetryContext, evaluate};
