//! A long-lived command, connected to the engine by pipes.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::protocol::{SupervisorCommand, SupervisorReport};
use super::supervise::timespec;
use super::worker::SupervisorWorker;
use super::{Supervisor, create_pipe};
use crate::exec::command::{CommandEnd, CommandSpec, ExecError};
use crate::exec::repository::ConfigCopies;
use crate::port::lock;

/// A long-lived command. Dropping it kills it and everything that it started.
pub struct ChildCommand {
    worker: SupervisorWorker,
    /// The process ID of the command, in the worker's namespace.
    leader: Option<Pid>,
    ended: Mutex<Option<CommandEnd>>,
    supervisor: Supervisor,
    /// The original contents of the configuration files that were copied for it.
    copied: ConfigCopies,
}

/// The engine's ends of a command's standard files.
#[derive(Debug)]
pub struct CommandPipes {
    /// The standard input of the command; dropping it closes the input.
    pub stdin: PipeWriter,
    /// The standard output of the command; must be read.
    pub stdout: PipeReader,
    /// The standard error of the command; must be read.
    pub stderr: PipeReader,
}

impl Supervisor {
    /// Starts a long-lived command; its `stdin` and `kept_bytes` are ignored.
    ///
    /// # Errors
    ///
    /// Fails when the command could not be started.
    pub fn open(&self, command: &CommandSpec) -> Result<(ChildCommand, CommandPipes), ExecError> {
        let worker = self.take_worker()?;
        let (input, stdin) = create_pipe()?;
        let (stdout, output) = create_pipe()?;
        let (stderr, errors) = create_pipe()?;
        let files = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let lent = self.send_start(&worker, command, &files)?;
        match worker.receive_report() {
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
    /// Terminates the command; it is killed after its kill timeout.
    pub fn stop(&self) {
        // An error means that the supervisor has ended.
        let _ = self.worker.link.send(&SupervisorCommand::Stop, &[], &[]);
    }

    /// Kills the command and everything that it started. The supervisor ends, too.
    pub fn kill(&self) {
        self.worker.link.finish();
    }

    /// Waits, at most for the given time, for the end of the command and everything that it started.
    pub fn wait(&self, most: Duration) -> Option<CommandEnd> {
        let mut ended = lock(&self.ended);
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

    /// Returns the end of the command or of its supervisor, if it has ended.
    fn poll_end(&self) -> Option<CommandEnd> {
        match self.worker.receive_report() {
            Some(SupervisorReport::Ended(report)) => Some(report.end),
            Some(_) => None,
            None => {
                self.worker.kill_group(self.leader);
                Some(CommandEnd::Lost)
            }
        }
    }
}
