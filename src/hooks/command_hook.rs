//! Hooks that are commands.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::HookError;
use super::file_placeholder::{FILE_VARIABLE, UnsafePlaceholder, with_variable};
use super::hook::Hook;
use super::hook_input::{HookInput, HookSession};
use super::hook_output::HookOutput;
use crate::exec::{CommandEnd, CommandInput, CommandSpec, Supervisor};
use crate::port::EffectContext;

/// The maximum length of a hook's output, in bytes.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The exit code of a hook that blocks.
const BLOCK_EXIT_CODE: i32 = 2;

/// A hook that is a command. It is confined like other commands of its supervisor, and no process of it survives its
/// time limit.
///
/// The command reads the [`HookInput`] as JSON. With exit code 0, its output is parsed as a [`HookOutput`]. With exit
/// code 2, it blocks, and its standard error is the reason. Any other code is a failure. For a changed file, its whole
/// output is text for the model, and the variable `ARCHITECT_EDITED_FILE` contains the name of the file.
#[derive(Clone)]
pub struct CommandHook {
    command: String,
    timeout: Duration,
    session: Arc<HookSession>,
    supervisor: Arc<Supervisor>,
}

impl CommandHook {
    /// Returns a hook that runs this command.
    pub fn new(
        command: impl Into<String>,
        timeout: Duration,
        session: Arc<HookSession>,
        supervisor: Arc<Supervisor>,
    ) -> Self {
        Self { command: command.into(), timeout, session, supervisor }
    }

    /// Replaces `{file}` in the command, with any quotes around it, by the name of the changed file.
    ///
    /// # Errors
    ///
    /// Fails when `{file}` is at a position where the name would be parsed as part of the command.
    pub fn with_file_placeholder(self) -> Result<Self, UnsafePlaceholder> {
        Ok(Self { command: with_variable(&self.command)?, ..self })
    }

    /// Returns the command for an input.
    fn command_for(&self, input: &HookInput) -> CommandSpec {
        let session = &self.session;
        let mut env = vec![
            ("ARCHITECT_HOOK".into(), input.point().as_str().into()),
            // Processes started by this command learn their depth from it.
            ("ARCHITECT_HOOK_DEPTH".into(), (session.depth + 1).to_string().into()),
            ("ARCHITECT_SESSION_ID".into(), (*session.id).into()),
            ("ARCHITECT_WORKSPACE".into(), session.workspace.clone().into_os_string()),
        ];
        if let HookInput::PostEdit { file, .. } = input {
            // With its folder, the name can't be mistaken for an option.
            let name = file.as_path().as_os_str();
            let is_option = name.as_encoded_bytes().starts_with(b"-");
            let name = if is_option { Path::new(".").join(name).into() } else { name.into() };
            env.push((FILE_VARIABLE.into(), name));
        }
        CommandSpec {
            env,
            stdin: CommandInput::Bytes(input.to_json(session).to_string().into_bytes().into()),
            timeout: Some(self.timeout),
            // This size applies to the head and to the tail.
            kept_bytes: MAX_OUTPUT_BYTES / 2,
            ..CommandSpec::shell(&self.command, &session.workspace)
        }
    }
}

impl Hook for CommandHook {
    fn run(&self, input: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError> {
        let outcome = self.supervisor.run(&self.command_for(input), &scope.cancel);
        let outcome = outcome.map_err(|error| HookError::Start(error.to_string()))?;
        let code = match outcome.end {
            CommandEnd::Exited(code) => code,
            CommandEnd::Signalled(signal) => return Err(HookError::Signal(signal)),
            CommandEnd::OutOfMemory => return Err(HookError::Signal(9)),
            CommandEnd::TimedOut | CommandEnd::Stuck => {
                return Err(HookError::TimedOut(self.timeout));
            }
            CommandEnd::Lost => return Err(HookError::Panic("its supervisor is gone".to_owned())),
            CommandEnd::Cancelled => return Err(HookError::Cancelled),
        };
        let (stdout, mut text) = (outcome.stdout.complete(), outcome.stderr.text());
        let is_edit = matches!(input, HookInput::PostEdit { .. });
        if is_edit {
            let stdout = stdout.as_deref().unwrap_or(b"[output too long]");
            let stdout = String::from_utf8_lossy(stdout);
            // A log line shows the first line.
            let mut parts = vec![stdout.trim_end(), &text];
            parts.retain(|part| !part.is_empty());
            text = parts.join("\n");
        }
        match code {
            0 if is_edit => Ok(HookOutput::context(text)),
            0 => {
                let too_much = || HookError::Output("its output is too long".to_owned());
                let stdout = String::from_utf8(stdout.ok_or_else(too_much)?)
                    .map_err(|_| HookError::Output("its output is not UTF-8".to_owned()))?;
                HookOutput::parse(&stdout)
            }
            BLOCK_EXIT_CODE => Ok(HookOutput::Block { reason: text }),
            126 | 127 => Err(HookError::Start(text)),
            code => Err(HookError::Exit { code, stderr: text }),
        }
    }

    fn timeout(&self) -> Duration {
        // The command is terminated before it is killed.
        self.timeout + Duration::from_secs(5)
    }
}
