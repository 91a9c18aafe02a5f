//! Writing to standard output and standard error, without a panic if they are closed.

use std::io::{self, BufRead, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use architect::view::{ci_commands, flush_blocking, sanitize, write_all_blocking};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::{Errno, retry_on_intr};
use serde::Serialize;

use super::error::CliError;
use super::logging;

/// Whether standard output was closed when the process began.
static WAS_STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, and before the standard library opens `/dev/null` in place of closed streams, where a result
/// would be lost.
#[cfg(target_os = "linux")]
#[used]
#[allow(unsafe_code)]
// SAFETY: the loader calls the functions of this section, in one thread. This one makes one system call and sets a flag;
// it needs nothing that the standard library has to set up.
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = check_stdout;

#[cfg(target_os = "linux")]
extern "C" fn check_stdout() {
    let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    WAS_STDOUT_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// Makes writes to standard output fail if it was closed when the process began, as if its reader had gone.
pub(crate) fn break_closed_stdout() {
    if !WAS_STDOUT_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let broken = io::pipe().and_then(|(_, writer)| Ok(rustix::stdio::dup2_stdout(writer)?));
    if let Err(error) = broken {
        log::warn!("standard output is closed: {error}");
    }
}

/// Returns whether standard output is a device. A terminal that is gone can't be recognized by anything else, and writing
/// to it fails as writing to a broken disk does.
pub(crate) fn is_stdout_device() -> bool {
    let is_device = |meta: Stat| FileType::from_raw_mode(meta.st_mode).is_char_device();
    fstat(rustix::stdio::stdout()).is_ok_and(is_device)
}

/// Writes the output of a command to standard output, and returns the exit code of success.
///
/// # Errors
///
/// Fails if standard output is closed, or can't be written.
pub(crate) fn print(text: &str) -> Result<u8, CliError> {
    let lines = printable_lines(text, io::stdout().is_terminal());
    write_stdout(lines.as_bytes()).map(|()| 0)
}

/// Writes bytes to standard output, even if it is non-blocking, as a parent process may set it.
///
/// # Errors
///
/// Fails if standard output is closed, or can't be written.
pub(crate) fn write_stdout(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    let written = write_all_blocking(&mut stdout, bytes).and_then(|()| flush_blocking(&mut stdout));
    written.map_err(|error| CliError::from_stdout(&error))
}

/// Returns a document as JSON.
pub(crate) fn to_json(document: &impl Serialize) -> String {
    // All documents can be expressed in JSON.
    serde_json::to_string(document).unwrap_or_default()
}

/// Writes to standard error. Errors are ignored.
pub(crate) fn print_stderr(text: &str) {
    let lines = printable_lines(text, io::stderr().is_terminal());
    logging::flush();
    let _ = write_stderr(lines.as_bytes());
}

/// Writes bytes to standard error. Once a pipe has stayed full for [`STDERR_PATIENCE`], later writes don't wait for its
/// reader: the time limit of a run must hold even if the parent process reads standard error only after the end, or
/// never.
///
/// # Errors
///
/// Fails if standard error is closed, or stays full for too long.
pub(crate) fn write_stderr(bytes: &[u8]) -> io::Result<()> {
    // `io::stderr` is not used, since the thread that writes the log of a run may wait while it holds the lock.
    let stderr = rustix::stdio::stderr();
    let is_terminal = io::stderr().is_terminal();
    // A writable pipe accepts at least this many bytes at once.
    for mut piece in bytes.chunks(rustix::pipe::PIPE_BUF) {
        while !piece.is_empty() {
            let patience = match IS_STDERR_STALLED.load(Ordering::Relaxed) {
                _ if is_terminal => None,
                true => Some(Timespec::default()),
                false => Some(STDERR_PATIENCE),
            };
            let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
            let is_ready = retry_on_intr(|| poll(&mut polled, patience.as_ref()))? > 0;
            IS_STDERR_STALLED.store(!is_ready, Ordering::Relaxed);
            if !is_ready {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match retry_on_intr(|| rustix::io::write(stderr, piece)) {
                Ok(written) => piece = &piece[written..],
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Whether standard error was full for longer than [`STDERR_PATIENCE`] at the last write.
static IS_STDERR_STALLED: AtomicBool = AtomicBool::new(false);

/// The maximum time that a write waits for the reader of a full pipe.
const STDERR_PATIENCE: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// Asks a question on the terminal, after a text. Returns whether the answer is yes; `None` if there is no terminal.
///
/// # Errors
///
/// Fails if the answer can't be read.
pub(crate) fn ask(text: &str, question: &str) -> Result<Option<bool>, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    print_stderr(&format!("{text}\n{question} [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| CliError::usage(format!("could not read the answer: {error}")))?;
    Ok(Some(["y", "yes"].contains(&answer.trim().to_lowercase().as_str())))
}

/// Returns a text as whole lines without escape codes for a terminal behind a pipe, and without commands for a CI
/// system.
fn printable_lines(text: &str, is_terminal: bool) -> String {
    let text = if is_terminal { sanitize::for_terminal(text) } else { sanitize::for_pipe(text) };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    ci_commands::escape_commands(&format!("{text}{end}"), is_read_by_ci()).into_owned()
}

/// Returns whether a CI system interprets commands in the output of this process.
pub(crate) fn is_read_by_ci() -> bool {
    ci_commands::runs_in_ci(|name| std::env::var(name).ok())
}
