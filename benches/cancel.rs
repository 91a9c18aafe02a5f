//! The time from a signal to the end of an interrupted run's process.
//!
//! `cargo bench --bench cancel [-- RUNS]` interrupts this program while a reply streams, while a command runs, and while it
//! waits for the next attempt, a hundred times each, and prints the median, the 99th percentile and the longest.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a benchmark may fail, and prints

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use agent::agent;
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, ServerBehavior};

#[path = "subjects/agent.rs"]
mod agent;
#[path = "subjects/server.rs"]
mod server;

/// Time limit for a run to get to the point where it is interrupted, or to end.
const MAX_RUN_TIME: Duration = Duration::from_secs(20);

/// Interrupts a run when `is_there` returns true; returns the time that the run takes to end.
fn interrupted(server: &Server, is_there: impl Fn(&Path) -> bool) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let mut child = agent(&server.base, folder.path(), &[]).spawn().unwrap();
    let begun = Instant::now();
    while !is_there(folder.path()) {
        assert!(
            begun.elapsed() < MAX_RUN_TIME && child.try_wait().unwrap().is_none(),
            "it never gets there"
        );
        thread::sleep(Duration::from_millis(1));
    }
    // The run gets time to settle in this activity.
    thread::sleep(Duration::from_millis(20));
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let took = begun.elapsed();
    assert_eq!(status.code(), Some(130));
    server.take();
    took
}

fn main() {
    let runs = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(100_usize);
    let command = ServerBehavior::Works {
        steps: 1,
        tool: "run_command".to_owned(),
        arguments: r#"{"command":"touch on; sleep 60"}"#.to_owned(),
    };
    println!("{:<28} {:>8} {:>8} {:>8}", "ms to the end, interrupted", "p50", "p99", "longest");
    let mut all = Vec::new();
    for (name, manner) in [
        ("while a reply streams", ServerBehavior::Streams),
        ("while a command runs", command),
        ("before the next attempt", ServerBehavior::Refuses),
    ] {
        let runs_a_command = matches!(manner, ServerBehavior::Works { .. });
        let server = Server::start(manner);
        let is_there = |folder: &Path| match runs_a_command {
            true => folder.join("on").exists(),
            false => server.count() > 0,
        };
        let mut taken: Vec<Duration> = (0..runs).map(|_| interrupted(&server, is_there)).collect();
        row(name, &mut taken);
        all.extend(taken);
    }
    row("all", &mut all);
}

fn row(name: &str, taken: &mut [Duration]) {
    taken.sort();
    let at = |percent: usize| {
        taken[(taken.len() * percent / 100).min(taken.len() - 1)].as_secs_f64() * 1e3
    };
    println!("{name:<28} {:>8.1} {:>8.1} {:>8.1}", at(50), at(99), at(100));
}
