//! Identifiers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The id of an effect of a run. Its completion carries the same id.
///
/// Ids grow and are never used twice in a run, so a late completion can be distinguished from the pending one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct EffectId(pub u64);

impl EffectId {
    /// Returns the id and moves `self` to the following one.
    pub fn allocate(&mut self) -> Self {
        let taken = *self;
        self.0 += 1;
        taken
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The id that a model gave to a tool call; unique in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct CallId(pub Arc<str>);

impl CallId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for CallId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}
