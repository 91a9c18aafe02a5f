//! Finds the files that a command line in a configuration of git may run.
//!
//! A line is split as a shell does, as far as possible without execution: quotes, escapes, variables, `~`, `cd`. Text
//! that is known only at run time, such as the output of a command, counts as the work tree.

use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use super::git_config::has_word;
use super::git_words::GitWords;

/// Stands for the unknown part of a word.
const UNKNOWN: char = '\0';

/// The maximum nesting of lines in words of lines.
const MAX_DEPTH: u32 = 4;

/// Programs that run the file in their first argument, by their names without a version.
const INTERPRETERS: &str = "\
    . ash awk bash bun dash deno fish gawk julia ksh lua luajit mawk node nodejs osascript perl \
    php pwsh pypy python Rscript ruby sed sh source tclsh zsh";

/// Endings of scripts.
const SCRIPT_ENDINGS: &str = "awk bash bat cjs cmd exe js lua mjs php pl ps1 py rb sh ts";

/// The paths in command lines.
pub(super) struct CommandPaths<'a> {
    pub home: Option<&'a Path>,
    pub variables: &'a [(String, String)],
    /// Variables that a line sets.
    assigned: Vec<(String, String)>,
    /// The folders that relative paths may start from.
    folders: Vec<PathBuf>,
    /// The paths found, in no particular order.
    pub found: Vec<PathBuf>,
    /// The git commands found.
    pub git: Vec<GitWords>,
}

/// The role of the next word of a simple command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordRole {
    /// The program, or one of its arguments.
    Plain,
    /// An argument of git: a file that it names is data.
    Data,
    /// A file that an interpreter runs, or an option.
    Script,
    /// The same as `Script`, or the value of an option.
    ScriptOrValue,
    /// The folder to change to.
    Folder,
}

impl<'a> CommandPaths<'a> {
    /// Returns the paths in a line that runs in a work tree: existing files, and paths of files that a program would
    /// run if they existed. Also returns the git commands in the line.
    pub(super) fn find(
        line: &str,
        work_tree: &Path,
        home: Option<&'a Path>,
        variables: &'a [(String, String)],
    ) -> Self {
        let (assigned, found, git) = (Vec::new(), Vec::new(), Vec::new());
        let folders = vec![work_tree.to_owned()];
        let mut paths = Self { home, variables, assigned, folders, found, git };
        paths.read_line(line, 0);
        paths
    }

    fn read_line(&mut self, line: &str, depth: u32) {
        if depth > MAX_DEPTH {
            return;
        }
        let (mut word, mut quote, mut role) = (None::<String>, None, WordRole::Plain);
        let mut git = None::<GitWords>;
        let mut chars = line.chars().peekable();
        while let Some(char) = chars.next() {
            let is_end = quote.is_none() && (char.is_whitespace() || ";|&()<>".contains(char));
            if is_end {
                if let Some(word) = word.take() {
                    role = self.read_word(&word, role, depth);
                    add_git_word(&mut git, word);
                }
                if !matches!(char, ' ' | '\t' | '<' | '>') {
                    role = WordRole::Plain;
                    self.git.extend(git.take());
                }
                continue;
            }
            let text = word.get_or_insert_default();
            match (char, quote) {
                ('\'' | '"', None) => quote = Some(char),
                (_, Some(end)) if char == end => quote = None,
                (_, Some('\'')) => text.push(char),
                ('\\', None) => text.extend(chars.next().filter(|next| *next != '\n')),
                ('\\', Some(_)) => match chars.next_if(|next| "$`\"\\\n".contains(*next)) {
                    Some('\n') => {}
                    next => text.push(next.unwrap_or(char)),
                },
                ('`', _) => {
                    let inner: String = chars.by_ref().take_while(|char| *char != '`').collect();
                    self.read_line(&inner, depth + 1);
                    text.push(UNKNOWN);
                }
                ('$', _) => text.push_str(&self.expand(&mut chars, depth)),
                // `!` marks an alias that is a command line, and negates a command.
                ('!', None) if text.is_empty() => word = None,
                _ => text.push(char),
            }
        }
        if let Some(word) = word {
            self.read_word(&word, role, depth);
            add_git_word(&mut git, word);
        }
        self.git.extend(git);
    }

    /// Returns the expansion of the text after a `$`.
    fn expand(&mut self, chars: &mut Peekable<Chars<'_>>, depth: u32) -> String {
        let is_name = |char: &char| char.is_ascii_alphanumeric() || *char == '_';
        let (name, default) = match chars.peek() {
            Some('(') => {
                let mut open = 0_i32;
                let is_inside = |char: &char| {
                    open += i32::from(*char == '(') - i32::from(*char == ')');
                    open > 0
                };
                let inner: String = chars.by_ref().take_while(is_inside).collect();
                self.read_line(&inner, depth + 1);
                (String::new(), None)
            }
            Some('{') => {
                let inner: String =
                    chars.by_ref().skip(1).take_while(|char| *char != '}').collect();
                let name: String = inner.chars().take_while(is_name).collect();
                let rest = inner[name.len()..].trim_start_matches(':').to_owned();
                let default = rest.strip_prefix(['-', '=']).map(str::to_owned);
                match rest.is_empty() || default.is_some() {
                    true => (name, default),
                    false => (String::new(), None),
                }
            }
            Some(char) if is_name(char) => {
                let mut name = String::new();
                while let Some(char) = chars.next_if(is_name) {
                    name.push(char);
                }
                (name, None)
            }
            Some('@' | '*' | '#' | '?' | '$' | '!' | '-') => {
                chars.next();
                (String::new(), None)
            }
            Some(_) | None => return "$".to_owned(),
        };
        let known = self.assigned.iter().rev().chain(self.variables);
        let value = known.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        let value = value.filter(|value| !value.is_empty()).cloned().or(default);
        value.filter(|value| !value.contains('$')).unwrap_or_else(|| UNKNOWN.to_string())
    }

    /// Reads a word, and returns the role of the next one.
    fn read_word(&mut self, word: &str, role: WordRole, depth: u32) -> WordRole {
        if word.contains(|c: char| c.is_whitespace() || "$'\"`\\;|&()<>".contains(c)) {
            // A command line for a shell, or a name with such characters.
            self.read_line(word, depth + 1);
        }
        let program = word.rsplit('/').next().unwrap_or_default();
        let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let next = match program {
            "cd" | "pushd" => Some(WordRole::Folder),
            "-C" => Some(WordRole::Folder),
            "git" => Some(WordRole::Data),
            _ if has_word(INTERPRETERS, program) || word == "." => Some(WordRole::Script),
            _ => None,
        };
        if role == WordRole::Folder {
            let entered = self.paths_of(word);
            self.folders.extend(entered);
            self.folders.truncate(16);
            return WordRole::Plain;
        }
        let is_option = word.starts_with('-');
        let is_script = matches!(role, WordRole::Script | WordRole::ScriptOrValue) && !is_option;
        // `--option=path`, `NAME=path`
        let (name, value) = word.split_once('=').unwrap_or(("", ""));
        if !name.is_empty() && !is_option {
            self.assigned.push((name.to_owned(), value.to_owned()));
        }
        let attached = if is_option && value.is_empty() { word.get(2..) } else { None };
        for part in [attached.unwrap_or(word), value.trim_start_matches('!')] {
            let is_whole = part != value && !value.is_empty();
            let is_run = !is_whole && (is_script || part.contains('/') || is_script_name(part));
            let is_followed = |path: &PathBuf| match is_run {
                true => !path.is_dir(),
                false => role != WordRole::Data && path.is_file(),
            };
            self.found.extend(self.paths_of(part).into_iter().filter(is_followed));
        }
        match (next, role) {
            (Some(next), _) => next,
            (None, WordRole::Script | WordRole::ScriptOrValue) if is_option => {
                WordRole::ScriptOrValue
            }
            (None, WordRole::ScriptOrValue) => WordRole::Script,
            (None, WordRole::Data) => WordRole::Data,
            (None, WordRole::Plain | WordRole::Script | WordRole::Folder) => WordRole::Plain,
        }
    }

    /// Returns the paths that a word may refer to.
    fn paths_of(&self, word: &str) -> Vec<PathBuf> {
        let word = match word.rsplit_once(UNKNOWN) {
            Some((_, rest)) => rest.trim_start_matches('/'),
            None => word,
        };
        if word.is_empty() {
            return Vec::new();
        }
        let path = expand_home(word, self.home);
        self.folders.iter().map(|folder| folder.join(&path)).collect()
    }
}

/// Adds a word to a command of git, or begins one.
fn add_git_word(git: &mut Option<GitWords>, word: String) {
    match git {
        Some(words) => words.0.push(word),
        None if word.rsplit('/').next() == Some("git") => *git = Some(GitWords::default()),
        None => {}
    }
}

/// Returns a path with `~` replaced by the home, and `~NAME` by a folder beside the home.
pub(super) fn expand_home(path: &str, home: Option<&Path>) -> PathBuf {
    let named = path.strip_prefix('~').zip(home);
    named.map_or_else(
        || path.into(),
        |(rest, home)| match rest.split_once('/').unwrap_or((rest, "")) {
            ("", rest) => home.join(rest),
            (name, rest) => home.with_file_name(name).join(rest),
        },
    )
}

/// Returns whether a word is the name of a script, which need not exist yet. Other file names are data: an alias for
/// `git checkout HEAD -- Cargo.lock` does not run the lock file.
fn is_script_name(word: &str) -> bool {
    word.rsplit_once('.').is_some_and(|(name, ending)| {
        !name.is_empty() && has_word(SCRIPT_ENDINGS, &ending.to_ascii_lowercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_git_in_a_line_are_found() {
        let line = "!f() { git -c a.b=\"c d\" x; }; sh -c 'git y | /usr/bin/git z'; f";
        let found = CommandPaths::find(line, Path::new("/w"), None, &[]).git;
        let found: Vec<String> = found.iter().map(|words| words.0.join(" ")).collect();
        assert_eq!(found, ["-c a.b=c d x", "y", "z"]);
    }

    #[test]
    fn what_a_line_may_run_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        std::fs::create_dir_all(tree.join("src")).unwrap();
        std::fs::write(tree.join("Makefile"), "").unwrap();
        std::fs::write(tree.join("tool"), "").unwrap();
        let variables = [("TOOLS", "/t"), ("EMPTY", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        for (line, expected) in [
            ("tools/x --fast", &["tools/x"][..]),
            ("less -R -X", &[]),
            ("sh f.sh x.json", &["f.sh"]),
            ("sh run fast", &["run"]),
            ("python3.11 -u run", &["run"]),
            ("/bin/bash -e run", &["/bin/bash", "run"]),
            ("awk -f prog data", &["data", "prog"]),
            ("env A=b python run", &["run"]),
            (". lib", &["lib"]),
            ("tool Cargo.lock", &["tool"]),
            ("!git add Makefile && cat tool", &["tool"]),
            ("git checkout -- src/x", &["src/x"]),
            ("rg x src/", &[]),
            ("'my tools/x' a", &["my tools/x", "tools/x"]),
            ("my\\ tools/x", &["my tools/x", "tools/x"]),
            ("\"$TOOLS/x\" ${TOOLS}/y ${NONE:-d}/z", &["/t/x", "/t/y", "d/z"]),
            ("x=d; $x/y", &["d/y"]),
            ("$(git rev-parse --show-toplevel)/d/x", &["d/x"]),
            ("`pwd`/d/x \"$PWD\"/y", &["d/x", "y"]),
            ("~/x ~other/y", &["/h/me/x", "/h/other/y"]),
            ("cd d && ./x", &["d/x", "x"]),
            ("cd \"$(git rev-parse --show-cdup)\"d; sh x", &["d/x", "x"]),
            ("make -C d ./x", &["d/x", "x"]),
            ("sh -c 'cd d && sh x' -", &["d/x", "x"]),
            ("git -c core.pager=./x log", &["x"]),
            ("f() { d/x \"$@\"; }; f", &["d/x"]),
            ("x --file=d/y -rd/z", &["d/y", "d/z"]),
        ] {
            let found = CommandPaths::find(line, tree, Some(Path::new("/h/me")), &variables).found;
            let clean = |path: &PathBuf| {
                let path: PathBuf = path.components().collect();
                path.strip_prefix(tree).unwrap_or(&path).display().to_string()
            };
            let mut found: Vec<_> = found.iter().map(clean).collect();
            found.retain(|path| !path.contains(['&', '(']));
            found.sort();
            found.dedup();
            assert_eq!(found, expected, "{line}");
        }
    }
}
