//! Calls as the policy sees them.

use std::sync::Arc;

use super::command::CommandLine;

/// The kind of effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Reads.
    Reads,
    /// Changes files of the workspace.
    Changes,
    /// Runs a command.
    Command,
    /// Calls a tool of a server, whose effects are unknown.
    External,
    /// Starts another agent, whose calls are checked separately.
    Delegates,
}

/// Something that a rule can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// A file that is read.
    Read(String),
    /// A folder that is listed, or below which is searched.
    Search(String),
    /// A file that is written.
    Write(String),
    /// A command line.
    Command(CommandTarget),
}

/// A parsed command line. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTarget {
    env: Arc<[String]>,
    line: Arc<CommandLine>,
}

impl CommandTarget {
    /// Parses a command line that runs in a folder relative to the workspace (empty for the workspace itself), with these
    /// variables besides the usual ones.
    pub fn new(line: &str, folder: &str, env: Vec<String>) -> Self {
        Self { env: env.into(), line: Arc::new(CommandLine::parse(line, folder)) }
    }

    /// Returns the command line as it was given.
    pub fn text(&self) -> &str {
        &self.line.raw
    }

    /// Returns the names of the variables.
    pub(super) fn env(&self) -> &[String] {
        &self.env
    }

    pub(super) fn line(&self) -> &CommandLine {
        &self.line
    }
}
