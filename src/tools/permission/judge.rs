//! The decision about a call.

use super::mode::ConfirmMode;
use crate::tools::tool::{Kind, Prepared};

/// Decides about calls.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    mode: ConfirmMode,
}

/// What was decided about a call, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Allow(String),
    /// The user is asked.
    Ask(String),
    /// It may not run.
    Deny(String),
}

impl Judge {
    /// Returns a judge.
    pub fn new(mode: ConfirmMode) -> Self {
        Self { mode }
    }

    /// Decides about a call.
    pub fn decide(&self, _: &str, call: &dyn Prepared) -> Decision {
        let mode = self.mode.name();
        match (self.mode, call.kind()) {
            (ConfirmMode::Yolo, _) => Decision::Allow(format!("mode {mode}")),
            (ConfirmMode::ConfirmSensitive, Kind::Reads) => Decision::Allow("it only reads".into()),
            (ConfirmMode::ConfirmSensitive, Kind::Changes | Kind::Command | Kind::Foreign) => {
                Decision::Ask(format!("mode {mode} asks before a call that changes something"))
            }
            (ConfirmMode::ConfirmAll, _) => {
                Decision::Ask(format!("mode {mode} asks before every call"))
            }
        }
    }
}
