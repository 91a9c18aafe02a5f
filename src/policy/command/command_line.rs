//! Command lines with all programs that they may run.

use super::known_variables::KnownVariables;
use super::program::{self, NestedExecution};
use crate::policy::shell::{
    self, Assignment, CommandBody, Pipeline, Redirection, RedirectionKind, ShellCommand,
    ShellScript, ShellWord, SimpleCommand, UnparsableLine, WordForm,
};

/// A command line with everything that it may run, nested commands included.
///
/// It is used for denials, and may contain more than what would run. Permissions are checked on the script itself.
#[derive(Clone, Debug)]
pub(in crate::policy) struct CommandLine {
    /// The line as it was given.
    pub raw: String,
    /// The parsed script.
    pub script: Result<ShellScript, UnparsableLine>,
    /// The scripts in it, from the outermost on.
    pub scripts: Vec<ShellScript>,
    /// The scripts in it that could not be parsed, itself included.
    pub unparsed: Vec<String>,
    /// The programs in it.
    pub programs: Vec<Program>,
    /// The possible working folders, relative to the workspace or absolute.
    pub folders: Vec<String>,
}

/// A program that a line may run.
#[derive(Clone, Debug)]
pub(in crate::policy) struct Program {
    /// Its name and its arguments.
    pub words: Vec<ShellWord>,
    /// Where it reads from and writes to.
    pub redirections: Vec<Redirection>,
}

/// The maximum nesting of scripts.
const MAX_SCRIPTS: usize = 256;

/// The maximum number of programs of a line.
const MAX_PROGRAMS: usize = 16_384;

impl CommandLine {
    /// Parses a command line that runs in a folder.
    pub(in crate::policy) fn parse(raw: &str, folder: &str) -> Self {
        let script = shell::parse_line(raw);
        let mut line = Self {
            raw: raw.to_owned(),
            scripts: script.iter().cloned().collect(),
            unparsed: script.is_err().then(|| raw.to_owned()).into_iter().collect(),
            script,
            programs: Vec::new(),
            folders: vec![folder.to_owned()],
        };
        let (mut next, mut known, mut is_known) = (0, KnownVariables::default(), true);
        while next < line.scripts.len().min(MAX_SCRIPTS) {
            let script = line.scripts[next].clone();
            next += 1;
            is_known &= known.add(&script);
            script.for_each_command(&mut |command| line.add(command, &known));
        }
        // The omitted part may run anything.
        let is_full = line.unparsed.len() > MAX_SCRIPTS || line.programs.len() > MAX_PROGRAMS;
        if next < line.scripts.len() || is_full || !is_known {
            line.script = Err(UnparsableLine("it has too many nested commands"));
            line.unparsed.insert(0, raw.to_owned());
        }
        line
    }

    fn add(&mut self, command: &ShellCommand, known: &KnownVariables) {
        let CommandBody::Simple(SimpleCommand { assignments, words }) = &command.body else {
            return self.add_simple(&SimpleCommand::default(), &command.redirections);
        };
        for words in known.possible_words(words).into_iter().chain(printed_words(words)) {
            if self.programs.len() > MAX_PROGRAMS {
                return;
            }
            let simple = SimpleCommand { assignments: assignments.clone(), words };
            self.add_simple(&simple, &command.redirections);
        }
    }

    fn add_simple(&mut self, simple: &SimpleCommand, redirections: &[Redirection]) {
        let all = program::all_programs(simple);
        if all.iter().any(|part| program::nested_execution(part) == NestedExecution::Input) {
            let here = redirections.iter().filter(|to| to.kind == RedirectionKind::HereDocument);
            here.for_each(|to| self.add_script(&to.target.text));
        }
        for (index, part) in all.into_iter().enumerate() {
            self.follow_cd(&part.words);
            match program::nested_execution(&part) {
                NestedExecution::Script(script) => self.scripts.push(script),
                NestedExecution::Unknown => {
                    program::possible_scripts(&part.words)
                        .iter()
                        .for_each(|text| self.add_script(text));
                }
                NestedExecution::Nothing
                | NestedExecution::Programs(_)
                | NestedExecution::Input => {}
            }
            // What a program writes by a redirection is its own, not that of what it runs.
            let own = if index == 0 { redirections.to_vec() } else { Vec::new() };
            self.programs.push(Program { words: part.words, redirections: own });
        }
    }

    /// Adds a script that may run.
    fn add_script(&mut self, text: &str) {
        match shell::parse_line(text) {
            Ok(script) => self.scripts.push(script),
            Err(_) if self.unparsed.len() > MAX_SCRIPTS => {}
            Err(_) => self.unparsed.push(text.to_owned()),
        }
    }

    /// Follows a change of the folder, by the shell or by a program that runs another one elsewhere.
    fn follow_cd(&mut self, words: &[ShellWord]) {
        let entered = match program::program_name(words) {
            // They double with each step; after so many it may be anywhere.
            Some("cd" | "pushd" | "env" | "find") if self.folders.len() >= MAX_SCRIPTS => {
                vec!["$more".to_owned()]
            }
            Some("cd" | "pushd") => {
                let target = words[1..].iter().find(|word| !word.text.starts_with('-'));
                target.map_or_else(|| vec![HOME.to_owned()], |word| self.possible_folders(word))
            }
            Some("env") => {
                let folders = words.iter().enumerate().filter_map(|(at, word)| {
                    let glued = ["--chdir=", "-C"].iter().find_map(|option| {
                        word.text.strip_prefix(option).filter(|folder| !folder.is_empty())
                    });
                    match glued {
                        Some(folder) => Some(ShellWord { text: folder.to_owned(), ..word.clone() }),
                        None if matches!(&*word.text, "-C" | "--chdir") => {
                            words.get(at + 1).cloned()
                        }
                        None => None,
                    }
                });
                let folders: Vec<ShellWord> = folders.collect();
                folders.iter().flat_map(|word| self.possible_folders(word)).collect()
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
    fn possible_folders(&self, word: &ShellWord) -> Vec<String> {
        let mut all = self.possible_paths(word);
        if !word.is_literal() {
            // What a pattern fits, or what braces become.
            all.push("$folder".to_owned());
        }
        // Behind a link, `..` may be another folder than the one before it.
        if word.text.contains("..") {
            all.extend(self.folders.iter().map(|folder| rebase_folder(folder, &word.text)));
        }
        all
    }

    /// Calls `see` for every pipeline in it.
    pub(in crate::policy) fn for_each_pipeline(&self, see: &mut dyn FnMut(&Pipeline)) {
        for script in &self.scripts {
            script.pipelines.iter().for_each(&mut *see);
            script.for_each_command(&mut |command| {
                if let CommandBody::Group { scripts, .. } = &command.body {
                    scripts.iter().flat_map(|script| &script.pipelines).for_each(&mut *see);
                }
                for word in words_of(command) {
                    word.scripts.iter().flat_map(|script| &script.pipelines).for_each(&mut *see);
                }
            });
        }
    }

    /// Returns the places that a word may mean as a path, without `.` and `..` where they can be resolved. The home is
    /// [`HOME`].
    pub(in crate::policy) fn possible_paths(&self, word: &ShellWord) -> Vec<String> {
        let text = word.text.as_str();
        let is_literal = word.form < WordForm::Computed;
        // `${HOME:?}` and its like are the home as well.
        if let (false, Some(rest)) = (is_literal, text.strip_prefix("${HOME"))
            && let Some((_, rest)) = rest.split_once('}').filter(|_| !rest.starts_with(is_name))
        {
            return vec![normalize_path(&format!("{HOME}{rest}"))];
        }
        match text.chars().next() {
            Some('/') => vec![normalize_path(text)],
            Some('~') if !is_literal => {
                let rest = text.split_once('/').map_or("", |(_, rest)| rest);
                vec![normalize_path(&format!("{HOME}/{rest}"))]
            }
            Some('$') if !is_literal && text.starts_with(HOME) => vec![normalize_path(text)],
            // Behind quotes it is a name like any other.
            Some('$') if is_literal => vec![format!("\\{text}")],
            _ => self.folders.iter().map(|folder| join_path(folder, text)).collect(),
        }
    }
}

/// Returns the words of a command whose name is printed by another one that names it: `$(echo ls)`, `$(which ls)`.
fn printed_words(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let (first, rest) = words.split_first()?;
    let [script] = first.scripts.as_slice() else { return None };
    let [pipeline] = script.pipelines.as_slice() else { return None };
    let [ShellCommand { body: CommandBody::Simple(simple), .. }] = pipeline.commands.as_slice()
    else {
        return None;
    };
    let is_printer = matches!(
        program::program_name(&simple.words),
        Some("echo" | "printf" | "which" | "command" | "type")
    );
    let named = simple.words.iter().skip(1).filter(|word| !word.text.starts_with(['-', '%']));
    let named: Vec<ShellWord> = named.cloned().collect();
    (is_printer && !named.is_empty()).then(|| [named.as_slice(), rest].concat())
}

/// The home of the user.
pub(super) const HOME: &str = "$HOME";

impl Program {
    /// Returns the name of the program, without its folder; `None` if it is unknown.
    pub(in crate::policy) fn name(&self) -> Option<&str> {
        program::program_name(&self.words)
    }
}

/// Returns all words of a command that are its own.
pub(super) fn words_of(command: &ShellCommand) -> Vec<&ShellWord> {
    let mut words: Vec<&ShellWord> = match &command.body {
        CommandBody::Simple(SimpleCommand { assignments, words }) => {
            let values = assignments.iter().flat_map(|Assignment { values, .. }| values);
            values.chain(words).collect()
        }
        CommandBody::Group { words, .. } => words.iter().collect(),
        CommandBody::Function { .. } => Vec::new(),
    };
    words.extend(command.redirections.iter().map(|redirection| &redirection.target));
    words
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns a folder as seen from another one, with every `..` as it stands there.
pub(in crate::policy) fn rebase_folder(from: &str, folder: &str) -> String {
    match folder.starts_with('/') || from.is_empty() {
        true => folder.to_owned(),
        false => format!("{from}/{folder}"),
    }
}

/// Returns a path below a folder, or the path itself when it is absolute.
fn join_path(folder: &str, path: &str) -> String {
    match path.starts_with('/') || folder.is_empty() {
        true => normalize_path(path),
        false => normalize_path(&format!("{folder}/{path}")),
    }
}

/// Takes `.` and `..` back without looking at the files.
pub(super) fn normalize_path(path: &str) -> String {
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
        CommandLine::parse(line, "")
            .programs
            .iter()
            .map(text)
            .filter(|text| !text.is_empty())
            .collect()
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
        let line = CommandLine::parse("cd a && cd ../b; (cd /; x)", "w");
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
            assert_eq!(normalize_path(path), plain);
        }
    }
}
