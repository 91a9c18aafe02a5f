//! Undos and records that are killed in each of their system calls, or with each of them failing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::crash::strace::{Syscall, SyscallFault, observable_calls, under_strace};
use super::undo::{Snapshot, changed_workspace, snapshot};
use crate::kit::cli::{CliFixture, CommandResult, wait_for_exit};

const UNDO: [&str; 3] = ["undo", "--start", "--yes"];

/// Calls that don't change files.
const OTHER_CALLS: [&str; 10] = [
    "clone3",
    "execve",
    "exit_group",
    "futex",
    "poll",
    "prctl",
    "sched_getaffinity",
    "sched_yield",
    "sigaltstack",
    "socketpair",
];

const FAULTS: [SyscallFault; 3] =
    [SyscallFault::Kill, SyscallFault::Fail("EIO"), SyscallFault::FailEver("ENOSPC")];

fn run(world: &CliFixture, how: &[&str]) -> CommandResult {
    let log = world.home().join("strace.log");
    let child = under_strace(&world.command(&UNDO), &log, how).spawn();
    wait_for_exit(child.unwrap())
}

/// Calls that read files.
const READING_CALLS: [&str; 10] = [
    "flock",
    "fstat",
    "getdents64",
    "lseek",
    "newfstatat",
    "openat",
    "pread64",
    "read",
    "readlinkat",
    "statx",
];

/// Returns the calls in a log that change files; for a failure also those that read them.
fn calls(log: &Path, fault: SyscallFault) -> Vec<Syscall> {
    let is_failure = matches!(fault, SyscallFault::Fail(_));
    let mut calls = observable_calls(log, is_failure);
    let changing = observable_calls(log, false);
    calls.retain(|call| match changing.contains(call) {
        true => !OTHER_CALLS.contains(&&*call.name),
        false => READING_CALLS.contains(&&*call.name),
    });
    calls
}

/// Returns the files of the workspace, except for temporary files that were not removed.
fn files(world: &CliFixture) -> Snapshot {
    let mut files = snapshot(&world.path(""));
    let is_staged =
        |path: &Path| path.iter().any(|name| name.to_string_lossy().starts_with(".architect-"));
    files.retain(|path, _| !is_staged(path));
    files
}

/// Undoes with a fault in this call; the next command completes it. Then the files are as before, or as after.
fn survives(call: &Syscall, fault: SyscallFault) {
    let case = fault.strace_option(call);
    let (world, before, after) = changed_workspace();
    let ran = run(&world, &["-e", &case]);
    assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
    let is_killed = matches!(fault, SyscallFault::Kill);
    let now = files(&world);
    // The process itself takes back a failed undo.
    if !is_killed && ran.code != 0 && !ran.err.contains("half restored") {
        assert!([&before, &after].contains(&&now), "{case}: {}", ran.err);
    }
    if ran.code == 0 {
        assert_eq!(now, before, "{case}");
    }
    let next = world.run(&["diff", "last"]);
    assert_eq!(next.code, 0, "{case}: {}", next.err);
    let now = files(&world);
    assert!([&before, &after].contains(&&now), "{case}: {:?}", now.keys());
    let again = world.run(&UNDO);
    assert_eq!((again.code, snapshot(&world.path(""))), (0, before), "{case}: {}", again.err);
}

fn each_call(faults: &[SyscallFault], every: usize) {
    let (world, ..) = changed_workspace();
    let log = world.home().join("strace.log");
    let mut strace = under_strace(&world.command(&UNDO), &log, &[]);
    let ran = match strace.spawn() {
        Err(error) => return println!("skipped: there is no strace: {error}"),
        Ok(child) => wait_for_exit(child),
    };
    if ran.code != 0 {
        return println!("skipped: strace may not watch a process here: {}", ran.err);
    }
    let mut cases = Vec::new();
    for fault in faults {
        let calls = calls(&log, *fault);
        assert!(calls.len() > 40, "{calls:?}");
        cases.extend(calls.into_iter().step_by(every).map(|call| (call, *fault)));
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((call, fault)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    survives(call, *fault);
                }
            });
        }
    });
    println!("{} cases", cases.len());
}

/// The files are before or after an undo that was killed anywhere, once the next command has run.
#[test]
fn an_undo_is_complete_or_not_made_when_it_is_killed() {
    each_call(&[SyscallFault::Kill], 3);
}

/// The disk is full, or broken.
#[test]
fn an_undo_that_fails_changes_nothing() {
    each_call(&[SyscallFault::Fail("EIO")], 8);
}

#[test]
#[ignore = "takes minutes"]
fn an_undo_survives_every_fault_in_every_call() {
    each_call(&FAULTS, 1);
}

/// The user repeats an undo that was killed, or one that takes an undo back: it is completed then, and not reversed.
#[test]
fn an_undo_that_is_repeated_after_it_was_killed_is_only_completed() {
    const LAST: &[&str] = &["undo", "--yes"];
    for target in [LAST, &UNDO] {
        let (world, _, after) = changed_workspace();
        assert_eq!(world.run(target).code, 0);
        let undone = files(&world);
        assert_eq!(world.run(LAST).code, 0);
        assert_eq!(files(&world), after);
        for (command, expected) in [(target, &undone), (LAST, &after)] {
            let log = world.home().join("strace.log");
            let how = ["-e", "inject=renameat2:signal=KILL:when=1"];
            let killed = match under_strace(&world.command(command), &log, &how).spawn() {
                Err(error) => return println!("skipped: there is no strace: {error}"),
                Ok(child) => wait_for_exit(child),
            };
            if killed.err.contains("ptrace") {
                return println!("skipped: strace may not watch a process here: {}", killed.err);
            }
            assert_ne!(killed.code, 0, "{}", killed.err);
            let again = world.run(command);
            assert_eq!((again.code, &files(&world)), (0, expected), "{}", again.err);
            assert!(again.err.contains("was interrupted; it is complete now"), "{}", again.err);
        }
    }
}

/// An undo waits for the disk a few times, however many files it restores, and does not read a folder for each of them.
#[test]
fn an_undo_of_many_files_waits_for_the_disk_a_few_times() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \
                  \"for i in $(seq 300); do mkdir d$i; echo $i > d$i/f; echo new > f$i; done\" } }]\n\
                  [[turn]]\ntext = \"Done.\"\n";
    for number in 1..=300 {
        world.write(&format!("f{number}"), "old");
    }
    let before = snapshot(&world.path(""));
    assert_eq!(world.run_script(script, &["--mode", "yolo"]).code, 0);
    let after = snapshot(&world.path(""));
    for expected in [before, after] {
        let log = world.home().join("strace.log");
        let how = ["-f", "-e", "trace=fsync,fdatasync,syncfs,pread64"];
        let undone = match under_strace(&world.command(&["undo", "--yes"]), &log, &how).spawn() {
            Err(error) => return println!("skipped: there is no strace: {error}"),
            Ok(child) => wait_for_exit(child),
        };
        if undone.err.contains("ptrace") {
            return println!("skipped: strace may not watch a process here: {}", undone.err);
        }
        assert_eq!(undone.code, 0, "{}", undone.err);
        assert!(snapshot(&world.path("")) == expected, "{}", undone.err);
        let log = std::fs::read_to_string(&log).unwrap();
        let count = |name: &str| log.lines().filter(|line| line.contains(name)).count();
        assert!(count("sync(") + count("syncfs(") + count("fdatasync(") < 40, "{log}");
        // The contents of 600 files, and of 300 folders, a few times each.
        assert!(count("pread64(") < 6_000, "{}", count("pread64("));
    }
}

/// A file that can't be read is left out of the records, and all others are restored.
#[test]
fn one_file_that_cannot_be_read_is_left_out() {
    let world = CliFixture::new();
    world.write("bad", "bad\n").write("a", "old\n");
    let script = "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"a\", content = \"new\" } }]\n\
                  [[turn]]\ntext = \"Done.\"\n";
    let model = world.script_model(script);
    let bad = world.path("bad").canonicalize().unwrap();
    let how = ["-f", "-P", bad.to_str().unwrap(), "-e", "inject=read:error=EIO"];
    let strace = |args: &[&str]| {
        let log = world.home().join("strace.log");
        Some(wait_for_exit(under_strace(&world.command(args), &log, &how).spawn().ok()?))
    };
    let Some(ran) = strace(&["run", "Do it.", "--model", &model, "--mode", "yolo"]) else {
        return println!("skipped: there is no strace");
    };
    assert!(ran.code == 0 && world.read("a") == "new", "{}", ran.err);
    let undone = strace(&["undo", "--yes"]).unwrap();
    assert_eq!((undone.code, world.read("a")), (0, "old\n".to_owned()), "{}", undone.err);
    assert!(undone.err.contains("  bad: it can't be read"), "{}", undone.err);
}

/// On a full disk nothing changes, and nothing is lost.
#[test]
fn an_undo_without_space_changes_nothing() {
    let world = CliFixture::new();
    let script = "[[turn]]\ncalls = [{ name = \"write_file\", arguments = { path = \"large\", content = \"new\" } }]\n\
                  [[turn]]\ntext = \"Done.\"\n";
    let model = world.script_model(script);
    let lines = r#"
        mount -t tmpfs -o size=4m none . 2> /dev/null || { echo skipped; exit; }
        cd "$PWD"
        head -c 2000000 /dev/zero > large
        "$0" run 'Do it.' --model "$1" --mode yolo > /dev/null 2>&1 || { echo run; exit; }
        head -c 3000000 /dev/zero > full
        "$0" undo --yes > /dev/null 2> err; echo $? $(cat large) $(ls -A) $(grep -c 'No space' err)
        rm full err
        "$0" undo --yes > /dev/null 2>&1; echo $? $(stat -c %s large) $(ls -A)
    "#;
    let architect = world.command(&[]);
    let mut shell = std::process::Command::new("unshare");
    shell.args(["-rm", "sh", "-c", lines]).arg(architect.get_program()).arg(&model);
    shell.current_dir(world.path("")).env_clear();
    shell.envs(architect.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let Ok(output) = shell.output() else { return println!("skipped: there is no unshare") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || text.starts_with("skipped") {
        return println!("skipped: a file system can't be mounted here");
    }
    assert_eq!(text, "1 new err full large 1\n0 2000000 large\n");
}

/// Three steps: one that reads, and two whose changes are recorded.
const STEPS: &str = r#"
[[turn]]
calls = [{ name = "read_file", arguments = { path = "a" } }]

[[turn]]
text = "Read."

[[turn]]
calls = [{ name = "write_file", arguments = { path = "a", content = "new\n" } }]

[[turn]]
calls = [{ name = "run_command", arguments = { command = "rm d/x; echo new > b" } }]

[[turn]]
text = "Done."
"#;

/// A session that has changed nothing yet, so that the files of its checkpoints have known names.
struct RecordedRun {
    world: CliFixture,
    session: String,
    /// The files before its changes, and after them.
    states: [Snapshot; 2],
}

impl RecordedRun {
    fn new() -> Self {
        let world = CliFixture::new();
        world.write("a", "old\n").write("d/x", "x").write("big", &"line\n".repeat(1 << 19));
        let before = snapshot(&world.path(""));
        let ran = world.run_script(STEPS, &["--mode", "yolo", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let session = ran.json()["session_id"].as_str().unwrap().to_owned();
        let mut after = before.clone();
        after.get_mut(Path::new("a")).unwrap().2 = "new\n".into();
        after.remove(Path::new("d/x"));
        after.insert("b".into(), after[Path::new("a")].clone());
        Self { world, session, states: [before, after] }
    }

    /// Returns the files and folders that a checkpoint reads and writes.
    fn paths(&self) -> Vec<PathBuf> {
        let sessions = self.world.home().join(".local/state/architect/sessions");
        let folder = sessions.join(&self.session);
        let store = folder.join("checkpoints");
        let journal = sessions.join(format!("{}.jsonl", self.session));
        let file = store.join(&self.session);
        let work = self.world.path("").canonicalize().unwrap();
        vec![folder, store, file, journal, work.join("a"), work.join("d"), work]
    }

    fn resume(&self, path: &Path, how: &[&str]) -> Option<(CommandResult, PathBuf)> {
        let command = self.world.command(&["resume", &self.session, "Go on."]);
        let log = self.world.home().join("strace.log");
        let how = [&["-f", "-P", path.to_str().unwrap()], how].concat();
        let child = under_strace(&command, &log, &how).spawn().ok()?;
        Some((wait_for_exit(child), log))
    }

    /// Undoes the session: its files are as before its changes, or undo reports the reason why they stay unchanged.
    fn check(&self, fault: SyscallFault, case: &str) {
        let now = files(&self.world);
        let undone = self.world.run(&["undo", &self.session, "--start", "--yes"]);
        let is_taken_back = files(&self.world) == self.states[0];
        if undone.code == 0 {
            assert!(is_taken_back, "{case}: {:?}\n{}", files(&self.world).keys(), undone.err);
        } else {
            let is_reported = ["no recorded states", "are not recorded: ", "it can't be read"]
                .iter()
                .any(|reason| undone.err.contains(reason));
            assert!(is_reported, "{case}: {}", undone.err);
            assert_eq!(files(&self.world), now, "{case}");
            // A killed process has changed nothing before the state was recorded.
            let is_killed = matches!(fault, SyscallFault::Kill);
            assert!(!is_killed || is_taken_back, "{case}: {}", undone.err);
        }
        let verified = self.world.run(&["replay", &self.session, "--verify"]);
        assert_eq!(verified.code, 0, "{case}: {}{}", verified.out, verified.err);
    }
}

/// Records states with a fault in each call about a file of a checkpoint, whatever thread makes it.
fn each_call_of_a_record(faults: &[SyscallFault], every: usize) {
    let mut cases = Vec::new();
    let first = RecordedRun::new();
    for (index, _) in first.paths().iter().enumerate() {
        let run = RecordedRun::new();
        let Some((ran, log)) = run.resume(&run.paths()[index], &[]) else {
            return println!("skipped: there is no strace");
        };
        if ran.code != 0 {
            return println!("skipped: strace may not watch a process here: {}", ran.err);
        }
        assert_eq!(snapshot(&run.world.path("")), run.states[1]);
        for fault in faults {
            let calls = calls(&log, *fault).into_iter().step_by(every);
            cases.extend(calls.map(|call| (index, fault.strace_option(&call), *fault)));
        }
    }
    assert!(cases.len() * every > 20, "{cases:?}");
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((index, how, fault)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = RecordedRun::new();
            let path = &run.paths()[*index];
            let case = format!("{}: {how}", path.display());
            let (ran, _) = run.resume(path, &["-e", how]).unwrap();
            assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
            run.check(*fault, &case);
        }
    };
    thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
    });
    println!("{} cases", cases.len());
}

/// The state before the first change could not be recorded, and later ones could: they are no replacement.
#[test]
fn a_start_that_could_not_be_recorded_is_reported() {
    let run = RecordedRun::new();
    let contents = &run.paths()[2];
    let Some((ran, _)) = run.resume(contents, &["-e", "inject=openat:error=EIO:when=1"]) else {
        return println!("skipped: there is no strace");
    };
    if ran.code != 0 {
        return println!("skipped: strace may not watch a process here: {}", ran.err);
    }
    assert!(ran.err.contains("is not recorded"), "{}", ran.err);
    for target in [&["--start"][..], &["--step", "2"]] {
        let undone = run.world.run(&[&["undo", &run.session, "--yes"], target].concat());
        let is_reported = undone.err.contains("the files before step 2 are not recorded: ");
        assert!(undone.code == 3 && is_reported, "{}: {}", undone.code, undone.err);
        assert_eq!(files(&run.world), run.states[1]);
    }
}

/// A run that is killed while it records a state leaves the last complete one.
#[test]
fn a_run_that_is_killed_while_it_records_can_be_taken_back() {
    each_call_of_a_record(&[SyscallFault::Kill], 3);
}

#[test]
#[ignore = "takes minutes"]
fn a_record_survives_every_fault_in_every_call() {
    each_call_of_a_record(&FAULTS, 1);
}
