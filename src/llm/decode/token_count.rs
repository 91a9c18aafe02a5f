//! Token counts, as providers write them.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

use crate::model::Tokens;

/// A token count; `None` if it is missing or invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount(pub(crate) Option<u64>);

/// The parts of a count, at all providers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenDetails {
    pub(crate) cached_tokens: TokenCount,
    pub(crate) cache_write_tokens: TokenCount,
    pub(crate) reasoning_tokens: TokenCount,
    pub(crate) thinking_tokens: TokenCount,
    pub(crate) ephemeral_5m_input_tokens: TokenCount,
    pub(crate) ephemeral_1h_input_tokens: TokenCount,
}

impl TokenCount {
    /// Returns the count; zero if it is missing.
    pub(crate) fn tokens(self) -> Tokens {
        Tokens(self.0.unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count: Option<f64> = <&RawValue>::deserialize(deserializer)?.get().parse().ok();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // plausible counts are small
        let plausible = |count: f64| (0.0..1e9).contains(&count).then_some(count as u64);
        Ok(Self(count.and_then(plausible)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault L55.
    #[test]
    fn an_invalid_count_is_none() {
        let count = |json| serde_json::from_str::<TokenCount>(json).unwrap().0;
        assert_eq!(count("12"), Some(12));
        assert_eq!(count("12.0"), Some(12));
        for json in ["-1", "null", "\"12\"", "1e300", "18446744073709551615", "[1]", "{\"a\":1}"] {
            assert_eq!(count(json), None, "{json}");
        }
    }
}
