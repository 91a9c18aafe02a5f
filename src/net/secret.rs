//! Values that must never be shown.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// A key or a token. It is never printed and never stored; only [`Secret::expose`] tells it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

/// Why a text cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadSecret {
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It has characters that no header may have, a line break say.
    #[error("has a character that no key has (a space, a line break, or one outside ASCII)")]
    Malformed,
}

/// What stands for a secret where it would be shown.
const MASK: &str = "***";

impl Secret {
    /// Returns the secret in `text`, without the white space around it.
    ///
    /// # Errors
    ///
    /// Fails when what remains could not be sent as a header.
    pub fn new(text: &str) -> Result<Self, BadSecret> {
        let text = text.trim();
        if text.is_empty() {
            Err(BadSecret::Empty)
        } else if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(BadSecret::Malformed)
        }
    }

    /// Returns the secret itself, for the header that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns `text` with the secret masked wherever it occurs.
    pub fn mask(&self, text: &str) -> String {
        text.replace(&*self.0, MASK)
    }
}

/// Values that nobody is to see in what a program prints: keys, tokens and passwords that are known by their names.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<[Arc<str>]>);

/// The shortest value that is taken for a secret. A shorter one would be found where it means nothing.
const SHORTEST: usize = 12;

impl Secrets {
    /// Returns those of the values that can be told from ordinary text: long, in one word, and neither path nor address.
    pub fn among<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let is_telling = |value: &&str| {
            let is_word = value.bytes().all(|byte| byte.is_ascii_graphic());
            value.len() >= SHORTEST && is_word && !value.starts_with('/') && !value.contains("://")
        };
        let mut values: Vec<Arc<str>> =
            values.into_iter().map(str::trim).filter(is_telling).map(Arc::from).collect();
        // One may be the beginning of another.
        values.sort_by(|one, other| (other.len(), other).cmp(&(one.len(), one)));
        values.dedup();
        Self(values.into())
    }

    /// Returns the text with each of them masked wherever it occurs.
    pub fn mask(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(&**secret) { text.replace(&**secret, MASK) } else { text }
        })
    }
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
    fn what_could_inject_a_header_is_no_secret() {
        for text in ["a\r\nHost: b", "a b", "schlüssel", "\u{7f}"] {
            assert_eq!(Secret::new(text), Err(BadSecret::Malformed), "{text:?}");
        }
        assert_eq!(Secret::new(" \n"), Err(BadSecret::Empty));
    }

    /// Fault S23.
    #[test]
    fn what_can_be_told_from_ordinary_text_is_masked() {
        let values =
            ["short", "true", "/home/u/.ssh/id_rsa", "https://host/long", "two long words"];
        let secrets = ["canary-0123456", "canary-0123456-longer"];
        let secrets = Secrets::among(values.into_iter().chain(secrets));
        let text = format!("{} canary-0123456-longer canary-0123456", values.join(" "));
        assert_eq!(secrets.mask(text), format!("{} *** ***", values.join(" ")));
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }
}
