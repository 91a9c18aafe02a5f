//! The signals that stop a run.

use serde::{Deserialize, Serialize};

/// The signal that interrupted a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// SIGINT, or the user's `a` (abort) at a confirmation.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal went away.
    Hangup,
    /// The reader of standard output is gone.
    Pipe,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::Hangup, Self::Pipe];

    /// Returns the system's name of the signal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Pipe => "SIGPIPE",
        }
    }

    /// Returns the exit code that shells expect: 128 plus the number of the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
            Self::Pipe => 141,
        }
    }
}
