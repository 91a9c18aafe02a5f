//! Lines that the policy classifies as reading have no effect: random lines are classified, run, and checked from
//! outside.
//!
//! Lines that the policy classifies as reading are run by bash and by dash in a confined folder, many in one process.
//! Then the folder must be unchanged, down to the times of its files and inodes, and only programs that are known to
//! read may have been started: all others on the search path are traps.
//!
//! Undetected are signals to other processes, connections (there is no network), times of access, files in the folder
//! for temporary ones, and a change in the same tick of the kernel's clock (some milliseconds) in which the folder was
//! made.
//!
//! `FUZZ_LINES=1000000 FUZZ_SEED=7 cargo test --test suite effects -- --nocapture` tests more lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use architect::exec::{
    CommandEnd, CommandSpec, NetworkAccess, SandboxMode, SandboxPolicy, Supervisor, VariableFilter,
    clean_environment,
};
use architect::policy::{
    CallKind, CallTarget, CommandTarget, ConfirmMode, Guardrails, PermissionRules, PolicyEngine,
    Repositories,
};
use architect::port::CancellationToken;

use tempfile::TempDir;

use super::command_grammar::{CommandRng, line};

/// Programs that a reading line may start.
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

/// Runs lines in subshells of a few shells, since starting a shell for each line would take most of the time.
///
/// A shell writes the number of each line to descriptor 9 before it runs the line by `eval`, which reads a text as `-c`
/// does. A line that exceeds the time limit is cut off: its shell is killed, and another one continues after the line.
/// At the end the numbers of begun lines and of cut-off lines are printed.
const DRIVER: &str = r#"
    use POSIX (); use IO::Select; use Time::HiRes qw(time sleep);
    my ($shell, $file, $limit) = @ARGV; my ($most, $share) = (6, 40);
    my @lines = do { local $/ = "\0"; open(my $in, '<', $file) or die; <$in> }; s/\0\z// for @lines;
    my ($next, $begun, @cut, @groups, %workers) = (0, 0); my $select = IO::Select->new;
    sub start {
        my ($from, $to) = @_;
        if ($from >= $to) {
            return if $next >= @lines;
            ($from, $to) = ($next, $next + $share); $to = @lines if $to > @lines; $next = $to;
        }
        my $script = join '', map {
            (my $line = $lines[$_]) =~ s/'/'\\''/g;
            "echo $_ >&9\n(eval ' $line') 9>&- </dev/null >/dev/null 2>&1\n"
        } $from .. $to - 1;
        pipe(my $read, my $write) or die; my $pid = fork() // die;
        if (!$pid) {
            setpgrp(0, 0); POSIX::dup2(fileno($write), 20); POSIX::dup2(20, 9); POSIX::close(20);
            open(STDIN, '<', '/dev/null'); open(STDOUT, '>', '/dev/null'); open(STDERR, '>', '/dev/null');
            exec($shell, '-c', $script) or POSIX::_exit(1);
        }
        close $write; push @groups, $pid; $select->add($read);
        $workers{fileno $read} =
            { read => $read, pid => $pid, from => $from, at => $from - 1, to => $to, since => time };
    }
    sub finish {
        my ($worker, $is_cut) = @_;
        kill('KILL', -$worker->{pid}) if $is_cut; waitpid($worker->{pid}, 0);
        my $was_begun = $worker->{at} - $worker->{from} + 1; $begun += $was_begun;
        die "nothing was run" if !$was_begun && !$is_cut;
        push @cut, $worker->{at} if $is_cut && $was_begun || $worker->{at} + 1 < $worker->{to};
        $select->remove($worker->{read}); delete $workers{fileno $worker->{read}}; close $worker->{read};
        start($worker->{at} + 1, $worker->{to});
    }
    start(0, 0) for 1 .. $most;
    while (%workers) {
        for my $read ($select->can_read(0.05)) {
            my $worker = $workers{fileno $read};
            if (sysread($read, my $text, 65536)) {
                my @numbers = split "\n", $text; @$worker{'at', 'since'} = ($numbers[-1], time);
            } else {
                finish($worker, 0);
            }
        }
        finish($_, 1) for grep { time - $_->{since} > ($_->{at} < $_->{from} ? 10 : $limit) } values %workers;
    }
    # What is left in the background has some time to end.
    sleep(0.05); kill('KILL', map { -$_ } @groups);
    print join(' ', $begun, @cut); exit(0);
"#;

/// A folder in which lines are run, and its earlier state.
struct EffectProbe {
    folder: TempDir,
    supervisor: Supervisor,
    before: BTreeMap<PathBuf, String>,
    runs: u32,
    /// The seconds that a line may take.
    limit: f64,
}

/// The result of lines that had no effect.
#[derive(Debug, Default, PartialEq, Eq)]
struct BatchResult {
    /// The number of lines that were run to their end.
    ended: u64,
    /// The lines that were cut off, because they took too long or killed their shell.
    cut: Vec<String>,
}

impl EffectProbe {
    fn new() -> Self {
        // Shared memory is another folder in a confinement.
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
            (";", ""),
            ("+", ""),
        ] {
            fs::write(workspace.join(name), text).unwrap();
        }
        let env = clean_environment(
            [("PATH".into(), "/usr/bin:/bin".into())],
            &VariableFilter { rule: &|_| None },
            &temp,
        );
        let mut env: Vec<_> = env.into_iter().filter(|(name, _)| name != "PATH").collect();
        let set = |args: &[&str]| {
            let done = Process::new("git").arg("-C").arg(&workspace).args(args).output().unwrap();
            assert!(done.status.success(), "{args:?}: {done:?}");
        };
        set(&["init", "-q"]);
        set(&["add", "a", "d"]);
        set(&["-c", "user.name=x", "-c", "user.email=x@y.example", "commit", "-qm", "one"]);
        fs::write(workspace.join("a"), "one\nthree\n").unwrap();
        // A repository that is not part of the one around it, and runs a program whenever it is asked for differences.
        fs::create_dir(workspace.join("e")).unwrap();
        fs::create_dir(workspace.join("e/s")).unwrap();
        symlink("e/s", workspace.join("k")).unwrap();
        fs::write(workspace.join("e/a"), "one\n").unwrap();
        set(&["-C", "e", "init", "-q"]);
        set(&["-C", "e", "add", "a"]);
        set(&[
            "-C",
            "e",
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@y.example",
            "commit",
            "-qm",
            "one",
        ]);
        set(&["-C", "e", "config", "diff.external", "touch p; :"]);
        fs::write(workspace.join("e/a"), "two\n").unwrap();
        env.push(("PATH".into(), path.join("bin").into()));
        env.push(("HOME".into(), workspace.clone().into()));
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            network: NetworkAccess::Off,
            temp,
            ..SandboxPolicy::off(&workspace)
        };
        let supervisor = Supervisor::with_program(env!("CARGO_BIN_EXE_architect"), policy, env);
        let before = BTreeMap::new();
        let mut jail = Self { folder, supervisor, before, runs: 0, limit: 5.0 };
        jail.before = jail.now();
        jail
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("w")
    }

    /// Returns the state of every file in the folder.
    ///
    /// Effects that are undone are detected as well: nothing can set the time of an inode's last change, and creating
    /// and removing a file changes that of its folder.
    fn now(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let mut next = vec![self.workspace()];
        while let Some(path) = next.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                next.extend(fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
            }
            let (modified, changed) =
                ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
            let what = format!(
                "{} {:o} {} {modified:?} {changed:?}",
                meta.ino(),
                meta.mode(),
                meta.size()
            );
            all.insert(path, what);
        }
        all
    }

    /// Runs lines; fails with the changes.
    fn run(&mut self, shell: &str, lines: &[String]) -> Result<BatchResult, String> {
        self.runs += 1;
        let file = self.folder.path().join(format!("lines-{}", self.runs));
        fs::write(&file, lines.join("\0")).unwrap();
        let limit = self.limit.to_string();
        let argv = ["/usr/bin/perl", "-e", DRIVER, shell, file.to_str().unwrap(), &limit];
        let command = CommandSpec {
            timeout: Some(Duration::from_secs(300)),
            ..CommandSpec::new(argv.map(Into::into).into(), self.workspace())
        };
        let outcome = self.supervisor.run(&command, &CancellationToken::new()).unwrap();
        fs::remove_file(&file).unwrap();
        if outcome.end != CommandEnd::Exited(0) {
            eprintln!("a batch was not run to its end: {outcome:?}");
        }
        let report = outcome.stdout.text();
        let mut numbers = report.split(' ').map_while(|number| number.parse::<usize>().ok());
        let begun = numbers.next().unwrap_or_default();
        let cut: Vec<_> = numbers.map(|number| lines[number].clone()).collect();
        let ran = BatchResult { ended: begun.saturating_sub(cut.len()) as u64, cut };
        let now = self.now();
        if now == self.before {
            return Ok(ran);
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

/// Returns those of these lines that have an effect, each with the effect.
fn lines_with_effects(shell: &str, lines: &[String], found: &mut Vec<(String, String)>) {
    match (EffectProbe::new().run(shell, lines), lines) {
        (Ok(_), _) => {}
        (Err(why), [line]) => found.push((line.clone(), why)),
        (Err(_), lines) => {
            let (first, second) = lines.split_at(lines.len() / 2);
            lines_with_effects(shell, first, found);
            if found.len() < 3 {
                lines_with_effects(shell, second, found);
            }
        }
    }
}

fn only_reads(policy: &PolicyEngine, line: &str) -> bool {
    let target = CommandTarget::new(line, "", Vec::new());
    let decision = policy.decide("run_command", CallKind::Command, &[CallTarget::Command(target)]);
    PolicyEngine::is_read_only(&decision)
}

/// The number of lines that one process runs; a batch with an effect is run again in halves.
const BATCH: usize = 1_000;

/// The results of batches of lines.
#[derive(Default)]
struct Findings {
    effects: Vec<(String, String)>,
    not_repeated: u64,
    cut: Vec<String>,
}

/// Runs batches as they come; counts the lines that were run to their end, and stops after some effects.
fn run_all(batches: &Receiver<(&str, Vec<String>)>, ended: &AtomicU64, begun: Instant) -> Findings {
    let mut found = Findings::default();
    // Of that many lines, some may be cut off.
    let new_jail = || EffectProbe { limit: 0.5, ..EffectProbe::new() };
    let mut jail = new_jail();
    let mut reported = 0;
    for (shell, lines) in batches {
        match jail.run(shell, &lines) {
            Ok(ran) => {
                let all = ended.fetch_add(ran.ended, Ordering::Relaxed) + ran.ended;
                found.cut.extend(ran.cut);
                if all / 50_000 > reported {
                    reported = all / 50_000;
                    let rate = all / begun.elapsed().as_secs().max(1);
                    eprintln!("{all} run, {rate}/s, {} cut", found.cut.len());
                }
            }
            Err(why) => {
                let before = found.effects.len();
                lines_with_effects(shell, &lines, &mut found.effects);
                for (line, why) in &found.effects[before..] {
                    eprintln!("EFFECT of {line:?} by {shell}\n  {why}");
                }
                if found.effects.len() == before {
                    eprintln!("an effect of {} lines together: {why}", lines.len());
                    found.not_repeated += 1;
                }
                if found.effects.len() >= 8 {
                    break;
                }
                jail = new_jail();
            }
        }
    }
    found
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
    let mut chance = CommandRng::new(seed);
    let jail = EffectProbe::new();
    let repositories = Repositories::new(&jail.workspace());
    let guardrails = Guardrails { repositories, ..Guardrails::default() };
    let policy =
        PolicyEngine::new(ConfirmMode::ConfirmSensitive, PermissionRules::default(), guardrails);
    let has_dash = Path::new("/bin/dash").exists();
    let size = BATCH.min(usize::try_from(wanted / 8).unwrap() + 1);
    let (begun, ended) = (Instant::now(), AtomicU64::new(0));
    let (mut decided, mut sent) = (0_u64, 0_u64);
    let (send, batches) = sync_channel(2);
    let found = std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let batches = batches;
            run_all(&batches, &ended, begun)
        });
        let (mut for_bash, mut for_dash) = (Vec::new(), Vec::new());
        while ended.load(Ordering::Relaxed) < wanted {
            let line = line(&mut chance);
            decided += 1;
            if !only_reads(&policy, &line) {
                continue;
            }
            sent += 1;
            let as_script = || format!("sh -c '{}'", line.replace('\'', "'\\''"));
            let for_dash_too = has_dash && sent % 3 == 0 && only_reads(&policy, &as_script());
            let (shell, lines) = match for_dash_too {
                true => ("/bin/dash", &mut for_dash),
                false => ("/bin/bash", &mut for_bash),
            };
            lines.push(line);
            if lines.len() >= size && send.send((shell, std::mem::take(lines))).is_err() {
                break;
            }
        }
        drop(send);
        runner.join().unwrap()
    });
    let (ran, cut) = (ended.into_inner(), found.cut.len());
    let rate = ran / begun.elapsed().as_secs().max(1);
    eprintln!(
        "seed {seed}: {decided} decided, {ran} run in {:?}, {rate}/s, {cut} cut, {} not repeated",
        begun.elapsed(),
        found.not_repeated
    );
    for line in found.cut.iter().take(20) {
        eprintln!("cut: {line:?}");
    }
    assert!(found.effects.is_empty(), "lines have an effect: {:?}", found.effects);
    assert!(
        ran >= wanted && decided < sent * 60,
        "{sent} of {decided} lines are taken for reading"
    );
    assert!((cut as u64) < sent / 20, "{cut} of {sent} lines did not end");
}

/// The jail detects the effects of refused lines; otherwise the test above could not fail.
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
        "git -C e diff",
        "env -C k git diff",
        "tree -Lo 2 p",
        "find . -exec ls \\;* -delete",
    ] {
        let program = line.split(' ').next().unwrap();
        if ["less", "tree"].contains(&program) && !Path::new("/usr/bin").join(program).exists() {
            eprintln!("skipped: there is no {program}");
            continue;
        }
        let mut jail = EffectProbe::new();
        assert!(jail.run("/bin/bash", &[line.to_owned()]).is_err(), "{line}");
    }
    // A line that undoes its own effect, among many without one.
    let mut jail = EffectProbe::new();
    let mut lines = vec!["ls -la".to_owned(); 60];
    for (done, undone) in [
        ("touch p", "rm p"),
        ("mkdir p", "rmdir p"),
        ("mv a p", "mv p a"),
        ("chmod 600 a", "chmod 644 a"),
        ("ln a p", "rm p"),
        ("cp -p a d/q", "rm d/q"),
        ("echo >> d/f; touch -d @0 d/f", "touch -d @0 d/f"),
    ] {
        // Tools on the usual search path are traps, so the line sets its own path.
        lines[10] = format!("PATH=/usr/bin:/bin; {done}; {undone}");
        for shell in ["/bin/bash", "/bin/sh"] {
            assert!(jail.run(shell, &lines).is_err(), "{done}; {undone}");
            jail.before = jail.now();
        }
    }
    let mut found = Vec::new();
    lines_with_effects("/bin/bash", &lines[8..12], &mut found);
    assert!(matches!(found.as_slice(), [(line, _)] if *line == lines[10]), "{found:?}");
    let mut jail = EffectProbe::new();
    let harmless =
        ["ls -la", "git status", "git diff", "cat a | sort | uniq -c"].map(str::to_owned);
    assert_eq!(jail.run("/bin/bash", &harmless), Ok(BatchResult { ended: 4, cut: Vec::new() }));
    // A line that does not end, and one that ends its shell, do not keep the others from running.
    let cut = ["sleep 99", "kill -9 $$"].map(str::to_owned);
    let lines: Vec<_> = cut.iter().cloned().chain(harmless).collect();
    assert_eq!(jail.run("/bin/bash", &lines), Ok(BatchResult { ended: 4, cut: cut.into() }));
}
