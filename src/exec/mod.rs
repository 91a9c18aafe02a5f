//! Layer 3: commands, supervised, confined, and ended together with everything that they started.
//!
//! [`Supervisor`] runs a [`CommandSpec`] and returns its [`CommandOutcome`]. It does so through a separate process,
//! which is this program started again ([`helper`]). That process leads a session without a terminal, adopts every
//! orphaned process, and is confined by the [`SandboxPolicy`] before it starts anything. It stays alive for the next
//! command. When its connection to the engine closes, for whatever reason, it kills the running command.
//!
//! [`Supervisor::open`] starts a long-lived command, with pipes to its standard files.
//!
//! A command has no terminal and no input, an environment without secrets ([`clean_environment`]), and a time limit,
//! after which it is terminated, then killed, together with everything that it started. Head and tail of its output are
//! kept.
//!
//! | module | job |
//! |---|---|
//! | `command`, `capture`, `command_env` | a command, its result, its output, its variables |
//! | `supervisor` | the supervisors and their protocol, the processes of a command, long-lived commands |
//! | `confine` | the policy and the layers that enforce it: namespaces, mounts, Landlock, seccomp, Seatbelt |
//! | `protected`, `repository` | protected paths, and files that git would execute, kept unchanged |
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
pub use confine::temp_folder::{TEMP_PREFIX, new_temp_name, remove_abandoned};
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
