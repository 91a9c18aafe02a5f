//! When the user is asked.

use serde::{Deserialize, Serialize};

/// When the user is asked, where no rule decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfirmMode {
    /// Before every call.
    ConfirmAll,
    /// Before a call that changes something.
    #[default]
    ConfirmSensitive,
    /// Never.
    Yolo,
}

impl ConfirmMode {
    /// Returns the name that the user writes.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfirmAll => "confirm-all",
            Self::ConfirmSensitive => "confirm-sensitive",
            Self::Yolo => "yolo",
        }
    }

    /// Returns what is said when the mode decides.
    pub(super) fn reason(self) -> String {
        match self {
            Self::ConfirmAll => "mode confirm-all asks before every call".to_owned(),
            Self::ConfirmSensitive => {
                "mode confirm-sensitive asks before a call that changes something".to_owned()
            }
            Self::Yolo => "mode yolo".to_owned(),
        }
    }
}
