//! Commands for each file that a tool call has changed.

use std::time::Duration;

use super::answer::Answer;
use super::hook::{Hook, HookError};
use super::occasion::Occasion;
use super::place::{self, UnclearPlace};
use super::shell::{NO, Ran, ShellHook};
use crate::port::Scope;

/// A command for a file that was changed. `{file}` in it stands for the file, whatever quotes are around it, and so does
/// the variable `ARCHITECT_EDITED_FILE`; what it writes is told to the model.
#[derive(Clone)]
pub struct EditHook(ShellHook);

impl EditHook {
    /// Returns a hook that runs the command of another one for each file.
    ///
    /// # Errors
    ///
    /// Fails when `{file}` stands where a name would be read as a part of the command.
    pub fn new(hook: ShellHook) -> Result<Self, UnclearPlace> {
        let command = place::with_variable(&hook.command)?;
        Ok(Self(ShellHook { command, ..hook }))
    }

    /// Returns whether this can be the command of such a hook.
    ///
    /// # Errors
    ///
    /// Fails when `{file}` stands where a name would be read as a part of the command.
    pub fn check(command: &str) -> Result<(), UnclearPlace> {
        place::with_variable(command).map(drop)
    }
}

impl Hook for EditHook {
    fn ask(&self, occasion: &Occasion, scope: &Scope) -> Result<Answer, HookError> {
        let Occasion::PostEdit { file, .. } = occasion else { return Ok(Answer::default()) };
        // A name that looks like an option is none when it begins with its folder.
        let name = if file.starts_with('-') { format!("./{file}") } else { file.to_string() };
        let mut line = self.0.line(self.0.command.clone(), occasion);
        line.env.push((place::VARIABLE.into(), name.into()));
        let Ran { code, stdout, stderr } = self.0.shell.run(&line, &scope.cancel)?;
        let stdout = stdout.unwrap_or_else(|| b"[output too long]".to_vec());
        let said = format!("{}\n{stderr}", String::from_utf8_lossy(&stdout).trim_end());
        match code {
            0 => Ok(Answer::context(said)),
            NO => Ok(Answer::Block { reason: said }),
            126 | 127 => Err(HookError::Start(said)),
            code => Err(HookError::Exit { code, stderr: said }),
        }
    }

    fn limit(&self) -> Duration {
        self.0.limit()
    }
}
