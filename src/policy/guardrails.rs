//! Limits that no rule can lift.

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use thiserror::Error;

use super::file_patterns::FilePatterns;
use super::off_limits::OffLimits;
use super::repositories::Repositories;

/// Limits that no rule can lift.
#[derive(Clone, Debug, Default)]
pub struct Guardrails {
    /// Files that are never changed.
    pub protected: FilePatterns,
    /// Files that are neither read nor changed.
    pub sensitive: FilePatterns,
    /// What the confinement keeps commands from, for the tools that are not confined.
    pub off_limits: OffLimits,
    /// The repositories in which commands run.
    pub repositories: Repositories,
    /// Commands that never run.
    pub blocked: BlockedCommands,
    /// Commands that need no confirmation, by how they begin: `git status` is also `git status -s`.
    pub safe: Vec<String>,
    /// Which commands run at all.
    pub commands: CommandScope,
    /// How much a run may do.
    pub limits: GuardrailLimits,
}

/// Which commands run at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandScope {
    /// All of them, as far as rules and the mode go.
    #[default]
    All,
    /// Those that are safe, and those that a rule allows.
    AllowedOnly,
}

/// How much a run may do; none for as much as it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardrailLimits {
    /// Files that its tools may change. What a command changes is not counted: to know it, the whole workspace would have
    /// to be looked at before and after each. How many commands there are is limited instead.
    pub files: Option<u64>,
    /// Lines that its tools may add and remove.
    pub lines: Option<u64>,
    /// Commands that it may start.
    pub commands: Option<u64>,
}

/// Regular expressions for commands that never run. One that fits a whole line, or a part of it, is enough.
#[derive(Clone, Debug, Default)]
pub struct BlockedCommands(Vec<(String, RegexMatcher)>);

/// Why a guardrail cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GuardrailError {
    /// A file pattern is invalid.
    #[error("a pattern for files cannot be used: {0}")]
    Pattern(String),
    /// A regular expression is invalid.
    #[error("'{0}' is no regular expression: {1}")]
    Expression(String, String),
}

impl BlockedCommands {
    /// Reads regular expressions.
    ///
    /// # Errors
    ///
    /// Fails at the first invalid text.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, GuardrailError> {
        let read = |text: &T| {
            let text = text.as_ref().to_owned();
            let matcher = RegexMatcher::new(&text);
            match matcher {
                Ok(matcher) => Ok((text, matcher)),
                Err(error) => Err(GuardrailError::Expression(text, error.to_string())),
            }
        };
        texts.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the expression that fits a command; none when none does.
    pub fn find(&self, command: &str) -> Option<&str> {
        let fits = |(_, matcher): &&(String, RegexMatcher)| {
            matcher.is_match(command.as_bytes()).unwrap_or(true)
        };
        self.0.iter().find(fits).map(|(text, _)| text.as_str())
    }
}
