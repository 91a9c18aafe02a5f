//! The command from outside: a real process, a real server, real files.

mod accounts;
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
mod keys;
mod limits;
mod process;
mod remembered;
mod resumed;
mod scripts;
mod secrets;
mod sessions;
mod subagents;
mod telemetry;
mod told;
mod tools;
mod unwritten;
mod usage;
mod workflows;
pub(crate) mod world;
