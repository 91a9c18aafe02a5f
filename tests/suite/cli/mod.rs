//! The command from outside: a real process, a real server, real files.

mod answers;
mod claims;
mod crash;
mod damaged;
mod endings;
mod faults;
mod hooks;
mod imported;
mod info;
mod interrupts;
mod process;
mod remembered;
mod secrets;
mod sessions;
mod subagents;
mod telemetry;
mod tools;
mod unwritten;
mod workflows;
pub(crate) mod world;
