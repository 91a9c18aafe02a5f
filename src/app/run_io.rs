//! The inputs of a run: its request, its user interface, and the resources shared with its sub-agents.

use std::sync::Arc;

use serde_json::Value;

use super::session::SessionTarget;
use crate::journal::{DamagePolicy, JournalError, SessionId, SessionStore};
use crate::llm::scripted::ScriptPosition;
use crate::mcp::McpServers;
use crate::policy::{Confirmer, NoConfirmer};
use crate::tools::SharedQuota;
use crate::view::{CostSource, Reporter};
use crate::workspace::image::ImageSource;

/// The request for one run.
#[derive(Debug)]
pub struct RunRequest {
    /// The user's message; `None` resumes a stored session as it is.
    pub task: Option<Arc<str>>,
    /// Images for the model, with the user's message.
    pub images: Vec<ImageSource>,
    /// The session, new or stored.
    pub target: SessionTarget,
    /// Options of the caller, which are stored in the journal.
    pub options: Value,
    /// The source of the run's costs.
    pub source: CostSource,
    /// The exit code of a partial run, if the user sets one.
    pub exit_on_partial: Option<u8>,
}

impl RunRequest {
    /// Returns the request for a task, without options.
    pub fn new(task: impl Into<Arc<str>>, target: SessionTarget, source: CostSource) -> Self {
        let (task, options) = (Some(task.into()), Value::Null);
        Self { task, images: Vec::new(), target, options, source, exit_on_partial: None }
    }

    /// Returns the request to resume a stored session, or to begin one with this ID and task if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails if the session is open elsewhere or damaged.
    pub fn resume_or_begin(
        store: &SessionStore,
        session: SessionId,
        task: Arc<str>,
        options: Value,
    ) -> Result<Self, JournalError> {
        let (task, target) = match store.reopen(session, DamagePolicy::Refuse) {
            Ok(opened) => (None, SessionTarget::Stored(store.clone(), Box::new(opened))),
            Err(JournalError::UnknownSession(_)) => {
                (Some(task), SessionTarget::New(store.clone(), Some(session)))
            }
            Err(error) => return Err(error),
        };
        Ok(Self { task, options, ..Self::new("", target, CostSource::Agent) })
    }
}

/// The user interface of a run.
#[derive(Clone)]
pub struct RunIo {
    /// Shows the run.
    pub reporter: Reporter,
    /// Asks the user for confirmations.
    pub confirm: Arc<dyn Confirmer>,
    /// The description of the confinement of commands, if it is to be shown.
    pub sandbox: Option<Arc<str>>,
}

impl RunIo {
    /// Returns the interface of a run without a user: calls that need confirmation are denied.
    pub fn unattended(reporter: Reporter) -> Self {
        Self { reporter, confirm: Arc::new(NoConfirmer), sandbox: None }
    }
}

/// The resources that a run shares with its sub-agents.
#[derive(Clone)]
pub(super) struct SharedResources {
    /// The MCP servers.
    pub(super) servers: Arc<McpServers>,
    /// The limits on changes and commands, with their usage.
    pub(super) quota: SharedQuota,
    /// The position in a script or a recording.
    pub(super) script_position: ScriptPosition,
}
