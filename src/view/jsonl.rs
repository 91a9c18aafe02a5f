//! Values as lines of JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::sanitize;

/// Returns a value as one line of JSON, including the line end.
///
/// Characters that could mislead a terminal, or that some readers treat as a line end (U+2028), are written as
/// `\uXXXX`, which is equivalent JSON.
///
/// # Errors
///
/// Fails for a value that JSON cannot express.
pub fn to_line(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(256);
    value.serialize(&mut Serializer::with_formatter(&mut bytes, EscapingFormatter))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A formatter for compact JSON without harmful characters.
struct EscapingFormatter;

impl Formatter for EscapingFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        let mut rest = fragment;
        // A CI system interprets `##[…]` and `##vso[…]` as commands anywhere in a line.
        let is_mark = |before: &str, c: char| {
            let mark = before.len().checked_sub(5).and_then(|at| before.get(at..));
            c == '['
                && (before.ends_with("##")
                    || mark.is_some_and(|mark| mark.eq_ignore_ascii_case("##vso")))
        };
        let harmful = |rest: &str| {
            let is_it =
                |(at, c): &(usize, char)| sanitize::is_harmful(*c) || is_mark(&rest[..*at], *c);
            rest.char_indices().find(is_it)
        };
        while let Some((at, c)) = harmful(rest) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_line_end_and_no_harmful_character_and_reads_back() {
        let text = "##[x]##vso[y]a\nb\u{2028}c\u{1b}d\u{202e}e\u{e0041}f\u{7f}ü🔧";
        let line = String::from_utf8(to_line(&text).unwrap()).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert!(!line.trim_end().contains(sanitize::is_harmful), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
