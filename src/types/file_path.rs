//! Paths of files in records and documents, and their display.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The path of a file, relative to the workspace.
///
/// Stored as it is if it is UTF-8; any other path is stored as a NUL character and its bytes in hexadecimal, because no
/// text can contain it. Its display, for users and models, is escaped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Arc<OsStr>);

/// The beginning of a stored path that is not UTF-8; no path contains it.
const HEXADECIMAL_MARK: char = '\0';

impl FilePath {
    /// Creates a path, relative to the workspace.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().as_os_str().into())
    }

    /// Returns the path as the file system expects it.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Returns the stored form of the path.
    pub fn to_text(&self) -> String {
        self.0.to_str().map_or_else(
            || {
                let mut text = String::from(HEXADECIMAL_MARK);
                for byte in self.0.as_bytes() {
                    let _ = write!(text, "{byte:02x}");
                }
                text
            },
            str::to_owned,
        )
    }

    /// Parses the stored form of a path; `None` if it is invalid.
    pub fn from_text(text: &str) -> Option<Self> {
        let Some(digits) = text.strip_prefix(HEXADECIMAL_MARK) else { return Some(text.into()) };
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.filter(|_| rest.is_empty()).map(|bytes| Self::new(OsString::from_vec(bytes)))
    }
}

impl From<&str> for FilePath {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

impl From<String> for FilePath {
    fn from(path: String) -> Self {
        Self::new(path)
    }
}

impl PartialEq<str> for FilePath {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<&str> for FilePath {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_name(&self.0))
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.serialize_str(&self.to_text()),
        }
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_text(&text).ok_or_else(|| D::Error::custom("invalid path"))
    }
}

/// Returns a name for display: invalid text and characters that change the display are escaped.
pub fn escape_name(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            if is_printable(char) {
                text.push(char);
            } else {
                let _ = write!(text, "\\u{{{:x}}}", u32::from(char));
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns whether a character neither controls a terminal nor changes the direction of text.
fn is_printable(char: char) -> bool {
    let turns = matches!(
        char,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}'
    );
    !char.is_control() && !turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_that_change_the_display_are_escaped() {
        assert_eq!(escape_name(OsStr::new("a\n\x1b[31m\u{202e}é")), "a\\u{a}\\u{1b}[31m\\u{202e}é");
        assert_eq!(escape_name(OsStr::from_bytes(b"a\xff")), "a\\xff");
    }

    #[test]
    fn what_is_no_stored_path_is_refused() {
        for wrong in ["\"\\u0000f\"", "\"\\u0000xx\"", "1"] {
            assert!(serde_json::from_str::<FilePath>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_path_is_read_as_it_was_written(bytes in "[^\0]{0,20}", odd in 0x80..=0xffu8) {
            let plain = FilePath::from(&*bytes);
            prop_assert_eq!(serde_json::to_string(&plain).unwrap(), serde_json::to_string(&bytes).unwrap());
            let odd = FilePath::new(OsString::from_vec([bytes.as_bytes(), &[odd]].concat()));
            for path in [plain, odd] {
                let text = serde_json::to_string(&path).unwrap();
                prop_assert_eq!(serde_json::from_str::<FilePath>(&text).unwrap(), path);
            }
        }
    }
}
