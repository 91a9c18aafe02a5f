//! Confining: what the system enforces on a command.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::{Mode, Network, Policy};

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
    /// The network can be reached.
    Network,
    /// Other processes of the same user can be ended.
    Signals,
}

impl Enforced {
    /// Returns that nothing is confined, because nothing was to be.
    pub fn nothing() -> Self {
        Self { level: Level::None, holes: Vec::new(), why: None }
    }
}

/// Returns that nothing is confined although something was to be.
pub(super) fn unconfined(policy: &Policy, why: String) -> Enforced {
    if policy.is_off() {
        return Enforced::nothing();
    }
    let mut holes = vec![Hole::Hidden, Hole::LocalSockets, Hole::Signals];
    if policy.mode != Mode::Off {
        holes.extend([Hole::Files, Hole::Metadata, Hole::Protected]);
    }
    if policy.network == Network::Off {
        holes.push(Hole::Network);
    }
    holes.sort();
    Enforced { level: Level::None, holes, why: Some(why) }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        })
    }
}
