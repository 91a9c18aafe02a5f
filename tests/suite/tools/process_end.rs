//! The fate of commands whose engine ends, or runs out of a resource. The engine is a process of its own here.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use architect::exec::{SandboxLevel, SandboxMode};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use tempfile::TempDir;

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::system::{count_sleeping, peak_memory, wait_until};

/// Starts an engine that runs one of the parts of [`engine`]. Its files are in a folder that is removed.
fn start_child(what: &str) -> (Child, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Command::new(std::env::current_exe().unwrap());
    engine.args(["--exact", "tools::process_end::child_main", "--ignored", "--nocapture"]);
    engine.env("ENGINE", what).env("TMPDIR", folder.path());
    engine.stdout(Stdio::piped()).stderr(Stdio::piped());
    (engine.spawn().unwrap(), folder)
}

/// Runs an engine to its end.
fn run_child(what: &str) -> String {
    let (engine, _folder) = start_child(what);
    let Output { status, stdout, stderr } = engine.wait_with_output().unwrap();
    let output =
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{output}");
    output
}

/// Not a test by itself: the engine.
#[test]
#[ignore = "started by the other tests as a process of its own"]
fn child_main() {
    let what = std::env::var("ENGINE").unwrap();
    let confined = |world: SandboxLevel| {
        ToolFixture::with(yolo_settings(), |policy| {
            policy.mode = SandboxMode::WorkspaceWrite;
            policy.ceiling = world;
        })
    };
    let daemons = |seconds: &str| json!({"command": format!("setsid -f sleep {seconds}; sleep {seconds} & sleep {seconds}"), "timeout": 60});
    match what.as_str() {
        "supervised" => drop(ToolFixture::new().call("run_command", &daemons("4711.61"))),
        "landlock" => {
            drop(confined(SandboxLevel::Landlock).call("run_command", &daemons("4711.62")));
        }
        "namespaces" => {
            drop(confined(SandboxLevel::Namespaces).call("run_command", &daemons("4711.63")));
        }
        "flood" => flood(),
        "files" => without_files(),
        other => panic!("{other}"),
    }
}

/// Fault T5: nothing survives the engine, however it ends.
#[test]
fn nothing_survives_the_sudden_death_of_the_engine() {
    for (what, seconds) in
        [("supervised", "4711.61"), ("landlock", "4711.62"), ("namespaces", "4711.63")]
    {
        let (mut engine, _folder) = start_child(what);
        wait_until("all three run", || count_sleeping(seconds) == 3);
        engine.kill().unwrap();
        assert_eq!(engine.wait().unwrap().signal(), Some(9));
        wait_until("none is left", || count_sleeping(seconds) == 0);
    }
}

fn flood() {
    let world = ToolFixture::new();
    world.ok("run_command", &json!({"command": "true"}));
    let peak = || peak_memory(std::process::id()).unwrap();
    let before = peak();
    let result = world.call(
        "run_command",
        &json!({"command": "yes | head -c 1G; head -c 256M /dev/zero >&2", "timeout": 60}),
    );
    assert!(result.text.contains("[exit code 0]"), "{}", result.text);
    let more = peak() - before;
    assert!(more < 16 << 20, "{more} bytes");
}

/// Fault T6.
#[test]
fn gigabytes_of_output_cost_a_few_megabytes() {
    run_child("flood");
}

fn without_files() {
    let world = ToolFixture::new();
    world.write("a", "text\n");
    world.ok("run_command", &json!({"command": "true"}));
    // The limit is about numbers, and the lowest free one is taken next.
    let next = fs::File::open("/dev/null").unwrap().as_raw_fd().unsigned_abs().into();
    let limit = |current| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: Some(4096) })
            .unwrap();
    };
    limit(next);
    for (tool, arguments) in [
        ("read_file", json!({"path": "a"})),
        ("write_file", json!({"path": "a", "content": "x"})),
        ("list_files", json!({})),
        ("run_command", json!({"command": "true"})),
    ] {
        let output = world.err(tool, &arguments);
        assert!(output.to_lowercase().contains("too many"), "{tool}: {output}");
    }
    limit(4096);
    assert_eq!(world.ok("read_file", &json!({"path": "a"})), "text\n");
    world.ok("run_command", &json!({"command": "true"}));
}

/// Fault R1: without files to open, a call says so, and the next one runs when there are some again.
#[test]
fn too_many_open_files_are_reported() {
    run_child("files");
}

/// Faults T3, T16: a crowd of processes that all leave their session.
#[test]
fn a_crowd_is_ended_with_its_command() {
    let world = ToolFixture::new();
    let crowd = "for i in $(seq 100); do setsid -f sleep 4711.8; done; sleep 4711.8";
    let begun = Instant::now();
    world.call("run_command", &json!({"command": crowd, "timeout": 3}));
    assert_eq!(count_sleeping("4711.8"), 0);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// Fault T17: when memory runs out, the system ends the command and not the engine.
#[test]
fn a_command_is_ended_before_the_engine_when_memory_runs_out() {
    let output =
        ToolFixture::new().ok("run_command", &json!({"command": "cat /proc/self/oom_score_adj"}));
    let score: i32 = output.lines().next().unwrap().parse().unwrap();
    assert!(score >= 500, "{output}");
}

/// Fault T15: a command that fills the disk is stopped at the limit.
#[test]
fn a_file_does_not_grow_beyond_its_limit() {
    let world =
        ToolFixture::with(yolo_settings(), |policy| policy.limits.file_size = Some(1 << 20));
    let output = world.err("run_command", &json!({"command": "head -c 8M /dev/zero > big"}));
    assert!(
        output.contains("File size limit exceeded") || output.contains("File too large"),
        "{output}"
    );
    assert!(fs::metadata(world.path.join("big")).unwrap().len() <= 1 << 20);
}
