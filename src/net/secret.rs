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
}
