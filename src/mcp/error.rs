//! What can go wrong with a server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::exec::End;

/// Why a server has no answer.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It could not be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// It has ended.
    #[error("it died{}{}", ended(*.end), quoted(.said))]
    Died {
        /// How, as far as that is known.
        end: Option<End>,
        /// The last that it wrote to its standard error.
        said: String,
    },
    /// It was ended for what it said.
    #[error("it {0}, and was ended")]
    Misbehaved(String),
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It speaks none of the versions of the protocol that are known here.
    #[error("it speaks version {} of the protocol, which is not known here", .0.join(", "))]
    Version(Vec<String>),
    /// It cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It wants to know who is asking.
    #[error(
        "it refuses whoever is not authorized ({0}); name a variable that holds its token in `token_env`, or give it \
         `headers` (it cannot be signed in to by a browser here)"
    )]
    Unauthorized(u16),
    /// It is somewhere else.
    #[error("it redirects to {0}, which is not followed; give that address if it is right")]
    Redirected(String),
    /// It answered with a status that says that it cannot.
    #[error("it answered with status {status}{}", quoted(.said))]
    Status {
        /// The status.
        status: u16,
        /// What else it said.
        said: String,
    },
    /// Its answer broke off.
    #[error("its answer broke off")]
    Cut,
    /// It does not know the session any more.
    #[error("it does not know the session any more")]
    SessionOver,
    /// It answered with an error.
    #[error("it answered with an error: {0}")]
    Refused(Refusal),
    /// It answered with something else than what was asked for.
    #[error("its answer is not what the protocol says: {0}")]
    Malformed(String),
    /// It has died, and was restarted too short a time ago.
    #[error("it has died again, and is not restarted more often than every {} s", .0.as_secs_f64())]
    TooSoon(Duration),
    /// Nobody waits for it any more.
    #[error("it was cancelled")]
    Cancelled,
}

/// An error as a server tells it.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message} ({code})")]
pub struct Refusal {
    /// Its number.
    pub code: i64,
    /// Its text.
    pub message: String,
    /// What else the server says of it.
    pub data: Value,
}

/// Something that somebody should know before a run begins.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Problem {
    /// A server's tools cannot be used.
    #[error("the tools of the MCP server `{server}` are missing: {error}")]
    Missing {
        /// The server.
        server: Arc<str>,
        /// Why.
        error: ServerError,
        /// Whether the run can do without it.
        necessity: super::Necessity,
    },
    /// Something of a server is left out.
    #[error("of the MCP server `{server}`, {what}")]
    Reduced {
        /// The server.
        server: Arc<str>,
        /// What is left out, and why.
        what: String,
    },
}

impl Problem {
    /// Returns whether the run cannot begin.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Missing { necessity: super::Necessity::Required, .. })
    }
}

impl ServerError {
    /// Returns whether a request or its answer was lost, and not only late.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Died { .. } | Self::Misbehaved(_) | Self::Unreachable(_) | Self::Cut)
    }

    /// Returns whether a call may have had an effect although it has no answer.
    pub(super) fn leaves_doubt(&self) -> bool {
        self.is_loss() || matches!(self, Self::TimedOut(_))
    }
}

fn ended(end: Option<End>) -> String {
    match end {
        Some(End::Exited(code)) => format!(" (exit code {code})"),
        Some(End::Signalled(signal)) => format!(" (signal {signal})"),
        Some(End::OutOfMemory) => " (it used too much memory)".to_owned(),
        Some(End::TimedOut | End::Cancelled | End::Stuck | End::Lost) | None => String::new(),
    }
}

fn quoted(said: &str) -> String {
    match said.trim() {
        "" => String::new(),
        said => format!("; the last that it said: {said}"),
    }
}
