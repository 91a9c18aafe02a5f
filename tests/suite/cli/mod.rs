//! The command from outside: a real process, a real server, real files.

mod answers;
mod crash;
mod endings;
mod faults;
mod hooks;
mod imported;
mod info;
mod interrupts;
mod process;
mod remembered;
mod resumed;
mod secrets;
mod sessions;
mod subagents;
mod telemetry;
mod tools;
mod usage;
mod workflows;
pub(crate) mod world;
