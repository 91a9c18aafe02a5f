//! `strace`, which records the system calls of a process, kills it in one of them, or lets one of them fail.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crossbeam_channel::{Receiver, unbounded};
use wait_timeout::ChildExt as _;

use crate::kit::harmless_syscalls::HARMLESS_SYSCALLS;
use crate::kit::server::MAX_WAIT;

/// One system call: its name, and its number among the calls of that name by its thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) struct Syscall {
    pub(in crate::cli) name: String,
    pub(in crate::cli) nth: usize,
}

/// The fault of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum SyscallFault {
    /// The process is killed in it.
    Kill,
    /// It fails with this error.
    Fail(&'static str),
    /// The process gets this signal in it.
    Signal(&'static str),
    /// It fails with this error, and so does each later one of the same name.
    FailEver(&'static str),
}

impl SyscallFault {
    /// Returns the argument of `strace` for this fault.
    pub(in crate::cli) fn strace_option(self, call: &Syscall) -> String {
        let Syscall { name, nth } = call;
        match self {
            Self::Kill => format!("inject={name}:signal=KILL:when={nth}"),
            Self::Signal(name) => {
                format!("inject={call}:signal={name}:when={nth}", call = call.name)
            }
            Self::Fail(error) => format!("inject={name}:error={error}:when={nth}"),
            Self::FailEver(error) => format!("inject={name}:error={error}:when={nth}+"),
        }
    }
}

/// Returns a command that runs another one under `strace`. It traces the first thread alone, so that every call has the
/// same number each time.
pub(in crate::cli) fn under_strace(command: &Command, log: &Path, how: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(log).args(how).arg("--");
    strace.arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            strace.env(name, value);
        }
    }
    strace.current_dir(command.get_current_dir().unwrap());
    strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    strace
}

/// A `strace` that traces threads of a running process.
pub(super) struct StraceWatch {
    strace: Child,
    _output: Receiver<String>,
}

impl StraceWatch {
    /// Attaches to the threads of a process that run tools.
    ///
    /// # Errors
    ///
    /// Returns the reason why that is impossible here.
    #[allow(clippy::zombie_processes)] // it is waited for in `end`
    pub(super) fn tools(process: u32, log: &Path, how: &[&str]) -> Result<Self, String> {
        let threads = tool_threads(process);
        assert!(!threads.is_empty(), "no tool has run yet");
        let mut strace = Command::new("strace");
        for thread in &threads {
            strace.args(["-p", thread]);
        }
        let mut strace = strace
            .arg("-o")
            .arg(log)
            .args(how)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("there is no strace: {error}"))?;
        let output = lines(strace.stderr.take().unwrap());
        for _ in &threads {
            let line = output.recv_timeout(MAX_WAIT).unwrap_or_default();
            if !line.ends_with(" attached") {
                let _ = (strace.kill(), strace.wait());
                return Err(format!("strace may not watch a process here: {line}"));
            }
        }
        Ok(Self { strace, _output: output })
    }

    /// Waits until no traced thread is left.
    pub(super) fn end(mut self) {
        let ended = self.strace.wait_timeout(MAX_WAIT).unwrap();
        if ended.is_none() {
            let _ = self.strace.kill();
            panic!("strace hangs");
        }
    }
}

/// Returns the threads of a process that run tools.
fn tool_threads(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let is_tool = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("tool-"))
    };
    tasks.filter(is_tool).map(|task| task.file_name().to_str().unwrap().to_owned()).collect()
}

/// Returns the lines that a child prints, as they come.
fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = unbounded();
    thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    receive
}

/// Returns the calls in a log that are noticeable outside; reading a file is not. With `all` there
/// are no exceptions.
pub(in crate::cli) fn observable_calls(log: &Path, all: bool) -> Vec<Syscall> {
    let text = fs::read_to_string(log).unwrap();
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    let mut calls = BTreeSet::new();
    for line in text.lines() {
        // If there are several threads, the line begins with the thread.
        let (thread, line) = match line.split_once(' ') {
            Some((thread, rest)) if thread.bytes().all(|byte| byte.is_ascii_digit()) => {
                (thread, rest.trim_start())
            }
            _ => ("", line),
        };
        let Some((name, arguments)) = line.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let nth = counts.entry((thread, name)).or_default();
        *nth += 1;
        let opens = name.starts_with("openat");
        let changes = ["O_CREAT", "O_TRUNC", "O_TMPFILE"].iter().any(|f| arguments.contains(f));
        let is_seen = !HARMLESS_SYSCALLS.contains(&name)
            && !name.starts_with("rt_sig")
            && (!opens || changes);
        if all || is_seen {
            calls.insert(Syscall { name: name.to_owned(), nth: *nth });
        }
    }
    calls.into_iter().collect()
}
