//! Tokens, and the usage of a call.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// A number of tokens, counted by a provider or estimated from bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[cfg_attr(feature = "cli", derive(schemars::JsonSchema))]
pub struct Tokens(pub u64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// The largest number.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns whether the number is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Returns the difference, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `percent` hundredths of the number, rounded down.
    pub fn percent(self, percent: u64) -> Self {
        Self(self.0.saturating_mul(percent) / 100)
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The token usage of one model call, normalised across providers.
///
/// `input` is everything that was read, cached or not; `cached_input` and `cache_write` are parts of it. `output` is
/// everything that was written; `reasoning` is a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub input: Tokens,
    /// Tokens of the reply, reasoning included.
    pub output: Tokens,
    /// The part of the input that was read from the provider's cache.
    #[serde(default)]
    pub cached_input: Tokens,
    /// The part of the input that was written to the provider's cache.
    #[serde(default)]
    pub cache_write: Tokens,
    /// The part of the output that was spent on reasoning.
    #[serde(default)]
    pub reasoning: Tokens,
    /// Whether the numbers are an estimate, because the provider did not report them.
    #[serde(default, rename = "estimated")]
    pub is_estimated: bool,
}

impl Usage {
    /// Returns input plus output, which counts against a token budget.
    pub fn total(&self) -> Tokens {
        self.input + self.output
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            output: self.output + other.output,
            cached_input: self.cached_input + other.cached_input,
            cache_write: self.cache_write + other.cache_write,
            reasoning: self.reasoning + other.reasoning,
            is_estimated: self.is_estimated || other.is_estimated,
        }
    }
}
