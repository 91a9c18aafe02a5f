//! Sessions opened by a client.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use agent_client_protocol_schema::v1::{Error, SessionId as ClientSessionId};
use serde_json::Value;

use super::client_servers::add_servers;
use super::modes::ChosenMode;
use super::permission::SessionApprovals;
use super::session_host::{ConfiguredSession, SessionChoice, SessionHost, with_message};
use crate::app::RunInterrupts;
use crate::config::McpServerConfig;
use crate::journal::SessionId;
use crate::port::lock;
use crate::types::Signal;

/// A session opened by a client.
pub(super) struct OpenSession {
    pub(super) id: SessionId,
    /// The same id, in the protocol's type.
    pub(super) client_id: ClientSessionId,
    pub(super) folder: PathBuf,
    /// The MCP servers of the client.
    pub(super) servers: Vec<McpServerConfig>,
    /// The stored options of a session that was loaded.
    pub(super) options: Option<Value>,
    pub(super) approvals: SessionApprovals,
    /// Whether the client shows a plan.
    pub(super) has_plan: Arc<AtomicBool>,
    /// Whether the session has been stored. A stored session that is missing was removed.
    pub(super) is_stored: AtomicBool,
    state: Mutex<SessionState>,
}

#[derive(Default)]
struct SessionState {
    mode: ChosenMode,
    /// The handle that interrupts the running prompt.
    running: Option<RunInterrupts>,
    is_closed: bool,
}

impl OpenSession {
    /// Returns a session that works in `folder`.
    pub(super) fn new(
        id: SessionId,
        folder: PathBuf,
        servers: Vec<McpServerConfig>,
        options: Option<Value>,
    ) -> Self {
        let client_id = ClientSessionId::new(id.to_string());
        let (approvals, state) = (SessionApprovals::default(), Mutex::default());
        let (has_plan, is_stored) = (Arc::default(), AtomicBool::new(options.is_some()));
        Self { id, client_id, folder, servers, options, approvals, has_plan, is_stored, state }
    }

    /// Configures the next run, in the mode that the client has chosen.
    ///
    /// # Errors
    ///
    /// Fails with all problems of the configuration.
    pub(super) fn configure(&self, host: &dyn SessionHost) -> Result<ConfiguredSession, Error> {
        let mode = lock(&self.state).mode.clone();
        self.configure_with(host, &mode)
    }

    /// Configures a run in another mode.
    ///
    /// # Errors
    ///
    /// Fails with all problems of the configuration, and if the configuration does not allow a server of the client.
    pub(super) fn configure_with(
        &self,
        host: &dyn SessionHost,
        mode: &ChosenMode,
    ) -> Result<ConfiguredSession, Error> {
        let choice = SessionChoice {
            folder: &self.folder,
            options: self.options.as_ref(),
            agent: mode.agent.as_deref(),
            mode: mode.mode,
        };
        let mut configured = host.configure(&choice)?;
        if configured.has_servers {
            add_servers(&mut configured.setup.config, &self.servers)?;
        }
        Ok(configured)
    }

    /// Sets the mode of the next run.
    pub(super) fn set_mode(&self, mode: ChosenMode) {
        lock(&self.state).mode = mode;
    }

    /// Begins a prompt, and returns the handle that interrupts it.
    ///
    /// # Errors
    ///
    /// Fails if a prompt is running, or the session was closed.
    pub(super) fn begin_prompt(&self) -> Result<RunInterrupts, Error> {
        let mut state = lock(&self.state);
        let refused = |why: &str| Err(with_message(Error::invalid_request(), why));
        if state.is_closed {
            return refused("the session is closed");
        }
        if state.running.is_some() {
            return refused("a prompt of this session is running; cancel it, or wait for its end");
        }
        Ok(state.running.insert(RunInterrupts::default()).clone())
    }

    /// Marks the running prompt as ended.
    pub(super) fn end_prompt(&self) {
        lock(&self.state).running = None;
    }

    /// Interrupts the running prompt. Returns whether there was one.
    pub(super) fn interrupt(&self, signal: Signal) -> bool {
        let running = lock(&self.state).running.clone();
        if let Some(running) = &running {
            running.interrupt(signal);
        }
        running.is_some()
    }

    /// Interrupts the running prompt, and refuses further prompts. Returns whether there was one.
    pub(super) fn close(&self, signal: Signal) -> bool {
        lock(&self.state).is_closed = true;
        self.interrupt(signal)
    }
}

/// Ends a prompt when it is dropped, also after a panic.
pub(super) struct PromptGuard(pub(super) Arc<OpenSession>);

impl Drop for PromptGuard {
    fn drop(&mut self) {
        self.0.end_prompt();
    }
}
