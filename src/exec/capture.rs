//! The output of a command: head and tail, in bounded memory.

use std::collections::VecDeque;

/// Head and tail of an output, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct OutputCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    capacity: usize,
    total: u64,
}

impl OutputCapture {
    /// Returns an empty capture that keeps `capacity` bytes of the head, and as many of the tail.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Appends output.
    pub fn write(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.capacity - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.capacity)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.capacity);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Returns how many bytes were written.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns how many bytes between head and tail were dropped.
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
            bytes.extend(format!("[... {omitted} bytes omitted ...]\n").into_bytes());
            bytes.extend_from_slice(&tail[start..]);
        } else {
            bytes.extend_from_slice(front);
            bytes.extend_from_slice(back);
        }
        strip_control_characters(&String::from_utf8_lossy(&bytes))
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
