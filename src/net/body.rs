//! Request bodies, made of shared parts.

use std::io::{self, Read};
use std::sync::Arc;

/// A request body made of shared parts, so that encoded text is not copied for every request.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    parts: Vec<BodyPart>,
    length: usize,
}

#[derive(Clone, Debug)]
struct BodyPart {
    bytes: Arc<Vec<u8>>,
    /// The length of the prefix that belongs to the body; `bytes` may be longer.
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

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the body as one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| &part.bytes[..part.length]).copied().collect()
    }

    /// Returns the parts.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part.bytes[..part.length])
    }

    pub(super) fn reader(&self) -> RequestBodyReader<'_> {
        RequestBodyReader { parts: &self.parts, position: 0 }
    }
}

/// Reads a body.
pub(super) struct RequestBodyReader<'a> {
    parts: &'a [BodyPart],
    position: usize,
}

impl Read for RequestBodyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // The buffer is filled, so that the number of writes does not depend on the number of parts.
        while let Some((part, later)) = self.parts.split_first() {
            let rest = &part.bytes[self.position..part.length];
            let count = rest.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            self.position += count;
            if self.position < part.length {
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
