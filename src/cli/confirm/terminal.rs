//! The terminal from which the program was started, available even if standard input is a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use architect::port::CancellationToken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use signal_hook::consts::SIGCONT;

/// The controlling terminal.
pub(super) struct Terminal {
    file: File,
    /// The texts since the terminal was opened, with the answers, to be shown again after this program was stopped and
    /// continued.
    shown: String,
}

/// The user's input.
pub(super) enum Input {
    /// A line, without its end.
    Line(String),
    /// The end of the input: Ctrl-D, or a closed terminal.
    End,
    /// No input, because the run no longer waits.
    Cancelled,
}

impl Input {
    /// Returns the line, if there is one.
    pub(super) fn line(self) -> Option<String> {
        match self {
            Self::Line(line) => Some(line),
            Self::End | Self::Cancelled => None,
        }
    }
}

/// The interval of checks whether the run still waits for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Terminal {
    /// Opens the terminal, if there is one and at least one of the standard streams is a terminal. Otherwise, as with
    /// `nohup`, no user watches the run.
    pub(super) fn open() -> Option<Self> {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        if !input.is_terminal() && !output.is_terminal() && !error.is_terminal() {
            return None;
        }
        OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()
            .map(|file| Self { file, shown: String::new() })
    }

    /// Discards unread input.
    pub(super) fn discard_input(&self) {
        let _ = tcflush(&self.file, QueueSelector::IFlush);
    }

    /// Writes a text. Errors are ignored, since the next read reports a closed terminal.
    pub(super) fn write(&mut self, text: &str) {
        was_continued();
        self.shown.push_str(text);
        let _ = self.file.write_all(text.as_bytes());
    }

    /// Shows everything again if this program was stopped and is in the foreground again: meanwhile, the shell has
    /// written to the terminal, and the terminal has dropped unread input.
    fn show_again(&mut self) {
        let is_foreground =
            tcgetpgrp(&self.file).is_ok_and(|group| group == rustix::process::getpgrp());
        if is_foreground && was_continued() {
            let _ = self.file.write_all(format!("\n{}", self.shown).as_bytes());
        }
    }

    /// Returns the terminal as a stream of a child process.
    pub(super) fn stdio(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
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
            self.show_again();
            let ready = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], pulse.as_ref());
            if !matches!(ready, Ok(count) if count > 0) {
                continue;
            }
            let mut byte = [0];
            match self.file.read(&mut byte) {
                Ok(0) | Err(_) => {
                    self.write("\n");
                    return Input::End;
                }
                Ok(_) if byte[0] == b'\n' => {
                    let line = String::from_utf8_lossy(&bytes).into_owned();
                    self.shown.push_str(&line);
                    self.shown.push('\n');
                    return Input::Line(line);
                }
                Ok(_) => bytes.push(byte[0]),
            }
        }
    }
}

/// Returns whether this program was stopped and continued since the last call.
fn was_continued() -> bool {
    static CONTINUED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let continued = CONTINUED.get_or_init(|| {
        let continued = Arc::new(AtomicBool::new(false));
        if let Err(error) = signal_hook::flag::register(SIGCONT, Arc::clone(&continued)) {
            log::debug!("a stop of this program goes unnoticed: {error}");
        }
        continued
    });
    continued.swap(false, Ordering::Relaxed)
}
