//! The output of a command: head and tail in bounded memory, and the whole in a file.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Head and tail of an output, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct OutputCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    capacity: usize,
    total: u64,
    line_ends: u64,
    spool: SpoolState,
}

/// The file for the whole of an output, once memory does not hold it.
#[derive(Clone)]
pub struct OutputSpool {
    /// Creates the file.
    pub open: Arc<dyn Fn() -> io::Result<File> + Send + Sync>,
    /// The maximum size of the file, in bytes.
    pub limit: u64,
}

/// The part of an output that is stored in a file.
#[derive(Clone, Debug, Default)]
enum SpoolState {
    /// Nothing: there is no file for this output.
    #[default]
    Unused,
    /// Nothing yet: head and tail still hold the whole output.
    Waiting(OutputSpool),
    /// The beginning of the output: all of it, up to the limit.
    Begun { file: Arc<File>, stored: u64, limit: u64 },
    /// Nothing: writing the file failed with this error.
    Failed(Arc<str>),
}

/// A part of an output that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// The note that replaces the part, with its line end.
    pub note: String,
    /// The number of lines that are left out completely.
    pub lines: u64,
    /// The number of bytes that are left out.
    pub bytes: u64,
}

impl fmt::Debug for OutputSpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputSpool").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl OutputCapture {
    /// Returns an empty capture that keeps `capacity` bytes of the head, and as many of the tail.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns the capture with a file for the whole of the output.
    pub fn with_spool(mut self, spool: Option<OutputSpool>) -> Self {
        self.spool = spool.map_or(SpoolState::Unused, SpoolState::Waiting);
        self
    }

    /// Appends output.
    pub fn write(&mut self, bytes: &[u8]) {
        self.write_spool(bytes);
        self.line_ends += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.capacity - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.capacity)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.capacity);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Writes to the file once memory does not hold the whole.
    fn write_spool(&mut self, bytes: &[u8]) {
        if let SpoolState::Waiting(OutputSpool { open, limit }) = &self.spool
            && self.total + bytes.len() as u64 > 2 * self.capacity as u64
        {
            let (front, back) = self.tail.as_slices();
            let written = open().and_then(|mut file| {
                [&self.head, front, back].iter().try_for_each(|part| file.write_all(part))?;
                Ok(file)
            });
            self.spool = match written {
                Ok(file) => {
                    let (file, stored, limit) = (Arc::new(file), self.total, *limit);
                    SpoolState::Begun { file, stored, limit }
                }
                Err(error) => SpoolState::Failed(error.to_string().into()),
            };
        }
        let SpoolState::Begun { file, stored, limit } = &mut self.spool else { return };
        let space = usize::try_from(limit.saturating_sub(*stored)).unwrap_or(usize::MAX);
        let taken = &bytes[..bytes.len().min(space)];
        match (&**file).write_all(taken) {
            Ok(()) => *stored += taken.len() as u64,
            Err(error) => {
                // The session needs the disk space more than the output.
                let _ = file.set_len(0);
                self.spool = SpoolState::Failed(error.to_string().into());
            }
        }
    }

    /// Writes the whole output to `out`, piece by piece, in the form of [`text`](Self::text). Returns a sentence,
    /// without its final period, about the part that is not stored; `None` if the output is complete.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read, or `out` fails.
    pub fn write_whole(
        &self,
        out: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> io::Result<Option<String>> {
        let mut plain = PlainWriter { out, pending: Vec::new() };
        let mut at = 0;
        let reason = match &self.spool {
            SpoolState::Begun { file, stored, limit } => {
                let (mut buffer, mut written) = (vec![0; 64 << 10], 0);
                while at < *stored && written < *limit {
                    let size = (*stored - at).min(buffer.len() as u64);
                    let read =
                        file.read_at(&mut buffer[..usize::try_from(size).unwrap_or(0)], at)?;
                    if read == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    at += read as u64;
                    written += plain.add(&buffer[..read])?;
                }
                format!("an output is stored up to {limit} bytes")
            }
            state => {
                plain.add(&self.head)?;
                at = self.head.len() as u64;
                match state {
                    SpoolState::Failed(error) => format!("it could not be stored: {error}"),
                    _ => "an output of this kind is not stored".to_owned(),
                }
            }
        };
        let tail_at = self.total - self.tail.len() as u64;
        let missing = tail_at.saturating_sub(at);
        if missing > 0 {
            plain.finish()?;
            (plain.out)(&format!("\n[... {missing} bytes are not stored ...]\n"))?;
        }
        let (front, back) = self.tail.as_slices();
        let mut skipped = usize::try_from(at.saturating_sub(tail_at)).unwrap_or(usize::MAX);
        for part in [front, back] {
            let skip = skipped.min(part.len());
            skipped -= skip;
            plain.add(&part[skip..])?;
        }
        plain.finish()?;
        Ok((missing > 0).then(|| format!("{missing} bytes of it are not stored: {reason}")))
    }

    /// Returns the first and the last lines as text, and the omission between them. Its note gives the number of bytes
    /// if no whole lines are known.
    pub fn excerpt(&self, first: usize, last: usize) -> (String, Option<Omission>) {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        let whole = self.complete();
        if let Some(whole) = &whole
            && self.lines() <= first.saturating_add(last) as u64
        {
            return (strip_control_characters(&String::from_utf8_lossy(whole)), None);
        }
        let (head, tail) = whole.as_ref().map_or((&self.head, &tail), |whole| (whole, whole));
        let mut ends = memchr::memchr_iter(b'\n', head).map(|end| end + 1).take(first);
        let end = ends.by_ref().last().unwrap_or(if first == 0 { 0 } else { head.len() });
        let inner = &tail[..tail.len().saturating_sub(1)];
        let starts = memchr::memrchr_iter(b'\n', inner).map(|end| end + 1).take(last);
        let start = starts.last().unwrap_or(if last == 0 { tail.len() } else { 0 });
        let (head, rest) = (&head[..end], &tail[start..]);
        let bytes = self.total - (head.len() + rest.len()) as u64;
        let lines = self.lines().saturating_sub(count_lines(head) + count_lines(rest));
        let is_whole = head.last().is_none_or(|end| *end == b'\n') && (start > 0 || last == 0);
        let note = match is_whole {
            true => format!("[... {lines} lines omitted ...]\n"),
            false => format!("[... {bytes} bytes omitted ...]\n"),
        };
        let plain = |bytes: &[u8]| strip_control_characters(&String::from_utf8_lossy(bytes));
        let line_end = if is_whole || head.ends_with(b"\n") { "" } else { "\n" };
        let text = [&plain(head), line_end, &note, &plain(rest)].concat();
        (text, Some(Omission { note, lines, bytes }))
    }

    /// Returns the number of lines written, including a last line without a line end.
    pub fn lines(&self) -> u64 {
        let last = self.tail.back().or(self.head.last());
        self.line_ends + u64::from(last.is_some_and(|byte| *byte != b'\n'))
    }

    /// Returns the number of bytes written.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that were dropped between head and tail.
    pub fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the output byte by byte; `None` if bytes were dropped.
    pub fn complete(&self) -> Option<Vec<u8>> {
        let (front, back) = self.tail.as_slices();
        (self.omitted() == 0).then(|| [&self.head, front, back].concat())
    }

    /// Returns the output as text, with a note in place of dropped bytes.
    ///
    /// Invalid UTF-8 is replaced, and control characters are shown as escapes.
    pub fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let mut bytes = self.head.clone();
        if self.omitted() > 0 {
            // Cut at line ends where there are lines.
            let end = memchr::memrchr(b'\n', &bytes).map_or(bytes.len(), |end| end + 1);
            let tail = [front, back].concat();
            let start = memchr::memchr(b'\n', &tail).map_or(0, |start| start + 1);
            let omitted = self.total - (end + tail.len() - start) as u64;
            bytes.truncate(end);
            if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                bytes.push(b'\n');
            }
            bytes.extend(format!("[... {omitted} bytes omitted ...]\n").into_bytes());
            bytes.extend_from_slice(&tail[start..]);
        } else {
            bytes.extend_from_slice(front);
            bytes.extend_from_slice(back);
        }
        strip_control_characters(&String::from_utf8_lossy(&bytes))
    }
}

/// Returns the number of lines, including a last line without a line end.
fn count_lines(bytes: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', bytes).count() as u64;
    ends + u64::from(bytes.last().is_some_and(|byte| *byte != b'\n'))
}

/// Converts bytes to text without control characters, piece by piece.
struct PlainWriter<'a> {
    out: &'a mut dyn FnMut(&str) -> io::Result<()>,
    /// The beginning of an incomplete character or line end.
    pending: Vec<u8>,
}

impl PlainWriter<'_> {
    /// Adds bytes, and returns the number of bytes of text that were written.
    fn add(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.pending.extend_from_slice(bytes);
        let mut pieces = self.pending.utf8_chunks();
        let last = pieces.by_ref().last().map_or(&[][..], |piece| piece.invalid());
        let is_open = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let held = if is_open { last.len() } else { usize::from(self.pending.ends_with(b"\r")) };
        let end = self.pending.len() - held;
        let text = strip_control_characters(&String::from_utf8_lossy(&self.pending[..end]));
        self.pending.drain(..end);
        (self.out)(&text)?;
        Ok(text.len() as u64)
    }

    /// Writes the rest.
    fn finish(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.pending);
        (self.out)(&strip_control_characters(&String::from_utf8_lossy(&rest)))
    }
}

/// Returns a text without control characters other than line ends and tabs.
pub(super) fn strip_control_characters(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\n' | '\t' => plain.push(char),
            '\r' if chars.peek() == Some(&'\n') => {}
            char if char.is_control() => plain.extend(char.escape_default()),
            char => plain.push(char),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(pieces: &[&[u8]], capacity: usize) -> OutputCapture {
        let mut capture = OutputCapture::new(capacity);
        for piece in pieces {
            capture.write(piece);
        }
        capture
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        assert_eq!(capture(&[b"ab", b"cd"], 2).text(), "abcd");
        assert_eq!(capture(&[b"ab", b"cd"], 2).omitted(), 0);
        assert_eq!(capture(&[b"a\xff", b"cd"], 2).complete().unwrap(), b"a\xffcd");
        assert_eq!(capture(&[b"ab", b"cde"], 2).complete(), None);
    }

    #[test]
    fn a_long_output_keeps_whole_lines_of_head_and_tail() {
        let capture = capture(&[b"one\ntwo\nthree\nfour\n"], 7);
        assert_eq!(capture.text(), "one\n[... 10 bytes omitted ...]\nfour\n");
    }

    /// Without a line of its own, the rest of a cut secret would not be masked.
    #[test]
    fn the_note_about_a_cut_in_a_line_is_a_line_of_its_own() {
        assert_eq!(capture(&[b"abcdef"], 2).text(), "ab\n[... 2 bytes omitted ...]\nef");
    }

    /// Fault T7: cuts fall between characters, and no control character reaches a terminal.
    #[test]
    fn binary_output_is_shown_as_text() {
        assert_eq!(
            capture(&[b"a\xffb\x1b[31m\0\r\nc"], 100).text(),
            "a\u{fffd}b\\u{1b}[31m\\u{0}\nc"
        );
    }

    proptest! {
        #[test]
        fn head_and_tail_are_what_was_written(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            capacity in 1usize..50,
        ) {
            let all = pieces.concat();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let capture = capture(&pieces, capacity);
            let tail: Vec<u8> = capture.tail.iter().copied().collect();
            prop_assert_eq!(&capture.head, &all[..all.len().min(capacity)]);
            prop_assert!(all.ends_with(&tail));
            prop_assert_eq!(capture.total(), all.len() as u64);
            prop_assert!(capture.tail.len() <= capacity);
            prop_assert_eq!(capture.omitted() == 0, all.len() <= 2 * capacity);
        }
    }
}
