//! Hooks that are commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::hook::{Hook, HookError};
use super::hook_input::{HookInput, HookSession};
use super::hook_output::HookOutput;
use crate::port::{CancellationToken, EffectContext};

/// Runs commands for hooks: supervised, so that nothing of one survives its time limit.
pub trait HookShell: Send + Sync {
    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// Fails when it could not be started, took too long, was ended by a signal or was cancelled.
    fn run(&self, line: &HookCommand, cancel: &CancellationToken)
    -> Result<ShellOutput, HookError>;
}

/// A command that is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCommand {
    /// The command, for a shell.
    pub command: String,
    /// The folder that it runs in.
    pub cwd: PathBuf,
    /// What is added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads.
    pub stdin: Arc<[u8]>,
    /// How long it may take.
    pub timeout: Duration,
}

/// A command that has ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellOutput {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to its standard output; none when that is too much to be an answer.
    pub stdout: Option<Vec<u8>>,
    /// What it wrote to its standard error, as text.
    pub stderr: String,
}

/// The most that a command may write as its answer.
pub(super) const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The exit code that means no.
pub(super) const BLOCK_EXIT_CODE: i32 = 2;

/// A hook that is a command.
///
/// It reads the occasion as JSON. Exit code 0 goes on, and what it printed is read as an [`Answer`]; 2 is a no, with its
/// standard error as the reason; anything else is a failure.
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

    /// Returns what is run for an occasion.
    pub(super) fn command_for(&self, command: String, occasion: &HookInput) -> HookCommand {
        let session = &self.session;
        let env = [
            ("ARCHITECT_HOOK", occasion.point().name().into()),
            // Whoever this command starts knows how deep it is.
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
        // The command is asked to end before it is killed.
        self.timeout + Duration::from_secs(5)
    }
}
