//! Programs that only read.
//!
//! The list is short on purpose: a program that is not on it is asked about, which is a nuisance; a program that is on
//! it wrongly does something that nobody was asked about.

use crate::tools::permission::shell::{Form, Simple, Word};

/// Programs that change nothing, whatever their arguments are.
const ALWAYS: [&str; 75] = [
    ":",
    "[",
    "arch",
    "b2sum",
    "basename",
    "break",
    "cat",
    "cd",
    "cksum",
    "cmp",
    "column",
    "comm",
    "continue",
    "cut",
    "df",
    "diff",
    "dirname",
    "dirs",
    "du",
    "echo",
    "egrep",
    "exit",
    "expand",
    "expr",
    "factor",
    "false",
    "fgrep",
    "fmt",
    "fold",
    "free",
    "getconf",
    "grep",
    "groups",
    "head",
    "id",
    "join",
    "jq",
    "locale",
    "ls",
    "lscpu",
    "md5sum",
    "nl",
    "nproc",
    "od",
    "paste",
    "pgrep",
    "popd",
    "printenv",
    "ps",
    "pushd",
    "pwd",
    "readlink",
    "realpath",
    "return",
    "rev",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "shift",
    "sleep",
    "stat",
    "strings",
    "sum",
    "tac",
    "tail",
    "test",
    "tr",
    "true",
    "tsort",
    "type",
    "uname",
    "unexpand",
    "uptime",
    "wc",
];

/// Programs that tell their version when they are asked for nothing else.
const VERSIONED: [&str; 29] = [
    "bash", "bun", "cargo", "clang", "cmake", "deno", "docker", "g++", "gcc", "git", "go", "java",
    "javac", "make", "mvn", "node", "npm", "npx", "perl", "php", "pip", "pip3", "pnpm", "python",
    "python3", "ruby", "rustc", "rustup", "yarn",
];

/// Variables that any program may be given without doing anything else because of them.
const HARMLESS: [&str; 14] = [
    "CARGO_TERM_COLOR",
    "CI",
    "CLICOLOR",
    "COLUMNS",
    "DEBUG",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "NO_COLOR",
    "PYTHONDONTWRITEBYTECODE",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TZ",
];

/// How names of small letters begin that package managers read as their settings.
const SETTINGS: [&str; 5] = ["bun_", "npm_", "pip_", "pnpm_", "yarn_"];

/// Returns whether a variable has no effect on a program that is given it, whatever the program is.
pub(in crate::tools::permission) fn is_harmless(variable: &str) -> bool {
    HARMLESS.contains(&variable)
}

/// Returns whether a variable is one that a script names for itself: it has no effect on the shell, nor on a program
/// that only reads. Others may read what they like.
pub(in crate::tools::permission) fn is_own(variable: &str) -> bool {
    variable.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && !variable.contains(|c: char| c.is_ascii_uppercase())
        && !variable.ends_with("_proxy")
        && !SETTINGS.iter().any(|begins| variable.starts_with(begins))
}

/// Returns whether a program changes nothing. What it runs besides itself is judged elsewhere.
pub(in crate::tools::permission) fn only_reads(simple: &Simple) -> bool {
    let words = simple.words.as_slice();
    let [first, rest @ ..] = words else { return true };
    if words.iter().any(|word| word.form == Form::Evaluated) || !first.is_literal() {
        return false;
    }
    let name = match first.text.rsplit_once('/') {
        Some(("/bin" | "/usr/bin", name)) => name,
        Some(_) => return false,
        None => first.text.as_str(),
    };
    let none = |test: &dyn Fn(&Word) -> bool| !rest.iter().any(test);
    match name {
        // Behind -v stands a name, and what is in its brackets is evaluated.
        "test" | "[" => {
            let may_be_both = |pair: &[Word]| pair.iter().all(|word| !word.is_literal());
            !rest.windows(2).any(may_be_both)
                && none(&|word| {
                    let is_computed = !word.is_literal();
                    word.text == "-v" || word.splits || (is_computed && word.text.contains('['))
                })
        }
        "[[" => none(&|word| {
            matches!(&*word.text, "-v" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
        }),
        "printf" => rest.first().is_none_or(|word| !word.may_be_option()),
        "read" => rest.iter().all(|word| word.text == "-r" || is_own_name(word)),
        "set" => rest.iter().all(|word| word.is_literal() && is_plain_setting(&word.text)),
        "date" => date(rest),
        "file" => {
            none(&|word| is_doubtful(word) || has_letter(word, 'C') || word.text.starts_with("--c"))
        }
        "wait" => none(&|word| word.may_be_option()),
        "env" | "hostname" => rest.is_empty(),
        "command" => rest.first().is_some_and(|word| matches!(&*word.text, "-v" | "-V")),
        "sort" => rest.iter().all(sorts),
        "uniq" => none(&|word| !word.is_literal()) && operands(rest) <= 1,
        "tree" => none(&|word| {
            is_doubtful(word)
                || has_letter(word, 'o')
                || has_letter(word, 'R')
                || word.text.starts_with("--o")
        }),
        "rg" => none(&|word| {
            is_doubtful(word)
                || word.text.starts_with("--pre")
                || word.text.starts_with("--hostname")
        }),
        "find" => none(&|word| {
            is_doubtful(word)
                || word.text == "-delete"
                || word.text.starts_with("-f")
                    && word.text != "-follow"
                    && word.text != "-false"
                    && word.text != "-fstype"
        }),
        "sed" => sed(rest),
        "git" => git(rest),
        name if ALWAYS.contains(&name) => true,
        name if VERSIONED.contains(&name) => {
            matches!(rest, [only] if only.is_literal() && only.text == "--version")
        }
        _ => false,
    }
}

/// Returns whether a word may turn out to be an option that nobody has seen.
fn is_doubtful(word: &Word) -> bool {
    !word.is_literal() && word.may_be_option()
}

/// Returns whether a word is the name of a variable that has no effect.
fn is_own_name(word: &Word) -> bool {
    let text = word.text.as_str();
    word.is_literal() && (is_own(text) || is_harmless(text)) && !text.contains('[')
}

fn is_plain_setting(text: &str) -> bool {
    matches!(text, "pipefail" | "errexit" | "nounset" | "noglob")
        || text
            .strip_prefix(['-', '+'])
            .is_some_and(|flags| flags.chars().all(|c| "euxof".contains(c)))
}

/// Returns whether a word is an option with one letter that has this one.
fn has_letter(word: &Word, letter: char) -> bool {
    word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains(letter)
}

fn operands(words: &[Word]) -> usize {
    words.iter().filter(|word| !word.text.starts_with('-') || word.text == "-").count()
}

fn sorts(word: &Word) -> bool {
    let text = word.text.as_str();
    if is_doubtful(word) {
        return false;
    }
    match text.strip_prefix("--") {
        Some(long) => [
            "numeric",
            "reverse",
            "unique",
            "key=",
            "field-separator=",
            "version-sort",
            "human-numeric-sort",
            "ignore-case",
            "stable",
            "zero-terminated",
        ]
        .iter()
        .any(|known| long.starts_with(known)),
        None => !has_letter(word, 'o') && !has_letter(word, 'T'),
    }
}

fn date(words: &[Word]) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if is_doubtful(word) {
            return false;
        }
        match text {
            "-d" | "-r" => {
                if words.next().is_some_and(|value| value.splits) {
                    return false;
                }
            }
            "-u" | "-R" | "--utc" | "--universal" | "--rfc-email" => {}
            _ if text.starts_with('+') || text.starts_with("-I") => {}
            _ if text.starts_with("--date=") || text.starts_with("--iso-8601") => {}
            _ => return false,
        }
    }
    true
}

/// Scripts that print, delete or replace what they read; others can write files and run commands.
fn sed(words: &[Word]) -> bool {
    let mut words = words.iter().peekable();
    let mut scripts = 0;
    while let Some(word) = words.next() {
        if is_doubtful(word) {
            return false;
        }
        match word.text.as_str() {
            "-n" | "-E" | "-r" | "-nE" | "-En" | "--quiet" | "--silent" | "--regexp-extended" => {}
            "-e" | "-ne" => match words.next() {
                Some(script) if is_plain_script(script) => scripts += 1,
                Some(_) | None => return false,
            },
            text if text.starts_with('-') => return false,
            _ if scripts == 0 => {
                if !is_plain_script(word) {
                    return false;
                }
                scripts += 1;
            }
            _ => {}
        }
    }
    true
}

fn is_plain_script(word: &Word) -> bool {
    if !word.is_literal() {
        return false;
    }
    let text = word.text.as_str();
    let is_address =
        |c: char| c.is_ascii_digit() || matches!(c, ',' | '$' | ';' | ' ' | 'p' | 'q' | 'd' | '=');
    if text.chars().all(is_address) {
        return true;
    }
    let Some(rest) = text.strip_prefix('s') else { return false };
    let Some(mark) = rest.chars().next().filter(|c| c.is_ascii_punctuation() && *c != '\\') else {
        return false;
    };
    let mut pieces = Vec::from([String::new()]);
    let mut chars = rest.chars().skip(1);
    while let Some(char) = chars.next() {
        match char {
            '\n' => return false,
            '\\' => {
                chars.next();
            }
            _ if char == mark => pieces.push(String::new()),
            _ => pieces.last_mut().into_iter().for_each(|piece| piece.push(char)),
        }
    }
    matches!(pieces.as_slice(), [_, _, flags] if flags.chars().all(|c| "gpiI0123456789".contains(c)))
}

/// Commands of git that read, as long as their options do.
const GIT: [&str; 19] = [
    "blame",
    "cat-file",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "for-each-ref",
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

fn git(words: &[Word]) -> bool {
    let mut rest = words;
    loop {
        match rest {
            [word, folder, more @ ..]
                if word.text == "-C" && word.is_literal() && !folder.splits =>
            {
                rest = more;
            }
            [word, more @ ..]
                if matches!(&*word.text, "--no-pager" | "-P" | "--no-optional-locks") =>
            {
                rest = more;
            }
            _ => break,
        }
    }
    let [command, rest @ ..] = rest else { return false };
    if !command.is_literal()
        || rest.iter().any(|word| is_doubtful(word) || runs_or_writes(&word.text))
    {
        return false;
    }
    let only = |known: &[&str]| rest.iter().all(|word| known.contains(&&*word.text));
    let first = |known: &[&str]| rest.first().is_some_and(|word| known.contains(&&*word.text));
    match command.text.as_str() {
        // Behind other letters the name of a pager may stand as well.
        "grep" => !rest.iter().any(|word| has_letter(word, 'O')),
        name if GIT.contains(&name) => true,
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
        "tag" => rest.is_empty() || first(&["-l", "--list"]),
        "remote" => only(&["-v", "--verbose"]) || first(&["get-url"]),
        "stash" => first(&["list", "show"]),
        "worktree" => first(&["list"]),
        "reflog" => rest.is_empty() || first(&["show"]),
        "config" => first(&["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"]),
        _ => false,
    }
}

/// Returns whether an option of git makes it run something or write a file; options may be shortened.
fn runs_or_writes(text: &str) -> bool {
    let may_be = |option: &str, least: usize| {
        let name = text.split('=').next().unwrap_or_default();
        name.len() >= least && option.starts_with(name)
    };
    may_be("--output", 5) && !text.starts_with("--output-indicator")
        || may_be("--ext-diff", 4)
        || may_be("--textconv", 5)
        || may_be("--open-files-in-pager", 4)
        || text.starts_with("-O")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::permission::shell::{Body, read};

    fn reads(line: &str) -> bool {
        let script = read(line).unwrap();
        let Body::Simple(simple) = &script.pipelines[0].stages[0].body else { panic!("{line}") };
        only_reads(simple)
    }

    #[test]
    fn what_reads_is_known() {
        for line in [
            "ls -la",
            "cat $x",
            "/usr/bin/wc -l *",
            "sed -n '1,40p' a",
            "sed 's/a/b/g' a",
            "git status -s",
            "git -C d log --oneline -5",
            "git diff HEAD~1 -- a",
            "git branch -a",
            "find . -name '*.rs' -type f",
            "sort -k2,2n -u a",
            "uniq -c",
            "date +%s",
            "rg -n x src",
            "cargo --version",
            "[ -f a ]",
            "[[ $a == b ]]",
            "printf '%s' $x",
            "command -v git",
            "read -r line",
            "set -euo pipefail",
            "git config --get user.name",
            "git log --output-indicator-new=x",
        ] {
            assert!(reads(line), "{line}");
        }
    }

    #[test]
    fn what_can_do_more_is_not_taken_for_reading() {
        for line in [
            "touch x",
            "./ls",
            "$x",
            "cat $((a))",
            "sed -i s/a/b/ x",
            "sed 's/a/b/e' x",
            "sed 's/a/b/w y' x",
            "sed -n '1w y' x",
            "git diff --output=x",
            "git diff --outp x",
            "git log --ext-diff",
            "git -c a=b status",
            "git branch new",
            "git grep -Oless x",
            "git diff $x",
            "find . -delete",
            "find . -fprint x",
            "find $x",
            "sort -o x y",
            "sort -uo x y",
            "sort --output=x y",
            "sort *",
            "uniq a b",
            "date -s now",
            "date 0101",
            "rg --pre x y",
            "cargo build",
            "cargo --version x",
            "[[ a -eq 1 ]]",
            "test -v 'a[$(x)]'",
            "printf -v a b",
            "read PATH",
            "set -- a",
            "git remote add a b",
            "git tag v1",
            "awk 1",
            "tree -o x",
            "tree -R -H x",
            "file -C x",
            "wait -p x",
            "tree -R -H x",
            "file -C x",
            "wait -p x",
            "python --version -c x",
            "git config user.name x",
            "hostname x",
            "ls${IFS}x",
        ] {
            assert!(!reads(line), "{line}");
        }
    }

    #[test]
    fn variables_with_effects_are_not_harmless() {
        for name in ["PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "BASH_ENV", "http_proxy", "IFS"] {
            assert!(!is_harmless(name) && !is_own(name), "{name}");
        }
        for name in ["npm_config_script_shell", "pnpm_config_x", "yarn_x", "all_proxy"] {
            assert!(!is_harmless(name) && !is_own(name), "{name}");
        }
        for name in ["LC_ALL", "RUST_BACKTRACE"] {
            assert!(is_harmless(name), "{name}");
        }
        for name in ["x", "file_name"] {
            assert!(is_own(name) && !is_harmless(name), "{name}");
        }
    }
}
