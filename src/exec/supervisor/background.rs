//! Commands that run in the background: their input stays open, and their output is read while they run.

use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::worker::SupervisorWorker;
use super::{CommandFiles, CommandSink, Supervisor, create_pipe};
use crate::exec::command::{CommandInput, CommandOutcome, CommandSpec, ExecError};
use crate::port::CancellationToken;

/// The shortest time between two checks of the protected paths.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum pause after a check, as a multiple of the time that the check took.
const CHECK_FACTOR: u32 = 20;

/// The maximum number of denied changes of a command; it is stopped after more.
const MAX_DENIED: usize = 20;

impl Supervisor {
    /// Returns both ends of an input for [`run_in_background`](Self::run_in_background).
    ///
    /// # Errors
    ///
    /// Fails when too many files are open.
    pub fn open_input(&self) -> Result<(PipeReader, PipeWriter), ExecError> {
        create_pipe()
    }

    /// Runs a command with this input, as [`run`](Self::run) does, and passes its output on while it runs: 0 and
    /// standard output, or 1 and error output. Files that it creates at protected paths are also looked for while it
    /// runs.
    ///
    /// # Errors
    ///
    /// Fails when the command cannot be started.
    pub fn run_in_background(
        &self,
        command: &CommandSpec,
        cancel: &CancellationToken,
        input: PipeReader,
        output: &dyn Fn(usize, &[u8]),
    ) -> Result<CommandOutcome, ExecError> {
        if command.stdin != CommandInput::Empty {
            return Err(ExecError::TooLong);
        }
        let (stdout, out) = create_pipe()?;
        let (stderr, err) = create_pipe()?;
        let files =
            CommandFiles { stdin: input.into(), outputs: [out, err], readers: [stdout, stderr] };
        let mut sink = BackgroundSink {
            supervisor: self,
            cancel,
            output,
            check_at: Instant::now() + CHECK_INTERVAL,
            renamed: Vec::new(),
            notices: Vec::new(),
        };
        let mut outcome = self.run_with(command, cancel, files, &mut sink)?;
        outcome.renamed.splice(..0, sink.renamed);
        outcome.renamed.sort();
        outcome.renamed.dedup();
        outcome.notices.splice(..0, sink.notices);
        Ok(outcome)
    }
}

/// Passes the output on, and checks protected paths from time to time.
struct BackgroundSink<'a> {
    supervisor: &'a Supervisor,
    cancel: &'a CancellationToken,
    output: &'a dyn Fn(usize, &[u8]),
    check_at: Instant,
    renamed: Vec<PathBuf>,
    notices: Vec<String>,
}

impl CommandSink for BackgroundSink<'_> {
    fn add(&mut self, output: usize, bytes: &[u8]) {
        (self.output)(output, bytes);
    }

    fn remaining(&self) -> Option<Duration> {
        Some(self.check_at.saturating_duration_since(Instant::now()))
    }

    fn do_due(&mut self, worker: &SupervisorWorker) {
        let begun = Instant::now();
        if begun < self.check_at {
            return;
        }
        self.renamed.extend(worker.rename_created());
        self.notices.extend(self.supervisor.repositories().clean_up(&worker.uncovered()));
        if self.renamed.len() + self.notices.len() > MAX_DENIED && !self.cancel.is_cancelled() {
            self.notices.push(
                "it was stopped, since it changed protected files again and again".to_owned(),
            );
            self.cancel.cancel();
        }
        self.check_at = Instant::now() + CHECK_INTERVAL.max(begun.elapsed() * CHECK_FACTOR);
    }
}
