//! Layer 3: commands, supervised, confined, and ended with everything that they started.
//!
//! [`Supervisor`] runs a [`CommandSpec`] and returns its [`CommandOutcome`], through a process of its own, which is this
//! program started again ([`helper`]): the leader of a session without a terminal, the parent of every orphaned process,
//! confined by the [`SandboxPolicy`] before it starts anything. It stays up for the next command. When its connection to
//! the engine closes, for whatever reason, it kills what runs.
//!
//! [`Supervisor::open`] starts a long-lived command, with pipes to its standard files.
//!
//! A command has no terminal and no input, an environment without secrets ([`clean_environment`]), and a time limit: it is
//! terminated, then killed, with everything that it started. Head and tail of its output are kept.
//!
//! | module | job |
//! |---|---|
//! | `command`, `capture`, `environment` | a command, its result, its output, its variables |
//! | `supervisor` | the supervisors and their protocol, the processes of a command, long-lived commands |
//! | `confine` | the policy and the layers that enforce it: namespaces, mounts, Landlock, seccomp, Seatbelt |
//! | `protected`, `repository` | protected paths, and what git would execute, kept as they are |
//! | `egress` | the proxy for the network limited to a list of hosts |
//! | `package_caches` | private caches over those of the user |
//! | `denial` | explains a command that failed because of its confinement |

mod capture;
mod command;
mod command_env;
mod confine;
mod denial;
mod egress;
mod output_watcher;
mod package_caches;
mod protected;
mod repository;
mod stored_path;
mod supervisor;

pub use capture::{Omission, OutputCapture, OutputSpool};
pub use command::{
    CONFINEMENT_HELP, CommandEnd, CommandInput, CommandOutcome, CommandSpec, ExecError,
    shell_is_bash,
};
pub use command_env::variables::{has_address_password, is_key_variable, is_secret_variable};
pub use command_env::{VariableFilter, clean_environment};
pub use confine::policy::{
    CopiedFile, LinkedRepositoryAccess, NetworkAccess, RedactedFile, ResourceLimits, SandboxMode,
    SandboxPolicy, SandboxRequirement, TempOwner, resolve_path, resolve_within,
};
pub use confine::temp_folder::remove_abandoned;
pub use confine::{Enforcement, SandboxGap, SandboxLevel, describe_hidden_registry};
pub use denial::{explain_denial, sure_denials};
pub use egress::{AllowedHosts, ConnectionRefusal, HostPattern, HostPatternError};
pub use package_caches::{PackageCache, PackageCaches, sweep_caches};
pub(crate) use repository::parse_git_config;
pub use repository::{
    UserGitConfig, WriteWatch, finish_interrupted, followed_by_git, link_targets_within,
    new_record_path, with_link_targets,
};
pub use supervisor::process::{ChildCommand, CommandPipes};
pub use supervisor::{Supervisor, helper};
