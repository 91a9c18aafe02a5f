//! The command, killed in each of its system calls, or with each of them failing, and then resumed.

mod crash_scenario;
mod durability;
mod failing_syscalls;
mod hanging_file_system;
mod interrupted_patch;
mod kill;
mod power_cut;
mod signals;
mod spawn_failure;
pub(super) mod strace;
mod sync_count;
mod worktree_errors;
mod worktrees;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Mutex;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use self::crash_scenario::CrashScenario;
use self::strace::{StraceWatch, Syscall, SyscallFault};
use crate::kit::cli::{CommandResult, wait_for_exit};

/// Does something for each case on both cores, and returns the number of cases for which it returned true.
fn count_cases<T: Send>(
    cases: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> bool + Sync,
) -> usize {
    let cases: Vec<T> = cases.into_iter().collect();
    let (cases, count) = (Mutex::new(cases.into_iter()), Mutex::new(0));
    let next = || cases.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = next() {
                    if work(case) {
                        *count.lock().unwrap() += 1;
                    }
                }
            });
        }
    });
    count.into_inner().unwrap()
}

/// Returns the reason why tracing is unavailable, if it is.
fn tracing_unavailable() -> Option<String> {
    let story = CrashScenario::new();
    let command = strace::under_strace(&story.command(), &log(&story), &["-e", "trace=exit_group"]);
    let mut strace = command;
    match strace.spawn() {
        Err(error) => Some(format!("there is no strace: {error}")),
        Ok(child) => {
            let ran = wait_for_exit(child);
            (ran.code != 0).then(|| format!("strace may not watch a process here: {}", ran.err))
        }
    }
}

fn log(story: &CrashScenario) -> PathBuf {
    story.fixture.home().join("strace.log")
}

/// Runs the story with this fault in a call of its first thread.
fn run(story: &CrashScenario, call: &Syscall, fault: SyscallFault) -> CommandResult {
    let how = fault.strace_option(call);
    wait_for_exit(
        strace::under_strace(&story.command(), &log(story), &["-e", &how]).spawn().unwrap(),
    )
}

/// Returns the calls of the first thread, which controls the run and writes the journal.
fn main_thread_syscalls(all: bool) -> Vec<Syscall> {
    let story = CrashScenario::new();
    let ran =
        wait_for_exit(strace::under_strace(&story.command(), &log(&story), &[]).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    strace::observable_calls(&log(&story), all)
}

/// A run that waits for the model's reply to a step, and a trace of its tools.
struct PausedRun {
    story: CrashScenario,
    child: Child,
    watch: StraceWatch,
}

impl PausedRun {
    /// Lets a run continue to this reply.
    fn before(turn: usize, how: &[&str]) -> Result<Self, String> {
        let story = CrashScenario::with_replies(turn);
        let mut child = story.command().spawn().unwrap();
        story.wait_for(turn + 1);
        match StraceWatch::tools(child.id(), &log(&story), how) {
            Ok(watch) => Ok(Self { story, child, watch }),
            Err(why) => {
                let _ = (child.kill(), child.wait());
                Err(why)
            }
        }
    }
}

/// Returns the calls that the tools of one step make.
fn tool_syscalls(turn: usize) -> Result<Vec<Syscall>, String> {
    let PausedRun { story, child, watch } = PausedRun::before(turn, &[])?;
    story.allow_replies(turn + 1);
    story.wait_for(turn + 2);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    wait_for_exit(child);
    watch.end();
    Ok(strace::observable_calls(&log(&story), false))
}
