//! Commands of the user around runs: setups, checks, measurements. They are confined like the commands of a model.

use std::time::{Duration, Instant};

use crate::app::{RunSetup, collect_secrets};
use crate::exec::CommandSpec;
use crate::workflow::engine::CheckReport;

/// Timeout of a command if there is no other time limit.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A command that has ended.
pub(super) struct FinishedCommand {
    /// The command, with keys masked.
    pub(super) line: String,
    /// The standard output, or the error output of a failed command; `None` if the command was interrupted.
    pub(super) output: Option<Result<String, String>>,
    pub(super) seconds: f64,
}

impl FinishedCommand {
    /// Returns the command as a check; `None` if the command was interrupted.
    pub(super) fn into_check(self) -> Option<CheckReport> {
        let (passed, message) = match self.output? {
            Ok(_) => (true, String::new()),
            Err(why) => (false, why),
        };
        Some(CheckReport { name: self.line, passed, seconds: self.seconds, message })
    }
}

/// Runs a command in the workspace of a run, with keys masked in its output. Of a long output, `kept_bytes` bytes of
/// the beginning and of the end are kept.
pub(super) fn run_check(
    setup: &RunSetup,
    line: &str,
    timeout: Option<Duration>,
    kept_bytes: usize,
) -> FinishedCommand {
    let began = Instant::now();
    let output = run_command(setup, line, timeout, kept_bytes);
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    let secrets = collect_secrets(&setup.config, &setup.env);
    FinishedCommand { line: secrets.mask_all(line), output, seconds }
}

fn run_command(
    setup: &RunSetup,
    line: &str,
    timeout: Option<Duration>,
    kept_bytes: usize,
) -> Option<Result<String, String>> {
    let command = CommandSpec {
        timeout: Some(timeout.unwrap_or(COMMAND_TIMEOUT)),
        kept_bytes,
        ..CommandSpec::shell(line, &setup.config.workspace)
    };
    let interrupts = setup.interrupts.clone().unwrap_or_default();
    let outcome = match setup.sandbox.checks.run(&command, interrupts.token()) {
        Ok(outcome) => outcome,
        Err(error) => return Some(Err(error.to_string())),
    };
    let secrets = collect_secrets(&setup.config, &setup.env);
    let mask = |text: String| secrets.mask_all(&secrets.mask_cut(text));
    match outcome.failure() {
        None => Some(Ok(mask(outcome.stdout.text()))),
        Some(_) if interrupts.signal().is_some() => None,
        Some(why) => Some(Err(mask(why.trim().to_owned()))),
    }
}
