//! Making texts of servers safe to show.

use std::fmt::Write as _;

use crate::net::Secret;

/// The longest error text of a provider that is shown, in bytes.
const MAX_ERROR_TEXT: usize = 2_048;

/// How many bytes of an unexpected response are shown.
const MAX_EXCERPT: usize = 200;

/// The length of the shortest key.
const MIN_KEY_LENGTH: usize = 8;

/// Masks keys in texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretMasker(Vec<Secret>);

impl SecretMasker {
    /// Returns a masker for these keys.
    ///
    /// Shorter values are placeholders for servers that ignore the key; masking them would only damage texts.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self(secrets.into_iter().filter(|secret| secret.expose().len() >= MIN_KEY_LENGTH).collect())
    }

    /// Returns a text with every key masked, and everything that looks like a key: providers quote a rejected key, and
    /// it may be another one.
    pub(crate) fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for secret in &self.0 {
            masked = secret.mask(&masked);
        }
        mask_patterns(&masked)
    }

    /// Returns bytes with every key masked.
    pub(crate) fn mask_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.iter().fold(bytes.to_vec(), |bytes, secret| secret.mask_bytes(&bytes))
    }
}

/// The prefixes of keys.
const KEY_PREFIXES: [&str; 6] = ["sk-", "AIza", "gsk_", "xai-", "Bearer ", "hf_"];

fn mask_patterns(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, beginning)) = KEY_PREFIXES
        .iter()
        .filter_map(|beginning| Some((find_word_prefix(rest, beginning)?, *beginning)))
        .min_by_key(|(at, _)| *at)
    {
        let (before, key) = rest.split_at(at + beginning.len());
        let is_key = |c: char| c.is_ascii_alphanumeric() || "-_*.".contains(c);
        let length = key.find(|c| !is_key(c)).unwrap_or(key.len());
        masked.push_str(before);
        let (key, later) = key.split_at(length);
        masked.push_str(if length >= 8 { "***" } else { key });
        rest = later;
    }
    masked.push_str(rest);
    masked
}

/// Returns the position of the first word with this prefix.
fn find_word_prefix(text: &str, beginning: &str) -> Option<usize> {
    let mut found = text.match_indices(beginning).map(|(at, _)| at);
    found.find(|at| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Returns a text on one line, without control characters, and with a limited length.
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

    #[test]
    fn all_keys_are_masked() {
        let masks = SecretMasker::new([Secret::new("my-canary-key").unwrap()]);
        assert_eq!(masks.mask("key my-canary-key is bad"), "key *** is bad");
        assert_eq!(
            masks.mask("Incorrect API key provided: sk-abc123def456****wxyz. Try"),
            "Incorrect API key provided: sk-*** Try"
        );
        assert_eq!(masks.mask("a task-oriented sk-x"), "a task-oriented sk-x");
    }
}
