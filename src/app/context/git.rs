//! Runs git on a workspace such that no program of the workspace runs.
//!
//! A repository's own configuration can name programs: a monitor of the file system, hooks, drivers for differences and
//! for text, filters, ways to fetch what is missing. The author of the workspace chose them. So git gets an environment
//! with nothing of the caller's in it, options that turn each of these off, and a work tree that is where it is,
//! whatever the configuration says.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::exec::{CommandEnd, CommandOutcome, CommandSpec, ExecError, Supervisor};
use crate::port::CancellationToken;

/// The git of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Git {
    program: PathBuf,
}

/// A name for a commit, as a user types it: a branch, a tag, `HEAD~2`, a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitRef(String);

/// Why a text is no name for a commit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no name for a commit: it must not be empty, begin with '-' or have white space in it"
)]
pub struct GitRefError(String);

/// A repository, and the part of it that is the workspace.
pub(super) struct GitRepository<'a> {
    git: &'a Git,
    root: PathBuf,
    workspace: &'a Path,
    /// Settings that count more than those of the repository.
    settings: Vec<(String, &'static str)>,
}

/// The time limit of a git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Settings that no repository may change.
const SAFE_SETTINGS: [(&str, &str); 5] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("protocol.allow", "never"),
    ("diff.submodule", "short"),
];

/// The environment of git: no configuration of a user, no fetching, no locks, no prompts.
const GIT_ENVIRONMENT: [&str; 9] = [
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "GIT_NO_LAZY_FETCH=1",
    "GIT_ALLOW_PROTOCOL=",
    "GIT_OPTIONAL_LOCKS=0",
    "GIT_TERMINAL_PROMPT=0",
    "HOME=/dev/null",
    "LC_ALL=C",
];

/// The settings of a filter.
const FILTER_KEYS: [&str; 4] = ["clean", "smudge", "process", "required"];

impl Git {
    /// Finds git in the folders of a search path. A folder that is not absolute could be one of the workspace.
    pub fn find(path: &OsStr) -> Option<Self> {
        let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
        let program = folders.map(|folder| folder.join("git")).find(|program| program.is_file())?;
        Some(Self { program })
    }
}

impl GitRef {
    /// Reads a name for a commit. Whether there is such a commit is not looked at.
    ///
    /// # Errors
    ///
    /// Fails for what git could take for an option, or for more than one word.
    pub fn parse(text: &str) -> Result<Self, GitRefError> {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        match text.is_empty() || text.starts_with('-') || text.contains(odd) {
            true => Err(GitRefError(text.to_owned())),
            false => Ok(Self(text.to_owned())),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the top of the repository that a folder is in.
pub(super) fn repository_root(folder: &Path) -> Option<PathBuf> {
    let top = folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
    Some(top.to_owned())
}

impl<'a> GitRepository<'a> {
    pub(super) fn new(git: &'a Git, workspace: &'a Path) -> Option<Self> {
        repository_root(workspace).map(|top| Self {
            git,
            root: top,
            workspace,
            settings: Vec::new(),
        })
    }

    /// Turns the filters off that the configuration has; returns false if one has a name that cannot be given to git.
    pub(super) fn disable_filters(&mut self, names: &str) -> bool {
        for name in names.lines() {
            let Some(setting) = name.strip_prefix("filter.") else { continue };
            let Some((driver, _)) = setting.rsplit_once('.') else { continue };
            // The output was made plain: what was no text is replaced, and control characters are escapes. A name with
            // `=` cannot be distinguished from its value.
            if driver.contains(['\\', '\u{fffd}', '=']) {
                return false;
            }
            for key in FILTER_KEYS {
                let value = if key == "required" { "false" } else { "" };
                let setting = (format!("filter.{driver}.{key}"), value);
                if !self.settings.contains(&setting) {
                    self.settings.push(setting);
                }
            }
        }
        true
    }

    /// Asks git; of a long answer, head and tail of so many bytes are kept.
    pub(super) fn run(
        &self,
        supervisor: &Supervisor,
        question: &[&str],
        keep: usize,
        cancel: &CancellationToken,
    ) -> Result<CommandOutcome, ExecError> {
        let mut argv: Vec<OsString> = ["/usr/bin/env", "-i"].map(OsString::from).to_vec();
        argv.extend(GIT_ENVIRONMENT.map(OsString::from));
        let mut set = |name: &str, value: &OsStr| {
            let mut pair = OsString::from(format!("{name}="));
            pair.push(value);
            argv.push(pair);
        };
        set("PATH", self.git.program.parent().unwrap_or(Path::new("/usr/bin")).as_os_str());
        set("GIT_DIR", self.root.join(".git").as_os_str());
        set("GIT_WORK_TREE", self.root.as_os_str());
        argv.push(self.git.program.clone().into());
        argv.push("--no-pager".into());
        let fixed = SAFE_SETTINGS.iter().map(|(name, value)| (*name, *value));
        let found = self.settings.iter().map(|(name, value)| (name.as_str(), *value));
        for (name, value) in fixed.chain(found) {
            argv.push("-c".into());
            argv.push(format!("{name}={value}").into());
        }
        argv.extend(question.iter().map(OsString::from));
        let command = CommandSpec {
            timeout: Some(GIT_TIMEOUT),
            kept_bytes: keep,
            ..CommandSpec::new(argv, self.workspace)
        };
        supervisor.run(&command, cancel)
    }
}

/// Returns why git failed, in its words.
pub(super) fn failure_message(outcome: &CommandOutcome) -> String {
    match outcome.end {
        CommandEnd::TimedOut => format!("it took longer than {} s", GIT_TIMEOUT.as_secs()),
        CommandEnd::Cancelled => "it was cancelled".to_owned(),
        CommandEnd::Exited(_)
        | CommandEnd::Signalled(_)
        | CommandEnd::OutOfMemory
        | CommandEnd::Stuck
        | CommandEnd::Lost => {
            let message = outcome.stderr.text();
            message.lines().next().unwrap_or("it failed without a message").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_never_an_option() {
        for good in ["HEAD", "main", "HEAD~2", "v1.0^{}", "origin/a-b", "@{upstream}", "0a1b"] {
            assert_eq!(GitRef::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-p", "--output=x", "a b", "a\nb", "\u{1}"] {
            assert!(GitRef::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn git_is_only_found_in_absolute_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("git"), "").unwrap();
        let path = env::join_paths(["", ".", "bin"].map(Path::new)).unwrap();
        assert_eq!(Git::find(&path), None);
        let path = env::join_paths([Path::new("."), folder.path()]).unwrap();
        assert_eq!(Git::find(&path).unwrap().program, folder.path().join("git"));
    }
}
