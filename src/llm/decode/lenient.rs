//! Fields for which servers send undocumented types.
//!
//! Each type accepts one type of JSON. A value of any other type becomes `None`, and is not decoded. An invalid value
//! of the accepted type is an error, so that no part of a reply is lost silently.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

use crate::types::Tokens;

/// A value whose JSON starts with the byte `FIRST`; `None` for any other value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LenientValue<T, const FIRST: u8>(pub(crate) Option<T>);

/// Text.
pub(crate) type TextField<'a> = LenientValue<JsonText<'a>, b'"'>;
/// An object.
pub(crate) type Object<T> = LenientValue<T, b'{'>;
/// A list.
pub(crate) type List<T> = LenientValue<Vec<T>, b'['>;

/// Text, borrowed if it has no escapes.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonText<'a>(pub(crate) Cow<'a, str>);

/// The maximum size of a text that is unescaped at once, in bytes.
const UNESCAPED_AT_ONCE: usize = 64 << 10;

/// The length of the longest escape, a pair of surrogates.
const LONGEST_ESCAPE: usize = 12;

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        unescape(json).map(Self).map_err(Error::custom)
    }
}

/// Returns the content of a JSON text. A long text is unescaped in parts, so that the parser's buffer stays short.
fn unescape(json: &str) -> serde_json::Result<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct WholeText<'a>(#[serde(borrow)] Cow<'a, str>);
    let content = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
    let mut rest = match content {
        Some(content) if json.len() > UNESCAPED_AT_ONCE && json.contains('\\') => content,
        _ => return serde_json::from_str(json).map(|WholeText(text)| text),
    };
    let mut text = String::with_capacity(rest.len());
    while !rest.is_empty() {
        // No escape may begin before the cut and end after it.
        let is_cut = |at: &usize| {
            let before = &rest.as_bytes()[at - LONGEST_ESCAPE..*at];
            rest.is_char_boundary(*at) && !before.contains(&b'\\')
        };
        let end = (UNESCAPED_AT_ONCE..rest.len()).find(is_cut).unwrap_or(rest.len());
        let (piece, later) = rest.split_at(end);
        text.push_str(&serde_json::from_str::<WholeText<'_>>(&format!("\"{piece}\""))?.0);
        rest = later;
    }
    Ok(text.into())
}

/// Appends to a text; the first piece is moved instead of copied.
pub(crate) fn append(text: &mut String, piece: Cow<'_, str>) {
    match text.is_empty() {
        true => *text = piece.into_owned(),
        false => text.push_str(&piece),
    }
}

impl<'de, T: Deserialize<'de>, const FIRST: u8> Deserialize<'de> for LenientValue<T, FIRST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(from)?.get();
        match json.as_bytes().first() == Some(&FIRST) {
            true => {
                serde_json::from_str(json).map(|value| Self(Some(value))).map_err(Error::custom)
            }
            false => Ok(Self(None)),
        }
    }
}

impl<'a> TextField<'a> {
    /// Returns the text; empty if it is missing.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_ref().map_or("", |text| &text.0)
    }

    /// Returns the text; empty if it is missing.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        self.0.unwrap_or_default().0
    }

    /// Returns the text; empty if it is missing.
    pub(crate) fn into_string(self) -> String {
        self.0.map_or_else(String::new, |text| text.0.into_owned())
    }

    /// Returns the text, unless it is empty.
    pub(crate) fn non_empty(self) -> Option<String> {
        Some(self.into_string()).filter(|text| !text.is_empty())
    }
}

impl<T> List<Object<T>> {
    /// Returns the objects in the list.
    pub(crate) fn objects(self) -> impl Iterator<Item = T> {
        self.0.into_iter().flatten().filter_map(|item| item.0)
    }
}

/// Returns the content of a JSON text, or the JSON of any other value, which some servers send instead.
pub(crate) fn text_or_json(json: Option<&RawValue>) -> serde_json::Result<Cow<'_, str>> {
    match json.map_or("", RawValue::get) {
        text if text.starts_with('"') => serde_json::from_str(text).map(|JsonText(text)| text),
        json => Ok(json.into()),
    }
}

/// A token count; `None` if it is missing or invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount(pub(crate) Option<u64>);

/// The details of a count, for all providers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)] // the providers' names
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

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct AnyFields<'a> {
        #[serde(borrow)]
        text: TextField<'a>,
        object: Object<NestedFields<'a>>,
        objects: List<Object<NestedFields<'a>>>,
    }

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct NestedFields<'a> {
        #[serde(borrow)]
        a: TextField<'a>,
    }

    #[test]
    fn a_value_of_another_type_is_ignored() {
        for odd in ["null", "7", "true", "-1.5e3", "\"x\"", "[1]", "{\"b\":1}"] {
            let json = format!(r#"{{"text":{odd},"object":{odd},"objects":{odd}}}"#);
            let any: AnyFields<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(any.text.0.is_some(), odd.starts_with('"'), "{odd}");
            assert_eq!(any.object.0.is_some(), odd.starts_with('{'), "{odd}");
            assert_eq!(any.objects.0.is_some(), odd.starts_with('['), "{odd}");
        }
        let mixed = r#"{"objects":[1,{"a":"x"},null,{"a":2}]}"#;
        let objects = serde_json::from_str::<AnyFields<'_>>(mixed).unwrap().objects;
        let found: Vec<_> = objects.objects().map(|object| object.a.non_empty()).collect();
        assert_eq!(found, [Some("x".to_owned()), None]);
        assert!(serde_json::from_str::<AnyFields<'_>>("{}").unwrap().text.0.is_none());
    }

    #[test]
    fn a_value_of_this_type_that_is_damaged_is_an_error() {
        for damaged in [r#"{"text":"\ud800"}"#, r#"{"objects":[{"a":"\ud800"}]}"#] {
            assert!(serde_json::from_str::<AnyFields<'_>>(damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn a_long_text_is_unescaped_as_a_short_one() {
        for unit in ["plain", "a\n\"\\ä\u{1f980}", "\u{1}\u{1f980}and some more"] {
            let text = unit.repeat(40_000);
            let escaped = serde_json::to_string(&text).unwrap();
            let ascii: String = escaped
                .chars()
                .flat_map(|c| match c.is_ascii() {
                    true => vec![c.to_string()],
                    false => c
                        .encode_utf16(&mut [0; 2])
                        .iter()
                        .map(|unit| format!("\\u{unit:04x}"))
                        .collect(),
                })
                .collect();
            for json in [escaped, ascii] {
                let JsonText(read) = serde_json::from_str(&json).unwrap();
                assert!(read == text, "{unit}");
            }
        }
        let lone = format!("\"{}\\ud800\"", "x".repeat(UNESCAPED_AT_ONCE));
        assert!(serde_json::from_str::<JsonText<'_>>(&lone).is_err());
    }

    /// Fault L55.
    #[test]
    fn an_invalid_count_is_ignored() {
        let count = |json| serde_json::from_str::<TokenCount>(json).unwrap().0;
        assert_eq!(count("12"), Some(12));
        assert_eq!(count("12.0"), Some(12));
        for json in ["-1", "null", "\"12\"", "1e300", "18446744073709551615", "[1]", "{\"a\":1}"] {
            assert_eq!(count(json), None, "{json}");
        }
    }
}
