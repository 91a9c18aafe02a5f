//! A short, stable fingerprint: equal contents have equal digests, on every computer and in every release.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use thiserror::Error;

/// A 64-bit FNV-1a fingerprint that detects repetitions. It is not cryptographic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Digest(pub u64);

impl Digest {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    /// The digest of nothing.
    pub const EMPTY: Self = Self(Self::OFFSET);

    /// Returns the digest of `self` followed by `bytes`.
    pub fn with_bytes(self, bytes: &[u8]) -> Self {
        let mut piece = DigestPiece { digest: self, length: 0 };
        piece.add(bytes);
        piece.finish()
    }

    fn mixed_with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(Self::PRIME);
        Self(bytes.iter().fold(self.0, step))
    }

    /// Returns the digest of `self` followed by another digest.
    pub fn with_digest(self, other: Self) -> Self {
        self.with_bytes(&other.0.to_le_bytes())
    }

    /// Returns the digest of a text.
    pub fn of(text: &str) -> Self {
        Self::EMPTY.with_bytes(text.as_bytes())
    }

    /// Returns the digest of a JSON value in which neither spacing nor the order of keys counts.
    pub fn of_json(value: &Value) -> Self {
        match value {
            Value::Array(items) => items
                .iter()
                .fold(Self::of("["), |digest, item| digest.with_digest(Self::of_json(item))),
            Value::Object(map) => {
                let mut fields: Vec<_> = map.iter().collect();
                fields.sort_by_key(|(key, _)| *key);
                fields.into_iter().fold(Self::of("{"), |digest, (key, item)| {
                    digest.with_bytes(key.as_bytes()).with_digest(Self::of_json(item))
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Self::of(&value.to_string())
            }
        }
    }
}

/// The digest of a piece that is added in parts. It equals the digest of all bytes at once, without a copy of them.
pub(crate) struct DigestPiece {
    digest: Digest,
    length: u64,
}

impl DigestPiece {
    pub(crate) fn new() -> Self {
        Self { digest: Digest::EMPTY, length: 0 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.digest = self.digest.mixed_with(bytes);
        self.length += bytes.len() as u64;
    }

    /// Returns the digest. The length closes the piece, so that ("ab", "c") and ("a", "bc") differ.
    pub(crate) fn finish(self) -> Digest {
        self.digest.mixed_with(&self.length.to_le_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

/// The text is not a SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a SHA-256 digest has 64 hexadecimal digits")]
pub struct InvalidDigest;

impl Sha256Digest {
    /// Returns the digest of a content.
    #[cfg(feature = "cli")]
    pub(crate) fn of(content: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(content).into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Sha256Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Returns bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_never_changes_between_releases() {
        assert_eq!(Digest::of("architect").to_string(), "2d74ded882c9893d");
    }

    #[test]
    fn a_digest_is_read_back_as_it_was_written() {
        let digest = Sha256Digest(std::array::from_fn(|index| u8::try_from(index * 8).unwrap()));
        let text = digest.to_string();
        assert_eq!((text.len(), text.parse()), (64, Ok(digest)));
        assert_eq!(text.to_uppercase().parse(), Ok(digest));
        for invalid in ["", &text[1..], &format!("+{}", &text[1..]), &"é".repeat(32)] {
            assert_eq!(invalid.parse::<Sha256Digest>(), Err(InvalidDigest), "{invalid}");
        }
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Sha256Digest>(&json).unwrap(), digest);
    }

    #[test]
    fn pieces_are_kept_apart() {
        assert_ne!(
            Digest::EMPTY.with_bytes(b"ab").with_bytes(b"c"),
            Digest::EMPTY.with_bytes(b"a").with_bytes(b"bc")
        );
    }

    #[test]
    fn a_piece_may_come_in_parts() {
        let mut piece = DigestPiece::new();
        piece.add(b"ab");
        piece.add(b"c");
        assert_eq!(piece.finish(), Digest::of("abc"));
    }

    #[test]
    fn neither_spacing_nor_key_order_changes_the_digest_of_json() {
        let read = |text| Digest::of_json(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"{"a":1,"b":[true,null]}"#), read(r#"{ "b": [true, null], "a": 1 }"#));
        assert_ne!(read(r#"{"a":1}"#), read(r#"{"a":"1"}"#));
        assert_ne!(read(r"[[1],2]"), read(r"[1,[2]]"));
    }
}
