//! Programs, and programs that run other programs.

use crate::tools::permission::shell::{self, Assignment, Form, Script, Simple, Word};

/// What a program runs besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tools::permission) enum Inner {
    /// Nothing that can be seen from here.
    Nothing,
    /// Other programs, and does nothing else.
    Programs(Vec<Simple>),
    /// A script for a shell, and does nothing else.
    Script(Script),
    /// A script that it reads from its input.
    Input,
    /// Something, but what cannot be told.
    Unknown,
}

/// A program that runs the program in its arguments.
struct Wrapper {
    name: &'static str,
    /// Options that stand for themselves.
    plain: &'static [&'static str],
    /// Options that take a value.
    valued: &'static [&'static str],
    /// Arguments before the program.
    operands: usize,
}

const fn wrapper(
    name: &'static str,
    plain: &'static [&'static str],
    valued: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { name, plain, valued, operands }
}

const WRAPPERS: [Wrapper; 14] = [
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

/// Programs that run others in ways that are not looked into; what they name may be what they run.
const OPAQUE: [&str; 26] = [
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

/// Returns the name of the program that some words run, without its folder; none when it cannot be told.
pub(in crate::tools::permission) fn name(words: &[Word]) -> Option<&str> {
    let first = words.first().filter(|word| word.is_literal())?;
    first.text.rsplit('/').next().filter(|name| !name.is_empty())
}

/// Returns whether a program is a shell.
pub(in crate::tools::permission) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Returns what some words run besides the program that they name.
pub(in crate::tools::permission) fn inner(simple: &Simple) -> Inner {
    let words = simple.words.as_slice();
    let Some(name) = name(words) else { return Inner::Unknown };
    let rest = &words[1..];
    match name {
        "env" => env(rest),
        "xargs" => xargs(rest),
        "find" => find(rest),
        "eval" => script_of(rest),
        // What a name will stand for.
        "alias" => {
            let values = rest.iter().filter_map(|word| {
                let (_, value) = word.text.split_once('=')?;
                Some(Word { text: value.to_owned(), ..word.clone() })
            });
            let mut scripts = values.map(|value| script_of(&[value]));
            scripts.next().unwrap_or(Inner::Nothing)
        }
        "watch" => match operands(rest, &["-t", "-x", "-c", "-d", "-e", "-g"], &["-n"], 0) {
            Some(rest) => script_of(rest),
            None => Inner::Unknown,
        },
        "trap" => match rest {
            [] => Inner::Nothing,
            [action, ..] if !action.may_be_option() => script_of(std::slice::from_ref(action)),
            _ => Inner::Unknown,
        },
        name if is_shell(name) => shell(rest),
        name => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => wrapped(wrapper, rest),
            None if OPAQUE.contains(&name) => Inner::Unknown,
            None => Inner::Nothing,
        },
    }
}

/// Programs that are found in one command at the most, before the rest of its words is only looked through for names.
const MOST: usize = 64;

/// Words that a program is taken to have whose beginning is guessed.
const GUESSED: usize = 256;

/// Returns every program that a command may run, itself first: those that it names, and where its arguments are not
/// understood, those that it may name.
pub(in crate::tools::permission) fn all(simple: &Simple) -> Vec<Simple> {
    let mut all = Vec::new();
    let mut next = vec![simple.clone()];
    let mut steps = 0;
    while let Some(simple) = next.pop() {
        let words = simple.words.as_slice();
        steps += 1;
        let mut guessed = Vec::new();
        match inner(&simple) {
            _ if steps > MOST => {
                guessed.extend(words.iter().map(|word| of_words(std::slice::from_ref(word))));
                next.clear();
            }
            Inner::Programs(programs) => next.extend(programs),
            Inner::Unknown if runs_others(words) => {
                let end = |from: usize| words.len().min(from + GUESSED);
                guessed.extend((1..end(1)).map(|from| of_words(&words[from..end(from)])));
            }
            Inner::Nothing | Inner::Script(_) | Inner::Input | Inner::Unknown => {}
        }
        all.push(simple);
        all.append(&mut guessed);
    }
    all
}

/// Returns texts among the arguments of a program that may be scripts which it runs.
pub(in crate::tools::permission) fn guessed(words: &[Word]) -> Vec<String> {
    let (Some(name), Some(rest)) = (name(words), words.get(1..)) else { return Vec::new() };
    let texts = rest.iter().map(|word| word.text.as_str());
    if runs_scripts(name) && !is_shell(name) {
        return vec![texts.collect::<Vec<_>>().join(" ")];
    }
    if !is_shell(name) && !OPAQUE.contains(&name) {
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
pub(in crate::tools::permission) fn runs_scripts(name: &str) -> bool {
    is_shell(name) || matches!(name, "eval" | "trap" | "watch")
}

/// Returns whether some words run a program that runs others.
fn runs_others(words: &[Word]) -> bool {
    name(words).is_some_and(|name| {
        OPAQUE.contains(&name) || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
    })
}

fn of_words(words: &[Word]) -> Simple {
    Simple { assignments: Vec::new(), words: words.to_vec() }
}

fn program(words: &[Word]) -> Inner {
    match words {
        [] => Inner::Nothing,
        words => Inner::Programs(vec![of_words(words)]),
    }
}

fn wrapped(wrapper: &Wrapper, rest: &[Word]) -> Inner {
    if wrapper.name == "command"
        && rest.first().is_some_and(|word| word.text == "-v" || word.text == "-V")
    {
        return Inner::Nothing;
    }
    let inner = operands(rest, wrapper.plain, wrapper.valued, wrapper.operands);
    inner.map_or(Inner::Unknown, program)
}

/// Returns what follows the options and so many operands; none when an option is not known, or when one of all these
/// words may turn out to be several.
fn operands<'a>(
    mut rest: &'a [Word],
    plain: &[&str],
    valued: &[&str],
    operands: usize,
) -> Option<&'a [Word]> {
    while let Some((word, more)) = rest.split_first() {
        if !word.may_be_option() || word.text == "-" {
            break;
        }
        let text = word.is_literal().then_some(word.text.as_str())?;
        let value = || more.first().is_some_and(Word::is_literal);
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
    before.iter().all(Word::is_literal).then_some(rest)
}

fn env(rest: &[Word]) -> Inner {
    let plain = ["-i", "-", "-0", "-v", "--ignore-environment", "--debug"];
    let Some(mut rest) = operands(rest, &plain, &["-u", "--unset", "-C", "--chdir"], 0) else {
        return Inner::Unknown;
    };
    if rest.first().is_some_and(|word| word.text == "-") {
        rest = &rest[1..];
    }
    let mut assignments = Vec::new();
    while let Some((word, more)) = rest.split_first() {
        let Some((name, value)) = word.text.split_once('=') else { break };
        if word.splits || !shell::is_variable(name) {
            return Inner::Unknown;
        }
        let value = Word { text: value.to_owned(), ..word.clone() };
        assignments.push(Assignment { name: name.to_owned(), values: vec![value], is_list: false });
        rest = more;
    }
    match rest {
        [] => Inner::Nothing,
        words => Inner::Programs(vec![Simple { assignments, words: words.to_vec() }]),
    }
}

/// What stands for something that a program reads.
const INPUT: &str = "$input";

fn xargs(rest: &[Word]) -> Inner {
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
    let Some(after) = operands(rest, &plain, &valued, 0) else { return Inner::Unknown };
    let mut words = after.to_vec();
    if words.is_empty() {
        words.push(Word::literal("echo"));
    }
    // What it reads may be anything, and stands wherever a word has what is replaced.
    let options = &rest[..rest.len() - after.len()];
    for mark in options.iter().enumerate().filter_map(|(at, word)| match word.text.as_str() {
        "-I" => options.get(at + 1).map(|mark| mark.text.as_str()),
        text => text.strip_prefix("-I"),
    }) {
        for word in words.iter_mut().filter(|word| word.text.contains(mark)) {
            word.text = word.text.replace(mark, INPUT);
            word.at_least(Form::Computed);
        }
    }
    let read = Word { text: INPUT.to_owned(), form: Form::Computed, ..Word::default() };
    words.push(Word { splits: true, ..read });
    program(&words)
}

fn find(rest: &[Word]) -> Inner {
    let runs = |word: &Word| matches!(&*word.text, "-exec" | "-execdir" | "-ok" | "-okdir");
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
            true => Word { form: Form::Computed, has_braces: false, ..word.clone() },
            false => word.clone(),
        });
        programs.push(Simple { assignments: Vec::new(), words: words.collect() });
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    if programs.is_empty() { Inner::Nothing } else { Inner::Programs(programs) }
}

fn shell(rest: &[Word]) -> Inner {
    let mut words = rest.iter();
    let (mut is_script, mut is_input, mut has_ended) = (false, false, false);
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if !word.is_literal() && word.may_be_option() {
            return Inner::Unknown;
        }
        match text {
            _ if has_ended || !text.starts_with(['-', '+']) => match text {
                _ if is_script => return script_of(std::slice::from_ref(word)),
                _ if is_input => return Inner::Input,
                "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0" => return Inner::Input,
                // A file with a script.
                _ => return Inner::Nothing,
            },
            "--rcfile" | "--init-file" => return Inner::Unknown,
            "-" | "--" => has_ended = true,
            _ if text.starts_with("--") => {}
            _ => {
                // Each of these has its value behind the letters.
                for _ in text.matches(['o', 'O']) {
                    if !words.next().is_none_or(Word::is_literal) {
                        return Inner::Unknown;
                    }
                }
                is_script |= text.starts_with('-') && text.contains('c');
                is_input |= text.starts_with('-') && text.contains('s');
            }
        }
    }
    if is_script { Inner::Unknown } else { Inner::Input }
}

/// Returns the script that words make up.
fn script_of(words: &[Word]) -> Inner {
    if !words.iter().all(Word::is_literal) {
        return Inner::Unknown;
    }
    let text: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    shell::read(&text.join(" ")).map_or(Inner::Unknown, Inner::Script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::permission::shell::Body;

    fn inner_of(line: &str) -> Inner {
        let script = shell::read(line).unwrap();
        let Body::Simple(simple) = &script.pipelines[0].stages[0].body else { panic!("{line}") };
        inner(simple)
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
            let Inner::Programs(found) = inner_of(line) else { panic!("{line}") };
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
            assert_eq!(inner_of(line), Inner::Script(shell::read("ls x").unwrap()), "{line}");
        }
        assert_eq!(inner_of("bash -s -- x"), Inner::Input);
        assert_eq!(inner_of("sh"), Inner::Input);
        assert_eq!(inner_of("sh file"), Inner::Nothing);
        for line in ["sh -c \"$x\"", "$x y", "timeout --what 5 ls", "sudo ls", "xargs --what ls"] {
            assert_eq!(inner_of(line), Inner::Unknown, "{line}");
        }
    }
}
