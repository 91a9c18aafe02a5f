//! The command killed in each of its system calls, or each of them failing; and then gone on with.

mod durable;
mod failing;
mod hanging;
mod killed;
mod patched;
mod power;
mod signalled;
mod story;
mod strace;
mod syncs;
mod threads;

use std::path::PathBuf;
use std::process::Child;
use std::sync::Mutex;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use self::story::Story;
use self::strace::{Call, Fault, Watch};
use crate::cli::world::{Ran, finish};

/// Does something for each case on both cores, and returns for how many it was true.
fn each<T: Send>(cases: impl IntoIterator<Item = T>, work: impl Fn(T) -> bool + Sync) -> usize {
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

/// Returns why nothing can be traced here.
fn untraceable() -> Option<String> {
    let story = Story::new();
    let command = strace::around(&story.command(), &log(&story), &["-e", "trace=exit_group"]);
    let mut strace = command;
    match strace.spawn() {
        Err(error) => Some(format!("there is no strace: {error}")),
        Ok(child) => {
            let ran = finish(child);
            (ran.code != 0).then(|| format!("strace may not watch a process here: {}", ran.err))
        }
    }
}

fn log(story: &Story) -> PathBuf {
    story.world.home().join("strace.log")
}

/// Runs the story with this happening to a call of its first thread.
fn run(story: &Story, call: &Call, fault: Fault) -> Ran {
    let how = fault.at(call);
    finish(strace::around(&story.command(), &log(story), &["-e", &how]).spawn().unwrap())
}

/// Returns the calls of the first thread, which journals and drives.
fn rehearse(all: bool) -> Vec<Call> {
    let story = Story::new();
    let ran = finish(strace::around(&story.command(), &log(&story), &[]).spawn().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    strace::calls(&log(&story), all)
}

/// A run that waits for the model's reply to a step, and a watch over its tools.
struct Waiting {
    story: Story,
    child: Child,
    watch: Watch,
}

impl Waiting {
    /// Lets a run get to this reply.
    fn before(turn: usize, how: &[&str]) -> Result<Self, String> {
        let story = Story::until(turn);
        let mut child = story.command().spawn().unwrap();
        story.wait_for(turn + 1);
        match Watch::tools(child.id(), &log(&story), how) {
            Ok(watch) => Ok(Self { story, child, watch }),
            Err(why) => {
                let _ = (child.kill(), child.wait());
                Err(why)
            }
        }
    }
}

/// Returns the calls that the tools of one step make.
fn rehearse_tools(turn: usize) -> Result<Vec<Call>, String> {
    let Waiting { story, child, watch } = Waiting::before(turn, &[])?;
    story.go_on(turn + 1);
    story.wait_for(turn + 2);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    finish(child);
    watch.end();
    Ok(strace::calls(&log(&story), false))
}
