//! Floor 6: runs made of runs.
//!
//! Each of them shares one budget: what a run has used is taken from the limits of the next one ([`limits`]). All are
//! shown before the same audience, and their results go together in the end.

mod limits;
mod plan_first;
mod self_eval;

pub use plan_first::plan_first;
pub use self_eval::{Again, Evaluated, Verdict, evaluated};
