//! Secret values.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A key or a token. It is never printed or stored; only [`Secret::expose`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

/// An invalid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// It has characters that a header must not have, such as a line break.
    #[error("has a character that no key has (a space, a line break, or one outside ASCII)")]
    Malformed,
}

/// The replacement for a secret.
const MASK: &str = "***";

impl Secret {
    /// Returns the secret in `text`, without surrounding white space.
    ///
    /// # Errors
    ///
    /// Fails if it can't be sent in a header.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.is_empty() {
            Err(SecretError::Empty)
        } else if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(SecretError::Malformed)
        }
    }

    /// Returns the secret, for a header.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `text` with all occurrences of the secret masked.
    pub fn mask(&self, text: &str) -> String {
        text.replace(&*self.0, MASK)
    }

    /// Returns `bytes` with all occurrences of the secret masked.
    pub fn mask_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut masked, mut copied) = (Vec::with_capacity(bytes.len()), 0);
        for at in memchr::memmem::find_iter(bytes, self.0.as_bytes()) {
            masked.extend([&bytes[copied..at], MASK.as_bytes()].concat());
            copied = at + self.0.len();
        }
        masked.extend_from_slice(&bytes[copied..]);
        masked
    }
}

/// Keys, tokens and passwords that are masked in output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<[Arc<str>]>);

/// The length of the shortest secret. A shorter one would match ordinary text.
const MIN_SECRET_LENGTH: usize = 12;

impl Secrets {
    /// Returns the values that differ from ordinary text: long, a single word, and neither a path nor an address.
    pub fn from_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let is_distinctive = |value: &&str| {
            let is_word = value.bytes().all(|byte| byte.is_ascii_graphic());
            value.len() >= MIN_SECRET_LENGTH
                && is_word
                && !value.starts_with('/')
                && !value.contains("://")
        };
        let mut values: Vec<Arc<str>> =
            values.into_iter().map(str::trim).filter(is_distinctive).map(Arc::from).collect();
        // One may be a prefix of another.
        values.sort_by(|one, other| (other.len(), other).cmp(&(one.len(), one)));
        values.dedup();
        Self(values.into())
    }

    /// Returns the text with all secrets masked, and also text in the form of well-known keys.
    pub fn mask_all(&self, text: &str) -> String {
        mask_key_patterns(&self.mask(text.to_owned()))
    }

    /// Returns the text with all secrets masked.
    pub fn mask(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(&**secret) { text.replace(&**secret, MASK) } else { text }
        })
    }
}

/// The minimum length of well-known keys after their prefixes, and these.
const KEY_PATTERNS: [(usize, &[&str]); 5] = [
    (16, &["AKIA", "ASIA"]),
    (
        20,
        &[
            "sk-", "sk_live_", "rk_live_", "gsk_", "xai-", "pplx-", "hf_", "glpat-", "xoxb-",
            "xoxp-", "xoxa-",
        ],
    ),
    (30, &["AIza", "nvapi-", "tgp_v1_", "r8_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"]),
    (30, &["github_pat_"]),
    (40, &["pypi-", "dop_v1_"]),
];

/// Masks text in the form of well-known keys: a prefix, and letters and digits.
fn mask_key_patterns(text: &str) -> String {
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    let is_in_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    while let Some(start) = rest.find(is_in_key) {
        let (before, from) = rest.split_at(start);
        masked.push_str(before);
        let (word, later) = from.split_at(from.find(|c| !is_in_key(c)).unwrap_or(from.len()));
        // Ordinary names don't have both letters and digits.
        let is_key = |key: &str, least: usize| {
            key.len() >= least
                && key.bytes().any(|byte| byte.is_ascii_digit())
                && key.bytes().any(|byte| byte.is_ascii_alphabetic())
        };
        let known = KEY_PATTERNS.iter().find_map(|(least, prefixes)| {
            let is_prefix =
                |prefix: &&&str| word.strip_prefix(**prefix).is_some_and(|key| is_key(key, *least));
            prefixes.iter().find(is_prefix)
        });
        match known {
            Some(prefix) => masked.extend([*prefix, MASK]),
            None => masked.push_str(word),
        }
        rest = later;
    }
    masked.push_str(rest);
    masked
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new(" sk-canary\n").unwrap();
        assert_eq!(secret.expose(), "sk-canary");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.mask("bad key sk-canary!"), "bad key ***!");
    }

    #[test]
    fn a_secret_that_could_inject_a_header_is_rejected() {
        for text in ["a\r\nHost: b", "a b", "schlüssel", "\u{7f}"] {
            assert_eq!(Secret::new(text), Err(SecretError::Malformed), "{text:?}");
        }
        assert_eq!(Secret::new(" \n"), Err(SecretError::Empty));
    }

    #[test]
    fn a_secret_is_masked_among_bytes_too() {
        let secret = Secret::new("sk-canary").unwrap();
        assert_eq!(secret.mask_bytes(b"\xffsk-canary\x00sk-canarysk"), b"\xff***\x00***sk");
        assert_eq!(secret.mask_bytes(b"sk-canar"), b"sk-canar");
    }

    #[test]
    fn key_patterns_are_masked_and_ordinary_words_are_not() {
        let mask = |text: &str| Secrets::default().mask_all(text);
        let (a, b) = ("a1B2c3D4e5F6g7H8i9J0", "k1L2m3N4o5P6q7R8s9T0");
        let text = format!("key=sk-ant-api03-{a}, \"ghp_{a}{b}\"; AKIAIOSFODNN7EXAMPLE");
        assert_eq!(mask(&text), "key=sk-***, \"ghp_***\"; AKIA***");
        let text = "sk-short1, a task-a1B2c3D4e5F6g7H8i9J0K1, sk-some-very-long-name-of-a-thing, \
                    npm_config_cache, ghp_, AKIA, é sk-";
        assert_eq!(mask(text), text);
        let secrets = Secrets::from_values(["canary-0123456"]);
        assert_eq!(secrets.mask_all(&format!("canary-0123456 hf_{a}")), "*** hf_***");
    }

    /// Fault S23.
    #[test]
    fn distinctive_values_are_masked() {
        let values =
            ["short", "true", "/home/u/.ssh/id_rsa", "https://host/long", "two long words"];
        let secrets = ["canary-0123456", "canary-0123456-longer"];
        let secrets = Secrets::from_values(values.into_iter().chain(secrets));
        let text = format!("{} canary-0123456-longer canary-0123456", values.join(" "));
        assert_eq!(secrets.mask(text), format!("{} *** ***", values.join(" ")));
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }
}
