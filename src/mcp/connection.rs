//! A connection: requests with IDs and deadlines, in the negotiated protocol mode.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::elicitation::UserQuestions;
use super::error::{Result, ServerError};
use super::message::{RpcRequest, notification};
use super::protocol_mode::{self, SESSION_VERSIONS, STATELESS_VERSION};
use super::settings::ServerSetup;
use crate::port::{CancellationToken, lock};

/// A transport to a server.
pub(super) trait Channel: Send + Sync {
    /// Sends a request and waits for its answer. If the caller stops waiting, the server is notified.
    fn request(&self, request: &RpcRequest, wait: &ReplyDeadline<'_>) -> Result<Value>;

    /// Sends a message that has no answer.
    fn notify(&self, message: Value, version: &str, wait: &ReplyDeadline<'_>) -> Result<()>;

    /// Returns the reason why the channel has ended; `None` while it is open.
    fn end_reason(&self) -> Option<ServerError>;
}

/// The time limits for the end of a server. Clones share the deadline.
#[derive(Clone)]
pub(super) struct ServerShutdown {
    normal_timeout: Duration,
    fast_timeout: Duration,
    fast: CancellationToken,
    /// The deadline for the end of the server; `None` if there is none yet.
    deadline: Arc<Mutex<Option<Instant>>>,
}

/// The limits of the wait for an answer.
#[derive(Clone, Copy)]
pub(super) struct ReplyDeadline<'a> {
    /// The deadline.
    pub at: Instant,
    /// The original timeout, for messages.
    pub timeout: Duration,
    /// Cancels the wait.
    pub cancel: &'a CancellationToken,
    /// Receives the server's progress messages.
    pub progress: &'a dyn Fn(&str),
    /// Asks the user the server's questions; `None` without a user.
    pub questions: Option<&'a UserQuestions<'a>>,
}

/// A connection with a negotiated protocol mode.
pub(super) struct ServerConnection {
    channel: Box<dyn Channel>,
    /// The negotiated protocol version.
    pub version: &'static str,
    /// The server's usage instructions.
    pub instructions: Option<String>,
    next_id: AtomicU64,
    /// Whether there is a user who can answer the server's questions.
    has_user: bool,
}

/// A list of tools.
pub(super) struct ToolList {
    pub tools: Vec<Value>,
    /// The reason why the list is incomplete; `None` if it is complete.
    pub truncated: Option<String>,
}

impl ServerShutdown {
    /// Returns the time limits of a setup. The short limit applies once `fast` is cancelled or the deadline has passed.
    pub(super) fn new(setup: &ServerSetup, fast: CancellationToken) -> Self {
        let (normal_timeout, fast_timeout) = (setup.shutdown_timeout, setup.fast_shutdown_timeout);
        Self { normal_timeout, fast_timeout, fast, deadline: Arc::default() }
    }

    pub(super) fn set_deadline(&self, until: Option<Instant>) {
        *lock(&self.deadline) = until;
    }

    /// Returns the time limit for a server to end by itself after its input is closed; `None` to terminate it at once.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        let left = lock(&self.deadline).map(|at| at.saturating_duration_since(Instant::now()));
        let most = left.map_or(self.normal_timeout, |left| left.min(self.normal_timeout));
        (!self.fast.is_cancelled() && !most.is_zero()).then_some(most)
    }

    /// Returns the time limit for a terminated server to end.
    pub(super) fn exit_timeout(&self) -> Duration {
        self.idle_timeout().unwrap_or_default().max(self.fast_timeout)
    }
}

impl<'a> ReplyDeadline<'a> {
    /// Returns the limits of a wait that starts now.
    pub(super) fn new(
        most: Duration,
        cancel: &'a CancellationToken,
        progress: &'a dyn Fn(&str),
    ) -> Self {
        Self { at: Instant::now() + most, timeout: most, cancel, progress, questions: None }
    }

    /// Returns the deadline, which moves while the user is asked.
    pub(super) fn until(&self) -> Instant {
        self.at + self.questions.map(|questions| questions.time.total()).unwrap_or_default()
    }

    /// Returns the same wait, limited to `most` from now.
    fn at_most(&self, most: Duration) -> Self {
        let until = Instant::now() + most;
        if until < self.at { Self { at: until, timeout: most, ..*self } } else { *self }
    }

    /// Returns the remaining time.
    pub(super) fn remaining(&self) -> Duration {
        self.until().saturating_duration_since(Instant::now())
    }

    /// Returns the error for reaching the deadline.
    pub(super) fn timed_out(&self) -> ServerError {
        ServerError::TimedOut(self.timeout)
    }
}

impl ServerConnection {
    /// Negotiates the protocol mode with a server, unless it is known from an earlier connection. A server that may not
    /// know the newest mode has the probe timeout to answer, and at most a quarter of the time.
    pub(super) fn open(
        channel: Box<dyn Channel>,
        known: Option<&'static str>,
        setup: &ServerSetup,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Self> {
        let (version, next_id) = (STATELESS_VERSION, AtomicU64::new(1));
        let has_user = setup.has_user;
        let mut connection = Self { channel, version, instructions: None, next_id, has_user };
        match known {
            Some(version) => connection.begin(version, wait)?,
            None => connection.negotiate(setup.probe_timeout, wait)?,
        }
        Ok(connection)
    }

    fn negotiate(&mut self, probe: Duration, wait: &ReplyDeadline<'_>) -> Result<()> {
        // The remaining time must suffice for a server that ignores unknown methods.
        match self.discover(&wait.at_most(probe.min(wait.remaining() / 4))) {
            Ok(offered) => self.begin(protocol_mode::choose_version(offered)?, wait),
            // Silence, and any error that is not of the newest mode, come from an older server.
            Err(ServerError::Refused(refusal)) => match refusal.offered_versions() {
                Some(offered) => self.begin(protocol_mode::choose_version(offered)?, wait),
                None => self.initialize(SESSION_VERSIONS[0], wait),
            },
            // Some servers answer unknown methods with an empty body.
            Err(
                ServerError::Status { status: 400..500, .. }
                | ServerError::Unreadable(_)
                | ServerError::Malformed(_),
            ) => self.initialize(SESSION_VERSIONS[0], wait),
            Err(ServerError::TimedOut(_)) => match self.initialize(SESSION_VERSIONS[0], wait) {
                // The server was only slow.
                Err(ServerError::Refused(_)) => {
                    let offered = self.discover(wait)?;
                    self.begin(protocol_mode::choose_version(offered)?, wait)
                }
                agreed => agreed,
            },
            Err(error) => Err(error),
        }
    }

    /// Asks a server for its versions and instructions, which only the newest mode supports.
    fn discover(&mut self, wait: &ReplyDeadline<'_>) -> Result<Vec<String>> {
        let result =
            self.send(STATELESS_VERSION, "server/discover", json!({}), Vec::new(), wait)?;
        let versions = protocol_mode::version_list(result.get("supportedVersions"));
        self.instructions = instructions(&result);
        versions.ok_or_else(|| ServerError::Malformed("it names no versions".to_owned()))
    }

    /// Begins a session, in modes with sessions.
    fn begin(&mut self, version: &'static str, wait: &ReplyDeadline<'_>) -> Result<()> {
        if version == STATELESS_VERSION { Ok(()) } else { self.initialize(version, wait) }
    }

    fn initialize(&mut self, version: &'static str, wait: &ReplyDeadline<'_>) -> Result<()> {
        let params = json!({
            "protocolVersion": version, "capabilities": protocol_mode::capabilities(self.has_user), "clientInfo": protocol_mode::client_info(),
        });
        let result = self.send(version, "initialize", params, Vec::new(), wait)?;
        let theirs = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let known = SESSION_VERSIONS.into_iter().find(|known| *known == theirs);
        let agreed = known.ok_or_else(|| ServerError::Version(vec![theirs.to_owned()]))?;
        let begun = notification("notifications/initialized", &json!({}));
        self.channel.notify(begun, agreed, wait)?;
        self.version = agreed;
        self.instructions = instructions(&result);
        Ok(())
    }

    /// Lists the tools of the server, page by page.
    pub(super) fn tools(&self, pages: usize, wait: &ReplyDeadline<'_>) -> Result<ToolList> {
        let (mut tools, mut cursor, mut seen) = (Vec::new(), None, HashSet::new());
        for _ in 0..pages {
            let params = match cursor.take() {
                Some(cursor) => json!({ "cursor": Value::String(cursor) }),
                None => json!({}),
            };
            let mut page = self.request("tools/list", params, Vec::new(), wait)?;
            match page.get_mut("tools").map(Value::take) {
                Some(Value::Array(items)) => tools.extend(items),
                _ => return Err(ServerError::Malformed("a page without tools".to_owned())),
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(ToolList { tools, truncated: None }),
                Some(next) if seen.insert(next.to_owned()) => cursor = Some(next.to_owned()),
                Some(_) => {
                    let cut = "the list of tools repeats a page".to_owned();
                    return Ok(ToolList { tools, truncated: Some(cut) });
                }
            }
        }
        let cut = format!("the list of tools has more than {pages} pages");
        Ok(ToolList { tools, truncated: Some(cut) })
    }

    /// Makes a request and waits for its result. With HTTP, `headers` repeat its arguments.
    pub(super) fn request(
        &self,
        method: &'static str,
        params: Value,
        headers: Vec<(String, String)>,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value> {
        self.send(self.version, method, params, headers, wait)
    }

    fn send(
        &self,
        version: &'static str,
        method: &'static str,
        mut params: Value,
        headers: Vec<(String, String)>,
        wait: &ReplyDeadline<'_>,
    ) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut meta = protocol_mode::request_meta(version, self.has_user);
        if let Some(Value::Object(own)) = params.get_mut("_meta").map(Value::take) {
            meta.extend(own);
        }
        if method == "tools/call" {
            meta.insert("progressToken".to_owned(), id.into());
        }
        if !meta.is_empty() {
            params["_meta"] = Value::Object(meta);
        }
        self.channel.request(&RpcRequest { id, method, params, version, headers }, wait)
    }

    /// Returns the reason why the connection has ended; `None` while it is open.
    pub(super) fn end_reason(&self) -> Option<ServerError> {
        self.channel.end_reason()
    }
}

fn instructions(result: &Value) -> Option<String> {
    result.get("instructions").and_then(Value::as_str).map(str::to_owned)
}
