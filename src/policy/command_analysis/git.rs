//! Commands of git that only read.
//!
//! They may run other programs because of the repository's configuration, which
//! [`Repositories`](super::super::repositories::Repositories) checks.

use super::options::{is_in, may_be_option, may_be_several_words};
use crate::policy::shell::ShellWord;

/// Commands of git that only read, unless an option makes them write.
const READING_COMMANDS: &str = "blame cat-file count-objects describe diff diff-files diff-index diff-tree for-each-ref grep \
    log ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show status";

/// Long options of these commands that neither run a program nor write a file, in their full form.
const READING_LONG_OPTIONS: &str = "-- --abbrev --abbrev-commit --abbrev-ref --absolute-git-dir --after --ahead-behind --all \
    --all-match --always --ancestry-path --and --author --author-date-order --basic-regexp \
    --batch --batch-check --before --boundary --branch --branches --break --cached --cc \
    --children --cherry --cherry-mark --cherry-pick --clear-decorations --color --color-moved \
    --color-words --column --combined --committer --compact-summary --contains --context --count \
    --count-matches --date --date-order --decorate --deleted --dense --diff-algorithm \
    --diff-filter --directory --dirstat --email --encoding --error-unmatch --exclude \
    --exclude-standard --exit-code --extended-regexp --files-with-matches --find-copies \
    --find-copies-harder --find-object --find-renames --first-parent --fixed-strings --follow \
    --format --full-diff --full-history --full-index --full-name --git-common-dir --git-dir \
    --graph --grep --heads --histogram --ignore-all-space --ignore-blank-lines --ignore-case \
    --ignore-space-at-eol --ignore-space-change --ignored --incremental --indent-heuristic \
    --inter-hunk-context --invert-grep --is-ancestor --is-inside-git-dir --is-inside-work-tree \
    --left-right --line-number --line-porcelain --long --match --max-count --max-depth \
    --merge-base --merged --merges --minimal --modified --name-only --name-status --no-abbrev \
    --no-color --no-commit-id --no-decorate --no-ext-diff --no-index --no-merges --no-notes \
    --no-patch --no-prefix --no-renames --no-textconv --not --null --numbered --numstat \
    --objects --oneline --or --others --output-indicator-context --output-indicator-new \
    --output-indicator-old --parents --patch --patch-with-stat --patience --perl-regexp \
    --pickaxe-all --pickaxe-regex --porcelain --pretty --raw --relative --remotes --reverse \
    --root --short --shortstat --show-current --show-prefix --show-toplevel --since --sort \
    --stage --staged --stat --summary --symbolic-full-name --tags --text --topo-order --unified \
    --until --untracked --untracked-files --verify --verbose --word-diff --word-diff-regex \
    --word-regexp --walk-reflogs --quiet --skip --show-stash --simplify-merges --sparse \
    --src-prefix --dst-prefix --function-context --after-context --before-context";

/// Returns whether git only reads with these arguments.
pub(super) fn only_reads(words: &[ShellWord]) -> bool {
    if matches!(words, [only] if only.is_literal() && only.text == "--version") {
        return true;
    }
    let Some((_, [command, rest @ ..])) = split_global_options(words) else { return false };
    if !command.is_literal() || rest.iter().any(may_be_option) {
        return false;
    }
    let all = |is_it: &dyn Fn(&str) -> bool| rest.iter().all(|word| is_it(&word.text));
    let only = |known: &str| all(&|text| is_in(text, known));
    let first = |known: &str| rest.first().is_some_and(|word| is_in(&word.text, known));
    let known = || all(&is_known_word);
    match command.text.as_str() {
        // Among the short options of `grep`, `-O` may follow other letters.
        "grep" => {
            known()
                && all(&|text| {
                    text.starts_with("--") || !text.starts_with('-') || !text.contains('O')
                })
        }
        name if is_in(name, READING_COMMANDS) => known(),
        "branch" => only("-a -r -v -vv -av -avv --all --remotes --list --show-current --verbose"),
        "tag" => {
            let is_listing = |text: &str| {
                let name = text.split_inclusive('=').next().unwrap_or_default();
                let known = "-l --list -i --sort= --format= --contains= --merged= --points-at=";
                let number = text.strip_prefix("-n").unwrap_or("x");
                !text.starts_with('-')
                    || is_in(name, known)
                    || number.chars().all(|c| c.is_ascii_digit())
            };
            let is_listed = |text: &str| is_listing(text) && is_without_signatures(text);
            rest.is_empty() || first("-l --list") && all(&is_listed)
        }
        "remote" => {
            only("-v --verbose")
                || first("get-url") && all(&|text| text == "--push" || is_known_word(text))
        }
        "stash" => {
            first("list show") && all(&|text| text == "--include-untracked" || is_known_word(text))
        }
        "worktree" => first("list") && known(),
        "reflog" => rest.is_empty() || first("show") && known(),
        "config" => {
            let reads = "--get --get-all --get-regexp --list -l get list";
            let how = "--bool --global --int --local --name-only --null --show-origin --show-scope --system";
            first(reads)
                && all(&|text| !text.starts_with('-') || is_in(text, reads) || is_in(text, how))
        }
        _ => false,
    }
}

/// Returns the folders that the `-C` options name, in order, and the words from the command on; `None` if another
/// option precedes the command.
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
            [word, more @ ..]
                if word.is_literal() && is_in(&word.text, "--no-pager -P --no-optional-locks") =>
            {
                rest = more;
            }
            [word, ..] if word.text.starts_with('-') => return None,
            _ => return Some((folders, rest)),
        }
    }
}

/// Returns whether a word is an operand or a known option.
fn is_known_word(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    // `-O` names an order file, or a pager.
    let is_known = match text.starts_with("--") {
        true => is_in(name, READING_LONG_OPTIONS),
        false => !text.starts_with("-O"),
    };
    is_known && is_without_signatures(text)
}

/// Returns whether a word does not ask for verification of signatures, which another program does, with its own files.
fn is_without_signatures(text: &str) -> bool {
    !text.contains("%G") && !text.contains("signature")
}
