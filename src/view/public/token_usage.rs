//! The usage of model calls, for users.

use serde::Serialize;

use crate::model::{Tokens, Usage};

/// The usage of one or several model calls. Input includes cached input; output includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenUsage {
    /// Tokens of the requests.
    pub input_tokens: Tokens,
    /// Tokens of the replies.
    pub output_tokens: Tokens,
    /// The part of the input that was read from the provider's cache.
    pub cached_input_tokens: Tokens,
    /// The part of the input that was written to the provider's cache.
    pub cache_write_tokens: Tokens,
    /// The part of the output that was spent on reasoning.
    pub reasoning_tokens: Tokens,
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cached_input_tokens: usage.cached_input,
            cache_write_tokens: usage.cache_write,
            reasoning_tokens: usage.reasoning,
        }
    }
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens + other.input_tokens;
        self.output_tokens = self.output_tokens + other.output_tokens;
        self.cached_input_tokens = self.cached_input_tokens + other.cached_input_tokens;
        self.cache_write_tokens = self.cache_write_tokens + other.cache_write_tokens;
        self.reasoning_tokens = self.reasoning_tokens + other.reasoning_tokens;
    }
}
