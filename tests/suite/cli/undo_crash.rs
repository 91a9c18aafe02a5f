//! An undo that is killed in each of its system calls, or in which each of them fails.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::crash::strace::{Syscall, SyscallFault, observable_calls, under_strace};
use super::undo::{Snapshot, changed_workspace, recording_fixture, snapshot};
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

fn run(world: &CliFixture, how: &[&str]) -> CommandResult {
    let log = world.home().join("strace.log");
    let child = under_strace(&world.command(&UNDO), &log, how).spawn();
    wait_for_exit(child.unwrap())
}

fn calls(log: &Path) -> Vec<Syscall> {
    let mut calls = observable_calls(log, false);
    calls.retain(|call| !OTHER_CALLS.contains(&&*call.name));
    calls
}

/// Returns what is in the workspace, but for new files that could not be removed: the next undo does that.
fn files(world: &CliFixture) -> Snapshot {
    let mut files = snapshot(&world.path(""));
    files.retain(|path, _| !path.to_string_lossy().starts_with(".architect-undo-"));
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
    // A failure is undone by the process itself.
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
    let all = calls(&log);
    assert!(all.len() > 40, "{all:?}");
    let calls: Vec<Syscall> = all.into_iter().step_by(every).collect();
    let cases: Vec<_> =
        calls.iter().flat_map(|call| faults.iter().map(move |f| (call, *f))).collect();
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
    each_call(&[SyscallFault::Fail("EIO")], 4);
}

#[test]
#[ignore = "takes minutes"]
fn an_undo_survives_every_fault_in_every_call() {
    let (eio, full) = (SyscallFault::Fail("EIO"), SyscallFault::FailEver("ENOSPC"));
    each_call(&[SyscallFault::Kill, eio, full], 1);
}

/// Two steps whose changes are recorded.
const WRITES: &str = r#"
[[turn]]
calls = [{ name = "write_file", arguments = { path = "a", content = "new\n" } }]

[[turn]]
calls = [{ name = "write_file", arguments = { path = "b/c", content = "new\n" } }]

[[turn]]
text = "Done."
"#;

/// A run that is killed while it records a state, in any thread, leaves states that everything can be restored from.
#[test]
fn a_run_that_is_killed_while_it_records_can_be_taken_back() {
    for name in ["pwrite64", "fdatasync", "fsync", "mkdir", "renameat2"] {
        for nth in [1, 2, 3, 4, 6, 8] {
            let world = recording_fixture();
            world.write("a", "old\n");
            let before = snapshot(&world.path(""));
            let model = world.script_model(WRITES);
            let run = world.command(&["run", "Do it.", "--model", &model, "--mode", "yolo"]);
            let call = Syscall { name: name.to_owned(), nth };
            let how = SyscallFault::Kill.strace_option(&call);
            let log = world.home().join("strace.log");
            let Ok(child) = under_strace(&run, &log, &["-f", "-e", &how]).spawn() else {
                return println!("skipped: there is no strace");
            };
            wait_for_exit(child);
            let undone = world.run(&UNDO);
            let is_recorded = undone.code == 0;
            let nothing =
                ["no recorded states", "no session"].iter().any(|it| undone.err.contains(it));
            assert!(is_recorded || nothing, "{how}: {}", undone.err);
            assert_eq!(snapshot(&world.path("")), before, "{how}: {}", undone.err);
        }
    }
}
