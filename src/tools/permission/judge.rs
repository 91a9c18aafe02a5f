//! The decision about a call.

use super::command::{Inner, Line, Program, forbidden, guessed, inner, is_harmless, runs_scripts};
use super::guard;
use super::guardrails::{CommandScope, Guardrails};
use super::mode::ConfirmMode;
use super::permit::{Permit, is_portable};
use super::rules::{Rule, Rules, exact, spellings};
use super::shell::{Redirect, Simple, Word};
use crate::exec::shell_is_bash;
use crate::tools::tool::{CommandTarget, Kind, Prepared, Target};

/// Decides about calls, by their arguments alone: it asks nobody and looks at no file but the configuration of
/// repositories in which git only reads.
///
/// In this order: denials; what no rule can allow; questions; permissions; and where no rule says anything, the mode.
/// The user's own rule is the first to be named, since a denied path is protected from every tool, too.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    mode: ConfirmMode,
    rules: Rules,
    guardrails: Guardrails,
}

/// What was decided about a call, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Allow(String),
    /// The user is asked.
    Ask(String),
    /// It may not run.
    Deny(String),
}

/// How far a command line is allowed by rules and by what is known of it.
enum Allowed {
    By(String),
    Not(String),
}

impl Decision {
    /// Returns whether the call may run because it changes nothing.
    pub fn is_for_reading(&self) -> bool {
        matches!(self, Self::Allow(grounds) if grounds == READS)
    }
}

impl Judge {
    /// Returns a judge.
    pub fn new(mode: ConfirmMode, rules: Rules, guardrails: Guardrails) -> Self {
        Self { mode, rules, guardrails }
    }

    /// Decides about a call.
    pub fn decide(&self, tool: &str, call: &dyn Prepared) -> Decision {
        self.decide_about(tool, call.kind(), &call.targets())
    }

    /// Decides about a call of this kind that touches this.
    pub fn decide_about(&self, tool: &str, kind: Kind, targets: &[Target]) -> Decision {
        let about_all = |rules: &[Rule]| rules.iter().find(|rule| rule.is_about_all(tool)).cloned();
        let touched = |rules: &[Rule]| {
            about_all(rules)
                .or_else(|| targets.iter().find_map(|target| touching(rules, tool, target)))
        };
        if let Some(rule) = touched(&self.rules.deny) {
            return Decision::Deny(format!(
                "rule {} of permissions.deny is against it",
                rule.as_str()
            ));
        }
        if let Some(why) = targets.iter().find_map(|target| self.guarded(target)) {
            return Decision::Deny(why);
        }
        if let Some(rule) = touched(&self.rules.ask) {
            return Decision::Ask(format!("rule {} of permissions.ask", rule.as_str()));
        }
        if let Some(rule) = about_all(&self.rules.allow) {
            return Decision::Allow(format!("rule {} of permissions.allow", rule.as_str()));
        }
        match targets {
            [Target::Command(command)] => self.command(command),
            targets => self.files(tool, kind, targets),
        }
    }

    /// Returns whether a tool may look into a file that it comes across while it searches.
    pub fn may_search(&self, tool: &str, path: &str) -> bool {
        let is_denied =
            |rule: &Rule| rule.touches_path(tool, path) || rule.touches_path("read_file", path);
        self.guardrails.sensitive.find(path).is_none() && !self.rules.deny.iter().any(is_denied)
    }

    /// Returns whether there is a file at all that no search may look at.
    pub fn limits_searches(&self) -> bool {
        !self.guardrails.sensitive.is_empty() || !self.rules.deny.is_empty()
    }

    /// Returns why a tool may not touch what an open file or folder really is; rules that ask don't count, for there was
    /// an answer.
    pub fn refusal(&self, tool: &str, target: &Target) -> Option<String> {
        let rule = touching(&self.rules.deny, tool, target);
        rule.map(|rule| format!("rule {} of permissions.deny is against it", rule.as_str()))
            .or_else(|| self.guarded(target))
    }

    /// Returns whether no tool writes in the folder of a repository, whatever its name is.
    pub fn guards_repositories(&self) -> bool {
        self.guardrails.off_limits.has_repositories()
    }

    /// Returns why nobody may do something with a target.
    fn guarded(&self, target: &Target) -> Option<String> {
        let Guardrails { protected, sensitive, off_limits, blocked, .. } = &self.guardrails;
        let named = |path: &str, list: &str, pattern: &str| {
            format!("'{path}' is a file that the user protects ({list} has {pattern})")
        };
        let is_sensitive = |path: &str| {
            let pattern = sensitive.find(path)?;
            Some(named(path, "guardrails.sensitive_files", pattern))
        };
        match target {
            Target::Read(path) | Target::Search(path) => is_sensitive(path),
            Target::Write(path) => is_sensitive(path)
                .or_else(|| {
                    let pattern = protected.find(path)?;
                    Some(named(path, "guardrails.protected_files", pattern))
                })
                .or_else(|| off_limits.has(path).then(|| unwritable(path))),
            Target::Command(command) => {
                let line = Line::read(&command.line, &command.folder);
                if let Some(why) = forbidden(&line) {
                    return Some(format!("{why}; no rule and no mode allows that"));
                }
                let parts = line.programs.iter().flat_map(|program| spellings(&program.words));
                let unread = line.unread.iter().flat_map(|text| guessed(text));
                let words = |program: Program| {
                    program
                        .words
                        .iter()
                        .map(|word| word.text.as_str())
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                let unread = unread.filter(|_| !blocked.is_empty()).map(words);
                let mut texts = std::iter::once(line.raw.clone()).chain(parts).chain(unread);
                let by = texts.find_map(|text| blocked.find(&text).map(str::to_owned));
                by.map(|by| format!("commands.blocked_patterns has {by}"))
                    .or_else(|| guard::named(&line, protected, sensitive))
            }
        }
    }

    fn command(&self, command: &CommandTarget) -> Decision {
        let line = Line::read(&command.line, &command.folder);
        if let Some(why) = self.beyond_rules(&line)
            && !self.rules.allow.iter().any(|rule| rule.is_line(&command.line))
        {
            return Decision::Ask(format!(
                "the command cannot be held against the rules, because {why}"
            ));
        }
        match (self.allowed(&line, command), self.mode) {
            (Allowed::By(grounds), mode) if mode != ConfirmMode::ConfirmAll || grounds != READS => {
                Decision::Allow(grounds)
            }
            (Allowed::Not(why), _) if self.guardrails.commands == CommandScope::AllowedOnly => {
                Decision::Deny(format!(
                    "commands.allowed_only is set, and {why}; a rule of permissions.allow would allow it"
                ))
            }
            (_, ConfirmMode::Yolo) => Decision::Allow(self.mode.grounds()),
            (_, ConfirmMode::ConfirmAll) => Decision::Ask(self.mode.grounds()),
            (Allowed::Not(why) | Allowed::By(why), ConfirmMode::ConfirmSensitive) => {
                Decision::Ask(why)
            }
        }
    }

    /// Returns why it cannot be told whether a line is one that rules are against; none when they are not about commands.
    fn beyond_rules(&self, line: &Line) -> Option<String> {
        let against = || self.rules.deny.iter().chain(&self.rules.ask);
        let has_rules = against().any(Rule::is_about_some_commands);
        if !has_rules && self.guardrails.blocked.is_empty() {
            return None;
        }
        if let Err(why) = &line.script {
            return Some(why.0.to_owned());
        }
        if !line.unread.is_empty() {
            return Some("a script in it cannot be read".to_owned());
        }
        let is_open = |program: &&Program| {
            let words = program.words.as_slice();
            let Some(first) = words.first() else { return false };
            let simple = Simple { words: words.to_vec(), ..Simple::default() };
            let is_hidden =
                program.name().is_some_and(runs_scripts) && inner(&simple) == Inner::Unknown;
            is_hidden || !is_named(first) || against().any(|rule| rule.may_touch(words))
        };
        let program = line.programs.iter().find(is_open)?;
        let text: String = exact(&program.words).chars().take(80).collect();
        Some(format!("what '{text}' runs is only known when it does"))
    }

    /// Returns whether rules allow a command line, or it only reads.
    fn allowed(&self, line: &Line, command: &CommandTarget) -> Allowed {
        // Whoever allows a line means it with the programs and settings that it has without more.
        let is_given = command.env.iter().any(|name| !is_harmless(name));
        let rule = self.rules.allow.iter().find(|rule| rule.is_line(&command.line));
        if let Some(rule) = rule.filter(|_| !is_given) {
            return Allowed::By(format!("rule {} of permissions.allow", rule.as_str()));
        }
        let script = match &line.script {
            Ok(script) => script,
            Err(why) => {
                return Allowed::Not(format!("what it does cannot be told, because {}", why.0));
            }
        };
        if !shell_is_bash() && !is_portable(&line.raw) {
            return Allowed::Not("it is written for bash, which is not installed".to_owned());
        }
        let permit = Permit {
            rules: &self.rules.allow,
            safe: &self.guardrails.safe,
            line,
            repositories: &self.guardrails.repositories,
        };
        match permit.all(script, &command.env) {
            Ok(grounds) if grounds.is_empty() => Allowed::By(READS.to_owned()),
            Ok(grounds) => Allowed::By(grounds.join(", ")),
            Err(why) => Allowed::Not(why),
        }
    }

    fn files(&self, tool: &str, kind: Kind, targets: &[Target]) -> Decision {
        let allowing = |target: &Target| match target {
            Target::Read(path) | Target::Write(path) | Target::Search(path) => {
                self.rules.allow.iter().find(|rule| rule.fits_path(tool, path))
            }
            Target::Command(_) => None,
        };
        let rules: Option<Vec<&Rule>> = targets.iter().map(allowing).collect();
        if let Some(rule) = rules.unwrap_or_default().first() {
            return Decision::Allow(format!("rule {} of permissions.allow", rule.as_str()));
        }
        match (self.mode, kind) {
            (ConfirmMode::Yolo, _) => Decision::Allow(self.mode.grounds()),
            (ConfirmMode::ConfirmSensitive, Kind::Reads) => Decision::Allow(READS.to_owned()),
            (ConfirmMode::ConfirmSensitive, Kind::Delegates) => {
                Decision::Allow("what the other agent does is judged by itself".to_owned())
            }
            (ConfirmMode::ConfirmSensitive | ConfirmMode::ConfirmAll, _) => {
                Decision::Ask(self.mode.grounds())
            }
        }
    }
}

/// Returns whether it can be told which program a word names, if not in which folder.
fn is_named(word: &Word) -> bool {
    let rest = ["~/", "$HOME/", "$PWD/"].iter().find_map(|home| word.text.strip_prefix(home));
    let is_plain = |text: &str| !text.contains(['$', '*', '?', '[', '{', '~']);
    word.is_literal() || rest.is_some_and(is_plain)
}

/// Why what only reads is allowed.
const READS: &str = "it only reads";

/// Returns what is said about a file that is off limits.
fn unwritable(path: &str) -> String {
    format!(
        "'{path}' is protected, and no tool may write it: what is there is run, obeyed or trusted outside the sandbox; the \
         user can change it by hand, or allow it with --sandbox off"
    )
}

/// Returns the rule that is about a target, as a denial or a question means it.
fn touching(rules: &[Rule], tool: &str, target: &Target) -> Option<Rule> {
    let found = match target {
        Target::Read(path) | Target::Write(path) => {
            rules.iter().find(|rule| rule.touches_path(tool, path))
        }
        Target::Search(folder) => rules.iter().find(|rule| rule.touches_folder(tool, folder)),
        Target::Command(command) => {
            let line = Line::read(&command.line, &command.folder);
            return touching_command(rules, &line);
        }
    };
    found.cloned()
}

fn touching_command(rules: &[Rule], line: &Line) -> Option<Rule> {
    let about_line = || rules.iter().find(|rule| rule.fits_command(line.raw.trim()));
    let about_part = || {
        let mut texts = line.programs.iter().flat_map(|program| spellings(&program.words));
        texts.find_map(|text| rules.iter().find(|rule| rule.fits_command(&text)))
    };
    // What a redirection does is what the tool for files would do.
    let about_file = || {
        let files = line.programs.iter().flat_map(|program| &program.redirections);
        files.into_iter().find_map(|file| {
            let tool = match file.kind {
                Redirect::Read => "read_file",
                Redirect::Write => "write_file",
                Redirect::Duplicate | Redirect::Here => return None,
            };
            let places = line.places(&file.target);
            rules.iter().find(|rule| places.iter().any(|place| rule.touches_path(tool, place)))
        })
    };
    about_line().or_else(about_part).or_else(about_file).cloned()
}
