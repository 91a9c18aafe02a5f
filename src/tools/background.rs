//! Commands that run in the background while other calls are made.
//!
//! Each runs on a thread of its own, exactly as one that is waited for: supervised, confined, and cleaned up after. The
//! [`BackgroundCommands`] of a set of tools end with the run.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::line_log::LineLog;
use crate::port::{CancellationToken, CommandLife, lock};
use crate::types::{CallId, ToolStatus, first_line, pluralize};

/// The commands that calls have started in the background. Clones are the same. They are stopped when the last one is
/// dropped.
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

/// A command that was started in the background.
pub(super) struct BackgroundCommand {
    /// The call that started it.
    pub(super) call: CallId,
    /// The command line.
    pub(super) line: String,
    /// Whether the run may not end without it.
    is_needed: bool,
    started: Instant,
    /// Stops it.
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
    /// Everything that was written.
    written: String,
}

/// The output of a command, and how it ended.
pub(super) struct CommandState {
    /// Its output and error output.
    pub(super) log: LineLog,
    /// How it ended.
    pub(super) ending: Option<CommandEnding>,
    /// Whether the model was shown how it ended.
    is_end_shown: bool,
}

/// The commands that the run may not end without, one description each.
#[derive(Debug, Default)]
pub struct NeededWork {
    /// What still runs.
    pub running: Vec<String>,
    /// What has ended without a call that has shown it.
    pub ended: Vec<String>,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub(super) struct CommandEnding {
    /// The status of a call that waits for it.
    pub(super) status: ToolStatus,
    /// A description.
    pub(super) text: String,
}

/// The most commands that run in the background at the same time.
const MAX_RUNNING: usize = 8;

/// The most commands whose output is kept after their end.
const MAX_ENDED: usize = 8;

/// The most bytes that are written to the input of a command in total.
pub(super) const MAX_WRITTEN: usize = 64 << 10;

/// How many of the last lines of a command are reported with its end.
const REPORTED_LINES: u64 = 5;

/// How many bytes of each of these lines are reported.
const MAX_REPORTED_LINE: usize = 500;

/// How long a command that is stopped may take to end: it is killed earlier.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

impl BackgroundCommands {
    /// Starts a command with a log of its output on a thread, which gets the command and the token that stops it, and
    /// returns how it ended.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model when too many run.
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

    /// Returns the command that a call has started.
    ///
    /// # Errors
    ///
    /// Fails with a message for the model that names those that there are.
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

    /// Waits for the commands that were declared as needed, at most this long, and until the call that waits is cancelled.
    /// Each end that no call has shown is returned once.
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
            // No one sees what is returned.
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

    /// Stops all commands, starts no more, and waits at most this long for their end.
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
    /// Returns how the command ended, for the model, if it has ended.
    pub(super) fn show_end(&mut self) -> Option<CommandEnding> {
        self.is_end_shown |= self.ending.is_some();
        self.ending.clone()
    }
}

impl BackgroundCommand {
    /// Returns whether it has ended, and the run can end without what its end was.
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

    /// Returns how long ago it was started.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the beginning of its command line.
    pub(super) fn short_line(&self) -> String {
        format!("`{}`", first_line(&self.line, 80))
    }

    /// Adds output: standard output is 0, error output is 1.
    pub(super) fn add_output(&self, output: usize, bytes: &[u8]) {
        lock(&self.state).log.add(output, bytes);
        self.changed.notify_all();
    }

    /// Waits until the state fulfills a condition, at most until a moment. Returns whether it does. Ends early when the
    /// call that waits is cancelled.
    pub(super) fn wait_until(
        &self,
        until: Option<Instant>,
        cancel: Option<&CancellationToken>,
        mut is_reached: impl FnMut(&mut CommandState) -> bool,
    ) -> bool {
        /// How often a cancellation is looked for.
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

    /// Terminates it, and waits until it has ended with everything that it started.
    pub(super) fn stop(&self) {
        self.cancel.cancel();
        self.wait_until(Some(Instant::now() + STOP_TIMEOUT), None, |state| state.ending.is_some());
    }

    /// Returns everything that was written to its input.
    pub(super) fn written(&self) -> String {
        lock(&self.input).written.clone()
    }

    /// Writes to its input, at most for this long. Returns how many bytes it was given.
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

    /// Closes its input.
    pub(super) fn close_input(&self) {
        lock(&self.input).pipe = None;
    }
}

/// Records how a command ended, also if its thread panics.
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
        // Reported first, so that no call sees the end of a command that the run still waits for.
        self.life = None;
        let mut state = self.command.state();
        state.log.finish();
        state.ending = Some(ending);
        drop(state);
        self.command.changed.notify_all();
    }
}
