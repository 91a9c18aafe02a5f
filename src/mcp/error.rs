//! Errors of servers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::exec::CommandEnd;

/// The result of an operation on a server.
pub(super) type Result<T, E = ServerError> = std::result::Result<T, E>;

/// The reason why a server gives no answer.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server cannot be started.
    #[error("it could not be started: {0}")]
    Start(String),
    /// The process of the server has ended.
    #[error("it died{}{}", exit_text(*.end), quote(.stderr))]
    Exited {
        /// The end of the process, if known.
        end: Option<CommandEnd>,
        /// The last part of its standard error.
        stderr: String,
    },
    /// The server was ended because of its output.
    #[error("it {0}, and was ended")]
    Misbehaved(String),
    /// The server did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The server supports no known version of the protocol.
    #[error("it uses version {} of the protocol, which is not supported", .0.join(", "))]
    Version(Vec<String>),
    /// The server cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The server requires authorization.
    #[error(
        "it requires authorization ({0}); name a variable that holds its token in `token_env`, give it `headers`, \
         or client credentials in `oauth` (sign-in with a browser is not supported)"
    )]
    Unauthorized(u16),
    /// The sign-in with client credentials failed.
    #[error("sign-in failed: {0}")]
    SignIn(String),
    /// The server redirects the request.
    #[error("it redirects to {0}, which is not followed; configure that URL if it is correct")]
    Redirected(String),
    /// The server answered with an error status.
    #[error("it answered with status {status}{}", quote(.body))]
    Status {
        /// The status code.
        status: u16,
        /// The body of the answer.
        body: String,
    },
    /// The answer is incomplete.
    #[error("its response was cut off")]
    Truncated,
    /// The session has expired.
    #[error("it no longer knows the session")]
    SessionExpired,
    /// The server answered with an error.
    #[error("it answered with an error: {0}")]
    Refused(RpcError),
    /// The answer can't be parsed.
    #[error("its answer could not be read: {0}")]
    Unreadable(String),
    /// The answer violates the protocol.
    #[error("its response violates the protocol: {0}")]
    Malformed(String),
    /// The server has ended again too soon after a restart.
    #[error("it crashed again, and is restarted at most every {} s", .0.as_secs_f64())]
    RestartTooSoon(Duration),
    /// The call was cancelled.
    #[error("it was cancelled")]
    Cancelled,
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// The error code.
    pub code: i64,
    /// The error message.
    pub message: String,
    /// Additional data.
    pub data: Value,
}

/// A problem that is reported before a run begins.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ServerProblem {
    /// The tools of a server cannot be used.
    #[error("the tools of the MCP server `{server}` are missing: {error}")]
    Unavailable {
        /// The name of the server.
        server: Arc<str>,
        /// The error.
        error: ServerError,
        /// Whether the run requires the server.
        necessity: super::Necessity,
    },
    /// Parts of a server are left out.
    #[error("of the MCP server `{server}`, {what}")]
    Incomplete {
        /// The name of the server.
        server: Arc<str>,
        /// The omitted parts, with the reason.
        what: String,
    },
}

impl ServerProblem {
    /// Returns whether the problem prevents the run.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Unavailable { necessity: super::Necessity::Required, .. })
    }
}

impl ServerError {
    /// Returns whether a request or its answer was lost, rather than late.
    pub(super) fn is_connection_loss(&self) -> bool {
        matches!(
            self,
            Self::Exited { .. } | Self::Misbehaved(_) | Self::Unreachable(_) | Self::Truncated
        )
    }

    /// Returns whether a call without an answer may have had an effect.
    pub(super) fn may_have_run(&self) -> bool {
        self.is_connection_loss()
            || matches!(self, Self::TimedOut(_) | Self::Unreadable(_) | Self::Malformed(_))
    }
}

fn exit_text(end: Option<CommandEnd>) -> String {
    match end {
        Some(CommandEnd::Exited(code)) => format!(" (exit code {code})"),
        Some(CommandEnd::Signalled(signal)) => format!(" (signal {signal})"),
        Some(CommandEnd::OutOfMemory) => " (it used too much memory)".to_owned(),
        _ => String::new(),
    }
}

fn quote(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!("; its last output: {text}"),
    }
}
