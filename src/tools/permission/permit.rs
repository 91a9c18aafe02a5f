//! Whether a command line is allowed: all of it, part by part.

use super::command::{Inner, Line, inner, is_harmless, name, only_reads};
use super::rules::{Rule, exact};
use super::shell::{Assignment, Body, Command, Form, Redirect, Redirection, Script, Simple, Word};

/// What may allow the parts of a line.
pub(super) struct Permit<'a> {
    /// The permissions of the user.
    pub rules: &'a [Rule],
    /// How commands begin that need no confirmation.
    pub safe: &'a [String],
    /// The line.
    pub line: &'a Line,
}

/// Files to which every command may write.
const OPEN: [&str; 5] = ["/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty", "/dev/zero"];

impl Permit<'_> {
    /// Returns by what a whole line is allowed, besides that parts of it only read; with these variables set.
    ///
    /// # Errors
    ///
    /// Fails with the first part that nothing allows.
    pub(super) fn all(&self, script: &Script, env: &[String]) -> Result<Vec<String>, String> {
        if let Some(name) = env.iter().find(|name| !is_harmless(name)) {
            return Err(format!("it sets the variable {name}"));
        }
        let mut grounds = Vec::new();
        self.script(script, &mut grounds, 0)?;
        grounds.sort();
        grounds.dedup();
        Ok(grounds)
    }

    fn script(&self, script: &Script, grounds: &mut Vec<String>, depth: u32) -> Result<(), String> {
        if depth > 8 {
            return Err("its commands are nested too deeply".to_owned());
        }
        let mut first = Ok(());
        script.each(&mut |command| {
            if first.is_ok() {
                first = self.command(command, grounds, depth);
            }
        });
        first
    }

    fn command(
        &self,
        command: &Command,
        grounds: &mut Vec<String>,
        depth: u32,
    ) -> Result<(), String> {
        command.redirections.iter().try_for_each(|to| self.redirection(to, grounds))?;
        match &command.body {
            Body::Simple(simple) => self.simple(simple, grounds, depth),
            Body::Group { words, .. } if words.iter().any(|word| word.form == Form::Evaluated) => {
                Err("it has an expression in which commands may be hidden".to_owned())
            }
            Body::Group { variable: Some(name), .. } if !is_harmless(name) => {
                Err(format!("it sets the variable {name}"))
            }
            // What is in them is looked at by itself.
            Body::Group { .. } | Body::Function { .. } => Ok(()),
        }
    }

    fn simple(&self, simple: &Simple, grounds: &mut Vec<String>, depth: u32) -> Result<(), String> {
        let Simple { assignments, words } = simple;
        let evaluated = |set: &Assignment| set.values.iter().any(|v| v.form == Form::Evaluated);
        let set = assignments.iter().find(|set| !is_harmless(&set.name) || evaluated(set));
        let text = exact(words);
        if let Some(set) = set {
            let value: Vec<String> = assignments
                .iter()
                .map(|set| format!("{}={}", set.name, exact(&set.values)))
                .collect();
            return match self.rule(&format!("{} {text}", value.join(" ")), grounds) {
                true => Ok(()),
                false => Err(format!("it sets the variable {}", set.name)),
            };
        }
        if words.is_empty() || self.is_named(words, &text, grounds) {
            return Ok(());
        }
        let changes = || Err(format!("'{}' may change something", shortened(&text)));
        match inner(simple) {
            Inner::Nothing if only_reads(simple) => Ok(()),
            Inner::Programs(programs) => {
                // What looks for files can do something with them by itself.
                if name(words) == Some("find") && !only_reads(simple) {
                    return changes();
                }
                if let [program] = programs.as_slice()
                    && is_bared(words, program)
                {
                    return Err("it takes variables away that keep programs from harm".to_owned());
                }
                programs.iter().try_for_each(|program| match depth {
                    0..8 => self.simple(program, grounds, depth + 1),
                    _ => changes(),
                })
            }
            Inner::Script(script) => self.script(&script, grounds, depth + 1),
            Inner::Nothing | Inner::Input => changes(),
            Inner::Unknown => Err(format!("what '{}' runs cannot be told", shortened(&text))),
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
                    _ if to.target.scripts.is_empty() => Err(format!("it reads '{text}'")),
                    // The output of a command, which is looked at by itself.
                    _ => Ok(()),
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

/// Returns whether a program is run by these words without variables that it would have had: `env -i`, `exec -c`. They
/// may be what keeps it from running something.
fn is_bared(words: &[Word], program: &Simple) -> bool {
    let own = &words[1..words.len().saturating_sub(program.words.len()).max(1)];
    let begins = |options: &[&str]| {
        own.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match name(words) {
        Some("env") => begins(&["-i", "-u", "--i", "--u"]) || own.iter().any(|w| w.text == "-"),
        Some("exec") => begins(&["-c"]),
        _ => false,
    }
}

/// Returns the beginning of a text that may be long.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
