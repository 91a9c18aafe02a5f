//! One command, from its start to the end of everything that it started.
//!
//! This runs beside the engine: in a process of its own, or in a thread where there is none. It decides nothing but
//! what the [`Limits`] say, and it hears of the engine through the link: a message stops the command, and so does the
//! end of the link, which is the end of the engine.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::absent::Absent;
use super::snapshot::{Protected, Snapshot};
use super::tree::{Felled, Tree};
use super::wire::{Ask, Ended, Limits, Link, Status, Stopped};

/// How long something may take to die of the last signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a process without a file descriptor of its own is looked at, and the background is.
const SLICE: Duration = Duration::from_millis(5);

/// How often it is looked at how much memory a command uses.
const WATCH: Duration = Duration::from_millis(250);

/// Where a command stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It runs.
    Running,
    /// It was asked to end.
    Ending(Stopped),
    /// It has ended by itself, and what it left in the background may end too.
    Draining(Status),
}

/// What happened next.
enum News {
    /// The engine said something, or is gone.
    Engine,
    /// The command has ended, or something in the background may have.
    Process,
    /// The time is over.
    Time,
    /// It uses more memory than it may.
    Memory,
}

/// Supervises a command that has just been started. None when the engine is gone; everything is killed then, too.
fn supervise(
    link: &Link,
    leader: Pid,
    limits: Limits,
    tree: Tree,
    memory: Option<u64>,
) -> Option<Ended> {
    let mut command = Command { link, leader, limits, tree, memory, handle: handle(leader) };
    let ended = command.run();
    drop(command);
    ended
}

struct Command<'a> {
    link: &'a Link,
    leader: Pid,
    limits: Limits,
    tree: Tree,
    /// What all its processes may use together, in bytes.
    memory: Option<u64>,
    /// Becomes readable when the command ends; not every system has this.
    handle: Option<OwnedFd>,
}

impl Command<'_> {
    fn run(&mut self) -> Option<Ended> {
        let mut phase = Phase::Running;
        let mut until = self.limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match (self.wait(phase, until), phase) {
                (News::Engine, _) => match self.link.receive::<Ask>() {
                    Ok(Some(received)) if received.message == Ask::Stop => match phase {
                        Phase::Running => (phase, until) = self.ask_to_end(Stopped::Cancelled),
                        Phase::Ending(_) => {}
                        Phase::Draining(status) => return Some(self.finish(None, Some(status))),
                    },
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        self.tree.fell(self.leader, PATIENCE);
                        return None;
                    }
                },
                (News::Process, Phase::Running) => {
                    if let Some(status) = self.collect() {
                        if !self.tree.has_more(self.leader) {
                            return Some(Ended { stopped: None, status: Some(status), strays: 0 });
                        }
                        phase = Phase::Draining(status);
                        until = Some(Instant::now() + self.limits.drain);
                    }
                }
                (News::Process, Phase::Ending(stopped)) => {
                    if let Some(status) = self.collect() {
                        return Some(self.finish(Some(stopped), Some(status)));
                    }
                }
                (News::Process, Phase::Draining(status)) => {
                    if !self.tree.has_more(self.leader) {
                        return Some(Ended { stopped: None, status: Some(status), strays: 0 });
                    }
                }
                (News::Memory, _) => {
                    // Whoever is asked to end first may take the rest of it meanwhile.
                    return Some(self.finish(Some(Stopped::TooMuchMemory), None));
                }
                (News::Time, Phase::Running) => {
                    (phase, until) = self.ask_to_end(Stopped::TimedOut);
                }
                (News::Time, Phase::Ending(stopped)) => {
                    return Some(self.finish(Some(stopped), None));
                }
                (News::Time, Phase::Draining(status)) => {
                    return Some(self.finish(None, Some(status)));
                }
            }
        }
    }

    fn ask_to_end(&self, stopped: Stopped) -> (Phase, Option<Instant>) {
        Tree::signal(self.leader, Signal::TERM);
        // A stopped process would not hear it.
        Tree::signal(self.leader, Signal::CONT);
        (Phase::Ending(stopped), Some(Instant::now() + self.limits.grace))
    }

    fn finish(&self, stopped: Option<Stopped>, status: Option<Status>) -> Ended {
        let Felled { strays, status: late, stuck } = self.tree.fell(self.leader, PATIENCE);
        let status = if stuck { None } else { status.or(late) };
        Ended { stopped, status, strays }
    }

    /// Collects the command, if it has ended.
    fn collect(&mut self) -> Option<Status> {
        let status = match waitpid(Some(self.leader), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => Status::of(status)?,
            Ok(None) | Err(Errno::INTR) => return None,
            // Somebody else has collected it; this does not happen.
            Err(_) => Status::Exited(-1),
        };
        self.handle = None;
        Some(status)
    }

    fn uses_too_much(&self) -> bool {
        self.memory.is_some_and(|most| self.tree.memory() > most)
    }

    fn wait(&self, phase: Phase, until: Option<Instant>) -> News {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_over = left == Some(Duration::ZERO);
            // Nothing tells when the last process in the background ends.
            let is_blind = self.handle.is_none() || matches!(phase, Phase::Draining(_));
            let most = if is_blind { Some(left.unwrap_or(SLICE).min(SLICE)) } else { left };
            let is_watched = self.memory.is_some() && phase == Phase::Running;
            let most = if is_watched { Some(most.unwrap_or(WATCH).min(WATCH)) } else { most };
            let mut fds = vec![PollFd::new(self.link, PollFlags::IN)];
            if let (Some(handle), false) = (&self.handle, is_blind) {
                fds.push(PollFd::new(handle, PollFlags::IN));
            }
            match poll(&mut fds, most.and_then(timespec).as_ref()) {
                Ok(0) if is_over => return News::Time,
                Ok(0) if is_watched && self.uses_too_much() => return News::Memory,
                Ok(0) if is_blind => return News::Process,
                Ok(_) if !fds[0].revents().is_empty() => return News::Engine,
                Ok(_) if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) => {
                    return News::Process;
                }
                Ok(_) | Err(Errno::INTR) => {}
                // Without memory for a poll there is still time that passes.
                Err(_) if is_over => return News::Time,
                Err(_) => std::thread::sleep(SLICE),
            }
        }
    }
}

/// Returns a length of time as the system wants it; none, which is for ever, where it is too long.
pub(super) fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

#[cfg(target_os = "linux")]
fn handle(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn handle(_: Pid) -> Option<OwnedFd> {
    None
}

/// Answers one request after the other, until the engine is gone.
pub(super) fn serve(
    link: &Link,
    tree: Tree,
    absent: &Absent,
    protected: &Protected,
    memory: Option<u64>,
    mut spawn: impl FnMut(Start) -> io::Result<Pid>,
) -> io::Result<()> {
    use super::wire::{Received, StartFault, Tell, Words};

    while let Some(Received { message, payload, files }) = link.receive::<Ask>()? {
        // A request to stop that comes too late finds nothing to stop.
        let Ask::Start(limits) = message else { continue };
        let words = Words::decode(&payload);
        let (Some(words), Ok([stdin, stdout, stderr])) = (words, <[OwnedFd; 3]>::try_from(files))
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let cwd = words.cwd.clone();
        let before = protected.taken().ok();
        match spawn(Start { words, stdin, stdout, stderr }) {
            Ok(leader) => {
                let pid = leader.as_raw_nonzero().get();
                link.send(&Tell::Started { pid }, &[], &[])?;
                let ended = supervise(link, leader, limits, tree, memory);
                let aside = absent.set_aside();
                let restored = before.map(Snapshot::put_back).unwrap_or_default();
                let Some(ended) = ended else { return Ok(()) };
                link.send(&Tell::Ended { ended, aside, restored }, &[], &[])?;
            }
            Err(error) => {
                let fault = StartFault {
                    errno: error.raw_os_error(),
                    error: error.to_string(),
                    folder: cwd.is_dir(),
                };
                link.send(&Tell::Failed(fault), &[], &[])?;
            }
        }
    }
    Ok(())
}

/// A command that is to be started.
pub(super) struct Start {
    pub words: super::wire::Words,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Start {
    /// Starts the command as the leader of a process group, in the environment of this process.
    pub(super) fn spawn(self) -> io::Result<Pid> {
        self.start(|_| {})
    }

    /// Starts the command as the leader of a process group, in another environment.
    pub(super) fn spawn_with(self, env: &[(OsString, OsString)]) -> io::Result<Pid> {
        self.start(|command| {
            command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        })
    }

    /// Starts the command as the leader of a process group, in the environment of this process and these variables.
    #[cfg(target_os = "linux")]
    pub(super) fn spawn_adding(self, env: &[(OsString, OsString)]) -> io::Result<Pid> {
        self.start(|command| {
            command.envs(env.iter().map(|(name, value)| (name, value)));
        })
    }

    fn start(self, prepare: impl FnOnce(&mut std::process::Command)) -> io::Result<Pid> {
        use std::os::unix::process::CommandExt;

        let mut argv = self.words.argv.iter();
        let program = argv.next().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = std::process::Command::new(program);
        prepare(&mut command);
        let child = command
            .args(argv)
            .envs(self.words.env)
            .current_dir(&self.words.cwd)
            .stdin(self.stdin)
            .stdout(self.stdout)
            .stderr(self.stderr)
            .process_group(0)
            .spawn()?;
        Ok(Pid::from_child(&child))
    }
}
