//! Command lines with all programs that they may run.

use super::known_variables::KnownVariables;
use super::options::{is_in, option_values};
use super::program::{NestedExecution, all_programs, nested_execution, possible_scripts};
use crate::policy::shell::{
    self, CommandKind, Redirection, RedirectionKind, ShellCommand, ShellPipeline, ShellScript,
    ShellWord, UnparsableLine, WordForm, is_name,
};

/// A command line with all programs and scripts that it may run, including nested ones.
///
/// It is used for denials, and may contain more programs than would run. Permissions are checked on the script itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct CommandLine {
    /// The original text of the line.
    pub raw: String,
    /// The parsed script.
    pub script: Result<ShellScript, UnparsableLine>,
    /// The scripts in the line, from the outermost on.
    pub scripts: Vec<ShellScript>,
    /// The texts of scripts in the line that could not be parsed, possibly of the whole line.
    pub unparsed: Vec<String>,
    /// The programs that the line may run, with their redirections.
    pub programs: Vec<ShellCommand>,
    /// The possible working folders, relative to the workspace or absolute.
    pub folders: Vec<String>,
}

/// The maximum number of scripts of a line.
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
            script.commands().into_iter().for_each(|command| line.add(command, &known));
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
        let is_simple = command.kind == CommandKind::Simple;
        let words = if is_simple { command.words.as_slice() } else { &[] };
        for words in known.possible_words(words).into_iter().chain(printed_words(words)) {
            if self.programs.len() > MAX_PROGRAMS {
                return;
            }
            let redirections = command.redirections.clone();
            self.add_program(&ShellCommand { redirections, ..ShellCommand::program(&words) });
        }
    }

    /// Adds a program, and everything that it may run.
    fn add_program(&mut self, program: &ShellCommand) {
        // Programs started by a program share its input, but the files that it writes by redirection count for itself
        // alone.
        let read = program.redirections.iter().filter(|to| to.kind != RedirectionKind::Write);
        let read: Vec<Redirection> = read.cloned().collect();
        let here = read.iter().filter(|to| to.kind == RedirectionKind::HereDocument);
        let mut here: Vec<String> = here.map(|to| to.target.text.clone()).collect();
        for (index, mut part) in all_programs(program).into_iter().enumerate() {
            self.follow_cd(&part);
            match nested_execution(&part) {
                NestedExecution::Script(script) => self.scripts.push(script),
                NestedExecution::Input => here.drain(..).for_each(|text| self.add_script(&text)),
                NestedExecution::Unknown => {
                    possible_scripts(&part).iter().for_each(|text| self.add_script(text));
                }
                NestedExecution::Nothing | NestedExecution::Programs(_) => {}
            }
            if index > 0 {
                part.redirections.clone_from(&read);
            }
            self.programs.push(part);
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

    /// Follows a change of the folder by the shell, or by a program that runs another one elsewhere.
    fn follow_cd(&mut self, command: &ShellCommand) {
        let words = command.words.as_slice();
        let entered = match command.name() {
            // The possible folders double with each step. After this many, the folder is unknown.
            Some("cd" | "pushd" | "env" | "find") if self.folders.len() >= MAX_SCRIPTS => {
                vec!["$more".to_owned()]
            }
            Some("cd" | "pushd") => {
                let target = words[1..].iter().find(|word| !word.text.starts_with('-'));
                target.map_or_else(|| vec![HOME.to_owned()], |word| self.possible_folders(word))
            }
            Some("env") => {
                let folders = option_values(words, &["-C", "--chdir"]);
                folders.iter().flat_map(|word| self.possible_folders(word)).collect()
            }
            // The folder of a file that `find` finds.
            Some("find") if words.iter().any(|word| is_in(&word.text, "-execdir -okdir")) => {
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
            // The match of a pattern, or the expansion of braces.
            all.push("$folder".to_owned());
        }
        // After a link, `..` may lead to a folder other than the one before the link.
        if word.text.contains("..") {
            all.extend(self.folders.iter().map(|folder| rebase_folder(folder, &word.text)));
        }
        all
    }

    /// Returns every pipeline in the line.
    pub(super) fn pipelines(&self) -> impl Iterator<Item = &ShellPipeline> {
        self.scripts.iter().flat_map(|script| {
            let inner = script.commands().into_iter().flat_map(ShellCommand::inner_scripts);
            std::iter::once(script).chain(inner).flat_map(|script| &script.pipelines)
        })
    }

    /// Returns the paths that a word may stand for, with `.` and `..` resolved where possible. The home is [`HOME`].
    pub(in crate::policy) fn possible_paths(&self, word: &ShellWord) -> Vec<String> {
        let text = word.text.as_str();
        let is_literal = word.form < WordForm::Computed;
        // `${HOME:?}` and similar expansions are the home as well.
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
            // In quotes, it is an ordinary name.
            Some('$') if is_literal => vec![format!("\\{text}")],
            _ => {
                let full = |folder: &String| normalize_path(&rebase_folder(folder, text));
                self.folders.iter().map(full).collect()
            }
        }
    }
}

/// Returns the words of a command whose name is the output of another command, which names it: `$(echo ls)`,
/// `$(which ls)`.
fn printed_words(words: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let (first, rest) = words.split_first()?;
    let [script] = first.scripts.as_slice() else { return None };
    let [ShellPipeline { commands, .. }] = script.pipelines.as_slice() else { return None };
    let [printer] = commands.as_slice() else { return None };
    printer.name().filter(|name| is_in(name, "echo printf which command type"))?;
    let named = printer.words[1..].iter().filter(|word| !word.text.starts_with(['-', '%']));
    let named: Vec<ShellWord> = named.cloned().collect();
    (!named.is_empty()).then(|| [named.as_slice(), rest].concat())
}

/// The home of the user.
pub(super) const HOME: &str = "$HOME";

/// Returns a folder as seen from another one, without resolving `..`.
pub(in crate::policy) fn rebase_folder(from: &str, folder: &str) -> String {
    match folder.starts_with('/') || from.is_empty() {
        true => folder.to_owned(),
        false => format!("{from}/{folder}"),
    }
}

/// Resolves `.` and `..` without access to files.
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
        let text = |program: &ShellCommand| -> String {
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
