//! A command that stays: its standard files are in the engine's hands, and it runs until somebody ends it.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::command::{Command, End, ExecError};
use super::confine::Level;
use super::supervise::timespec;
use super::supervisor::{Supervisor, pipe};
use super::wire::{Ask, Limits, Tell};
use super::worker::Worker;

/// A command that stays. Dropping it kills the command and everything that it has started.
pub struct Process {
    worker: Worker,
    /// The process of the command, as the worker numbers it.
    leader: Option<Pid>,
    ended: Mutex<Option<End>>,
    supervisor: Supervisor,
    /// The configurations that were lent to it, as they were.
    lent: Vec<Vec<u8>>,
}

/// The engine's ends of a command's standard files.
#[derive(Debug)]
pub struct Pipes {
    /// What is written here, the command reads; closing it is the end of its input.
    pub stdin: PipeWriter,
    /// What the command writes to its standard output. Somebody has to read it.
    pub stdout: PipeReader,
    /// What the command writes to its standard error. Somebody has to read it.
    pub stderr: PipeReader,
}

/// How long what the command left in the background may go on after it.
const DRAIN: Duration = Duration::from_millis(300);

impl Supervisor {
    /// Starts a command that stays; what it says of its input and of what is kept does not count.
    ///
    /// # Errors
    ///
    /// Fails when the command could not be started.
    pub fn open(&self, command: &Command) -> Result<(Process, Pipes), ExecError> {
        let worker = self.take()?;
        let (input, stdin) = pipe()?;
        let (stdout, output) = pipe()?;
        let (stderr, errors) = pipe()?;
        let limits = Limits { timeout: command.timeout, grace: command.grace, drain: DRAIN };
        let words = command.words().encode().map_err(|e| ExecError::Start(e.to_string()))?;
        let lent = self.watch().lend_to(&worker.copies);
        let files = [input.as_fd(), output.as_fd(), errors.as_fd()];
        worker.link.send(&Ask::Start(limits), &words, &files).map_err(|_| ExecError::Lost)?;
        match worker.link.receive::<Tell>().ok().flatten().map(|received| received.message) {
            Some(Tell::Started { pid }) => {
                let (leader, ended) = (Pid::from_raw(pid), Mutex::new(None));
                let process = Process { worker, leader, ended, supervisor: self.clone(), lent };
                Ok((process, Pipes { stdin, stdout, stderr }))
            }
            Some(Tell::Failed(fault)) => {
                self.give_back(worker);
                Err(command.refused(fault))
            }
            Some(_) | None => Err(ExecError::Lost),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let watch = self.supervisor.watch();
        for sentence in watch.take_back(&self.worker.copies, &self.lent) {
            log::warn!("{sentence}");
        }
    }
}

impl Process {
    /// Asks the command to end; what has not ended after its grace is killed.
    pub fn stop(&self) {
        // Whoever does not hear it any more has ended.
        let _ = self.worker.link.send(&Ask::Stop, &[], &[]);
    }

    /// Waits so long for the end of the command, and of everything that it has started.
    pub fn wait(&self, most: Duration) -> Option<End> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + most;
        while ended.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.worker.link, PollFlags::IN)];
            match poll(&mut fds, timespec(left).as_ref()) {
                Ok(0) => break,
                Ok(_) => *ended = self.hear(),
                Err(_) => {}
            }
        }
        *ended
    }

    /// Returns how the command has ended, or that its supervisor has.
    fn hear(&self) -> Option<End> {
        let Ok(Some(received)) = self.worker.link.receive::<Tell>() else {
            // In a namespace everything has ended with it, and the number means nothing out here.
            if let (Some(leader), true) = (self.leader, self.level() != Level::Namespaces) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            return Some(End::Stuck);
        };
        if let Tell::Ended { ended, .. } = received.message { Some(End::of(ended)) } else { None }
    }

    /// Returns how far the command is confined.
    pub fn level(&self) -> Level {
        self.worker.enforced.level
    }
}
