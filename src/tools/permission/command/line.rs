//! A command line with everything that it may run.

use super::known::Known;
use super::program::{self, Inner};
use crate::tools::permission::shell::{
    self, Assignment, Body, Command, Form, Pipeline, Redirect, Redirection, Script, Simple,
    Unreadable, Word,
};

/// A command line with everything that it may run, those parts included that are hidden in others.
///
/// What is gathered here is meant for saying no: it may hold more than what would run. For saying yes, the script itself
/// is walked.
#[derive(Clone, Debug)]
pub(in crate::tools::permission) struct Line {
    /// The line as it was given.
    pub raw: String,
    /// What it says, if it could be read.
    pub script: Result<Script, Unreadable>,
    /// The scripts in it, from the outermost on.
    pub scripts: Vec<Script>,
    /// The scripts in it that could not be read, itself included.
    pub unread: Vec<String>,
    /// The programs in it.
    pub programs: Vec<Program>,
    /// Folders in which it may be while it runs, relative to the workspace or absolute.
    pub folders: Vec<String>,
}

/// A program that a line may run.
#[derive(Clone, Debug)]
pub(in crate::tools::permission) struct Program {
    /// Its name and its arguments.
    pub words: Vec<Word>,
    /// Where it reads from and writes to.
    pub redirections: Vec<Redirection>,
}

/// Scripts within scripts that are looked into at the most.
const MOST: usize = 256;

/// Programs that are kept of one line.
const PROGRAMS: usize = 16_384;

impl Line {
    /// Reads a command line that runs in a folder.
    pub(in crate::tools::permission) fn read(raw: &str, folder: &str) -> Self {
        let script = shell::read(raw);
        let mut line = Self {
            raw: raw.to_owned(),
            scripts: script.iter().cloned().collect(),
            unread: script.is_err().then(|| raw.to_owned()).into_iter().collect(),
            script,
            programs: Vec::new(),
            folders: vec![folder.to_owned()],
        };
        let (mut next, mut known, mut is_known) = (0, Known::default(), true);
        while next < line.scripts.len().min(MOST) {
            let script = line.scripts[next].clone();
            next += 1;
            is_known &= known.add(&script);
            script.each(&mut |command| line.add(command, &known));
        }
        // What was left out may be anything.
        let is_full = line.unread.len() > MOST || line.programs.len() > PROGRAMS;
        if next < line.scripts.len() || is_full || !is_known {
            line.script = Err(Unreadable("it has too much inside of it"));
            line.unread.insert(0, raw.to_owned());
        }
        line
    }

    fn add(&mut self, command: &Command, known: &Known) {
        let Body::Simple(Simple { assignments, words }) = &command.body else {
            return self.add_simple(&Simple::default(), &command.redirections);
        };
        for words in known.spelled(words).into_iter().chain(printed(words)) {
            if self.programs.len() > PROGRAMS {
                return;
            }
            let simple = Simple { assignments: assignments.clone(), words };
            self.add_simple(&simple, &command.redirections);
        }
    }

    fn add_simple(&mut self, simple: &Simple, redirections: &[Redirection]) {
        let all = program::all(simple);
        if all.iter().any(|part| program::inner(part) == Inner::Input) {
            let here = redirections.iter().filter(|to| to.kind == Redirect::Here);
            here.for_each(|to| self.look_into(&to.target.text));
        }
        for (index, part) in all.into_iter().enumerate() {
            self.enter(&part.words);
            match program::inner(&part) {
                Inner::Script(script) => self.scripts.push(script),
                Inner::Unknown => {
                    program::guessed(&part.words).iter().for_each(|text| self.look_into(text));
                }
                Inner::Nothing | Inner::Programs(_) | Inner::Input => {}
            }
            // What a program writes by a redirection is its own, not that of what it runs.
            let own = if index == 0 { redirections.to_vec() } else { Vec::new() };
            self.programs.push(Program { words: part.words, redirections: own });
        }
    }

    /// Adds a script that may be run.
    fn look_into(&mut self, text: &str) {
        match shell::read(text) {
            Ok(script) => self.scripts.push(script),
            Err(_) if self.unread.len() > MOST => {}
            Err(_) => self.unread.push(text.to_owned()),
        }
    }

    /// Follows a change of the folder, by the shell or by a program that runs another one elsewhere.
    fn enter(&mut self, words: &[Word]) {
        let entered = match program::name(words) {
            // They double with each step; after so many it may be anywhere.
            Some("cd" | "pushd" | "env" | "find") if self.folders.len() >= MOST => {
                vec!["$more".to_owned()]
            }
            Some("cd" | "pushd") => {
                let target = words[1..].iter().find(|word| !word.text.starts_with('-'));
                target.map_or_else(|| vec![HOME.to_owned()], |word| self.entered(word))
            }
            Some("env") => {
                let folders = words.iter().enumerate().filter_map(|(at, word)| {
                    let glued = ["--chdir=", "-C"].iter().find_map(|option| {
                        word.text.strip_prefix(option).filter(|folder| !folder.is_empty())
                    });
                    match glued {
                        Some(folder) => Some(Word { text: folder.to_owned(), ..word.clone() }),
                        None if matches!(&*word.text, "-C" | "--chdir") => {
                            words.get(at + 1).cloned()
                        }
                        None => None,
                    }
                });
                let folders: Vec<Word> = folders.collect();
                folders.iter().flat_map(|word| self.entered(word)).collect()
            }
            // The folder of what it finds.
            Some("find")
                if words.iter().any(|word| matches!(&*word.text, "-execdir" | "-okdir")) =>
            {
                vec!["$found".to_owned()]
            }
            _ => return,
        };
        self.folders.extend(entered);
        self.folders.sort();
        self.folders.dedup();
    }

    /// Returns the folders that a word may lead to.
    fn entered(&self, word: &Word) -> Vec<String> {
        let mut all = self.places(word);
        if !word.is_literal() {
            // What a pattern fits, or what braces become.
            all.push("$folder".to_owned());
        }
        // Behind a link, `..` may be another folder than the one before it.
        if word.text.contains("..") {
            all.extend(self.folders.iter().map(|folder| below(folder, &word.text)));
        }
        all
    }

    /// Calls `see` for every pipeline in it.
    pub(in crate::tools::permission) fn each_pipeline(&self, see: &mut dyn FnMut(&Pipeline)) {
        for script in &self.scripts {
            script.pipelines.iter().for_each(&mut *see);
            script.each(&mut |command| {
                if let Body::Group { scripts, .. } = &command.body {
                    scripts.iter().flat_map(|script| &script.pipelines).for_each(&mut *see);
                }
                for word in words_of(command) {
                    word.scripts.iter().flat_map(|script| &script.pipelines).for_each(&mut *see);
                }
            });
        }
    }

    /// Returns the places that a word may mean as a path, without `.` and `..` where that can be told. The home is
    /// [`HOME`].
    pub(in crate::tools::permission) fn places(&self, word: &Word) -> Vec<String> {
        let text = word.text.as_str();
        let is_literal = word.form < Form::Computed;
        // `${HOME:?}` and its like are the home as well.
        if let (false, Some(rest)) = (is_literal, text.strip_prefix("${HOME"))
            && let Some((_, rest)) = rest.split_once('}').filter(|_| !rest.starts_with(is_name))
        {
            return vec![lexical(&format!("{HOME}{rest}"))];
        }
        match text.chars().next() {
            Some('/') => vec![lexical(text)],
            Some('~') if !is_literal => {
                let rest = text.split_once('/').map_or("", |(_, rest)| rest);
                vec![lexical(&format!("{HOME}/{rest}"))]
            }
            Some('$') if !is_literal && text.starts_with(HOME) => vec![lexical(text)],
            // Behind quotes it is a name like any other.
            Some('$') if is_literal => vec![format!("\\{text}")],
            _ => self.folders.iter().map(|folder| join(folder, text)).collect(),
        }
    }
}

/// Returns the words of a command whose name is printed by another one that names it: `$(echo ls)`, `$(which ls)`.
fn printed(words: &[Word]) -> Option<Vec<Word>> {
    let (first, rest) = words.split_first()?;
    let [script] = first.scripts.as_slice() else { return None };
    let [pipeline] = script.pipelines.as_slice() else { return None };
    let [Command { body: Body::Simple(simple), .. }] = pipeline.stages.as_slice() else {
        return None;
    };
    let is_printer = matches!(
        program::name(&simple.words),
        Some("echo" | "printf" | "which" | "command" | "type")
    );
    let named = simple.words.iter().skip(1).filter(|word| !word.text.starts_with(['-', '%']));
    let named: Vec<Word> = named.cloned().collect();
    (is_printer && !named.is_empty()).then(|| [named.as_slice(), rest].concat())
}

/// The home of the user.
pub(super) const HOME: &str = "$HOME";

impl Program {
    /// Returns the name of the program, without its folder; none when it cannot be told.
    pub(in crate::tools::permission) fn name(&self) -> Option<&str> {
        program::name(&self.words)
    }
}

/// Returns all words of a command that are its own.
pub(super) fn words_of(command: &Command) -> Vec<&Word> {
    let mut words: Vec<&Word> = match &command.body {
        Body::Simple(Simple { assignments, words }) => {
            let values = assignments.iter().flat_map(|Assignment { values, .. }| values);
            values.chain(words).collect()
        }
        Body::Group { words, .. } => words.iter().collect(),
        Body::Function { .. } => Vec::new(),
    };
    words.extend(command.redirections.iter().map(|redirection| &redirection.target));
    words
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns a folder as seen from another one, with every `..` as it stands there.
pub(in crate::tools::permission) fn below(from: &str, folder: &str) -> String {
    match folder.starts_with('/') || from.is_empty() {
        true => folder.to_owned(),
        false => format!("{from}/{folder}"),
    }
}

/// Returns a path below a folder, or the path itself when it is absolute.
fn join(folder: &str, path: &str) -> String {
    match path.starts_with('/') || folder.is_empty() {
        true => lexical(path),
        false => lexical(&format!("{folder}/{path}")),
    }
}

/// Takes `.` and `..` back without looking at the files.
pub(super) fn lexical(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&(HOME | "..")) => parts.push(".."),
                Some(_) => {
                    parts.pop();
                }
                None if is_absolute => {}
                None => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if is_absolute { format!("/{joined}") } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(line: &str) -> Vec<String> {
        let text = |program: &Program| -> String {
            program.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
        };
        Line::read(line, "").programs.iter().map(text).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn hidden_programs_are_found() {
        for line in [
            "rm x",
            "sh -c 'rm x'",
            "bash -c \"sh -c 'rm x'\"",
            "env A=b nohup rm x",
            "timeout --odd 5 rm x",
            "sudo -u y rm x",
            "xargs -Z rm x",
            "r=rm; $r x",
            "c='rm x'; $c",
            "{rm,x}",
            "bash <<< 'rm x'",
            "bash << E\nrm x\nE",
            "find . -exec rm x \\;",
            "eval 'rm x'",
            "f() { rm x; }",
            "sudo sh -c 'rm x'",
        ] {
            assert!(programs(line).contains(&"rm x".to_owned()), "{line}: {:?}", programs(line));
        }
    }

    #[test]
    fn folders_are_followed() {
        let line = Line::read("cd a && cd ../b; (cd /; x)", "w");
        for folder in ["w", "w/a", "w/b", "/"] {
            assert!(line.folders.iter().any(|found| found == folder), "{:?}", line.folders);
        }
    }

    #[test]
    fn paths_are_made_plain() {
        for (path, plain) in [
            ("/usr/../etc/.", "/etc"),
            ("/..", "/"),
            ("a/../..", ".."),
            ("$HOME/..", "$HOME/.."),
            ("./", ""),
        ] {
            assert_eq!(lexical(path), plain);
        }
    }
}
