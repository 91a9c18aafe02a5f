//! Attempts at model calls, and whether a failed one is retried.

pub(crate) mod attempt;
pub(crate) mod fallback;
pub(crate) mod retry;
