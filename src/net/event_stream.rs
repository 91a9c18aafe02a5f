//! Amazon's event streams (`application/vnd.amazon.eventstream`).
//!
//! A stream is a sequence of messages with headers, a payload, and checksums of the prelude and of the whole message.
//! Chunks may split them anywhere.

use thiserror::Error;

/// The length limit of a message, in bytes: 16 MiB of payload and 128 KiB of headers, rounded up.
pub const MAX_MESSAGE_BYTES: usize = 17 << 20;

/// The length of the prelude: the lengths of the message and of its headers, and a checksum of both.
const PRELUDE_LENGTH: usize = 12;

/// The length of the checksum at the end of a message.
const CHECKSUM_LENGTH: usize = 4;

/// The type of a header whose value is text.
const TEXT_TYPE: u8 = 7;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventMessage<'a> {
    /// The headers with text values, in their order.
    headers: Vec<(&'a str, &'a str)>,
    /// The payload.
    pub payload: &'a [u8],
}

/// An invalid stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EventStreamError {
    /// A message is longer than [`MAX_MESSAGE_BYTES`].
    #[error("the stream has a message of more than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    TooLong,
    /// A checksum is wrong.
    #[error("the stream has a message with a wrong checksum")]
    WrongChecksum,
    /// The lengths or the headers are inconsistent.
    #[error("the stream has a malformed message")]
    Malformed,
}

/// Parses a stream in chunks.
#[derive(Debug, Default)]
pub struct EventStreamParser {
    /// The incomplete message at the end.
    buffer: Vec<u8>,
}

impl EventStreamParser {
    /// Returns a parser for a new stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the next chunk, and calls `sink` for each complete message.
    ///
    /// # Errors
    ///
    /// Fails for an invalid stream, and with the errors of `sink`.
    pub fn push<E: From<EventStreamError>>(
        &mut self,
        chunk: &[u8],
        mut sink: impl FnMut(&EventMessage<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.buffer.extend_from_slice(chunk);
        let mut rest = &self.buffer[..];
        while let Some(length) = message_length(rest)?
            && let Some((message, later)) = rest.split_at_checked(length)
        {
            sink(&EventMessage::parse(message)?)?;
            rest = later;
        }
        let parsed = self.buffer.len() - rest.len();
        self.buffer.drain(..parsed);
        Ok(())
    }
}

impl<'a> EventMessage<'a> {
    /// Parses a message, whose length is that in its valid prelude.
    fn parse(message: &'a [u8]) -> Result<Self, EventStreamError> {
        let (content, checksum) =
            message.split_last_chunk::<CHECKSUM_LENGTH>().ok_or(EventStreamError::Malformed)?;
        if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
            return Err(EventStreamError::WrongChecksum);
        }
        let headers_length = read_length(&content[4..])?;
        let (mut fields, payload) = content[PRELUDE_LENGTH..]
            .split_at_checked(headers_length)
            .ok_or(EventStreamError::Malformed)?;
        let mut headers = Vec::new();
        while !fields.is_empty() {
            let header = read_header(&mut fields).ok_or(EventStreamError::Malformed)?;
            headers.extend(header?);
        }
        Ok(Self { headers, payload })
    }

    /// Returns the value of a header with a text value.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Returns the length of the first message; `None` until its prelude is complete.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, EventStreamError> {
    let Some(prelude) = bytes.first_chunk::<PRELUDE_LENGTH>() else { return Ok(None) };
    let (lengths, checksum) = prelude.split_at(PRELUDE_LENGTH - CHECKSUM_LENGTH);
    if crc32fast::hash(lengths).to_be_bytes() != checksum {
        return Err(EventStreamError::WrongChecksum);
    }
    let (length, headers_length) = (read_length(lengths)?, read_length(&lengths[4..])?);
    if length > MAX_MESSAGE_BYTES {
        Err(EventStreamError::TooLong)
    } else if length < headers_length.saturating_add(PRELUDE_LENGTH + CHECKSUM_LENGTH) {
        Err(EventStreamError::Malformed)
    } else {
        Ok(Some(length))
    }
}

fn read_length(bytes: &[u8]) -> Result<usize, EventStreamError> {
    let length = bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    length.and_then(|length| usize::try_from(length).ok()).ok_or(EventStreamError::Malformed)
}

/// Reads a header. Returns `None` if it is incomplete, and a header of `None` if its value is not text.
#[allow(clippy::type_complexity)]
fn read_header<'a>(
    fields: &mut &'a [u8],
) -> Option<Result<Option<(&'a str, &'a str)>, EventStreamError>> {
    let mut take = |count: usize| fields.split_off(..count);
    let name_length = take(1)?[0];
    let name = take(name_length.into())?;
    let kind = take(1)?[0];
    let length = match kind {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        6 | TEXT_TYPE => u16::from_be_bytes(*take(2)?.first_chunk()?).into(),
        9 => 16,
        _ => return Some(Err(EventStreamError::Malformed)),
    };
    let value = take(length)?;
    if kind != TEXT_TYPE {
        return Some(Ok(None));
    }
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| EventStreamError::Malformed);
    Some(text(name).and_then(|name| Ok(Some((name, text(value)?)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = Vec<(Vec<(String, String)>, Vec<u8>)>;

    fn parse(stream: &[u8], size: usize) -> Result<Parsed, EventStreamError> {
        let (mut parser, mut messages) = (EventStreamParser::new(), Vec::new());
        for chunk in stream.chunks(size) {
            parser.push::<EventStreamError>(chunk, |message| {
                let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                let headers = message.headers.iter().map(text).collect();
                messages.push((headers, message.payload.to_vec()));
                Ok(())
            })?;
        }
        assert!(parser.buffer.is_empty(), "an incomplete message");
        Ok(messages)
    }

    const EMPTY: &[u8] = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff";
    const PAYLOAD: &[u8] = b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ{'foo':'bar'}\xc3e96";
    const ONE_HEADER: &[u8] =
        b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10\
                                application/json{'foo':'bar'}\x8d\x9c\x08\xb1";
    const ALL_TYPES: &[u8] = b"\x00\x00\x00\x62\x00\x00\x00\x52\x03\xb5\xcb\x9c\x010\x00\x011\x01\x012\x02\x02\
                               \x013\x03\x00\x03\x014\x04\x00\x00\x00\x04\x015\x05\x00\x00\x00\x00\x00\x00\x00\x05\
                               \x016\x06\x00\x05bytes\x017\x07\x00\x04utf8\x018\x08\x00\x00\x00\x00\x00\x00\x00\x08\
                               \x019\x090123456789abcdef\x63\x35\x36\x71";
    const ERROR: &[u8] = b"\x00\x00\x00\x52\x00\x00\x00\x42\xbf\x23\x63\x7e\x0d:message-type\x07\x00\x05error\
                           \x0b:error-code\x07\x00\x04code\x0e:error-message\x07\x00\x07message\x6b\x6c\xea\x3d";

    /// The messages are those of the format's published tests.
    #[test]
    fn published_messages_are_parsed_at_any_chunk_boundary() {
        let headers = |headers: &[(&str, &str)]| {
            headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        let foo = b"{'foo':'bar'}".to_vec();
        let error =
            [(":message-type", "error"), (":error-code", "code"), (":error-message", "message")];
        let expected = vec![
            (headers(&[]), Vec::new()),
            (headers(&[]), foo.clone()),
            (headers(&[("content-type", "application/json")]), foo),
            (headers(&[("7", "utf8")]), Vec::new()),
            (headers(&error), Vec::new()),
        ];
        let stream = [EMPTY, PAYLOAD, ONE_HEADER, ALL_TYPES, ERROR].concat();
        for size in 1..=stream.len() {
            assert_eq!(parse(&stream, size).as_ref(), Ok(&expected), "chunks of {size}");
        }
    }

    #[test]
    fn a_changed_byte_is_an_error() {
        for at in 0..ONE_HEADER.len() {
            let mut message = ONE_HEADER.to_vec();
            message[at] ^= 1;
            let result = parse(&message, message.len());
            assert_eq!(result, Err(EventStreamError::WrongChecksum), "byte {at}");
        }
    }

    /// Returns a message with the given lengths and valid checksums.
    fn message(length: u32, headers_length: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = [length.to_be_bytes(), headers_length.to_be_bytes()].concat();
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes.extend(content);
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        bytes
    }

    #[test]
    fn inconsistent_lengths_and_headers_are_errors() {
        use EventStreamError::{Malformed, TooLong};
        for (bytes, error) in [
            (message(u32::MAX, 0, b""), TooLong),
            (message(15, 0, b""), Malformed),
            (message(17, u32::MAX, b"a"), Malformed),
            (message(18, 3, b"ab"), Malformed),
            (message(18, 2, b"\x05a"), Malformed),
            (message(19, 3, b"\x01a\x0a"), Malformed),
            (message(20, 4, b"\x01a\x07\x00"), Malformed),
            (message(22, 6, b"\x01a\x07\x00\x01\xff"), Malformed),
        ] {
            assert_eq!(parse(&bytes, bytes.len()), Err(error), "{bytes:?}");
        }
    }
}
