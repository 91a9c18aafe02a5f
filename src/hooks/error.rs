//! Errors of hooks.

use std::time::Duration;

use thiserror::Error;

/// Why a hook failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HookError {
    /// It cannot be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// It took too long and was killed.
    #[error("it took longer than {} s and was killed", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It ended with an exit code without a meaning.
    #[error("it ended with exit code {code}{}", quote_stderr(.stderr))]
    Exit {
        /// The code.
        code: i32,
        /// What it wrote to its standard error.
        stderr: String,
    },
    /// It was ended by a signal.
    #[error("it was ended by signal {0}")]
    Signal(i32),
    /// Its output is invalid.
    #[error("{0}")]
    Output(String),
    /// It panicked.
    #[error("it failed unexpectedly: {0}")]
    Panic(String),
    /// It was cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

fn quote_stderr(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
