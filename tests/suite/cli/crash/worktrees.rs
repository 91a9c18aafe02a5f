//! Worktrees whose process is killed: at their creation, use or removal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use wait_timeout::ChildExt;

use super::strace::{self, Syscall, SyscallFault};
use super::{count_cases, tracing_unavailable};
use crate::cli::worktrees::fixture::{ANSWER, Project, UserState, command_script};
use crate::kit::cli::wait_for_exit;
use crate::kit::server::MAX_WAIT;
use crate::kit::system::wait_within;

/// The variable with the number of rounds; `all` kills in every system call.
const ROUNDS: &str = "WORKTREE_ROUNDS";

/// The default number of cases, of thousands.
const DEFAULT_ROUNDS: usize = 24;

fn rounds() -> usize {
    match std::env::var(ROUNDS).as_deref() {
        Ok("all") => usize::MAX,
        Ok(number) => number.parse().unwrap(),
        Err(_) => DEFAULT_ROUNDS,
    }
}

/// A project in which the user has a stash, a staged file and one that is not committed.
fn project() -> (Project, UserState) {
    let project = Project::new();
    project.cli.write("a.txt", "stashed\n");
    project.git("stash");
    project.cli.write("staged.txt", "s\n");
    project.git("add staged.txt");
    project.cli.write("a.txt", "not committed\n");
    let state = project.user_state();
    (project, state)
}

/// A run that changes nothing, or works in the worktree.
fn command(project: &Project, script: &str, name: &str) -> std::process::Command {
    let model = project.cli.script_model(script);
    project.cli.command(&[
        "run",
        "x",
        "--model",
        &model,
        "--mode",
        "yolo",
        "--worktree",
        name,
        "--with-changes",
    ])
}

/// Lets the next start clean up, and checks the remains.
fn check(project: &Project, user: &UserState, case: &str) {
    // Git commands of the killed process may still run for a moment; until then the worktree is in use.
    wait_within(MAX_WAIT, &format!("{case}: no worktree is in use"), || {
        project.listed().iter().all(|listed| listed["in_use"] == false)
    });
    assert_eq!(project.user_state(), *user, "{case}");
    let listed = project.listed();
    for worktree in &listed {
        assert_eq!(worktree["changed"], true, "{case}: {worktree}");
        let name = worktree["name"].as_str().unwrap();
        let ran = project.worktrees(&["rm", name, "--force"]);
        assert_eq!(ran.code, 0, "{case}: {}", ran.err);
    }
    // The supervisor of a killed run may restore files after the removal; the next start removes these, too.
    wait_within(MAX_WAIT, &format!("{case}: no folder is left"), || {
        project.listed().is_empty() && project.left_folders().is_empty()
    });
    project.assert_nothing_left(case);
    assert_eq!(project.user_state(), *user, "{case}");
}

/// Kills a run in this call. Returns whether the call was made at all.
fn killed(script: &str, call: &Syscall) -> bool {
    let case = format!("{call:?}");
    let (project, user) = project();
    let run = command(&project, script, "w");
    let log = project.cli.home().join("strace.log");
    let how = SyscallFault::Kill.strace_option(call);
    let ran = wait_for_exit(strace::under_strace(&run, &log, &["-e", &how]).spawn().unwrap());
    check(&project, &user, &case);
    ran.code == -1
}

/// A run with a worktree is killed in a system call by which it makes, uses or removes the worktree: nothing of the
/// user is lost or changed, and the next start removes the remains.
#[test]
fn a_worktree_survives_being_killed_in_any_system_call() {
    if let Some(why) = tracing_unavailable() {
        return println!("skipped: {why}");
    }
    for script in [ANSWER.to_owned(), command_script("echo x > x; git add x; git commit -q -m x")] {
        let (project, _) = project();
        let log = project.cli.home().join("strace.log");
        let run = command(&project, &script, "w");
        let ran = wait_for_exit(strace::under_strace(&run, &log, &[]).spawn().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let calls = strace::observable_calls(&log, false);
        let every = calls.len().div_ceil(rounds()).max(1);
        let chosen: Vec<_> = calls.iter().step_by(every).cloned().collect();
        let all = chosen.len();
        let met = count_cases(chosen, |call| killed(&script, &call));
        println!("killed in {met} of {all} calls, of {}", calls.len());
        assert!(met * 10 > all * 7, "{met} of {all}");
    }
}

/// Worktrees of one repository are made, used, killed and cleaned up at the same time.
#[test]
fn worktrees_of_one_repository_do_not_disturb_each_other() {
    let (project, user) = project();
    let (next, kept) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all = rounds().min(1_000);
    let model =
        project.cli.script_model(&command_script("echo x > x; git add x; git commit -q -m x"));
    let idle = project.cli.home().join("idle.toml");
    std::fs::write(&idle, ANSWER).unwrap();
    let idle = format!("scripted/{}", idle.display());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= all {
                        break;
                    }
                    let (model, name) = if round % 2 == 0 { (&model, "w") } else { (&idle, "n") };
                    let name = format!("{name}{round}");
                    let args =
                        ["run", "x", "--model", model, "--mode", "yolo", "--worktree", &name];
                    let mut child = project.cli.command(&args).spawn().unwrap();
                    // Most are killed at some time, from the first call to the last.
                    let time = Duration::from_millis((round as u64 * 37) % 700);
                    if round % 5 != 0 && child.wait_timeout(time).unwrap().is_none() {
                        let _ = child.kill();
                    }
                    let ran = wait_for_exit(child);
                    if round % 5 == 0 {
                        assert_eq!(ran.code, 0, "{}", ran.err);
                        if round % 2 == 0 {
                            kept.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let listed = project.listed();
    let has_work = listed.iter().filter(|listed| listed["commits"] == 1).count();
    assert!(has_work >= kept.load(Ordering::Relaxed), "{listed:?}");
    check(&project, &user, "in the end");
}
