//! Confinement: the restrictions that the system enforces on a command.
//!
//! At the level [`SandboxLevel::Namespaces`], a command has its own mounts, processes and network. At
//! [`SandboxLevel::Landlock`], it shares those of the user, restricted by access rules and a system call filter. The
//! higher level includes the lower one. A restriction of the policy that a level cannot enforce is reported as a
//! [`SandboxGap`].

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use self::policy::{NetworkAccess, SandboxMode, SandboxPolicy, SandboxRequirement};
use crate::types::word_enum;

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

/// The confinement of commands that is in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// The level of confinement.
    pub level: SandboxLevel,
    /// Restrictions of the policy that the level cannot enforce.
    pub gaps: Vec<SandboxGap>,
    /// The reason for a level below the highest; `None` at the highest level, or if the policy confines nothing.
    pub reason: Option<String>,
}

word_enum! {
    /// A level of confinement.
    #[derive(Default)]
    pub enum SandboxLevel {
        /// No confinement.
        None = "none",
        /// A profile of the macOS sandbox.
        Seatbelt = "seatbelt",
        /// Landlock and a system call filter.
        Landlock = "landlock",
        /// Namespaces, in addition to Landlock and the filter.
        #[default]
        Namespaces = "namespaces",
    }
}

/// A restriction that a level cannot enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxGap {
    /// Files elsewhere can be written.
    Files,
    /// Permissions, owners and times of files elsewhere can be changed.
    Metadata,
    /// Protected files of the workspace can be written.
    Protected,
    /// Protected files of the workspace can be written until the command ends; then they are restored.
    ProtectedMeanwhile,
    /// Hidden files can be read.
    Hidden,
    /// Sockets of other programs on this machine can be reached.
    LocalSockets,
    /// Sockets that other programs on this machine create later can be reached.
    LaterSockets,
    /// The network can be reached.
    Network,
    /// Other processes of the same user can be ended.
    Signals,
    /// This process keeps privileges.
    Privileges,
    /// System calls are not filtered.
    Calls,
}

impl fmt::Display for SandboxGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files elsewhere can be written",
            Self::Metadata => "permissions, owners and times of files elsewhere can be changed",
            Self::Protected => "protected files of the workspace can be written",
            Self::ProtectedMeanwhile => {
                "protected files of the workspace can be written until the command ends, and are then restored"
            }
            Self::Hidden => "hidden files can be read",
            Self::LocalSockets => "sockets of other programs can be reached",
            Self::LaterSockets => "sockets that other programs create later can be reached",
            Self::Network => "the network can be reached",
            Self::Signals => "other processes of the user can be ended",
            Self::Privileges => "privileges are kept",
            Self::Calls => "system calls are not filtered",
        })
    }
}

impl Enforcement {
    /// Returns the enforcement of a policy that confines nothing.
    pub fn none() -> Self {
        Self { level: SandboxLevel::None, gaps: Vec::new(), reason: None }
    }

    /// Returns the enforcement of a policy when the system offers no confinement.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the policy requires confinement.
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

    /// Returns the gaps of a policy when the system offers no confinement.
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

    /// Returns whether the essential parts of a policy are enforced: the network, and files, including protected and
    /// hidden ones.
    pub fn satisfies(&self, policy: &SandboxPolicy) -> bool {
        let is_open = |hole: &SandboxGap| match hole {
            SandboxGap::Files | SandboxGap::Protected | SandboxGap::Hidden => {
                policy.mode != SandboxMode::Off
            }
            SandboxGap::Network => policy.network != NetworkAccess::On,
            SandboxGap::Privileges | SandboxGap::Calls => true,
            // These gaps remain at levels that are otherwise effective.
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

    /// Returns whether commands may run with this enforcement.
    #[cfg(target_os = "linux")]
    pub(super) fn is_allowed_by(&self, policy: &SandboxPolicy) -> bool {
        policy.need == SandboxRequirement::Preferred || self.satisfies(policy)
    }

    /// Warns, once per process, if commands are not confined as the policy requires, or can't read settings that they
    /// need.
    pub(super) fn warn(&self, policy: &SandboxPolicy) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        static WARNED_OF_SETTINGS: AtomicBool = AtomicBool::new(false);
        let hidden = policy.redacted.first().filter(|_| {
            self.level < SandboxLevel::Namespaces && policy.network != NetworkAccess::Off
        });
        if let Some(hidden) = hidden
            && !WARNED_OF_SETTINGS.swap(true, Ordering::Relaxed)
        {
            log::warn!("{}", describe_hidden_registry(&hidden.file));
        }
        if self.satisfies(policy) || WARNED.swap(true, Ordering::Relaxed) {
            return;
        }
        let holes: Vec<String> = self.gaps.iter().map(ToString::to_string).collect();
        let why = self.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        log::warn!(
            "commands are not fully confined: {}{why}; `architect doctor` shows what is missing",
            holes.join(", ")
        );
    }
}

/// Returns the warning about a hidden file that names the registry of the user's packages.
pub fn describe_hidden_registry(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} has a secret and is hidden from commands, and so is the registry that it names: package managers use the \
         public one. `sandbox.readable = [\"{file}\"]` lets commands read it, secret included"
    )
}
