//! Makes texts from servers safe to show.

use std::fmt::Write as _;

/// The maximum length of a provider's error text that is shown, in bytes.
const MAX_ERROR_TEXT: usize = 2_048;

/// The number of bytes shown of an unexpected response.
const MAX_EXCERPT: usize = 200;

/// Returns a text in one line, without control characters, and with a limited length.
pub(crate) fn readable(text: &str) -> String {
    shorten(text, MAX_ERROR_TEXT)
}

/// Returns the beginning of an unexpected response.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_EXCERPT)]), MAX_EXCERPT)
}

fn shorten(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.trim().chars() {
        if shown.len() + c.len_utf8() > most {
            shown.push('…');
            break;
        }
        match c {
            '\n' | '\r' | '\t' | ' ' if shown.ends_with(' ') => {}
            '\n' | '\r' | '\t' => shown.push(' '),
            c if c.is_control() || is_invisible(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Returns whether a character changes the display of its neighbours: direction marks, byte order marks.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault L10.
    #[test]
    fn error_text_is_bounded_and_has_no_control_characters() {
        assert_eq!(readable(" a\n\n b\u{1b}[2J\u{202e}"), "a b\\u{1b}[2J\\u{202e}");
        let long = readable(&"ä".repeat(5_000));
        assert!(long.len() <= MAX_ERROR_TEXT + '…'.len_utf8() && long.ends_with('…'));
    }
}
