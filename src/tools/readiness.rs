//! The readiness of commands in the background.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use super::line_log::LineLog;
use crate::workspace::{RelPath, WorkspaceRoot};

/// The condition under which a command is ready.
pub(super) enum ReadinessCondition {
    /// A line of the output matches an expression.
    Pattern {
        /// The compiled expression.
        expression: RegexMatcher,
        /// The text of the expression.
        text: String,
        /// The next line to search.
        next: u64,
    },
    /// A TCP port of the machine is open.
    Port(u16),
    /// A file is new or was changed.
    File {
        /// The workspace.
        root: WorkspaceRoot,
        /// The file.
        path: RelPath,
        /// The state of the file before the start.
        before: Option<(u64, u64, i64)>,
    },
}

/// The result of waiting for a command.
pub(super) enum ReadinessOutcome {
    /// The command is ready, for this reason.
    Ready(String),
    /// The command has no condition.
    Started,
    /// The command is not ready, for this reason.
    NotReady(String),
    /// The wait was cancelled.
    Interrupted,
}

/// The time limit for connecting to the port.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

impl ReadinessCondition {
    /// Returns the condition for an expression.
    ///
    /// # Errors
    ///
    /// Fails with a message if the expression is invalid.
    pub(super) fn pattern(text: &str) -> Result<Self, String> {
        let expression =
            RegexMatcher::new(text).map_err(|error| format!("ready_pattern: {error}"))?;
        Ok(Self::Pattern { expression, text: text.to_owned(), next: 1 })
    }

    /// Returns the condition for a file.
    pub(super) fn file(root: &WorkspaceRoot, path: RelPath) -> Self {
        Self::File { root: root.clone(), path, before: None }
    }

    /// Begins to watch; to be called before the command starts.
    ///
    /// # Errors
    ///
    /// Fails with a message if the condition already holds.
    pub(super) fn begin(self) -> Result<Self, String> {
        match self {
            Self::Port(port) if is_open(port) => Err(format!(
                "port {port} is open already: another program uses it; stop that one, or take another port"
            )),
            Self::File { root, path, .. } => {
                let before = root.change_stamp(&path);
                Ok(Self::File { root, path, before })
            }
            condition => Ok(condition),
        }
    }

    /// Returns the reason why the command is ready; `None` if it is not ready yet.
    pub(super) fn check(&mut self, log: &LineLog) -> Option<String> {
        match self {
            Self::Pattern { expression, text, next } => {
                let is_match = |line: &str| expression.is_match(line.as_bytes()).unwrap_or(false);
                let is_found = log.complete_lines_from(*next).any(|(_, line)| is_match(&line))
                    || log.unfinished_ends().any(|line| is_match(&line));
                *next = (*next).max(log.complete() + 1);
                is_found.then(|| format!("a line of its output matches `{text}`"))
            }
            Self::Port(port) => is_open(*port).then(|| format!("port {port} is open")),
            Self::File { root, path, before } => {
                let now = root.change_stamp(path)?;
                (*before != Some(now)).then(|| format!("{path} is there"))
            }
        }
    }

    /// Returns a description of the missing condition.
    pub(super) fn describe_missing(&self) -> String {
        match self {
            Self::Pattern { text, .. } => format!("no line of its output matches `{text}`"),
            Self::Port(port) => format!("port {port} is not open"),
            Self::File { path, before: None, .. } => format!("{path} is not there"),
            Self::File { path, before: Some(_), .. } => format!("{path} was not changed"),
        }
    }
}

fn is_open(port: u16) -> bool {
    let addresses = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    addresses.iter().any(|address| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok())
}
