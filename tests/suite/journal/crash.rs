//! A process that is killed at each of its system calls, or in which each of them fails.
//!
//! The test binary starts itself as the victim: one thread that runs a session of three steps, or resumes it.
//! `strace` traces that thread alone, so that every call has the same number each time.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use architect::journal::{DamagePolicy, Durability, JournalEndKind, JournalError};
use architect::machine::{State, StateKind, StopReason};
use architect::types::RunTime;
use crossbeam_channel::{Receiver, unbounded};
use wait_timeout::ChildExt as _;

use super::fixture::SessionFixture;
use crate::kit::harmless_syscalls::HARMLESS_SYSCALLS;

/// The variable with the victim's folder.
const FIXTURE_VARIABLE: &str = "ARCHITECT_TEST_WORLD";

/// Time limit of every wait.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The victim. On its own this test does nothing.
#[test]
fn victim() {
    let Some(root) = std::env::var_os(FIXTURE_VARIABLE) else { return };
    // Some systems forbid processes to trace others of the same user, so the victim allows it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    let thread = fs::read_link("/proc/thread-self").unwrap();
    println!("\nthread {}", thread.file_name().unwrap().to_str().unwrap());
    wait_for_input();
    let ended = run_session(Path::new(&root)).unwrap_or_else(|error| error.to_string());
    println!("\nended {ended}");
}

/// Waits until there is something to read, and does not read it. `strace` may or may not see the waiting call,
/// depending on which of the two came first, so the call must not be among the counted ones.
fn wait_for_input() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
}

/// Runs a session to its end, or resumes it, and prints how it ended.
fn run_session(root: &Path) -> Result<String, JournalError> {
    let fixture = SessionFixture::try_at(root, Durability::Full)?;
    let machine = match fixture.store.resolve("last") {
        Ok(session) => {
            let opened = fixture.store.reopen(session, DamagePolicy::Refuse)?;
            let at = opened.history.at;
            let going = opened.resume(fixture.try_resume_options(None)?)?;
            fixture.drive_inline(going.journal, going.machine, going.output, at)
        }
        Err(JournalError::UnknownSession(_)) => {
            let (journal, machine, output) = fixture.try_begin()?;
            fixture.drive_inline(journal, machine, output, RunTime::START)
        }
        Err(error) => return Err(error),
    };
    let State::Done(done) = &machine.state else { panic!("a run that ends is done") };
    Ok(done.outcome.reason.to_string())
}

/// A victim and its tracer.
struct TracedChild {
    victim: Child,
    strace: Child,
    output: Receiver<String>,
}

/// Returns the lines that a child prints, as they come.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = unbounded();
    thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    receive
}

/// Waits for a line with this prefix and returns the rest of it.
fn rest_of_line(lines: &Receiver<String>, beginning: &str) -> Option<String> {
    let until = Instant::now() + MAX_WAIT;
    while let Ok(line) = lines.recv_deadline(until) {
        if let Some(rest) = line.strip_prefix(beginning) {
            return Some(rest.to_owned());
        }
    }
    None
}

impl TracedChild {
    /// Starts a victim, which `strace` traces into `log`.
    #[allow(clippy::zombie_processes)] // both are waited for in `end`
    fn start(fixture: &Path, log: &Path, how: &[&str]) -> Result<Self, String> {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::crash::victim", "--nocapture", "--test-threads=1"])
            .env(FIXTURE_VARIABLE, fixture)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = lines(victim.stdout.take().unwrap());
        let thread = rest_of_line(&output, "thread ").expect("the victim prints its thread");
        let mut strace = Command::new("strace")
            .args(["-p", &thread, "-o", log.to_str().unwrap()])
            .args(how)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("there is no strace: {error}"))?;
        let watches = lines(strace.stderr.take().unwrap());
        if rest_of_line(&watches, "strace: Process ").is_none_or(|rest| !rest.ends_with("attached"))
        {
            let _ = (victim.kill(), victim.wait(), strace.kill(), strace.wait());
            return Err("strace may not watch a process here".to_owned());
        }
        // The victim waits for this line.
        let _ = victim.stdin.take().unwrap().write_all(b"\n");
        Ok(Self { victim, strace, output })
    }

    /// Waits for the end of both, and returns how the victim ended and its output.
    fn end(mut self) -> (ExitStatus, Option<String>) {
        let status = self.victim.wait_timeout(MAX_WAIT).unwrap();
        let status = status.unwrap_or_else(|| {
            let _ = (self.victim.kill(), self.strace.kill());
            panic!("the victim hangs")
        });
        assert!(self.strace.wait_timeout(MAX_WAIT).unwrap().is_some(), "strace hangs");
        (status, rest_of_line(&self.output, "ended "))
    }
}

/// A folder in memory, if there is one: here nothing has to survive the end of the machine.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let new = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    new.unwrap()
}

/// A system call: its name, and its number among the calls of that name.
#[derive(Clone, Debug, PartialEq)]
struct Syscall {
    name: String,
    nth: usize,
}

/// Returns the calls of a victim in this folder, in their order; an error if they can't be traced.
fn recorded_calls(fixture: &Path) -> Result<Vec<Syscall>, String> {
    let log = fixture.join("strace.log");
    let (status, ended) = TracedChild::start(fixture, &log, &[])?.end();
    assert!(status.success() && ended.as_deref() == Some("llm_done"), "{ended:?}");
    let mut counts = HashMap::new();
    let text = fs::read_to_string(log).unwrap();
    let mut calls = Vec::new();
    for line in text.lines() {
        let Some((name, arguments)) = line.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let nth: &mut usize = counts.entry(name.to_owned()).or_default();
        *nth += 1;
        // The victim's output for this test does not count.
        let is_reported = name == "write" && arguments.starts_with("1,");
        if !is_reported && !HARMLESS_SYSCALLS.contains(&name) {
            calls.push(Syscall { name: name.to_owned(), nth: *nth });
        }
    }
    Ok(calls)
}

/// Examines a session of a dead process, resumes it, and examines it again.
fn resume_and_check(root: &Path, case: &str) -> SessionFixture {
    let fixture = SessionFixture::at(root, Durability::Os);
    assert!(fixture.command_log().len() <= 1, "{case}: a command ran twice");
    let listed = fixture.store.list().unwrap();
    let Some(listed) = listed.first() else { return fixture };
    let session = listed.session;
    let before = fixture.history(session);
    let machine = fixture.resume(session, None);
    let State::Done(done) = &machine.state else { panic!("{case}") };
    assert_eq!(done.outcome.reason, StopReason::LlmDone, "{case}");
    assert!(fixture.command_log().len() <= 1, "{case}: a command ran twice");
    // The entries from before the resume are still there.
    let entries = before.machine.conversation.entries();
    assert_eq!(&machine.conversation.entries()[..entries.len()], entries, "{case}");
    let replayed = fixture.store.replay(session, |_, _, replayed| {
        assert_eq!(replayed.divergence, None, "{case}");
    });
    let (past, end) = replayed.unwrap();
    assert_eq!((past.machine, end.kind), (machine, JournalEndKind::Whole), "{case}");
    fixture
}

/// In the end, the files have the content that the model asked for.
fn assert_complete(fixture: &SessionFixture, case: &str) {
    if !fixture.store.list().unwrap().is_empty() {
        assert_eq!(fixture.file("a.txt").as_deref(), Some("first\n"), "{case}");
        assert_eq!(fixture.file("b.txt").as_deref(), Some("second\n"), "{case}");
    }
}

/// Runs a function for each call, on both cores.
fn for_each_call(calls: Vec<Syscall>, work: impl Fn(&Syscall) + Sync) {
    let calls = Mutex::new(calls.into_iter());
    let next = || calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(call) = next() {
                    work(&call);
                }
            });
        }
    });
}

/// Returns a fixture whose session was killed in the middle of a command.
fn interrupted() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let root = folder.path().to_owned();
    let fixture = SessionFixture::at(&root, Durability::Os);
    let session = super::resume::crash_at(&fixture, "vetted", 1);
    assert_eq!(fixture.history(session).machine.state.kind(), StateKind::Executing);
    (folder, root)
}

/// Returns the calls of a session in a folder of its own; reports if they can't be traced.
#[allow(clippy::print_stdout)] // the one place for the reason of a skipped test
fn recorded_calls_or_skip(fixture: &Path) -> Vec<Syscall> {
    recorded_calls(fixture).unwrap_or_else(|why| {
        println!("skipped: {why}");
        Vec::new()
    })
}

/// Kills a victim in this folder when it makes this call.
fn kill(root: &Path, call: &Syscall) {
    let how = format!("inject={}:signal=KILL:when={}", call.name, call.nth);
    let log = root.join("strace.log");
    let (status, _) = TracedChild::start(root, &log, &["-e", &how]).unwrap().end();
    assert_eq!(status.signal(), Some(9), "{how}");
    assert_complete(&resume_and_check(root, &how), &how);
}

/// Faults S1 and S9: a session that is killed at any system call can be resumed; every written record is there, and
/// the lock of the dead process is not.
#[test]
fn a_session_survives_being_killed_at_any_system_call() {
    let calls = recorded_calls_or_skip(folder().path());
    assert!(calls.is_empty() || calls.len() > 50, "{}", calls.len());
    for_each_call(calls, |call| kill(folder().path(), call));
}

/// Fault S18: the same holds for a resume.
#[test]
fn going_on_survives_being_killed_at_any_system_call() {
    let calls = recorded_calls_or_skip(&interrupted().1);
    for_each_call(calls, |call| kill(&interrupted().1, call));
}

/// Fault S5: a limit on the size of files counts as a full disk, wherever it takes effect.
#[test]
fn a_file_size_limit_ends_the_run() {
    let mut ends = Vec::new();
    for blocks in (1..20).chain([100_000]) {
        let folder = tempfile::tempdir().unwrap();
        // Shells count in blocks of 512 bytes; without the trap the limit would end the process.
        let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut victim = Command::new("sh")
            .args(["-c", &limited])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "journal::crash::victim", "--nocapture", "--test-threads=1"])
            .env(FIXTURE_VARIABLE, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = lines(victim.stdout.take().unwrap());
        victim.stdin.take().unwrap().write_all(b"\n").unwrap();
        let status = victim.wait_timeout(MAX_WAIT).unwrap();
        assert!(status.expect("it ends").success(), "{blocks}");
        ends.extend(rest_of_line(&output, "ended "));
        resume_and_check(folder.path(), &format!("{blocks} blocks"));
    }
    assert_eq!(ends.pop().as_deref(), Some("llm_done"));
    // On file systems where the reserved space counts, not even the header fits.
    let is_reported = |end: &String| end == "store_error" || end.contains("File too large");
    assert!(
        is_reported(&ends[0]) && ends.iter().all(|end| is_reported(end) || end == "llm_done"),
        "{ends:?}"
    );
}

/// Lets a call of a victim fail, and returns its report of how it ended.
fn run_with_failure(root: &Path, call: &Syscall, error: &str) -> String {
    let how = format!("inject={}:error={error}:when={}", call.name, call.nth);
    let log = root.join("strace.log");
    let (status, ended) = TracedChild::start(root, &log, &["-e", &how]).unwrap().end();
    assert!(status.success(), "{how}: {ended:?}");
    resume_and_check(root, &how);
    ended.unwrap()
}

/// Fault G14.
#[test]
fn an_interrupted_system_call_is_retried() {
    let mut calls = recorded_calls_or_skip(folder().path());
    let again =
        ["read", "write", "pwrite64", "openat", "fallocate", "fsync", "fdatasync", "ftruncate"];
    calls.retain(|call| again.contains(&&*call.name));
    for_each_call(calls, |call| {
        let folder = folder();
        assert_eq!(run_with_failure(folder.path(), call, "EINTR"), "llm_done", "{call:?}");
        assert_complete(&SessionFixture::at(folder.path(), Durability::Os), "{call:?}");
    });
}

/// Faults S3 and S4: a record that could not be written ends the run with a report; so does a failed sync.
#[test]
fn a_full_disk_and_a_broken_one_end_the_run() {
    let mut calls = recorded_calls_or_skip(folder().path());
    let writes = [
        "mkdir",
        "write",
        "pwrite64",
        "fallocate",
        "fsync",
        "fdatasync",
        "rename",
        "renameat",
        "renameat2",
    ];
    calls.retain(|call| writes.contains(&&*call.name));
    // The record of the end and its sync come when the run is over.
    let last = |name: &str| calls.iter().filter(|call| call.name == name).count();
    let (last_write, last_sync) = (last("pwrite64"), last("fdatasync"));
    for_each_call(calls, |call| {
        for error in ["ENOSPC", "EIO", "EDQUOT"] {
            let folder = folder();
            let ended = run_with_failure(folder.path(), call, error);
            // The first of each belongs to the header, without which there is no session.
            let is_write = call.name == "pwrite64" && (2..last_write).contains(&call.nth);
            let is_sync = call.name == "fdatasync" && (2..last_sync).contains(&call.nth);
            let is_end = ended == "store_error";
            assert!(is_end || !(is_write || is_sync), "{call:?} {error}: {ended}");
            if is_write {
                let fixture = SessionFixture::at(folder.path(), Durability::Os);
                let session = fixture.store.list().unwrap()[0].session;
                let mut records = Vec::new();
                let see = |name| records.push(name);
                let mut see = see;
                fixture.store.replay(session, |_, stored, _| see(stored.content.name())).unwrap();
                assert!(
                    records.iter().any(|name| name == "store_failed"),
                    "{call:?} {error}: {records:?}"
                );
            }
        }
    });
}
