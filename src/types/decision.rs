//! The decision on a tool call.

use std::sync::Arc;

use serde::Serialize;

/// The decision on a tool call, with its reason: a rule, a guardrail, a mode or the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub enum Decision {
    /// The call may run.
    Allow {
        /// The rule or other source that allows the call.
        #[serde(rename = "rule")]
        reason: Arc<str>,
    },
    /// The user is asked.
    Ask {
        /// The rule or other source that requires the confirmation.
        #[serde(rename = "rule")]
        reason: Arc<str>,
    },
    /// The call may not run.
    Deny {
        /// The rule or other source that denies the call.
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
