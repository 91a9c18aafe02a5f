//! Problems with a configuration.

use std::fmt;

use thiserror::Error;

use super::checked_file::ConfigFileError;
use super::origin::{SourceExcerpt, ValueOrigin};
use crate::types::{did_you_mean, nearest};

/// An invalid configuration. No part of it is used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// All problems; at least one.
    pub problems: Vec<ConfigProblem>,
}

/// A problem with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The place of the problem.
    pub origin: ValueOrigin,
    /// The kind of the problem.
    pub kind: ProblemKind,
}

/// The kinds of problems.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A file could not be read.
    #[error("{0}")]
    Unreadable(ConfigFileError),
    /// A file has a syntax error.
    #[error("{0}")]
    Syntax(String),
    /// No item of this kind has this name.
    #[error("unknown {kind} `{name}`{}", did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The kind: "agent", "key", "profile", "variable".
        kind: &'static str,
        /// Its name.
        name: String,
        /// The most similar known name.
        nearest: Option<String>,
        /// All names of that kind, unless they are too many to list.
        known: Box<[String]>,
    },
    /// Any other problem, in words.
    #[error("{0}")]
    Other(String),
}

impl ProblemKind {
    /// Returns the problem that no item of this kind has this name. `nearest` is a similar name.
    pub(super) fn unknown(kind: &'static str, name: &str, nearest: Option<String>) -> Self {
        Self::Unknown { kind, name: name.to_owned(), nearest, known: [].into() }
    }

    /// Returns the problem that a name is not among the known names.
    pub(super) fn unknown_of(kind: &'static str, name: &str, known: Box<[String]>) -> Self {
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Self::Unknown { kind, name: name.to_owned(), nearest, known }
    }

    /// Returns the problem that two entries of a list have the same name.
    pub(super) fn duplicate(list: &str, name: &str) -> Self {
        Self::Other(format!("`{list}` has two entries with the name `{name}`"))
    }
}

/// Information for the user that is not a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNotice {
    /// The place that the notice is about.
    pub origin: ValueOrigin,
    /// The message: what is ignored, and why.
    pub message: String,
    /// The cause of the notice.
    pub cause: NoticeCause,
}

/// The cause of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeCause {
    /// Part of the project's configuration is ignored until its folder is trusted.
    Untrusted,
    /// Any other cause.
    Other,
}

impl ConfigProblem {
    /// Returns the line of the file, for display below the message.
    pub fn excerpt(&self) -> Option<SourceExcerpt> {
        match self.kind {
            ProblemKind::Unreadable(_) => None,
            _ => self.origin.excerpt(),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            // An unreadable file has no position.
            ProblemKind::Unreadable(unreadable) => write!(f, "{unreadable}"),
            kind => write!(f, "{}{kind}", prefix(&self.origin)),
        }
    }
}

impl fmt::Display for ConfigNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", prefix(&self.origin), self.message)
    }
}

/// Returns the origin as the beginning of a message; empty for a default.
fn prefix(origin: &ValueOrigin) -> String {
    if *origin == ValueOrigin::DEFAULT { String::new() } else { format!("{origin}: ") }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
