//! The environment of the process: variables and the current folder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Folders, VARIABLE_PREFIX};
use crate::workspace::FileId;

/// The environment of the process.
#[derive(Clone, Debug, Default)]
pub struct ProcessEnv {
    /// The variables of the environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The current folder.
    pub cwd: PathBuf,
    /// The user's environment, if this one is simulated: its secrets are hidden, too.
    pub user: Option<Arc<ProcessEnv>>,
    /// The files to which this process writes its output. They don't count as changes of a run.
    pub output_files: Vec<FileId>,
}

impl ProcessEnv {
    /// Returns the environment of this process.
    ///
    /// # Errors
    ///
    /// Fails if the current folder no longer exists, or if a setting is not UTF-8, which would otherwise be ignored.
    pub fn current() -> io::Result<Self> {
        let cwd = std::env::current_dir().map_err(|error| {
            io::Error::new(error.kind(), format!("the current folder can't be used: {error}"))
        })?;
        let standard = [FileId::of_open(io::stdout()), FileId::of_open(io::stderr())];
        let output_files = standard.into_iter().flatten().collect();
        let variables = std::env::vars_os().collect();
        let env = Self { variables, cwd, output_files, user: None };
        let is_setting = |name: &OsStr| name.as_bytes().starts_with(VARIABLE_PREFIX.as_bytes());
        let is_text = |value: &OsStr| value.to_str().is_some();
        match env.variables.iter().find(|(name, value)| is_setting(name) && !is_text(value)) {
            Some((name, _)) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the environment variable {} is not UTF-8", name.display()),
            )),
            None => Ok(env),
        }
    }

    /// Returns a variable; a variable that is not UTF-8 counts as not set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(key, _)| key == OsStr::new(name));
        found.and_then(|(_, value)| value.to_str())
    }

    /// Returns the variables that are UTF-8.
    pub fn text_variables(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let texts =
            self.variables.iter().filter_map(|(key, value)| Some((key.to_str()?, value.to_str()?)));
        texts.map(|(key, value)| (key.to_owned(), value.to_owned()))
    }

    /// Returns the folders of this program's files.
    pub fn folders(&self) -> Folders {
        Folders::new(|name| self.variable(name))
    }
}
