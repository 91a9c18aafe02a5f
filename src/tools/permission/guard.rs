//! Guarded files in command lines.
//!
//! A command line is text: what it names can be seen here, and what its programs open by themselves cannot. Against the
//! latter there is the confinement of commands.

use super::command::{Line, Program};
use super::files::FilePatterns;
use super::shell::{Form, Redirect, Word};

/// Programs whose arguments are text, not files.
const TALKERS: [&str; 2] = ["echo", "printf"];

/// Programs that change the files which they are given.
const WRITERS: [&str; 22] = [
    "chmod", "chown", "cp", "dd", "ed", "ex", "install", "ln", "mv", "nano", "patch", "perl",
    "python", "python3", "rm", "rsync", "sed", "shred", "tee", "touch", "truncate", "unlink",
];

/// Commands of git that change files of the workspace.
const GIT_WRITERS: [&str; 8] =
    ["apply", "checkout", "clean", "mv", "reset", "restore", "rm", "stash"];

/// Returns why a line may not run for the sake of a guarded file that it names.
pub(super) fn named(
    line: &Line,
    protected: &FilePatterns,
    sensitive: &FilePatterns,
) -> Option<String> {
    if protected.is_empty() && sensitive.is_empty() {
        return None;
    }
    if line.script.is_err() {
        let pieces = || pieces(&line.raw);
        let found =
            pieces().find_map(|piece| about(piece, sensitive.find_anywhere(piece), SENSITIVE));
        return found.or_else(|| {
            pieces().find_map(|piece| about(piece, protected.find_anywhere(piece), PROTECTED))
        });
    }
    line.programs.iter().find_map(|program| {
        let redirected = |kinds: &'static [Redirect]| {
            let files = program.redirections.iter().filter(|to| kinds.contains(&to.kind));
            files.map(|to| &to.target)
        };
        let said = program.name().is_some_and(|name| TALKERS.contains(&name));
        let words = if said { &[] } else { program.words.as_slice() };
        let mut read = words.iter().chain(redirected(&[Redirect::Read, Redirect::Write]));
        let found = read.find_map(|word| find(line, word, sensitive, SENSITIVE));
        found.or_else(|| {
            let words = if writes(program) { words } else { &[] };
            let mut written = words.iter().chain(redirected(&[Redirect::Write]));
            written.find_map(|word| find(line, word, protected, PROTECTED))
        })
    })
}

const SENSITIVE: &str = "guardrails.sensitive_files";
const PROTECTED: &str = "guardrails.protected_files";

fn writes(program: &Program) -> bool {
    let Some(name) = program.name() else { return true };
    let has = |options: &[&str]| {
        program.words.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match name {
        "sed" => has(&["-i", "--in-place"]),
        "git" => program.words.iter().any(|word| GIT_WRITERS.contains(&word.text.as_str())),
        "perl" | "python" | "python3" => has(&["-c", "-e", "-i", "-p"]),
        "node" | "ruby" | "php" => has(&["-e", "-p", "-r"]),
        name => WRITERS.contains(&name),
    }
}

/// Returns what is said about a word that names a guarded file.
fn find(line: &Line, word: &Word, patterns: &FilePatterns, list: &str) -> Option<String> {
    let whole = std::iter::once(word.text.as_str());
    whole.chain(pieces(&word.text)).find_map(|piece| {
        let part = Word { text: piece.to_owned(), ..word.clone() };
        let places = line.places(&part);
        let exact =
            places.iter().find_map(|place| about(place, patterns.find_anywhere(place), list));
        let is_pattern = word.form >= Form::Pattern && piece.contains(['*', '?', '[']);
        exact.or_else(|| match is_pattern {
            true => about(piece, patterns.may_find(piece), list),
            false => None,
        })
    })
}

fn about(path: &str, pattern: Option<&str>, list: &str) -> Option<String> {
    let pattern = pattern?;
    Some(format!("it names '{path}', a file that the user protects ({list} has {pattern})"))
}

/// Returns the pieces of a word that may be paths: `if=a`, `HEAD:a`, `@a`, `open('a')`.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`=:@,;()<>|&{}".contains(c);
    text.split(is_end).filter(|piece| !piece.is_empty())
}
