//! What can be wrong with a configuration.

use std::fmt;

use thiserror::Error;

use super::checked_file::ConfigFileError;
use super::origin::{SourceExcerpt, ValueOrigin};
use crate::model::did_you_mean;

/// All that is wrong with a configuration. Nothing of it is used then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// What is wrong; at least one thing.
    pub problems: Vec<ConfigProblem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where.
    pub origin: ValueOrigin,
    /// What.
    pub kind: ProblemKind,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A file could not be read.
    #[error("{0}")]
    Unreadable(ConfigFileError),
    /// A file does not follow the syntax of its format.
    #[error("{0}")]
    Syntax(String),
    /// Nobody knows such a key.
    #[error("unknown key `{key}`{}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The key.
        key: String,
        /// The known one that is most like it.
        nearest: Option<String>,
    },
    /// The value is none that the key can have.
    #[error("`{key}` must be {expected}, found {found}")]
    Invalid {
        /// The key.
        key: String,
        /// What it can be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A key is needed here and is not there.
    #[error("`{key}` is missing")]
    Missing {
        /// The key.
        key: String,
    },
    /// Two things have the same name.
    #[error("`{key}` has two entries with the name `{name}`")]
    Duplicate {
        /// The list.
        key: String,
        /// The name.
        name: String,
    },
    /// Nobody knows a thing of this name.
    #[error("there is no {kind} `{name}`{}", did_you_mean(nearest.as_deref()))]
    Unknown {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The known one that is most like it.
        nearest: Option<String>,
        /// All names of that kind, where they are few enough to be listed.
        known: Box<[String]>,
    },
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// Something that the user should know, although nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNotice {
    /// Where.
    pub origin: ValueOrigin,
    /// What was left out, and why.
    pub message: String,
    /// Why the user is told.
    pub cause: NoticeCause,
}

/// Why the user is told something although nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeCause {
    /// Part of the project's configuration is ignored until its folder is trusted.
    Untrusted,
    /// Any other cause.
    Other,
}

impl ConfigProblem {
    pub(super) fn new(origin: ValueOrigin, trouble: ProblemKind) -> Self {
        Self { origin, kind: trouble }
    }

    /// Returns the line of the file, to be shown below the message.
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
            // The file has no place in itself where it could not be read.
            ProblemKind::Unreadable(unreadable) => write!(f, "{unreadable}"),
            trouble => write!(f, "{}{trouble}", OriginPrefix(&self.origin)),
        }
    }
}

impl fmt::Display for ConfigNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", OriginPrefix(&self.origin), self.message)
    }
}

/// Where something stands, as a beginning of what is said about it; nothing when it stands nowhere.
struct OriginPrefix<'a>(&'a ValueOrigin);

impl fmt::Display for OriginPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.0 == ValueOrigin::DEFAULT { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl From<Vec<ConfigProblem>> for ConfigError {
    fn from(problems: Vec<ConfigProblem>) -> Self {
        Self { problems }
    }
}
