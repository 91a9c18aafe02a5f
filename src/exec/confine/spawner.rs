//! The thread that starts commands.
//!
//! The children of a thread inherit its restrictions. A separate thread is restricted, so that the supervisor itself
//! stays unrestricted and out of reach of commands.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::process::Pid;

use crate::exec::command_env::Variable;
use crate::exec::supervisor::supervise::CommandStart;

/// Starts commands from a restricted thread.
pub(super) struct CommandSpawner {
    start: Sender<CommandStart>,
    started: Receiver<io::Result<Pid>>,
}

impl CommandSpawner {
    /// Starts the thread and restricts it. Commands get these variables in addition to their own.
    pub(super) fn new<T: Send + 'static>(
        env: Vec<Variable>,
        take_on: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let (start, to_start) = channel::<CommandStart>();
        let (report, started) = channel();
        let (report_ready, ready) = channel();
        let body = move || {
            let mut is_awaited = report_ready.send(take_on()).is_ok();
            // The thread must live as long as the process, since some children are tied to it.
            while is_awaited && let Ok(start) = to_start.recv() {
                let pid = start.spawn(|command| command.envs(env.iter().cloned()));
                is_awaited = report.send(pid).is_ok();
            }
        };
        thread::Builder::new().name("spawner".to_owned()).spawn(body)?;
        let reached = ready.recv().map_err(io::Error::other)?;
        Ok((Self { start, started }, reached))
    }

    /// Starts a command.
    pub(super) fn spawn(&self, start: CommandStart) -> io::Result<Pid> {
        self.start.send(start).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.started.recv().map_err(io::Error::other)?
    }
}
