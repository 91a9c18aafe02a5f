//! Skipping a byte order mark and blanks, in any chunks.

use std::borrow::Cow;

/// Skips a byte order mark and blanks.
#[derive(Debug, Default)]
pub(super) struct BomSkipper {
    /// How many bytes of the mark were received.
    matched_bytes: usize,
    /// Whether the mark can no longer follow.
    is_past: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl BomSkipper {
    /// Takes the next chunk; returns the response from its first visible byte, once received.
    pub(super) fn push<'a>(&mut self, chunk: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        for (at, &byte) in chunk.iter().enumerate() {
            let rest = &chunk[at..];
            if !self.is_past && BOM.get(self.matched_bytes) == Some(&byte) {
                self.matched_bytes += 1;
                self.is_past = self.matched_bytes == BOM.len();
            } else if !self.is_past && self.matched_bytes > 0 {
                // Not a mark, but a byte that a mark starts with.
                return Some([&BOM[..self.matched_bytes], rest].concat().into());
            } else if byte.is_ascii_whitespace() {
                self.is_past = true;
            } else {
                return Some(rest.into());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rest of a response in chunks of this size.
    fn after_prefix(response: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut skipper = BomSkipper::default();
        let mut pieces = response.chunks(size);
        let mut left = pieces.find_map(|chunk| skipper.push(chunk))?.into_owned();
        left.extend(pieces.flatten());
        Some(left)
    }

    /// Fault L38.
    #[test]
    fn a_bom_and_blanks_are_skipped_at_any_chunk_boundary() {
        for (response, expected) in [
            (b"data: a".as_slice(), Some(b"data: a".as_slice())),
            (b"\xef\xbb\xbf \r\n\tdata: a", Some(b"data: a")),
            (b" \n{}", Some(b"{}")),
            (b"\xef\xbb\xbf{}", Some(b"{}")),
            (b"\xef\xbbdata", Some(b"\xef\xbbdata")),
            (b"\xef", None),
            (b"\xef\xbb\xbf\n", None),
            (b" \xef\xbb\xbfdata", Some(b"\xef\xbb\xbfdata")),
        ] {
            for size in 1..=response.len() {
                assert_eq!(
                    after_prefix(response, size).as_deref(),
                    expected,
                    "{response:?} by {size}"
                );
            }
        }
    }
}
