//! Confining: what the system enforces on a command.
//!
//! There are two ways, and a ladder between them. With namespaces of its own ([`SandboxLevel::Namespaces`]) a command has
//! other mounts, processes and networks than everybody else; with access rules and a filter of system calls alone
//! ([`SandboxLevel::Landlock`]) it has the same, and may do less with them. The higher level has both. What a level cannot
//! close although the policy wants it closed is named: a [`SandboxGap`]. Nothing is left out in silence.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use self::policy::{NetworkAccess, SandboxMode, SandboxPolicy, SandboxRequirement};

#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod levels;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
pub(super) mod policy;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(any(target_os = "macos", test))]
pub(super) mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod spawner;
pub(super) mod temp_folder;

#[cfg(target_os = "linux")]
pub(super) use levels::{run_init, serve};
#[cfg(target_os = "linux")]
pub(super) use mounts::{RUNTIME_FOLDERS, named_sockets};

/// How commands are really confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// How far.
    pub level: SandboxLevel,
    /// What the level leaves open although the policy closes it.
    pub gaps: Vec<SandboxGap>,
    /// Why it is not the highest level; none when it is, or when nothing was to be confined.
    pub reason: Option<String>,
}

/// How far commands are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLevel {
    /// Not at all.
    None,
    /// By a profile of the system's sandbox, on macOS.
    Seatbelt,
    /// By the access rules of a thread and a filter of system calls.
    Landlock,
    /// By namespaces of their own as well.
    Namespaces,
}

/// Something that a level cannot close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxGap {
    /// Files elsewhere can be written.
    Files,
    /// Permissions, owners and times of files elsewhere can be changed.
    Metadata,
    /// What is protected inside the workspace can be written.
    Protected,
    /// What is protected inside the workspace can be written until the command ends; then it is put back.
    ProtectedMeanwhile,
    /// What is hidden can be read.
    Hidden,
    /// Sockets of other programs on this machine can be reached.
    LocalSockets,
    /// Sockets that other programs on this machine make later can be reached.
    LaterSockets,
    /// The network can be reached.
    Network,
    /// Other processes of the same user can be ended.
    Signals,
    /// Privileges of this process are kept.
    Privileges,
    /// System calls that no command needs are possible.
    Calls,
}

impl fmt::Display for SandboxGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files elsewhere can be written",
            Self::Metadata => "permissions, owners and times of files elsewhere can be changed",
            Self::Protected => "protected files of the workspace can be written",
            Self::ProtectedMeanwhile => {
                "protected files of the workspace can be written until the command ends, and are then put back"
            }
            Self::Hidden => "hidden files can be read",
            Self::LocalSockets => "sockets of other programs can be reached",
            Self::LaterSockets => "sockets that other programs make later can be reached",
            Self::Network => "the network can be reached",
            Self::Signals => "other processes of the user can be ended",
            Self::Privileges => "privileges are kept",
            Self::Calls => "system calls are not filtered",
        })
    }
}

impl Enforcement {
    /// Returns that nothing is confined, because nothing was to be.
    pub fn none() -> Self {
        Self { level: SandboxLevel::None, gaps: Vec::new(), reason: None }
    }

    /// Returns that nothing is confined although something was to be.
    ///
    /// # Errors
    ///
    /// Fails with the reason when the policy requires more.
    pub(super) fn unconfined(policy: &SandboxPolicy, why: String) -> Result<Self, String> {
        if policy.is_off() {
            return Ok(Self::none());
        }
        if policy.need == SandboxRequirement::Required {
            return Err(why);
        }
        Ok(Self {
            level: SandboxLevel::None,
            gaps: Self::gaps_without_confinement(policy),
            reason: Some(why),
        })
    }

    /// Returns what is left open of a policy when nothing is confined.
    pub(super) fn gaps_without_confinement(policy: &SandboxPolicy) -> Vec<SandboxGap> {
        let mut holes = vec![SandboxGap::Hidden, SandboxGap::LocalSockets, SandboxGap::Signals];
        if policy.mode != SandboxMode::Off {
            holes.extend([SandboxGap::Files, SandboxGap::Metadata, SandboxGap::Protected]);
        }
        if policy.network != NetworkAccess::On {
            holes.push(SandboxGap::Network);
        }
        holes.sort();
        holes
    }

    /// Returns whether what a policy is about is confined: files, what is protected and hidden among them, and the
    /// network.
    pub fn satisfies(&self, policy: &SandboxPolicy) -> bool {
        let is_open = |hole: &SandboxGap| match hole {
            SandboxGap::Files | SandboxGap::Protected | SandboxGap::Hidden => {
                policy.mode != SandboxMode::Off
            }
            SandboxGap::Network => policy.network != NetworkAccess::On,
            SandboxGap::Privileges | SandboxGap::Calls => true,
            // What is left open at a level that holds otherwise.
            SandboxGap::Metadata
            | SandboxGap::ProtectedMeanwhile
            | SandboxGap::LocalSockets
            | SandboxGap::LaterSockets
            | SandboxGap::Signals => false,
        };
        let has_proxy =
            self.level == SandboxLevel::Namespaces || policy.network != NetworkAccess::List;
        policy.is_off()
            || has_proxy && self.level > SandboxLevel::None && !self.gaps.iter().any(is_open)
    }

    /// Returns whether commands may run like this.
    #[cfg(target_os = "linux")]
    pub(super) fn is_allowed_by(&self, policy: &SandboxPolicy) -> bool {
        policy.need == SandboxRequirement::Preferred || self.satisfies(policy)
    }
}

impl Enforcement {
    /// Warns, once in the life of this process, when commands are not confined as a policy says.
    pub(super) fn warn(&self, policy: &SandboxPolicy) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        if self.satisfies(policy) || WARNED.swap(true, Ordering::Relaxed) {
            return;
        }
        let holes: Vec<String> = self.gaps.iter().map(ToString::to_string).collect();
        let why = self.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        log::warn!(
            "commands are not confined as they should be: {}{why}; `architect doctor` says what is missing",
            holes.join(", ")
        );
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Seatbelt => "seatbelt",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        })
    }
}
