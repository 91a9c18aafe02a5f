//! Commands for each file that a tool call has changed.

use std::time::Duration;

use super::command_hook::{BLOCK_EXIT_CODE, CommandHook, ShellOutput};
use super::file_placeholder::{self, UnsafePlaceholder};
use super::hook::{Hook, HookError};
use super::hook_input::HookInput;
use super::hook_output::HookOutput;
use crate::port::EffectContext;

/// A command for a changed file, which replaces `{file}`, with any quotes around it, and is also in the variable
/// `ARCHITECT_EDITED_FILE`. Its output goes to the model.
#[derive(Clone)]
pub struct PostEditHook(CommandHook);

impl PostEditHook {
    /// Returns a hook that runs the command of `hook` for each file.
    ///
    /// # Errors
    ///
    /// Fails when `{file}` is at a position where the name would be parsed as part of the command.
    pub fn new(hook: CommandHook) -> Result<Self, UnsafePlaceholder> {
        let command = file_placeholder::with_variable(&hook.command)?;
        Ok(Self(CommandHook { command, ..hook }))
    }

    /// Checks the command of such a hook.
    ///
    /// # Errors
    ///
    /// Fails when `{file}` is at a position where the name would be parsed as part of the command.
    pub fn check(command: &str) -> Result<(), UnsafePlaceholder> {
        file_placeholder::with_variable(command).map(drop)
    }
}

impl Hook for PostEditHook {
    fn run(&self, occasion: &HookInput, scope: &EffectContext) -> Result<HookOutput, HookError> {
        let HookInput::PostEdit { file, .. } = occasion else { return Ok(HookOutput::default()) };
        // With its folder, the name is not taken for an option.
        let name = if file.starts_with('-') { format!("./{file}") } else { file.to_string() };
        let mut line = self.0.command_for(self.0.command.clone(), occasion);
        line.env.push((file_placeholder::FILE_VARIABLE.into(), name.into()));
        let ShellOutput { code, stdout, stderr } = self.0.shell.run(&line, &scope.cancel)?;
        let stdout = stdout.unwrap_or_else(|| b"[output too long]".to_vec());
        let output = format!("{}\n{stderr}", String::from_utf8_lossy(&stdout).trim_end());
        match code {
            0 => Ok(HookOutput::context(output)),
            BLOCK_EXIT_CODE => Ok(HookOutput::Block { reason: output }),
            126 | 127 => Err(HookError::Start(output)),
            code => Err(HookError::Exit { code, stderr: output }),
        }
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }
}
