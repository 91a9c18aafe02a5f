//! Writing to standard output and standard error, without a panic when nobody reads.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use architect::view::{clean, workflow};

use super::error::Failure;

/// Writes an answer to standard output.
///
/// # Errors
///
/// Fails when nobody reads it any more, or it cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let text = &*harmless(text, io::stdout().is_terminal());
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| {
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()
    });
    written.map_err(|error| Failure::from_stdout(&error))
}

/// Writes to standard error; when nobody reads that, there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let text = &*harmless(text, io::stderr().is_terminal());
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
}

/// Returns a text that neither drives a terminal behind a pipe nor commands a CI system.
fn harmless(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let is_read = reads_commands();
    match is_terminal {
        true => workflow::inert(text, is_read),
        false => match clean::piped(text) {
            Cow::Borrowed(text) => workflow::inert(text, is_read),
            Cow::Owned(text) => Cow::Owned(workflow::inert(&text, is_read).into_owned()),
        },
    }
}

/// Returns whether a CI system reads commands from what this process prints.
pub(crate) fn reads_commands() -> bool {
    workflow::is_read(|name| std::env::var(name).ok())
}

/// Returns an error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
