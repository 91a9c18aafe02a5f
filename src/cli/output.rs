//! Writes to standard output and standard error, without a panic if they are closed.

use std::io::{self, IsTerminal, Write};

use architect::view::{ci_commands, sanitize};

use super::error::CliError;

/// Writes an answer to standard output, and returns the exit code of success.
///
/// # Errors
///
/// Fails if it is closed, or can't be written.
pub(crate) fn print(text: &str) -> Result<u8, CliError> {
    let lines = printable_lines(text, io::stdout().is_terminal());
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
    written.map(|()| 0).map_err(|error| CliError::from_stdout(&error))
}

/// Writes to standard error; a failure is ignored.
pub(crate) fn print_stderr(text: &str) {
    let lines = printable_lines(text, io::stderr().is_terminal());
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

/// Returns a text as whole lines that neither drive a terminal behind a pipe nor command a CI system.
fn printable_lines(text: &str, is_terminal: bool) -> String {
    let text = if is_terminal { text.into() } else { sanitize::for_pipe(text) };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    ci_commands::escape_commands(&format!("{text}{end}"), is_read_by_ci()).into_owned()
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
