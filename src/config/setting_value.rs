//! The types of settings: parsing and display.

use std::path::PathBuf;

use super::effective::RelativePathBase;
use super::key_spec::ValueType;
use super::origin::ValueOrigin;
use super::toml_document::parse_value;
use super::value_tree::{ConfigNode, ConfigValue};
use crate::exec::HostPattern;
use crate::types::{MicroUsd, TimeSpan, Tokens, WordEnum};

/// A type of settings.
pub(super) trait SettingValue: Sized {
    /// Parses a value; on failure, returns a description of the expected value.
    fn from_value(value: &ConfigValue) -> Result<Self, String>;

    /// Returns the setting as a value.
    fn to_value(&self) -> ConfigValue;

    /// Returns the type of the values, for the schema and the help.
    fn value_type() -> ValueType {
        ValueType::Text
    }

    /// Returns the setting with absolute paths; `node` is the value from which the setting was parsed.
    fn resolve(self, _paths: &RelativePathBase, _node: &ConfigNode) -> Self {
        self
    }
}

impl<T: WordEnum> SettingValue for T {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        value.as_text().and_then(T::from_word).ok_or_else(|| {
            let words: Vec<String> =
                T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(" or ")
        })
    }

    fn to_value(&self) -> ConfigValue {
        let word = T::WORDS.iter().find(|(_, meaning)| meaning == self);
        ConfigValue::Text(word.map_or("", |(word, _)| word).to_owned())
    }

    fn value_type() -> ValueType {
        ValueType::Word(T::WORDS.iter().map(|(word, _)| *word).collect())
    }
}

impl SettingValue for bool {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        match value {
            ConfigValue::Bool(value) => Ok(*value),
            ConfigValue::Untyped(text) if text == "true" || text == "1" => Ok(true),
            ConfigValue::Untyped(text) if text == "false" || text == "0" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Bool(*self)
    }

    fn value_type() -> ValueType {
        ValueType::Bool
    }
}

/// Implements [`SettingValue`] for numbers: the Rust type, the type of the values, the expectation in messages, and how
/// to read and write one.
macro_rules! number_settings {
    ($($Type:ty: $value_type:ident, $expected:literal, $read:expr, $write:expr;)+) => {
        $(
            impl SettingValue for $Type {
                fn from_value(value: &ConfigValue) -> Result<Self, String> {
                    $read(value).ok_or_else(|| $expected.to_owned())
                }

                fn to_value(&self) -> ConfigValue {
                    $write(*self)
                }

                fn value_type() -> ValueType {
                    ValueType::$value_type
                }
            }
        )+
    };
}

number_settings! {
    u64: Integer, "a whole number, not negative", read_integer, integer_value;
    // A number too large for the type is outside every range, so the range is reported.
    u32: Integer, "a whole number, not negative",
        |value| Some(Self::try_from(read_integer(value)?).unwrap_or(Self::MAX)),
        |number| integer_value(u64::from(number));
    Tokens: Integer, "a whole number, not negative",
        |value| read_integer(value).map(Self), |tokens: Self| integer_value(tokens.0);
    f64: Number, "a number", read_number, number_value;
    TimeSpan: Duration, "a number of seconds, or a time like \"10m\"",
        read_time, |span: Self| number_value(span.as_secs_f64());
    MicroUsd: Number, "a number of US dollars, not negative",
        |value| read_number(value).and_then(Self::from_dollars),
        |money: Self| number_value(money.as_dollars());
}

fn read_integer(value: &ConfigValue) -> Option<u64> {
    match value {
        ConfigValue::Integer(number) => u64::try_from(*number).ok(),
        ConfigValue::Untyped(text) => text.replace('_', "").parse().ok(),
        _ => None,
    }
}

fn read_number(value: &ConfigValue) -> Option<f64> {
    value.as_number().filter(|number| number.is_finite())
}

/// Reads a number of seconds, or a text of a number and a unit.
fn read_time(value: &ConfigValue) -> Option<TimeSpan> {
    read_number(value).and_then(seconds).or_else(|| parse_time(value.as_text()?))
}

/// Parses a number with a unit: `s`, `m` or `h`.
fn parse_time(text: &str) -> Option<TimeSpan> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last()? {
        (end, 's') => (&text[..end], 1.0),
        (end, 'm') => (&text[..end], 60.0),
        (end, 'h') => (&text[..end], 3_600.0),
        _ => return None,
    };
    let number = read_number(&ConfigValue::Untyped(number.trim().to_owned()))?;
    seconds(number * unit)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; not negative
fn seconds(number: f64) -> Option<TimeSpan> {
    let micros = (number * 1e6).round();
    (micros >= 0.0).then_some(TimeSpan(micros as u64))
}

/// Returns whether a text is a time: a number of seconds, or one with a unit.
pub fn is_time(text: &str) -> bool {
    read_time(&ConfigValue::Untyped(text.to_owned())).is_some()
}

fn integer_value(number: u64) -> ConfigValue {
    ConfigValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns a number as a value: an integer if it is whole.
#[allow(clippy::cast_possible_truncation)] // checked by the bound
fn number_value(number: f64) -> ConfigValue {
    let is_whole = number.fract() == 0.0 && number.abs() < 1e15;
    if is_whole { ConfigValue::Integer(number as i64) } else { ConfigValue::Float(number) }
}

impl SettingValue for String {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        match value.as_text().filter(|text| !text.trim().is_empty()) {
            None => Err("text that is not empty".to_owned()),
            Some(text) if text.contains('\0') => Err("text without NUL".to_owned()),
            Some(text) => Ok(text.to_owned()),
        }
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Text(self.clone())
    }
}

/// A host that commands may reach.
impl SettingValue for HostPattern {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        let expected = "hosts like packages.example.com or *.example.org";
        let text = value.as_text().ok_or(expected)?;
        Self::parse(text).map_err(|error| format!("{expected}; {error}"))
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Text(self.to_string())
    }
}

/// A path as written; `resolve` makes it absolute.
impl SettingValue for PathBuf {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        String::from_value(value).map(Self::from).map_err(|_| "a path".to_owned())
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Text(self.display().to_string())
    }

    fn resolve(self, paths: &RelativePathBase, node: &ConfigNode) -> Self {
        paths.absolute(&self, Some(&node.origin))
    }
}

impl<T: SettingValue> SettingValue for Vec<T> {
    fn from_value(value: &ConfigValue) -> Result<Self, String> {
        let items = value.as_list().ok_or("a list")?.iter();
        let item = |node: &ConfigNode| T::from_value(&node.value);
        items.map(item).collect::<Result<_, _>>().map_err(|what| format!("a list of {what}"))
    }

    fn to_value(&self) -> ConfigValue {
        let item = |item: &T| ConfigNode::new(item.to_value(), ValueOrigin::DEFAULT);
        ConfigValue::List(self.iter().map(item).collect())
    }

    fn value_type() -> ValueType {
        ValueType::List(Box::new(T::value_type()))
    }

    fn resolve(self, paths: &RelativePathBase, node: &ConfigNode) -> Self {
        let nodes = node.value.as_list().unwrap_or_default();
        self.into_iter().zip(nodes).map(|(item, node)| item.resolve(paths, node)).collect()
    }
}

/// Parses the text of a variable or an option as a list: a TOML list, or items separated by commas.
pub(super) fn parse_list(text: &str, origin: &ValueOrigin) -> ConfigValue {
    let text = text.trim();
    let node = |value| ConfigNode::new(value, origin.clone());
    match parse_value(text, origin) {
        Some(list @ ConfigValue::List(_)) => list,
        Some(value @ ConfigValue::Text(_)) => ConfigValue::List(vec![node(value)]),
        _ => {
            let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            let items = inside.unwrap_or(text).split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty());
            ConfigValue::List(
                items.map(|item| node(ConfigValue::Untyped(item.to_owned()))).collect(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> ConfigValue {
        ConfigValue::Untyped(text.to_owned())
    }

    /// Fault K3.
    #[test]
    fn invalid_numbers_are_rejected() {
        for value in [
            ConfigValue::Float(f64::NAN),
            ConfigValue::Float(f64::INFINITY),
            typed("1e999"),
            typed(""),
        ] {
            assert!(TimeSpan::from_value(&value).is_err(), "{value:?}");
            assert!(MicroUsd::from_value(&value).is_err(), "{value:?}");
        }
        assert!(TimeSpan::from_value(&ConfigValue::Integer(-1)).is_err());
        assert!(u32::from_value(&ConfigValue::Float(1.0)).is_err());
        assert_eq!(u32::from_value(&ConfigValue::Integer(i64::MAX)), Ok(u32::MAX));
        assert_eq!(TimeSpan::from_value(&ConfigValue::Float(1e99)), Ok(TimeSpan(u64::MAX)));
    }

    #[test]
    fn a_time_is_in_seconds_or_has_a_unit() {
        let parse = |text: &str| TimeSpan::from_value(&ConfigValue::Text(text.to_owned())).ok();
        assert_eq!(parse("10m"), Some(TimeSpan::from_secs(600)));
        assert_eq!(parse("1.5h"), Some(TimeSpan::from_secs(5_400)));
        assert_eq!(parse("90 s"), Some(TimeSpan::from_secs(90)));
        for wrong in ["", "m", "10", "-1m", "10d", "nanm"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(TimeSpan::from_value(&typed("30")), Ok(TimeSpan::from_secs(30)));
        assert_eq!(TimeSpan::from_value(&typed("2m")), Ok(TimeSpan::from_secs(120)));
    }

    #[test]
    fn text_from_a_variable_is_parsed_by_type() {
        assert_eq!(bool::from_value(&typed("1")), Ok(true));
        assert_eq!(u64::from_value(&typed("1_000")), Ok(1_000));
        assert_eq!(TimeSpan::from_value(&typed("0.25")), Ok(TimeSpan::from_millis(250)));
        assert_eq!(MicroUsd::from_value(&typed("0.5")), Ok(MicroUsd(500_000)));
        assert_eq!(String::from_value(&typed("5")), Ok("5".to_owned()));
        assert_eq!(
            String::from_value(&ConfigValue::Integer(5)),
            Err("text that is not empty".to_owned())
        );
    }

    #[test]
    fn a_list_is_toml_or_separated_by_commas() {
        let texts =
            |text| Vec::<String>::from_value(&parse_list(text, &ValueOrigin::DEFAULT)).unwrap();
        assert_eq!(texts("a, b,"), ["a", "b"]);
        assert_eq!(texts("[\"a, b\", 'c']"), ["a, b", "c"]);
        assert_eq!(texts("'a, b'"), ["a, b"]);
        assert_eq!(texts("[ab]*"), ["[ab]*"]);
        assert!(texts("").is_empty());
    }

    #[test]
    fn time_spans_and_money_are_shown_in_seconds_and_dollars() {
        assert_eq!(TimeSpan::from_secs(60).to_value().to_string(), "60");
        assert_eq!(TimeSpan::from_millis(1_500).to_value().to_string(), "1.5");
        assert_eq!(MicroUsd(1_250_000).to_value().to_string(), "1.25");
    }
}
