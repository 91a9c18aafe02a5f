//! Commands that run in the background, beside further calls.
//!
//! Each command runs on its own thread, exactly like one in the foreground: supervised, confined, and cleaned up after.
//! [`BackgroundCommands`], shared by a set of tools, end with the run.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::line_log::LineLog;
use crate::port::{CancellationToken, CommandLife, lock};
use crate::types::{CallId, ToolStatus, first_line, pluralize};

/// The commands that calls have started in the background. Clones share the list. All commands are stopped when the
/// last clone is dropped.
#[derive(Clone, Default)]
pub(super) struct BackgroundCommands(Arc<CommandList>);

#[derive(Default)]
struct CommandList(Mutex<ListState>);

#[derive(Default)]
struct ListState {
    commands: Vec<Arc<BackgroundCommand>>,
    /// Whether the run is over.
    is_closed: bool,
}

/// A command in the background.
pub(super) struct BackgroundCommand {
    /// The call that started the command.
    pub(super) call: CallId,
    /// The command line.
    pub(super) line: String,
    /// Whether the run has to wait for the end of the command.
    is_needed: bool,
    started: Instant,
    /// Stops the command.
    cancel: CancellationToken,
    input: Mutex<InputPipe>,
    state: Mutex<CommandState>,
    changed: Condvar,
}

/// The standard input of a command.
#[derive(Default)]
struct InputPipe {
    /// `None` once closed.
    pipe: Option<io::PipeWriter>,
    /// All text written so far.
    written: String,
}

/// The output of a command, and its end.
pub(super) struct CommandState {
    /// Standard output and error output.
    pub(super) log: LineLog,
    /// The end; `None` while the command is running.
    pub(super) ending: Option<CommandEnding>,
    /// Whether the model was shown the end.
    is_end_shown: bool,
}

/// The commands whose end the run has to wait for, one description each.
#[derive(Debug, Default)]
pub struct NeededWork {
    /// Commands that are still running.
    pub running: Vec<String>,
    /// Commands that have ended without a call that showed the end.
    pub ended: Vec<String>,
}

/// The end of a command.
#[derive(Clone, Debug)]
pub(super) struct CommandEnding {
    /// The status of a call that waits for the command.
    pub(super) status: ToolStatus,
    /// A description of the end, for the model.
    pub(super) text: String,
}

/// The maximum number of commands that run in the background at the same time.
const MAX_RUNNING: usize = 8;

/// The maximum number of ended commands whose output is kept.
const MAX_ENDED: usize = 8;

/// The maximum number of bytes written to the input of a command in total.
pub(super) const MAX_WRITTEN: usize = 64 << 10;

/// The number of last lines of the output that are reported with the end of a command.
const REPORTED_LINES: u64 = 5;

/// The maximum size of each of these lines, in bytes.
const MAX_REPORTED_LINE: usize = 500;

/// The time limit for a stopped command to end; it is killed earlier.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl BackgroundCommands {
    /// Starts a command on a thread, with a log of its output. The thread's function gets the command and the token
    /// that stops it, and returns the end of the command.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model when too many commands are running.
    pub(super) fn start(
        &self,
        call: &CallId,
        (line, is_needed): (&str, bool),
        life: Option<Arc<CommandLife>>,
        input: io::PipeWriter,
        log: LineLog,
        run: impl FnOnce(&BackgroundCommand, &CancellationToken) -> CommandEnding + Send + 'static,
    ) -> Result<Arc<BackgroundCommand>, String> {
        let command = Arc::new(BackgroundCommand {
            call: call.clone(),
            line: line.to_owned(),
            is_needed,
            started: Instant::now(),
            cancel: life.as_ref().map(|life| life.cancel.clone()).unwrap_or_default(),
            input: Mutex::new(InputPipe { pipe: Some(input), written: String::new() }),
            state: Mutex::new(CommandState { log, ending: None, is_end_shown: false }),
            changed: Condvar::new(),
        });
        let mut list = lock(&self.0.0);
        if list.is_closed {
            return Err("the run is over".to_owned());
        }
        let running = list.commands.iter().filter(|command| command.is_running());
        if running.clone().any(|command| command.call == *call) {
            return Err(format!("a command with call_id '{call}' runs already"));
        }
        if running.count() >= MAX_RUNNING {
            return Err(format!(
                "{MAX_RUNNING} commands run in the background already; end one with stop_command"
            ));
        }
        let body = Arc::clone(&command);
        let thread = thread::Builder::new().name("background".to_owned());
        let started = thread.spawn(move || {
            let mut guard = EndGuard { command: &body, life, ending: None };
            guard.ending = Some(run(&body, &body.cancel));
        });
        started.map_err(|error| format!("no thread could be started: {error}"))?;
        list.commands.retain(|known| known.call != command.call);
        list.commands.push(Arc::clone(&command));
        let ended = list.commands.iter().filter(|command| command.can_be_dropped()).count();
        let mut surplus = ended.saturating_sub(MAX_ENDED);
        list.commands.retain(|command| {
            let is_dropped = surplus > 0 && command.can_be_dropped();
            surplus -= usize::from(is_dropped);
            !is_dropped
        });
        Ok(command)
    }

    /// Returns the command that was started by a call.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model that names the existing commands.
    pub(super) fn find(&self, call: &str) -> Result<Arc<BackgroundCommand>, String> {
        let list = lock(&self.0.0);
        if let Some(command) = list.commands.iter().find(|command| command.call.as_str() == call) {
            return Ok(Arc::clone(command));
        }
        let known = list.commands.iter().filter(|command| command.is_running());
        let known: Vec<String> =
            known.map(|command| format!("'{}' ({})", command.call, command.short_line())).collect();
        let running = match known.is_empty() {
            true => "No command runs in the background.".to_owned(),
            false => format!("In the background run {}.", known.join(", ")),
        };
        Err(format!(
            "There is no command with call_id '{call}'. {running} Those of an earlier part of the session ended with it."
        ))
    }

    /// Waits for the commands that were declared as needed, at most for the given time, and until the waiting call is
    /// cancelled. An end that no call has shown is returned once.
    pub(super) fn wait_for_needed(&self, most: Duration, cancel: &CancellationToken) -> NeededWork {
        let until = Instant::now() + most;
        let list = lock(&self.0.0);
        let needed = list.commands.iter().filter(|command| command.is_needed);
        let needed: Vec<Arc<BackgroundCommand>> = needed.cloned().collect();
        drop(list);
        for command in &needed {
            command.wait_until(Some(until), Some(cancel), |state| state.ending.is_some());
        }
        let mut work = NeededWork::default();
        if cancel.is_cancelled() {
            // The result of a cancelled call is not used.
            return work;
        }
        for command in &needed {
            let name = format!("{} (call_id \"{}\")", command.short_line(), command.call);
            let mut state = command.state();
            let is_shown = state.is_end_shown;
            match state.show_end() {
                None => work.running.push(name),
                Some(_) if is_shown => {}
                Some(ending) => {
                    let lines = state.log.last_lines(REPORTED_LINES, MAX_REPORTED_LINE);
                    work.ended
                        .push(format!("{name}: {}\n{lines}", ending.text).trim_end().to_owned());
                }
            }
        }
        work
    }

    /// Stops all commands, prevents further ones, and waits for their end, at most for the given time.
    pub(super) fn close(&self, most: Duration) {
        let until = Instant::now() + most;
        let commands = self.0.close();
        for command in &commands {
            command.wait_until(Some(until), None, |state| state.ending.is_some());
        }
        let left = commands.iter().filter(|command| command.is_running()).count();
        if left > 0 {
            log::debug!(
                "{} still to be ended by their supervisors",
                pluralize(left, "command is", "commands are")
            );
        }
    }
}

impl CommandList {
    /// Stops all commands without waiting for their end, and returns them.
    fn close(&self) -> Vec<Arc<BackgroundCommand>> {
        let mut list = lock(&self.0);
        list.is_closed = true;
        let commands = std::mem::take(&mut list.commands);
        drop(list);
        commands.iter().for_each(|command| command.cancel.cancel());
        commands
    }
}

impl Drop for CommandList {
    fn drop(&mut self) {
        self.close();
    }
}

impl CommandState {
    /// Returns the end of the command, if it has ended, and records that the model was shown it.
    pub(super) fn show_end(&mut self) -> Option<CommandEnding> {
        self.is_end_shown |= self.ending.is_some();
        self.ending.clone()
    }
}

impl BackgroundCommand {
    /// Returns whether the command has ended and the run can end without reporting that.
    fn can_be_dropped(&self) -> bool {
        let state = self.state();
        state.ending.is_some() && (state.is_end_shown || !self.is_needed)
    }

    pub(super) fn is_running(&self) -> bool {
        lock(&self.state).ending.is_none()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CommandState> {
        lock(&self.state)
    }

    /// Returns the time since the start.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the beginning of the command line.
    pub(super) fn short_line(&self) -> String {
        format!("`{}`", first_line(&self.line, 80))
    }

    /// Adds output: standard output is 0, error output is 1.
    pub(super) fn add_output(&self, output: usize, bytes: &[u8]) {
        lock(&self.state).log.add(output, bytes);
        self.changed.notify_all();
    }

    /// Waits until the state fulfills a condition, at most until the given time. Returns whether it does. Returns early
    /// when the waiting call is cancelled.
    pub(super) fn wait_until(
        &self,
        until: Option<Instant>,
        cancel: Option<&CancellationToken>,
        mut is_reached: impl FnMut(&mut CommandState) -> bool,
    ) -> bool {
        /// The interval at which cancellation is checked.
        const INTERVAL: Duration = Duration::from_millis(50);

        let mut state = self.state();
        loop {
            if is_reached(&mut state) {
                return true;
            }
            let left =
                until.map_or(INTERVAL, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || cancel.is_some_and(CancellationToken::is_cancelled) {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left.min(INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Terminates the command, and waits until everything that it started has ended.
    pub(super) fn stop(&self) {
        self.cancel.cancel();
        self.wait_until(Some(Instant::now() + STOP_TIMEOUT), None, |state| state.ending.is_some());
    }

    /// Returns all text written to the input.
    pub(super) fn written(&self) -> String {
        lock(&self.input).written.clone()
    }

    /// Writes to the input, at most for the given time. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// Fails when the input is closed.
    pub(super) fn write(
        &self,
        text: &str,
        most: Duration,
        cancel: &CancellationToken,
    ) -> io::Result<usize> {
        let mut input = lock(&self.input);
        let InputPipe { pipe: Some(pipe), written } = &mut *input else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        written.push_str(text);
        let (until, bytes) = (Instant::now() + most, text.as_bytes());
        let mut done = 0;
        while done < bytes.len() {
            match pipe.write(&bytes[done..]) {
                Ok(length) => done += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= until || cancel.is_cancelled() {
                        break;
                    }
                    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                    let _ = poll(&mut [PollFd::new(&*pipe, PollFlags::OUT)], Some(&pause));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Closes the input.
    pub(super) fn close_input(&self) {
        lock(&self.input).pipe = None;
    }
}

/// Records the end of a command, even if its thread panics.
struct EndGuard<'a> {
    command: &'a BackgroundCommand,
    life: Option<Arc<CommandLife>>,
    ending: Option<CommandEnding>,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let ending = self.ending.take().unwrap_or_else(|| CommandEnding {
            status: ToolStatus::InDoubt,
            text: "its thread broke down".to_owned(),
        });
        self.command.close_input();
        // The run is notified first, so that no call sees the end of a command that the run still waits for.
        self.life = None;
        let mut state = self.command.state();
        state.log.finish();
        state.ending = Some(ending);
        drop(state);
        self.command.changed.notify_all();
    }
}
