//! Whether a command line is allowed: all of it, part by part.

use super::command::{
    Inner, Line, below, git_folders, inner, is_harmless, is_own, is_plain_setting, name, only_reads,
};
use super::repository::Repositories;
use super::rules::{Rule, exact};
use super::shell::{
    Assignment, Body, Command, Form, PIPED, Redirect, Redirection, Script, Simple, Word,
};

/// What may allow the parts of a line.
pub(super) struct Permit<'a> {
    /// The permissions of the user.
    pub rules: &'a [Rule],
    /// How commands begin that need no confirmation.
    pub safe: &'a [String],
    /// The line.
    pub line: &'a Line,
    /// The repositories in which it runs.
    pub repositories: &'a Repositories,
}

/// Files to which every command may write. `/dev/stdout` is not among them: it is whatever file stands behind it, which
/// is then written anew.
const OPEN: [&str; 2] = ["/dev/null", "/dev/zero"];

/// Where in a line a command stands.
#[derive(Clone, Copy, Default)]
struct Place {
    /// In how many others.
    depth: u32,
    /// Whether it is given variables that it may read, whose names say nothing.
    is_given: bool,
}

impl Place {
    fn inside(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

impl Permit<'_> {
    /// Returns by what a whole line is allowed, besides that parts of it only read; with these variables set.
    ///
    /// # Errors
    ///
    /// Fails with the first part that nothing allows.
    pub(super) fn all(&self, script: &Script, env: &[String]) -> Result<Vec<String>, String> {
        if let Some(name) = env.iter().find(|name| has_effects(name)) {
            return Err(format!("it sets the variable {name}"));
        }
        let is_given = env.iter().any(|name| !is_harmless(name));
        let mut grounds = Vec::new();
        self.script(script, &mut grounds, Place { depth: 0, is_given })?;
        grounds.sort();
        grounds.dedup();
        Ok(grounds)
    }

    fn script(
        &self,
        script: &Script,
        grounds: &mut Vec<String>,
        place: Place,
    ) -> Result<(), String> {
        if place.depth > 8 {
            return Err("its commands are nested too deeply".to_owned());
        }
        let mut first = Ok(());
        script.each(&mut |command| {
            if first.is_ok() {
                first = self.command(command, grounds, place);
            }
        });
        first
    }

    fn command(
        &self,
        command: &Command,
        grounds: &mut Vec<String>,
        place: Place,
    ) -> Result<(), String> {
        command.redirections.iter().try_for_each(|to| self.redirection(to, grounds))?;
        match &command.body {
            Body::Simple(simple) => self.simple(simple, grounds, place),
            Body::Group { words, .. } if words.iter().any(|word| word.form == Form::Evaluated) => {
                Err("it has an expression in which commands may be hidden".to_owned())
            }
            Body::Group { variable: Some(name), .. } if has_effects(name) => {
                Err(format!("it sets the variable {name}"))
            }
            // What is in them is looked at by itself.
            Body::Group { .. } | Body::Function { .. } => Ok(()),
        }
    }

    fn simple(
        &self,
        simple: &Simple,
        grounds: &mut Vec<String>,
        place: Place,
    ) -> Result<(), String> {
        let Simple { assignments, words } = simple;
        // In a list, what stands in brackets at the beginning of a value is evaluated.
        let evaluated = |set: &Assignment| {
            let is_subscript = |value: &Word| set.is_list && value.text.contains('[');
            set.values.iter().any(|value| value.form == Form::Evaluated || is_subscript(value))
        };
        let set = assignments.iter().find(|set| has_effects(&set.name) || evaluated(set));
        let text = exact(words);
        if let Some(set) = set {
            let value: Vec<String> = assignments
                .iter()
                .map(|set| format!("{}={}", set.name, exact(&set.values)))
                .collect();
            let line = format!("{} {text}", value.join(" "));
            return match !place.is_given && self.rule(&line, grounds) {
                true => Ok(()),
                false => Err(format!("it sets the variable {}", set.name)),
            };
        }
        let is_given = place.is_given || assignments.iter().any(|set| !is_harmless(&set.name));
        if words.is_empty() {
            return Ok(());
        }
        if self.is_named(words, &text, grounds) {
            return match is_given {
                true => {
                    Err(format!("'{}' may read the variables that it is given", shortened(&text)))
                }
                false => Ok(()),
            };
        }
        let place = Place { is_given, ..place.inside() };
        let changes = || Err(format!("'{}' may change something", shortened(&text)));
        if !is_understood(words) {
            return changes();
        }
        match inner(simple) {
            Inner::Nothing if only_reads(simple) => self.repository(words),
            Inner::Programs(programs) => {
                // What looks for files can do something with them by itself.
                if name(words) == Some("find") && !only_reads(simple) {
                    return changes();
                }
                if let [program] = programs.as_slice()
                    && is_bared(words, program)
                {
                    return Err(
                        "it changes what a program is told besides its arguments".to_owned()
                    );
                }
                programs.iter().try_for_each(|program| match place.depth {
                    ..=8 => self.simple(program, grounds, place),
                    _ => changes(),
                })
            }
            Inner::Script(_) if !reads_alike(words) => {
                Err(format!("what '{}' runs cannot be told", shortened(&text)))
            }
            Inner::Script(script) => self.script(&script, grounds, place),
            Inner::Nothing | Inner::Input => changes(),
            Inner::Unknown => Err(format!("what '{}' runs cannot be told", shortened(&text))),
        }
    }

    /// Checks that git, which was found to only read, runs nothing that a repository names.
    fn repository(&self, words: &[Word]) -> Result<(), String> {
        if name(words) != Some("git") || words[1].text == "--version" {
            return Ok(());
        }
        let mut folders = self.line.folders.clone();
        for folder in git_folders(&words[1..]).map(|(folders, _)| folders).unwrap_or_default() {
            let is_known = folder.is_literal() && !folder.text.starts_with('~');
            let text = if is_known { folder.text.as_str() } else { "$" };
            let more: Vec<String> = folders.iter().map(|from| below(from, text)).collect();
            folders.extend(more);
        }
        match self.repositories.runs(&folders) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Returns whether a rule or the list of safe commands names a command.
    fn is_named(&self, words: &[Word], text: &str, grounds: &mut Vec<String>) -> bool {
        // Whoever names a program means the one of that name, not what a variable may hold.
        if !words[0].is_literal() || words.iter().any(|word| word.form == Form::Evaluated) {
            return false;
        }
        let begins = |safe: &&String| {
            text.strip_prefix(safe.trim())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        if let Some(safe) = self.safe.iter().filter(|safe| !safe.trim().is_empty()).find(begins) {
            grounds.push(format!("commands.safe_commands has {safe}"));
            return true;
        }
        self.rule(text, grounds)
    }

    fn rule(&self, text: &str, grounds: &mut Vec<String>) -> bool {
        let found = self.rules.iter().find(|rule| rule.fits_command(text));
        grounds.extend(found.map(|rule| format!("rule {} of permissions.allow", rule.as_str())));
        found.is_some()
    }

    fn redirection(&self, to: &Redirection, grounds: &mut Vec<String>) -> Result<(), String> {
        let text = to.target.text.as_str();
        match to.kind {
            Redirect::Duplicate => Ok(()),
            Redirect::Here if to.target.form < Form::Evaluated => Ok(()),
            // The shell makes connections of these.
            Redirect::Read if !text.starts_with("/dev/tcp") && !text.starts_with("/dev/udp") => {
                match to.target.form {
                    Form::Literal | Form::Pattern | Form::Computed if to.target.is_literal() => {
                        Ok(())
                    }
                    // The output of a command, which is looked at by itself.
                    _ if text == PIPED => Ok(()),
                    _ => Err(format!("it reads '{text}'")),
                }
            }
            Redirect::Write if to.target.is_literal() && OPEN.contains(&text) => Ok(()),
            Redirect::Write if to.target.is_literal() => {
                let places = self.line.places(&to.target);
                let rule = |place: &String| {
                    self.rules.iter().find(|rule| rule.fits_path("write_file", place))
                };
                let rules: Option<Vec<&Rule>> = places.iter().map(rule).collect();
                match rules.as_deref() {
                    Some([rule, ..]) => {
                        grounds.push(format!("rule {} of permissions.allow", rule.as_str()));
                        Ok(())
                    }
                    Some([]) | None => Err(format!("it writes '{text}'")),
                }
            }
            Redirect::Here | Redirect::Read | Redirect::Write => {
                Err(format!("what it does with '{text}' cannot be told"))
            }
        }
    }
}

/// Returns whether setting a variable may have an effect by itself.
fn has_effects(variable: &str) -> bool {
    !is_harmless(variable) && !is_own(variable)
}

/// Returns whether a program is run by these words with another environment or under another name than it would be by
/// itself: `env -i`, `exec -c`, `exec -a`. Variables may be what keeps it from running something, and some programs do
/// what their name says.
fn is_bared(words: &[Word], program: &Simple) -> bool {
    let own = &words[1..words.len().saturating_sub(program.words.len()).max(1)];
    let begins = |options: &[&str]| {
        own.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match name(words) {
        Some("env") => begins(&["-i", "-u", "--i", "--u"]) || own.iter().any(|w| w.text == "-"),
        Some("exec") => begins(&["-"]),
        _ => false,
    }
}

/// Returns whether it is known what a program makes of the words that it runs. `busybox` has commands of its own, and a
/// shell may be told to read a script in other ways: `bash -k` takes arguments for variables.
fn is_understood(words: &[Word]) -> bool {
    match name(words) {
        Some("alias" | "busybox" | "toybox" | "watch") => false,
        Some("bash" | "sh" | "dash" | "ash") => has_plain_options(&words[1..]),
        _ => true,
    }
}

/// Returns whether a shell is given a script with `-c`, and nothing before it but settings for errors.
fn has_plain_options(words: &[Word]) -> bool {
    let mut words = words.iter();
    let mut is_script = false;
    while let Some(word) = words.next().filter(|word| word.is_literal()) {
        let text = word.text.as_str();
        let Some(letters) = text.strip_prefix('-') else { return is_script };
        if letters.is_empty() || !letters.chars().all(|letter| "ceufxo".contains(letter)) {
            return false;
        }
        is_script |= letters.contains('c');
        for _ in letters.matches('o') {
            let setting = words.next().filter(|word| word.is_literal());
            if !setting.is_some_and(|word| is_plain_setting(&word.text)) {
                return false;
            }
        }
    }
    false
}

/// Returns whether the shell that runs a script, if it is one, reads it as it was read here.
fn reads_alike(words: &[Word]) -> bool {
    match name(words) {
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
    const ODD: [&str; 14] = [
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
    !ODD.iter().any(|odd| script.contains(odd))
}

/// Returns the beginning of a text that may be long.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
