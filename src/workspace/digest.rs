//! The digest by which a file's content is recognised.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest of a content, in hexadecimal.
pub fn sha256(content: &[u8]) -> Arc<str> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let digest = Sha256::digest(content);
    let text: String =
        digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect();
    text.into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_is_the_one_that_everybody_computes() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(&*super::sha256(b"abc"), expected);
    }
}
