//! A signal at any moment, from the first system call of the program to the last.

use super::crash_scenario::CrashScenario;
use super::strace::{Syscall, SyscallFault};
use super::{count_cases, main_thread_syscalls, run, tracing_unavailable};

/// Sends the signal in a call of the first thread, and resumes the session. Returns whether the program has ended with
/// the code of the signal.
fn ends_with_its_code(call: &Syscall, signal: &'static str, code: i32) -> bool {
    let story = CrashScenario::new();
    let fault = SyscallFault::Signal(signal);
    let (ran, case) = (run(&story, call, fault), fault.strace_option(call));
    assert!(!ran.err.contains("panicked"), "{case}: {}", ran.err);
    if ran.code == -1 {
        // The program itself had not yet begun.
        assert!(ran.out.is_empty() && story.session().is_none(), "{case}: {}", ran.err);
    } else {
        let lines = ran.lines();
        let result = lines.last().unwrap_or_else(|| panic!("{case}: no result; {}", ran.err));
        assert_eq!((&result["type"], &result["exit_code"]), (&"result".into(), &ran.code.into()));
        assert!([code, 0].contains(&ran.code), "{case}: {} {}", ran.code, ran.err);
    }
    story.assert_reported_is_stored(&ran.out, &case);
    story.assert_cleaned_up(&case);
    story.resume_and_check(&case);
    ran.code == code
}

/// Faults G1 and G5, at every moment: at each file that is opened, and in each system call of a run.
#[test]
fn a_signal_at_any_moment_ends_the_program_with_its_code_and_a_whole_journal() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    let kinds = ["openat", "openat2", "mkdir", "statx", "pwrite64", "fdatasync", "fsync", "rename"];
    let mut calls = main_thread_syscalls(true);
    calls.retain(|call| kinds.contains(&&*call.name));
    let most = calls.len().div_ceil(60);
    let some = calls.iter().enumerate().filter(|(index, _)| index % most == 0);
    let signals = [("TERM", 143), ("INT", 130), ("HUP", 129)];
    let cases: Vec<_> = some.map(|(index, call)| (call, signals[index / most % 3])).collect();
    let all = cases.len();
    let ended = count_cases(cases, |(call, (signal, code))| ends_with_its_code(call, signal, code));
    println!("{ended} of {all} ended by the signal");
    assert!(all > 30 && ended * 10 > all * 7, "{ended} of {all}");
}
