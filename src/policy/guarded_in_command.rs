//! Guarded files in command lines.
//!
//! Only files that a command line names are found here. Files that its programs open by themselves are protected by the
//! sandbox.

use super::command::{CommandLine, Program};
use super::file_patterns::FilePatterns;
use super::shell::{RedirectionKind, ShellWord, WordForm};

/// Programs whose arguments are text, not files.
const TEXT_PROGRAMS: [&str; 2] = ["echo", "printf"];

/// Programs that change the files which they are given.
const WRITING_PROGRAMS: [&str; 22] = [
    "chmod", "chown", "cp", "dd", "ed", "ex", "install", "ln", "mv", "nano", "patch", "perl",
    "python", "python3", "rm", "rsync", "sed", "shred", "tee", "touch", "truncate", "unlink",
];

/// Commands of git that change files of the workspace.
const WRITING_GIT_COMMANDS: [&str; 8] =
    ["apply", "checkout", "clean", "mv", "reset", "restore", "rm", "stash"];

/// Returns why a line may not run because of a guarded file that it names.
pub(super) fn denial_reason(
    line: &CommandLine,
    protected: &FilePatterns,
    sensitive: &FilePatterns,
) -> Option<String> {
    if protected.is_empty() && sensitive.is_empty() {
        return None;
    }
    if line.script.is_err() {
        let pieces = || path_pieces(&line.raw);
        let found = pieces().find_map(|piece| {
            describe_guarded(piece, sensitive.find_outside(piece), SENSITIVE_KEY)
        });
        return found.or_else(|| {
            pieces().find_map(|piece| {
                describe_guarded(piece, protected.find_outside(piece), PROTECTED_KEY)
            })
        });
    }
    line.programs.iter().find_map(|program| {
        let redirected = |kinds: &'static [RedirectionKind]| {
            let files = program.redirections.iter().filter(|to| kinds.contains(&to.kind));
            files.map(|to| &to.target)
        };
        let has_text = program.name().is_some_and(|name| TEXT_PROGRAMS.contains(&name));
        let words = if has_text { &[] } else { program.words.as_slice() };
        // Removing a folder removes what it contains.
        let taken = if matches!(program.name(), Some("rm" | "mv")) { &words[1..] } else { &[] };
        let taken = taken.iter().filter(|word| !word.text.starts_with('-')).find_map(|word| {
            let within = |list: &FilePatterns, name: &str| {
                line.possible_paths(word)
                    .iter()
                    .find_map(|place| describe_guarded(&word.text, list.find_within(place), name))
            };
            within(sensitive, SENSITIVE_KEY).or_else(|| within(protected, PROTECTED_KEY))
        });
        if taken.is_some() {
            return taken;
        }
        let mut read =
            words.iter().chain(redirected(&[RedirectionKind::Read, RedirectionKind::Write]));
        let found = read.find_map(|word| find_guarded_word(line, word, sensitive, SENSITIVE_KEY));
        found.or_else(|| {
            let words = if may_write(program) { words } else { &[] };
            let mut written = words.iter().chain(redirected(&[RedirectionKind::Write]));
            written.find_map(|word| find_guarded_word(line, word, protected, PROTECTED_KEY))
        })
    })
}

const SENSITIVE_KEY: &str = "guardrails.sensitive_files";
const PROTECTED_KEY: &str = "guardrails.protected_files";

fn may_write(program: &Program) -> bool {
    let Some(name) = program.name() else { return true };
    let has = |options: &[&str]| {
        program.words.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match name {
        "sed" => has(&["-i", "--in-place"]),
        "git" => {
            program.words.iter().any(|word| WRITING_GIT_COMMANDS.contains(&word.text.as_str()))
        }
        "perl" | "python" | "python3" => has(&["-c", "-e", "-i", "-p"]),
        "node" | "ruby" | "php" => has(&["-e", "-p", "-r"]),
        name => WRITING_PROGRAMS.contains(&name),
    }
}

/// Returns the reason for a denial if a word names a guarded file.
fn find_guarded_word(
    line: &CommandLine,
    word: &ShellWord,
    patterns: &FilePatterns,
    list: &str,
) -> Option<String> {
    let whole = std::iter::once(word.text.as_str());
    whole.chain(path_pieces(&word.text)).find_map(|piece| {
        let part = ShellWord { text: piece.to_owned(), ..word.clone() };
        let places = line.possible_paths(&part);
        let exact = places
            .iter()
            .find_map(|place| describe_guarded(place, patterns.find_outside(place), list));
        let is_pattern = word.form >= WordForm::Pattern && piece.contains(['*', '?', '[']);
        exact.or_else(|| match is_pattern {
            true => describe_guarded(piece, patterns.find_possible(piece), list),
            false => None,
        })
    })
}

fn describe_guarded(path: &str, pattern: Option<&str>, list: &str) -> Option<String> {
    let pattern = pattern?;
    Some(format!("it names '{path}', a file that the user protects ({list} has {pattern})"))
}

/// Returns the pieces of a word that may be paths: `if=a`, `HEAD:a`, `@a`, `open('a')`.
fn path_pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`=:@,;()<>|&{}".contains(c);
    text.split(is_end).filter(|piece| !piece.is_empty())
}
