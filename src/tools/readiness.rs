//! When a command in the background is ready.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use super::line_log::LineLog;
use crate::workspace::{RelPath, WorkspaceRoot};

/// What has to hold for a command to be ready.
pub(super) enum ReadinessCondition {
    /// A line of its output matches an expression.
    Pattern {
        /// The expression.
        expression: RegexMatcher,
        /// The expression as it was given.
        text: String,
        /// The next line to look at.
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
        /// The state of the file before.
        before: Option<(u64, u64, i64)>,
    },
}

/// How the wait for a command ended.
pub(super) enum ReadinessOutcome {
    /// It is ready, for this reason.
    Ready(String),
    /// It has no condition.
    Started,
    /// It is not ready, for this reason.
    NotReady(String),
    /// The wait was cancelled.
    Interrupted,
}

/// How long a connection to the port may take.
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

    /// Begins to watch, before the command starts.
    ///
    /// # Errors
    ///
    /// Fails with a message if the condition holds already.
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

    /// Returns why the command is ready; `None` if it is not yet.
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

    /// Returns what is missing.
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
