//! A system that lacks a resource, or whose calls fail. The engine is a process of its own here.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use architect::exec::{SandboxGap, SandboxLevel, SandboxMode, SandboxRequirement};
use architect::types::ToolStatus;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::json;

use super::fixture::{ToolFixture, yolo_settings};
use crate::kit::system::wait_until;

/// An engine that runs one of the parts of [`engine`], and exchanges lines with its test.
struct ChildProcess {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl ChildProcess {
    /// Starts an engine, below another program if one is given.
    fn start(what: &str, below: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let mut words = below.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>();
        words.push(own.into());
        let mut engine = Command::new(&words[0]);
        engine.args(&words[1..]);
        engine.args(["--exact", "tools::scarce_resources::child_main", "--ignored", "--nocapture"]);
        engine.env("ENGINE", what).env("TMPDIR", folder.path());
        engine.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = engine.spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, to, from: BufReader::new(from), _folder: folder }
    }

    /// Waits for a line that begins like this, and returns the rest of it.
    fn wait_for_line(&mut self, begin: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the child never wrote {begin}");
            if let Some((_, rest)) = line.split_once(begin) {
                return rest.trim().to_owned();
            }
        }
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn wait_for_exit(mut self) {
        let status = self.process.wait().unwrap();
        let mut output = String::new();
        let _ = std::io::Read::read_to_string(&mut self.from, &mut output);
        assert!(status.success(), "{output}");
    }
}

/// Not a test by itself: the engine.
#[test]
#[ignore = "started by the other tests as a process of its own"]
fn child_main() {
    match std::env::var("ENGINE").unwrap().as_str() {
        "processes" => without_processes(),
        "memory" => with_little_memory(),
        "levels" => levels(),
        other => panic!("{other}"),
    }
}

/// Waits for the test to continue.
fn wait_for_test() {
    std::io::stdin().lines().next().unwrap().unwrap();
}

/// Returns whether there is such a tool; otherwise the test is skipped.
fn is_installed(tool: &str) -> bool {
    let has = Command::new(tool).arg("-V").output().is_ok();
    if !has {
        eprintln!("skipped: there is no {tool}");
    }
    has
}

/// Attaches `strace` to a process; `None` if that is not allowed.
fn attach_strace(pid: u32, more: &[&str]) -> Option<Child> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &pid.to_string()]).args(more);
    let mut strace = strace.stderr(Stdio::null()).spawn().unwrap();
    // It attaches to the threads one after the other.
    let is_watched = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut threads = threads.peekable();
        threads.peek().is_some()
            && threads.all(|thread| {
                let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
            })
    };
    let begun = Instant::now();
    while !is_watched() {
        if strace.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(10) {
            eprintln!("skipped: this user may not trace processes");
            let _ = strace.kill();
            let _ = strace.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Some(strace)
}

fn without_processes() {
    let world = ToolFixture::new();
    world.write("a", "text\n");
    println!("\nready");
    wait_for_test();
    let output = world.err("run_command", &json!({"command": "true"}));
    assert!(output.contains("Resource temporarily unavailable"), "{output}");
    assert_eq!(world.ok("read_file", &json!({"path": "a"})), "text\n");
    assert_eq!(world.ok("grep", &json!({"text": "text"})), "a\n1:text");
    assert_eq!(world.ok("find_files", &json!({"pattern": "a"})), "a");
    println!("\ndone");
    wait_for_test();
    world.ok("run_command", &json!({"command": "true"}));
}

/// Fault R2: without room for another process or thread, a command reports that, and everything else continues.
#[test]
fn without_another_process_a_call_says_so() {
    if !is_installed("strace") {
        return;
    }
    let mut engine = ChildProcess::start("processes", &[]);
    engine.wait_for_line("ready");
    let inject = "inject=clone,clone3,fork,vfork:error=EAGAIN";
    let strace =
        attach_strace(engine.process.id(), &["-e", "trace=clone,clone3,fork,vfork", "-e", inject]);
    let Some(mut strace) = strace else {
        engine.process.kill().unwrap();
        engine.process.wait().unwrap();
        return;
    };
    engine.send_line("go");
    engine.wait_for_line("done");
    kill_process(Pid::from_child(&strace), Signal::TERM).unwrap();
    strace.wait().unwrap();
    engine.send_line("go");
    engine.wait_for_exit();
}

fn with_little_memory() {
    let world = ToolFixture::new();
    world.ok("run_command", &json!({"command": "true"}));
    for (name, size) in [("huge", 1_u64 << 40), ("large", 2 << 30)] {
        let file = fs::File::create(world.path.join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    world.write("line", "x".repeat(100 << 20));
    world.write("lines", "some text\n".repeat(10 << 20));
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::As).maximum;
    let current = Some(pages * 4096 + (256 << 20));
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
    for (tool, arguments) in [
        ("read_file", json!({"path": "huge"})),
        ("read_file", json!({"path": "huge", "offset": 1_000_000})),
        ("read_file", json!({"path": "line"})),
        ("read_file", json!({"path": "lines", "offset": 9_000_000, "limit": 10})),
        ("edit_file", json!({"path": "huge", "old_str": "x", "new_str": "y"})),
        ("edit_file", json!({"path": "line", "old_str": "y", "new_str": "z"})),
        ("write_file", json!({"path": "large", "content": "y", "mode": "append"})),
        ("apply_patch", json!({"patch": "--- a/huge\n+++ b/huge\n@@ -1 +1 @@\n-x\n+y\n"})),
        ("search_code", json!({"pattern": "z+$"})),
        ("grep", json!({"text": "text", "max_results": 1000})),
        ("find_files", json!({"pattern": "**"})),
        ("run_command", json!({"command": "cat line lines; cat line >&2", "timeout": 60})),
    ] {
        let result = world.call(tool, &arguments);
        assert!(result.text.len() < 100_000, "{tool}: {}", result.text.len());
    }
    world.ok("run_command", &json!({"command": "true"}));
}

/// Fault R3: what is huge outside is small inside, and no call ends the engine.
#[test]
fn with_little_memory_nothing_breaks_down() {
    ChildProcess::start("memory", &[]).wait_for_exit();
}

fn levels() {
    for need in [SandboxRequirement::Preferred, SandboxRequirement::Required] {
        let world = ToolFixture::with(yolo_settings(), |policy| {
            policy.mode = SandboxMode::WorkspaceWrite;
            policy.need = need;
        });
        let enforced = match world.supervisor.enforcement() {
            Ok(enforced) => serde_json::to_string(&enforced).unwrap(),
            Err(error) => error.to_string(),
        };
        let outside = world.path.parent().unwrap().join("outside");
        let line = format!("echo x > {}", outside.display());
        let output = world.call("run_command", &json!({"command": line, "timeout": 20}));
        let is_there = outside.exists();
        assert_eq!(is_there, output.status == ToolStatus::Ok, "{}", output.text);
        println!("\n{need:?} {is_there} {enforced}");
    }
}

/// Fault X2: without a part of the confinement, commands are confined by the rest, which is reported; or not started.
#[test]
fn what_the_system_lacks_is_reported_and_never_pretended() {
    if !is_installed("strace") {
        return;
    }
    for (call, error, level, why) in [
        ("landlock_create_ruleset", "ENOSYS", SandboxLevel::Namespaces, "no Landlock"),
        (
            "landlock_create_ruleset",
            "EOPNOTSUPP",
            SandboxLevel::Namespaces,
            "Landlock is not enabled",
        ),
        ("unshare", "EPERM", SandboxLevel::Landlock, "namespaces: "),
        ("mount", "EACCES", SandboxLevel::Landlock, "namespaces: "),
        // Each layer is applied on its own.
        ("seccomp", "EINVAL", SandboxLevel::Namespaces, "Invalid argument"),
        ("unshare,landlock_create_ruleset", "ENOSYS", SandboxLevel::None, "no Landlock"),
    ] {
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:error={error}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let mut engine = ChildProcess::start("levels", &strace);
        let preferred = engine.wait_for_line("Preferred ");
        let required = engine.wait_for_line("Required ");
        engine.wait_for_exit();
        let (written, enforced) = preferred.split_once(' ').unwrap();
        let enforced: architect::exec::Enforcement = serde_json::from_str(enforced).unwrap();
        assert_eq!(enforced.level, level, "{call}: {enforced:?}");
        assert!(
            enforced.reason.as_ref().is_some_and(|reason| reason.contains(why)),
            "{call}: {enforced:?}"
        );
        assert_eq!(
            written == "true",
            enforced.gaps.contains(&SandboxGap::Files),
            "{call}: {preferred}"
        );
        let is_refused = required.starts_with("false commands cannot be confined here as required");
        let is_enough = level > SandboxLevel::None && call != "seccomp";
        assert_eq!(is_refused, !is_enough, "{call}: {required}");
    }
}

/// Fault T11: a process that cannot be collected is left alone after a while, and the next command runs.
#[test]
fn a_process_that_cannot_be_ended_is_left_alone() {
    if !is_installed("strace") {
        return;
    }
    let world = ToolFixture::new();
    let file = world.path.join("pid");
    let call = json!({"command": "echo $$ > pid; exec sleep 4711.11", "timeout": 5});
    let (result, took) = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let begun = Instant::now();
            (world.call("run_command", &call), begun.elapsed())
        });
        let pid = || fs::read_to_string(&file).unwrap_or_default().trim().parse::<u32>().ok();
        wait_until("it runs", || pid().is_some());
        // A tracer is notified of the end of a process before its parent is; this one is stopped and never reacts.
        let tracer = attach_strace(pid().unwrap(), &[]);
        if let Some(strace) = &tracer {
            kill_process(Pid::from_child(strace), Signal::STOP).unwrap();
        }
        let outcome = running.join().unwrap();
        let after = world.call("run_command", &json!({"command": "echo on"}));
        assert_eq!(&*after.text, "on\n[exit code 0]");
        tracer.map(|mut strace| {
            strace.kill().unwrap();
            strace.wait().unwrap();
            outcome
        })
    })
    .unzip();
    let (Some(result), Some(took)) = (result, took) else { return };
    assert_eq!(result.status, ToolStatus::Abandoned);
    assert!(result.text.contains("could not be ended, not even by SIGKILL"), "{}", result.text);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Fault R14: a supervisor that gets no processor time for a while doesn't count this against the command's time.
#[test]
fn a_command_in_time_is_in_time_however_late_its_supervisor_is() {
    let world = ToolFixture::new();
    let file = world.path.join("pid");
    let call = json!({"command": "echo $PPID > pid; sleep 0.3; echo done", "timeout": 1});
    thread::scope(|scope| {
        let running = scope.spawn(|| world.call("run_command", &call));
        let pid = || fs::read_to_string(&file).unwrap_or_default().trim().parse::<i32>().ok();
        wait_until("it runs", || pid().is_some());
        let supervisor = Pid::from_raw(pid().unwrap()).unwrap();
        kill_process(supervisor, Signal::STOP).unwrap();
        thread::sleep(Duration::from_millis(1_500));
        kill_process(supervisor, Signal::CONT).unwrap();
        assert_eq!(&*running.join().unwrap().text, "done\n[exit code 0]");
    });
}

/// Fault G13: the end of another child is left to its owner.
#[test]
fn other_children_end_without_being_noticed() {
    let world = ToolFixture::new();
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            for code in (0..200).map(|number| number % 100) {
                let status = Command::new("sh").args(["-c", &format!("exit {code}")]).status();
                assert_eq!(status.unwrap().code(), Some(code));
            }
        });
        for code in 1..=50 {
            let line = format!("(exit 7) & true & exit {code}");
            let output = world.err("run_command", &json!({"command": line}));
            assert!(output.starts_with(&format!("[exit code {code}")), "{output}");
        }
        others.join().unwrap();
    });
}
