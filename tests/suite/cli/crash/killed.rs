//! Killed in a system call.

use rustix::process::{Pid, Signal, kill_process};

use super::story::{Story, TURNS};
use super::strace::{self, Call, Fault};
use super::{Waiting, each, log, rehearse, rehearse_tools, run, untraceable};
use crate::cli::world::{Ran, finish};

/// Kills the run in this call, and goes on with it. Returns whether the call was made at all.
fn killed(call: &Call) -> bool {
    let story = Story::new();
    let ran = run(&story, call, Fault::Kill);
    let case = format!("{call:?}");
    goes_on(&story, &ran, &case)
}

/// Goes on with a run that may have been killed. Returns whether it was.
fn goes_on(story: &Story, ran: &Ran, case: &str) -> bool {
    story.holds_what_was_told(&ran.out, case);
    story.is_cleared_away(case);
    if story.survives(case) {
        story.is_complete(case);
    }
    story.is_cleared_away(case);
    ran.code == -1
}

/// Fault S1: the run, killed in each system call with which it drives and journals.
#[test]
fn a_run_survives_being_killed_in_any_system_call() {
    if let Some(why) = untraceable() {
        return println!("skipped: {why}");
    }
    let calls = rehearse(false);
    let (all, met) = (calls.len(), each(calls, |call| killed(&call)));
    println!("killed in {met} of {all} calls");
    assert!(all > 50 && met * 10 > all * 9, "{met} of {all}");
}

/// Returns a story whose run was killed when the model had heard of the command.
fn interrupted() -> Story {
    let story = Story::until(3);
    let child = story.command().spawn().unwrap();
    story.wait_for(4);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    finish(child);
    story.go_on(TURNS);
    story
}

/// Fault S18: going on, killed in each system call, can be gone on with.
#[test]
fn going_on_survives_being_killed_in_any_system_call() {
    if let Some(why) = untraceable() {
        return println!("skipped: {why}");
    }
    let under = |story: &Story, how: &[&str]| {
        let going_on = story.going_on("stream-json");
        finish(strace::around(&going_on, &log(story), how).spawn().unwrap())
    };
    let rehearsal = interrupted();
    let ran = under(&rehearsal, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let calls = strace::calls(&log(&rehearsal), false);
    let all = calls.len();
    let met = each(calls, |call| {
        let story = interrupted();
        let ran = under(&story, &["-e", &Fault::Kill.at(&call)]);
        let case = format!("{call:?}");
        assert!(story.survives(&case), "{case}");
        story.is_complete(&case);
        story.is_cleared_away(&case);
        ran.code == -1
    });
    println!("killed in {met} of {all} calls");
    assert!(all > 30 && met * 10 > all * 9, "{met} of {all}");
}

/// Kills the run in this call of a tool, and goes on with it. Returns whether the call was made at all.
fn killed_in_tool(turn: usize, call: &Call) -> bool {
    let how = Fault::Kill.at(call);
    let Waiting { story, child, watch } = Waiting::before(turn, &["-e", &how]).unwrap();
    story.go_on(TURNS);
    let ran = finish(child);
    watch.end();
    let case = format!("step {turn}, {call:?}");
    goes_on(&story, &ran, &case)
}

/// Fault S1: the run, killed in each system call with which a tool writes files or runs a command.
#[test]
fn a_run_survives_being_killed_in_any_system_call_of_a_tool() {
    let mut cases = Vec::new();
    for turn in 1..TURNS - 1 {
        match rehearse_tools(turn) {
            Err(why) => return println!("skipped: {why}"),
            Ok(calls) => cases.extend(calls.into_iter().map(|call| (turn, call))),
        }
    }
    let (all, met) = (cases.len(), each(cases, |(turn, call)| killed_in_tool(turn, &call)));
    println!("killed in {met} of {all} calls");
    assert!(all > 20 && met * 10 > all * 8, "{met} of {all}");
}

/// The same for each call of each thread and process that a run has, commands and their supervisors included, and of
/// whatever name: each of them that makes the call is killed. Where that is not the engine, the run goes on.
#[test]
#[ignore = "takes minutes"]
fn a_run_survives_the_death_of_any_of_its_processes_in_any_system_call() {
    let watched = |how: &[&str]| {
        let story = Story::new();
        let log = log(&story);
        let strace = strace::around(&story.command(), &log, &[&["-f"], how].concat()).spawn();
        (finish(strace.unwrap()), strace::calls(&log, true), story)
    };
    let (ran, calls, _) = watched(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let all = calls.len();
    let engine = each(calls, |call| {
        let (ran, _, story) = watched(&["-e", &Fault::Kill.at(&call)]);
        let case = format!("{call:?}");
        story.holds_what_was_told(&ran.out, &case);
        // The files are as the model was told, whatever became of the command.
        story.survives(&case);
        ran.code == -1
    });
    println!("{all} calls, in {engine} of which the engine was killed");
}
