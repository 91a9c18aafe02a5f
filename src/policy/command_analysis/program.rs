//! Programs that run other programs.

use super::options::is_in;
use crate::policy::shell::{self, Assignment, ShellCommand, ShellScript, ShellWord, WordForm};

/// The code and programs that a program runs besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum NestedExecution {
    /// Nothing that is known.
    Nothing,
    /// Only other programs.
    Programs(Vec<ShellCommand>),
    /// Only a script for a shell.
    Script(ShellScript),
    /// A script that it reads from its input.
    Input,
    /// Unknown code.
    Unknown,
}

/// Programs that run the program in their arguments: the name, options without a value, options with a value, and the
/// number of arguments before the program.
const WRAPPERS: [(&str, &str, &str, usize); 14] = [
    ("nohup", "", "", 0),
    ("setsid", "-f -w -c --fork --wait --ctty", "", 0),
    ("nice", "", "-n --adjustment", 0),
    ("ionice", "-t", "-c -n --class --classdata", 0),
    ("stdbuf", "", "-i -o -e --input --output --error", 0),
    (
        "timeout",
        "-f -p -v --foreground --preserve-status --verbose",
        "-k -s --kill-after --signal",
        1,
    ),
    ("time", "-p -v --portability --verbose", "-f --format", 0),
    ("command", "-p", "", 0),
    ("builtin", "", "", 0),
    ("exec", "-c -l -cl", "-a", 0),
    ("busybox", "", "", 0),
    ("toybox", "", "", 0),
    ("chrt", "-b -f -i -o -r", "", 1),
    ("taskset", "-a -c", "", 1),
];

/// Programs that run others in ways that are not analyzed; any argument may be a program.
const OPAQUE_PROGRAMS: &str = "bwrap caffeinate chroot dbus-run-session doas entr env fakeroot \
    firejail flock ltrace nsenter numactl parallel pkexec proot rlwrap runuser script setpriv strace \
    sudo systemd-run unbuffer unshare xargs";

/// Returns whether a program is a shell.
pub(in crate::policy) fn is_shell(name: &str) -> bool {
    is_in(name, "ash bash dash ksh mksh rbash sh yash zsh")
}

/// Returns whether a program runs scripts.
pub(in crate::policy) fn runs_scripts(name: &str) -> bool {
    is_shell(name) || matches!(name, "eval" | "trap" | "watch")
}

/// Returns the code and programs that a command runs besides the program that it names.
pub(in crate::policy) fn nested_execution(command: &ShellCommand) -> NestedExecution {
    let Some(name) = command.name() else { return NestedExecution::Unknown };
    let rest = &command.words[1..];
    let is_query = rest.first().is_some_and(|word| is_in(&word.text, "-v -V"));
    match name {
        "env" => parse_env(rest),
        "xargs" => parse_xargs(rest),
        "find" => parse_find(rest),
        "eval" => join_script(rest),
        // The values that names will stand for.
        "alias" => {
            let mut values = rest.iter().filter_map(|word| {
                let (_, value) = word.text.split_once('=')?;
                Some(ShellWord { text: value.to_owned(), ..word.clone() })
            });
            values.next().map_or(NestedExecution::Nothing, |value| join_script(&[value]))
        }
        "watch" => skip_options(rest, "-t -x -c -d -e -g", "-n", 0)
            .map_or(NestedExecution::Unknown, join_script),
        "trap" => match rest {
            [] => NestedExecution::Nothing,
            [action, ..] if action.may_be_option() => NestedExecution::Unknown,
            [action, ..] => join_script(std::slice::from_ref(action)),
        },
        "command" if is_query => NestedExecution::Nothing,
        name if is_shell(name) => parse_shell(rest),
        name => match WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
            Some((_, flags, valued, operands)) => skip_options(rest, flags, valued, *operands)
                .map_or(NestedExecution::Unknown, parse_program),
            None if is_in(name, OPAQUE_PROGRAMS) => NestedExecution::Unknown,
            None => NestedExecution::Nothing,
        },
    }
}

/// The maximum number of programs of a command; only names are searched in the rest of its words.
const MAX_PROGRAMS: usize = 64;

/// The maximum number of words assigned to a program whose first word is a guess.
const MAX_GUESSED_WORDS: usize = 256;

/// Returns every program that a command may run, beginning with its own: known programs, and possible ones if its
/// arguments are not understood.
pub(in crate::policy) fn all_programs(command: &ShellCommand) -> Vec<ShellCommand> {
    let mut all = Vec::new();
    let mut next = vec![command.clone()];
    let mut steps = 0;
    while let Some(command) = next.pop() {
        let words = command.words.as_slice();
        steps += 1;
        let mut guessed = Vec::new();
        match nested_execution(&command) {
            _ if steps > MAX_PROGRAMS => {
                guessed.extend(words.chunks(1).map(ShellCommand::program));
                next.clear();
            }
            NestedExecution::Programs(programs) => next.extend(programs),
            NestedExecution::Unknown if runs_others(&command) => {
                let end = |from: usize| words.len().min(from + MAX_GUESSED_WORDS);
                let starts = 1..end(1);
                guessed.extend(starts.map(|from| ShellCommand::program(&words[from..end(from)])));
            }
            _ => {}
        }
        all.push(command);
        all.append(&mut guessed);
    }
    all
}

/// Returns whether a command runs a program that runs others.
fn runs_others(command: &ShellCommand) -> bool {
    let is_wrapper = |name| WRAPPERS.iter().any(|(wrapper, ..)| *wrapper == name);
    command.name().is_some_and(|name| is_in(name, OPAQUE_PROGRAMS) || is_wrapper(name))
}

/// Returns the arguments of a program that may be scripts.
pub(in crate::policy) fn possible_scripts(command: &ShellCommand) -> Vec<String> {
    let Some(name) = command.name() else { return Vec::new() };
    let texts = command.words[1..].iter().map(|word| word.text.as_str());
    if runs_scripts(name) && !is_shell(name) {
        return vec![texts.collect::<Vec<_>>().join(" ")];
    }
    if !is_shell(name) && !is_in(name, OPAQUE_PROGRAMS) {
        return Vec::new();
    }
    // A script may be an argument of its own, or part of an option.
    let ways = |text: &str| {
        let long = text.split_once('=').map(|(_, value)| value.to_owned());
        let short = text.get(2..).map(str::to_owned);
        let glued = [long, short].into_iter().flatten().filter(|_| text.starts_with('-'));
        glued.chain([text.to_owned()]).collect::<Vec<_>>()
    };
    texts.filter(|text| text.contains(char::is_whitespace)).flat_map(ways).collect()
}

fn parse_program(words: &[ShellWord]) -> NestedExecution {
    match words {
        [] => NestedExecution::Nothing,
        words => NestedExecution::Programs(vec![ShellCommand::program(words)]),
    }
}

/// Returns the words after the options and a number of operands; `None` if an option is unknown, or if any of the
/// skipped words may expand to several.
fn skip_options<'a>(
    mut rest: &'a [ShellWord],
    plain: &str,
    valued: &str,
    operands: usize,
) -> Option<&'a [ShellWord]> {
    while let Some((word, more)) = rest.split_first() {
        if !word.may_be_option() || word.text == "-" {
            break;
        }
        let text = word.is_literal().then_some(word.text.as_str())?;
        let value = || more.first().is_some_and(ShellWord::is_literal);
        let is_glued = |option: &str| match option.starts_with("--") {
            true => text.strip_prefix(option).is_some_and(|value| value.starts_with('=')),
            false => text.len() > option.len() && text.starts_with(option),
        };
        rest = if text == "--" {
            rest = more;
            break;
        } else if is_in(text, plain) {
            more
        } else if is_in(text, valued) && value() {
            more.get(1..)?
        } else if valued.split_whitespace().any(is_glued) {
            more
        } else {
            return None;
        };
    }
    let (before, rest) = rest.split_at_checked(operands)?;
    before.iter().all(ShellWord::is_literal).then_some(rest)
}

fn parse_env(rest: &[ShellWord]) -> NestedExecution {
    let plain = "-i - -0 -v --ignore-environment --debug";
    let Some(mut rest) = skip_options(rest, plain, "-u --unset -C --chdir", 0) else {
        return NestedExecution::Unknown;
    };
    if rest.first().is_some_and(|word| word.text == "-") {
        rest = &rest[1..];
    }
    let mut assignments = Vec::new();
    while let Some((word, more)) = rest.split_first() {
        let Some((name, value)) = word.text.split_once('=') else { break };
        if word.is_split || !shell::is_variable(name) {
            return NestedExecution::Unknown;
        }
        let value = ShellWord { text: value.to_owned(), ..word.clone() };
        assignments.push(Assignment { name: name.to_owned(), values: vec![value], is_list: false });
        rest = more;
    }
    match rest {
        [] => NestedExecution::Nothing,
        words => NestedExecution::Programs(vec![ShellCommand {
            assignments,
            ..ShellCommand::program(words)
        }]),
    }
}

/// Placeholder for a value that a program reads.
const INPUT_PLACEHOLDER: &str = "$input";

fn parse_xargs(rest: &[ShellWord]) -> NestedExecution {
    let plain = "-0 -r -t -x --null --no-run-if-empty --verbose -0r -r0";
    let valued = "-n -P -I -L -d -s -a -E --max-args --max-procs --delimiter";
    let Some(after) = skip_options(rest, plain, valued, 0) else {
        return NestedExecution::Unknown;
    };
    let mut words = after.to_vec();
    if words.is_empty() {
        words.push(ShellWord::literal("echo"));
    }
    // The input may be anything, and replaces the mark wherever it occurs in a word.
    let options = &rest[..rest.len() - after.len()];
    for mark in options.iter().enumerate().filter_map(|(at, word)| match word.text.as_str() {
        "-I" => options.get(at + 1).map(|mark| mark.text.as_str()),
        text => text.strip_prefix("-I"),
    }) {
        for word in words.iter_mut().filter(|word| word.text.contains(mark)) {
            word.text = word.text.replace(mark, INPUT_PLACEHOLDER);
            word.raise_form(WordForm::Computed);
        }
    }
    words.push(ShellWord {
        form: WordForm::Computed,
        is_split: true,
        ..ShellWord::literal(INPUT_PLACEHOLDER)
    });
    parse_program(&words)
}

fn parse_find(rest: &[ShellWord]) -> NestedExecution {
    let runs = |word: &ShellWord| matches!(&*word.text, "-exec" | "-execdir" | "-ok" | "-okdir");
    let mut programs = Vec::new();
    let mut rest = rest;
    while let Some(at) = rest.iter().position(runs) {
        rest = &rest[at + 1..];
        let end = rest.iter().enumerate().position(|(at, word)| match &*word.text {
            ";" => true,
            // Elsewhere, `+` is an ordinary argument.
            "+" => at > 0 && rest[at - 1].text == "{}",
            _ => false,
        });
        let words = &rest[..end.unwrap_or(rest.len())];
        // `{}` is the name of a found file; it begins with the searched folder.
        let mut program = ShellCommand::program(words);
        for word in program.words.iter_mut().filter(|word| word.text.contains("{}")) {
            (word.form, word.has_braces) = (WordForm::Computed, false);
        }
        programs.push(program);
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    if programs.is_empty() { NestedExecution::Nothing } else { NestedExecution::Programs(programs) }
}

fn parse_shell(rest: &[ShellWord]) -> NestedExecution {
    let mut words = rest.iter();
    let (mut is_script, mut is_input, mut has_ended) = (false, false, false);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.is_literal() && word.may_be_option() {
            return NestedExecution::Unknown;
        }
        match text {
            _ if has_ended || !text.starts_with(['-', '+']) => match text {
                _ if is_script => return join_script(std::slice::from_ref(word)),
                _ if is_input => return NestedExecution::Input,
                "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0" => return NestedExecution::Input,
                // The script is in a file.
                _ => return NestedExecution::Nothing,
            },
            "--rcfile" | "--init-file" => return NestedExecution::Unknown,
            "-" | "--" => has_ended = true,
            _ if text.starts_with("--") => {}
            _ => {
                // Each `o` or `O` takes its value from the next word.
                for _ in text.matches(['o', 'O']) {
                    if !words.next().is_none_or(ShellWord::is_literal) {
                        return NestedExecution::Unknown;
                    }
                }
                is_script |= text.starts_with('-') && text.contains('c');
                is_input |= text.starts_with('-') && text.contains('s');
            }
        }
    }
    if is_script { NestedExecution::Unknown } else { NestedExecution::Input }
}

/// Joins words into a script.
fn join_script(words: &[ShellWord]) -> NestedExecution {
    if !words.iter().all(ShellWord::is_literal) {
        return NestedExecution::Unknown;
    }
    let text: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    shell::parse_line(&text.join(" ")).map_or(NestedExecution::Unknown, NestedExecution::Script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner_of(line: &str) -> NestedExecution {
        let script = shell::parse_line(line).unwrap();
        nested_execution(&script.pipelines[0].commands[0])
    }

    #[test]
    fn what_is_wrapped_is_found() {
        for line in [
            "env -i -u C A=b ls x",
            "nohup ls x",
            "timeout -k 1 -s9 5 ls x",
            "nice -n 5 ls x",
            "command ls x",
            "exec -a y ls x",
            "stdbuf -oL ls x",
            "busybox ls x",
            "find . -name y -exec ls x \\;",
        ] {
            let NestedExecution::Programs(found) = inner_of(line) else { panic!("{line}") };
            let words: Vec<&str> = found[0].words.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(words, ["ls", "x"], "{line}");
        }
    }

    #[test]
    fn scripts_are_found() {
        for line in [
            "sh -c 'ls x'",
            "bash -lc 'ls x'",
            "bash -e -o pipefail -c 'ls x' y",
            "eval ls x",
            "trap 'ls x' EXIT",
        ] {
            assert_eq!(
                inner_of(line),
                NestedExecution::Script(shell::parse_line("ls x").unwrap()),
                "{line}"
            );
        }
        assert_eq!(inner_of("bash -s -- x"), NestedExecution::Input);
        assert_eq!(inner_of("sh"), NestedExecution::Input);
        assert_eq!(inner_of("sh file"), NestedExecution::Nothing);
        for line in ["sh -c \"$x\"", "$x y", "timeout --what 5 ls", "sudo ls", "xargs --what ls"] {
            assert_eq!(inner_of(line), NestedExecution::Unknown, "{line}");
        }
    }
}
