//! The order of tool calls, the detection of loops, and what calls leave running.

pub(crate) mod loop_detection;
pub(crate) mod scheduling;
pub(crate) mod started_command;
