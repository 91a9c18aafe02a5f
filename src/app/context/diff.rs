//! Changes in the workspace since a commit, for `--context-git-diff`.
//!
//! Git runs in a way that never runs a program of the workspace. A repository's own configuration can name programs: a
//! file system monitor, hooks, drivers for differences and for text, filters, ways to fetch missing objects. The author
//! of the workspace chose them, so git gets an environment without the caller's variables, options that turn off each
//! of these programs, and a fixed work tree, whatever the configuration says.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::PromptSection;
use crate::exec::{CommandEnd, CommandOutcome, CommandSpec, ExecError, Supervisor};
use crate::port::CancellationToken;
use crate::workspace::WorkspaceRoot;

/// The changes in the workspace since a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceDiff {
    /// The commit, as the user named it.
    pub since: String,
    /// The difference as a patch. The middle of a long patch is left out.
    pub patch: String,
    /// The number of omitted bytes of the patch.
    pub omitted_bytes: u64,
    /// The paths of files that git doesn't track and doesn't ignore, a line each, as git writes them. The middle of a long
    /// list is left out.
    pub untracked: String,
}

/// An error in determining the changes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiffError {
    /// There is no git.
    #[error("git was not found")]
    NoGit,
    /// The text is not a commit name: git could take it for an option, or for several words.
    #[error(
        "invalid commit name '{0}': it must not be empty, begin with '-' or contain white space"
    )]
    InvalidReference(String),
    /// The workspace is in no repository.
    #[error("{0} is not in a git repository")]
    NoRepository(String),
    /// The commit does not exist.
    #[error("there is no commit '{0}' in the repository of the workspace")]
    UnknownCommit(String),
    /// Git failed.
    #[error("git could not show what has changed: {0}")]
    GitFailed(String),
    /// A filter has a name with which git can't be given the options that turn it off.
    #[error("the git configuration of the workspace has filters that cannot be turned off")]
    UnsafeFilterName,
    /// Git could not be started.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// The number of bytes of a patch that are kept, of the beginning and of the end each.
const KEPT_BYTES: usize = 32 * 1024;

/// The number of bytes of the list of untracked files that are kept, of the beginning and of the end each.
const KEPT_LIST_BYTES: usize = 4 * 1024;

/// The maximum number of bytes of a configuration's names. Real configurations are smaller.
const MAX_CONFIG_NAMES_BYTES: usize = 256 * 1024;

/// The time limit of a git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Settings that no repository may change.
const SAFE_SETTINGS: &str = "
    core.fsmonitor=false core.hooksPath=/dev/null core.pager=cat protocol.allow=never diff.submodule=short
";

/// The environment of git: no user configuration, no fetching, no locks, no prompts.
const GIT_ENVIRONMENT: &str = "
    GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=
    GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 HOME=/dev/null LC_ALL=C
";

/// The settings of a filter, each with the value that turns it off.
const FILTER_SETTINGS: [&str; 4] = ["clean=", "smudge=", "process=", "required=false"];

/// Finds git in the folders of a search path. Relative folders are skipped, since they could be in the workspace.
pub fn find_git(path: &OsStr) -> Option<PathBuf> {
    let folders = env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join("git")).find(|program| program.is_file())
}

/// Returns the changes in the workspace since a commit (a branch, a tag, `HEAD~2`, a digest), committed or not.
/// Executes nothing of the workspace.
///
/// # Errors
///
/// Fails if there is no repository or no such commit, and if git fails or takes too long.
pub fn diff_since(
    git: &Path,
    supervisor: &Supervisor,
    root: &WorkspaceRoot,
    since: &str,
    cancel: &CancellationToken,
) -> Result<WorkspaceDiff, DiffError> {
    let is_separator = |c: char| c.is_whitespace() || c.is_control();
    if since.is_empty() || since.starts_with('-') || since.contains(is_separator) {
        return Err(DiffError::InvalidReference(since.to_owned()));
    }
    let top = repository_root(root.path())
        .ok_or_else(|| DiffError::NoRepository(root.path().display().to_string()))?;
    let run = |settings: &[String], arguments: &[&str], kept_bytes| {
        let argv = git_command(git, top, settings, arguments);
        let command = CommandSpec::new(argv, root.path());
        let command = CommandSpec { timeout: Some(GIT_TIMEOUT), kept_bytes, ..command };
        supervisor.run(&command, cancel)
    };
    let names = ["config", "--list", "--name-only", "--includes"];
    let names = run(&[], &names, MAX_CONFIG_NAMES_BYTES)?;
    if !names.end.is_success() {
        return Err(DiffError::GitFailed(failure_message(&names)));
    }
    let filters = disabled_filters(&names.stdout.text()).filter(|_| names.stdout.omitted() == 0);
    let filters = filters.ok_or(DiffError::UnsafeFilterName)?;
    let commit = format!("{since}^{{commit}}");
    let commit = run(&filters, &["rev-parse", "--verify", "--quiet", &commit], 256)?;
    let digest = commit.stdout.text().trim().to_owned();
    if !commit.end.is_success() || !is_object_id(&digest) {
        return Err(DiffError::UnknownCommit(since.to_owned()));
    }
    let arguments = format!(
        "diff --no-ext-diff --no-textconv --no-color --ignore-submodules=dirty --submodule=short --src-prefix=a/ \
         --dst-prefix=b/ --relative {digest} -- ."
    );
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let diff = run(&filters, &arguments, KEPT_BYTES)?;
    if !diff.end.is_success() {
        return Err(DiffError::GitFailed(failure_message(&diff)));
    }
    let untracked = ["ls-files", "--others", "--exclude-standard", "--", "."];
    let untracked = run(&filters, &untracked, KEPT_LIST_BYTES)?;
    if !untracked.end.is_success() {
        return Err(DiffError::GitFailed(failure_message(&untracked)));
    }
    let (patch, omitted_bytes) = (diff.stdout.text(), diff.stdout.omitted());
    let untracked = untracked.stdout.text();
    Ok(WorkspaceDiff { since: since.to_owned(), patch, omitted_bytes, untracked })
}

/// Returns the top folder of the repository that contains a folder.
pub(super) fn repository_root(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}

/// Returns the settings that turn off the filters of a configuration; `None` if the name of a filter can't be passed to
/// git.
fn disabled_filters(names: &str) -> Option<Vec<String>> {
    let mut settings = Vec::new();
    for name in names.lines() {
        let Some(setting) = name.strip_prefix("filter.") else { continue };
        let Some((driver, _)) = setting.rsplit_once('.') else { continue };
        // The output is already sanitized: invalid UTF-8 is replaced, and control characters are escaped. A name with
        // `=` can't be distinguished from its value.
        if driver.contains(['\\', '\u{fffd}', '=']) {
            return None;
        }
        settings.extend(FILTER_SETTINGS.map(|setting| format!("filter.{driver}.{setting}")));
    }
    settings.sort();
    settings.dedup();
    Some(settings)
}

/// Returns the command line of git; `settings` override those of the repository.
fn git_command(git: &Path, top: &Path, settings: &[String], arguments: &[&str]) -> Vec<OsString> {
    let mut argv: Vec<OsString> = ["/usr/bin/env", "-i"].map(OsString::from).to_vec();
    argv.extend(GIT_ENVIRONMENT.split_whitespace().map(OsString::from));
    for (name, value) in [
        ("PATH=", git.parent().unwrap_or(Path::new("/usr/bin"))),
        ("GIT_DIR=", &*top.join(".git")),
        ("GIT_WORK_TREE=", top),
    ] {
        let mut pair = OsString::from(name);
        pair.push(value);
        argv.push(pair);
    }
    argv.extend([git.as_os_str().to_owned(), "--no-pager".into()]);
    for setting in SAFE_SETTINGS.split_whitespace().chain(settings.iter().map(String::as_str)) {
        argv.extend(["-c", setting].map(OsString::from));
    }
    argv.extend(arguments.iter().map(OsString::from));
    argv
}

/// Returns git's own message about its failure.
fn failure_message(outcome: &CommandOutcome) -> String {
    match outcome.end {
        CommandEnd::TimedOut => format!("it took longer than {} s", GIT_TIMEOUT.as_secs()),
        CommandEnd::Cancelled => "it was cancelled".to_owned(),
        _ => {
            let message = outcome.stderr.text();
            message.lines().next().unwrap_or("it failed without a message").to_owned()
        }
    }
}

fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the section of the prompt with the changes.
pub(super) fn diff_section(changes: &WorkspaceDiff) -> PromptSection {
    let WorkspaceDiff { since, patch, omitted_bytes, untracked } = changes;
    let patch = match patch.trim_end() {
        "" if untracked.is_empty() => format!("Nothing has changed since `{since}`."),
        "" => format!("No file that git tracks has changed since `{since}`."),
        patch => format!("What has changed since `{since}`:\n\n```diff\n{patch}\n```\n"),
    };
    let text = match untracked.trim_end() {
        "" => patch,
        files => format!(
            "{patch}\nNew files that git does not track, so that the diff lacks them:\n\n```\n{files}\n```\n"
        ),
    };
    let notice = (*omitted_bytes > 0).then(|| {
        format!("the changes since {since} are long; {omitted_bytes} bytes of them are left out")
    });
    PromptSection { text, notices: Vec::from_iter(notice) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A review must not take new files for no change.
    #[test]
    fn untracked_files_are_listed() {
        let section = |patch: &str, untracked: &str| {
            let (patch, untracked) = (patch.to_owned(), untracked.to_owned());
            let since = "HEAD".to_owned();
            diff_section(&WorkspaceDiff { since, patch, omitted_bytes: 0, untracked }).text
        };
        assert_eq!(section("", ""), "Nothing has changed since `HEAD`.");
        let new = section("", "a.py\n");
        assert!(new.starts_with("No file that git tracks has changed"), "{new}");
        assert!(new.ends_with("```\na.py\n```\n"), "{new}");
        assert!(section("+x\n", "a.py\n").contains("+x\n```\n\nNew files"));
    }

    #[test]
    fn git_is_only_found_in_absolute_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("git"), "").unwrap();
        let path = env::join_paths(["", ".", "bin"].map(Path::new)).unwrap();
        assert_eq!(find_git(&path), None);
        let path = env::join_paths([Path::new("."), folder.path()]).unwrap();
        assert_eq!(find_git(&path).unwrap(), folder.path().join("git"));
    }
}
