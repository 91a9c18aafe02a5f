//! The values of a layer, each with its origin.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::origin::{ValueOrigin, may_be_secret, suggests_secret};

/// A table of a layer, or the whole layer.
pub(super) type ConfigTable = BTreeMap<String, ConfigNode>;

/// A value with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigNode {
    pub(super) value: ConfigValue,
    /// The origin of the value.
    pub(super) origin: ValueOrigin,
    /// The origin of its key.
    pub(super) key_origin: ValueOrigin,
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConfigValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// A text from a variable or an option; its type depends on the key.
    Untyped(String),
    Date(String),
    List(Vec<ConfigNode>),
    Table(ConfigTable),
}

impl ConfigNode {
    /// Returns a value with the same origin as its key.
    pub(super) fn new(value: ConfigValue, origin: ValueOrigin) -> Self {
        Self { value, key_origin: origin.clone(), origin }
    }

    /// Returns the text under a key, if the value is a table with one.
    pub(super) fn text_at(&self, key: &str) -> Option<&str> {
        self.value.as_table()?.get(key)?.value.as_text()
    }
}

impl ConfigValue {
    /// Converts a JSON value, and each text in it with `convert_text`.
    pub(super) fn from_json<E>(
        value: &Value,
        origin: &ValueOrigin,
        convert_text: &impl Fn(&str) -> Result<String, E>,
    ) -> Result<Self, E> {
        let node = |value| {
            let value = Self::from_json(value, origin, convert_text)?;
            Ok(ConfigNode::new(value, origin.clone()))
        };
        Ok(match value {
            Value::Null => Self::Text(String::new()),
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Integer(number),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(convert_text(text)?),
            Value::Array(items) => Self::List(items.iter().map(node).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| Ok((name.clone(), node(value)?)));
                Self::Table(fields.collect::<Result<_, _>>()?)
            }
        })
    }

    /// Returns the text of a string.
    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) | Self::Untyped(text) = self { Some(text) } else { None }
    }

    /// Returns the table, if the value is one.
    pub(super) fn as_table(&self) -> Option<&ConfigTable> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    /// Returns the items, if the value is a list.
    pub(super) fn as_list(&self) -> Option<&[ConfigNode]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// Returns the number, if the value is one.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss)] // exact up to 2^53, and every range ends before
            Self::Integer(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            Self::Untyped(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Describes the value of a key for messages. Long values are shortened. Possible secrets, even under a wrong key,
    /// are described by their kind only.
    pub(super) fn describe(&self, key: &str) -> String {
        let (kind, shown) = match self {
            Self::Untyped(text) if text.parse::<f64>().is_ok() => return text.clone(),
            Self::Text(text) | Self::Untyped(text) => ("a string", format!("{text:?}")),
            Self::List(_) => ("a list", self.to_string()),
            Self::Table(_) => ("a table", self.to_string()),
            Self::Date(text) => return text.clone(),
            Self::Bool(_) | Self::Integer(_) | Self::Float(_) => return self.to_string(),
        };
        // Lists and tables contain names, too.
        let names = if kind == "a string" { key.to_owned() } else { format!("{key} {shown}") };
        if suggests_secret(&names) || may_be_secret(&shown) {
            return kind.to_owned();
        }
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        match shown.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => format!("{kind} that begins with {}", &shown[..end]),
            None => shown,
        }
    }
}

/// The maximum length of a value in a message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

impl Serialize for ConfigValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => value.serialize(serializer),
            Self::Integer(value) => value.serialize(serializer),
            Self::Float(value) => value.serialize(serializer),
            Self::Text(text) | Self::Untyped(text) | Self::Date(text) => text.serialize(serializer),
            Self::List(items) => serializer.collect_seq(items.iter().map(|item| &item.value)),
            Self::Table(table) => {
                serializer.collect_map(table.iter().map(|(key, node)| (key, &node.value)))
            }
        }
    }
}

/// Writes the value as TOML.
impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", toml::Value::try_from(self).map_err(|_| fmt::Error)?)
    }
}

/// Inserts a value at a path; creates missing tables on the way.
pub(super) fn insert_at_path(
    table: &mut ConfigTable,
    path: &str,
    value: ConfigValue,
    origin: &ValueOrigin,
) {
    let new = |value| ConfigNode::new(value, origin.clone());
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), new(value));
        return;
    };
    let node = table.entry(first.to_owned());
    let node = node.or_insert_with(|| new(ConfigValue::Table(ConfigTable::new())));
    if let ConfigValue::Table(below) = &mut node.value {
        insert_at_path(below, rest, value, origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toml_document::parse_value;

    #[test]
    fn values_are_written_as_they_are_parsed() {
        for text in ["1", "1.5", "true", "'a\"b'", "[1, \"x\"]", "{ a = 1, b = [] }", "{}"] {
            let value = parse_value(text, &ValueOrigin::DEFAULT).unwrap();
            assert_eq!(value.to_string(), text);
        }
    }

    #[test]
    fn a_value_is_described_without_a_secret() {
        let long = format!("'{}'", "ab ".repeat(40));
        let begins = format!("a string that begins with \"{}", "ab ".repeat(40));
        for (key, text, expected) in [
            ("mode", "'yes'", "\"yes\""),
            ("mode", "[\"a\", 1]", "[\"a\", 1]"),
            ("mode", "{ a = 1 }", "{ a = 1 }"),
            ("mode", "1979-05-27", "1979-05-27"),
            ("mode", "\"a\\n\\u202e\"", "\"a\\n\\u{202e}\""),
            ("mode", &long, &begins[..26 + MAX_SHOWN_CHARS]),
            ("api_key_env", "'canary'", "a string"),
            ("mcp.servers.m.headers.X", "'canary'", "a string"),
            ("mode", "{ token = 'canary' }", "a table"),
            ("mode", "'0123456789canary'", "a string"),
            ("mode", "['https://me:canary@host']", "a list"),
        ] {
            let value = parse_value(text, &ValueOrigin::DEFAULT).unwrap();
            assert_eq!(value.describe(key), expected, "{key} = {text}");
        }
        assert_eq!(ConfigValue::Untyped("soon".to_owned()).describe("mode"), "\"soon\"");
    }
}
