//! Runs that are killed in a system call.

use rustix::process::{Pid, Signal, kill_process};

use super::crash_scenario::{CrashScenario, TURNS};
use super::strace::{self, Syscall, SyscallFault};
use super::{
    PausedRun, count_cases, log, main_thread_syscalls, run, tool_syscalls, tracing_unavailable,
};
use crate::kit::cli::{CommandResult, wait_for_exit};

/// Kills the run in this call, and resumes it. Returns whether the call was made at all.
fn killed(call: &Syscall) -> bool {
    let story = CrashScenario::new();
    let ran = run(&story, call, SyscallFault::Kill);
    let case = format!("{call:?}");
    check_resume(&story, &ran, &case)
}

/// Resumes a run that may have been killed. Returns whether it was.
fn check_resume(story: &CrashScenario, ran: &CommandResult, case: &str) -> bool {
    story.assert_reported_is_stored(&ran.out, case);
    story.assert_cleaned_up(case);
    if story.resume_and_check(case) {
        story.assert_complete(case);
    }
    story.assert_cleaned_up(case);
    ran.code == -1
}

/// Fault S1: the run, killed in each system call for its control or its journal.
#[test]
fn a_run_survives_being_killed_in_any_system_call() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let calls = main_thread_syscalls(false);
    let (all, met) = (calls.len(), count_cases(calls, |call| killed(&call)));
    println!("killed in {met} of {all} calls");
    assert!(all > 50 && met * 10 > all * 9, "{met} of {all}");
}

/// Returns a scenario whose run was killed after the command's result was sent.
fn interrupted() -> CrashScenario {
    let story = CrashScenario::with_replies(3);
    let child = story.command().spawn().unwrap();
    story.wait_for(4);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    story.allow_replies(TURNS);
    story
}

/// Fault S18: a resumed run that is killed in any system call can be resumed again.
#[test]
fn going_on_survives_being_killed_in_any_system_call() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let under = |story: &CrashScenario, how: &[&str]| {
        let going_on = story.resume_command("stream-json");
        wait_for_exit(strace::under_strace(&going_on, &log(story), how).spawn().unwrap())
    };
    let unharmed = interrupted();
    let ran = under(&unharmed, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let calls = strace::observable_calls(&log(&unharmed), false);
    let all = calls.len();
    let met = count_cases(calls, |call| {
        let story = interrupted();
        let ran = under(&story, &["-e", &SyscallFault::Kill.strace_option(&call)]);
        let case = format!("{call:?}");
        assert!(story.resume_and_check(&case), "{case}");
        story.assert_complete(&case);
        story.assert_cleaned_up(&case);
        ran.code == -1
    });
    println!("killed in {met} of {all} calls");
    assert!(all > 30 && met * 10 > all * 9, "{met} of {all}");
}

/// Kills the run in this call of a tool, and resumes it. Returns whether the call was made at all.
fn killed_in_tool(turn: usize, call: &Syscall) -> bool {
    let how = SyscallFault::Kill.strace_option(call);
    let PausedRun { story, child, watch } = PausedRun::before(turn, &["-e", &how]).unwrap();
    story.allow_replies(TURNS);
    let ran = wait_for_exit(child);
    watch.end();
    let case = format!("step {turn}, {call:?}");
    check_resume(&story, &ran, &case)
}

/// Fault S1: the run, killed in each system call by which a tool writes files or runs a command.
#[test]
fn a_run_survives_being_killed_in_any_system_call_of_a_tool() {
    let mut cases = Vec::new();
    for turn in 1..TURNS - 1 {
        match tool_syscalls(turn) {
            Err(why) => return println!("skipped: {why}"),
            Ok(calls) => cases.extend(calls.into_iter().map(|call| (turn, call))),
        }
    }
    let (all, met) = (cases.len(), count_cases(cases, |(turn, call)| killed_in_tool(turn, &call)));
    println!("killed in {met} of {all} calls");
    assert!(all > 20 && met * 10 > all * 8, "{met} of {all}");
}

/// The same for each call of each thread and process of a run, including commands and their supervisors, and for calls
/// of all names: each process that makes the call is killed. Unless this is the engine, the run continues.
#[test]
#[ignore = "takes minutes"]
fn a_run_survives_the_death_of_any_of_its_processes_in_any_system_call() {
    let watched = |how: &[&str]| {
        let story = CrashScenario::new();
        let log = log(&story);
        let strace = strace::under_strace(&story.command(), &log, &[&["-f"], how].concat()).spawn();
        (wait_for_exit(strace.unwrap()), strace::observable_calls(&log, true), story)
    };
    let (ran, calls, _) = watched(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let all = calls.len();
    let engine = count_cases(calls, |call| {
        let (ran, _, story) = watched(&["-e", &SyscallFault::Kill.strace_option(&call)]);
        let case = format!("{call:?}");
        story.assert_reported_is_stored(&ran.out, &case);
        // The files agree with the results, whatever happened to the command.
        story.resume_and_check(&case);
        ran.code == -1
    });
    println!("{all} calls, in {engine} of which the engine was killed");
}
