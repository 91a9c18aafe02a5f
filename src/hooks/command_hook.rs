//! Hooks that are commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::hook::{Hook, HookError};
use super::hook_input::{HookInput, HookSession};
use super::hook_output::HookOutput;
use crate::exec::{CommandEnd, CommandInput, CommandSpec, Supervisor};
use crate::port::{CancellationToken, EffectContext};

/// Runs commands for hooks, supervised: nothing of a command survives its time limit.
pub trait HookShell: Send + Sync {
    /// Runs a command and waits for it.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started, times out, is ended by a signal or is cancelled.
    fn run(&self, line: &HookCommand, cancel: &CancellationToken)
    -> Result<ShellOutput, HookError>;
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    /// The command line for a shell.
    pub command: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// Variables added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input.
    pub stdin: Arc<[u8]>,
    /// Its time limit.
    pub timeout: Duration,
}

/// The result of a command that exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellOutput {
    /// Its exit code.
    pub code: i32,
    /// Its standard output; `None` if it is too long for an answer.
    pub stdout: Option<Vec<u8>>,
    /// Its standard error, as text.
    pub stderr: String,
}

/// The longest output of a hook, in bytes.
pub(super) const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The exit code for blocking.
pub(super) const BLOCK_EXIT_CODE: i32 = 2;

/// A hook that is a command.
///
/// It reads the [`HookInput`] as JSON. With exit code 0 its output is parsed as a [`HookOutput`]; 2 blocks, with its
/// standard error as the reason; any other code is a failure.
#[derive(Clone)]
pub struct CommandHook {
    pub(super) command: String,
    pub(super) timeout: Duration,
    pub(super) session: Arc<HookSession>,
    pub(super) shell: Arc<dyn HookShell>,
}

impl CommandHook {
    /// Returns a hook that runs this command.
    pub fn new(
        command: impl Into<String>,
        timeout: Duration,
        session: Arc<HookSession>,
        shell: Arc<dyn HookShell>,
    ) -> Self {
        Self { command: command.into(), timeout, session, shell }
    }

    /// Returns the command for an input.
    pub(super) fn command_for(&self, command: String, occasion: &HookInput) -> HookCommand {
        let session = &self.session;
        let env = [
            ("ARCHITECT_HOOK", occasion.point().as_str().into()),
            // Processes started by this command know their depth.
            ("ARCHITECT_HOOK_DEPTH", (session.depth + 1).to_string().into()),
            ("ARCHITECT_SESSION_ID", (*session.id).into()),
            ("ARCHITECT_WORKSPACE", session.workspace.clone().into_os_string()),
        ];
        HookCommand {
            command,
            cwd: session.workspace.clone(),
            env: env.map(|(name, value)| (name.into(), value)).into(),
            stdin: occasion.to_json(session).to_string().into_bytes().into(),
            timeout: self.timeout,
        }
    }
}

impl Hook for CommandHook {
    fn run(&self, occasion: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError> {
        let line = self.command_for(self.command.clone(), occasion);
        let ShellOutput { code, stdout, stderr } = self.shell.run(&line, &scope.cancel)?;
        match code {
            0 => {
                let too_much = || HookError::Output("its output is too long".to_owned());
                let stdout = String::from_utf8(stdout.ok_or_else(too_much)?)
                    .map_err(|_| HookError::Output("its output is not UTF-8".to_owned()))?;
                HookOutput::parse(&stdout)
            }
            BLOCK_EXIT_CODE => Ok(HookOutput::Block { reason: stderr }),
            126 | 127 => Err(HookError::Start(stderr)),
            code => Err(HookError::Exit { code, stderr }),
        }
    }

    fn timeout(&self) -> Duration {
        // The command is terminated before it is killed.
        self.timeout + Duration::from_secs(5)
    }
}

/// Commands of hooks are confined like other commands of this supervisor, and nothing of them survives their time
/// limit.
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
            // For the head, and again for the tail.
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
