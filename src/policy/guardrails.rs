//! Limits that no rule overrides.

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

use super::file_patterns::FilePatterns;
use super::repositories::Repositories;
use super::rules::RuleError;
use super::unwritable_paths::UnwritablePaths;

/// Limits that no rule overrides.
#[derive(Clone, Debug, Default)]
pub struct Guardrails {
    /// Files that are never changed.
    pub protected: FilePatterns,
    /// Files that are neither read nor changed.
    pub sensitive: FilePatterns,
    /// The paths that the sandbox protects from commands; for tools that run outside it.
    pub unwritable: UnwritablePaths,
    /// The repositories in which commands run.
    pub repositories: Repositories,
    /// Commands that never run.
    pub blocked: BlockedCommands,
    /// The beginnings of commands that need no confirmation: `git status` includes `git status -s`.
    pub safe: Vec<String>,
    /// The commands that may run.
    pub commands: CommandScope,
    /// The limits of a run.
    pub limits: GuardrailLimits,
}

/// The commands that may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandScope {
    /// All commands, subject to rules and the mode.
    #[default]
    All,
    /// Only safe commands, and commands that a rule allows.
    AllowedOnly,
}

/// The limits of a run: `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardrailLimits {
    /// The maximum number of files that tools may change. Changes by commands are not counted, since that would require
    /// a scan of the whole workspace before and after each command; instead, the number of commands is limited.
    pub files: Option<u64>,
    /// The maximum number of lines that tools may add and remove.
    pub lines: Option<u64>,
    /// The maximum number of commands.
    pub commands: Option<u64>,
}

/// Regular expressions for commands that never run. They match a whole line, or a part of it.
#[derive(Clone, Debug, Default)]
pub struct BlockedCommands(Vec<(String, RegexMatcher)>);

impl BlockedCommands {
    /// Compiles regular expressions.
    ///
    /// # Errors
    ///
    /// Fails at the first invalid expression.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, RuleError> {
        let read = |text: &T| {
            let text = text.as_ref().to_owned();
            let invalid =
                |error| RuleError(format!("invalid regular expression '{text}': {error}"));
            let matcher = RegexMatcher::new(&text).map_err(invalid)?;
            Ok((text, matcher))
        };
        texts.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first expression that matches a command.
    pub fn find(&self, command: &str) -> Option<&str> {
        let fits = |(_, matcher): &&(String, RegexMatcher)| {
            matcher.is_match(command.as_bytes()).unwrap_or(true)
        };
        self.0.iter().find(fits).map(|(text, _)| text.as_str())
    }
}
