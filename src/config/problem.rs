//! What can be wrong with a configuration.

use std::fmt;

use thiserror::Error;

use super::file::Unreadable;
use super::origin::{Excerpt, Origin};
use crate::model::did_you_mean;

/// All that is wrong with a configuration. Nothing of it is used then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// What is wrong; at least one thing.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub origin: Origin,
    /// What.
    pub trouble: Trouble,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Trouble {
    /// A file could not be read.
    #[error("{0}")]
    Unreadable(Unreadable),
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
pub struct Notice {
    /// Where.
    pub origin: Origin,
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

impl Problem {
    pub(super) fn new(origin: Origin, trouble: Trouble) -> Self {
        Self { origin, trouble }
    }

    /// Returns the line of the file, to be shown below the message.
    pub fn excerpt(&self) -> Option<Excerpt> {
        match self.trouble {
            Trouble::Unreadable(_) => None,
            _ => self.origin.excerpt(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trouble {
            // The file has no place in itself where it could not be read.
            Trouble::Unreadable(unreadable) => write!(f, "{unreadable}"),
            trouble => write!(f, "{}{trouble}", Place(&self.origin)),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Place(&self.origin), self.message)
    }
}

/// Where something stands, as a beginning of what is said about it; nothing when it stands nowhere.
struct Place<'a>(&'a Origin);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self.0 == Origin::DEFAULT { Ok(()) } else { write!(f, "{}: ", self.0) }
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

impl From<Vec<Problem>> for ConfigError {
    fn from(problems: Vec<Problem>) -> Self {
        Self { problems }
    }
}
