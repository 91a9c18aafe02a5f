//! Supervises a command, from its start to the end of everything that it started.
//!
//! The supervision runs beside the engine, in a separate process or a thread, according to its [`SupervisionRules`]. A
//! command is stopped by a message through the link, and by the end of the link, which means the end of the engine.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use super::process_tree::ProcessTree;
use super::protocol::{
    CommandReport, CommandWords, ReceivedMessage, StartFailure, SupervisorCommand, SupervisorLink,
    SupervisorReport,
};
use crate::exec::command::CommandEnd;
use crate::exec::confine::policy::SandboxPolicy;
use crate::exec::protected::absent_paths::AbsentPaths;
use crate::exec::protected::snapshot::{PathSnapshot, ProtectedPaths, RestoredPaths};

/// The time for which background processes may run after the command has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// The time limit for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which background processes, and processes without a pidfd, are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The interval at which the memory of a command is checked.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The phase of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommandPhase {
    /// The command is running.
    Running,
    /// The command was terminated, with this end.
    Ending(CommandEnd),
    /// The command has ended by itself; background processes may still be running.
    Draining(CommandEnd),
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

/// The rules for all commands of a supervisor.
pub(in crate::exec) struct SupervisionRules {
    tree: ProcessTree,
    absent: AbsentPaths,
    pub protected: ProtectedPaths,
    /// The memory limit of all processes of a command together, in bytes.
    memory: Option<u64>,
}

impl SupervisionRules {
    /// Returns the rules of a policy. The missing protected paths are those that do not exist at the time of the call.
    pub(in crate::exec) fn new(
        policy: &SandboxPolicy,
        tree: ProcessTree,
        protected: ProtectedPaths,
    ) -> Self {
        let memory = policy.limits.memory;
        Self { tree, absent: AbsentPaths::new(policy), protected, memory }
    }
}

struct SupervisedCommand<'a> {
    link: &'a SupervisorLink,
    leader: Pid,
    timeout: Option<Duration>,
    kill_timeout: Duration,
    rules: &'a SupervisionRules,
    /// The shared memory of the machine at the start, in bytes; 0 without a limit.
    shared_before: u64,
    /// The time of the last memory check.
    memory_checked: Cell<Instant>,
    /// A pidfd that becomes readable when the command has ended; `None` if the system does not support it.
    handle: Option<OwnedFd>,
}

impl SupervisedCommand<'_> {
    /// Reports the start. Returns the end of the command, and the number of other processes that were still running and
    /// were killed; `None`, after killing everything, if the engine has ended.
    fn run(&mut self) -> Option<(CommandEnd, u32)> {
        let started = SupervisorReport::Started { pid: self.leader.as_raw_nonzero().get() };
        // The engine may have ended while the command was being started.
        if self.link.send(&started, &[], &[]).is_err() {
            self.rules.tree.kill_all(self.leader, KILL_TIMEOUT);
            return None;
        }
        let mut phase = CommandPhase::Running;
        let mut until = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match (self.wait(phase, until), phase) {
                (CommandEvent::Message, _) => {
                    let Ok(Some(received)) = self.link.receive::<SupervisorCommand>() else {
                        self.rules.tree.kill_all(self.leader, KILL_TIMEOUT);
                        return None;
                    };
                    match (received.message, phase) {
                        (SupervisorCommand::Stop, CommandPhase::Running) => {
                            (phase, until) = self.terminate(CommandEnd::Cancelled);
                        }
                        (SupervisorCommand::Stop, CommandPhase::Draining(end)) => {
                            return Some(self.finish(end));
                        }
                        _ => {}
                    }
                }
                (CommandEvent::Process, CommandPhase::Running) => {
                    if let Some(end) = self.collect() {
                        if !self.rules.tree.has_remaining(self.leader) {
                            return Some((end, 0));
                        }
                        phase = CommandPhase::Draining(end);
                        until = Some(Instant::now() + DRAIN_TIMEOUT);
                    }
                }
                (CommandEvent::Process, CommandPhase::Ending(end)) => {
                    if self.collect().is_some() {
                        return Some(self.finish(end));
                    }
                }
                (CommandEvent::Process, CommandPhase::Draining(end)) => {
                    if !self.rules.tree.has_remaining(self.leader) {
                        return Some((end, 0));
                    }
                }
                // The command is not terminated first: meanwhile it could use up the remaining memory.
                (CommandEvent::Memory, CommandPhase::Running) => {
                    return Some(self.finish(CommandEnd::OutOfMemory));
                }
                (CommandEvent::Deadline, CommandPhase::Running) => {
                    (phase, until) = self.terminate(CommandEnd::TimedOut);
                }
                (
                    CommandEvent::Deadline | CommandEvent::Memory,
                    CommandPhase::Ending(end) | CommandPhase::Draining(end),
                ) => return Some(self.finish(end)),
            }
        }
    }

    fn terminate(&self, end: CommandEnd) -> (CommandPhase, Option<Instant>) {
        ProcessTree::signal(self.leader, Signal::TERM);
        // A stopped process does not handle signals.
        ProcessTree::signal(self.leader, Signal::CONT);
        (CommandPhase::Ending(end), Some(Instant::now() + self.kill_timeout))
    }

    fn finish(&self, end: CommandEnd) -> (CommandEnd, u32) {
        let killed = self.rules.tree.kill_all(self.leader, KILL_TIMEOUT);
        (if killed.is_stuck { CommandEnd::Stuck } else { end }, killed.strays)
    }

    /// Collects the status of the command, if it has ended.
    fn collect(&mut self) -> Option<CommandEnd> {
        let end = match waitpid(Some(self.leader), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => CommandEnd::from_wait_status(status)?,
            Ok(None) | Err(Errno::INTR) => return None,
            // Not reached, since no other code collects the process.
            Err(_) => CommandEnd::Exited(-1),
        };
        self.handle = None;
        Some(end)
    }

    /// Returns whether the memory was checked just now, and exceeds the limit.
    fn uses_too_much(&self) -> bool {
        let Some(most) = self.rules.memory else { return false };
        if self.memory_checked.get().elapsed() < MEMORY_CHECK_INTERVAL {
            return false;
        }
        self.memory_checked.set(Instant::now());
        self.rules.tree.exceeds_memory(most, self.shared_before)
    }

    fn wait(&self, phase: CommandPhase, until: Option<Instant>) -> CommandEvent {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_over = left == Some(Duration::ZERO);
            // The end of the last background process causes no event.
            let is_blind = self.handle.is_none() || matches!(phase, CommandPhase::Draining(_));
            let until_check =
                MEMORY_CHECK_INTERVAL.saturating_sub(self.memory_checked.get().elapsed());
            let intervals =
                [left, is_blind.then_some(POLL_INTERVAL), self.rules.memory.map(|_| until_check)];
            let most = intervals.into_iter().flatten().min();
            let mut fds = vec![PollFd::new(self.link, PollFlags::IN)];
            if let (Some(handle), false) = (&self.handle, is_blind) {
                fds.push(PollFd::new(handle, PollFlags::IN));
            }
            match poll(&mut fds, most.and_then(timespec).as_ref()) {
                Ok(0) if is_over => return CommandEvent::Deadline,
                Ok(0) if self.uses_too_much() => return CommandEvent::Memory,
                Ok(0) if is_blind => return CommandEvent::Process,
                Ok(_) if !fds[0].revents().is_empty() => return CommandEvent::Message,
                Ok(_) if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) => {
                    return CommandEvent::Process;
                }
                Ok(_) | Err(Errno::INTR) => {}
                // Polling needs memory; the time limit applies even without polling.
                Err(_) if is_over => return CommandEvent::Deadline,
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Converts a duration for the system; `None`, which means no limit, if it is too long.
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
    rules: &SupervisionRules,
    mut spawn: impl FnMut(CommandStart) -> io::Result<Pid>,
) -> io::Result<()> {
    while let Some(ReceivedMessage { message, payload, files }) =
        link.receive::<SupervisorCommand>()?
    {
        // A request to stop may arrive after the end of the command.
        let SupervisorCommand::Start { timeout, kill_timeout } = message else { continue };
        let words = CommandWords::decode(&payload);
        let (Some(words), Ok([stdin, stdout, stderr])) = (words, <[OwnedFd; 3]>::try_from(files))
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let cwd = words.cwd.clone();
        let (before, unrecorded) = match rules.protected.snapshot() {
            Ok(before) => (Some(before), None),
            Err(error) => (None, Some(error.to_string())),
        };
        match spawn(CommandStart { words, stdin, stdout, stderr }) {
            Ok(leader) => {
                let handle = open_pidfd(leader);
                let ended = SupervisedCommand {
                    link,
                    leader,
                    timeout,
                    kill_timeout,
                    rules,
                    shared_before: rules.memory.map_or(0, |_| rules.tree.shared_memory()),
                    memory_checked: Cell::new(Instant::now()),
                    handle,
                }
                .run();
                let renamed = rules.absent.rename_created();
                let RestoredPaths { restored, failed: unrestored } =
                    before.map(PathSnapshot::restore_changed).unwrap_or_default();
                let Some((end, strays)) = ended else { return Ok(()) };
                let report =
                    CommandReport { end, strays, renamed, restored, unrestored, unrecorded };
                link.send(&SupervisorReport::Ended(report), &[], &[])?;
            }
            Err(error) => {
                let (errno, folder_exists) = (error.raw_os_error(), cwd.is_dir());
                let failure = StartFailure { errno, error: error.to_string(), folder_exists };
                link.send(&SupervisorReport::Failed(failure), &[], &[])?;
            }
        }
    }
    Ok(())
}

/// A command to start.
pub(in crate::exec) struct CommandStart {
    pub words: CommandWords,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl CommandStart {
    /// Starts the command as the leader of a process group. `prepare` may change the environment inherited from this
    /// process; the command's own variables are added to it.
    pub(in crate::exec) fn spawn(
        self,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> io::Result<Pid> {
        let mut argv = self.words.argv.iter();
        let program = argv.next().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        let child = prepare(&mut command)
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// Fault T5: the engine may be killed while its command is being started.
    #[test]
    fn a_command_whose_engine_ends_at_its_start_is_killed() {
        let (engine, link) = SupervisorLink::pair().unwrap();
        let start =
            SupervisorCommand::Start { timeout: None, kill_timeout: Duration::from_secs(1) };
        let argv = ["sleep", "600"].map(Into::into).to_vec();
        let words = CommandWords { cwd: "/".into(), env: Vec::new(), argv };
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        engine.send(&start, &words.encode().unwrap(), &[null.as_fd(); 3]).unwrap();
        let rules = SupervisionRules::new(
            &SandboxPolicy::default(),
            ProcessTree::Group,
            ProtectedPaths::empty(),
        );
        let (mut engine, mut leader) = (Some(engine), None);
        let served = serve(&link, &rules, |command| {
            leader = Some(command.spawn(|command| command)?);
            drop(engine.take());
            Ok(leader.unwrap())
        });
        assert!(served.is_ok(), "{served:?}");
        assert!(!ProcessTree::Group.has_remaining(leader.unwrap()));
    }
}
