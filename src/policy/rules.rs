//! The user's rules: `tool(pattern)`, to deny, ask or allow.
//!
//! * `read_file` is about every call of a tool; `mcp_*` and `edit_file|write_file` about those of several.
//! * `write_file(src/**)` is about paths below the workspace: `*` stands for anything but `/`, `**` for anything. In a
//!   denial and a question, a name without `/` is meant in every folder.
//! * `run_command(git *)` is about a part of a command line: program and arguments with one space between them, `*`
//!   standing for anything, and a ` *` at the end also for nothing.

use globset::{GlobBuilder, GlobMatcher};
use thiserror::Error;

use super::shell::ShellWord;
use super::target::COMMAND_TOOL;
use crate::model::{matches_pattern, matches_wildcard};

/// The rules of the user. A denial goes before a question, and a question before a permission.
#[derive(Clone, Debug, Default)]
pub struct PermissionRules {
    pub(super) deny: Vec<PermissionRule>,
    pub(super) ask: Vec<PermissionRule>,
    pub(super) allow: Vec<PermissionRule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct PermissionRule {
    text: String,
    tool: String,
    scope: RuleScope,
}

/// Which calls of its tool a rule is about.
#[derive(Clone, Debug)]
enum RuleScope {
    All,
    Some { pattern: String, path: Option<GlobMatcher> },
}

/// The reason why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The tool is missing, or the parentheses don't match.
    #[error("invalid rule '{0}': expected tool or tool(pattern), like run_command(git *)")]
    Syntax(String),
    /// The tool name is invalid.
    #[error("rule '{rule}': '{tool}' is not a tool name; * and | are allowed")]
    Tool {
        /// The rule.
        rule: String,
        /// The invalid name.
        tool: String,
    },
    /// The pattern cannot be used for paths.
    #[error("rule '{rule}': {error}")]
    Path {
        /// The rule.
        rule: String,
        /// The error in its pattern.
        error: String,
    },
    /// A pattern for a tool of a server, whose arguments are unknown.
    #[error("rule '{0}': a rule for the tools of a server takes no pattern")]
    External(String),
}

impl PermissionRules {
    /// Reads rules.
    ///
    /// # Errors
    ///
    /// Fails at the first invalid rule.
    pub fn parse<T: AsRef<str>>(deny: &[T], ask: &[T], allow: &[T]) -> Result<Self, RuleError> {
        let read = |texts: &[T]| -> Result<Vec<PermissionRule>, RuleError> {
            texts.iter().map(|text| PermissionRule::parse(text.as_ref())).collect()
        };
        Ok(Self { deny: read(deny)?, ask: read(ask)?, allow: read(allow)? })
    }
}

impl PermissionRule {
    /// Reads a rule.
    ///
    /// # Errors
    ///
    /// Fails if the text is invalid.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let pattern = rest.strip_suffix(')').map(str::trim);
                let pattern = pattern.filter(|pattern| !pattern.is_empty());
                (tool, Some(pattern.ok_or_else(|| RuleError::Syntax(text.to_owned()))?))
            }
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-*|".contains(c);
        if tool.is_empty() || text.ends_with(')') != pattern.is_some() {
            return Err(RuleError::Syntax(text.to_owned()));
        }
        if !tool.chars().all(is_name) {
            return Err(RuleError::Tool { rule: text.to_owned(), tool: tool.to_owned() });
        }
        let about = match pattern {
            None | Some("*" | "**") => RuleScope::All,
            Some(_) if tool.starts_with("mcp_") => {
                return Err(RuleError::External(text.to_owned()));
            }
            Some(pattern) => {
                let glob = GlobBuilder::new(pattern.trim_start_matches("./"));
                let path = glob.clone().literal_separator(true).build();
                let path = match path {
                    Ok(path) => Some(path.compile_matcher()),
                    Err(_) if tool == COMMAND_TOOL => None,
                    Err(error) => {
                        let error = error.to_string();
                        return Err(RuleError::Path { rule: text.to_owned(), error });
                    }
                };
                RuleScope::Some { pattern: pattern.to_owned(), path }
            }
        };
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), scope: about })
    }

    /// Returns the rule as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the reason of a decision by a rule that allows.
    pub(super) fn allow_reason(&self) -> String {
        format!("rule {} of permissions.allow", self.text)
    }

    /// Returns whether the rule is about a tool at all.
    pub(super) fn applies_to(&self, tool: &str) -> bool {
        matches_wildcard(&self.tool, tool)
    }

    /// Returns whether the rule is about every call of a tool.
    pub(super) fn applies_to_all(&self, tool: &str) -> bool {
        self.applies_to(tool) && matches!(self.scope, RuleScope::All)
    }

    /// Returns whether the rule is about a path, as a permission means it.
    pub(super) fn matches_path(&self, tool: &str, path: &str) -> bool {
        self.applies_to(tool)
            && match &self.scope {
                RuleScope::All => true,
                RuleScope::Some { path: glob, .. } => {
                    glob.as_ref().is_some_and(|glob| glob.is_match(path))
                }
            }
    }

    /// Returns whether the rule is about a path, as a denial or a question means it: a name means every file of that
    /// name, and a folder everything in it.
    pub(super) fn may_match_path(&self, tool: &str, path: &str) -> bool {
        if self.matches_path(tool, path) {
            return true;
        }
        let RuleScope::Some { pattern, .. } = &self.scope else { return false };
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_inside =
            || path.match_indices('/').any(|(at, _)| self.matches_path(tool, &path[..at]));
        self.applies_to(tool)
            && (is_inside() || (!pattern.contains('/') && self.matches_path(tool, name)))
    }

    /// Returns whether the rule is about a folder that is searched: about itself, or about everything in it.
    pub(super) fn may_match_folder(&self, tool: &str, folder: &str) -> bool {
        let below =
            if folder.is_empty() || folder == "." { "x".into() } else { format!("{folder}/x") };
        self.may_match_path(tool, folder)
            || (!matches!(self.scope, RuleScope::All) && self.matches_path(tool, &below))
    }

    /// Returns whether the rule is about a command, as a permission means it.
    pub(super) fn matches_command(&self, text: &str) -> bool {
        self.applies_to(COMMAND_TOOL)
            && match &self.scope {
                RuleScope::All => true,
                RuleScope::Some { pattern, .. } => command_matches(pattern, text),
            }
    }

    /// Returns whether the rule may turn out to be about a command of which a part is only known when it runs.
    pub(super) fn may_match_command(&self, words: &[ShellWord]) -> bool {
        let RuleScope::Some { pattern, .. } = &self.scope else { return false };
        let pattern: Vec<&str> = pattern.split_whitespace().collect();
        let [program, rest @ ..] = words else { return false };
        let is_program = |text: &str| matches_pattern(pattern[0], text);
        let name = program.text.rsplit('/').next().unwrap_or_default();
        if !self.applies_to(COMMAND_TOOL) || !(is_program(name) || is_program(&program.text)) {
            return false;
        }
        // Some options have a value, as those of git that stand before its commands.
        let is_git = name == "git";
        let valued = |text: &str| {
            is_git && matches!(text, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace")
        };
        let mut rest = rest;
        loop {
            if may_match(&pattern[1..], rest) {
                return true;
            }
            rest = match rest {
                [word, value, more @ ..] if valued(&word.text) && !value.is_split => more,
                [word, more @ ..] if word.text.starts_with('-') => more,
                _ => return false,
            };
        }
    }

    /// Returns whether the rule is about some paths for one of these tools.
    pub(super) fn has_path_pattern(&self, tools: &[&str]) -> bool {
        matches!(&self.scope, RuleScope::Some { path: Some(_), .. })
            && tools.iter().any(|tool| self.applies_to(tool))
    }

    /// Returns the one path that the rule names; `None` if it names several.
    pub(super) fn only_path(&self) -> Option<&str> {
        let RuleScope::Some { pattern, .. } = &self.scope else { return None };
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let is_plain = !pattern.contains(['*', '?', '[', '{', '\\']) && !pattern.starts_with('/');
        (is_plain && !pattern.split('/').any(|part| part == "..")).then_some(pattern)
    }

    /// Returns whether the rule names a command line as a whole.
    pub(super) fn is_whole_line(&self, line: &str) -> bool {
        let RuleScope::Some { pattern, .. } = &self.scope else {
            return self.applies_to(COMMAND_TOOL);
        };
        self.applies_to(COMMAND_TOOL) && pattern == line.trim()
    }

    /// Returns whether the rule is about some commands and not about others.
    pub(super) fn has_command_pattern(&self) -> bool {
        self.applies_to(COMMAND_TOOL) && matches!(self.scope, RuleScope::Some { .. })
    }
}

fn command_matches(pattern: &str, text: &str) -> bool {
    let alone = pattern.strip_suffix(" *").is_some_and(|program| matches_pattern(program, text));
    alone || matches_pattern(pattern, text)
}

/// Returns whether words may become what a pattern fits, though they don't seem to.
fn may_match(pattern: &[&str], words: &[ShellWord]) -> bool {
    let mut is_guessed = false;
    let mut words = words.iter();
    for part in pattern {
        let Some(word) = words.next() else { return is_guessed && *part == "*" };
        match word.is_literal() {
            true if matches_pattern(part, &word.text) => {}
            true => return false,
            false if word.is_split => return true,
            false => is_guessed |= *part != "*",
        }
    }
    is_guessed
}

/// Returns a command as rules see it. What would make one word of it look like several is quoted.
pub(super) fn normalize(words: &[ShellWord]) -> String {
    let word = |word: &ShellWord| {
        let is_plain = !word.text.is_empty()
            && !word.text.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\'));
        if is_plain { word.text.clone() } else { format!("'{}'", word.text.replace('\'', "'\\''")) }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the words of a command with a space between them.
pub(super) fn plain_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// Returns the ways in which a command may be meant by a denial: as it is, without quotes, without the folder of its
/// program, without the options before its first argument.
pub(super) fn spellings(words: &[ShellWord]) -> Vec<String> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let [program, rest @ ..] = texts.as_slice() else { return Vec::new() };
    let name = program.rsplit('/').next().unwrap_or(program);
    let named = |rest: &[&str]| [&[name], rest].concat().join(" ");
    let mut all = vec![normalize(words), plain_text(words), named(rest)];
    for skipped in 1..=rest.len() {
        // An option may have a value.
        let is_option = |at: usize| rest.get(at).is_some_and(|text| text.starts_with('-'));
        if !(is_option(skipped - 1) || skipped > 1 && is_option(skipped - 2)) {
            break;
        }
        all.push(named(&rest[skipped..]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> PermissionRule {
        PermissionRule::parse(text).unwrap()
    }

    #[test]
    fn invalid_rules_are_explained() {
        let why = |text: &str| PermissionRule::parse(text).unwrap_err().to_string();
        let form = "expected tool or tool(pattern), like run_command(git *)";
        for text in ["", "(x)", "a(", "a()", "a)", "a(b)c"] {
            assert_eq!(why(text), format!("invalid rule '{text}': {form}"));
        }
        assert_eq!(
            why("read file(x)"),
            "rule 'read file(x)': 'read file' is not a tool name; * and | are allowed"
        );
        assert!(why("read_file([)").starts_with("rule 'read_file([)': error parsing glob"));
        assert!(why("mcp_a_b(x)").ends_with("takes no pattern"));
    }

    #[test]
    fn a_path_is_relative_to_the_workspace() {
        let src = rule("write_file(src/**)");
        assert!(src.matches_path("write_file", "src/a/b.rs"));
        assert!(
            !src.matches_path("edit_file", "src/a/b.rs")
                && !src.matches_path("write_file", "a/src/b")
        );
        assert!(rule("write_file|edit_file(*.rs)").matches_path("edit_file", "a.rs"));
        assert!(!rule("*_file(*.rs)").matches_path("edit_file", "d/a.rs"));
    }

    #[test]
    fn a_denial_matches_names_in_every_folder_and_contents_of_folders() {
        let env = rule("read_file(.env)");
        assert!(
            env.may_match_path("read_file", "d/.env") && !env.matches_path("read_file", "d/.env")
        );
        assert!(rule("read_file(d)").may_match_path("read_file", "d/e/f"));
        assert!(rule("grep(d/**)").may_match_folder("grep", "d"));
        assert!(!rule("grep(d/**)").may_match_folder("grep", "."));
        assert!(rule("grep(**)").may_match_folder("grep", "."));
    }

    #[test]
    fn a_command_is_matched_with_its_arguments() {
        let git = rule("run_command(git *)");
        assert!(git.matches_command("git") && git.matches_command("git push origin"));
        assert!(!git.matches_command("gitk") && !git.matches_command("x git y"));
        assert!(rule("run_command(npm run test:*)").matches_command("npm run test:unit"));
        assert!(rule("run_command").matches_command("anything"));
        assert!(rule("run_command(a; b)").is_whole_line("a; b"));
        assert!(!rule("run_command(a*)").is_whole_line("a; b"));
    }

    #[test]
    fn a_denial_is_not_escaped_by_spelling() {
        let words = |text: &str| text.split(' ').map(ShellWord::literal).collect::<Vec<_>>();
        let push = rule("run_command(git push *)");
        for text in
            ["git push", "/usr/bin/git push x", "git -C d push", "git --no-pager -c a=b push x"]
        {
            assert!(
                spellings(&words(text)).iter().any(|text| push.matches_command(text)),
                "{text}"
            );
        }
        assert!(!spellings(&words("git log push")).iter().any(|text| push.matches_command(text)));
        assert_eq!(
            normalize(&[
                ShellWord::literal("a"),
                ShellWord::literal("b c"),
                ShellWord::literal("")
            ]),
            "a 'b c' ''"
        );
    }
}
