//! The types that a setting can have: how each is read, and how it is shown.

use std::path::PathBuf;

use super::origin::Origin;
use super::tree::{self, Node, Value};
use crate::exec::HostPattern;
use crate::model::{Micros, Span, Tokens};

/// A type that a setting can have.
pub(super) trait Setting: Sized {
    /// Returns what a value means; otherwise what is expected instead.
    fn read(value: &Value) -> Result<Self, String>;

    /// Returns the setting as a value, for people.
    fn show(&self) -> Value;
}

/// A setting that is one of a few words.
pub(super) trait Words: Copy + PartialEq + 'static {
    /// The words, the strictest one first where one is stricter than another.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Words> Setting for T {
    fn read(value: &Value) -> Result<Self, String> {
        let found = match value {
            Value::Text(text) | Value::Typed(text) => {
                T::WORDS.iter().find(|(word, _)| word == text).map(|(_, meaning)| *meaning)
            }
            _ => None,
        };
        found.ok_or_else(|| {
            let words: Vec<String> =
                T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            words.join(" or ")
        })
    }

    fn show(&self) -> Value {
        let word = T::WORDS.iter().find(|(_, meaning)| meaning == self);
        Value::Text(word.map_or("", |(word, _)| word).to_owned())
    }
}

/// Gives an enum its words.
macro_rules! words {
    ($name:ident { $($word:literal => $variant:ident),+ $(,)? }) => {
        impl $crate::config::setting::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl $name {
            /// Returns the word that a configuration uses for it.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}
pub(super) use words;

impl Setting for bool {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Bool(value) => Ok(*value),
            Value::Typed(text) if text == "true" || text == "1" => Ok(true),
            Value::Typed(text) if text == "false" || text == "0" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn show(&self) -> Value {
        Value::Bool(*self)
    }
}

fn whole(value: &Value) -> Result<u64, String> {
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Typed(text) => text.replace('_', "").parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| "a whole number, not negative".to_owned())
}

fn number(value: &Value) -> Result<f64, String> {
    let number = match value {
        #[allow(clippy::cast_precision_loss)] // far beyond every range by then
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::Typed(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| "a number".to_owned())
}

fn shown_whole(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Shows a number without a fraction where it has none.
#[allow(clippy::cast_possible_truncation)] // checked by the bound
fn shown_number(number: f64) -> Value {
    let is_whole = number.fract() == 0.0 && number.abs() < 1e15;
    if is_whole { Value::Integer(number as i64) } else { Value::Float(number) }
}

impl Setting for u32 {
    fn read(value: &Value) -> Result<Self, String> {
        // What is too large for the type is outside every range, and the range is told.
        whole(value).map(|number| Self::try_from(number).unwrap_or(Self::MAX))
    }

    fn show(&self) -> Value {
        shown_whole(u64::from(*self))
    }
}

impl Setting for u64 {
    fn read(value: &Value) -> Result<Self, String> {
        whole(value)
    }

    fn show(&self) -> Value {
        shown_whole(*self)
    }
}

impl Setting for Tokens {
    fn read(value: &Value) -> Result<Self, String> {
        whole(value).map(Self)
    }

    fn show(&self) -> Value {
        shown_whole(self.0)
    }
}

impl Setting for f64 {
    fn read(value: &Value) -> Result<Self, String> {
        number(value)
    }

    fn show(&self) -> Value {
        shown_number(*self)
    }
}

/// Seconds, with a fraction where wanted.
impl Setting for Span {
    fn read(value: &Value) -> Result<Self, String> {
        let micros = number(value).map(|seconds| (seconds * 1e6).round());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // saturates; not negative
        match micros {
            Ok(micros) if micros >= 0.0 => Ok(Self(micros as u64)),
            _ => Err("a number of seconds, not negative".to_owned()),
        }
    }

    fn show(&self) -> Value {
        shown_number(self.as_secs_f64())
    }
}

/// US dollars.
impl Setting for Micros {
    fn read(value: &Value) -> Result<Self, String> {
        let dollars = number(value).ok().and_then(Self::from_dollars);
        dollars.ok_or_else(|| "a number of US dollars, not negative".to_owned())
    }

    fn show(&self) -> Value {
        shown_number(self.dollars())
    }
}

impl Setting for String {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Typed(text) if !text.trim().is_empty() => {
                if text.contains('\0') {
                    Err("text without NUL".to_owned())
                } else {
                    Ok(text.clone())
                }
            }
            _ => Err("text that is not empty".to_owned()),
        }
    }

    fn show(&self) -> Value {
        Value::Text(self.clone())
    }
}

/// A host that commands may reach.
impl Setting for HostPattern {
    fn read(value: &Value) -> Result<Self, String> {
        let expected = || "hosts like packages.example.com or *.example.org".to_owned();
        let (Value::Text(text) | Value::Typed(text)) = value else { return Err(expected()) };
        Self::parse(text).map_err(|error| format!("{}; {error}", expected()))
    }

    fn show(&self) -> Value {
        Value::Text(self.to_string())
    }
}

/// A path as written; the reader makes it absolute.
impl Setting for PathBuf {
    fn read(value: &Value) -> Result<Self, String> {
        String::read(value).map(Self::from).map_err(|_| "a path".to_owned())
    }

    fn show(&self) -> Value {
        Value::Text(self.display().to_string())
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(value: &Value) -> Result<Self, String> {
        let Value::List(items) = value else { return Err("a list".to_owned()) };
        let item = |node: &Node| T::read(&node.value).map_err(|what| format!("a list of {what}"));
        items.iter().map(item).collect()
    }

    fn show(&self) -> Value {
        let item = |item: &T| Node::new(item.show(), Origin::DEFAULT);
        Value::List(self.iter().map(item).collect())
    }
}

/// Returns the list that a text from a variable or an option means: a TOML list, or its items between commas.
pub(super) fn typed_list(text: &str, origin: &Origin) -> Value {
    let trimmed = text.trim();
    match tree::parse_value(trimmed, origin) {
        Some(list @ Value::List(_)) => return list,
        Some(Value::Text(text)) => {
            return Value::List(vec![Node::new(Value::Text(text), origin.clone())]);
        }
        _ => {}
    }
    let inside = trimmed.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let items = inside.unwrap_or(trimmed).split(',').map(str::trim).filter(|item| !item.is_empty());
    let node = |item: &str| Node::new(Value::Typed(item.to_owned()), origin.clone());
    Value::List(items.map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Value {
        Value::Typed(text.to_owned())
    }

    /// Fault K3.
    #[test]
    fn numbers_that_are_none_are_refused() {
        for value in
            [Value::Float(f64::NAN), Value::Float(f64::INFINITY), typed("1e999"), typed("")]
        {
            assert!(Span::read(&value).is_err(), "{value:?}");
            assert!(Micros::read(&value).is_err(), "{value:?}");
        }
        assert!(Span::read(&Value::Integer(-1)).is_err());
        assert!(u32::read(&Value::Float(1.0)).is_err());
        assert_eq!(u32::read(&Value::Integer(i64::MAX)), Ok(u32::MAX));
        assert_eq!(Span::read(&Value::Float(1e99)), Ok(Span(u64::MAX)));
    }

    #[test]
    fn text_from_a_variable_means_what_is_asked_for() {
        assert_eq!(bool::read(&typed("1")), Ok(true));
        assert_eq!(u64::read(&typed("1_000")), Ok(1_000));
        assert_eq!(Span::read(&typed("0.25")), Ok(Span::millis(250)));
        assert_eq!(Micros::read(&typed("0.5")), Ok(Micros(500_000)));
        assert_eq!(String::read(&typed("5")), Ok("5".to_owned()));
        assert_eq!(String::read(&Value::Integer(5)), Err("text that is not empty".to_owned()));
    }

    #[test]
    fn a_list_is_toml_or_has_commas() {
        let texts = |text| Vec::<String>::read(&typed_list(text, &Origin::DEFAULT)).unwrap();
        assert_eq!(texts("a, b,"), ["a", "b"]);
        assert_eq!(texts("[\"a, b\", 'c']"), ["a, b", "c"]);
        assert_eq!(texts("'a, b'"), ["a, b"]);
        assert_eq!(texts("[ab]*"), ["[ab]*"]);
        assert!(texts("").is_empty());
    }

    #[test]
    fn spans_and_money_are_shown_in_seconds_and_dollars() {
        assert_eq!(Span::secs(60).show().to_string(), "60");
        assert_eq!(Span::millis(1_500).show().to_string(), "1.5");
        assert_eq!(Micros(1_250_000).show().to_string(), "1.25");
    }
}
