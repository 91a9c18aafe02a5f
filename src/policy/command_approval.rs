//! Approval of a command line, part by part.

use super::command::{
    CommandLine, NestedExecution, git_folders, is_harmless_shell_setting, is_harmless_variable,
    is_script_variable, nested_execution, only_reads, program_name, rebase_folder,
};
use super::repositories::Repositories;
use super::rules::{PermissionRule, normalize};
use super::shell::{
    Assignment, CommandBody, PROCESS_SUBSTITUTION, Redirection, RedirectionKind, ShellCommand,
    ShellScript, ShellWord, SimpleCommand, WordForm,
};
use super::target::WRITING_TOOLS;

/// The rules and lists that may allow the parts of a line.
pub(super) struct CommandApproval<'a> {
    /// The permissions of the user.
    pub rules: &'a [PermissionRule],
    /// The beginnings of commands that need no confirmation.
    pub safe: &'a [String],
    /// The line.
    pub line: &'a CommandLine,
    /// The repositories in which it runs.
    pub repositories: &'a Repositories,
}

/// Files to which every command may write. `/dev/stdout` is not one of them: it may be redirected to a file, which would
/// be overwritten.
const WRITABLE_DEVICES: [&str; 2] = ["/dev/null", "/dev/zero"];

/// The context of a command in a line.
#[derive(Clone, Copy, Default)]
struct ApprovalContext {
    /// The nesting depth.
    depth: u32,
    /// Whether it gets variables with unknown effects.
    has_given_variables: bool,
}

impl ApprovalContext {
    fn nested(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl CommandApproval<'_> {
    /// Returns the reasons why a whole line is allowed, besides parts that only read.
    ///
    /// # Errors
    ///
    /// Fails with the first part that is not allowed.
    pub(super) fn approve_line(
        &self,
        script: &ShellScript,
        env: &[String],
    ) -> Result<Vec<String>, String> {
        if let Some(name) = env.iter().find(|name| has_effects(name)) {
            return Err(format!("it sets the variable {name}"));
        }
        let is_given = env.iter().any(|name| !is_harmless_variable(name));
        let mut reasons = Vec::new();
        self.approve_script(
            script,
            &mut reasons,
            ApprovalContext { depth: 0, has_given_variables: is_given },
        )?;
        reasons.sort();
        reasons.dedup();
        Ok(reasons)
    }

    fn approve_script(
        &self,
        script: &ShellScript,
        reasons: &mut Vec<String>,
        place: ApprovalContext,
    ) -> Result<(), String> {
        if place.depth > 8 {
            return Err("its commands are nested too deeply".to_owned());
        }
        let mut first = Ok(());
        script.for_each_command(&mut |command| {
            if first.is_ok() {
                first = self.approve_command(command, reasons, place);
            }
        });
        first
    }

    fn approve_command(
        &self,
        command: &ShellCommand,
        reasons: &mut Vec<String>,
        place: ApprovalContext,
    ) -> Result<(), String> {
        command.redirections.iter().try_for_each(|to| self.approve_redirection(to, reasons))?;
        match &command.body {
            CommandBody::Simple(simple) => self.approve_simple(simple, reasons, place),
            CommandBody::Group { words, .. }
                if words.iter().any(|word| word.form == WordForm::Evaluated) =>
            {
                Err("it has an expression in which commands may be hidden".to_owned())
            }
            CommandBody::Group { variable: Some(name), .. } if has_effects(name) => {
                Err(format!("it sets the variable {name}"))
            }
            // What is in them is looked at by itself.
            CommandBody::Group { .. } | CommandBody::Function { .. } => Ok(()),
        }
    }

    fn approve_simple(
        &self,
        simple: &SimpleCommand,
        reasons: &mut Vec<String>,
        place: ApprovalContext,
    ) -> Result<(), String> {
        let SimpleCommand { assignments, words } = simple;
        // In a list, what stands in brackets at the beginning of a value is evaluated.
        let evaluated = |set: &Assignment| {
            let is_subscript = |value: &ShellWord| set.is_list && value.text.contains('[');
            set.values.iter().any(|value| value.form == WordForm::Evaluated || is_subscript(value))
        };
        let set = assignments.iter().find(|set| has_effects(&set.name) || evaluated(set));
        let text = normalize(words);
        if let Some(set) = set {
            let value: Vec<String> = assignments
                .iter()
                .map(|set| format!("{}={}", set.name, normalize(&set.values)))
                .collect();
            let line = format!("{} {text}", value.join(" "));
            return match !place.has_given_variables && self.is_allowed_by_rule(&line, reasons) {
                true => Ok(()),
                false => Err(format!("it sets the variable {}", set.name)),
            };
        }
        let is_given = place.has_given_variables
            || assignments.iter().any(|set| !is_harmless_variable(&set.name));
        if words.is_empty() {
            return Ok(());
        }
        if self.is_allowed_by_name(words, &text, reasons) {
            return match is_given {
                true => {
                    Err(format!("'{}' may read the variables that it is given", shorten(&text)))
                }
                false => Ok(()),
            };
        }
        let place = ApprovalContext { has_given_variables: is_given, ..place.nested() };
        let changes = || Err(format!("'{}' may change something", shorten(&text)));
        if !has_known_arguments(words) {
            return changes();
        }
        match nested_execution(simple) {
            NestedExecution::Nothing if only_reads(simple) => self.check_repository(words),
            NestedExecution::Programs(programs) => {
                // `find` itself can change files, too.
                if program_name(words) == Some("find") && !only_reads(simple) {
                    return changes();
                }
                if let [program] = programs.as_slice()
                    && has_cleared_environment(words, program)
                {
                    return Err("it changes the environment or the name of a program".to_owned());
                }
                programs.iter().try_for_each(|program| match place.depth {
                    ..=8 => self.approve_simple(program, reasons, place),
                    _ => changes(),
                })
            }
            NestedExecution::Script(_) if !is_same_in_all_shells(words) => {
                Err(format!("what '{}' runs is unknown", shorten(&text)))
            }
            NestedExecution::Script(script) => self.approve_script(&script, reasons, place),
            NestedExecution::Nothing | NestedExecution::Input => changes(),
            NestedExecution::Unknown => Err(format!("what '{}' runs is unknown", shorten(&text))),
        }
    }

    /// Checks that a reading git command runs no program from the configuration of a repository.
    fn check_repository(&self, words: &[ShellWord]) -> Result<(), String> {
        if program_name(words) != Some("git") || words[1].text == "--version" {
            return Ok(());
        }
        let mut folders = self.line.folders.clone();
        for folder in git_folders(&words[1..]).map(|(folders, _)| folders).unwrap_or_default() {
            let is_known = folder.is_literal() && !folder.text.starts_with('~');
            let text = if is_known { folder.text.as_str() } else { "$" };
            let more: Vec<String> = folders.iter().map(|from| rebase_folder(from, text)).collect();
            folders.extend(more);
        }
        match self.repositories.execution_risk(&folders) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Returns whether a rule or the list of safe commands names a command.
    fn is_allowed_by_name(
        &self,
        words: &[ShellWord],
        text: &str,
        reasons: &mut Vec<String>,
    ) -> bool {
        // A rule names a program, not the value of a variable.
        if !words[0].is_literal() || words.iter().any(|word| word.form == WordForm::Evaluated) {
            return false;
        }
        let begins = |safe: &&String| {
            text.strip_prefix(safe.trim())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        if let Some(safe) = self.safe.iter().filter(|safe| !safe.trim().is_empty()).find(begins) {
            reasons.push(format!("commands.safe_commands has {safe}"));
            return true;
        }
        self.is_allowed_by_rule(text, reasons)
    }

    fn is_allowed_by_rule(&self, text: &str, reasons: &mut Vec<String>) -> bool {
        let found = self.rules.iter().find(|rule| rule.matches_command(text));
        reasons.extend(found.map(|rule| format!("rule {} of permissions.allow", rule.as_str())));
        found.is_some()
    }

    fn approve_redirection(
        &self,
        to: &Redirection,
        reasons: &mut Vec<String>,
    ) -> Result<(), String> {
        let text = to.target.text.as_str();
        match to.kind {
            RedirectionKind::Duplicate => Ok(()),
            RedirectionKind::HereDocument if to.target.form < WordForm::Evaluated => Ok(()),
            // The shell makes connections of these.
            RedirectionKind::Read
                if !text.starts_with("/dev/tcp") && !text.starts_with("/dev/udp") =>
            {
                match to.target.form {
                    WordForm::Literal | WordForm::Pattern | WordForm::Computed
                        if to.target.is_literal() =>
                    {
                        Ok(())
                    }
                    // The output of a command, which is looked at by itself.
                    _ if text == PROCESS_SUBSTITUTION => Ok(()),
                    _ => Err(format!("it reads '{text}'")),
                }
            }
            RedirectionKind::Write
                if to.target.is_literal() && WRITABLE_DEVICES.contains(&text) =>
            {
                Ok(())
            }
            RedirectionKind::Write if to.target.is_literal() => {
                let places = self.line.possible_paths(&to.target);
                let rule = |place: &String| {
                    self.rules.iter().find(|rule| rule.matches_path(WRITING_TOOLS[0], place))
                };
                let rules: Option<Vec<&PermissionRule>> = places.iter().map(rule).collect();
                match rules.as_deref() {
                    Some([rule, ..]) => {
                        reasons.push(format!("rule {} of permissions.allow", rule.as_str()));
                        Ok(())
                    }
                    Some([]) | None => Err(format!("it writes '{text}'")),
                }
            }
            RedirectionKind::HereDocument | RedirectionKind::Read | RedirectionKind::Write => {
                Err(format!("its effect on '{text}' is unknown"))
            }
        }
    }
}

/// Returns whether setting a variable may have an effect by itself.
fn has_effects(variable: &str) -> bool {
    !is_harmless_variable(variable) && !is_script_variable(variable)
}

/// Returns whether a program is run by these words with another environment or under another name than it would be by
/// itself: `env -i`, `exec -c`, `exec -a`. Variables may be what keeps it from running something, and some programs do
/// what their name says.
fn has_cleared_environment(words: &[ShellWord], program: &SimpleCommand) -> bool {
    let own = &words[1..words.len().saturating_sub(program.words.len()).max(1)];
    let begins = |options: &[&str]| {
        own.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match program_name(words) {
        Some("env") => begins(&["-i", "-u", "--i", "--u"]) || own.iter().any(|w| w.text == "-"),
        Some("exec") => begins(&["-"]),
        _ => false,
    }
}

/// Returns whether it is known what a program makes of the words that it runs. `busybox` has commands of its own, and a
/// shell may read a script in other ways: `bash -k` takes arguments for variables.
fn has_known_arguments(words: &[ShellWord]) -> bool {
    match program_name(words) {
        Some("alias" | "busybox" | "toybox" | "watch") => false,
        Some("bash" | "sh" | "dash" | "ash") => has_only_script_option(&words[1..]),
        _ => true,
    }
}

/// Returns whether a shell is given a script with `-c`, and nothing before it but settings for errors.
fn has_only_script_option(words: &[ShellWord]) -> bool {
    let mut words = words.iter();
    let mut is_script = false;
    while let Some(word) = words.next().filter(|word| word.is_literal()) {
        let text = word.text.as_str();
        let Some(letters) = text.strip_prefix('-') else { return is_script };
        if letters.is_empty() || !letters.chars().all(|flag| "ceufxo".contains(flag)) {
            return false;
        }
        is_script |= letters.contains('c');
        for _ in letters.matches('o') {
            let setting = words.next().filter(|word| word.is_literal());
            if !setting.is_some_and(|word| is_harmless_shell_setting(&word.text)) {
                return false;
            }
        }
    }
    false
}

/// Returns whether the shell that runs a script, if it is one, reads it as it was read here.
fn is_same_in_all_shells(words: &[ShellWord]) -> bool {
    match program_name(words) {
        Some("bash") => true,
        Some("sh" | "dash" | "ash") => words.iter().all(|word| is_portable(&word.text)),
        Some("rbash" | "ksh" | "mksh" | "yash" | "zsh") => false,
        // It is run by the shell of the line.
        _ => true,
    }
}

/// Returns whether shells that know less than bash read a script as bash does. What they don't know is something else to
/// them.
pub(super) fn is_portable(script: &str) -> bool {
    const NONPORTABLE: [&str; 14] = [
        "[[",
        "((",
        "$'",
        "$\"",
        "&>",
        "|&",
        "<<<",
        "<(",
        ">(",
        "+=",
        "=(",
        "function ",
        "select ",
        ";;&",
    ];
    !NONPORTABLE.iter().any(|odd| script.contains(odd))
}

/// Returns the beginning of a text that may be long.
fn shorten(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
