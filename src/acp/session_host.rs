//! The interface to the command line, which configures sessions from its options and configuration files.

use std::path::Path;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};
use thiserror::Error;

use crate::app::{AppError, RunSetup};
use crate::journal::{JournalError, SessionHistory, SessionStore};
use crate::llm::ConnectError;
use crate::types::ConfirmMode;

/// Configures the sessions of a client, in the way the command line configures a run.
pub trait SessionHost: Send + Sync {
    /// Returns the configuration of a session's run.
    ///
    /// # Errors
    ///
    /// Fails with all problems of the configuration.
    fn configure(&self, choice: &SessionChoice<'_>) -> Result<ConfiguredSession, HostError>;

    /// Returns the name of the agent that sessions begin with.
    fn default_agent(&self) -> &str;

    /// Returns the store of a folder's sessions.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is wrong, or the store can't be opened.
    fn store(&self, folder: &Path) -> Result<SessionStore, HostError>;

    /// Returns the stored options of a session, for continuing it in a folder.
    ///
    /// # Errors
    ///
    /// Fails as [`store`](Self::store) does, and if the session is not trusted to continue there.
    fn stored_options(&self, folder: &Path, history: &SessionHistory) -> Result<Value, HostError>;
}

/// The client's choices for a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionChoice<'a> {
    /// The folder to work in.
    pub folder: &'a Path,
    /// The stored options of a session that was loaded.
    pub options: Option<&'a Value>,
    /// The agent; `None` is the default agent.
    pub agent: Option<&'a str>,
    /// The calls that need confirmation; `None` is the agent's own mode.
    pub mode: Option<ConfirmMode>,
}

/// A configured session.
pub struct ConfiguredSession {
    /// The setup of its runs.
    pub setup: RunSetup,
    /// The options to store in the session.
    pub options: Value,
    /// Whether MCP servers, including the client's, are available: the user has not turned them off.
    pub has_servers: bool,
}

/// The reason why a session can't be configured.
#[derive(Debug, Error)]
pub enum HostError {
    /// An invalid folder, setting or option, which the user can fix.
    #[error("{0}")]
    Usage(String),
    /// A failure of the system or of this program.
    #[error("{0}")]
    Failed(String),
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        let code = match error {
            HostError::Usage(_) => Self::invalid_params(),
            HostError::Failed(_) => Self::internal_error(),
        };
        with_message(code, error.to_string())
    }
}

/// Returns the protocol's error for a failed operation. Missing or unusable credentials are authentication errors.
pub(super) fn app_error(error: &AppError) -> Error {
    let code = match error {
        AppError::Connect(
            ConnectError::MissingKey { .. }
            | ConnectError::InvalidKey { .. }
            | ConnectError::KeyCommand { .. }
            | ConnectError::Credentials(_),
        ) => Error::auth_required(),
        AppError::Journal(JournalError::UnknownSession(_)) => Error::resource_not_found(None),
        AppError::Journal(JournalError::Busy { .. }) => Error::invalid_request(),
        error if error.is_user_error() => Error::invalid_params(),
        _ => Error::internal_error(),
    };
    with_message(code, error.to_string())
}

/// Returns an error with the given message; the original message of its code becomes data.
pub(super) fn with_message(error: Error, message: impl Into<String>) -> Error {
    let kind = error.message.clone();
    let mut error = error.data(json!({ "kind": kind }));
    error.message = message.into();
    error
}
