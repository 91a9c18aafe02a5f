//! Why a command could not be carried out: what is wrong, and what to do about it.

use std::io;

use super::{USAGE, output};

/// A command that could not be carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hints: Vec<String>,
}

/// Who can do something about it; it decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The user: arguments, configuration, files.
    Usage,
    /// Nobody reads standard output.
    Pipe,
    /// The system, or a defect.
    Failed,
}

impl Failure {
    /// Returns a failure that the user can mend.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into(), hints: Vec::new() }
    }

    /// Returns a failure of the system, or a defect.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into(), hints: Vec::new() }
    }

    /// Returns the failure of a write to standard output.
    pub(crate) fn from_stdout(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Self { kind: Kind::Pipe, message: String::new(), hints: Vec::new() }
            }
            _ => Self::failed(format!("could not write to standard output: {error}")),
        }
    }

    /// Adds what the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::Usage => USAGE,
            Kind::Pipe => 141,
            Kind::Failed => 1,
        }
    }

    /// Writes the failure to standard error.
    pub(crate) fn print(&self) {
        if self.kind == Kind::Pipe {
            return;
        }
        let mut text = format!("error: {}\n", self.message);
        for hint in &self.hints {
            text.push_str(&format!("  hint: {hint}\n"));
        }
        output::complain(&text);
    }
}
