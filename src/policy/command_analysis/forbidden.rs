//! Commands that are denied whatever the rules allow.
//!
//! The protection from harmful commands is the sandbox. This module only denies commands that no one would run
//! unattended on purpose, in spellings that can be parsed: changing the user, removing system folders or the home,
//! creating file systems, writing to devices, fork bombs, and running downloaded code.

use super::command_line::{CommandLine, HOME, normalize_path};
use super::options::{is_in, option_values};
use super::program::{NestedExecution, all_programs, is_shell, nested_execution};
use super::unparsed::possible_programs;
use crate::policy::file_patterns::names_may_match;
use crate::policy::shell::{
    CommandKind, RedirectionKind, ShellCommand, ShellPipeline, ShellScript, ShellWord, WordForm,
};

/// The dangerous use of a program.
enum Danger {
    /// Any use, for this reason.
    Always(&'static str),
    /// Removing one of these folders, if it is vital.
    Removes(fn(&ShellCommand) -> Vec<ShellWord>),
    /// Writing one of these files, if it is a device.
    Writes(fn(&ShellCommand) -> Vec<ShellWord>),
}

/// The dangerous programs.
static DANGERS: [(&str, Danger); 8] = [
    ("sudo sudoedit su doas pkexec runuser gosu", Danger::Always("runs programs as another user")),
    ("mkfs mke2fs mkswap newfs wipefs", Danger::Always("makes or destroys a file system")),
    (
        "rm",
        Danger::Removes(|rm| if has_option(rm, is_recursive) { operands(rm) } else { Vec::new() }),
    ),
    ("find", Danger::Removes(folders_of_find)),
    (
        "rsync",
        Danger::Removes(|rsync| match has_option(rsync, |text| text.starts_with("--del")) {
            true => last_operand(rsync),
            false => Vec::new(),
        }),
    ),
    ("cp mv install ln", Danger::Writes(last_operand)),
    ("tee shred truncate blkdiscard sgdisk parted", Danger::Writes(operands)),
    ("dd", Danger::Writes(|dd| option_values(&dd.words, &["of="]))),
];

/// Programs that download files.
const DOWNLOADERS: &str = "aria2c axel curl fetch http https lynx wget";

/// Programs other than shells that run code from their input.
const INTERPRETERS: &str = "bun deno fish lua node perl php python ruby";

/// Folders that a system needs to work, and folders of homes.
const VITAL_FOLDERS: &str = "/Applications /Library /System /Users /bin /boot /dev /etc /home /lib \
    /lib32 /lib64 /mnt /opt /proc /root /run /sbin /srv /sys /usr /usr/bin /usr/lib /var";

/// Devices to which any command may write.
const WRITABLE_DEVICES: &str = "/dev/fd /dev/full /dev/null /dev/pts /dev/random /dev/shm /dev/stderr \
    /dev/stdout /dev/tty /dev/zero";

/// The reason for denying a download that is run.
const DOWNLOAD_EXECUTION: &str = "it runs downloaded code without a check";

/// Returns the reason why a line is forbidden; `None` if it is allowed.
pub(in crate::policy) fn forbidden_reason(line: &CommandLine) -> Option<String> {
    let unparsed = line.unparsed.iter().find_map(|text| {
        let found = possible_programs(text).find_map(|program| program_danger(line, &program));
        found.or_else(|| runs_unparsed_download(text).then(|| DOWNLOAD_EXECUTION.to_owned()))
    });
    unparsed
        .or_else(|| line.programs.iter().find_map(|program| program_danger(line, program)))
        .or_else(|| line.pipelines().find_map(|pipeline| pipeline_danger(line, pipeline)))
        .or_else(|| line.scripts.iter().flat_map(ShellScript::commands).find_map(fork_bomb))
        .or_else(|| runs_download(line).then(|| DOWNLOAD_EXECUTION.to_owned()))
}

fn program_danger(line: &CommandLine, program: &ShellCommand) -> Option<String> {
    let writes = |word: &ShellWord| {
        let device = line.possible_paths(word).into_iter().find(|place| is_device(place))?;
        Some(format!("it writes to the device {device}"))
    };
    let mut written = program.redirections.iter().filter(|to| to.kind == RedirectionKind::Write);
    if let Some(why) = written.find_map(|to| writes(&to.target)) {
        return Some(why);
    }
    let first = program.words.first()?;
    let name = first.text.rsplit('/').next()?;
    let is_pattern = is_specific_pattern(first, name);
    let may_be = |known: &str| match is_pattern {
        true => names_may_match(name, known),
        false => {
            first.is_literal() && (name == known || known == "mkfs" && name.starts_with("mkfs."))
        }
    };
    let named = |(names, danger): &'static (&str, Danger)| {
        Some((names.split(' ').find(|known| may_be(known))?, danger))
    };
    match DANGERS.iter().find_map(named)? {
        (known, Danger::Always(what)) if is_pattern => Some(format!("'{known}' {what}")),
        (_, Danger::Always(what)) => Some(format!("'{name}' {what}")),
        _ if is_pattern => None,
        (_, Danger::Removes(folders)) => folders(program).iter().find_map(|it| removal(line, it)),
        (_, Danger::Writes(files)) => files(program).iter().find_map(writes),
    }
}

/// Returns whether the name of a program is a pattern with enough characters to recognize the program.
fn is_specific_pattern(word: &ShellWord, name: &str) -> bool {
    let letters = name.split('[').next().unwrap_or_default().matches(char::is_alphanumeric);
    word.form == WordForm::Pattern && letters.count() > 1
}

fn removal(line: &CommandLine, word: &ShellWord) -> Option<String> {
    let is_vital = line.possible_paths(word).iter().any(|place| is_vital(place, word.form));
    is_vital.then(|| format!("it removes {} with everything in it", word.text))
}

fn has_option(program: &ShellCommand, is_it: fn(&str) -> bool) -> bool {
    program.words[1..].iter().any(|word| is_it(&word.text))
}

fn operands(program: &ShellCommand) -> Vec<ShellWord> {
    program.words[1..].iter().filter(|word| !word.text.starts_with('-')).cloned().collect()
}

fn last_operand(program: &ShellCommand) -> Vec<ShellWord> {
    operands(program).pop().into_iter().collect()
}

/// Returns whether an option makes `rm` recursive.
fn is_recursive(text: &str) -> bool {
    match text.strip_prefix("--") {
        Some(long) => !long.is_empty() && "recursive".starts_with(long),
        None => text.starts_with('-') && text.contains(['r', 'R']),
    }
}

/// Returns the folders in which `find` removes files.
fn folders_of_find(find: &ShellCommand) -> Vec<ShellWord> {
    let removes = match nested_execution(find) {
        NestedExecution::Programs(all) => all.iter().any(|program| program.name() == Some("rm")),
        _ => false,
    };
    if !removes && !has_option(find, |text| text == "-delete") {
        return Vec::new();
    }
    // Some options precede the folders. Without folders, the current one is searched.
    let is_option = |text: &str| is_in(text, "-H -L -P -D --") || text.starts_with("-O");
    let words = find.words[1..].iter().filter(|word| !is_option(&word.text));
    let folders = words.take_while(|word| !word.text.starts_with(['-', '(', '!']));
    let folders: Vec<ShellWord> = folders.cloned().collect();
    if folders.is_empty() { vec![ShellWord::literal(".")] } else { folders }
}

fn is_device(place: &str) -> bool {
    let is_below = |open: &str| {
        place.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    place.starts_with("/dev/") && !WRITABLE_DEVICES.split_whitespace().any(is_below)
}

/// Returns whether a path is the root, a home, or a folder that the system needs.
fn is_vital(place: &str, form: WordForm) -> bool {
    // `/etc/*` is as dangerous as `/etc`.
    let mut place = place;
    while form != WordForm::Literal
        && place != "/"
        && let Some((before, last)) = place.rsplit_once('/')
        && (last.chars().all(|c| "*.?[]!".contains(c)) || last.starts_with('$'))
    {
        place = if before.is_empty() { "/" } else { before };
    }
    let place = normalize_path(place);
    let mut parts = place.trim_start_matches('/').split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if !place.starts_with('/') {
        let is_above = !place.is_empty() && place.split('/').all(|part| part == "..");
        return is_above || first == HOME && second.is_none_or(|second| second == "..");
    }
    let has_pattern = form != WordForm::Literal && first.contains(['*', '?', '[']);
    let is_someones = matches!(first, "home" | "Users") && third.is_none();
    place == "/" || has_pattern || is_someones || is_in(&place, VITAL_FOLDERS)
}

/// Returns the danger of connected programs: the removal of folders that another one prints, the execution of a
/// download by another one, a script that starts itself twice.
fn pipeline_danger(line: &CommandLine, pipeline: &ShellPipeline) -> Option<String> {
    let parts: Vec<Vec<ShellCommand>> = pipeline.commands.iter().map(programs_in).collect();
    let has = |part: &[ShellCommand], name: &str| part[0].name() == Some(name);
    let removes =
        |program: &ShellCommand| program.name() == Some("rm") && has_option(program, is_recursive);
    if parts.iter().any(|part| has(part, "xargs") && part.iter().any(removes)) {
        let printers = parts.iter().filter(|part| has(part, "echo") || has(part, "printf"));
        let mut printed = printers.flat_map(|part| operands(&part[0]));
        if let Some(why) = printed.find_map(|word| removal(line, &word)) {
            return Some(why);
        }
    }
    let fetched = parts.iter().position(|part| part.iter().any(downloads));
    let run = parts.iter().rposition(|part| part.iter().any(reads_code_from_input));
    if fetched.is_some() && fetched < run {
        return Some(DOWNLOAD_EXECUTION.to_owned());
    }
    let itself = pipeline.commands.iter().filter(|command| runs_itself(command, "$0")).count();
    let is_bomb = itself > 1 || itself > 0 && pipeline.is_background;
    is_bomb.then(|| "it starts itself again and again".to_owned())
}

/// Returns the programs that a command may run, including inner ones.
fn programs_in(command: &ShellCommand) -> Vec<ShellCommand> {
    command.commands().into_iter().flat_map(all_programs).collect()
}

/// Checks whether a function starts itself twice.
fn fork_bomb(command: &ShellCommand) -> Option<String> {
    let CommandKind::Function(name) = &command.kind else { return None };
    let calls = command.commands().into_iter().filter(|inner| runs_itself(inner, name)).count();
    let is_bomb = |pipeline: &ShellPipeline| {
        let is_parallel = pipeline.is_background || pipeline.commands.len() > 1;
        is_parallel && pipeline.commands.iter().any(|part| runs_itself(part, name))
    };
    let body = command.scripts.iter().flat_map(|body| &body.pipelines);
    let inner = body.flat_map(|body| &body.commands).flat_map(|group| &group.scripts);
    let is_bomb = calls > 1 || inner.flat_map(|script| &script.pipelines).any(is_bomb);
    is_bomb.then(|| format!("the function '{name}' starts itself again and again"))
}

fn runs_itself(command: &ShellCommand, name: &str) -> bool {
    let is_simple = command.kind == CommandKind::Simple;
    is_simple && command.words.first().is_some_and(|word| word.text == name)
}

/// Returns whether a line runs a download: given in its words, or stored in a variable or a file.
fn runs_download(line: &CommandLine) -> bool {
    let is_output = |word: &ShellWord| {
        let mut commands = word.scripts.iter().flat_map(ShellScript::commands);
        commands.any(|command| all_programs(command).iter().any(downloads))
    };
    let commands = line.scripts.iter().flat_map(ShellScript::commands);
    let set = commands.flat_map(|command| &command.assignments);
    let variables = set.filter(|set| set.values.iter().any(is_output));
    let variables: Vec<String> = variables.map(|set| format!("${}", set.name)).collect();
    let file = |word: &ShellWord| word.text.rsplit('/').next().unwrap_or_default().to_owned();
    let fetched = line.programs.iter().filter(|program| downloads(program));
    let files = fetched.flat_map(|program| {
        let options = ["-o", "-O", "--output", "--output-document"];
        let written = program.redirections.iter().filter(|to| to.kind == RedirectionKind::Write);
        let written = written.map(|to| to.target.clone());
        written.chain(option_values(&program.words, &options)).map(|word| file(&word))
    });
    let files: Vec<String> =
        files.filter(|name| !is_in(name, "- null") && !name.is_empty()).collect();
    let is_fetched = |word: &ShellWord| {
        is_output(word)
            || variables.iter().any(|name| word.text.contains(name.as_str()))
            || word.is_literal() && files.contains(&file(word))
    };
    line.programs.iter().any(|program| {
        let Some((first, rest)) = program.words.split_first() else { return false };
        let inputs = program.redirections.iter().filter(|to| to.kind != RedirectionKind::Write);
        let mut code = rest.iter().chain(inputs.map(|to| &to.target));
        let is_run = program.name().is_some_and(runs_code) && code.any(is_fetched);
        is_run || is_output(first) || first.text.contains('/') && files.contains(&file(first))
    })
}

/// Returns whether an unparsable text pipes a download into a program that runs it.
fn runs_unparsed_download(text: &str) -> bool {
    let has = |part: &str, is_it: fn(&ShellCommand) -> bool| {
        possible_programs(part).any(|program| is_it(&program))
    };
    let mut parts = text.split('|').skip_while(|part| !has(part, downloads));
    parts.next().is_some() && parts.any(|part| has(part, reads_code_from_input))
}

fn downloads(program: &ShellCommand) -> bool {
    program.name().is_some_and(|name| is_in(name, DOWNLOADERS))
}

/// Returns whether a program runs code from its arguments or input.
fn runs_code(name: &str) -> bool {
    is_shell(name) || is_interpreter(name) || matches!(name, "eval" | "source" | "." | "exec")
}

fn is_interpreter(name: &str) -> bool {
    is_in(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'), INTERPRETERS)
}

/// Returns whether a program runs code from its input.
fn reads_code_from_input(program: &ShellCommand) -> bool {
    let Some(name) = program.name() else { return false };
    let words = &program.words[1..];
    if is_shell(name) {
        // With xargs, the input becomes an argument instead.
        let nested = nested_execution(program);
        return matches!(nested, NestedExecution::Input | NestedExecution::Unknown);
    }
    let is_option = |word: &&ShellWord| word.text.starts_with('-') && word.text != "-";
    let file = words.iter().find(|word| !is_option(word)).map(|word| word.text.as_str());
    if matches!(name, "source" | ".") {
        return file == Some("/dev/stdin");
    }
    // It has neither a file nor code among its arguments.
    let has_code = |word: &ShellWord| match word.text.strip_prefix("--") {
        Some(long) => {
            ["eval", "print", "version", "help", "check"].iter().any(|it| long.starts_with(it))
        }
        None => word.text.contains(['c', 'e', 'm', 'p', 'E', 'r', 'V', 'v', 'h']),
    };
    is_interpreter(name)
        && !words.iter().take_while(is_option).any(has_code)
        && file.is_none_or(|file| matches!(file, "-" | "/dev/stdin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &str) -> Option<String> {
        forbidden_reason(&CommandLine::parse(line, ""))
    }

    #[test]
    fn changing_the_user_is_forbidden() {
        for line in [
            "sudo ls",
            "/usr/bin/sudo ls",
            r"\sudo ls",
            "s'u'do ls",
            "\"sudo\" ls",
            "$'\\x73udo' ls",
            "env sudo ls",
            "env -i A=b sudo ls",
            "nohup sudo ls &",
            "timeout 5 sudo ls",
            "xargs sudo",
            "sh -c 'sudo ls'",
            "bash -c \"bash -c 'sudo ls'\"",
            "echo $(sudo ls)",
            "echo `sudo ls`",
            "ls | sudo tee x",
            "ls && su",
            "su -c ls",
            "su - root",
            "doas ls",
            "pkexec ls",
            "if true; then sudo ls; fi",
            "x=sudo; $x ls",
            "{sudo,ls}",
            "command sudo ls",
            "exec sudo ls",
            "eval 'sudo ls'",
            "find . -exec sudo ls \\;",
            "cat <(sudo ls)",
            "A=b sudo ls",
            "! sudo ls",
            "(sudo ls)",
            "sudo -u x -- ls",
            "time sudo ls",
            "bash <<< 'sudo ls'",
            "nice -n 5 sudo ls",
            "stdbuf -oL sudo ls",
            "busybox su",
            "f() { sudo ls; }; f",
            "echo 'unclosed; sudo ls",
            "bash -euo pipefail -c 'sudo ls'",
            "bash -oe pipefail -c 'sudo ls'",
            "bash -euo pipefail <<E\nsudo ls $x\nE",
            "env bash <<E\nsudo ls\nE",
            "sh -c \"sudo ls $x\"",
            "s$@udo ls",
            "x=su; ${x}do ls",
            "x=sudo; $x ls; x=ls",
            "x=ls; x=sudo; $x y",
            "for c in ls sudo; do $c x; done",
            "x=sudo; eval '$x ls'",
            "script -qc 'sudo ls' /dev/null",
            "script --command='sudo ls' /dev/null",
            "flock f -c 'sudo ls'",
            "env -S 'sudo ls'",
            "env -S'sudo ls'",
            "parallel 'sudo ls'",
            "find -L . -exec sudo ls \\;",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn removing_the_system_or_the_home_is_forbidden() {
        for line in [
            "rm -rf /",
            "rm -fr /",
            "rm -r -f /",
            "rm --recursive --force /",
            "rm -Rf /*",
            "rm -rf //",
            "rm -rf /.",
            "rm -rf --no-preserve-root /",
            "rm -rf ~",
            "rm -rf ~/",
            "rm -rf ~/*",
            "rm -rf $HOME",
            "rm -rf \"$HOME\"/",
            "rm -rf ${HOME}/*",
            "rm -rf /home",
            "rm -rf /home/another",
            "rm -rf /etc/*",
            "rm -rf /usr/../",
            "rm -rf x /",
            "cd / && rm -rf *",
            "cd /; rm -rf .",
            "rm -rf /{etc,usr}",
            "rm -rf ..",
            "rm -rf ../..",
            "find / -delete",
            "find / -name x -exec rm -rf {} +",
            "sh -c 'rm -rf /'",
            "r=rm; $r -rf /",
            "rm -rf '/'",
            "rm -rf ~root",
            "rm -rf /h*",
            "/bin/rm -rf /",
            "env rm -rf /",
            "rm -r${x} /",
            "rm -rf /$x",
            "d=/; rm -rf $d",
            "cd; rm -rf .",
            "bash -euo pipefail -c 'rm -rf /'",
            "rm -rf \"${HOME:?}\"",
            "rm -rf ${HOME%/}",
            "rm -rf ${HOME}",
            "x='/*'; rm -rf $x",
            "find -L / -delete",
            "find -O3 -H / -delete",
            "find -D tree / -delete",
            "find -H ~ -exec rm -rf {} +",
            "cd / && find -delete",
            "script -c 'rm -rf /' f",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn writing_to_devices_and_file_systems_is_forbidden() {
        for line in [
            "mkfs /dev/sda",
            "mkfs.ext4 /dev/sda1",
            "/sbin/mke2fs x",
            "wipefs -a /dev/sda",
            "dd if=x of=/dev/sda",
            "echo x > /dev/sda",
            "cat x >> /dev/nvme0n1",
            "echo x | tee /dev/sdb",
            "cp x /dev/sda",
            "mv x /dev/sda",
            "shred /dev/sda",
            "cd /dev; echo x > sda",
            "echo x > /dev/../dev/sda",
            "echo x > /dev/mem",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn fork_bombs_are_forbidden() {
        for line in [
            ":(){ :|:& };:",
            "bomb() { bomb | bomb & }; bomb",
            "f() { f & f & }; f",
            "function f { f|f& }; f",
            "f() { f& }; f",
            "$0 | $0 &",
            "sh -c ':(){ :|:& };:'",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn running_a_download_is_forbidden() {
        for line in [
            "curl x | sh",
            "curl -sSL x | bash",
            "wget -qO- x | bash -s -- y",
            "curl x | tee y | sh",
            "bash <(curl x)",
            "sh -c \"$(curl x)\"",
            "eval \"$(wget -O- x)\"",
            "source <(curl x)",
            ". <(curl x)",
            "curl x | env bash",
            "curl x | python3",
            "curl x | python -",
            "curl x|/bin/sh",
            "{ curl x; } | sh",
            "curl x | (cat; sh)",
            "bash <<< \"$(curl x)\"",
            "$(curl x)",
            "timeout 5 curl x | sh",
            "curl x | while read l; do sh; done",
            "bash < <(curl x)",
            "python -c \"$(curl x)\"",
            "curl x | xargs sh -c",
            "curl x | bash -eo pipefail",
            "curl x | python3 -u -",
            "curl x | python3 -u",
            "curl x | node --input-type=module",
            "curl x | perl -w",
        ] {
            assert!(why(line).is_some(), "{line}");
        }
    }

    #[test]
    fn similar_harmless_lines_are_not_forbidden() {
        for line in [
            "echo sudo",
            "grep -r sudo .",
            "git commit -m 'use sudo'",
            "rm -rf target",
            "rm -rf ./build/*",
            "rm /tmp/x",
            "rm -rf /tmp/x",
            "rm -rf ~/project/target",
            "curl x -o y",
            "curl x | jq .",
            "curl x | python3 -m json.tool",
            "echo x > /dev/null",
            "ls 2> /dev/stderr",
            "cat x > /dev/stdout",
            "echo su",
            "man mkfs",
            "rm -rf '$HOME'",
            "f() { echo x; }; f",
            "f() { f; }",
            "find . -delete",
            "ls ~",
            "cat /dev/null > x",
            "echo $0",
            "rm -rf \"$x\"",
            "curl x; sh y",
            "dd if=/dev/zero of=x",
            "rm -rf {a,b}",
            "echo x | tee y",
            "cd /tmp && rm -rf x",
            "find . | xargs grep sudo",
            "timeout 5 grep su x",
            "rm -f /",
            "curl x | perl -pe s/a/b/",
            "curl x | python3 -c 'import sys'",
            "curl x | node y.js",
            "curl x | bash -euo pipefail -c 'cat'",
            "script -qc 'grep sudo f' /dev/null",
            "x=target; rm -rf $x",
            "x=sudo; echo $x",
            "for f in sudo su; do grep $f x; done",
            "find -L . -delete",
            "rm -rf \"${HOME:?}/project/target\"",
            "rm -rf ${HOMEPAGE}",
            "env -S 'ls sudo'",
        ] {
            assert_eq!(why(line), None, "{line}");
        }
    }
}
