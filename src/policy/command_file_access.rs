//! Guarded files that a command line names.
//!
//! Only files named by the command line are found here. The sandbox protects files that programs open by themselves.

use super::command_analysis::{CommandLine, is_in};
use super::file_patterns::FilePatterns;
use super::guardrails::Guardrails;
use super::shell::{RedirectionKind, ShellCommand, ShellWord, WordForm};

/// Programs that change files in their arguments.
const WRITING_PROGRAMS: &str = "chmod chown cp dd ed ex install ln mv nano patch perl python python3 rm \
    rsync sed shred tee touch truncate unlink";

/// Commands of git that change files of the workspace.
const WRITING_GIT_COMMANDS: &str = "apply checkout clean mv reset restore rm stash";

/// Returns the reason why a line must not run because of a guarded file that it names.
pub(super) fn denial_reason(line: &CommandLine, guardrails: &Guardrails) -> Option<String> {
    let Guardrails { sensitive, protected, .. } = guardrails;
    let named = |patterns: &FilePatterns, list: &str, is_readable: bool| {
        if patterns.is_empty() {
            return None;
        }
        let found = if line.script.is_err() {
            path_pieces(&line.raw)
                .find_map(|piece| Some((piece.to_owned(), patterns.find_outside(piece)?)))
        } else {
            let mut programs = line.programs.iter();
            programs.find_map(|program| named_file(line, program, patterns, is_readable))
        };
        let (path, pattern) = found?;
        Some(format!("it names '{path}', a file that the user protects ({list} has {pattern})"))
    };
    named(sensitive, "guardrails.sensitive_files", false)
        .or_else(|| named(protected, "guardrails.protected_files", true))
}

/// Returns the first guarded file that a program reads or changes, with the pattern. For readable files, only changes
/// count.
fn named_file<'a>(
    line: &CommandLine,
    program: &ShellCommand,
    patterns: &'a FilePatterns,
    is_readable: bool,
) -> Option<(String, &'a str)> {
    // The arguments of some programs are text, not files.
    let has_text = program.name().is_some_and(|name| is_in(name, "echo printf"));
    let words = if has_text { &[] } else { program.words.as_slice() };
    if matches!(program.name(), Some("rm" | "mv")) {
        // Removing a folder removes its content.
        let taken = words[1..].iter().filter(|word| !word.text.starts_with('-'));
        let within = taken
            .flat_map(|word| line.possible_paths(word).into_iter().map(move |place| (word, place)));
        let found = within
            .into_iter()
            .find_map(|(word, place)| Some((word.text.clone(), patterns.find_within(&place)?)));
        if found.is_some() {
            return found;
        }
    }
    let words = if is_readable && !may_write(program) { &[] } else { words };
    let redirected = program.redirections.iter().filter(|to| match to.kind {
        RedirectionKind::Read => !is_readable,
        RedirectionKind::Write => true,
        RedirectionKind::Duplicate | RedirectionKind::HereDocument => false,
    });
    let mut words = words.iter().chain(redirected.map(|to| &to.target));
    words.find_map(|word| find_guarded_word(line, word, patterns))
}

/// Returns whether a program may change files in its arguments.
pub(super) fn may_write(program: &ShellCommand) -> bool {
    let Some(name) = program.name() else { return true };
    let has = |options: &[&str]| {
        program.words.iter().any(|word| options.iter().any(|option| word.text.starts_with(option)))
    };
    match name {
        "sed" => has(&["-i", "--in-place"]),
        "git" => program.words.iter().any(|word| is_in(&word.text, WRITING_GIT_COMMANDS)),
        "perl" | "python" | "python3" => has(&["-c", "-e", "-i", "-p"]),
        "node" | "ruby" | "php" => has(&["-e", "-p", "-r"]),
        name => is_in(name, WRITING_PROGRAMS),
    }
}

/// Returns the guarded file that a word names, with the pattern.
fn find_guarded_word<'a>(
    line: &CommandLine,
    word: &ShellWord,
    patterns: &'a FilePatterns,
) -> Option<(String, &'a str)> {
    let whole = std::iter::once(word.text.as_str());
    whole.chain(path_pieces(&word.text)).find_map(|piece| {
        let places = line.possible_paths(&ShellWord { text: piece.to_owned(), ..word.clone() });
        let mut exact = places.into_iter().filter_map(|place| {
            let pattern = patterns.find_outside(&place)?;
            Some((place, pattern))
        });
        let is_pattern = word.form >= WordForm::Pattern && piece.contains(['*', '?', '[']);
        let possible = || Some((piece.to_owned(), patterns.find_possible(piece)?));
        exact.next().or_else(|| if is_pattern { possible() } else { None })
    })
}

/// Returns the pieces of a word that may be paths: `if=a`, `HEAD:a`, `@a`, `open('a')`.
fn path_pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`=:@,;()<>|&{}".contains(c);
    text.split(is_end).filter(|piece| !piece.is_empty())
}
