//! The environment of the process: variables and the current folder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use crate::config::Folders;

/// The environment of the process.
#[derive(Clone, Debug, Default)]
pub struct ProcessEnv {
    /// The variables of the environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The current folder.
    pub cwd: PathBuf,
}

impl ProcessEnv {
    /// Returns the environment of this process.
    ///
    /// # Errors
    ///
    /// Fails when the current folder is gone.
    pub fn current() -> io::Result<Self> {
        Ok(Self { variables: std::env::vars_os().collect(), cwd: std::env::current_dir()? })
    }

    /// Returns a variable; one that is not UTF-8 counts as not set.
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

    /// Returns where this program keeps its files.
    pub fn folders(&self) -> Folders {
        Folders::new(|name| self.variable(name))
    }
}
