//! The numbered lines of a growing output, in bounded memory. Lines of standard output and error output are in the
//! order in which they were completed.

use std::collections::VecDeque;

use super::line_file::LineFile;
use crate::exec::OutputSpool;
use crate::net::Secrets;
use crate::types::strip_terminal_codes;

/// The lines of an output: head and tail, and a file with all lines once these two do not hold all of them.
#[derive(Debug, Default)]
pub(super) struct LineLog {
    head: Vec<String>,
    /// The number of bytes in `head`.
    head_bytes: usize,
    tail: VecDeque<String>,
    tail_bytes: usize,
    /// The number of lines between head and tail.
    dropped: u64,
    store: LineStore,
    /// The unfinished lines of both outputs. They are kept apart so that a line, and so a secret in it, is not divided
    /// by the other output.
    partial: [PartialLine; 2],
    /// Whether the output is complete.
    is_over: bool,
    /// Secrets; the beginning of a secret is not shown at the end of an unfinished line.
    secrets: Secrets,
    /// The next line to be read, counted from 1.
    next: u64,
}

/// The beginning of a line.
#[derive(Debug, Default)]
struct PartialLine {
    bytes: Vec<u8>,
    /// The number of bytes that were read.
    read: usize,
}

/// The store for lines that are not in memory.
#[derive(Debug, Default)]
enum LineStore {
    /// There is no store.
    #[default]
    Unused,
    /// Nothing is stored yet: head and tail hold all lines.
    Waiting(OutputSpool),
    /// The file holds all lines, up to its limit.
    Begun(LineFile),
}

/// A page of lines of an output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogPage {
    /// The lines with their line ends.
    pub(super) text: String,
    /// The numbers of the first and the last line, counted from 1; `None` for no lines.
    pub(super) lines: Option<(u64, u64)>,
    /// The number of lines in the whole output.
    pub(super) total: u64,
}

/// The size of the head, in bytes.
const HEAD_BYTES: usize = 128 << 10;

/// The size of the tail, in bytes.
const TAIL_BYTES: usize = 384 << 10;

/// The length at which an unfinished line counts as complete, in bytes: a secret divided there would not be masked.
const MAX_LINE: usize = 16 << 20;

/// The part at the end of an unfinished line that is searched each time the line grows, in bytes.
const SEARCHED_BYTES: usize = 64 << 10;

/// The maximum length of a line that is shown while a command runs, in bytes: cutting a longer line could divide a
/// secret.
const MAX_SHOWN_LINE: usize = 8 << 10;

impl LineLog {
    /// Returns an empty log; `spool` is for lines that are not in memory. No beginning of these secrets is shown.
    pub(super) fn new(spool: OutputSpool, secrets: Secrets) -> Self {
        Self { store: LineStore::Waiting(spool), secrets, ..Self::default() }
    }

    /// Appends to an output: standard output is 0, error output is 1.
    pub(super) fn add(&mut self, output: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let partial = &mut self.partial[output];
            let space = MAX_LINE - partial.bytes.len();
            let end = memchr::memchr(b'\n', &bytes[..bytes.len().min(space)]);
            let taken = end.map_or(bytes.len().min(space), |end| end + 1);
            let (line, rest) = bytes.split_at(taken);
            partial.bytes.extend_from_slice(line);
            bytes = rest;
            if end.is_some() || partial.bytes.len() >= MAX_LINE {
                let line = std::mem::take(partial).bytes;
                for line in plain_lines(&line) {
                    self.push(line);
                }
            }
        }
    }

    /// Ends the output: unfinished lines will not be completed.
    pub(super) fn finish(&mut self) {
        self.is_over = true;
    }

    fn push(&mut self, line: String) {
        let size = line.len() + 1;
        if let LineStore::Begun(file) = &mut self.store {
            file.add(&line);
        }
        if self.tail.is_empty() && self.dropped == 0 && self.head_bytes + size <= HEAD_BYTES {
            self.head_bytes += size;
            self.head.push(line);
            return;
        }
        self.tail_bytes += size;
        self.tail.push_back(line);
        if self.tail_bytes > TAIL_BYTES {
            self.begin_file();
        }
        while self.tail_bytes > TAIL_BYTES {
            let Some(line) = self.tail.pop_front() else { break };
            self.tail_bytes -= line.len() + 1;
            self.dropped += 1;
        }
    }

    /// Stores all lines in a file from now on.
    fn begin_file(&mut self) {
        let LineStore::Waiting(spool) = &self.store else { return };
        self.store = match LineFile::create(spool) {
            Ok(mut file) => {
                self.head.iter().chain(&self.tail).for_each(|line| file.add(line));
                LineStore::Begun(file)
            }
            Err(error) => {
                log::debug!("the output of a command in the background can't be stored: {error}");
                LineStore::Unused
            }
        };
    }

    /// Returns the number of complete lines.
    pub(super) fn complete(&self) -> u64 {
        self.head.len() as u64 + self.dropped + self.tail.len() as u64
    }

    /// Returns whether there is unread output.
    pub(super) fn has_new(&self) -> bool {
        let is_unread = |line: &PartialLine| line.bytes.len() > line.read;
        self.complete() >= self.next.max(1) || self.partial.iter().any(is_unread)
    }

    /// Returns the number of lines, including unfinished ones.
    fn total(&self) -> u64 {
        self.complete() + self.unfinished_lines().count() as u64
    }

    /// Returns the lines beginning with line `first`, counted from 1, and the unfinished ones at the end.
    fn lines_from(&self, first: u64) -> impl Iterator<Item = (u64, String)> {
        let last = (self.complete() + 1..).zip(self.unfinished_lines());
        self.complete_lines_from(first).chain(last.filter(move |(number, _)| *number >= first))
    }

    /// Returns the visible part of the unfinished lines, without an end that may be the beginning of a secret.
    fn unfinished_lines(&self) -> impl Iterator<Item = String> {
        let shown = |partial: &PartialLine| {
            let mut line = plain_lines(&partial.bytes).join("\n");
            match self.is_over {
                true => line = self.secrets.mask_end(line),
                false => line.truncate(self.secrets.complete(&line)),
            }
            line
        };
        self.partial.iter().map(shown).filter(|line| !line.is_empty())
    }

    /// Marks the unfinished lines as read.
    fn mark_unfinished(&mut self) {
        self.partial.iter_mut().for_each(|line| line.read = line.bytes.len());
    }

    /// Returns the complete lines beginning with line `first`, counted from 1.
    pub(super) fn complete_lines_from(&self, first: u64) -> impl Iterator<Item = (u64, String)> {
        let begin = self.head.len() as u64 + 1;
        let end = begin + self.dropped;
        let head = (1..).zip(&self.head).map(|(number, line)| (number, line.clone()));
        let from = first.max(begin);
        let file = match &self.store {
            LineStore::Begun(file) if from < end => Some((from..end).zip(file.lines_from(from))),
            LineStore::Begun(_) | LineStore::Unused | LineStore::Waiting(_) => None,
        };
        let tail = (end..).zip(&self.tail).map(|(number, line)| (number, line.clone()));
        let kept = head.chain(file.into_iter().flatten()).chain(tail);
        kept.filter(move |(number, _)| *number >= first)
    }

    /// Returns the ends of the unfinished lines.
    pub(super) fn unfinished_ends(&self) -> impl Iterator<Item = String> {
        self.partial.iter().filter(|line| !line.bytes.is_empty()).map(PartialLine::end)
    }

    /// Returns the given number of last complete lines, and the unfinished ones, for the user.
    pub(super) fn preview(&self, lines: u64) -> String {
        let shown = |line: String, bytes: usize| match bytes > MAX_SHOWN_LINE {
            true => format!("[a line of {bytes} bytes]"),
            false => line,
        };
        let complete = self.complete_lines_from(self.complete().saturating_sub(lines) + 1);
        let complete = complete.map(|(_, line)| {
            let bytes = line.len();
            shown(line, bytes)
        });
        let begun = self.partial.iter().filter(|line| !line.bytes.is_empty());
        let last = begun.map(|line| shown(line.end(), line.bytes.len()));
        complete.chain(last).collect::<Vec<_>>().join("\n")
    }

    /// Returns the given number of last lines, at most `capacity` bytes of each, with notes in place of omitted text.
    /// Marks nothing as read.
    pub(super) fn last_lines(&self, lines: u64, capacity: usize) -> String {
        let total = self.total();
        let omitted = total.saturating_sub(lines);
        let mut text = match omitted {
            0 => String::new(),
            _ => format!("[... {omitted} lines omitted ...]\n"),
        };
        for (number, line) in self.lines_from(omitted + 1) {
            push_line(&mut text, number, &line, capacity);
        }
        text
    }

    /// Passes all lines to `out` with their line ends, with notes in place of lines that are not stored. Marks them as
    /// read.
    pub(super) fn read_all(&mut self, out: &mut dyn FnMut(&[u8])) {
        let mut expected = 1;
        for (number, mut line) in self.lines_from(1) {
            if number > expected {
                out(missing_note(number - expected).as_bytes());
            }
            line.push('\n');
            out(line.as_bytes());
            expected = number + 1;
        }
        self.next = self.next.max(self.complete() + 1);
        self.mark_unfinished();
    }

    /// Returns at most `limit` lines in at most `capacity` bytes, beginning with line `first` or with the first unread
    /// line.
    pub(super) fn read(&mut self, first: Option<u64>, limit: u64, capacity: usize) -> LogPage {
        let first = first.unwrap_or(self.next).max(1);
        let (mut text, mut lines, mut expected) = (String::new(), None, first);
        let mut is_last = true;
        for (number, line) in self.lines_from(first) {
            let (begin, _) = lines.unwrap_or((number, 0));
            let is_long = lines.is_some() && text.len() + line.len() >= capacity;
            if is_long || number - begin >= limit {
                is_last = false;
                break;
            }
            if number > expected {
                text += &missing_note(number - expected);
            }
            push_line(&mut text, number, &line, capacity);
            (lines, expected) = (Some((begin, number)), number + 1);
        }
        let complete = self.complete();
        if lines.is_some() {
            // An unfinished line is read again when it is complete.
            self.next = self.next.max(expected.min(complete + 1));
        }
        if is_last && first <= complete + 1 {
            self.mark_unfinished();
        }
        LogPage { text, lines, total: self.total() }
    }
}

impl PartialLine {
    /// Returns the end of the line, which is searched for patterns.
    fn end(&self) -> String {
        plain_lines(&self.bytes[self.bytes.len().saturating_sub(SEARCHED_BYTES)..]).join("\n")
    }
}

/// Adds a line, shortened to at most the given number of bytes.
fn push_line(text: &mut String, number: u64, line: &str, most: usize) {
    let shown = super::output_store::first_bytes(line, most);
    text.push_str(shown);
    if shown.len() < line.len() {
        *text +=
            &format!("\n[... {} bytes of line {number} omitted ...]", line.len() - shown.len());
    }
    text.push('\n');
}

fn missing_note(lines: u64) -> String {
    format!("[... {lines} lines are not stored ...]\n")
}

/// Returns lines without control codes. An overwritten line, such as a progress bar, becomes several lines.
fn plain_lines(bytes: &[u8]) -> Vec<String> {
    let text = strip_terminal_codes(&String::from_utf8_lossy(bytes));
    text.trim_end_matches('\n').split('\n').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn log(text: &str) -> LineLog {
        let mut log = LineLog::default();
        log.add(0, text.as_bytes());
        log
    }

    #[test]
    fn each_line_is_read_once_and_an_unfinished_one_again() {
        let mut log = log("one\ntwo\nPass");
        let page = log.read(None, 10, 1_000);
        assert_eq!((page.text.as_str(), page.lines), ("one\ntwo\nPass\n", Some((1, 3))));
        assert!(!log.has_new());
        log.add(0, b"word: \n");
        assert_eq!(log.read(None, 10, 1_000).text, "Password: \n");
        let page = log.read(None, 10, 1_000);
        assert_eq!(page, LogPage { text: String::new(), lines: None, total: 3 });
        assert!(!log.has_new());
        assert_eq!(log.read(Some(2), 1, 1_000).text, "two\n");
    }

    /// The beginning of a secret is shown neither before its rest arrives, nor if the rest never arrives.
    #[test]
    fn an_unfinished_line_shows_no_beginning_of_a_secret() {
        let secrets = Secrets::from_values(["geheim-123456", "geheim-123456-and-more"]);
        let all = "token: geheim-123456-and-more, that is it: k";
        for length in 0..=all.len() {
            let mut log = LineLog { secrets: secrets.clone(), ..log("first\n") };
            log.add(0, &all.as_bytes()[..length]);
            let page = log.read(None, 9, 1_000);
            assert!(!log.has_new());
            let shown = secrets.mask_cut(page.text);
            assert!(!shown.contains(": g") && !shown.contains("123"), "{shown}");
            assert_eq!(page.total, 1 + u64::from(length > 0));
            log.finish();
            let shown = secrets.mask_cut(log.read(Some(2), 1, 1_000).text);
            assert!(!shown.contains("gehe") && !shown.contains("123"), "{shown}");
        }
        let mut log = LineLog { secrets, ..log("geheim-1") };
        let page = log.read(None, 9, 1_000);
        assert_eq!(page, LogPage { text: String::new(), lines: None, total: 0 });
        log.add(0, b"4\n");
        assert_eq!(log.read(None, 9, 1_000).text, "geheim-14\n");
    }

    /// In a divided line, a secret would not be masked.
    #[test]
    fn a_line_is_not_divided_by_error_output() {
        let mut log = log("");
        for (output, bytes) in [(0, "key: can"), (1, "!"), (1, "\nready"), (0, "ary")] {
            log.add(output, bytes.as_bytes());
        }
        let page = log.read(None, 9, 1_000);
        assert_eq!((page.text.as_str(), page.total), ("!\nkey: canary\nready\n", 3));
        assert_eq!(log.preview(1), "!\nkey: canary\nready");
        log.add(1, b" now\n");
        assert_eq!(log.read(None, 9, 1_000).text, "ready now\nkey: canary\n");
    }

    #[test]
    fn a_page_is_bounded_by_lines_and_bytes() {
        let mut log = log("aaaa\nbbbb\ncccc\n");
        assert_eq!(log.read(Some(1), 2, 1_000).lines, Some((1, 2)));
        assert_eq!(log.read(Some(1), 9, 10).lines, Some((1, 2)));
        assert_eq!(log.read(Some(1), 9, 2).text, "aa\n[... 2 bytes of line 1 omitted ...]\n");
    }

    #[test]
    fn a_long_line_is_one() {
        let long = "x".repeat(900_000);
        let mut log = stored(0, u64::MAX);
        log.add(0, format!("one\n{long}\nthree\n").as_bytes());
        assert_eq!(log.read(None, 9, 2_000_000).text, format!("one\n{long}\nthree\n"));
        assert_eq!(log.read(Some(3), 1, 100).text, "three\n");
    }

    #[test]
    fn a_preview_has_no_long_line() {
        let mut log = log(&format!("one\ntwo\n{}\nPass", "x".repeat(100_000)));
        assert_eq!(log.preview(2), "two\n[a line of 100000 bytes]\nPass");
        log.add(0, &vec![b'y'; 1 << 20]);
        assert_eq!(
            log.unfinished_ends().map(|end| end.len()).collect::<Vec<_>>(),
            [SEARCHED_BYTES]
        );
        assert_eq!(log.preview(1), "[a line of 100000 bytes]\n[a line of 1048580 bytes]");
    }

    #[test]
    fn head_and_tail_of_a_flood_are_kept_with_their_numbers() {
        let mut log = LineLog::default();
        for number in 1..=200_000 {
            log.add(0, format!("line {number}\n").as_bytes());
        }
        log.add(0, "x".repeat(100_000).as_bytes());
        let kept: usize = log.lines_from(1).map(|(_, line)| line.len() + 1).sum();
        assert!(kept <= HEAD_BYTES + TAIL_BYTES + MAX_LINE, "{kept}");
        assert_eq!(log.read(Some(1), 1, 100).text, "line 1\n");
        assert_eq!(log.read(Some(200_000), 1, 100).text, "line 200000\n");
        let page = log.read(Some(100_000), 1, 100);
        assert!(page.text.contains("lines are not stored ...]\nline "), "{}", page.text);
    }

    /// Returns a log of numbered lines that stores at most the given number of bytes.
    fn stored(lines: u64, limit: u64) -> LineLog {
        let mut log = LineLog::new(
            OutputSpool { open: Arc::new(tempfile::tempfile), limit },
            Secrets::default(),
        );
        for number in 1..=lines {
            log.add(0, format!("line {number}\n").as_bytes());
        }
        log
    }

    #[test]
    fn any_page_of_a_stored_flood_can_be_read() {
        let mut log = stored(200_000, u64::MAX);
        assert!(log.dropped > 0);
        for first in [1, 20_000, 99_999, 100_000, 100_001, 199_999] {
            let page = log.read(Some(first), 2, 1_000);
            let expected = format!("line {first}\nline {}\n", first + 1);
            assert_eq!((page.text, page.total), (expected, 200_000), "{first}");
        }
        let mut whole = 0_u64;
        log.read_all(&mut |line| {
            whole += 1;
            assert_eq!(line, format!("line {whole}\n").as_bytes());
        });
        assert_eq!(whole, 200_000);
        assert!(!log.has_new());
    }

    #[test]
    fn lines_beyond_the_limit_are_counted() {
        let mut log = stored(200_000, 1 << 20);
        let page = log.read(Some(100_000), 1, 1_000);
        assert!(page.text.contains(" lines are not stored ...]\nline "), "{}", page.text);
        let page = log.read(Some(50_000), 1, 1_000);
        assert_eq!(page.text, "line 50000\n");
    }

    #[test]
    fn control_codes_are_left_out() {
        let mut log = log("\u{1b}[32mready\u{1b}[0m\r\n10%\r20%\n");
        assert_eq!(log.read(None, 9, 1_000).text, "ready\n10%\n20%\n");
    }
}
