//! Skips a byte order mark and blanks, across chunks.

/// Skips a byte order mark and blanks, and keeps bytes that may be the beginning of a mark.
#[derive(Debug, Default)]
pub(super) struct BomSkipper(Vec<u8>);

const BOM: &[u8] = b"\xef\xbb\xbf";

impl BomSkipper {
    /// Adds the next chunk, and returns the response from its first visible byte, once that is received.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        let response = [&*self.0, chunk].concat();
        let visible = response.strip_prefix(BOM).unwrap_or(&response).trim_ascii_start();
        if visible.is_empty() {
            // After a mark or a blank, no further mark can follow.
            self.0 = vec![b' '];
            None
        } else if visible.len() == response.len()
            && visible.len() < BOM.len()
            && BOM.starts_with(visible)
        {
            self.0 = response;
            None
        } else {
            Some(visible.to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rest of a response that is received in chunks of a given size.
    fn after_prefix(response: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut skipper = BomSkipper::default();
        let mut pieces = response.chunks(size);
        let mut left = pieces.find_map(|chunk| skipper.push(chunk))?;
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
