//! Reports the last lines of a running command's output, without delaying the command.

use std::time::{Duration, Instant};

use super::capture::strip_control_characters;
use super::supervisor::CommandSink;
use super::supervisor::worker::SupervisorWorker;

/// The minimum time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// The size of the kept end of the output, in bytes.
const KEPT_BYTES: usize = 2_048;

/// The number of lines in a report.
const REPORTED_LINES: usize = 5;

/// Watches the end of an output, and reports it a few times a second while it grows.
pub(super) struct OutputWatcher<'a> {
    report: &'a dyn Fn(&str),
    /// The last complete lines.
    tail: OutputEnd,
    /// The unfinished lines of both outputs; each of them may end with a part of a secret.
    partial: [OutputEnd; 2],
    reported_at: Instant,
    is_new: bool,
}

/// The end of an output. A line without its beginning is replaced by a note: it could begin within a secret, which
/// would not be masked.
#[derive(Default)]
struct OutputEnd {
    bytes: Vec<u8>,
    /// Whether the bytes are an unfinished line without its beginning.
    is_cut: bool,
}

/// The replacement for a line without its beginning.
const LONG_LINE: &[u8] = b"[a long line]";

impl<'a> OutputWatcher<'a> {
    pub(super) fn new(report: &'a dyn Fn(&str)) -> Self {
        Self {
            report,
            tail: OutputEnd::default(),
            partial: Default::default(),
            reported_at: Instant::now(),
            is_new: false,
        }
    }
}

impl CommandSink for OutputWatcher<'_> {
    fn add(&mut self, output: usize, bytes: &[u8]) {
        let partial = &mut self.partial[output];
        partial.extend(bytes);
        if let Some(end) = memchr::memrchr(b'\n', &partial.bytes) {
            let rest = partial.bytes.split_off(end + 1);
            self.tail.extend(&std::mem::replace(&mut partial.bytes, rest));
        }
        self.is_new = true;
    }

    /// Returns the time until the next report; `None` if there is nothing new.
    fn remaining(&self) -> Option<Duration> {
        self.is_new.then(|| INTERVAL.saturating_sub(self.reported_at.elapsed()))
    }

    fn do_due(&mut self, _: &SupervisorWorker) {
        self.report_due();
    }
}

impl OutputWatcher<'_> {
    /// Reports new output, if it is time.
    fn report_due(&mut self) {
        if self.remaining() == Some(Duration::ZERO) {
            let [one, other] = &self.partial;
            let shown = [self.tail.shown(), one.shown(), b"\n", other.shown()];
            (self.report)(&last_lines(&shown.concat()));
            (self.reported_at, self.is_new) = (Instant::now(), false);
        }
    }
}

impl OutputEnd {
    /// Appends bytes, and removes surplus bytes at the beginning.
    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(KEPT_BYTES);
        self.bytes.drain(..surplus);
        self.is_cut |= surplus > 0;
        if self.is_cut
            && let Some(end) = memchr::memchr2(b'\n', b'\r', &self.bytes)
        {
            // A line that ends with a carriage return was overwritten, and gets no note.
            let note = if self.bytes[end] == b'\n' { LONG_LINE } else { b"" };
            self.bytes.splice(..end, note.iter().copied());
            self.is_cut = false;
        }
    }

    fn shown(&self) -> &[u8] {
        if self.is_cut { LONG_LINE } else { &self.bytes }
    }
}

/// Returns the last lines as text. An overwritten line, such as a progress bar, is shown in its last state.
fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|line| line.trim_end_matches('\r'));
    let lines = lines.map(|line| line.rsplit('\r').next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    strip_control_characters(&lines[lines.len().saturating_sub(REPORTED_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_last_lines_are_reported_and_what_is_written_over_is_not() {
        assert_eq!(last_lines(b"1\n2\n\n3\n4\n5\n6\n10%\r50%\r100%\r\n"), "3\n4\n5\n6\n100%");
        assert_eq!(last_lines(b"a\x1b[2J"), "a\\u{1b}[2J");
    }

    #[test]
    fn a_report_comes_after_the_interval_and_only_if_there_is_something_new() {
        let reports = RefCell::new(Vec::new());
        let report = |text: &str| reports.borrow_mut().push(text.to_owned());
        let mut watcher = OutputWatcher::new(&report);
        watcher.add(0, &[b'x'; 10_000]);
        watcher.add(0, b"\none\n");
        assert!(watcher.remaining().is_some());
        watcher.reported_at -= INTERVAL;
        watcher.report_due();
        watcher.report_due();
        assert_eq!(watcher.remaining(), None);
        assert_eq!(reports.borrow().len(), 1);
        assert!(reports.borrow()[0].ends_with("\none"));
    }

    /// If the line were shown, a part of a secret would not be masked.
    #[test]
    fn a_line_that_has_lost_its_beginning_is_not_shown() {
        let reports = RefCell::new(Vec::new());
        let report = |text: &str| reports.borrow_mut().push(text.to_owned());
        let mut watcher = OutputWatcher::new(&report);
        let rest = [b'x'; KEPT_BYTES - 3];
        for bytes in [&b"key: canary"[..], &rest, b"\nnext", b"\rlast\n", &rest, b"\rend"] {
            watcher.add(0, bytes);
            watcher.reported_at -= INTERVAL;
            watcher.report_due();
        }
        let reports = reports.take();
        assert_eq!(reports[..3], ["key: canary", "[a long line]", "[a long line]\nnext"]);
        assert_eq!(reports[5], "[a long line]\nlast\nend");
    }

    /// In a divided line, a secret would not be masked.
    #[test]
    fn a_line_is_not_divided_by_error_output() {
        let reports = RefCell::new(Vec::new());
        let report = |text: &str| reports.borrow_mut().push(text.to_owned());
        let mut watcher = OutputWatcher::new(&report);
        for (output, bytes) in [(0, &b"key: can"[..]), (1, b"!"), (0, b"ary")] {
            watcher.add(output, bytes);
        }
        watcher.reported_at -= INTERVAL;
        watcher.report_due();
        assert_eq!(*reports.borrow(), ["key: canary\n!"]);
    }
}
