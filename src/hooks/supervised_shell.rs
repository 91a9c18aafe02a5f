//! Commands of hooks under the supervisor of commands.

use super::command_hook::{HookCommand, HookShell, MAX_OUTPUT_BYTES, ShellOutput};
use super::hook::HookError;
use crate::exec::{CommandEnd, CommandInput, CommandSpec, Supervisor};
use crate::port::CancellationToken;

/// A hook's command is confined as this supervisor confines commands, and nothing of it survives its time limit.
impl HookShell for Supervisor {
    fn run(
        &self,
        line: &HookCommand,
        cancel: &CancellationToken,
    ) -> Result<ShellOutput, HookError> {
        let command = CommandSpec {
            env: line.env.clone(),
            stdin: CommandInput::Bytes(line.stdin.clone()),
            timeout: Some(line.timeout),
            // Of the beginning, and as much of the end.
            kept_bytes: MAX_OUTPUT_BYTES / 2,
            ..CommandSpec::shell(&line.command, &line.cwd)
        };
        let outcome = Self::run(self, &command, cancel);
        let outcome = outcome.map_err(|error| HookError::Start(error.to_string()))?;
        match outcome.end {
            CommandEnd::Exited(code) => Ok(ShellOutput {
                code,
                stdout: outcome.stdout.complete(),
                stderr: outcome.stderr.text(),
            }),
            CommandEnd::Signalled(signal) => Err(HookError::Signal(signal)),
            CommandEnd::OutOfMemory => Err(HookError::Signal(9)),
            CommandEnd::TimedOut | CommandEnd::Stuck => Err(HookError::TimedOut(line.timeout)),
            CommandEnd::Lost => Err(HookError::Panic("its supervisor is gone".to_owned())),
            CommandEnd::Cancelled => Err(HookError::Cancelled),
        }
    }
}
