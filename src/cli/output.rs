//! Writes to standard output and standard error, without a panic if they are closed.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use architect::view::{ci_commands, sanitize};

use super::error::CliError;

/// Writes an answer to standard output, and returns the exit code of success.
///
/// # Errors
///
/// Fails if it is closed, or can't be written.
pub(crate) fn print(text: &str) -> Result<u8, CliError> {
    let text = &*sanitize(text, io::stdout().is_terminal());
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| {
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()
    });
    written.map(|()| 0).map_err(|error| CliError::from_stdout(&error))
}

/// Writes to standard error; a failure is ignored.
pub(crate) fn print_stderr(text: &str) {
    let text = &*sanitize(text, io::stderr().is_terminal());
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
}

/// Returns a text that neither drives a terminal behind a pipe nor commands a CI system.
fn sanitize(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let is_read = is_read_by_ci();
    match is_terminal {
        true => ci_commands::escape_commands(text, is_read),
        false => {
            ci_commands::escape_commands(&sanitize::for_pipe(text), is_read).into_owned().into()
        }
    }
}

/// Returns whether a CI system reads commands from what this process prints.
pub(crate) fn is_read_by_ci() -> bool {
    ci_commands::runs_in_ci(|name| std::env::var(name).ok())
}

/// Returns an error with its causes, on one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
