//! Attempts at model calls, and the scheduling and repetition of tool calls.

pub(crate) mod attempt;
pub(crate) mod repetition;
pub(crate) mod retry;
pub(crate) mod scheduling;
