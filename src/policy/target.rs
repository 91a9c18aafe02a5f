//! Calls as seen by the policy.

use std::sync::Arc;

use super::command_analysis::CommandLine;

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

/// An object of a call that a rule can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// A file that is read.
    Read(String),
    /// A folder that is listed, or searched with everything below.
    Search(String),
    /// A file that is written.
    Write(String),
    /// A command line.
    Command(CommandTarget),
    /// A name in a call that is not a file: a skill, or an agent.
    Name(String),
}

impl CallTarget {
    /// Returns whether the target is the input of a command.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Command(command) if command.is_input())
    }
}

/// A parsed command line. Clones share the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTarget {
    env: Arc<[String]>,
    line: Arc<CommandLine>,
    is_input: bool,
}

impl CommandTarget {
    /// Parses a command line with the names of variables set for it in addition to the usual ones. It runs in a folder
    /// relative to the workspace; an empty folder is the workspace itself.
    pub fn new(line: &str, folder: &str, env: Vec<String>) -> Self {
        let line = Arc::new(CommandLine::parse(line, folder));
        Self { env: env.into(), line, is_input: false }
    }

    /// Parses the text that a command reads from its standard input, as if the command were a shell.
    pub fn input(text: &str) -> Self {
        Self { is_input: true, ..Self::new(text, "", Vec::new()) }
    }

    /// Returns whether the text is the input of a command, whose meaning only that command knows.
    pub(super) fn is_input(&self) -> bool {
        self.is_input
    }

    /// Returns the original text of the command line.
    pub fn text(&self) -> &str {
        &self.line.raw
    }

    /// Returns the names of the variables that are set for the command.
    pub(super) fn env(&self) -> &[String] {
        &self.env
    }

    pub(super) fn line(&self) -> &CommandLine {
        &self.line
    }
}
