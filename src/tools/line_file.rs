//! The lines of a growing output in a file, from which any line can be read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt;

use crate::exec::OutputSpool;

/// Lines in a file.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// The maximum number of bytes of all lines.
    limit: u64,
    /// The number of bytes of all lines.
    bytes: u64,
    lines: u64,
    /// The positions of the first line and of every [`STRIDE`]th line after it.
    positions: Vec<u64>,
    /// Whether further lines are dropped: the limit is reached, or writing has failed.
    is_full: bool,
}

/// The number of lines between recorded positions.
const STRIDE: u64 = 256;

/// The maximum number of unwritten bytes. Lines are read only from farther back.
const MAX_BUFFER: usize = 64 << 10;

impl LineFile {
    /// Creates an empty file.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be created.
    pub(super) fn create(spool: &OutputSpool) -> io::Result<Self> {
        Ok(Self {
            file: (spool.open)()?,
            buffer: Vec::new(),
            limit: spool.limit,
            bytes: 0,
            lines: 0,
            positions: Vec::new(),
            is_full: false,
        })
    }

    /// Adds a line, unless the limit is reached.
    pub(super) fn add(&mut self, line: &str) {
        let size = line.len() as u64 + 1;
        if self.is_full {
            return;
        }
        if self.bytes + size > self.limit {
            self.is_full = true;
            // No later line will cause these bytes to be written.
            return self.flush();
        }
        if self.lines.is_multiple_of(STRIDE) {
            self.positions.push(self.bytes);
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        self.bytes += size;
        self.lines += 1;
        if self.buffer.len() >= MAX_BUFFER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.file.write_all(&self.buffer) {
            log::debug!("the output of a command in the background can't be stored: {error}");
            // The session needs the disk space more than the output.
            let _ = self.file.set_len(0);
            (self.lines, self.is_full) = (0, true);
        }
        self.buffer.clear();
    }

    /// Returns the written lines beginning with line `first`, counted from 1.
    pub(super) fn lines_from(&self, first: u64) -> impl Iterator<Item = String> + '_ {
        let index = first.saturating_sub(1);
        let position = usize::try_from(index / STRIDE).ok();
        let position =
            position.and_then(|at| self.positions.get(at)).filter(|_| index < self.lines);
        let reader = position.map(|at| BufReader::new(FileReader { file: &self.file, at: *at }));
        let lines = reader.into_iter().flat_map(|reader| reader.lines().map_while(Result::ok));
        lines.skip(usize::try_from(index % STRIDE).unwrap_or(usize::MAX))
    }
}

/// Reads a file without using its shared position.
struct FileReader<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lines_below_the_limit_are_written() {
        let spool = OutputSpool { open: Arc::new(tempfile::tempfile), limit: 9 };
        let mut file = LineFile::create(&spool).unwrap();
        for line in ["one", "two", "three", "x"] {
            file.add(line);
        }
        assert_eq!(file.lines_from(1).collect::<Vec<_>>(), ["one", "two"]);
    }
}
