//! Fields for which servers send undocumented types.
//!
//! Each function is for `#[serde(deserialize_with)]` and accepts one type of JSON. A value of another type is `None`,
//! and is not decoded. An invalid value of the accepted type is an error, so that nothing of a reply is lost silently.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

/// Text, borrowed if it has no escapes.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JsonText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl JsonText<'_> {
    /// Returns the text, unless it is empty.
    pub(crate) fn non_empty(self) -> Option<String> {
        Some(self.0.into_owned()).filter(|text| !text.is_empty())
    }
}

/// Accepts text.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JsonText<'de>>, D::Error> {
    if_starting_with(b'"', from)
}

/// Accepts an object.
pub(crate) fn object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    if_starting_with(b'{', from)
}

/// Accepts a list.
pub(crate) fn list<'de, D>(from: D) -> Result<Option<Vec<&'de RawValue>>, D::Error>
where
    D: Deserializer<'de>,
{
    if_starting_with(b'[', from)
}

/// Accepts a list, and drops everything in it but objects.
pub(crate) fn objects<'de, D, T>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let Some(items) = list(from)? else { return Ok(None) };
    let objects = items.into_iter().filter(|item| item.get().starts_with('{'));
    let objects = objects.map(|item| serde_json::from_str(item.get()).map_err(D::Error::custom));
    objects.collect::<Result<_, _>>().map(Some)
}

fn if_starting_with<'de, D, T>(first: u8, from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let json = <&RawValue>::deserialize(from)?.get();
    match json.as_bytes().first() == Some(&first) {
        true => serde_json::from_str(json).map(Some).map_err(D::Error::custom),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct AnyFields<'a> {
        #[serde(borrow, default, deserialize_with = "text")]
        text: Option<JsonText<'a>>,
        #[serde(borrow, default, deserialize_with = "object")]
        object: Option<NestedFields<'a>>,
        #[serde(borrow, default, deserialize_with = "objects")]
        objects: Option<Vec<NestedFields<'a>>>,
    }

    #[derive(Deserialize)]
    struct NestedFields<'a> {
        #[serde(borrow, default, deserialize_with = "text")]
        a: Option<JsonText<'a>>,
    }

    #[test]
    fn a_value_of_another_type_is_none() {
        for odd in ["null", "7", "true", "-1.5e3", "\"x\"", "[1]", "{\"b\":1}"] {
            let json = format!(r#"{{"text":{odd},"object":{odd},"objects":{odd}}}"#);
            let any: AnyFields<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(any.text.is_some(), odd.starts_with('"'), "{odd}");
            assert_eq!(any.object.is_some(), odd.starts_with('{'), "{odd}");
            assert_eq!(any.objects.is_some(), odd.starts_with('['), "{odd}");
        }
        let mixed = r#"{"objects":[1,{"a":"x"},null,{"a":2}]}"#;
        let objects = serde_json::from_str::<AnyFields<'_>>(mixed).unwrap().objects.unwrap();
        let found: Vec<_> =
            objects.into_iter().map(|o| o.a.and_then(JsonText::non_empty)).collect();
        assert_eq!(found, [Some("x".to_owned()), None]);
        assert!(serde_json::from_str::<AnyFields<'_>>("{}").unwrap().text.is_none());
    }

    #[test]
    fn a_value_of_this_type_that_is_damaged_is_an_error() {
        for damaged in [r#"{"text":"\ud800"}"#, r#"{"objects":[{"a":"\ud800"}]}"#] {
            assert!(serde_json::from_str::<AnyFields<'_>>(damaged).is_err(), "{damaged}");
        }
    }
}
