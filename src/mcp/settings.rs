//! The configuration of servers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::exec::Supervisor;
use crate::net::{Endpoint, HttpOptions, Secret};
use crate::port::CancellationToken;
use crate::types::matches_wildcard;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The name, which is part of the names of the tools.
    pub name: String,
    /// The transport by which to connect to the server.
    pub transport: ServerTransport,
    /// The time limit of the start, and of each call.
    pub timeout: Duration,
    /// The tools to use.
    pub tools: ToolFilter,
    /// Whether requests may leave the tools out, so that the server can have more tools.
    pub may_defer: bool,
    /// Whether a run requires the server.
    pub necessity: Necessity,
}

/// The transport to a server.
#[derive(Clone)]
pub enum ServerTransport {
    /// A process that communicates over its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Additional environment variables, possibly secret.
        env: Vec<(String, String)>,
    },
    /// A URL. The caller must ensure that no secret is sent to another machine unencrypted.
    Http {
        /// The URL.
        url: String,
        /// Headers for each request, possibly secret.
        headers: Vec<(String, String)>,
        /// The options of connections. The time limit for an answer is that of the server.
        options: HttpOptions,
        /// Client credentials for access tokens; `None` without sign-in.
        credentials: Option<Box<ClientCredentials>>,
    },
}

/// Client credentials for access tokens, with which a program signs in without a user.
#[derive(Clone)]
pub struct ClientCredentials {
    /// The ID of the client.
    pub client_id: String,
    /// The source of the secret.
    pub secret: Arc<SecretSource>,
    /// The scopes to request; if empty, those that the server names.
    pub scopes: Vec<String>,
    /// The authorization server; `None` for the one that the server names.
    pub issuer: Option<String>,
    /// The token endpoint; `None` for the one in the metadata of the authorization server.
    pub token_url: Option<String>,
    /// Returns the options of connections to an authorization server.
    pub options: Arc<dyn Fn(&Endpoint) -> HttpOptions + Send + Sync>,
}

/// Returns a secret, or a description of the problem with its source. Should return soon when cancelled.
pub type SecretSource = dyn Fn(&CancellationToken) -> Result<Secret, String> + Send + Sync;

/// Selects tools of a server; `*` in a pattern matches any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Patterns of enabled tools; `None` for all.
    pub enabled: Option<Vec<String>>,
    /// Patterns of disabled tools, which take precedence.
    pub disabled: Vec<String>,
}

/// Whether a run requires a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Necessity {
    /// If the server fails, the run continues without its tools.
    #[default]
    Optional,
    /// If the server fails, the run does not begin.
    Required,
}

/// The environment of servers.
#[derive(Clone)]
pub struct ServerSetup {
    /// Runs server processes, confined by its policy.
    pub supervisor: Supervisor,
    /// The working directory of server processes.
    pub folder: PathBuf,
    /// The limits of servers' output.
    pub limits: ServerLimits,
    /// Whether there is a user who can answer questions of servers.
    pub has_user: bool,
    /// The time limit for a server that may not know the newest mode to answer, before the older one is tried.
    pub probe_timeout: Duration,
    /// The minimum time between two restarts of a server.
    pub restart_interval: Duration,
    /// The time limit for a server to end after its input is closed, and again after it is terminated.
    pub shutdown_timeout: Duration,
    /// The same time limit during a fast shutdown of the program.
    pub fast_shutdown_timeout: Duration,
}

/// Limits of a server's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// The maximum size of a message, in bytes.
    pub message_bytes: usize,
    /// The maximum number of consecutive lines that are not messages.
    pub invalid_lines: usize,
    /// The maximum size of a result as shown to the model, in bytes.
    pub result_bytes: usize,
    /// The limits for tools that are part of every model request.
    pub tools: ToolLimits,
    /// The limits for tools that requests may leave out.
    pub deferrable_tools: ToolLimits,
    /// The maximum number of pages of the tool list.
    pub pages: usize,
    /// The maximum size of a tool's description, in bytes.
    pub description_bytes: usize,
    /// The maximum size of the schema of a tool's arguments, in bytes.
    pub schema_bytes: usize,
    /// The maximum size of the usage instructions, in bytes.
    pub instruction_bytes: usize,
}

/// Limits of the list of a server's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// The maximum number of tools.
    pub count: usize,
    /// The maximum size of all names, descriptions and schemas together, in bytes.
    pub bytes: usize,
}

impl ServerSetup {
    /// Returns a setup with this supervisor and its workspace.
    pub fn new(supervisor: Supervisor) -> Self {
        Self {
            folder: supervisor.policy().workspace.clone(),
            supervisor,
            limits: ServerLimits::default(),
            has_user: false,
            probe_timeout: Duration::from_secs(10),
            restart_interval: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(2),
            fast_shutdown_timeout: Duration::from_millis(200),
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            invalid_lines: 1_000,
            result_bytes: 1 << 20,
            tools: ToolLimits { count: 256, bytes: 256 << 10 },
            deferrable_tools: ToolLimits { count: 4_096, bytes: 4 << 20 },
            pages: 100,
            description_bytes: 4 << 10,
            schema_bytes: 64 << 10,
            instruction_bytes: 4 << 10,
        }
    }
}

impl ToolFilter {
    pub(super) fn allows(&self, tool: &str) -> bool {
        let fits =
            |patterns: &[String]| patterns.iter().any(|pattern| matches_wildcard(pattern, tool));
        self.enabled.as_deref().is_none_or(fits) && !fits(&self.disabled)
    }
}

impl ServerTransport {
    /// Returns the secrets to mask in quotes from the server, except short ones, which would mask ordinary text.
    pub(super) fn secrets(&self) -> Vec<String> {
        let (Self::Stdio { env: pairs, .. } | Self::Http { headers: pairs, .. }) = self;
        // A prefix such as `Bearer` names the type of a key, and is not secret.
        let values = pairs.iter().map(|(_, value)| value.trim_start_matches("Bearer ").to_owned());
        values.filter(|value| value.len() >= 8).collect()
    }
}

/// Hides the values of variables and headers.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, .. } => write!(f, "Stdio {{ {command:?}, {args:?}, .. }}"),
            Self::Http { url, .. } => write!(f, "Http {{ {url:?}, .. }}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_selects_enabled_tools_that_are_not_disabled() {
        let list = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect();
        let filter =
            ToolFilter { enabled: Some(list(&["get_*", "put"])), disabled: list(&["*_all"]) };
        let all = ["get_one", "get_all", "put", "delete"];
        assert_eq!(all.map(|tool| filter.allows(tool)), [true, false, true, false]);
        assert!(ToolFilter::default().allows("anything"));
    }
}
