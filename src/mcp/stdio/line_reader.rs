//! Reads lines of limited length.

use std::io::{self, BufRead, BufReader, Read};

/// Reads lines of limited length.
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    pub max_bytes: usize,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineResult {
    /// A line, without its end.
    Line,
    /// A line over the limit; its rest follows.
    TooLong,
    /// The end of the input.
    End,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(reader: R, longest: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 << 10, reader), max_bytes: longest }
    }

    /// Reads the next line into `line`. An unterminated line is dropped.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<LineResult> {
        line.clear();
        let most = self.max_bytes as u64 + 1;
        self.reader.by_ref().take(most).read_until(b'\n', line)?;
        Ok(match line.pop_if(|byte| *byte == b'\n') {
            Some(_) => LineResult::Line,
            None if line.len() > self.max_bytes => LineResult::TooLong,
            None => LineResult::End,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], longest: usize) -> Vec<(LineResult, String)> {
        let (mut lines, mut line, mut read) =
            (LineReader::new(text, longest), Vec::new(), Vec::new());
        loop {
            let got = lines.next(&mut line).unwrap();
            if got != LineResult::Line {
                read.push((got, String::new()));
                return read;
            }
            read.push((got, String::from_utf8(line.clone()).unwrap()));
        }
    }

    /// Fault M6.
    #[test]
    fn lines_are_complete_or_too_long() {
        let line = |text: &str| (LineResult::Line, text.to_owned());
        let end = (LineResult::End, String::new());
        assert_eq!(read(b"a\n\nbc\nd", 2), [line("a"), line(""), line("bc"), end]);
        assert_eq!(read(&vec![b'x'; 1 << 20], 1 << 10), [(LineResult::TooLong, String::new())]);
    }
}
