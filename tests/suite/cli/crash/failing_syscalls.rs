//! System calls that fail: a full disk, a broken one, and signals.

use super::crash_scenario::{CrashScenario, TURNS};
use super::strace::{Syscall, SyscallFault};
use super::{
    PausedRun, count_cases, main_thread_syscalls, run, tool_syscalls, tracing_unavailable,
};
use crate::kit::cli::{CommandResult, wait_for_exit};

/// Calls that start something, or clear away leftovers: their failures have other consequences.
const OTHER_SYSCALLS: [&str; 6] =
    ["clone", "clone3", "shutdown", "socketpair", "unlink", "unlinkat"];

/// The faults of a call. An interrupted call is repeated, so it can't be interrupted for ever.
const FAULTS: [SyscallFault; 5] = [
    SyscallFault::Fail("ENOSPC"),
    SyscallFault::Fail("EIO"),
    SyscallFault::Fail("EINTR"),
    SyscallFault::FailEver("ENOSPC"),
    SyscallFault::FailEver("EIO"),
];

/// Asserts that the run reported its end, as text and as a document, and that both are correct.
fn is_honest(story: &CrashScenario, ran: &CommandResult, case: &str) {
    assert!((0..5).contains(&ran.code) && !ran.err.contains("panicked"), "{case}: {}", ran.err);
    if ran.out.is_empty() && case.starts_with("inject=write:") {
        // If nothing can be written, only the exit code is left.
        return assert_eq!(ran.code, 1, "{case}");
    }
    let lines = ran.lines();
    let result = lines.last().unwrap_or_else(|| panic!("{case}: no result; {}", ran.err));
    assert_eq!((&result["type"], &result["exit_code"]), (&"result".into(), &ran.code.into()));
    assert_eq!(result["status"] == "success", ran.code == 0, "{case}: {result}");
    assert_eq!(result["error"].is_null(), ran.code == 0, "{case}: {result}");
    if ran.code == 0 {
        story.assert_complete(case);
    }
}

/// Lets a call of the first thread fail, and resumes the session.
fn survives(call: &Syscall, fault: SyscallFault) {
    let story = CrashScenario::new();
    let ran = run(&story, call, fault);
    let case = fault.strace_option(call);
    is_honest(&story, &ran, &case);
    story.assert_reported_is_stored(&ran.out, &case);
    story.assert_cleaned_up(&case);
    story.resume_and_check(&case);
}

/// Faults S3, S4 and G14: a run in which a call for its control or its journal fails.
#[test]
fn a_failing_system_call_ends_the_run_with_an_error_or_has_no_effect() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let mut calls = main_thread_syscalls(false);
    calls.retain(|call| !OTHER_SYSCALLS.contains(&&*call.name));
    // Two faults for each call, and each fault for the same number of calls; `every_call_fails_in_every_way` has the
    // rest.
    let ways = |index: usize| [FAULTS[index % 5], FAULTS[(index + 2) % 5]];
    let cases = calls.iter().enumerate().flat_map(|(index, call)| ways(index).map(|f| (call, f)));
    let all = count_cases(cases, |(call, fault)| {
        survives(call, fault);
        true
    });
    println!("{all} failures");
    assert!(all > 50);
}

#[test]
#[ignore = "takes minutes"]
fn every_call_fails_in_every_way() {
    let mut calls = main_thread_syscalls(false);
    calls.retain(|call| !OTHER_SYSCALLS.contains(&&*call.name));
    let cases = calls.iter().flat_map(|call| FAULTS.map(|fault| (call, fault)));
    let all = count_cases(cases, |(call, fault)| {
        survives(call, fault);
        true
    });
    println!("{all} failures");
}

/// Makes a system call of a tool fail. The result reports it, and all files are whole.
fn fails_in_tool(turn: usize, call: &Syscall, fault: SyscallFault) -> Result<(), String> {
    let PausedRun { story, child, watch } =
        PausedRun::before(turn, &["-e", &fault.strace_option(call)])?;
    story.allow_replies(TURNS);
    let ran = wait_for_exit(child);
    watch.end();
    let case = format!("step {turn}, {}", fault.strace_option(call));
    assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
    let lines = ran.lines();
    let result = lines.last().unwrap();
    assert_eq!((&result["type"], &result["exit_code"]), (&"result".into(), &ran.code.into()));
    story.assert_files_match_results(&case);
    Ok(())
}

/// Faults S21 and G14: the disk fills up, or breaks, under a file of the workspace.
#[test]
fn a_tool_with_a_failing_system_call_leaves_whole_files_and_reports_it() {
    let mut cases = Vec::new();
    for turn in 1..TURNS - 1 {
        match tool_syscalls(turn) {
            Err(why) => return println!("skipped: {why}"),
            Ok(calls) => cases.extend(calls.into_iter().map(|call| (turn, call))),
        }
    }
    cases.retain(|(_, call)| !OTHER_SYSCALLS.contains(&&*call.name));
    let faults =
        [SyscallFault::FailEver("ENOSPC"), SyscallFault::Fail("EIO"), SyscallFault::Fail("EINTR")];
    let cases = cases.iter().flat_map(|case| faults.map(|fault| (case, fault)));
    let all = count_cases(cases, |((turn, call), fault)| fails_in_tool(*turn, call, fault).is_ok());
    println!("{all} failures");
    assert!(all > 20);
}
