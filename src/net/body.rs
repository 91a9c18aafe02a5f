//! The body of a request, in pieces that are shared with whoever wrote them.

use std::io::{self, Read};
use std::sync::Arc;

/// A body that is sent piece by piece, so that what was written once is not copied for every request.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    parts: Vec<BodyPart>,
    length: usize,
}

#[derive(Clone, Debug)]
struct BodyPart {
    bytes: Arc<Vec<u8>>,
    /// How much of the beginning belongs to the body; the rest may have been written later.
    length: usize,
}

impl RequestBody {
    /// Returns an empty body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the body followed by these bytes.
    pub fn with(self, bytes: impl Into<Arc<Vec<u8>>>) -> Self {
        let bytes = bytes.into();
        let length = bytes.len();
        self.with_part(bytes, length)
    }

    /// Returns the body followed by the first `length` of these bytes.
    pub fn with_part(mut self, bytes: Arc<Vec<u8>>, length: usize) -> Self {
        let length = length.min(bytes.len());
        if length > 0 {
            self.length += length;
            self.parts.push(BodyPart { bytes, length });
        }
        self
    }

    /// Returns how many bytes it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns all of it in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|piece| &piece.bytes[..piece.length]).copied().collect()
    }

    pub(super) fn reader(&self) -> RequestBodyReader<'_> {
        RequestBodyReader { parts: &self.parts, position: 0 }
    }
}

/// Reads a body from its beginning.
pub(super) struct RequestBodyReader<'a> {
    parts: &'a [BodyPart],
    position: usize,
}

impl Read for RequestBodyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // One write to the socket carries as much as fits, whatever the number of pieces.
        while let Some((piece, later)) = self.parts.split_first() {
            let rest = &piece.bytes[self.position..piece.length];
            let count = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.position += count;
            if self.position < piece.length {
                break;
            }
            (self.parts, self.position) = (later, 0);
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_as_one() {
        let shared = Arc::new(b"shared and more".to_vec());
        let body =
            RequestBody::new().with(b"head ".to_vec()).with_part(shared, 6).with(b" tail".to_vec());
        assert_eq!(body.to_vec(), b"head shared tail");
        for size in 1..20 {
            let (mut reader, mut read, mut buffer) = (body.reader(), Vec::new(), vec![0; size]);
            loop {
                let count = reader.read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(read, body.to_vec());
        }
        assert_eq!(body.len(), 16);
    }
}
