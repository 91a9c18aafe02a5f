//! The user's rules, `tool(pattern)`, which deny, ask or allow.
//!
//! * `read_file` matches every call of a tool; `mcp_*` and `edit_file|write_file` match those of several tools.
//! * `write_file(src/**)` matches paths below the workspace: `*` stands for any text without `/`, `**` for any text. In
//!   rules that deny or ask, a name without `/` matches in every folder.
//! * `read_skill(pdf-*)` matches the name in a call; `*` stands for any text.
//! * `run_command(git *)` matches a part of a command line: program and arguments separated by single spaces. `*`
//!   stands for any text, and ` *` at the end also for none.

use globset::{GlobBuilder, GlobMatcher};
use thiserror::Error;

use super::shell::ShellWord;
use crate::types::{matches_pattern, matches_wildcard};

/// Characters that separate the parts of a command line, or redirect them.
pub(super) const OPERATORS: [char; 5] = [';', '&', '|', '<', '>'];

/// The rules of the user. Denials take precedence over questions, and questions over permissions.
#[derive(Clone, Debug, Default)]
pub struct PermissionRules {
    pub(super) deny: Vec<PermissionRule>,
    pub(super) ask: Vec<PermissionRule>,
    pub(super) allow: Vec<PermissionRule>,
}

/// The names of the tools whose rules apply to more than their own calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTools {
    /// The tools that run commands. Their rules match the parts of command lines.
    pub command: Vec<&'static str>,
    /// The tools that read a file. Their rules also match the files that commands and searches read.
    pub read: Vec<&'static str>,
    /// The tools that write files. Their denials also apply to commands, and rules for the first tool match
    /// redirections.
    pub write: Vec<&'static str>,
}

/// The scope of a rule for one of the [`RuleTools`] beyond the calls of that tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// The parts of command lines.
    Commands,
    /// The files that commands and searches read.
    Reads,
    /// The files that commands write.
    Writes,
    /// The files that command lines redirect to.
    Redirections,
}

/// A permission rule.
#[derive(Clone, Debug)]
pub struct PermissionRule {
    text: String,
    tool: String,
    /// The scopes of the rule beyond the calls of its tool.
    scopes: Vec<RuleScope>,
    /// The pattern for calls of the tool; `None` for all calls.
    pattern: Option<String>,
    /// The compiled pattern, if it is a pattern for paths.
    path: Option<GlobMatcher>,
}

/// The reason why a rule, a file pattern or a regular expression is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RuleError(pub(super) String);

impl PermissionRules {
    /// Parses rules.
    ///
    /// # Errors
    ///
    /// Fails at the first invalid rule.
    pub fn parse<T: AsRef<str>>(
        tools: &RuleTools,
        deny: &[T],
        ask: &[T],
        allow: &[T],
    ) -> Result<Self, RuleError> {
        let read = |texts: &[T]| -> Result<Vec<PermissionRule>, RuleError> {
            texts.iter().map(|text| PermissionRule::parse(tools, text.as_ref())).collect()
        };
        Ok(Self { deny: read(deny)?, ask: read(ask)?, allow: read(allow)? })
    }
}

impl PermissionRule {
    /// Parses a rule.
    ///
    /// # Errors
    ///
    /// Fails if the text is invalid.
    pub fn parse(tools: &RuleTools, text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let invalid = |why: &str| Err(RuleError(format!("rule '{text}': {why}")));
        let (tool, pattern) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((tool, pattern)) => (tool, Some(pattern.trim())),
            None => (text, None),
        };
        if tool.is_empty() || tool.contains(['(', ')']) || pattern == Some("") {
            return Err(RuleError(format!(
                "invalid rule '{text}': expected tool or tool(pattern), like run_command(git *)"
            )));
        }
        if !tool.chars().all(|c| c.is_ascii_alphanumeric() || "_-*|".contains(c)) {
            return invalid(&format!(
                "'{tool}' is not a tool name; a rule is tool or tool(pattern), like run_command(git *)"
            ));
        }
        let pattern = pattern.filter(|pattern| !matches!(*pattern, "*" | "**"));
        if pattern.is_some() && tool.starts_with("mcp_") {
            return invalid("a rule for the tools of a server takes no pattern");
        }
        let glob = |pattern: &str| {
            let mut glob = GlobBuilder::new(pattern.trim_start_matches("./"));
            glob.literal_separator(true).build()
        };
        let path = match pattern.map(glob).transpose() {
            Ok(path) => path.map(|path| path.compile_matcher()),
            Err(_) if tools.command.contains(&tool) => None,
            Err(error) => return invalid(&error.to_string()),
        };
        let is_about = |names: &[&str]| names.iter().any(|name| matches_wildcard(tool, name));
        let scopes = [
            (RuleScope::Commands, tools.command.as_slice()),
            (RuleScope::Reads, &tools.read),
            (RuleScope::Writes, &tools.write),
            (RuleScope::Redirections, &tools.write[..tools.write.len().min(1)]),
        ];
        let scopes =
            scopes.into_iter().filter_map(|(scope, names)| is_about(names).then_some(scope));
        Ok(Self {
            text: text.to_owned(),
            tool: tool.to_owned(),
            scopes: scopes.collect(),
            pattern: pattern.map(str::to_owned),
            path,
        })
    }

    /// Returns the rule as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the reason for a decision by this rule to allow.
    pub(super) fn allow_reason(&self) -> String {
        format!("rule {} of permissions.allow", self.text)
    }

    /// Returns the reason for a decision by this rule to deny.
    pub(super) fn deny_reason(&self) -> String {
        format!("rule {} of permissions.deny matches", self.text)
    }

    /// Returns whether the rule applies to any call of a tool.
    pub(super) fn applies_to(&self, tool: &str) -> bool {
        matches_wildcard(&self.tool, tool)
    }

    /// Returns whether the rule applies to every call of a tool.
    pub(super) fn applies_to_all(&self, tool: &str) -> bool {
        self.pattern.is_none() && self.applies_to(tool)
    }

    /// Returns whether the rule has a scope, whatever its pattern is.
    pub(super) fn is_about(&self, scope: RuleScope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Returns whether a path matches the pattern of a rule that allows.
    pub(super) fn matches_path(&self, path: &str) -> bool {
        self.pattern.is_none() || self.path.as_ref().is_some_and(|glob| glob.is_match(path))
    }

    /// Returns whether a path matches the pattern of a rule that denies or asks: a name matches every file of that
    /// name, and a folder everything in it.
    pub(super) fn may_match_path(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_name = self.path_text().is_some_and(|text| !text.contains('/'));
        self.matches_path(path)
            || path.match_indices('/').any(|(at, _)| self.matches_path(&path[..at]))
            || is_name && self.matches_path(name)
    }

    /// Returns whether the pattern names `.git`.
    pub(super) fn names_git(&self) -> bool {
        self.path_text().is_some_and(names_git)
    }

    /// Returns whether a searched folder matches the pattern: the folder itself, or everything in it.
    pub(super) fn may_match_folder(&self, folder: &str) -> bool {
        let below =
            if folder.is_empty() || folder == "." { "x".into() } else { format!("{folder}/x") };
        self.may_match_path(folder) || self.matches_path(&below)
    }

    /// Returns whether the name of a skill or an agent matches the pattern.
    pub(super) fn matches_name(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| matches_pattern(pattern, name))
    }

    /// Returns the pattern as a path below the workspace.
    fn path_text(&self) -> Option<&str> {
        let pattern = self.pattern.as_deref()?;
        Some(pattern.trim_start_matches("./").trim_end_matches('/'))
    }

    /// Returns whether a command matches the pattern of a rule that allows.
    pub(super) fn matches_command(&self, text: &str) -> bool {
        let is_match = |pattern: &String| command_matches(pattern, text);
        self.is_about(RuleScope::Commands) && self.pattern.as_ref().is_none_or(is_match)
    }

    /// Returns whether the rule allows a part of a command line. A rule that names a whole line with several parts
    /// allows no part that contains the same text in quotes: `rm a; ls b` is not `rm 'a;' ls b`.
    pub(super) fn allows_part(&self, text: &str) -> bool {
        let is_line = |pattern: &String| pattern.contains(OPERATORS) && !pattern.contains('*');
        self.matches_command(text) && !self.pattern.as_ref().is_some_and(is_line)
    }

    /// Returns whether the rule may match a command with parts that are known only when it runs.
    pub(super) fn may_match_command(&self, words: &[ShellWord]) -> bool {
        let Some(pattern) = &self.pattern else { return false };
        let pattern: Vec<&str> = pattern.split_whitespace().collect();
        let [program, rest @ ..] = words else { return false };
        let is_program = |text: &str| matches_pattern(pattern[0], text);
        let name = program.text.rsplit('/').next().unwrap_or_default();
        if !self.is_about(RuleScope::Commands) || !(is_program(name) || is_program(&program.text)) {
            return false;
        }
        // Some options have a value, such as those of git before its commands.
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

    /// Returns whether the rule applies to some paths in a scope, but not to others.
    pub(super) fn has_path_pattern(&self, scope: RuleScope) -> bool {
        self.path.is_some() && self.is_about(scope)
    }

    /// Returns the path that the rule names; `None` if it may match several paths.
    pub(super) fn only_path(&self) -> Option<&str> {
        let is_plain = |path: &&str| {
            !path.contains(['*', '?', '[', '{', '\\']) && !path.split('/').any(|part| part == "..")
        };
        self.path_text().filter(is_plain).filter(|path| !path.starts_with('/'))
    }

    /// Returns whether the rule applies to a whole command line: it has no pattern, or names exactly this line.
    pub(super) fn is_whole_line(&self, line: &str) -> bool {
        // For a shell, other blanks are parts of words.
        let line = line.trim_matches([' ', '\t', '\n']);
        self.is_about(RuleScope::Commands)
            && self.pattern.as_ref().is_none_or(|pattern| pattern == line)
    }

    /// Returns whether the rule applies to some commands, but not to others.
    pub(super) fn has_command_pattern(&self) -> bool {
        self.pattern.is_some() && self.is_about(RuleScope::Commands)
    }
}

/// Returns whether `.git` is a part of a pattern.
pub(super) fn names_git(pattern: &str) -> bool {
    pattern.split('/').any(|part| part.eq_ignore_ascii_case(".git"))
}

fn command_matches(pattern: &str, text: &str) -> bool {
    let alone = pattern.strip_suffix(" *").is_some_and(|program| matches_pattern(program, text));
    alone || matches_pattern(pattern, text)
}

/// Returns whether words that don't match a pattern now may match it when they are expanded.
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

/// Returns a command in the form that rules match. Characters that would make one word look like several are quoted.
pub(super) fn normalize(words: &[ShellWord]) -> String {
    let word = |word: &ShellWord| {
        let is_plain = !word.text.is_empty()
            && !word.text.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\'));
        if is_plain { word.text.clone() } else { format!("'{}'", word.text.replace('\'', "'\\''")) }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns the words of a command, separated by spaces.
pub(super) fn plain_text(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// Returns the forms of a command that a denial matches: unchanged, without quotes, without the folder of its program,
/// and without the options before its first argument.
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

    fn tools() -> RuleTools {
        let write = vec!["write_file", "edit_file"];
        RuleTools { command: vec!["run_command"], read: vec!["read_file"], write }
    }

    fn rule(text: &str) -> PermissionRule {
        PermissionRule::parse(&tools(), text).unwrap()
    }

    #[test]
    fn invalid_rules_are_explained() {
        let why = |text: &str| PermissionRule::parse(&tools(), text).unwrap_err().to_string();
        let form = "expected tool or tool(pattern), like run_command(git *)";
        for text in ["", "(x)", "a(", "a()", "a)", "a(b)c"] {
            assert_eq!(why(text), format!("invalid rule '{text}': {form}"));
        }
        assert_eq!(
            why("read file(x)"),
            "rule 'read file(x)': 'read file' is not a tool name; a rule is tool or tool(pattern), like run_command(git *)"
        );
        assert!(why("read_file([)").starts_with("rule 'read_file([)': error parsing glob"));
        assert!(why("mcp_a_b(x)").ends_with("takes no pattern"));
    }

    #[test]
    fn a_path_is_relative_to_the_workspace() {
        let src = rule("write_file(src/**)");
        assert!(src.matches_path("src/a/b.rs") && !src.matches_path("a/src/b"));
        assert!(src.applies_to("write_file") && !src.applies_to("edit_file"));
        assert!(rule("write_file|edit_file(*.rs)").applies_to("edit_file"));
        assert!(!rule("*_file(*.rs)").matches_path("d/a.rs"));
    }

    #[test]
    fn a_rule_is_about_commands_and_files_by_its_tool() {
        use RuleScope::{Commands, Reads, Redirections, Writes};
        for (tool, scopes) in [
            ("run_command", &[Commands][..]),
            ("read_file", &[Reads]),
            ("write_file", &[Writes, Redirections]),
            ("edit_file", &[Writes]),
            ("*", &[Commands, Reads, Writes, Redirections]),
            ("grep", &[]),
        ] {
            assert_eq!(rule(tool).scopes, scopes, "{tool}");
        }
    }

    #[test]
    fn a_denial_matches_names_in_every_folder_and_contents_of_folders() {
        let env = rule("read_file(.env)");
        assert!(env.may_match_path("d/.env") && !env.matches_path("d/.env"));
        assert!(rule("read_file(d)").may_match_path("d/e/f"));
        assert!(rule("grep(d/**)").may_match_folder("d"));
        assert!(!rule("grep(d/**)").may_match_folder("."));
        assert!(rule("grep(**)").may_match_folder("."));
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
