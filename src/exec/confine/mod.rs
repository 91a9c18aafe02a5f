//! Confining: what the system enforces on a command.
//!
//! There are two ways, and a ladder between them. With namespaces of its own ([`Level::Namespaces`]) a command has
//! other mounts, processes and networks than everybody else; with access rules and a filter of system calls alone
//! ([`Level::Landlock`]) it has the same, and may do less with them. The higher level has both. What a level cannot
//! close although the policy wants it closed is named: a [`Hole`]. Nothing is left out in silence.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::{Mode, Need, Network, Policy};

#[cfg(target_os = "linux")]
mod access;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod ladder;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(any(target_os = "macos", test))]
pub(super) mod seatbelt;
#[cfg(target_os = "linux")]
mod spawner;

#[cfg(target_os = "linux")]
pub(super) use ladder::{first_process, serve};

/// How commands are really confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforced {
    /// How far.
    pub level: Level,
    /// What the level leaves open although the policy closes it.
    pub holes: Vec<Hole>,
    /// Why it is not the highest level; none when it is, or when nothing was to be confined.
    pub why: Option<String>,
}

/// How far commands are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
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
pub enum Hole {
    /// Files elsewhere can be written.
    Files,
    /// Permissions, owners and times of files elsewhere can be changed.
    Metadata,
    /// What is protected inside the workspace can be written.
    Protected,
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
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files elsewhere can be written",
            Self::Metadata => "permissions, owners and times of files elsewhere can be changed",
            Self::Protected => "protected files of the workspace can be written",
            Self::Hidden => "hidden files can be read",
            Self::LocalSockets => "sockets of other programs can be reached",
            Self::LaterSockets => "sockets that other programs make later can be reached",
            Self::Network => "the network can be reached",
            Self::Signals => "other processes of the user can be ended",
        })
    }
}

impl Enforced {
    /// Returns that nothing is confined, because nothing was to be.
    pub fn nothing() -> Self {
        Self { level: Level::None, holes: Vec::new(), why: None }
    }

    /// Returns that nothing is confined although something was to be.
    ///
    /// # Errors
    ///
    /// Fails with the reason when the policy requires more.
    pub(super) fn unconfined(policy: &Policy, why: String) -> Result<Self, String> {
        if policy.is_off() {
            return Ok(Self::nothing());
        }
        if policy.need == Need::Required {
            return Err(why);
        }
        let mut holes = vec![Hole::Hidden, Hole::LocalSockets, Hole::Signals];
        if policy.mode != Mode::Off {
            holes.extend([Hole::Files, Hole::Metadata, Hole::Protected]);
        }
        if policy.network != Network::On {
            holes.push(Hole::Network);
        }
        holes.sort();
        Ok(Self { level: Level::None, holes, why: Some(why) })
    }

    /// Returns whether what a policy is about, files and network, is confined.
    pub fn satisfies(&self, policy: &Policy) -> bool {
        let has_proxy = self.level == Level::Namespaces || policy.network != Network::List;
        policy.is_off()
            || has_proxy
                && self.level > Level::None
                && !self.holes.iter().any(|hole| matches!(hole, Hole::Files | Hole::Network))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Seatbelt => "seatbelt",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        })
    }
}
