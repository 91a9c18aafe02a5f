//! A stopped batch continues where it was.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{ANSWER, Batch, COMMAND, appending};
use crate::kit::cli::{CommandResult, wait_for_exit, wait_until};

/// A delay that exceeds every test, in milliseconds.
const LONG: u64 = 600_000;

fn begin(batch: &Batch, args: &[&str]) -> Child {
    batch.cli.command(&[&COMMAND[..], args].concat()).spawn().unwrap()
}

fn interrupt(child: Child, signal: Signal) -> CommandResult {
    kill_process(Pid::from_child(&child), signal).unwrap();
    wait_for_exit(child)
}

/// Lets the model answer at once from now on.
fn answer_soon(batch: &Batch) {
    batch.cli.write("script.toml", &appending(0));
}

#[test]
fn an_interrupted_batch_goes_on_inside_its_tasks() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let batch = Batch::with_tasks(&["a", "b", "c"], &appending(LONG));
        let child = begin(&batch, &["--jobs", "2"]);
        batch.wait_for("a");
        batch.wait_for("b");
        let ran = interrupt(child, signal);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.out.starts_with("3 cells: 0 succeeded, 3 unfinished\n"), "{}", ran.out);
        assert_eq!(batch.results().len(), 0);
        answer_soon(&batch);
        let begun = Instant::now();
        let ran = batch.run(&[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        // Its leases were given back.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(["a", "b", "c"].map(|id| batch.runs_of(id)), [1, 1, 1]);
        assert_eq!(batch.results().len(), 3);
    }
}

#[test]
fn a_killed_batch_goes_on_inside_its_tasks() {
    let batch = Batch::with_tasks(&["a", "b", "c"], &appending(LONG));
    let child = begin(&batch, &["--jobs", "2"]);
    batch.wait_for("a");
    batch.wait_for("b");
    interrupt(child, Signal::KILL);
    answer_soon(&batch);
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(["a", "b", "c"].map(|id| batch.runs_of(id)), [1, 1, 1], "{}", ran.err);
    assert_eq!(ran.err.matches(" resumes").count(), 2, "{}", ran.err);
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let trapping = "[[turn]]\ncalls = [{ name = \"run_command\", arguments = { command = \
                    \"trap 'touch asked' TERM; echo ran >> ran; sleep 4733.8; sleep 4733.8; sleep 4733.8\" } }]\n";
    let batch = Batch::with_tasks(&["a"], trapping);
    let child = begin(&batch, &[]);
    batch.wait_for("a");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_until("the command is to end", || batch.cli.path("a/asked").exists());
    // An immediate repetition would be ignored.
    std::thread::sleep(Duration::from_millis(200));
    let ran = interrupt(child, Signal::INT);
    assert_eq!(ran.code, 130, "{}", ran.err);
    // A batch that waits for its tasks reports their results.
    assert_eq!(ran.out, "", "{}", ran.err);
}

#[test]
fn the_time_of_the_batch_stops_its_tasks_which_can_go_on() {
    let batch = Batch::with_tasks(&["a", "b"], &appending(LONG));
    let ran = batch.run(&["--timeout", "2", "--jobs", "1"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("the time limit of the batch is reached"), "{}", ran.err);
    answer_soon(&batch);
    let ran = batch.run(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(["a", "b"].map(|id| batch.runs_of(id)), [1, 1]);
}

#[test]
fn no_time_starts_nothing() {
    let batch = Batch::with_tasks(&["a"], ANSWER);
    let ran = batch.run(&["--timeout", "0"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.out.starts_with("1 cell: 0 succeeded, 1 unfinished\n"), "{}", ran.out);
}

#[test]
fn a_closed_output_stops_it() {
    let batch = Batch::with_tasks(&["a", "b"], ANSWER);
    let mut child = begin(&batch, &["--output-format", "stream-json"]);
    drop(child.stdout.take());
    let ran = wait_for_exit(child);
    assert_eq!(ran.code, 141, "{}", ran.err);
}
