//! The order of tool calls, and the detection of loops.

pub(crate) mod loop_detection;
pub(crate) mod scheduling;
