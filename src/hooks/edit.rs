//! Commands for each file that a tool call has changed.

use std::time::Duration;

use super::answer::Answer;
use super::hook::{Hook, HookError};
use super::occasion::Occasion;
use super::shell::{NO, Ran, ShellHook};
use crate::port::Scope;

/// A command for a file that was changed. `{file}` in it stands for the file, and so does the variable
/// `ARCHITECT_EDITED_FILE`; what it writes is told to the model.
#[derive(Clone)]
pub struct EditHook(ShellHook);

impl EditHook {
    /// Returns a hook that runs the command of another one for each file.
    pub fn new(hook: ShellHook) -> Self {
        Self(hook)
    }
}

impl Hook for EditHook {
    fn ask(&self, occasion: &Occasion, scope: &Scope) -> Result<Answer, HookError> {
        let Occasion::PostEdit { file, .. } = occasion else { return Ok(Answer::default()) };
        let unusable =
            |_| HookError::Start("the file's name cannot be given to a shell".to_owned());
        let word = shlex::try_quote(file).map_err(unusable)?;
        // A name that looks like an option is none when it begins with its folder.
        let word = if file.starts_with('-') { format!("./{word}") } else { word.into_owned() };
        let mut line = self.0.line(self.0.command.replace("{file}", &word), occasion);
        line.env.push(("ARCHITECT_EDITED_FILE".into(), (**file).into()));
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
