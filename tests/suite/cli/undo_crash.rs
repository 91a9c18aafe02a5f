//! An undo that is killed in each of its system calls, or in which each of them fails.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::crash::strace::{Syscall, SyscallFault, observable_calls, under_strace};
use super::undo::{changed_workspace, snapshot};
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

/// Undoes with a fault in this call; the next command completes it. Then the files are as before, or as after.
fn survives(call: &Syscall, fault: SyscallFault) {
    let case = fault.strace_option(call);
    let (world, before, after) = changed_workspace();
    let ran = run(&world, &["-e", &case]);
    assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
    let is_killed = matches!(fault, SyscallFault::Kill);
    let now = snapshot(&world.path(""));
    // A failure is undone by the process itself.
    if !is_killed && ran.code != 0 && !ran.err.contains("half restored") {
        assert!([&before, &after].contains(&&now), "{case}: {}", ran.err);
    }
    if ran.code == 0 {
        assert_eq!(now, before, "{case}");
    }
    let next = world.run(&["diff", "last"]);
    assert_eq!(next.code, 0, "{case}: {}", next.err);
    let now = snapshot(&world.path(""));
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
    let calls: Vec<Syscall> = calls(&log).into_iter().step_by(every).collect();
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
    assert!(calls.len() > 20, "{calls:?}");
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
