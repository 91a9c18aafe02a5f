//! The policy engine.

use super::command_analysis::{
    CommandLine, NestedExecution, forbidden_reason, guessed, is_harmless_variable,
    nested_execution, runs_scripts,
};
use super::command_approval::{CommandApproval, is_portable};
use super::command_file_access;
use super::guardrails::{CommandScope, Guardrails};
use super::rules::{PermissionRule, PermissionRules, RuleScope, normalize, plain_text, spellings};
use super::shell::{RedirectionKind, ShellCommand, ShellWord, UnparsableLine};
use super::target::{CallKind, CallTarget, CommandTarget};
use crate::exec::shell_is_bash;
use crate::types::{ConfirmMode, Decision};

/// Decides about calls by their arguments. It does not ask the user, and reads no files except the configuration of
/// repositories in which git runs.
///
/// The order is: rules that deny; guardrails, which no rule overrides; rules that ask; rules that allow; the mode. If
/// both apply, a denial names the user's own rule rather than a guardrail.
#[derive(Clone, Debug, Default)]
pub struct PolicyEngine {
    mode: ConfirmMode,
    rules: PermissionRules,
    guardrails: Guardrails,
}

impl PolicyEngine {
    /// Returns an engine with these settings.
    pub fn new(mode: ConfirmMode, rules: PermissionRules, guardrails: Guardrails) -> Self {
        Self { mode, rules, guardrails }
    }

    /// Returns the engine with another mode.
    pub fn with_mode(&self, mode: ConfirmMode) -> Self {
        Self { mode, ..self.clone() }
    }

    pub(super) fn add_allowed(&mut self, rules: &[PermissionRule]) {
        self.rules.allow.extend_from_slice(rules);
    }

    /// Decides about a call of a tool, given the kind of its effect and its targets.
    pub fn decide(&self, tool: &str, kind: CallKind, targets: &[CallTarget]) -> Decision {
        if let Some(rule) = touching_rule(&self.rules.deny, tool, targets) {
            return Decision::deny(rule.deny_reason());
        }
        if let Some(why) = targets.iter().find_map(|target| self.guardrail_denial(target)) {
            return Decision::deny(why);
        }
        if let Some(rule) = touching_rule(&self.rules.ask, tool, targets) {
            return Decision::ask(format!("rule {} of permissions.ask", rule.as_str()));
        }
        if let Some(rule) = self.rules.allow.iter().find(|rule| rule.applies_to_all(tool)) {
            return Decision::allow(rule.allow_reason());
        }
        match targets {
            [CallTarget::Command(command), ..] if command.is_input() => self.decide_input(targets),
            [CallTarget::Command(command)] => self.decide_command(command),
            targets => self.decide_files(tool, kind, targets),
        }
    }

    /// Returns whether a decision allows a call because it changes nothing.
    pub fn is_read_only(decision: &Decision) -> bool {
        matches!(decision, Decision::Allow { reason } if **reason == *READ_ONLY_REASON)
    }

    /// Returns whether a tool may read a file that it finds in a search.
    pub fn can_search(&self, tool: &str, path: &str) -> bool {
        let is_denied = |rule: &PermissionRule| {
            (rule.applies_to(tool) || rule.is_about(RuleScope::Reads)) && rule.may_match_path(path)
        };
        self.guardrails.sensitive.find(path).is_none() && !self.rules.deny.iter().any(is_denied)
    }

    /// Returns whether any file is excluded from searches.
    pub fn has_search_limits(&self) -> bool {
        !self.guardrails.sensitive.is_empty() || !self.rules.deny.is_empty()
    }

    /// Returns the reason why a tool must not access the real path of an open file or folder. Rules that ask are
    /// ignored, since the user has already answered.
    pub fn denial_reason(&self, tool: &str, target: &CallTarget) -> Option<String> {
        matching_rule(&self.rules.deny, tool, target)
            .map(PermissionRule::deny_reason)
            .or_else(|| self.guardrail_denial(target))
    }

    /// Returns whether tools may not write in the folder of a repository, whatever its name.
    pub fn protects_repositories(&self) -> bool {
        self.guardrails.unwritable.has_repositories()
    }

    /// Returns the reason why the guardrails deny a target, whatever the rules allow.
    fn guardrail_denial(&self, target: &CallTarget) -> Option<String> {
        let Guardrails { protected, sensitive, unwritable, .. } = &self.guardrails;
        let guarded = |path: &str, list: &str, pattern: Option<&str>| {
            let pattern = pattern?;
            Some(format!("'{path}' is a file that the user protects ({list} has {pattern})"))
        };
        let is_sensitive =
            |path: &str| guarded(path, "guardrails.sensitive_files", sensitive.find(path));
        match target {
            CallTarget::Read(path) | CallTarget::Search(path) => is_sensitive(path),
            CallTarget::Write(path) => is_sensitive(path)
                .or_else(|| guarded(path, "guardrails.protected_files", protected.find(path)))
                .or_else(|| unwritable.contains(path).then(|| self.describe_unwritable(path))),
            CallTarget::Name(_) => None,
            CallTarget::Command(command) => {
                let line = command.line();
                if let Some(why) = forbidden_reason(line) {
                    return Some(format!("{why}; no rule and no mode allows that"));
                }
                self.blocking_pattern(line)
                    .map(|by| format!("commands.blocked_patterns has {by}"))
                    .or_else(|| command_file_access::denial_reason(line, &self.guardrails))
            }
        }
    }

    /// Returns the reason for the denial of a path that no tool may write.
    fn describe_unwritable(&self, path: &str) -> String {
        let denies = |rule: &&PermissionRule| {
            rule.has_path_pattern(RuleScope::Writes) && rule.may_match_path(path)
        };
        match self.rules.deny.iter().find(denies) {
            Some(rule) => format!(
                "'{path}' must not be written: {}; it names another tool, but a file that was there when the run began is \
                 kept from all tools and commands",
                rule.deny_reason()
            ),
            None => format!(
                "'{path}' is protected, and no tool may write it: what is there is run, obeyed or trusted outside the \
                 sandbox; the user can change it by hand, or allow it with --sandbox off"
            ),
        }
    }

    /// Returns the blocking expression that matches a line or a part of it.
    fn blocking_pattern(&self, line: &CommandLine) -> Option<&str> {
        let blocked = &self.guardrails.blocked;
        if blocked.is_empty() {
            return None;
        }
        let parts = line.programs.iter().flat_map(|program| spellings(&program.words));
        let unread = line.unparsed.iter().flat_map(|text| guessed(text));
        let unread = unread.map(|program| plain_text(&program.words));
        let mut texts = std::iter::once(line.raw.clone()).chain(parts).chain(unread);
        texts.find_map(|text| blocked.find(&text))
    }

    fn decide_command(&self, command: &CommandTarget) -> Decision {
        if let Some(why) = self.undecidable_reason(command.line())
            && !self.rules.allow.iter().any(|rule| rule.is_whole_line(command.text()))
        {
            let why = format!("the rules cannot be applied to the command, because {why}");
            return Decision::ask(why);
        }
        let is_limited = self.guardrails.commands == CommandScope::AllowedOnly;
        match (self.allow_reason(command), self.mode) {
            (Ok(why), mode) if mode != ConfirmMode::ConfirmAll || why != READ_ONLY_REASON => {
                Decision::allow(why)
            }
            (Err(why), _) if is_limited => Decision::deny(format!(
                "commands.allowed_only is set, and {why}; a rule of permissions.allow would allow it"
            )),
            (_, ConfirmMode::Yolo) => Decision::allow(mode_reason(self.mode)),
            (_, ConfirmMode::ConfirmAll) => Decision::ask(mode_reason(self.mode)),
            (Ok(why) | Err(why), ConfirmMode::ConfirmSensitive) => Decision::ask(why),
        }
    }

    /// Decides about the input of a command. Rules that allow commands do not apply to it, and neither does its meaning
    /// to a shell.
    fn decide_input(&self, targets: &[CallTarget]) -> Decision {
        let undecidable = targets.iter().find_map(|target| match target {
            CallTarget::Command(command) => self.undecidable_reason(command.line()),
            CallTarget::Read(_)
            | CallTarget::Search(_)
            | CallTarget::Write(_)
            | CallTarget::Name(_) => None,
        });
        if let Some(why) = undecidable {
            return Decision::ask(format!(
                "the rules cannot be applied to the input, because {why}"
            ));
        }
        if self.guardrails.commands == CommandScope::AllowedOnly {
            return Decision::deny(
                "commands.allowed_only is set, and commands can execute their input; add a rule for the tool to permissions.allow",
            );
        }
        match self.mode {
            ConfirmMode::Yolo => Decision::allow(mode_reason(self.mode)),
            ConfirmMode::ConfirmSensitive | ConfirmMode::ConfirmAll => {
                Decision::ask(mode_reason(self.mode))
            }
        }
    }

    /// Returns the reason why the rules that deny or ask cannot be applied to a line; `None` if they can, or if no rule
    /// is about commands.
    fn undecidable_reason(&self, line: &CommandLine) -> Option<String> {
        let against = || self.rules.deny.iter().chain(&self.rules.ask);
        let has_rules = against().any(PermissionRule::has_command_pattern);
        if !has_rules && self.guardrails.blocked.is_empty() {
            return None;
        }
        if let Err(why) = &line.script {
            return Some(why.0.to_owned());
        }
        if !line.unparsed.is_empty() {
            return Some("a script in it cannot be read".to_owned());
        }
        let is_open = |program: &&ShellCommand| {
            let words = program.words.as_slice();
            let Some(first) = words.first() else { return false };
            let is_hidden = program.name().is_some_and(runs_scripts)
                && nested_execution(program) == NestedExecution::Unknown;
            is_hidden
                || !has_known_program(first)
                || against().any(|rule| rule.may_match_command(words))
        };
        let program = line.programs.iter().find(is_open)?;
        let text: String = normalize(&program.words).chars().take(80).collect();
        Some(format!("which programs '{text}' runs is only known when it runs"))
    }

    /// Returns the reason for allowing a command line: a rule, or that it only reads.
    ///
    /// # Errors
    ///
    /// Fails with the reason for the first part that no rule allows and that does not only read.
    fn allow_reason(&self, command: &CommandTarget) -> Result<String, String> {
        let line = command.line();
        // A rule allows a line with the usual programs and settings only.
        let is_given = command.env().iter().any(|name| !is_harmless_variable(name));
        let rule = self.rules.allow.iter().find(|rule| rule.is_whole_line(command.text()));
        if let Some(rule) = rule.filter(|_| !is_given) {
            return Ok(rule.allow_reason());
        }
        let unknown = |why: &UnparsableLine| format!("its effect is unknown, because {}", why.0);
        let script = line.script.as_ref().map_err(unknown)?;
        if !shell_is_bash() && !is_portable(&line.raw) {
            return Err("it is written for bash, which is not installed".to_owned());
        }
        let (rules, guardrails) = (&self.rules.allow, &self.guardrails);
        let approval = CommandApproval { rules, guardrails, command, reasons: Vec::new() };
        let reasons = approval.approve_line(script)?;
        Ok(if reasons.is_empty() { READ_ONLY_REASON.to_owned() } else { reasons.join(", ") })
    }

    fn decide_files(&self, tool: &str, kind: CallKind, targets: &[CallTarget]) -> Decision {
        let allowing = |target: &CallTarget| {
            let mut about_tool = self.rules.allow.iter().filter(|rule| rule.applies_to(tool));
            match target {
                CallTarget::Read(path) | CallTarget::Write(path) | CallTarget::Search(path) => {
                    about_tool.find(|rule| rule.matches_path(path))
                }
                CallTarget::Name(name) => about_tool.find(|rule| rule.matches_name(name)),
                CallTarget::Command(_) => None,
            }
        };
        let rules: Option<Vec<&PermissionRule>> = targets.iter().map(allowing).collect();
        if let Some(rule) = rules.unwrap_or_default().first() {
            return Decision::allow(rule.allow_reason());
        }
        match (self.mode, kind) {
            (ConfirmMode::Yolo, _) => Decision::allow(mode_reason(self.mode)),
            (ConfirmMode::ConfirmSensitive, CallKind::Reads) => Decision::allow(READ_ONLY_REASON),
            (ConfirmMode::ConfirmSensitive, CallKind::Delegates) => {
                Decision::allow("each call of the other agent is checked separately")
            }
            (ConfirmMode::ConfirmSensitive | ConfirmMode::ConfirmAll, _) => {
                Decision::ask(mode_reason(self.mode))
            }
        }
    }
}

/// Returns whether the name of a program in a word is known, even if its folder is not.
fn has_known_program(word: &ShellWord) -> bool {
    let rest = ["~/", "$HOME/", "$PWD/"].iter().find_map(|home| word.text.strip_prefix(home));
    let is_plain = |text: &str| !text.contains(['$', '*', '?', '[', '{', '~']);
    word.is_literal() || rest.is_some_and(is_plain)
}

/// The reason for allowing a command that only reads.
const READ_ONLY_REASON: &str = "it only reads";

/// Returns the first rule that applies to a tool as a whole, or to one of the targets.
fn touching_rule<'a>(
    rules: &'a [PermissionRule],
    tool: &str,
    targets: &[CallTarget],
) -> Option<&'a PermissionRule> {
    let about_all = rules.iter().find(|rule| rule.applies_to_all(tool));
    about_all.or_else(|| targets.iter().find_map(|target| matching_rule(rules, tool, target)))
}

/// Returns the first rule that applies to a target, with the matching of denials and questions.
fn matching_rule<'a>(
    rules: &'a [PermissionRule],
    tool: &str,
    target: &CallTarget,
) -> Option<&'a PermissionRule> {
    let mut about_tool = rules.iter().filter(|rule| rule.applies_to(tool));
    match target {
        CallTarget::Read(path) | CallTarget::Write(path) => {
            about_tool.find(|rule| rule.may_match_path(path))
        }
        CallTarget::Search(folder) => about_tool.find(|rule| rule.may_match_folder(folder)),
        CallTarget::Command(command) => matching_command_rule(rules, command.line()),
        CallTarget::Name(name) => about_tool.find(|rule| rule.matches_name(name)),
    }
}

fn matching_command_rule<'a>(
    rules: &'a [PermissionRule],
    line: &CommandLine,
) -> Option<&'a PermissionRule> {
    let parts = line.programs.iter().flat_map(|program| spellings(&program.words));
    let mut texts = std::iter::once(line.raw.trim().to_owned()).chain(parts);
    // A redirection counts as the corresponding access by a file tool.
    let mut files = line.programs.iter().flat_map(|program| &program.redirections);
    let about_file = || {
        files.find_map(|file| {
            let scope = match file.kind {
                RedirectionKind::Read => RuleScope::Reads,
                RedirectionKind::Write => RuleScope::Redirections,
                RedirectionKind::Duplicate | RedirectionKind::HereDocument => return None,
            };
            let places = line.possible_paths(&file.target);
            let mut rules = rules.iter().filter(|rule| rule.is_about(scope));
            rules.find(|rule| places.iter().any(|place| rule.may_match_path(place)))
        })
    };
    texts.find_map(|text| rules.iter().find(|rule| rule.matches_command(&text))).or_else(about_file)
}

/// Returns the reason of a decision by the mode.
fn mode_reason(mode: ConfirmMode) -> &'static str {
    match mode {
        ConfirmMode::ConfirmAll => "mode confirm-all asks before every call",
        ConfirmMode::ConfirmSensitive => {
            "mode confirm-sensitive asks before a call that changes something"
        }
        ConfirmMode::Yolo => "mode yolo",
    }
}
