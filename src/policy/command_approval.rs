//! Approval of a command line, part by part.

use super::command_analysis::{
    NestedExecution, git_folders, is_harmless_shell_setting, is_harmless_variable,
    is_script_variable, nested_execution, only_reads, rebase_folder,
};
use super::guardrails::Guardrails;
use super::rules::{PermissionRule, RuleScope, normalize};
use super::shell::{
    Assignment, CommandKind, PROCESS_SUBSTITUTION, Redirection, RedirectionKind, ShellCommand,
    ShellScript, ShellWord, WordForm,
};
use super::target::CommandTarget;
use crate::types::shorten;

/// The approval of a command line, and its grounds.
pub(super) struct CommandApproval<'a> {
    /// The user's rules that allow.
    pub rules: &'a [PermissionRule],
    /// The safe commands, and the repositories in which the line runs.
    pub guardrails: &'a Guardrails,
    /// The command line.
    pub command: &'a CommandTarget,
    /// The reasons for allowing the parts, except for parts that only read.
    pub reasons: Vec<String>,
}

/// Files that every command may write. `/dev/stdout` is not one of them: it may be redirected to a file, which would be
/// overwritten.
const WRITABLE_DEVICES: [&str; 2] = ["/dev/null", "/dev/zero"];

/// The maximum nesting of programs and scripts.
const MAX_DEPTH: u32 = 8;

/// The maximum number of characters of a command that a reason shows.
const MAX_SHOWN_CHARS: usize = 80;

/// `Ok` if a part is allowed, otherwise the reason why it is not.
type PartResult = Result<(), String>;

impl CommandApproval<'_> {
    /// Returns the reasons for allowing the whole line, except for parts that only read.
    ///
    /// # Errors
    ///
    /// Fails with the reason for the first part that is not allowed.
    pub(super) fn approve_line(mut self, script: &ShellScript) -> Result<Vec<String>, String> {
        let env = self.command.env();
        if let Some(name) = env.iter().find(|name| has_effects(name)) {
            return Err(format!("it sets the variable {name}"));
        }
        let is_given = env.iter().any(|name| !is_harmless_variable(name));
        self.approve_script(script, is_given, 0)?;
        self.reasons.sort();
        self.reasons.dedup();
        Ok(self.reasons)
    }

    /// Checks the commands of a script; `is_given` is true if variables with unknown effects are set for them.
    fn approve_script(&mut self, script: &ShellScript, is_given: bool, depth: u32) -> PartResult {
        if depth > MAX_DEPTH {
            return Err("its commands are nested too deeply".to_owned());
        }
        for command in script.commands() {
            command.redirections.iter().try_for_each(|to| self.approve_redirection(to))?;
            match &command.kind {
                CommandKind::Simple => self.approve_program(command, is_given, depth)?,
                // Their inner commands are checked separately.
                CommandKind::Group | CommandKind::Function(_) => approve_head(command)?,
            }
        }
        Ok(())
    }

    fn approve_program(
        &mut self,
        command: &ShellCommand,
        is_given: bool,
        depth: u32,
    ) -> PartResult {
        let ShellCommand { assignments, words, .. } = command;
        // In a list, text in brackets at the beginning of a value is evaluated.
        let evaluated = |set: &Assignment| {
            let is_subscript = |value: &ShellWord| set.is_list && value.text.contains('[');
            set.values.iter().any(|value| value.form == WordForm::Evaluated || is_subscript(value))
        };
        let text = normalize(words);
        if let Some(set) = assignments.iter().find(|set| has_effects(&set.name) || evaluated(set)) {
            let value = |set: &Assignment| format!("{}={}", set.name, normalize(&set.values));
            let values: Vec<String> = assignments.iter().map(value).collect();
            let line = format!("{} {text}", values.join(" "));
            return match !is_given && self.is_allowed_by_rule(&line) {
                true => Ok(()),
                false => Err(format!("it sets the variable {}", set.name)),
            };
        }
        let is_given = is_given || assignments.iter().any(|set| !is_harmless_variable(&set.name));
        if words.is_empty() {
            return Ok(());
        }
        if self.is_allowed_by_name(words, &text) {
            let why = format!(
                "'{}' may read the variables that it is given",
                shorten(&text, MAX_SHOWN_CHARS)
            );
            return if is_given { Err(why) } else { Ok(()) };
        }
        let changes = || Err(format!("'{}' may change something", shorten(&text, MAX_SHOWN_CHARS)));
        // The shell evaluates a word even if the program ignores it.
        let is_evaluated = words.iter().any(|word| word.form == WordForm::Evaluated);
        if is_evaluated || !has_known_arguments(command) {
            return changes();
        }
        match nested_execution(command) {
            NestedExecution::Nothing if only_reads(command) => self.check_repository(command),
            NestedExecution::Programs(programs) => {
                // `find` itself can also change files.
                let changes_files = command.name() == Some("find") && !only_reads(command);
                if changes_files || depth >= MAX_DEPTH {
                    return changes();
                }
                if let [program] = programs.as_slice()
                    && has_cleared_environment(command, program)
                {
                    return Err("it changes the environment or the name of a program".to_owned());
                }
                programs.iter().try_for_each(|it| self.approve_program(it, is_given, depth + 1))
            }
            NestedExecution::Script(script) => self.approve_script(&script, is_given, depth + 1),
            NestedExecution::Unknown => {
                Err(format!("what '{}' runs is unknown", shorten(&text, MAX_SHOWN_CHARS)))
            }
            NestedExecution::Nothing | NestedExecution::Input => changes(),
        }
    }

    /// Checks that a git command that reads does not run programs from the configuration of a repository.
    fn check_repository(&self, command: &ShellCommand) -> PartResult {
        if command.name() != Some("git") || command.words[1].text == "--version" {
            return Ok(());
        }
        let mut folders = self.command.line().folders.clone();
        let named = git_folders(&command.words[1..]).map(|(folders, _)| folders);
        for folder in named.unwrap_or_default() {
            let is_known = folder.is_literal() && !folder.text.starts_with('~');
            let text = if is_known { folder.text.as_str() } else { "$" };
            let more: Vec<String> = folders.iter().map(|from| rebase_folder(from, text)).collect();
            folders.extend(more);
        }
        self.guardrails.repositories.execution_risk(&folders).map_or(Ok(()), Err)
    }

    /// Returns whether a rule, or the list of safe commands, names a command.
    fn is_allowed_by_name(&mut self, words: &[ShellWord], text: &str) -> bool {
        // Rules name programs, not values of variables.
        if !words[0].is_literal() || words.iter().any(|word| word.form == WordForm::Evaluated) {
            return false;
        }
        let begins = |safe: &&String| {
            let rest = text.strip_prefix(safe.trim()).filter(|_| !safe.trim().is_empty());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        match self.guardrails.safe.iter().find(begins) {
            Some(safe) => self.reasons.push(format!("commands.safe_commands has {safe}")),
            None => return self.is_allowed_by_rule(text),
        }
        true
    }

    fn is_allowed_by_rule(&mut self, text: &str) -> bool {
        let found = self.rules.iter().find(|rule| rule.allows_part(text));
        self.reasons.extend(found.map(PermissionRule::allow_reason));
        found.is_some()
    }

    fn approve_redirection(&mut self, to: &Redirection) -> PartResult {
        let text = to.target.text.as_str();
        let is_literal = to.target.is_literal();
        match to.kind {
            RedirectionKind::Duplicate => Ok(()),
            RedirectionKind::HereDocument if to.target.form < WordForm::Evaluated => Ok(()),
            // The shell makes network connections for these files.
            RedirectionKind::Read
                if text.starts_with("/dev/tcp") || text.starts_with("/dev/udp") =>
            {
                Err(format!("its effect on '{text}' is unknown"))
            }
            // The inner command is checked separately.
            RedirectionKind::Read if is_literal || text == PROCESS_SUBSTITUTION => Ok(()),
            RedirectionKind::Read => Err(format!("it reads '{text}'")),
            RedirectionKind::Write if is_literal && WRITABLE_DEVICES.contains(&text) => Ok(()),
            RedirectionKind::Write if is_literal => {
                let places = self.command.line().possible_paths(&to.target);
                let is_about = |rule: &&PermissionRule| rule.is_about(RuleScope::Redirections);
                let rule = |place: &String| {
                    self.rules.iter().filter(is_about).find(|rule| rule.matches_path(place))
                };
                let rules: Option<Vec<&PermissionRule>> = places.iter().map(rule).collect();
                let first = rules.as_ref().and_then(|rules| rules.first());
                self.reasons.extend(first.map(|rule| rule.allow_reason()));
                first.map(drop).ok_or_else(|| format!("it writes '{text}'"))
            }
            RedirectionKind::HereDocument | RedirectionKind::Write => {
                Err(format!("its effect on '{text}' is unknown"))
            }
        }
    }
}

/// Checks the head of a group.
fn approve_head(group: &ShellCommand) -> PartResult {
    let values = group.assignments.iter().flat_map(|set| &set.values);
    if values.chain(&group.words).any(|word| word.form == WordForm::Evaluated) {
        return Err("it has an expression in which commands may be hidden".to_owned());
    }
    match group.assignments.iter().find(|set| has_effects(&set.name)) {
        Some(set) => Err(format!("it sets the variable {}", set.name)),
        None => Ok(()),
    }
}

/// Returns whether setting a variable may have an effect by itself.
fn has_effects(variable: &str) -> bool {
    !is_harmless_variable(variable) && !is_script_variable(variable)
}

/// Returns whether these words run a program in another environment or under another name: `env -i`, `exec -c`,
/// `exec -a`. A missing variable may make it run other programs, and some programs behave according to their name.
fn has_cleared_environment(command: &ShellCommand, program: &ShellCommand) -> bool {
    let words = command.words.as_slice();
    let own = &words[1..words.len().saturating_sub(program.words.len()).max(1)];
    let begins = |options: &[&str]| {
        own.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match command.name() {
        Some("env") => begins(&["-i", "-u", "--i", "--u"]) || own.iter().any(|w| w.text == "-"),
        Some("exec") => begins(&["-"]),
        _ => false,
    }
}

/// Returns whether a program is known to pass on words of commands unchanged. `busybox` has its own commands, and a
/// shell may read a script differently: `bash -k` takes arguments for variables.
fn has_known_arguments(command: &ShellCommand) -> bool {
    let words = command.words.as_slice();
    match command.name() {
        Some("alias" | "busybox" | "toybox" | "watch") => false,
        Some("rbash" | "ksh" | "mksh" | "yash" | "zsh") => false,
        Some("bash") => has_only_script_option(&words[1..]),
        // These shells have to read the words as bash does.
        Some("sh" | "dash" | "ash") => {
            has_only_script_option(&words[1..]) && words.iter().all(|word| is_portable(&word.text))
        }
        _ => true,
    }
}

/// Returns whether a shell gets a script with `-c`, preceded only by settings for errors and patterns.
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

/// Returns whether shells with less syntax than bash read a script as bash does. Syntax that they don't know has
/// another meaning to them.
pub(super) fn is_portable(script: &str) -> bool {
    const SIGNS: &str = "[[ (( $' $\" &> |& <<< <( >( += =( ;;&";
    let has = |odd: &str| script.contains(odd);
    !(SIGNS.split(' ').any(has) || has("function ") || has("select "))
}
