//! The terminal that the program was started from, also when its standard input is a pipe.

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

/// The terminal.
pub(super) struct Terminal {
    file: File,
    /// The questions since it was opened, with their answers, to show them again after a stop of this program.
    shown: String,
}

/// What a user has typed.
pub(super) enum Input {
    /// A line, without its end.
    Line(String),
    /// The end of the input: Ctrl-D, or a terminal that is gone.
    End,
    /// Nothing, and the run no longer waits for it.
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

/// How often it is checked whether the run still waits for the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Terminal {
    /// Opens the terminal, if there is one and one of the standard streams is on it: without any, as below `nohup`, no user
    /// watches the run.
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

    /// Discards what was typed and not read.
    pub(super) fn discard_input(&self) {
        let _ = tcflush(&self.file, QueueSelector::IFlush);
    }

    /// Writes a text. A terminal that is gone is noticed by the next reading.
    pub(super) fn write(&mut self, text: &str) {
        was_continued();
        self.shown.push_str(text);
        let _ = self.file.write_all(text.as_bytes());
    }

    /// Shows everything again if this program was stopped and is in the foreground again: the shell has written meanwhile, and
    /// the terminal has dropped what was typed.
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

/// Returns whether this program was stopped since the last call, and goes on.
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
