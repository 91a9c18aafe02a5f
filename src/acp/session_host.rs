//! What configures sessions: the command line, with its options and configuration files.

use std::path::Path;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};
use thiserror::Error;

use crate::app::{AppError, RunSetup};
use crate::journal::{JournalError, SessionHistory, SessionStore};
use crate::llm::ConnectError;
use crate::types::ConfirmMode;

/// Configures sessions, as the command line does it for one run.
pub trait SessionHost: Send + Sync {
    /// Returns everything that a run of a session needs.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong with it.
    fn configure(&self, choice: &SessionChoice<'_>) -> Result<ConfiguredSession, HostError>;

    /// Returns the agent that sessions begin with.
    fn default_agent(&self) -> &str;

    /// Returns the store of the sessions of a folder.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is wrong, or the store can't be opened.
    fn store(&self, folder: &Path) -> Result<SessionStore, HostError>;

    /// Returns the options of a stored session with which it continues in a folder.
    ///
    /// # Errors
    ///
    /// Fails as [`store`](Self::store) does, and if the session can't be trusted to continue there.
    fn stored_options(&self, folder: &Path, history: &SessionHistory) -> Result<Value, HostError>;
}

/// What a client has chosen for a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionChoice<'a> {
    /// The folder to work in.
    pub folder: &'a Path,
    /// The options of a session that was loaded.
    pub options: Option<&'a Value>,
    /// The agent.
    pub agent: Option<&'a str>,
    /// Which calls need confirmation.
    pub mode: Option<ConfirmMode>,
}

/// A configured session.
pub struct ConfiguredSession {
    /// What its runs need.
    pub setup: RunSetup,
    /// The options that are stored in it.
    pub options: Value,
    /// Whether the user has not turned MCP servers off, those of the client included.
    pub has_servers: bool,
}

/// Why a session can't be configured.
#[derive(Debug, Error)]
pub enum HostError {
    /// A folder, a setting or an option is wrong, and the user can fix it.
    #[error("{0}")]
    Usage(String),
    /// The system or this program has failed.
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

/// Returns the error for a failed operation. What is missing for a connection to the model is a matter of authentication.
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

/// Returns an error with a message of its own, and that of its code as data.
pub(super) fn with_message(error: Error, message: impl Into<String>) -> Error {
    let kind = error.message.clone();
    let mut error = error.data(json!({ "kind": kind }));
    error.message = message.into();
    error
}
