//! What has changed in the workspace since a commit, for `--context-git-diff`.

use thiserror::Error;

use super::Section;
use super::git::{self, Git, GitRef, Repository};
use crate::exec::{ExecError, Supervisor};
use crate::port::Cancel;
use crate::workspace::Root;

/// What has changed in the workspace since a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The commit, as the user named it.
    pub since: GitRef,
    /// The difference as a patch; its middle is left out when it is long.
    pub patch: String,
    /// Bytes of it that are left out.
    pub omitted: u64,
}

/// Why it is not known what has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The workspace is in no repository.
    #[error("{0} is not in a git repository")]
    NoRepository(String),
    /// There is no such commit.
    #[error("there is no commit '{0}' in the repository of the workspace")]
    Unknown(String),
    /// Git said no.
    #[error("git could not tell what has changed: {0}")]
    Failed(String),
    /// A filter that would run has a name with which it cannot be turned off.
    #[error("the git configuration of the workspace has filters that cannot be turned off")]
    Filters,
    /// Git could not be started.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// How many bytes are kept of the beginning of a patch, and as many of its end.
const KEEP: usize = 32 * 1024;

/// How many bytes of a configuration's names are read. A configuration with more is none that somebody wrote.
const NAMES: usize = 256 * 1024;

/// Returns what has changed in the workspace since a commit, committed or not. Nothing of the workspace is executed.
///
/// # Errors
///
/// Fails when there is no repository or no such commit, and when git fails or takes too long.
pub fn changes(
    git: &Git,
    supervisor: &Supervisor,
    root: &Root,
    since: &GitRef,
    cancel: &Cancel,
) -> Result<Changes, ChangesError> {
    let mut repository = Repository::new(git, root.path())
        .ok_or_else(|| ChangesError::NoRepository(root.path().display().to_string()))?;
    let names = ["config", "--list", "--name-only", "--includes"];
    let names = repository.ask(supervisor, &names, NAMES, cancel)?;
    if !names.end.is_success() {
        return Err(ChangesError::Failed(git::complaint(&names)));
    }
    if names.stdout.omitted() > 0 || !repository.without_filters(&names.stdout.text()) {
        return Err(ChangesError::Filters);
    }
    let commit = format!("{}^{{commit}}", since.as_str());
    let question = ["rev-parse", "--verify", "--quiet", &commit];
    let commit = repository.ask(supervisor, &question, 256, cancel)?;
    let digest = commit.stdout.text().trim().to_owned();
    if !commit.end.is_success() || !is_digest(&digest) {
        return Err(ChangesError::Unknown(since.as_str().to_owned()));
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
    let diff = repository.ask(supervisor, &question, KEEP, cancel)?;
    if !diff.end.is_success() {
        return Err(ChangesError::Failed(git::complaint(&diff)));
    }
    let (patch, omitted) = (diff.stdout.text(), diff.stdout.omitted());
    Ok(Changes { since: since.clone(), patch, omitted })
}

fn is_digest(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the changes as the model reads them.
pub(super) fn section(changes: &Changes) -> Section {
    let since = changes.since.as_str();
    let patch = changes.patch.trim_end();
    if patch.is_empty() {
        return Section {
            text: format!("Nothing has changed since `{since}`."),
            ..Section::default()
        };
    }
    let text = format!("What has changed since `{since}`:\n\n```diff\n{patch}\n```\n");
    let omitted = changes.omitted;
    let notice =
        format!("the changes since {since} are long; {omitted} bytes of them are left out");
    Section { text, notices: Vec::from_iter((omitted > 0).then_some(notice)) }
}
