//! The terminal that the program was started from, also when its standard input is a pipe.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use architect::port::CancellationToken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};

/// The terminal.
pub(super) struct Terminal(File);

/// What a user has typed.
pub(super) enum Input {
    /// A line, without its end.
    Line(String),
    /// The end of the input: Ctrl-D, or a terminal that is gone.
    End,
    /// Nothing, and the run no longer waits for it.
    Cancelled,
}

/// How often it is checked whether the run still waits for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Terminal {
    /// Opens the terminal, if there is one.
    pub(super) fn open() -> Option<Self> {
        OpenOptions::new().read(true).write(true).open("/dev/tty").ok().map(Self)
    }

    /// Discards what was typed and not read.
    pub(super) fn discard_input(&self) {
        let _ = tcflush(&self.0, QueueSelector::IFlush);
    }

    /// Writes a text. A terminal that is gone is noticed by the next reading.
    pub(super) fn write(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes());
    }

    /// Returns the terminal as a stream of a child process.
    pub(super) fn stdio(&self) -> std::io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    /// Reads a line.
    pub(super) fn read_line(&mut self, cancel: &CancellationToken) -> Input {
        let mut bytes = Vec::new();
        let pulse = Timespec::try_from(POLL_INTERVAL).ok();
        loop {
            if cancel.is_cancelled() {
                self.write("\n");
                return Input::Cancelled;
            }
            let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], pulse.as_ref());
            if !matches!(ready, Ok(count) if count > 0) {
                continue;
            }
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(0) | Err(_) => {
                    self.write("\n");
                    return Input::End;
                }
                Ok(_) if byte[0] == b'\n' => {
                    return Input::Line(String::from_utf8_lossy(&bytes).into_owned());
                }
                Ok(_) => bytes.push(byte[0]),
            }
        }
    }
}
