//! Token counts, as providers write them.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::model::Tokens;

/// A token count; `None` if it is missing or invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount(pub(crate) Option<u64>);

/// The details of the input in OpenAI's formats.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct InputDetails {
    pub(crate) cached_tokens: TokenCount,
    pub(crate) cache_write_tokens: TokenCount,
}

/// The details of the output in OpenAI's formats.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct OutputDetails {
    pub(crate) reasoning_tokens: TokenCount,
}

/// The largest plausible count for one call.
const MAX_PLAUSIBLE: u64 = 1_000_000_000;

impl TokenCount {
    /// Returns the count; zero if it is missing.
    pub(crate) fn tokens(self) -> Tokens {
        Tokens(self.0.unwrap_or(0))
    }
}

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokenCountVisitor)
    }
}

struct TokenCountVisitor;

impl<'de> Visitor<'de> for TokenCountVisitor {
    type Value = TokenCount;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number of tokens")
    }

    fn visit_u64<E>(self, count: u64) -> Result<TokenCount, E> {
        Ok(TokenCount(Some(count).filter(|count| *count < MAX_PLAUSIBLE)))
    }

    fn visit_i64<E>(self, count: i64) -> Result<TokenCount, E> {
        Ok(TokenCount(u64::try_from(count).ok().filter(|count| *count < MAX_PLAUSIBLE)))
    }

    fn visit_f64<E>(self, count: f64) -> Result<TokenCount, E> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked by the range
        let whole = (0.0..1e9).contains(&count).then_some(count as u64);
        Ok(TokenCount(whole))
    }

    fn visit_bool<E>(self, _: bool) -> Result<TokenCount, E> {
        Ok(TokenCount(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<TokenCount, E> {
        Ok(TokenCount(None))
    }

    fn visit_unit<E>(self) -> Result<TokenCount, E> {
        Ok(TokenCount(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TokenCount, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(TokenCount(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<TokenCount, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(TokenCount(None))
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
