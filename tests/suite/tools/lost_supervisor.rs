//! Commands whose supervisor died: they may have had their effects, and the result says so.

use std::fs;
use std::thread;

use architect::exec::{SandboxLevel, SandboxMode};
use architect::types::ToolStatus;
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::server::MAX_WAIT;
use crate::kit::system::{count_sleeping, wait_until, wait_within};

/// Returns the process that sleeps for this number of seconds.
fn sleeper(seconds: &str) -> Option<Pid> {
    let line = format!("sleep\x00{seconds}\x00");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut found = processes.filter(|process| {
        fs::read(process.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())
    });
    found.next()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)
}

/// Returns the state of a process, and its parent.
fn state(process: Pid) -> Option<(String, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    let mut words = behind.split_whitespace();
    let state = words.next()?.to_owned();
    Some((state, words.next()?.parse().ok().and_then(Pid::from_raw)?))
}

/// Returns the child of this process that is an ancestor of the given one.
fn supervisor(of: Pid) -> Option<Pid> {
    let mut process = of;
    loop {
        match state(process)? {
            (_, above) if above == getpid() => return Some(process),
            (_, above) => process = above,
        }
    }
}

#[test]
fn of_a_command_whose_supervisor_is_killed_the_outcome_is_unknown() {
    for (level, seconds) in [
        (SandboxLevel::None, "4714.1"),
        (SandboxLevel::Landlock, "4714.2"),
        (SandboxLevel::Namespaces, "4714.3"),
    ] {
        let world = ToolFixture::with(yolo_settings(), |policy| {
            if level > SandboxLevel::None {
                (policy.mode, policy.ceiling) = (SandboxMode::WorkspaceWrite, level);
            }
        });
        let command = format!("echo begun; echo ran >> log; sleep {seconds}");
        let arguments = json!({ "command": command });
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| world.call("run_command", &arguments));
            // Once the supervisor sleeps, it has reported the process of the command.
            let waits = |process| state(process).is_some_and(|(state, _)| state == "S");
            let waiting = || sleeper(seconds).and_then(supervisor).filter(|found| waits(*found));
            wait_until("it runs", || waiting().is_some());
            let supervisor = waiting().unwrap();
            kill_process(supervisor, Signal::KILL).unwrap();
            running.join().unwrap()
        });
        assert_eq!(result.status, ToolStatus::InDoubt, "{level}: {}", result.text);
        assert!(result.text.starts_with("begun\n[outcome unknown: "), "{level}: {}", result.text);
        assert!(!result.text.contains("was not run"), "{level}: {}", result.text);
        wait_within(MAX_WAIT, &format!("{level}: it is gone"), || count_sleeping(seconds) == 0);
        // The next command has another supervisor.
        let log = world.ok("run_command", &json!({ "command": "cat log" }));
        assert!(log.starts_with("ran\n"), "{level}: {log}");
    }
}

#[test]
fn of_a_command_that_kills_its_supervisor_the_outcome_is_unknown() {
    let world = ToolFixture::new();
    let result = world.call("run_command", &json!({ "command": "echo ran >> log; kill -9 $PPID" }));
    assert_eq!(result.status, ToolStatus::InDoubt, "{}", result.text);
    assert_eq!(world.read("log"), "ran\n");
}
