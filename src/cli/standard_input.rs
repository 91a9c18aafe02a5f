//! Reading standard input with a time limit.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use architect::types::TimeSpan;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

use super::error::CliError;

/// Reads standard input to its end, within the time limit of the work that follows.
///
/// # Errors
///
/// Fails if the input is longer than `max_bytes`, has not ended within `timeout`, or can't be read.
pub(crate) fn read_stdin(max_bytes: u64, timeout: Option<TimeSpan>) -> Result<Vec<u8>, CliError> {
    let deadline = timeout.and_then(|most| Instant::now().checked_add(most.into()));
    let mut bytes = Vec::new();
    match (StdinReader { deadline }.take(max_bytes + 1).read_to_end(&mut bytes), timeout) {
        (Ok(_), _) if bytes.len() as u64 > max_bytes => {
            Err(CliError::usage(format!("standard input is longer than {max_bytes} bytes")))
        }
        (Ok(_), _) => Ok(bytes),
        (Err(error), Some(most)) if error.kind() == io::ErrorKind::TimedOut => {
            let text = format!("standard input did not end within the time limit of {most}");
            Err(CliError::usage(text)
                .hint("--timeout SECONDS, or `limits.timeout`, limits the wait for it, too"))
        }
        (Err(error), _) => Err(CliError::unreadable("standard input", &error)),
    }
}

/// Standard input. Each read fails after the deadline.
struct StdinReader {
    deadline: Option<Instant>,
}

impl Read for StdinReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = match left {
                Duration::ZERO => 0,
                // A time too long for the system to wait is longer than any run.
                left => poll(
                    &mut [PollFd::new(&stdin(), PollFlags::IN)],
                    Timespec::try_from(left).ok().as_ref(),
                )?,
            };
            if ready == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(rustix::io::read(stdin(), buffer)?)
    }
}
