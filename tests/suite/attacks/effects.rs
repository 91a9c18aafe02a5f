//! What is judged to only read has no effect: lines by chance are judged, run, and looked at from outside.
//!
//! Lines that the policy takes for reading are run by bash and by dash in a confined folder, many in one process. Then
//! the folder has to be what it was, down to the times of its files, and no program may have been started that is not
//! known to read: everything else that the search path has is a trap.
//!
//! `FUZZ_LINES=1000000 FUZZ_SEED=7 cargo test --test suite effects -- --nocapture` looks further.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use architect::exec::{Command, End, Filter, Mode, Network, Policy, Supervisor, clean};
use architect::port::Cancel;
use architect::tools::permission::{ConfirmMode, Guardrails, Judge, Repositories, Rules};
use architect::tools::{CommandTarget, Kind, Target};
use tempfile::TempDir;

use super::effects_grammar::{Chance, line};

/// Programs that a line which only reads may start.
const READERS: &[&str] = &[
    "[",
    "b2sum",
    "basename",
    "bash",
    "cat",
    "cksum",
    "cmp",
    "column",
    "comm",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "env",
    "expand",
    "expr",
    "factor",
    "false",
    "fgrep",
    "file",
    "find",
    "fmt",
    "fold",
    "free",
    "getconf",
    "git",
    "grep",
    "groups",
    "head",
    "hostname",
    "id",
    "ionice",
    "join",
    "jq",
    "locale",
    "ls",
    "lscpu",
    "make",
    "md5sum",
    "nice",
    "nl",
    "node",
    "nohup",
    "nproc",
    "od",
    "paste",
    "perl",
    "pgrep",
    "printenv",
    "printf",
    "ps",
    "pwd",
    "python3",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "sed",
    "seq",
    "setsid",
    "sh",
    "dash",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "sort",
    "stat",
    "stdbuf",
    "strings",
    "sum",
    "tac",
    "tail",
    "taskset",
    "test",
    "time",
    "timeout",
    "tr",
    "tree",
    "true",
    "tsort",
    "uname",
    "unexpand",
    "uniq",
    "uptime",
    "wc",
    "which",
    "xargs",
    "gcc",
    "g++",
    "clang",
    "cmake",
    "docker",
    "php",
    "ruby",
    "arch",
    "chrt",
    "gawk",
];

/// Runs each line by a shell of its own, for a quarter of a second at the most. What is left in the background has some time to end.
const DRIVER: &str = r#"
    use Time::HiRes "ualarm"; my ($shell, $file) = @ARGV;
    open(my $in, '<', $file) or die; local $/ = "\0"; my @pids;
    while (my $line = <$in>) {
        chomp $line;
        my $pid = fork();
        if (!$pid) {
            setpgrp(0, 0); ualarm(250_000);
            open(STDIN, '<', '/dev/null'); open(STDOUT, '>', '/dev/null'); open(STDERR, '>', '/dev/null');
            exec($shell, '-c', $line) or exit(1);
        }
        waitpid($pid, 0); push @pids, $pid;
    }
    select(undef, undef, undef, 0.05);
    kill('KILL', map { -$_ } @pids);
    exit(0);
"#;

/// A folder in which lines are run, and what it was before.
struct Jail {
    folder: TempDir,
    supervisor: Supervisor,
    before: BTreeMap<PathBuf, String>,
    runs: u32,
}

impl Jail {
    fn new() -> Self {
        // Memory that is shared is another folder in a confinement.
        let folder = TempDir::new_in("/tmp").unwrap();
        let path = folder.path().canonicalize().unwrap();
        for name in ["w/d", "w/3", "w/10", "bin", "tmp"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        let (workspace, temp) = (path.join("w"), path.join("tmp"));
        let trap = path.join("bin/.trap");
        let log = workspace.join("trapped");
        fs::write(&trap, format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", log.display())).unwrap();
        fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
        let mut names = BTreeSet::new();
        for entry in
            ["/usr/bin", "/bin"].iter().flat_map(|bin| fs::read_dir(bin).unwrap().flatten())
        {
            let name = entry.file_name().into_string().unwrap();
            let is_reader = READERS.contains(&name.as_str());
            if names.insert(name.clone()) {
                let target = if is_reader { entry.path() } else { trap.clone() };
                symlink(target, path.join("bin").join(name)).unwrap();
            }
        }
        for name in ["a", "x", "y", "p", "b"] {
            if !path.join("bin").join(name).exists() {
                symlink(&trap, path.join("bin").join(name)).unwrap();
            }
        }
        for name in ["3/ls", "10/ls", "10/cat"] {
            fs::copy(&trap, workspace.join(name)).unwrap();
        }
        for (name, text) in [
            ("a", "one\ntwo\na[$(touch p)]\n-v\n"),
            ("b", "touch p\n"),
            ("d/f", "-o\np\n"),
            ("-delete", ""),
            ("-op", ""),
            ("-v", ""),
        ] {
            fs::write(workspace.join(name), text).unwrap();
        }
        let env =
            clean([("PATH".into(), "/usr/bin:/bin".into())], &Filter { rule: &|_| None }, &temp);
        let mut env: Vec<_> = env.into_iter().filter(|(name, _)| name != "PATH").collect();
        let set = |args: &[&str]| {
            let done = Process::new("git").arg("-C").arg(&workspace).args(args).output().unwrap();
            assert!(done.status.success(), "{args:?}: {done:?}");
        };
        set(&["init", "-q"]);
        set(&["add", "a", "d"]);
        set(&["-c", "user.name=x", "-c", "user.email=x@y.example", "commit", "-qm", "one"]);
        fs::write(workspace.join("a"), "one\nthree\n").unwrap();
        env.push(("PATH".into(), path.join("bin").into()));
        env.push(("HOME".into(), workspace.clone().into()));
        let policy = Policy {
            mode: Mode::WorkspaceWrite,
            network: Network::Off,
            temp,
            ..Policy::off(&workspace)
        };
        let supervisor = Supervisor::at(env!("CARGO_BIN_EXE_architect"), policy, env);
        let before = BTreeMap::new();
        let mut jail = Self { folder, supervisor, before, runs: 0 };
        jail.before = jail.now();
        jail
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("w")
    }

    /// Returns what every file of the folder is like.
    fn now(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut next = vec![self.workspace()];
        while let Some(path) = next.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                next.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
            }
            let what =
                format!("{:o} {} {}.{}", meta.mode(), meta.size(), meta.mtime(), meta.mtime_nsec());
            all.insert(path, what);
        }
        all
    }

    /// Runs lines; returns what has changed, or that they did not end.
    fn run(&mut self, shell: &str, lines: &[String]) -> Result<(), String> {
        self.runs += 1;
        let file = self.folder.path().join(format!("lines-{}", self.runs));
        fs::write(&file, lines.join("\0")).unwrap();
        let argv = ["/usr/bin/perl", "-e", DRIVER, shell, file.to_str().unwrap()];
        let command = Command {
            timeout: Some(Duration::from_secs(120)),
            ..Command::new(argv.map(Into::into).into(), self.workspace())
        };
        let outcome = self.supervisor.run(&command, &Cancel::new()).unwrap();
        fs::remove_file(&file).unwrap();
        if outcome.end != End::Exited(0) {
            eprintln!("a batch was not run to its end: {:?}", outcome.end);
        }
        let now = self.now();
        if now == self.before {
            return Ok(());
        }
        let differs = |(path, what): &(&PathBuf, &String)| self.before.get(*path) != Some(*what);
        let changed: Vec<_> = now
            .iter()
            .filter(differs)
            .map(|(path, what)| format!("{} {what}", path.display()))
            .collect();
        let gone: Vec<_> = self.before.keys().filter(|path| !now.contains_key(*path)).collect();
        Err(format!("changed {changed:?}, gone {gone:?}"))
    }
}

/// Returns the lines of these that have an effect, with what it was.
fn guilty(shell: &str, lines: &[String], found: &mut Vec<(String, String)>) {
    match (Jail::new().run(shell, lines), lines) {
        (Ok(()), _) => {}
        (Err(why), [line]) => found.push((line.clone(), why)),
        (Err(_), lines) => {
            let (first, second) = lines.split_at(lines.len() / 2);
            guilty(shell, first, found);
            if found.len() < 3 {
                guilty(shell, second, found);
            }
        }
    }
}

fn only_reads(judge: &Judge, line: &str) -> bool {
    let target = CommandTarget { line: line.to_owned(), folder: String::new(), env: Vec::new() };
    judge.decide_about("run_command", Kind::Command, &[Target::Command(target)]).is_for_reading()
}

#[test]
fn what_only_reads_has_no_effect() {
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: there is no perl");
        return;
    }
    let number = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (wanted, seed) = (number("FUZZ_LINES", 2_000), number("FUZZ_SEED", 1));
    let mut chance = Chance::new(seed);
    let mut jail = Jail::new();
    let repositories = Repositories::of(&jail.workspace());
    let guardrails = Guardrails { repositories, ..Guardrails::default() };
    let judge = Judge::new(ConfirmMode::ConfirmSensitive, Rules::default(), guardrails);
    let begun = Instant::now();
    let (mut judged, mut ran, mut slow) = (0_u64, 0_u64, 0_u64);
    let mut found = Vec::new();
    let mut batches = BTreeMap::from([("bash", Vec::new()), ("dash", Vec::new())]);
    while ran < wanted && found.is_empty() {
        let line = line(&mut chance);
        judged += 1;
        if only_reads(&judge, &line) {
            let as_script = format!("sh -c '{}'", line.replace('\'', "'\\''"));
            let shell =
                if judged % 4 == 0 && only_reads(&judge, &as_script) { "dash" } else { "bash" };
            batches.get_mut(shell).unwrap().push(line);
            ran += 1;
        }
        let is_last = ran >= wanted;
        for (shell, lines) in &mut batches {
            if lines.is_empty() || !is_last && lines.len() < 250 {
                continue;
            }
            let lines = std::mem::take(lines);
            if *shell == "dash" && !Path::new("/bin/dash").exists() {
                continue;
            }
            if jail.run(&format!("/bin/{shell}"), &lines).is_err() {
                guilty(&format!("/bin/{shell}"), &lines, &mut found);
                slow += u64::from(found.is_empty());
                eprintln!("an effect of {} lines together", lines.len());
                jail = Jail::new();
            }
        }
        if ran > 0 && ran.is_multiple_of(50_000) {
            let rate = ran / begun.elapsed().as_secs().max(1);
            eprintln!("{judged} judged, {ran} run, {rate}/s, {slow} not repeated");
        }
    }
    eprintln!("{judged} judged, {ran} run in {:?}, {slow} not repeated", begun.elapsed());
    for (line, why) in &found {
        eprintln!("EFFECT of {line:?}\n  {why}");
    }
    assert!(found.is_empty(), "{} lines have an effect", found.len());
    assert!(ran >= wanted && judged < ran * 60, "{ran} of {judged} lines are taken for reading");
}

/// The jail notices what the policy has to refuse; otherwise the test above could not fail.
#[test]
fn effects_are_seen() {
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: there is no perl");
        return;
    }
    for line in [
        "touch p",
        "> p",
        "rm a",
        "cat a >> b",
        "chmod 600 a",
        "op=-v; test \"$op\" 'a[$(touch p)]'",
        "a=(['b[$(touch p)]']=1)",
        "echo ${x-<(touch p)}",
        "echo x | uniq -- - -x",
        ": 'a[$(>p)]'; echo $((_))",
        "echo {PATH}</dev/null; ls",
        "printf 'abc%n' PATH; ls",
        "bash -k -c 'ls PATH=10'",
        "{ ls > /dev/stdout; } <a 1>&0",
        "less a",
    ] {
        let mut jail = Jail::new();
        assert!(jail.run("/bin/bash", &[line.to_owned()]).is_err(), "{line}");
    }
    let mut jail = Jail::new();
    let harmless =
        ["ls -la", "git status", "git diff", "cat a | sort | uniq -c"].map(str::to_owned);
    assert_eq!(jail.run("/bin/bash", &harmless), Ok(()));
}
