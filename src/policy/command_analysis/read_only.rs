//! Programs that only read.
//!
//! The list is deliberately short: a program missing from it needs a confirmation; a program listed by mistake runs
//! without one.

use super::git;
use super::options::{ReadingOptions, is_in, may_be_option, may_be_several_words};
use crate::policy::shell::{ShellCommand, ShellWord, WordForm, is_variable};

/// Programs that change nothing, whatever their arguments are.
const READING_PROGRAMS: &str = ": [ b2sum basename break cat cd cksum cmp column comm continue cut df dirname dirs du echo \
    egrep exit expand expr factor false fgrep fmt fold free grep groups head id join jq locale \
    ls lscpu md5sum nl nproc od paste popd printenv ps pushd pwd readlink realpath return rev \
    seq sha1sum sha256sum sha512sum shift sleep stat strings sum tac tail test tr true tsort \
    type uname unexpand uptime wc";

/// Programs that only print their version. Programs that first look for a version of themselves in the workspace are
/// left out: `cargo`, `yarn`, `mvn` and similar programs run what a file there names.
const VERSION_PROGRAMS: &str =
    "bash clang cmake docker g++ gcc git make node perl php python python3 ruby";

/// Variables that do not change what any program does.
const HARMLESS_VARIABLES: &str = "CARGO_TERM_COLOR CI CLICOLOR COLUMNS DEBUG FORCE_COLOR LANG LANGUAGE LC_ALL NO_COLOR \
    PYTHONDONTWRITEBYTECODE RUST_BACKTRACE RUST_LOG TZ";

/// The lower-case prefixes of variables that package managers read as settings.
const SETTING_PREFIXES: [&str; 5] = ["bun_", "npm_", "pip_", "pnpm_", "yarn_"];

/// Returns whether a variable has no effect on any program.
pub(in crate::policy) fn is_harmless_variable(variable: &str) -> bool {
    is_in(variable, HARMLESS_VARIABLES)
}

/// Returns whether a variable is one of a script's own: it has no effect on the shell, nor on a program that only
/// reads. Other programs may read any variable.
pub(in crate::policy) fn is_script_variable(variable: &str) -> bool {
    variable.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && !variable.contains(|c: char| c.is_ascii_uppercase())
        && !variable.ends_with("_proxy")
        && !SETTING_PREFIXES.iter().any(|begins| variable.starts_with(begins))
}

const SORT: ReadingOptions = ReadingOptions {
    flags: "bcCdfghiMmnrRsuVz",
    valued: "ktS",
    long: "check dictionary-order field-separator general-numeric-sort human-numeric-sort ignore-case \
        ignore-leading-blanks key merge month-sort numeric-sort reverse stable unique version-sort \
        zero-terminated",
};

const UNIQ: ReadingOptions = ReadingOptions {
    flags: "cdDiuz0123456789",
    valued: "fsw",
    long: "all-repeated check-chars count group ignore-case repeated skip-chars skip-fields unique \
        zero-terminated",
};

const TREE: ReadingOptions = ReadingOptions {
    flags: "aACdDfFghiJlnNpQqrsStuUvxX",
    valued: "LPI",
    long: "charset device dirsfirst du filelimit filesfirst gitignore ignore-case inodes matchdirs \
        noreport prune si sort",
};

const RG: ReadingOptions = ReadingOptions {
    flags: "abcFHhiIlLnNopPqsSuUvVwx0.",
    valued: "ABCefgjmMrtTE",
    long: "after-context before-context binary byte-offset case-sensitive color column context count \
        count-matches crlf debug encoding file files files-with-matches files-without-match \
        fixed-strings follow glob glob-case-insensitive heading help hidden iglob ignore-case \
        ignore-file invert-match json line-number line-regexp max-columns max-count max-depth \
        max-filesize multiline multiline-dotall no-config no-filename no-heading no-ignore \
        no-ignore-vcs no-line-number no-messages null only-matching passthru path-separator pcre2 \
        pretty quiet regexp replace smart-case sort sortr stats text threads trim type type-list \
        type-not unrestricted version vimgrep with-filename word-regexp",
};

const FILE: ReadingOptions = ReadingOptions {
    flags: "bEhikLNnrv0",
    valued: "fF",
    long: "brief dereference extension keep-going mime mime-encoding mime-type no-dereference no-pad \
        print0 separator version",
};

const DIFF: ReadingOptions = ReadingOptions {
    flags: "abBcdeEfHiNnpqrstTuwyZ0123456789",
    valued: "CDFILSUWXx",
    long: "brief color context exclude exclude-from ignore-all-space ignore-blank-lines ignore-case \
        ignore-matching-lines ignore-space-change ignore-trailing-space label minimal new-file \
        no-dereference normal recursive report-identical-files show-c-function side-by-side \
        speed-large-files strip-trailing-cr suppress-common-lines text unified version width",
};

const PGREP: ReadingOptions = ReadingOptions { flags: "acflnovwxi", valued: "dgGPstuUr", long: "" };

/// Options and tests of `find` without an effect; programs that it runs are checked separately.
const FIND: &str = "-H -L -P -a -amin -and -atime -cmin -cnewer -ctime -daystart -depth -empty -exec -execdir \
    -executable -false -follow -fstype -gid -group -ilname -iname -inum -ipath -iregex \
    -iwholename -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime -name -newer -nogroup \
    -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit -readable -regex \
    -regextype -samefile -size -true -type -user -uid -wholename -writable -xdev -xtype -newermt";

/// Returns whether a program changes nothing. Programs that it runs are checked elsewhere.
pub(in crate::policy) fn only_reads(command: &ShellCommand) -> bool {
    let words = command.words.as_slice();
    let [first, rest @ ..] = words else { return true };
    if words.iter().any(|word| word.form == WordForm::Evaluated) || !first.is_literal() {
        return false;
    }
    let name = match first.text.rsplit_once('/') {
        Some(("/bin" | "/usr/bin", name)) => name,
        Some(_) => return false,
        None => first.text.as_str(),
    };
    let takes = |options: &ReadingOptions| options.operands(rest).is_some();
    match name {
        "test" | "[" => test_only_reads(rest),
        "[[" => !rest.iter().any(|word| {
            matches!(&*word.text, "-v" | "-R" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
        }),
        "printf" => printf_only_prints(rest),
        "read" => rest.iter().all(|word| word.text == "-r" || names_script_variable(word)),
        "set" => rest.iter().all(|word| word.is_literal() && is_harmless_shell_setting(&word.text)),
        "date" => date_only_reads(rest),
        "wait" | "getconf" => !rest.iter().any(ShellWord::may_be_option),
        // On some systems, `arch` runs the program in its arguments.
        "arch" | "env" | "hostname" => rest.is_empty(),
        "command" => rest.first().is_some_and(|word| matches!(&*word.text, "-v" | "-V")),
        "diff" => takes(&DIFF),
        "file" => takes(&FILE),
        "pgrep" => takes(&PGREP),
        "rg" => takes(&RG),
        "sort" => takes(&SORT),
        "tree" => takes(&TREE) && !rest.iter().any(has_attached_value),
        // The second operand of `uniq` is a file that it writes.
        "uniq" => {
            !rest.iter().any(may_be_several_words)
                && UNIQ.operands(rest).is_some_and(|operands| operands <= 1)
        }
        "find" => find_only_reads(rest),
        "sed" => sed_only_reads(rest),
        "git" => git::only_reads(rest),
        name if is_in(name, READING_PROGRAMS) => true,
        name if is_in(name, VERSION_PROGRAMS) => {
            matches!(rest, [only] if only.is_literal() && only.text == "--version")
        }
        _ => false,
    }
}

/// Returns whether further letters follow a letter that takes a value. `tree` takes the next word for the value, and
/// the letters for options.
fn has_attached_value(word: &ShellWord) -> bool {
    let letters = word.text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    letters.is_some_and(|letters| {
        let value = letters.find(|flag| TREE.valued.contains(flag));
        value.is_some_and(|at| at + 1 < letters.len())
    })
}

/// Returns whether `find` only searches and runs programs, which are checked separately.
fn find_only_reads(words: &[ShellWord]) -> bool {
    let (mut is_program, mut before) = (false, "");
    let is_known = words.iter().all(|word| {
        let text = word.text.as_str();
        let is_number = || text.len() > 1 && text[1..].starts_with(|c: char| c.is_ascii_digit());
        let is_known = is_program || !text.starts_with('-') || is_in(text, FIND) || is_number();
        // A file can have the name `;`, which ends the program.
        let may_end = is_program && word.form == WordForm::Pattern;
        if is_program {
            is_program = !(text == ";" || text == "+" && before == "{}");
        } else {
            is_program = matches!(text, "-exec" | "-execdir" | "-ok" | "-okdir");
        }
        before = text;
        is_known && !may_end && !may_be_option(word)
    });
    is_known && !is_program
}

/// Returns whether the words of `test` do not cause an evaluation.
///
/// `-v` is followed by the name of a variable; text in brackets after the name is evaluated, including commands. So no
/// word before an operand may expand to such an operator.
fn test_only_reads(words: &[ShellWord]) -> bool {
    const BETWEEN: &str = "= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -a -o ] ) =~";
    let is_between = |word: &ShellWord| word.is_literal() && is_in(&word.text, BETWEEN);
    let is_plain = |(at, word): (usize, &ShellWord)| {
        let next = words.get(at + 1);
        let evaluates = word.is_literal() && matches!(&*word.text, "-v" | "-R");
        !evaluates
            && !may_be_several_words(word)
            && (word.is_literal() || next.is_none_or(is_between))
    };
    words.iter().enumerate().all(is_plain)
}

/// Returns whether `printf` only prints: the option `-v` and `%n` set a variable.
fn printf_only_prints(words: &[ShellWord]) -> bool {
    let [format, rest @ ..] = words else { return true };
    if format.may_be_option() || may_be_several_words(format) {
        return false;
    }
    if !format.is_literal() {
        return rest.is_empty();
    }
    let mut chars = format.text.chars();
    while chars.by_ref().any(|c| c == '%') {
        let is_flag = |c: &char| c.is_ascii_digit() || "-+ #.*'hlLjzt".contains(*c);
        match chars.by_ref().find(|c| !is_flag(c)) {
            Some(c) if !"diouxXeEfFgGaAcsbqQ%(".contains(c) => return false,
            Some(_) | None => {}
        }
    }
    true
}

/// Returns whether a word is the name of a variable that has no effect.
fn names_script_variable(word: &ShellWord) -> bool {
    let text = word.text.as_str();
    word.is_literal()
        && (is_script_variable(text) || is_harmless_variable(text))
        && is_variable(text)
}

/// Returns whether a setting of a shell only changes how it handles errors and patterns.
pub(in crate::policy) fn is_harmless_shell_setting(text: &str) -> bool {
    matches!(text, "pipefail" | "errexit" | "nounset" | "noglob")
        || text
            .strip_prefix(['-', '+'])
            .is_some_and(|flags| flags.chars().all(|c| "euxof".contains(c)))
}

fn date_only_reads(words: &[ShellWord]) -> bool {
    let mut is_value = false;
    words.iter().all(|word| {
        if std::mem::take(&mut is_value) {
            return !may_be_several_words(word);
        }
        let text = word.text.as_str();
        is_value = matches!(text, "-d" | "-r");
        let begins = ["+", "-I", "--date=", "--iso-8601"];
        let is_known = is_value
            || is_in(text, "-u -R --utc --universal --rfc-email")
            || begins.iter().any(|option| text.starts_with(option));
        is_known && !may_be_option(word)
    })
}

/// Scripts may print, delete or replace lines that they read; other `sed` commands can write files and run commands.
fn sed_only_reads(words: &[ShellWord]) -> bool {
    let mut words = words.iter();
    let mut has_script = false;
    while let Some(word) = words.next() {
        let script = match word.text.as_str() {
            _ if may_be_option(word) => return false,
            "-n" | "-E" | "-r" | "-nE" | "-En" | "--quiet" | "--silent" | "--regexp-extended" => {
                continue;
            }
            "-e" | "-ne" => words.next(),
            text if text.starts_with('-') => return false,
            _ if has_script => continue,
            _ => Some(word),
        };
        if !script.is_some_and(is_harmless_sed_script) {
            return false;
        }
        has_script = true;
    }
    true
}

fn is_harmless_sed_script(word: &ShellWord) -> bool {
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

#[cfg(test)]
mod test_only_reads {
    use super::*;
    use crate::policy::shell::parse_line;

    fn reads(line: &str) -> bool {
        let script = parse_line(line).unwrap();
        only_reads(&script.pipelines[0].commands[0])
    }

    #[test]
    fn read_only_programs_are_known() {
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
            "python3 --version",
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
    fn programs_with_effects_are_not_read_only() {
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
            "cargo --version",
            "yarn --version",
            "test \"$op\" 'a[$(x)]'",
            "test -R x",
            "printf 'abc%n' PATH",
            "printf \"$x\" PATH",
            "uniq -- - -x",
            "uniq - -- x",
            "sort --compress-program=x y",
            "rg -z x",
            "file -z x",
            "diff -l a b",
            "find . -D x",
            "git describe --dirty",
            "git log --remerge-diff",
            "git log --format=%GS",
            "git cat-file --filters HEAD:a",
            "git tag -l -d x",
            "git config --list --edit",
            "git diff --ext-diff",
            "git blame --textconv a",
            "[[ a -eq 1 ]]",
            "test -v 'a[$(x)]'",
            "printf -v a b",
            "read PATH",
            "set -- a",
            "git remote add a b",
            "git tag v1",
            "awk 1",
            "tree -o x",
            "tree -Lo 2 x",
            "tree -LP 2 x",
            "find . -exec ls",
            "find . -exec ls \\;* -delete",
            "arch x",
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
            assert!(!is_harmless_variable(name) && !is_script_variable(name), "{name}");
        }
        for name in ["npm_config_script_shell", "pnpm_config_x", "yarn_x", "all_proxy"] {
            assert!(!is_harmless_variable(name) && !is_script_variable(name), "{name}");
        }
        for name in ["LC_ALL", "RUST_BACKTRACE"] {
            assert!(is_harmless_variable(name), "{name}");
        }
        for name in ["x", "file_name"] {
            assert!(is_script_variable(name) && !is_harmless_variable(name), "{name}");
        }
    }
}
