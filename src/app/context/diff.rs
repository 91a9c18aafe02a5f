//! What has changed in the workspace since a commit, for `--context-git-diff`.

use thiserror::Error;

use super::PromptSection;
use super::git::{self, Git, GitRef, GitRepository};
use crate::exec::{ExecError, Supervisor};
use crate::port::CancellationToken;
use crate::workspace::WorkspaceRoot;

/// What has changed in the workspace since a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceDiff {
    /// The commit, as the user named it.
    pub since: GitRef,
    /// The difference as a patch; its middle is left out when it is long.
    pub patch: String,
    /// Bytes of it that are left out.
    pub omitted_bytes: u64,
}

/// Why it is not known what has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The workspace is in no repository.
    #[error("{0} is not in a git repository")]
    NoRepository(String),
    /// There is no such commit.
    #[error("there is no commit '{0}' in the repository of the workspace")]
    UnknownCommit(String),
    /// Git failed.
    #[error("git could not show what has changed: {0}")]
    GitFailed(String),
    /// A filter that would run has a name with which it cannot be turned off.
    #[error("the git configuration of the workspace has filters that cannot be turned off")]
    UnsafeFilterName,
    /// Git could not be started.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// How many bytes are kept of the beginning of a patch, and as many of its end.
const KEPT_BYTES: usize = 32 * 1024;

/// How many bytes of a configuration's names are read. No one writes a configuration with more.
const MAX_CONFIG_NAMES_BYTES: usize = 256 * 1024;

/// Returns what has changed in the workspace since a commit, committed or not. Nothing of the workspace is executed.
///
/// # Errors
///
/// Fails when there is no repository or no such commit, and when git fails or takes too long.
pub fn diff_since(
    git: &Git,
    supervisor: &Supervisor,
    root: &WorkspaceRoot,
    since: &GitRef,
    cancel: &CancellationToken,
) -> Result<WorkspaceDiff, DiffError> {
    let mut repository = GitRepository::new(git, root.path())
        .ok_or_else(|| DiffError::NoRepository(root.path().display().to_string()))?;
    let names = ["config", "--list", "--name-only", "--includes"];
    let names = repository.run(supervisor, &names, MAX_CONFIG_NAMES_BYTES, cancel)?;
    if !names.end.is_success() {
        return Err(DiffError::GitFailed(git::failure_message(&names)));
    }
    if names.stdout.omitted() > 0 || !repository.disable_filters(&names.stdout.text()) {
        return Err(DiffError::UnsafeFilterName);
    }
    let commit = format!("{}^{{commit}}", since.as_str());
    let question = ["rev-parse", "--verify", "--quiet", &commit];
    let commit = repository.run(supervisor, &question, 256, cancel)?;
    let digest = commit.stdout.text().trim().to_owned();
    if !commit.end.is_success() || !is_object_id(&digest) {
        return Err(DiffError::UnknownCommit(since.as_str().to_owned()));
    }
    let question = [
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--ignore-submodules=dirty",
        "--submodule=short",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        "--relative",
        &digest,
        "--",
        ".",
    ];
    let diff = repository.run(supervisor, &question, KEPT_BYTES, cancel)?;
    if !diff.end.is_success() {
        return Err(DiffError::GitFailed(git::failure_message(&diff)));
    }
    let (patch, omitted) = (diff.stdout.text(), diff.stdout.omitted());
    Ok(WorkspaceDiff { since: since.clone(), patch, omitted_bytes: omitted })
}

fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the changes as the model reads them.
pub(super) fn diff_section(changes: &WorkspaceDiff) -> PromptSection {
    let since = changes.since.as_str();
    let patch = changes.patch.trim_end();
    if patch.is_empty() {
        return PromptSection {
            text: format!("Nothing has changed since `{since}`."),
            ..PromptSection::default()
        };
    }
    let text = format!("What has changed since `{since}`:\n\n```diff\n{patch}\n```\n");
    let omitted = changes.omitted_bytes;
    let notice =
        format!("the changes since {since} are long; {omitted} bytes of them are left out");
    PromptSection { text, notices: Vec::from_iter((omitted > 0).then_some(notice)) }
}
