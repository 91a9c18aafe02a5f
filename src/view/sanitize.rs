//! Sanitizing text from models, tools and file names for a terminal.
//!
//! Characters that move the cursor, change colors, control the terminal or reverse the writing direction are escaped.

use std::borrow::Cow;
use std::path::Path;

/// Returns whether a character may mislead a terminal or its reader.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks, embeddings, overrides and isolates of the writing direction.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line ends that some readers don't recognize.
            | '\u{2028}' | '\u{2029}'
            // Invisible characters: byte order mark, annotations, tags.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes a text of several lines. Line ends and tabs are kept.
pub fn multiline(text: &str) -> Cow<'_, str> {
    escape_unless(text, |c| is_harmful(c) && c != '\n' && c != '\t')
}

/// Escapes a text for a pipe or a file. Line ends of all kinds and tabs are kept, and JSON stays equivalent.
pub fn for_pipe(text: &str) -> Cow<'_, str> {
    escape_output(text, false)
}

/// Escapes a text for a terminal, like [`for_pipe`]; colors are kept.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    escape_output(text, true)
}

/// Returns the length of a sequence that sets colors, `ESC [ … m`, at the beginning of a text.
fn color_length(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    codes[end..].starts_with('m').then_some(2 + end + 1)
}

fn escape_output(text: &str, keeps_colors: bool) -> Cow<'_, str> {
    let is_shown = |c: char| is_harmful(c) && !matches!(c, '\n' | '\t' | '\r');
    if !text.contains(is_shown) && !text.contains('\r') {
        return Cow::Borrowed(text);
    }
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(color) = color_length(rest).filter(|_| keeps_colors) {
            clean.push_str(&rest[..color]);
            rest = &rest[color..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        // Alone, a carriage return would let the following text overwrite the text before it.
        let is_alone = c == '\r' && !is_json && !rest.starts_with('\n');
        match c {
            c if is_shown(c) && is_json => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    clean.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c if is_shown(c) || is_alone => clean.extend(c.escape_default()),
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// Escapes a text as one line. Line ends and tabs are shown as `\n` and `\t`.
pub fn line(text: &str) -> Cow<'_, str> {
    escape_unless(text, is_harmful)
}

/// Escapes a path as one line.
pub fn path(path: &Path) -> String {
    line(&path.to_string_lossy()).into_owned()
}

/// Returns a text without characters that XML can't express.
pub fn xml_text(text: &str) -> String {
    let is_invalid =
        |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{fffe}' || c == '\u{ffff}';
    text.replace(is_invalid, "\u{fffd}")
}

/// Returns the first line that is not blank, shortened to `most` characters.
pub fn headline(text: &str, most: usize) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    truncate(&line(first), most)
}

/// Shortens a text to `most` characters. A shortened text ends with `…`.
pub fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

fn escape_unless(text: &str, is_shown: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_shown) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // CR LF is one line end.
            '\r' if chars.peek() == Some(&'\n') && !is_shown('\n') => {}
            c if is_shown(c) => clean.extend(c.escape_default()),
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(multiline("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(
            multiline("\u{9b}2J \u{202e}txt.exe \u{7f}"),
            "\\u{9b}2J \\u{202e}txt.exe \\u{7f}"
        );
        assert_eq!(multiline("tag\u{e0041}"), "tag\\u{e0041}");
    }

    #[test]
    fn multiline_keeps_line_ends_and_line_escapes_them() {
        assert_eq!(multiline("a\r\n\tb\rc"), "a\n\tb\\rc");
        assert_eq!(line("a\nb\tc"), "a\\nb\\tc");
        assert!(matches!(multiline("plain ünïcödé 🔧"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_pipe_keeps_line_ends_and_json() {
        assert_eq!(for_pipe("a\r\nb\tc\n"), "a\r\nb\tc\n");
        assert_eq!(for_pipe("a\rb\u{1b}[2J\u{9b}m\u{202e}"), "a\\rb\\u{1b}[2J\\u{9b}m\\u{202e}");
        let colored = "\u{1b}[1;31mred\u{1b}[0m";
        assert_eq!(for_terminal(colored), colored);
        for hidden in ["\u{1b}]52;c;cHdu\u{7}", "\u{1b}[2J", "\u{1b}[31", "\u{9b}31m", "a\rb"] {
            assert_eq!(for_terminal(hidden), for_pipe(hidden));
        }
        assert_eq!(
            for_pipe("{\"a\": \"\u{202e}\u{e0041}\"}"),
            "{\"a\": \"\\u202e\\udb40\\udc41\"}"
        );
    }

    #[test]
    fn a_headline_is_the_first_line_that_says_something() {
        assert_eq!(headline("\n  \n  one two three \nfour", 8), "one two…");
        assert_eq!(headline("", 8), "");
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
    }
}
