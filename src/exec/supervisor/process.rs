//! A command that stays: its standard files are in the engine's hands, and it runs until somebody ends it.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::protocol::{CommandTimeouts, SupervisorCommand, SupervisorReport};
use super::supervise::timespec;
use super::worker::SupervisorWorker;
use super::{Supervisor, create_pipe};
use crate::exec::command::{CommandEnd, CommandSpec, ExecError};
use crate::exec::confine::SandboxLevel;

/// A command that stays. Dropping it kills the command and everything that it has started.
pub struct ChildCommand {
    worker: SupervisorWorker,
    /// The process of the command, as the worker numbers it.
    leader: Option<Pid>,
    ended: Mutex<Option<CommandEnd>>,
    supervisor: Supervisor,
    /// The configurations that were lent to it, as they were.
    copied: Vec<Vec<u8>>,
}

/// The engine's ends of a command's standard files.
#[derive(Debug)]
pub struct CommandPipes {
    /// What is written here, the command reads; closing it is the end of its input.
    pub stdin: PipeWriter,
    /// What the command writes to its standard output. Somebody has to read it.
    pub stdout: PipeReader,
    /// What the command writes to its standard error. Somebody has to read it.
    pub stderr: PipeReader,
}

/// How long what the command left in the background may go on after it.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

impl Supervisor {
    /// Starts a command that stays; what it says of its input and of what is kept does not count.
    ///
    /// # Errors
    ///
    /// Fails when the command could not be started.
    pub fn open(&self, command: &CommandSpec) -> Result<(ChildCommand, CommandPipes), ExecError> {
        let worker = self.take_worker()?;
        let (input, stdin) = create_pipe()?;
        let (stdout, output) = create_pipe()?;
        let (stderr, errors) = create_pipe()?;
        let limits = CommandTimeouts {
            timeout: command.timeout,
            kill: command.kill_timeout,
            drain: DRAIN_TIMEOUT,
        };
        let words =
            command.command_words().encode().map_err(|e| ExecError::Start(e.to_string()))?;
        let lent = self.repositories().write_copies(&worker.copies);
        let files = [input.as_fd(), output.as_fd(), errors.as_fd()];
        worker
            .link
            .send(&SupervisorCommand::Start(limits), &words, &files)
            .map_err(|_| ExecError::Lost)?;
        match worker
            .link
            .receive::<SupervisorReport>()
            .ok()
            .flatten()
            .map(|received| received.message)
        {
            Some(SupervisorReport::Started { pid }) => {
                let (leader, ended) = (Pid::from_raw(pid), Mutex::new(None));
                let process =
                    ChildCommand { worker, leader, ended, supervisor: self.clone(), copied: lent };
                Ok((process, CommandPipes { stdin, stdout, stderr }))
            }
            Some(SupervisorReport::Failed(fault)) => {
                self.return_worker(worker);
                Err(command.start_error(fault))
            }
            Some(_) | None => Err(ExecError::Lost),
        }
    }
}

impl Drop for ChildCommand {
    fn drop(&mut self) {
        let watch = self.supervisor.repositories();
        for sentence in watch.merge_copies(&self.worker.copies, &self.copied) {
            log::warn!("{sentence}");
        }
    }
}

impl ChildCommand {
    /// Asks the command to end; what has not ended after its grace is killed.
    pub fn stop(&self) {
        // Whoever does not hear it any more has ended.
        let _ = self.worker.link.send(&SupervisorCommand::Stop, &[], &[]);
    }

    /// Waits so long for the end of the command, and of everything that it has started.
    pub fn wait(&self, most: Duration) -> Option<CommandEnd> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + most;
        while ended.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.worker.link, PollFlags::IN)];
            match poll(&mut fds, timespec(left).as_ref()) {
                Ok(0) => break,
                Ok(_) => *ended = self.poll_end(),
                Err(_) => {}
            }
        }
        *ended
    }

    /// Returns how the command has ended, or that its supervisor has.
    fn poll_end(&self) -> Option<CommandEnd> {
        let Ok(Some(received)) = self.worker.link.receive::<SupervisorReport>() else {
            // In a namespace everything has ended with it, and the number means nothing out here.
            if let (Some(leader), true) = (self.leader, self.level() != SandboxLevel::Namespaces) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            return Some(CommandEnd::Lost);
        };
        if let SupervisorReport::Ended { ended, .. } = received.message {
            Some(CommandEnd::from_report(ended))
        } else {
            None
        }
    }

    /// Returns how far the command is confined.
    pub fn level(&self) -> SandboxLevel {
        self.worker.enforced.level
    }
}
