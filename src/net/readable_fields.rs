//! The readable part of a JSON-RPC message that may be invalid.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// The fields that show the intended kind of a message, read up to the first invalid JSON or the end.
#[derive(Debug, Default, PartialEq)]
pub struct ReadableFields {
    /// The ID.
    pub id: Option<Value>,
    /// Whether the message names a version of the protocol.
    pub has_version: bool,
    /// Whether the message names a method.
    pub has_method: bool,
    /// Whether the message has a result or an error.
    pub has_outcome: bool,
}

impl ReadableFields {
    /// Returns the fields at the beginning of a text.
    pub fn of(text: &[u8]) -> Self {
        let mut fields = Self::default();
        // Deserializing fails where the text is invalid, but keeps the fields read so far.
        let _ = fields.deserialize(&mut serde_json::Deserializer::from_slice(text));
        fields
    }
}

impl<'de> DeserializeSeed<'de> for &mut ReadableFields {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut ReadableFields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "id" => {
                    self.id = Some(map.next_value()?);
                    continue;
                }
                "jsonrpc" => self.has_version = true,
                "method" => self.has_method = true,
                "result" | "error" => self.has_outcome = true,
                _ => {}
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_up_to_where_the_text_fails() {
        let fields = ReadableFields::of(br#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":"#);
        let id = Some(7.into());
        let expected =
            ReadableFields { id, has_version: true, has_method: false, has_outcome: true };
        assert_eq!(fields, expected);
        assert_eq!(ReadableFields::of(b"listening"), ReadableFields::default());
    }
}
