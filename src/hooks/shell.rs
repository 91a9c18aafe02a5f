//! Hooks that are commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::hook::{Hook, HookError};
use super::occasion::{Occasion, SessionFacts};
use crate::port::{Cancel, Scope};

/// Runs commands for hooks: supervised, so that nothing of one survives its time limit.
pub trait Shell: Send + Sync {
    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// Fails when it could not be started, took too long, was ended by a signal or was cancelled.
    fn run(&self, line: &Line, cancel: &Cancel) -> Result<Ran, HookError>;
}

/// A command that is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
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
pub struct Ran {
    /// Its exit code.
    pub code: i32,
    /// What it wrote to its standard output; none when that is too much to be an answer.
    pub stdout: Option<Vec<u8>>,
    /// What it wrote to its standard error, as text.
    pub stderr: String,
}

/// The most that a command may write as its answer.
pub(super) const LARGEST: usize = 1 << 20;

/// The exit code that means no.
pub(super) const NO: i32 = 2;

/// A hook that is a command.
///
/// It reads the occasion as JSON. Exit code 0 goes on, and what it printed is read as an [`Answer`]; 2 is a no, with its
/// standard error as the reason; anything else is a failure.
#[derive(Clone)]
pub struct ShellHook {
    pub(super) command: String,
    pub(super) timeout: Duration,
    pub(super) session: Arc<SessionFacts>,
    pub(super) shell: Arc<dyn Shell>,
}

impl ShellHook {
    /// Returns a hook that runs this command.
    pub fn new(
        command: impl Into<String>,
        timeout: Duration,
        session: Arc<SessionFacts>,
        shell: Arc<dyn Shell>,
    ) -> Self {
        Self { command: command.into(), timeout, session, shell }
    }

    /// Returns what is run for an occasion.
    pub(super) fn line(&self, command: String, occasion: &Occasion) -> Line {
        let session = &self.session;
        let env = [
            ("ARCHITECT_HOOK", occasion.point().name().into()),
            // Whoever this command starts knows how deep it is.
            ("ARCHITECT_HOOK_DEPTH", (session.depth + 1).to_string().into()),
            ("ARCHITECT_SESSION_ID", (*session.id).into()),
            ("ARCHITECT_WORKSPACE", session.workspace.clone().into_os_string()),
        ];
        Line {
            command,
            cwd: session.workspace.clone(),
            env: env.map(|(name, value)| (name.into(), value)).into(),
            stdin: occasion.to_json(session).to_string().into_bytes().into(),
            timeout: self.timeout,
        }
    }
}

impl Hook for ShellHook {
    fn ask(&self, occasion: &Occasion, scope: &Scope) -> Result<Answer, HookError> {
        let line = self.line(self.command.clone(), occasion);
        let Ran { code, stdout, stderr } = self.shell.run(&line, &scope.cancel)?;
        match code {
            0 => {
                let too_much = || HookError::Output("its output is too long".to_owned());
                let stdout = String::from_utf8(stdout.ok_or_else(too_much)?)
                    .map_err(|_| HookError::Output("its output is not UTF-8".to_owned()))?;
                Answer::parse(&stdout)
            }
            NO => Ok(Answer::Block { reason: stderr }),
            126 | 127 => Err(HookError::Start(stderr)),
            code => Err(HookError::Exit { code, stderr }),
        }
    }

    fn limit(&self) -> Duration {
        // The command is asked to end before it is killed.
        self.timeout + Duration::from_secs(5)
    }
}
