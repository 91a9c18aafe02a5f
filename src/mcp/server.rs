//! A server and its connection, which is replaced when it has ended.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::connection::{Channel, ReplyDeadline, ServerConnection, ServerShutdown};
use super::error::{Result, ServerError};
use super::http::{HttpChannel, TokenSource};
use super::protocol_mode::SESSION_VERSIONS;
use super::settings::{ServerSetup, ServerSpec, ServerTransport};
use super::stdio::StdioChannel;
use crate::net::{HttpOptions, HttpTimeouts};
use crate::port::{CancellationToken, lock};

/// A server.
pub(super) struct McpServer {
    pub spec: ServerSpec,
    pub setup: ServerSetup,
    /// The access tokens for the server, which outlive a connection.
    tokens: Option<Arc<TokenSource>>,
    /// The limits of a shutdown; the deadline is set while the server is started, and at shutdown.
    shutdown: ServerShutdown,
    /// The state of the server; `None` after shutdown. Locked during a restart, since concurrent calls need the same
    /// connection.
    lifecycle: Mutex<Option<ServerLifecycle>>,
}

/// The state of a server.
#[derive(Default)]
struct ServerLifecycle {
    connection: Option<Arc<ServerConnection>>,
    /// The version negotiated with the first connection; it does not change for later connections.
    version: Option<&'static str>,
    restarted_at: Option<Instant>,
}

impl McpServer {
    pub(super) fn new(spec: ServerSpec, setup: ServerSetup, hurry: CancellationToken) -> Self {
        let lifecycle = Mutex::new(Some(ServerLifecycle::default()));
        let shutdown = ServerShutdown::new(&setup, hurry);
        let tokens = match &spec.transport {
            ServerTransport::Http { url, credentials: Some(credentials), .. } => {
                TokenSource::new(url, (**credentials).clone()).ok().map(Arc::new)
            }
            ServerTransport::Http { .. } | ServerTransport::Stdio { .. } => None,
        };
        Self { spec, setup, tokens, shutdown, lifecycle }
    }

    /// Starts the server and negotiates the protocol mode.
    pub(super) fn start(&self, wait: &ReplyDeadline<'_>) -> Result<Arc<ServerConnection>> {
        let mut life = lock(&self.lifecycle);
        self.connect(life.as_mut().ok_or(ServerError::Cancelled)?, wait)
    }

    /// Makes a call. If the server has ended, it is restarted first. A call that may have run is repeated only if the
    /// server declares it harmless.
    pub(super) fn call(
        &self,
        params: &Value,
        headers: &[(String, String)],
        is_harmless: bool,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value> {
        let call = |connection: Arc<ServerConnection>| {
            connection.request("tools/call", params.clone(), headers.to_vec(), wait)
        };
        match call(self.connection(wait)?) {
            // The server did not process the call.
            Err(ServerError::SessionExpired) => call(self.connection(wait)?),
            Err(error) if error.is_connection_loss() && is_harmless => {
                call(self.connection(wait).map_err(|_| error)?)
            }
            answered => answered,
        }
    }

    /// Stops the server permanently, faster if `left` is less than the usual time limit.
    pub(super) fn stop(&self, left: Option<Duration>) {
        let life = lock(&self.lifecycle).take();
        self.shutdown.set_deadline(left.and_then(|left| Instant::now().checked_add(left)));
        drop(life);
    }

    /// Returns an open connection.
    fn connection(&self, wait: &ReplyDeadline<'_>) -> Result<Arc<ServerConnection>> {
        let mut life = lock(&self.lifecycle);
        let life = life.as_mut().ok_or(ServerError::Cancelled)?;
        if let Some(connection) = &life.connection {
            match connection.end_reason() {
                None => return Ok(Arc::clone(connection)),
                // An expired session is not a failure.
                Some(ServerError::SessionExpired) => return self.connect(life, wait),
                Some(_) => {}
            }
        }
        let pause = self.setup.restart_interval;
        if life.restarted_at.is_some_and(|before| before.elapsed() < pause) {
            return Err(ServerError::RestartTooSoon(pause));
        }
        life.restarted_at = Some(Instant::now());
        self.connect(life, wait)
    }

    fn connect(
        &self,
        life: &mut ServerLifecycle,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Arc<ServerConnection>> {
        life.connection = None;
        let open = |version| ServerConnection::open(self.channel()?, version, &self.setup, wait);
        // A server that starts too slowly gets no additional time to end.
        self.shutdown.set_deadline(Some(wait.until()));
        let opened = match open(life.version) {
            // Some servers exit when the first message does not begin a session.
            Err(ServerError::Exited { .. }) if life.version.is_none() => {
                open(Some(SESSION_VERSIONS[0]))
            }
            opened => opened,
        };
        self.shutdown.set_deadline(None);
        let connection = Arc::new(opened?);
        life.version = Some(connection.version);
        life.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn channel(&self) -> Result<Box<dyn Channel>> {
        let secrets = self.spec.transport.secrets();
        let parting = self.shutdown.clone();
        match &self.spec.transport {
            ServerTransport::Stdio { command, args, env } => {
                let argv = [command].into_iter().chain(args).map(OsString::from).collect();
                Ok(Box::new(StdioChannel::start(argv, env, secrets, &self.setup, parting)?))
            }
            ServerTransport::Http { url, headers, options: way, .. } => {
                let limit = self.spec.timeout;
                let timeouts = HttpTimeouts { first_byte: limit, idle: limit, ..way.timeouts };
                let way = HttpOptions { timeouts, ..way.clone() };
                let most = self.setup.limits.message_bytes;
                let tokens = self.tokens.clone();
                let channel = HttpChannel::new(url, headers, secrets, way, tokens, most, parting)?;
                Ok(Box::new(channel))
            }
        }
    }
}
