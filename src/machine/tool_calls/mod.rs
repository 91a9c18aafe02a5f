//! The order of tool calls, the detection of loops, and the commands that calls leave running.

pub(crate) mod loop_detection;
pub(crate) mod scheduling;
pub(crate) mod started_command;
