//! Server-sent events.
//!
//! The parser implements the event-stream format of the HTML standard: lines end with CR, LF or both, a byte order mark
//! may come first, a colon starts a comment, data may have several lines, and the space after a colon is optional.
//! Chunks may split anything, even a character. There is one difference: text that is not UTF-8 is an error, so that a
//! damaged reply is not mistaken for a complete one.

use std::time::Duration;

use thiserror::Error;

/// The default length limit of a line, and of the data of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 8 << 20;

/// The maximum size of a buffer that is kept for the next line or event, in bytes.
const MAX_KEPT_BUFFER: usize = 256 << 10;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The name; empty if the stream has none.
    pub name: &'a str,
    /// The data, with its lines joined by line feeds.
    pub data: &'a str,
}

/// An invalid stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SseError {
    /// A line, or the data of an event, is longer than the limit.
    #[error("the stream has an event of more than {} MiB", limit >> 20)]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A line is not UTF-8.
    #[error("the stream is not UTF-8")]
    NotUtf8,
}

/// Parses a stream in chunks.
#[derive(Debug)]
pub struct SseParser {
    /// The length limit of a line, and of the data of an event, in bytes.
    limit: usize,
    /// The incomplete line at the end.
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    id: String,
    retry: Option<Duration>,
    has_begun: bool,
    /// Whether the last line ended with CR; a following LF belongs to that line end.
    is_after_cr: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new()
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl SseParser {
    /// Returns a parser for a new stream, whose events may have up to [`MAX_EVENT_BYTES`] bytes.
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// Returns a parser for a new stream, whose events may have up to `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: String::new(),
            data: String::new(),
            has_data: false,
            id: String::new(),
            retry: None,
            has_begun: false,
            is_after_cr: false,
        }
    }

    /// Returns the last event id, from which the stream can be resumed.
    pub fn last_id(&self) -> Option<&str> {
        (!self.id.is_empty()).then_some(&*self.id)
    }

    /// Returns the delay before resuming the stream; `None` if the server has not set one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Parses the next chunk, and calls `sink` for each complete event.
    ///
    /// # Errors
    ///
    /// Fails for an invalid stream, and with the errors of `sink`.
    pub fn push<E: From<SseError>>(
        &mut self,
        mut piece: &[u8],
        mut sink: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !piece.is_empty() {
            if std::mem::take(&mut self.is_after_cr) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let Some(end) = piece.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.buffer(piece)?;
                break;
            };
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            self.is_after_cr = piece[end] == b'\r';
            piece = rest;
            if self.line.is_empty() {
                self.line(line, &mut sink)?;
            } else {
                self.buffer(line)?;
                let whole = std::mem::take(&mut self.line);
                if whole.len() > MAX_KEPT_BUFFER && !self.has_data && whole.starts_with(b"data:") {
                    self.long_data(whole)?;
                    continue;
                }
                self.line(&whole, &mut sink)?;
                if whole.capacity() <= MAX_KEPT_BUFFER {
                    // The buffer is reused for the next line.
                    self.line = whole;
                    self.line.clear();
                }
            }
        }
        Ok(())
    }

    fn buffer(&mut self, piece: &[u8]) -> Result<(), SseError> {
        if self.line.len() + piece.len() > self.limit {
            return Err(SseError::TooLong { limit: self.limit });
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    fn line<E: From<SseError>>(
        &mut self,
        mut line: &[u8],
        sink: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !std::mem::replace(&mut self.has_begun, true) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(sink);
        }
        let line = std::str::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.data.len() + value.len() >= self.limit {
                    return Err(SseError::TooLong { limit: self.limit }.into());
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.name),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            // Comments have an empty name.
            _ => {}
        }
        Ok(())
    }

    /// Takes a line as the whole data so far, and reuses its buffer, so that a long line is in memory only once.
    fn long_data(&mut self, line: Vec<u8>) -> Result<(), SseError> {
        let mut line = String::from_utf8(line).map_err(|_| SseError::NotUtf8)?;
        let name = if line.starts_with("data: ") { "data: " } else { "data:" };
        if line.len() - name.len() >= self.limit {
            return Err(SseError::TooLong { limit: self.limit });
        }
        line.drain(..name.len());
        (self.data, self.has_data, self.has_begun) = (line, true, true);
        Ok(())
    }

    fn dispatch<E>(
        &mut self,
        sink: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let result = match std::mem::take(&mut self.has_data) {
            true => sink(SseEvent { name: &self.name, data: &self.data }),
            false => Ok(()),
        };
        self.name.clear();
        self.data.clear();
        self.data.shrink_to(MAX_KEPT_BUFFER);
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<(String, String)>, SseError> {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, |event| {
                events.push((event.name.to_owned(), event.data.to_owned()));
                Ok::<_, SseError>(())
            })?;
        }
        Ok(events)
    }

    fn texts(stream: &str) -> Vec<String> {
        read(&[stream.as_bytes()]).unwrap().into_iter().map(|(_, data)| data).collect()
    }

    /// A stream with all special cases of the format.
    const NASTY: &str = "\u{feff}: comment\r\ndata: one\r\n\r\nevent:tick\ndata:two\ndata: zwei\n\n\
        data\n\n\rdata:  three\r\rid: 7\nretry: 10\n\nevent: lost\n\ndata: \u{1f980}ä\u{2028}x\nfoo: bar\n\n\
        data: unfinished";

    #[test]
    fn every_form_in_the_standard_is_parsed() {
        let events = read(&[NASTY.as_bytes()]).unwrap();
        let expected = [
            ("", "one"),
            ("tick", "two\nzwei"),
            ("", ""),
            ("", " three"),
            ("", "\u{1f980}ä\u{2028}x"),
        ];
        let events: Vec<_> = events.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(events, expected);
    }

    /// Faults L38 and L41.
    #[test]
    fn chunk_boundaries_make_no_difference() {
        let bytes = NASTY.as_bytes();
        let whole = read(&[bytes]).unwrap();
        for i in 0..=bytes.len() {
            for j in i..=bytes.len() {
                assert_eq!(read(&[&bytes[..i], &bytes[i..j], &bytes[j..]]).unwrap(), whole);
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single).unwrap(), whole);
    }

    #[test]
    fn a_stream_says_where_and_when_it_can_be_resumed() {
        let mut parser = SseParser::new();
        let text = b"id: a\nretry: 500\ndata:\n\nid: b\nretry: soon\n\n";
        parser.push(text, |_| Ok::<_, SseError>(())).unwrap();
        assert_eq!(parser.last_id(), Some("b"));
        assert_eq!(parser.retry(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn an_event_without_its_blank_line_is_not_dispatched() {
        assert_eq!(texts("data: a\n"), [""; 0]);
        assert_eq!(texts("data: a\n\ndata: b"), ["a"]);
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error_but_a_cut_character_is_not() {
        assert_eq!(read(&[b"data: \xf0\x9f", b"\xa6\x80\n\n"]).unwrap()[0].1, "\u{1f980}");
        assert_eq!(read(&[b"data: \xff\n"]), Err(SseError::NotUtf8));
    }

    #[test]
    fn long_data_in_pieces_is_read_as_short_data() {
        let long = "ä".repeat(MAX_KEPT_BUFFER);
        for line in [format!("data: {long}"), format!("data:{long}")] {
            let stream =
                format!("\u{feff}{line}\n\n{line}\ndata: b\n\ndata: a\n{line}\r\n\r\n{line}x\n\n");
            let events = read(&stream.as_bytes().chunks(1_001).collect::<Vec<_>>()).unwrap();
            let data: Vec<_> = events.into_iter().map(|(_, data)| data).collect();
            let expected =
                [long.clone(), format!("{long}\nb"), format!("a\n{long}"), format!("{long}x")];
            assert!(data == expected);
            let damaged = [b"data: a\n\n".as_slice(), line.as_bytes(), b"\xff", b"\n"];
            assert_eq!(read(&damaged), Err(SseError::NotUtf8));
        }
    }

    /// Fault L39.
    #[test]
    fn an_endless_line_fails_at_the_limit() {
        let piece = vec![b'x'; 1 << 20];
        let pieces = vec![piece.as_slice(); 9];
        assert_eq!(read(&pieces), Err(SseError::TooLong { limit: MAX_EVENT_BYTES }));
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert_eq!(read(&[line.as_slice(); 9]), Err(SseError::TooLong { limit: MAX_EVENT_BYTES }));
        let mut parser = SseParser::with_limit(9 << 20);
        let mut length = 0;
        let whole = [b"data: ".as_slice(), &vec![b'x'; (9 << 20) - 10], b"\n\n"].concat();
        for piece in whole.chunks(16 << 10) {
            let sink = |event: SseEvent<'_>| {
                length = event.data.len();
                Ok::<_, SseError>(())
            };
            parser.push(piece, sink).unwrap();
        }
        assert_eq!(length, (9 << 20) - 10);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_read_alike(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>()],
                0..200,
            ),
            cuts in prop::collection::vec(0usize..200, 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[&bytes]));
        }

        #[test]
        fn what_was_written_is_read_back(data in "\\PC{0,40}(\n\\PC{0,40}){0,3}") {
            let stream = format!("data: {}\n\n", data.replace('\n', "\ndata: "));
            prop_assert_eq!(texts(&stream), [data]);
        }
    }
}
