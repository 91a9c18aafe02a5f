//! Which servers there are, and what they are started with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::exec::Supervisor;
use crate::model::matches_wildcard;
use crate::net::HttpOptions;

/// A server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Its name; part of the names of its tools.
    pub name: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// How long its start may take, and each call.
    pub timeout: Duration,
    /// Which of its tools are used.
    pub tools: ToolFilter,
    /// Whether a run can do without it.
    pub necessity: Necessity,
}

/// How a server is reached.
#[derive(Clone)]
pub enum ServerTransport {
    /// A process, by its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables for it, which may be secret.
        env: Vec<(String, String)>,
    },
    /// An address. That nothing secret goes to another machine unencrypted is for the caller to see to.
    Http {
        /// The address.
        url: String,
        /// Headers for each request, which may be secret.
        headers: Vec<(String, String)>,
        /// The way there. How long an answer may take is said by the server's own limit.
        options: HttpOptions,
    },
}

/// Which tools of a server are used; `*` in a pattern stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Those of which one pattern fits; none for all.
    pub enabled: Option<Vec<String>>,
    /// But not those.
    pub disabled: Vec<String>,
}

/// Whether a run can do without a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Necessity {
    /// It goes on without its tools.
    #[default]
    Optional,
    /// It does not begin.
    Required,
}

/// What servers are started with.
#[derive(Clone)]
pub struct ServerSetup {
    /// Runs those that are processes; its policy confines them.
    pub supervisor: Supervisor,
    /// The folder that they run in.
    pub folder: PathBuf,
    /// How much a server may say.
    pub limits: ServerLimits,
    /// How long a server is waited for that may not know the newest era, before the older one is tried.
    pub probe_timeout: Duration,
    /// How much time lies between two restarts of a server.
    pub restart_interval: Duration,
    /// How long a server may take to end, once nobody needs it, before it is told to; and once more before it is killed.
    pub shutdown_timeout: Duration,
    /// The same for somebody who wants the program to end.
    pub fast_shutdown_timeout: Duration,
}

/// How much a server may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Lines in a row that are no messages.
    pub invalid_lines: usize,
    /// Bytes of a result, as the model is told.
    pub result_bytes: usize,
    /// Tools of a server.
    pub tools: usize,
    /// Bytes of all that a server's tools say of themselves; it goes into every request to a model.
    pub list_bytes: usize,
    /// Pages of the list of tools.
    pub pages: usize,
    /// Bytes of a tool's description.
    pub description_bytes: usize,
    /// Bytes of the schema of a tool's arguments.
    pub schema_bytes: usize,
    /// Bytes of what it says of its use.
    pub instruction_bytes: usize,
}

impl ServerSetup {
    /// Returns a setup in which servers run under this supervisor, in its workspace.
    pub fn new(supervisor: Supervisor) -> Self {
        Self {
            folder: supervisor.policy().workspace.clone(),
            supervisor,
            limits: ServerLimits::default(),
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
            tools: 256,
            list_bytes: 256 << 10,
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
    /// Returns what must not be shown where the server is quoted. What is short would hide half of every text.
    pub(super) fn secrets(&self) -> Vec<String> {
        let (Self::Stdio { env: pairs, .. } | Self::Http { headers: pairs, .. }) = self;
        // The word before a key says what kind of key it is.
        let values = pairs.iter().map(|(_, value)| value.trim_start_matches("Bearer ").to_owned());
        values.filter(|value| value.len() >= 8).collect()
    }
}

/// Values of variables and headers are not shown.
impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, .. } => {
                let mut shown = f.debug_struct("Stdio");
                shown.field("command", command).field("args", args).finish_non_exhaustive()
            }
            Self::Http { url, .. } => {
                f.debug_struct("Http").field("url", url).finish_non_exhaustive()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_what_is_enabled_and_not_disabled() {
        let list = |patterns: &[&str]| patterns.iter().map(|text| (*text).to_owned()).collect();
        let filter =
            ToolFilter { enabled: Some(list(&["get_*", "put"])), disabled: list(&["*_all"]) };
        let all = ["get_one", "get_all", "put", "delete"];
        assert_eq!(all.map(|tool| filter.allows(tool)), [true, false, true, false]);
        assert!(ToolFilter::default().allows("anything"));
    }
}
