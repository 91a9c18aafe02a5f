//! Supervises one command, from its start to the end of everything that it started.
//!
//! This runs beside the engine: in a process of its own, or in a thread. Its only policy are the [`CommandTimeouts`]. A
//! message through the link stops the command, and so does the end of the link, which is the end of the engine.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::process_tree::{KilledTree, ProcessTree};
use super::protocol::{
    CommandReport, CommandTimeouts, ProcessStatus, StopCause, SupervisorCommand, SupervisorLink,
};
use crate::exec::protected::absent_paths::AbsentPaths;
use crate::exec::protected::snapshot::{PathSnapshot, ProtectedPaths};

/// How long killed processes may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often background processes, and processes without a pidfd, are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How often the memory of a command is checked.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The phase of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommandPhase {
    /// It is running.
    Running,
    /// It was terminated.
    Ending(StopCause),
    /// It has ended by itself; background processes may still end.
    Draining(ProcessStatus),
}

/// The next event.
enum CommandEvent {
    /// The engine sent a message, or has ended.
    Message,
    /// The command, or a background process, may have ended.
    Process,
    /// The time limit is reached.
    Deadline,
    /// The memory limit is exceeded.
    Memory,
}

/// Supervises a command that has just been started. Returns `None`, with everything killed, if the engine has ended.
fn supervise(
    link: &SupervisorLink,
    leader: Pid,
    limits: CommandTimeouts,
    tree: ProcessTree,
    memory: Option<u64>,
) -> Option<CommandReport> {
    let memory = memory.map(|most| (most, tree.shared_memory()));
    let mut command =
        SupervisedCommand { link, leader, limits, tree, memory, handle: open_pidfd(leader) };
    let ended = command.run();
    drop(command);
    ended
}

struct SupervisedCommand<'a> {
    link: &'a SupervisorLink,
    leader: Pid,
    limits: CommandTimeouts,
    tree: ProcessTree,
    /// The memory limit of all its processes together, and the shared memory of the machine at the start, in bytes.
    memory: Option<(u64, u64)>,
    /// A pidfd, readable when the command has ended; not every system has one.
    handle: Option<OwnedFd>,
}

impl SupervisedCommand<'_> {
    fn run(&mut self) -> Option<CommandReport> {
        let mut phase = CommandPhase::Running;
        let mut until = self.limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match (self.wait(phase, until), phase) {
                (CommandEvent::Message, _) => match self.link.receive::<SupervisorCommand>() {
                    Ok(Some(received)) if received.message == SupervisorCommand::Stop => {
                        match phase {
                            CommandPhase::Running => {
                                (phase, until) = self.terminate(StopCause::Cancelled);
                            }
                            CommandPhase::Ending(_) => {}
                            CommandPhase::Draining(status) => {
                                return Some(self.finish(None, Some(status)));
                            }
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        self.tree.kill_all(self.leader, KILL_TIMEOUT);
                        return None;
                    }
                },
                (CommandEvent::Process, CommandPhase::Running) => {
                    if let Some(status) = self.collect() {
                        if !self.tree.has_remaining(self.leader) {
                            return Some(CommandReport {
                                stopped: None,
                                status: Some(status),
                                strays: 0,
                            });
                        }
                        phase = CommandPhase::Draining(status);
                        until = Some(Instant::now() + self.limits.drain);
                    }
                }
                (CommandEvent::Process, CommandPhase::Ending(stopped)) => {
                    if let Some(status) = self.collect() {
                        return Some(self.finish(Some(stopped), Some(status)));
                    }
                }
                (CommandEvent::Process, CommandPhase::Draining(status)) => {
                    if !self.tree.has_remaining(self.leader) {
                        return Some(CommandReport {
                            stopped: None,
                            status: Some(status),
                            strays: 0,
                        });
                    }
                }
                (CommandEvent::Memory, _) => {
                    // No termination first: it could use up the remaining memory meanwhile.
                    return Some(self.finish(Some(StopCause::TooMuchMemory), None));
                }
                (CommandEvent::Deadline, CommandPhase::Running) => {
                    (phase, until) = self.terminate(StopCause::TimedOut);
                }
                (CommandEvent::Deadline, CommandPhase::Ending(stopped)) => {
                    return Some(self.finish(Some(stopped), None));
                }
                (CommandEvent::Deadline, CommandPhase::Draining(status)) => {
                    return Some(self.finish(None, Some(status)));
                }
            }
        }
    }

    fn terminate(&self, stopped: StopCause) -> (CommandPhase, Option<Instant>) {
        ProcessTree::signal(self.leader, Signal::TERM);
        // A stopped process does not handle signals.
        ProcessTree::signal(self.leader, Signal::CONT);
        (CommandPhase::Ending(stopped), Some(Instant::now() + self.limits.kill))
    }

    fn finish(&self, stopped: Option<StopCause>, status: Option<ProcessStatus>) -> CommandReport {
        let KilledTree { strays, status: late, is_stuck: stuck } =
            self.tree.kill_all(self.leader, KILL_TIMEOUT);
        let status = if stuck { None } else { status.or(late) };
        CommandReport { stopped, status, strays }
    }

    /// Collects the status of the command, if it has ended.
    fn collect(&mut self) -> Option<ProcessStatus> {
        let status = match waitpid(Some(self.leader), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => ProcessStatus::from_wait_status(status)?,
            Ok(None) | Err(Errno::INTR) => return None,
            // Not reached: no other code collects it.
            Err(_) => ProcessStatus::Exited(-1),
        };
        self.handle = None;
        Some(status)
    }

    fn uses_too_much(&self) -> bool {
        self.memory.is_some_and(|(most, before)| self.tree.exceeds_memory(most, before))
    }

    fn wait(&self, phase: CommandPhase, until: Option<Instant>) -> CommandEvent {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_over = left == Some(Duration::ZERO);
            // No event marks the end of the last background process.
            let is_blind = self.handle.is_none() || matches!(phase, CommandPhase::Draining(_));
            let most = if is_blind {
                Some(left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL))
            } else {
                left
            };
            let is_watched = self.memory.is_some() && phase == CommandPhase::Running;
            let most = if is_watched {
                Some(most.unwrap_or(MEMORY_CHECK_INTERVAL).min(MEMORY_CHECK_INTERVAL))
            } else {
                most
            };
            let mut fds = vec![PollFd::new(self.link, PollFlags::IN)];
            if let (Some(handle), false) = (&self.handle, is_blind) {
                fds.push(PollFd::new(handle, PollFlags::IN));
            }
            match poll(&mut fds, most.and_then(timespec).as_ref()) {
                Ok(0) if is_over => return CommandEvent::Deadline,
                Ok(0) if is_watched && self.uses_too_much() => return CommandEvent::Memory,
                Ok(0) if is_blind => return CommandEvent::Process,
                Ok(_) if !fds[0].revents().is_empty() => return CommandEvent::Message,
                Ok(_) if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) => {
                    return CommandEvent::Process;
                }
                Ok(_) | Err(Errno::INTR) => {}
                // Polling needs memory; time passes without it.
                Err(_) if is_over => return CommandEvent::Deadline,
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Converts a duration for the system; `None`, no limit, if it is too long.
pub(in crate::exec) fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

#[cfg(target_os = "linux")]
fn open_pidfd(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_pidfd(_: Pid) -> Option<OwnedFd> {
    None
}

/// Serves requests until the engine has ended.
pub(in crate::exec) fn serve(
    link: &SupervisorLink,
    tree: ProcessTree,
    absent: &AbsentPaths,
    protected: &ProtectedPaths,
    memory: Option<u64>,
    mut spawn: impl FnMut(CommandStart) -> io::Result<Pid>,
) -> io::Result<()> {
    use super::protocol::{CommandWords, ReceivedMessage, StartFailure, SupervisorReport};

    while let Some(ReceivedMessage { message, payload, files }) =
        link.receive::<SupervisorCommand>()?
    {
        // A request to stop may arrive after the end.
        let SupervisorCommand::Start(limits) = message else { continue };
        let words = CommandWords::decode(&payload);
        let (Some(words), Ok([stdin, stdout, stderr])) = (words, <[OwnedFd; 3]>::try_from(files))
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let cwd = words.cwd.clone();
        let before = protected.snapshot().ok();
        match spawn(CommandStart { words, stdin, stdout, stderr }) {
            Ok(leader) => {
                let pid = leader.as_raw_nonzero().get();
                link.send(&SupervisorReport::Started { pid }, &[], &[])?;
                let ended = supervise(link, leader, limits, tree, memory);
                let aside = absent.rename_created();
                let restored = before.map(PathSnapshot::restore_changed).unwrap_or_default();
                let Some(ended) = ended else { return Ok(()) };
                link.send(&SupervisorReport::Ended { ended, aside, restored }, &[], &[])?;
            }
            Err(error) => {
                let fault = StartFailure {
                    errno: error.raw_os_error(),
                    error: error.to_string(),
                    folder_exists: cwd.is_dir(),
                };
                link.send(&SupervisorReport::Failed(fault), &[], &[])?;
            }
        }
    }
    Ok(())
}

/// A command to start.
pub(in crate::exec) struct CommandStart {
    pub words: super::protocol::CommandWords,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl CommandStart {
    /// Starts the command as the leader of a process group, with the environment of this process.
    pub(in crate::exec) fn spawn(self) -> io::Result<Pid> {
        self.start(|_| {})
    }

    /// Starts the command as the leader of a process group, with another environment.
    pub(in crate::exec) fn spawn_with(self, env: &[(OsString, OsString)]) -> io::Result<Pid> {
        self.start(|command| {
            command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        })
    }

    /// Starts the command as the leader of a process group, with these variables added to the environment of this
    /// process.
    #[cfg(target_os = "linux")]
    pub(in crate::exec) fn spawn_adding(self, env: &[(OsString, OsString)]) -> io::Result<Pid> {
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
