//! Commands of git that only read.
//!
//! They may run other programs if the configuration of the repository says so, which
//! [`Repositories`](super::super::repositories::Repositories) checks.

use super::options::{may_be_option, may_be_several_words};
use crate::policy::shell::ShellWord;

/// Commands of git that only read, unless an option makes them write.
const READING_COMMANDS: [&str; 20] = [
    "blame",
    "cat-file",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "for-each-ref",
    "grep",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "name-rev",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "status",
];

/// Long options of these commands that neither run a program nor write a file, in full.
const READING_LONG_OPTIONS: &[&str] = &[
    "--",
    "--abbrev",
    "--abbrev-commit",
    "--abbrev-ref",
    "--absolute-git-dir",
    "--after",
    "--ahead-behind",
    "--all",
    "--all-match",
    "--always",
    "--ancestry-path",
    "--and",
    "--author",
    "--author-date-order",
    "--basic-regexp",
    "--batch",
    "--batch-check",
    "--before",
    "--boundary",
    "--branch",
    "--branches",
    "--break",
    "--cached",
    "--cc",
    "--children",
    "--cherry",
    "--cherry-mark",
    "--cherry-pick",
    "--clear-decorations",
    "--color",
    "--color-moved",
    "--color-words",
    "--column",
    "--combined",
    "--committer",
    "--compact-summary",
    "--contains",
    "--context",
    "--count",
    "--count-matches",
    "--date",
    "--date-order",
    "--decorate",
    "--deleted",
    "--dense",
    "--diff-algorithm",
    "--diff-filter",
    "--directory",
    "--dirstat",
    "--email",
    "--encoding",
    "--error-unmatch",
    "--exclude",
    "--exclude-standard",
    "--exit-code",
    "--extended-regexp",
    "--files-with-matches",
    "--find-copies",
    "--find-copies-harder",
    "--find-object",
    "--find-renames",
    "--first-parent",
    "--fixed-strings",
    "--follow",
    "--format",
    "--full-diff",
    "--full-history",
    "--full-index",
    "--full-name",
    "--git-common-dir",
    "--git-dir",
    "--graph",
    "--grep",
    "--heads",
    "--histogram",
    "--ignore-all-space",
    "--ignore-blank-lines",
    "--ignore-case",
    "--ignore-space-at-eol",
    "--ignore-space-change",
    "--ignored",
    "--incremental",
    "--indent-heuristic",
    "--inter-hunk-context",
    "--invert-grep",
    "--is-ancestor",
    "--is-inside-git-dir",
    "--is-inside-work-tree",
    "--left-right",
    "--line-number",
    "--line-porcelain",
    "--long",
    "--match",
    "--max-count",
    "--max-depth",
    "--merge-base",
    "--merged",
    "--merges",
    "--minimal",
    "--modified",
    "--name-only",
    "--name-status",
    "--no-abbrev",
    "--no-color",
    "--no-commit-id",
    "--no-decorate",
    "--no-ext-diff",
    "--no-index",
    "--no-merges",
    "--no-notes",
    "--no-patch",
    "--no-prefix",
    "--no-renames",
    "--no-textconv",
    "--not",
    "--null",
    "--numbered",
    "--numstat",
    "--objects",
    "--oneline",
    "--or",
    "--others",
    "--output-indicator-context",
    "--output-indicator-new",
    "--output-indicator-old",
    "--parents",
    "--patch",
    "--patch-with-stat",
    "--patience",
    "--perl-regexp",
    "--pickaxe-all",
    "--pickaxe-regex",
    "--porcelain",
    "--pretty",
    "--raw",
    "--relative",
    "--remotes",
    "--reverse",
    "--root",
    "--short",
    "--shortstat",
    "--show-current",
    "--show-prefix",
    "--show-toplevel",
    "--since",
    "--sort",
    "--stage",
    "--staged",
    "--stat",
    "--summary",
    "--symbolic-full-name",
    "--tags",
    "--text",
    "--topo-order",
    "--unified",
    "--until",
    "--untracked",
    "--untracked-files",
    "--verify",
    "--verbose",
    "--word-diff",
    "--word-diff-regex",
    "--word-regexp",
    "--walk-reflogs",
    "--quiet",
    "--skip",
    "--show-stash",
    "--simplify-merges",
    "--sparse",
    "--src-prefix",
    "--dst-prefix",
    "--function-context",
    "--after-context",
    "--before-context",
];

/// Options before the command, and whether each takes the next word.
fn is_global_option(word: &ShellWord) -> bool {
    word.is_literal() && matches!(&*word.text, "--no-pager" | "-P" | "--no-optional-locks")
}

/// Returns whether the arguments of git make it read only.
pub(super) fn only_reads(words: &[ShellWord]) -> bool {
    if matches!(words, [only] if only.is_literal() && only.text == "--version") {
        return true;
    }
    let Some((_, rest)) = split_global_options(words) else { return false };
    let [command, rest @ ..] = rest else { return false };
    if !command.is_literal() || rest.iter().any(may_be_option) {
        return false;
    }
    let only = |known: &[&str]| rest.iter().all(|word| known.contains(&&*word.text));
    let first = |known: &[&str]| rest.first().is_some_and(|word| known.contains(&&*word.text));
    let known = |more: &[&str]| rest.iter().all(|word| is_known_word(word, more));
    match command.text.as_str() {
        "grep" => {
            known(&[]) && !rest.iter().any(|word| is_short_option(word) && word.text.contains('O'))
        }
        "cat-file" => known(&[]),
        name if READING_COMMANDS.contains(&name) => known(&[]),
        "branch" => only(&[
            "-a",
            "-r",
            "-v",
            "-vv",
            "-av",
            "-avv",
            "--all",
            "--remotes",
            "--list",
            "--show-current",
            "--verbose",
        ]),
        "tag" => {
            let is_listing = |text: &str| {
                matches!(text, "-l" | "--list" | "-i")
                    || text.strip_prefix("-n").is_some_and(is_number)
                    || ["--sort=", "--format=", "--contains=", "--merged=", "--points-at="]
                        .iter()
                        .any(|option| text.starts_with(option))
                    || !text.starts_with('-')
            };
            rest.is_empty()
                || first(&["-l", "--list"])
                    && rest.iter().all(|word| is_listing(&word.text) && verifies_signatures(word))
        }
        "remote" => only(&["-v", "--verbose"]) || first(&["get-url"]) && known(&["--push"]),
        "stash" => first(&["list", "show"]) && known(&["--include-untracked"]),
        "worktree" => first(&["list"]) && known(&[]),
        "reflog" => rest.is_empty() || first(&["show"]) && known(&[]),
        "config" => {
            const READS: [&str; 7] =
                ["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"];
            const HOW: [&str; 9] = [
                "--bool",
                "--global",
                "--int",
                "--local",
                "--name-only",
                "--null",
                "--show-origin",
                "--show-scope",
                "--system",
            ];
            let is_read = |word: &ShellWord| {
                let text = word.text.as_str();
                !text.starts_with('-') || READS.contains(&text) || HOW.contains(&text)
            };
            first(&READS) && rest.iter().all(is_read)
        }
        _ => false,
    }
}

/// Returns the folders that `-C` names, one behind the other, and the words from the command on; `None` if another
/// option stands before the command.
pub(in crate::policy) fn split_global_options(
    words: &[ShellWord],
) -> Option<(Vec<&ShellWord>, &[ShellWord])> {
    let (mut folders, mut rest) = (Vec::new(), words);
    loop {
        match rest {
            [word, folder, more @ ..] if word.is_literal() && word.text == "-C" => {
                if may_be_several_words(folder) {
                    return None;
                }
                folders.push(folder);
                rest = more;
            }
            [word, more @ ..] if is_global_option(word) => rest = more,
            [word, ..] if word.text.starts_with('-') => return None,
            _ => return Some((folders, rest)),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn is_short_option(word: &ShellWord) -> bool {
    word.text.starts_with('-') && !word.text.starts_with("--")
}

/// Returns whether a word is an operand or a known option.
fn is_known_word(word: &ShellWord, more: &[&str]) -> bool {
    let text = word.text.as_str();
    let name = text.split('=').next().unwrap_or_default();
    let is_long = || READING_LONG_OPTIONS.contains(&name) || more.contains(&text);
    match text.starts_with("--") {
        true => is_long() && verifies_signatures(word),
        // `-O` names a file with an order, or a pager.
        false => !text.starts_with("-O") && verifies_signatures(word),
    }
}

/// Returns whether a word asks for no signature to be verified: another program does that, with files of its own.
fn verifies_signatures(word: &ShellWord) -> bool {
    !word.text.contains("%G") && !word.text.contains("signature")
}
