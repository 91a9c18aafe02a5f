//! Writing to standard output and standard error, without a panic when nobody reads.

use std::io::{self, Write};

use super::error::Failure;

/// Writes an answer to standard output.
///
/// # Errors
///
/// Fails when nobody reads it any more, or it cannot be written.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
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
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
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
