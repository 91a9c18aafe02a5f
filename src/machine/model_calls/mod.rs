//! Attempts at model calls, and the decisions to retry.

pub(crate) mod attempt;
pub(crate) mod fallback;
pub(crate) mod retry;
