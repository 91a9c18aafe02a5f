//! Commands of hooks under the supervisor of commands.

use super::hook::HookError;
use super::shell::{LARGEST, Line, Ran, Shell};
use crate::exec::{Command, End, Input, Supervisor};
use crate::port::Cancel;

/// A hook's command is confined as this supervisor confines commands, and nothing of it survives its time limit.
impl Shell for Supervisor {
    fn run(&self, line: &Line, cancel: &Cancel) -> Result<Ran, HookError> {
        let command = Command {
            env: line.env.clone(),
            stdin: Input::Bytes(line.stdin.clone()),
            timeout: Some(line.timeout),
            // Of the beginning, and as much of the end.
            keep: LARGEST / 2,
            ..Command::shell(&line.command, &line.cwd)
        };
        let outcome = Self::run(self, &command, cancel);
        let outcome = outcome.map_err(|error| HookError::Start(error.to_string()))?;
        match outcome.end {
            End::Exited(code) => {
                Ok(Ran { code, stdout: outcome.stdout.whole(), stderr: outcome.stderr.text() })
            }
            End::Signalled(signal) => Err(HookError::Signal(signal)),
            End::OutOfMemory => Err(HookError::Signal(9)),
            End::TimedOut | End::Stuck => Err(HookError::TimedOut(line.timeout)),
            End::Lost => Err(HookError::Panic("its supervisor is gone".to_owned())),
            End::Cancelled => Err(HookError::Cancelled),
        }
    }
}
