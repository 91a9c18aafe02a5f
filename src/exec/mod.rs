//! Floor 3: commands — supervised, confined, and gone without a trace when they end.
//!
//! [`Supervisor`] runs a [`Command`] and returns its [`Outcome`]. It does so in a process of its own, which is this
//! program started again ([`helper`]): the leader of a session without a terminal, the parent of every process that
//! loses its own, confined as the [`SandboxPolicy`] says before it starts anything. It stays up for the next command. Its end
//! of the connection to the engine tells it when the engine is gone, however that came about; it then kills what runs.
//!
//! [`Supervisor::open`] starts a command that stays, with its standard files in the engine's hands.
//!
//! A command has no terminal and no input, an environment without secrets ([`clean`]), and a time limit: first it is
//! asked to end, then it is killed, with everything that it started. Of what it writes, head and tail are kept.

mod absent_paths;
mod anonymous_file;
mod capture;
#[cfg(target_os = "linux")]
mod children;
mod command;
mod confine;
#[cfg(target_os = "linux")]
mod covered;
mod denial;
mod egress;
mod environment;
mod git_variables;
pub mod helper;
#[cfg(target_os = "linux")]
mod inherited_files;
mod package_caches;
mod process;
mod process_tree;
mod protocol;
mod repository;
mod sandbox_policy;
mod snapshot;
mod supervise;
mod supervisor;
mod temp_folder;
mod variables;
mod worker;

pub use capture::OutputCapture;
pub use command::{
    CONFINEMENT_HELP, CommandEnd, CommandInput, CommandOutcome, CommandSpec, ExecError,
    shell_is_bash,
};
pub use confine::{Enforcement, SandboxGap, SandboxLevel};
pub use denial::explain_denial;
pub use egress::{AllowedHosts, ConnectionRefusal, HostPattern, HostPatternError};
pub use environment::{VariableFilter, clean_environment};
pub use package_caches::{PackageCache, PackageCaches, sweep_caches};
pub use process::{ChildCommand, CommandPipes};
pub use repository::{finish_interrupted, followed_by_git, new_record_path};
pub use sandbox_policy::{
    CopiedFile, NetworkAccess, ResourceLimits, SandboxMode, SandboxPolicy, SandboxRequirement,
    TempOwner, resolve_path,
};
pub use supervisor::Supervisor;
pub use temp_folder::remove_abandoned;
pub use variables::is_secret_variable;
