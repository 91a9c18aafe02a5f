//! Whether a tool call may run.

use std::sync::Arc;

use serde::Serialize;

/// Whether a tool call may run, and what decides that: a rule, a guardrail, a mode or the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum Decision {
    /// The call may run.
    Allow {
        /// What allows it.
        #[serde(rename = "rule")]
        reason: Arc<str>,
    },
    /// The user is asked.
    Ask {
        /// What requires the confirmation.
        #[serde(rename = "rule")]
        reason: Arc<str>,
    },
    /// The call may not run.
    Deny {
        /// What denies it.
        #[serde(rename = "rule")]
        reason: Arc<str>,
    },
}

impl Decision {
    /// Allows a call.
    pub fn allow(reason: impl Into<Arc<str>>) -> Self {
        Self::Allow { reason: reason.into() }
    }

    /// Requires a confirmation.
    pub fn ask(reason: impl Into<Arc<str>>) -> Self {
        Self::Ask { reason: reason.into() }
    }

    /// Denies a call.
    pub fn deny(reason: impl Into<Arc<str>>) -> Self {
        Self::Deny { reason: reason.into() }
    }

    /// Returns the stricter of two decisions; of two equal ones, the first.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let rank = |decision: &Self| match decision {
            Self::Allow { .. } => 0,
            Self::Ask { .. } => 1,
            Self::Deny { .. } => 2,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}
