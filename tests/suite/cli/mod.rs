//! The command from outside: a real process, a real server, real files.

mod answers;
mod endings;
mod faults;
mod info;
mod interrupts;
mod secrets;
mod sessions;
mod telemetry;
mod tools;
mod workflows;
pub(crate) mod world;
