//! What can go wrong with a server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::exec::CommandEnd;

/// Why a server has no answer.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// It could not be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// It has ended.
    #[error("it died{}{}", exit_text(*.end), quote(.stderr))]
    Exited {
        /// How, as far as that is known.
        end: Option<CommandEnd>,
        /// The last that it wrote to its standard error.
        stderr: String,
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
    #[error("it answered with status {status}{}", quote(.body))]
    Status {
        /// The status.
        status: u16,
        /// What else it said.
        body: String,
    },
    /// Its answer broke off.
    #[error("its answer broke off")]
    Truncated,
    /// It does not know the session any more.
    #[error("it does not know the session any more")]
    SessionExpired,
    /// It answered with an error.
    #[error("it answered with an error: {0}")]
    Refused(RpcError),
    /// It answered with something else than what was asked for.
    #[error("its answer is not what the protocol says: {0}")]
    Malformed(String),
    /// It has died, and was restarted too short a time ago.
    #[error("it has died again, and is not restarted more often than every {} s", .0.as_secs_f64())]
    RestartTooSoon(Duration),
    /// Nobody waits for it any more.
    #[error("it was cancelled")]
    Cancelled,
}

/// An error as a server tells it.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Its number.
    pub code: i64,
    /// Its text.
    pub message: String,
    /// What else the server says of it.
    pub data: Value,
}

/// Something that somebody should know before a run begins.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ServerProblem {
    /// A server's tools cannot be used.
    #[error("the tools of the MCP server `{server}` are missing: {error}")]
    Unavailable {
        /// The server.
        server: Arc<str>,
        /// Why.
        error: ServerError,
        /// Whether the run can do without it.
        necessity: super::Necessity,
    },
    /// Something of a server is left out.
    #[error("of the MCP server `{server}`, {what}")]
    Incomplete {
        /// The server.
        server: Arc<str>,
        /// What is left out, and why.
        what: String,
    },
}

impl ServerProblem {
    /// Returns whether the run cannot begin.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Unavailable { necessity: super::Necessity::Required, .. })
    }
}

impl ServerError {
    /// Returns whether a request or its answer was lost, and not only late.
    pub(super) fn is_connection_loss(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::Misbehaved(_) | Self::Unreachable(_) | Self::Truncated
        )
    }

    /// Returns whether a call may have had an effect although it has no answer.
    pub(super) fn may_have_run(&self) -> bool {
        self.is_connection_loss() || matches!(self, Self::TimedOut(_))
    }
}

fn exit_text(end: Option<CommandEnd>) -> String {
    match end {
        Some(CommandEnd::Exited(code)) => format!(" (exit code {code})"),
        Some(CommandEnd::Signalled(signal)) => format!(" (signal {signal})"),
        Some(CommandEnd::OutOfMemory) => " (it used too much memory)".to_owned(),
        Some(
            CommandEnd::TimedOut | CommandEnd::Cancelled | CommandEnd::Stuck | CommandEnd::Lost,
        )
        | None => String::new(),
    }
}

fn quote(said: &str) -> String {
    match said.trim() {
        "" => String::new(),
        said => format!("; the last that it said: {said}"),
    }
}
