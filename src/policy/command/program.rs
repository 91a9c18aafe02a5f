//! Programs, and programs that run other programs.

use crate::policy::shell::{self, Assignment, ShellScript, ShellWord, SimpleCommand, WordForm};

/// What a program executes besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum NestedExecution {
    /// Nothing known.
    Nothing,
    /// Only other programs.
    Programs(Vec<SimpleCommand>),
    /// Only a script for a shell.
    Script(ShellScript),
    /// A script from its input.
    Input,
    /// Unknown code.
    Unknown,
}

/// A program that runs the program in its arguments.
struct WrapperProgram {
    name: &'static str,
    /// Options without a value.
    flags: &'static [&'static str],
    /// Options with a value.
    valued: &'static [&'static str],
    /// Arguments before the program.
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    plain: &'static [&'static str],
    valued: &'static [&'static str],
    operands: usize,
) -> WrapperProgram {
    WrapperProgram { name, flags: plain, valued, operands }
}

const WRAPPERS: [WrapperProgram; 14] = [
    wrapper("nohup", &[], &[], 0),
    wrapper("setsid", &["-f", "-w", "-c", "--fork", "--wait", "--ctty"], &[], 0),
    wrapper("nice", &[], &["-n", "--adjustment"], 0),
    wrapper("ionice", &["-t"], &["-c", "-n", "--class", "--classdata"], 0),
    wrapper("stdbuf", &[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    wrapper(
        "timeout",
        &["-f", "-p", "-v", "--foreground", "--preserve-status", "--verbose"],
        &["-k", "-s", "--kill-after", "--signal"],
        1,
    ),
    wrapper("time", &["-p", "-v", "--portability", "--verbose"], &["-f", "--format"], 0),
    wrapper("command", &["-p"], &[], 0),
    wrapper("builtin", &[], &[], 0),
    wrapper("exec", &["-c", "-l", "-cl"], &["-a"], 0),
    wrapper("busybox", &[], &[], 0),
    wrapper("toybox", &[], &[], 0),
    wrapper("chrt", &["-b", "-f", "-i", "-o", "-r"], &[], 1),
    wrapper("taskset", &["-a", "-c"], &[], 1),
];

/// Programs that run others in ways that are not analyzed; any argument may be a program.
const OPAQUE_PROGRAMS: [&str; 26] = [
    "bwrap",
    "caffeinate",
    "chroot",
    "dbus-run-session",
    "doas",
    "entr",
    "env",
    "fakeroot",
    "firejail",
    "flock",
    "ltrace",
    "nsenter",
    "numactl",
    "parallel",
    "pkexec",
    "proot",
    "rlwrap",
    "runuser",
    "script",
    "setpriv",
    "strace",
    "sudo",
    "systemd-run",
    "unbuffer",
    "unshare",
    "xargs",
];

const SHELLS: [&str; 9] = ["ash", "bash", "dash", "ksh", "mksh", "rbash", "sh", "yash", "zsh"];

/// Returns the name of the program that some words run, without its folder; `None` if it is unknown.
pub(in crate::policy) fn program_name(words: &[ShellWord]) -> Option<&str> {
    let first = words.first().filter(|word| word.is_literal())?;
    first.text.rsplit('/').next().filter(|name| !name.is_empty())
}

/// Returns whether a program is a shell.
pub(in crate::policy) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Returns what some words run besides the program that they name.
pub(in crate::policy) fn nested_execution(simple: &SimpleCommand) -> NestedExecution {
    let words = simple.words.as_slice();
    let Some(name) = program_name(words) else { return NestedExecution::Unknown };
    let rest = &words[1..];
    match name {
        "env" => parse_env(rest),
        "xargs" => parse_xargs(rest),
        "find" => parse_find(rest),
        "eval" => join_script(rest),
        // What a name will stand for.
        "alias" => {
            let values = rest.iter().filter_map(|word| {
                let (_, value) = word.text.split_once('=')?;
                Some(ShellWord { text: value.to_owned(), ..word.clone() })
            });
            let mut scripts = values.map(|value| join_script(&[value]));
            scripts.next().unwrap_or(NestedExecution::Nothing)
        }
        "watch" => match skip_options(rest, &["-t", "-x", "-c", "-d", "-e", "-g"], &["-n"], 0) {
            Some(rest) => join_script(rest),
            None => NestedExecution::Unknown,
        },
        "trap" => match rest {
            [] => NestedExecution::Nothing,
            [action, ..] if !action.may_be_option() => join_script(std::slice::from_ref(action)),
            _ => NestedExecution::Unknown,
        },
        name if is_shell(name) => parse_shell(rest),
        name => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => parse_wrapper(wrapper, rest),
            None if OPAQUE_PROGRAMS.contains(&name) => NestedExecution::Unknown,
            None => NestedExecution::Nothing,
        },
    }
}

/// The maximum number of programs of a command; the rest of its words is searched for names only.
const MAX_PROGRAMS: usize = 64;

/// The maximum number of words assigned to a program whose beginning is a guess.
const MAX_GUESSED_WORDS: usize = 256;

/// Returns every program that a command may run, itself first: known programs, and possible ones if its arguments are
/// not understood.
pub(in crate::policy) fn all_programs(simple: &SimpleCommand) -> Vec<SimpleCommand> {
    let mut all = Vec::new();
    let mut next = vec![simple.clone()];
    let mut steps = 0;
    while let Some(simple) = next.pop() {
        let words = simple.words.as_slice();
        steps += 1;
        let mut guessed = Vec::new();
        match nested_execution(&simple) {
            _ if steps > MAX_PROGRAMS => {
                guessed.extend(words.iter().map(|word| simple_command(std::slice::from_ref(word))));
                next.clear();
            }
            NestedExecution::Programs(programs) => next.extend(programs),
            NestedExecution::Unknown if runs_others(words) => {
                let end = |from: usize| words.len().min(from + MAX_GUESSED_WORDS);
                guessed.extend((1..end(1)).map(|from| simple_command(&words[from..end(from)])));
            }
            NestedExecution::Nothing
            | NestedExecution::Script(_)
            | NestedExecution::Input
            | NestedExecution::Unknown => {}
        }
        all.push(simple);
        all.append(&mut guessed);
    }
    all
}

/// Returns the arguments of a program that may be scripts.
pub(in crate::policy) fn possible_scripts(words: &[ShellWord]) -> Vec<String> {
    let (Some(name), Some(rest)) = (program_name(words), words.get(1..)) else { return Vec::new() };
    let texts = rest.iter().map(|word| word.text.as_str());
    if runs_scripts(name) && !is_shell(name) {
        return vec![texts.collect::<Vec<_>>().join(" ")];
    }
    if !is_shell(name) && !OPAQUE_PROGRAMS.contains(&name) {
        return Vec::new();
    }
    // As an argument, or glued to an option.
    let ways = |text: &str| {
        let long = text.split_once('=').map(|(_, value)| value.to_owned());
        let short = text.strip_prefix('-').and_then(|text| text.get(1..)).map(str::to_owned);
        let glued = if text.starts_with('-') { [long, short] } else { [None, None] };
        glued.into_iter().flatten().chain([text.to_owned()]).collect::<Vec<_>>()
    };
    texts.filter(|text| text.contains(char::is_whitespace)).flat_map(ways).collect()
}

/// Returns whether a program is one that runs scripts.
pub(in crate::policy) fn runs_scripts(name: &str) -> bool {
    is_shell(name) || matches!(name, "eval" | "trap" | "watch")
}

/// Returns whether some words run a program that runs others.
fn runs_others(words: &[ShellWord]) -> bool {
    program_name(words).is_some_and(|name| {
        OPAQUE_PROGRAMS.contains(&name) || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
    })
}

fn simple_command(words: &[ShellWord]) -> SimpleCommand {
    SimpleCommand { assignments: Vec::new(), words: words.to_vec() }
}

fn parse_program(words: &[ShellWord]) -> NestedExecution {
    match words {
        [] => NestedExecution::Nothing,
        words => NestedExecution::Programs(vec![simple_command(words)]),
    }
}

fn parse_wrapper(wrapper: &WrapperProgram, rest: &[ShellWord]) -> NestedExecution {
    if wrapper.name == "command"
        && rest.first().is_some_and(|word| word.text == "-v" || word.text == "-V")
    {
        return NestedExecution::Nothing;
    }
    let inner = skip_options(rest, wrapper.flags, wrapper.valued, wrapper.operands);
    inner.map_or(NestedExecution::Unknown, parse_program)
}

/// Returns the words after the options and a number of operands; `None` if an option is unknown, or if any of these
/// words may expand to several.
fn skip_options<'a>(
    mut rest: &'a [ShellWord],
    plain: &[&str],
    valued: &[&str],
    operands: usize,
) -> Option<&'a [ShellWord]> {
    while let Some((word, more)) = rest.split_first() {
        if !word.may_be_option() || word.text == "-" {
            break;
        }
        let text = word.is_literal().then_some(word.text.as_str())?;
        let value = || more.first().is_some_and(ShellWord::is_literal);
        let is_glued = |option: &&&str| match option.starts_with("--") {
            true => text.strip_prefix(**option).is_some_and(|value| value.starts_with('=')),
            false => text.len() > option.len() && text.starts_with(**option),
        };
        rest = if text == "--" {
            rest = more;
            break;
        } else if plain.contains(&text) {
            more
        } else if valued.contains(&text) && value() {
            more.get(1..)?
        } else if valued.iter().any(|option| is_glued(&option)) {
            more
        } else {
            return None;
        };
    }
    let (before, rest) = rest.split_at_checked(operands)?;
    before.iter().all(ShellWord::is_literal).then_some(rest)
}

fn parse_env(rest: &[ShellWord]) -> NestedExecution {
    let plain = ["-i", "-", "-0", "-v", "--ignore-environment", "--debug"];
    let Some(mut rest) = skip_options(rest, &plain, &["-u", "--unset", "-C", "--chdir"], 0) else {
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
        words => {
            NestedExecution::Programs(vec![SimpleCommand { assignments, words: words.to_vec() }])
        }
    }
}

/// Placeholder for a value that a program reads.
const INPUT_PLACEHOLDER: &str = "$input";

fn parse_xargs(rest: &[ShellWord]) -> NestedExecution {
    let plain = ["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty", "--verbose", "-0r", "-r0"];
    let valued = [
        "-n",
        "-P",
        "-I",
        "-L",
        "-d",
        "-s",
        "-a",
        "-E",
        "--max-args",
        "--max-procs",
        "--delimiter",
    ];
    let Some(after) = skip_options(rest, &plain, &valued, 0) else {
        return NestedExecution::Unknown;
    };
    let mut words = after.to_vec();
    if words.is_empty() {
        words.push(ShellWord::literal("echo"));
    }
    // What it reads may be anything, and stands wherever a word has what is replaced.
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
    let read = ShellWord {
        text: INPUT_PLACEHOLDER.to_owned(),
        form: WordForm::Computed,
        ..ShellWord::default()
    };
    words.push(ShellWord { is_split: true, ..read });
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
            // Elsewhere it is an argument like others.
            "+" => at > 0 && rest[at - 1].text == "{}",
            _ => false,
        });
        let words = &rest[..end.unwrap_or(rest.len())];
        // The name of a file that it finds; it begins with the folder where it looks.
        let words = words.iter().map(|word| match word.text.contains("{}") {
            true => ShellWord { form: WordForm::Computed, has_braces: false, ..word.clone() },
            false => word.clone(),
        });
        programs.push(SimpleCommand { assignments: Vec::new(), words: words.collect() });
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
                // A file with a script.
                _ => return NestedExecution::Nothing,
            },
            "--rcfile" | "--init-file" => return NestedExecution::Unknown,
            "-" | "--" => has_ended = true,
            _ if text.starts_with("--") => {}
            _ => {
                // Each of these has its value behind the letters.
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
    use crate::policy::shell::CommandBody;

    fn inner_of(line: &str) -> NestedExecution {
        let script = shell::parse_line(line).unwrap();
        let CommandBody::Simple(simple) = &script.pipelines[0].commands[0].body else {
            panic!("{line}")
        };
        nested_execution(simple)
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
