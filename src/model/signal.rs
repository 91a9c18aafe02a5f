//! Who asked a run to stop.

use serde::{Deserialize, Serialize};

/// What interrupted a run, with the exit code that shells expect for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// SIGINT, or the user's `a` (abort) at a confirmation.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal went away.
    Hangup,
    /// Nobody reads standard output any more.
    Pipe,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::Hangup, Self::Pipe];

    /// Returns 128 plus the number of the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
            Self::Pipe => 141,
        }
    }
}
