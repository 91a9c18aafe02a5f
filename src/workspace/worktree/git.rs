//! Git, without running programs of the repository.
//!
//! A repository's own configuration can name programs: hooks, a monitor of the file system, filters, drivers, commands
//! that fetch missing objects. All of them are turned off here, regardless of the configuration. The user's own
//! configuration (identity, ignored files) still counts. Commands that need filters (filling a tree, a fast-forward) do
//! not run here, but confined, through a [`ConfinedGit`](super::ConfinedGit).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::WorktreeError;
use crate::workspace::IoContext;

/// Settings that no repository may change.
const SAFE_SETTINGS: [(&str, &str); 16] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    // Other processes change branches at the same time.
    ("core.filesRefLockTimeout", "10000"),
    ("core.packedRefsTimeout", "10000"),
    ("core.quotePath", "false"),
    ("core.untrackedCache", "false"),
    ("branch.autoSetupMerge", "false"),
    ("diff.submodule", "short"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("worktree.guessRemote", "false"),
    ("worktree.useRelativePaths", "false"),
    ("advice.detachedHead", "false"),
];

/// Variables of the user that determine the user's own configuration.
const KEPT_VARIABLES: [&str; 6] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "LOGNAME",
];

/// The settings of a filter, each with the value that turns it off.
const FILTER_SETTINGS: [(&str, &str); 4] =
    [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];

/// The settings of a hook in the configuration, each with the value that turns it off.
const HOOK_SETTINGS: [(&str, &str); 3] = [("enabled", "false"), ("event", ""), ("command", "true")];

/// The beginning of git's warning about an unreadable folder.
const UNREADABLE: &str = "warning: could not open directory";

/// The git program, with the environment of the user.
#[derive(Clone, Debug)]
pub struct GitProgram {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// A work tree, or a bare repository, on which git runs.
#[derive(Clone, Debug)]
pub(super) struct GitTree {
    program: GitProgram,
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    /// The index, if it is not that of the work tree.
    index: Option<PathBuf>,
    /// The settings that turn off the programs in the configuration.
    disabled: Vec<(OsString, OsString)>,
}

impl GitProgram {
    /// Creates a git program. Only those variables are kept that determine the user's configuration.
    pub fn new(program: PathBuf, variables: &[(OsString, OsString)]) -> Self {
        let is_kept = |name: &OsStr| KEPT_VARIABLES.iter().any(|kept| name == *kept);
        let env = variables.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
        Self { program, env }
    }
}

impl GitTree {
    /// Opens a tree, and reads the programs in its configuration.
    pub(super) fn open(
        program: &GitProgram,
        git_dir: &Path,
        work_tree: Option<&Path>,
    ) -> Result<Self, WorktreeError> {
        let mut tree = Self {
            program: program.clone(),
            git_dir: git_dir.to_owned(),
            work_tree: work_tree.map(Path::to_owned),
            index: None,
            disabled: Vec::new(),
        };
        let names = tree.query(&["config", "--list", "--name-only", "-z", "--includes"])?;
        tree.disabled = disabled_programs(&names);
        Ok(tree)
    }

    /// Returns the output of a command that changes nothing.
    pub(super) fn query(&self, args: &[&str]) -> Result<Vec<u8>, WorktreeError> {
        self.list(args).map(|(output, _)| output)
    }

    /// Returns the output of a command that lists files, and the warning of git if it could not read a folder. Git
    /// treats an unreadable folder as empty.
    pub(super) fn list(&self, args: &[&str]) -> Result<(Vec<u8>, Option<String>), WorktreeError> {
        match self.run(args, None, None)? {
            (Some(0), output, message) => {
                let warning = message.lines().find(|line| line.starts_with(UNREADABLE));
                Ok((output, warning.map(str::to_owned)))
            }
            (_, _, message) => Err(failed(args, &message)),
        }
    }

    /// Returns the output of a command that changes nothing, as a line of text; `None` if it exits with another code.
    pub(super) fn line(&self, args: &[&str]) -> Result<Option<String>, WorktreeError> {
        let (code, output, _) = self.run(args, None, None)?;
        let text = String::from_utf8_lossy(&output).trim_end().to_owned();
        Ok((code == Some(0)).then_some(text))
    }

    /// Returns the exit code and the output of a command that changes nothing.
    pub(super) fn status(&self, args: &[&str]) -> Result<(Option<i32>, Vec<u8>), WorktreeError> {
        let (code, output, _) = self.run(args, None, None)?;
        Ok((code, output))
    }

    /// Runs a command that changes the repository. The command holds the lock as long as it runs, so that no other
    /// process considers the worktree abandoned while git works on it, even if this process is killed.
    pub(super) fn change(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        lock: &File,
    ) -> Result<(), WorktreeError> {
        match self.run(args, input, Some(lock))? {
            (Some(0), ..) => Ok(()),
            (_, _, message) => Err(failed(args, &message)),
        }
    }

    /// Returns the exit code, the output, and the messages.
    fn run(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        lock: Option<&File>,
    ) -> Result<(Option<i32>, Vec<u8>, String), WorktreeError> {
        let program = &self.program.program;
        let mut command = self.command(args);
        // A locked file stays locked as long as any process has it open.
        let held = lock.map(File::try_clone).transpose().io_context("run", program)?;
        let (stdin, stdout) = match input {
            Some(_) => (Stdio::piped(), held.map_or_else(Stdio::piped, Stdio::from)),
            None => (held.map_or_else(Stdio::null, Stdio::from), Stdio::piped()),
        };
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().io_context("run", program)?;
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            // Git reports the reason if it has not read everything.
            let _ = pipe.write_all(input);
        }
        let output = child.wait_with_output().io_context("run", program)?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), output.stdout, messages))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program.program);
        command.env_clear();
        for (name, value) in &self.program.env {
            command.env(name, value);
        }
        let folder = self.program.program.parent().unwrap_or(Path::new("/usr/bin"));
        let mut path = folder.as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        command.env("PATH", path).env("GIT_DIR", &self.git_dir);
        for (name, value) in [
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", ""),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("LC_ALL", "C"),
        ] {
            command.env(name, value);
        }
        if let Some(work_tree) = &self.work_tree {
            command.env("GIT_WORK_TREE", work_tree).current_dir(work_tree);
        } else {
            command.current_dir(&self.git_dir);
        }
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        let safe = SAFE_SETTINGS.iter().map(|(key, value)| (OsStr::new(*key), OsStr::new(*value)));
        let disabled = self.disabled.iter().map(|(key, value)| (&**key, &**value));
        let mut count = 0;
        for (key, value) in safe.chain(disabled) {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command.arg("--no-pager").args(args);
        command
    }

    /// Returns the git folder.
    pub(super) fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// Returns the work tree; `None` for a bare repository.
    pub(super) fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// Returns the same repository with its work tree in another folder.
    pub(super) fn in_folder(&self, work_tree: &Path) -> Self {
        Self { work_tree: Some(work_tree.to_owned()), ..self.clone() }
    }

    /// Returns the same work tree with its index in another file.
    pub(super) fn with_index(&self, index: &Path) -> Self {
        Self { index: Some(index.to_owned()), ..self.clone() }
    }

    /// Returns the commit with this name; `None` if there is none.
    pub(super) fn commit(&self, name: &str) -> Result<Option<String>, WorktreeError> {
        let args = ["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")];
        match self.run(&args, None, None)? {
            (Some(0), output, _) => {
                Ok(Some(String::from_utf8_lossy(&output).trim_end().to_owned()))
            }
            (Some(1), ..) => Ok(None),
            (_, _, message) => Err(failed(&args, &message)),
        }
    }

    /// Returns the commit of a branch, by its full name; `None` if there is no such branch.
    pub(super) fn branch_commit(
        &self,
        common_dir: &Path,
        branch: &str,
    ) -> Result<Option<String>, WorktreeError> {
        let commit = self.commit(branch)?;
        // Git treats an unreadable branch as missing.
        if commit.is_none() && common_dir.join(branch).symlink_metadata().is_ok() {
            let message = format!("the branch {branch} can't be read");
            return Err(WorktreeError::Git { command: "rev-parse".to_owned(), message });
        }
        Ok(commit)
    }
}

/// Returns the error of a git command, with the relevant line of its messages.
fn failed(args: &[&str], messages: &str) -> WorktreeError {
    let mut lines = messages.lines().filter(|line| !line.trim().is_empty());
    let fatal =
        lines.clone().find(|line| line.starts_with("fatal: ") || line.starts_with("error: "));
    let message = fatal.or_else(|| lines.next_back()).unwrap_or("no message");
    let words: Vec<&str> = args.iter().copied().take_while(|word| !word.starts_with('-')).collect();
    WorktreeError::Git { command: words.join(" "), message: message.to_owned() }
}

/// Returns the settings that turn off the filters and hooks of a configuration. `names` are its settings, each followed
/// by a zero byte.
fn disabled_programs(names: &[u8]) -> Vec<(OsString, OsString)> {
    let mut settings = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let (kind, values) = match name {
            name if name.starts_with(b"filter.") => ("filter.", &FILTER_SETTINGS[..]),
            name if name.starts_with(b"hook.") => ("hook.", &HOOK_SETTINGS[..]),
            _ => continue,
        };
        let Some(end) = name.iter().rposition(|byte| *byte == b'.') else { continue };
        let Some(driver) = name.get(kind.len()..end) else { continue };
        for (setting, value) in values {
            let mut key = kind.as_bytes().to_vec();
            key.extend(driver);
            key.push(b'.');
            key.extend(setting.as_bytes());
            settings.push((OsString::from_vec(key), OsString::from(value)));
        }
    }
    settings.sort();
    settings.dedup();
    settings
}

/// Converts bytes from git's output to a path.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_and_hook_of_a_configuration_is_turned_off() {
        let names =
            b"core.bare\0filter.a=b.clean\0filter.a=b.smudge\0hook.x.command\0filter.broken\0";
        let found = disabled_programs(names);
        let keys: Vec<&str> = found.iter().filter_map(|(key, _)| key.to_str()).collect();
        assert_eq!(
            keys,
            [
                "filter.a=b.clean",
                "filter.a=b.process",
                "filter.a=b.required",
                "filter.a=b.smudge",
                "hook.x.command",
                "hook.x.enabled",
                "hook.x.event"
            ]
        );
    }
}
