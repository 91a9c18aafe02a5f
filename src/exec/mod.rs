//! Floor 3: commands — supervised, confined, and gone without a trace when they end.
//!
//! [`Supervisor`] runs a [`Command`] and returns its [`Outcome`]. It does so in a process of its own, which is this
//! program started again ([`helper`]): the leader of a session without a terminal, the parent of every process that
//! loses its own, confined as the [`Policy`] says before it starts anything. It stays up for the next command. Its end
//! of the connection to the engine tells it when the engine is gone, however that came about; it then kills what runs.
//!
//! [`Supervisor::open`] starts a command that stays, with its standard files in the engine's hands.
//!
//! A command has no terminal and no input, an environment without secrets ([`clean`]), and a time limit: first it is
//! asked to end, then it is killed, with everything that it started. Of what it writes, head and tail are kept.

mod absent;
mod caches;
mod capture;
#[cfg(target_os = "linux")]
mod children;
mod command;
mod confine;
#[cfg(target_os = "linux")]
mod covered;
mod denial;
mod egress;
mod env;
mod git;
pub mod helper;
mod nameless;
mod policy;
mod process;
mod repository;
mod snapshot;
mod supervise;
mod supervisor;
#[cfg(target_os = "linux")]
mod sys;
mod temp;
mod tree;
mod variables;
mod wire;
mod worker;

pub use caches::{Cache, Caches, sweep_caches};
pub use capture::Capture;
pub use command::{Command, End, ExecError, HELP, Input, Outcome, shell_is_bash};
pub use confine::{Enforced, Hole, Level};
pub use denial::explained;
pub use egress::{AllowedHosts, HostPattern, PatternError, Refusal};
pub use env::{Filter, clean};
pub use policy::{Lent, Mode, Need, Network, Policy, ResourceLimits, TempOwner, real};
pub use process::{Pipes, Process};
pub use repository::{finish_left, followed, marker};
pub use supervisor::Supervisor;
pub use temp::sweep;
pub use variables::is_secret;
