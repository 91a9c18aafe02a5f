//! Errors of hooks.

use std::time::Duration;

use thiserror::Error;

/// The reason why a hook failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HookError {
    /// The hook cannot be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// The hook exceeded its time limit and was killed.
    #[error("it took longer than {} s and was killed", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The hook ended with an exit code that has no meaning.
    #[error("it ended with exit code {code}{}", quote_stderr(.stderr))]
    Exit {
        /// The exit code.
        code: i32,
        /// The text that the hook wrote to its standard error.
        stderr: String,
    },
    /// The hook was ended by a signal.
    #[error("it was ended by signal {0}")]
    Signal(i32),
    /// The output of the hook is invalid.
    #[error("{0}")]
    Output(String),
    /// The hook panicked.
    #[error("it failed unexpectedly: {0}")]
    Panic(String),
    /// The hook was cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

fn quote_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
