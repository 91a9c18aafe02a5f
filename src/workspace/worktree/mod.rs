//! Isolated workspaces: a git worktree on its own branch or, without git, a copy of the folder.
//!
//! ```text
//!  STATE/worktrees/ID/NAME.json   the record: claimed and locked by the process that creates, uses or removes it
//!                     NAME/       the worktree, on the branch `architect/NAME`
//!                     NAME.files  digests: of a copy's files at its creation, or of the files that were carried over
//!                     NAME.merging/  a decided merge that is not complete
//!                     NAME.carried/  the original content of the files that were carried over: the base of a merge
//! ```
//!
//! `ID` identifies the repository (or the folder without git), so that all work trees of a repository share the names,
//! like the branches. A worktree is created and removed in steps, and its process may be killed after any step. The
//! record contains the operation that was under way, and [`Worktrees::sweep`] finishes it. A worktree with changes
//! stays until the user removes it; a sweep never removes it.
//!
//! Git runs here without any program that the repository names (`git`). Commands that need the repository's filters run
//! confined ([`ConfinedGit`]): filling the tree, and a fast-forward.

mod changes;
mod create;
mod error;
mod git;
mod merge;
mod merge_log;
mod record;
mod remove;
mod repository;
mod tree_copy;

use std::fmt;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use self::changes::WorktreeChanges;
use self::changes::{
    WorktreeState, copy_state, git_changes, git_state, reveal_files, snapshot, tree_patch,
};
pub use self::create::{FileWriter, RecordedFiles, WorktreeContent, WorktreeName, WorktreeRequest};
pub use self::error::WorktreeError;
pub use self::git::GitProgram;
use self::git::GitTree;
pub use self::merge::MergeOutcome;
use self::record::{
    LockedRecord, RECORD_EXTENSION, RepositoryRecord, WorktreePhase, WorktreeRecord,
};
use self::repository::Repository;
pub(crate) use self::repository::named_folder;
use self::tree_copy::TreeManifest;
use crate::types::{FileChange, hex, pluralize};
use crate::workspace::open_folder::real_path;
use crate::workspace::{IoContext, IoError};

/// The name of the folder of all worktrees, in the state folder.
const WORKTREE_FOLDER: &str = "worktrees";

/// The extension of the file with the digests of a copy.
const MANIFEST_EXTENSION: &str = "files";

/// The extension of the folder with a decided merge.
const MERGE_EXTENSION: &str = "merging";

/// The extension of the folder with the changes that were carried over.
const CARRIED_EXTENSION: &str = "carried";

/// The prefix of the branches of worktrees.
pub const BRANCH_PREFIX: &str = "architect/";

/// A runner of git commands that need the filters of the repository. It confines them, because the repository's
/// configuration names programs.
pub trait ConfinedGit {
    /// Runs a command in a work tree. The command may write the same files as a run in that workspace.
    ///
    /// # Errors
    ///
    /// Fails with the message of git.
    fn run(&self, work_tree: &Path, args: &[&str]) -> Result<(), String>;
}

/// The worktrees of a user.
#[derive(Clone, Debug)]
pub struct Worktrees {
    root: PathBuf,
    git: Option<GitProgram>,
}

/// A worktree that this process uses. No other process can use it until this is dropped.
#[derive(Debug)]
pub struct Worktree {
    folder: PathBuf,
    record: WorktreeRecord,
    locked: LockedRecord,
    /// The work tree; `None` for a copy of a folder without git.
    tree: Option<GitTree>,
    /// Notices about its creation, one sentence each.
    notices: Vec<String>,
}

/// A worktree in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeInfo {
    /// Its name.
    pub name: String,
    /// Its branch; `None` for a copy of a folder without git.
    pub branch: Option<String>,
    /// Its folder.
    pub folder: PathBuf,
    /// The workspace from which it was created.
    pub workspace: PathBuf,
    /// The session that works in it.
    pub session: Option<String>,
    /// Whether a process is using it.
    pub is_used: bool,
    /// Whether it was removed, but not completely.
    pub is_removed: bool,
    /// The changes in it; `None` if they can't be determined.
    pub changes: Option<WorktreeChanges>,
    /// Whether it has work that exists nowhere else.
    pub has_work: bool,
}

impl Worktrees {
    /// Creates the worktrees of a state folder.
    pub fn new(state: &Path, git: Option<GitProgram>) -> Self {
        Self { root: real_path(&state.join(WORKTREE_FOLDER)), git }
    }

    /// Returns whether a worktree was ever created.
    pub fn exist(&self) -> bool {
        self.root.is_dir()
    }

    /// Returns the folder with the worktrees of a project.
    fn project_folder(&self, repository: Option<&Repository>, workspace: &Path) -> PathBuf {
        let named = repository.map_or(workspace, |repository| &repository.common_dir);
        let digest = hex(&Sha256::digest(named.as_os_str().as_bytes()));
        self.root.join(&digest[..16])
    }

    /// Returns the folder with the worktrees of a workspace.
    fn folder_of(&self, workspace: &Path) -> PathBuf {
        // From inside a worktree, the other worktrees of its project are found.
        if let Ok(inside) = workspace.strip_prefix(&self.root)
            && let Some(id) = inside.components().next()
        {
            return self.root.join(id);
        }
        self.project_folder(Repository::find(workspace).as_ref(), workspace)
    }

    /// Returns the worktrees of a workspace's project, sorted by name.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be read.
    pub fn list(&self, workspace: &Path) -> Result<Vec<WorktreeInfo>, WorktreeError> {
        let folder = self.folder_of(workspace);
        let mut listed = Vec::new();
        for path in record_files(&folder) {
            let Ok((Some(record), is_used)) = record::peek(&path) else { continue };
            let folder = path.with_extension("");
            let is_removed = match record.phase {
                WorktreePhase::InUse | WorktreePhase::Kept => false,
                _ if is_used => continue,
                // Entries that the sweep could not remove.
                WorktreePhase::Creating | WorktreePhase::Removing => true,
                WorktreePhase::Applied if remove::hidden_path(&folder).exists() => true,
                WorktreePhase::Applied => continue,
            };
            let examined = match is_removed {
                true => None,
                false => self.examine(&record, &folder).ok(),
            };
            listed.push(WorktreeInfo {
                branch: record.repository.is_some().then(|| record.branch()),
                workspace: record.workspace.clone(),
                session: record.session.clone(),
                is_used,
                is_removed,
                has_work: !is_removed && examined.as_ref().is_none_or(|(_, _, has_work)| *has_work),
                changes: examined.map(|(_, changes, _)| changes),
                name: record.name,
                folder,
            });
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    /// Returns the commit with this name in the repository of a workspace; without a name, the checked-out commit.
    ///
    /// # Errors
    ///
    /// Fails if there is no repository or no such commit.
    pub fn find_commit(
        &self,
        workspace: &Path,
        name: Option<&str>,
    ) -> Result<String, WorktreeError> {
        let commit = self.main_tree(workspace)?.commit(name.unwrap_or("HEAD"))?;
        commit.ok_or_else(|| match name {
            Some(name) => WorktreeError::Git {
                command: "rev-parse".to_owned(),
                message: format!("unknown commit {name}"),
            },
            None => WorktreeError::NoCommit,
        })
    }

    /// Returns whether git tracks something in a folder, so that others may have created its content.
    ///
    /// # Errors
    ///
    /// Fails if git fails.
    pub fn is_tracked(&self, folder: &Path) -> Result<bool, WorktreeError> {
        let folder = folder.canonicalize().io_context("open", folder)?;
        let Some(found) = Repository::find(&folder) else { return Ok(false) };
        let Some(name) = found.subfolder.to_str() else { return Ok(false) };
        let listed = self.main_tree(&folder)?.query(&[
            "ls-files",
            "-z",
            "--",
            &format!(":(literal,top){name}"),
        ])?;
        Ok(!listed.is_empty())
    }

    /// Checks that the folder of a workspace is in a commit of its repository.
    ///
    /// # Errors
    ///
    /// Fails if it is not, and if git fails.
    pub fn check_subfolder(&self, workspace: &Path, commit: &str) -> Result<(), WorktreeError> {
        let tree = self.main_tree(workspace)?;
        let folder = workspace.canonicalize().io_context("open", workspace)?;
        let subfolder = Repository::find(&folder).map(|found| found.subfolder).unwrap_or_default();
        // Git accepts the names of objects only as text. Other names are checked when the worktree is created.
        let Some(name) = subfolder.to_str() else { return Ok(()) };
        let object = format!("{commit}:{name}");
        match tree.line(&["rev-parse", "--verify", "--quiet", &object])? {
            Some(_) => Ok(()),
            None => Err(WorktreeError::NoSubfolder {
                folder: subfolder,
                commit: commit.chars().take(12).collect(),
            }),
        }
    }

    /// Returns the number of files with uncommitted changes in the work tree of a workspace.
    ///
    /// # Errors
    ///
    /// Fails if there is no repository, or if git fails.
    pub fn count_uncommitted(&self, workspace: &Path) -> Result<usize, WorktreeError> {
        let status = ["status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"];
        let listed = self.main_tree(workspace)?.query(&status)?;
        Ok(listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()).count())
    }

    /// Returns the user's work tree that contains a workspace.
    fn main_tree(&self, workspace: &Path) -> Result<GitTree, WorktreeError> {
        let workspace = workspace.canonicalize().io_context("open", workspace)?;
        let repository = Repository::find(&workspace)
            .ok_or_else(|| WorktreeError::NoRepository(workspace.clone()))?;
        let git = self.git.as_ref().ok_or_else(|| WorktreeError::NoGit(workspace.clone()))?;
        GitTree::open(git, &repository.git_dir, repository.top.as_deref())
    }

    /// Opens a worktree of a workspace's project, for this process alone.
    ///
    /// # Errors
    ///
    /// Fails if there is no worktree with this name, or it is gone or in use.
    pub fn open(&self, workspace: &Path, name: &str) -> Result<Worktree, WorktreeError> {
        let unknown = || WorktreeError::Unknown(name.to_owned());
        if !record::is_name(name) {
            return Err(unknown());
        }
        let folder = self.folder_of(workspace).join(name);
        self.open_folder(&folder)?.ok_or_else(unknown)
    }

    /// Opens the worktree that contains this workspace of a session; `None` if the workspace is in no worktree.
    ///
    /// # Errors
    ///
    /// Fails if it is gone or in use.
    pub fn reopen(&self, workspace: &Path) -> Result<Option<Worktree>, WorktreeError> {
        let Ok(inside) = workspace.strip_prefix(&self.root) else { return Ok(None) };
        let mut parts = inside.iter();
        let (Some(id), Some(name)) = (parts.next(), parts.next()) else { return Ok(None) };
        let folder = self.root.join(id).join(name);
        let name = name.to_string_lossy().into_owned();
        let opened = self.open_folder(&folder)?.filter(|_| workspace.is_dir());
        opened.map(Some).ok_or(WorktreeError::Removed { name, folder })
    }

    /// Returns the applied changes of a worktree that is gone since, if its record still exists.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be read.
    pub fn applied(
        &self,
        workspace: &Path,
        name: &str,
    ) -> Result<Option<Vec<FileChange>>, WorktreeError> {
        let path = record_path(&self.folder_of(workspace).join(name));
        if !path.exists() {
            return Ok(None);
        }
        let (record, _) = record::peek(&path)?;
        let record = record.filter(|record| record.phase == WorktreePhase::Applied);
        Ok(record.map(|record| record.changes))
    }

    /// Returns whether git can create a worktree with the uncommitted changes of a workspace.
    pub fn can_isolate(&self, workspace: &Path) -> bool {
        let (Some(git), Some(found)) = (&self.git, Repository::find(workspace)) else {
            return false;
        };
        let tree = GitTree::open(git, &found.git_dir, found.top.as_deref());
        let is_committed = tree.and_then(|tree| tree.commit("HEAD")).is_ok_and(|it| it.is_some());
        is_committed && found.top.is_some() && found.operation().is_none()
    }

    fn open_folder(&self, folder: &Path) -> Result<Option<Worktree>, WorktreeError> {
        let path = record_path(folder);
        if !path.exists() {
            return Ok(None);
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(mut locked) = LockedRecord::lock_patiently(&path)? else {
            return Err(WorktreeError::InUse(name));
        };
        let Some(record) = locked.read()? else { return Ok(None) };
        match record.phase {
            WorktreePhase::InUse | WorktreePhase::Kept if folder.is_dir() => {}
            WorktreePhase::InUse | WorktreePhase::Kept => {
                return Err(WorktreeError::Removed { name, folder: folder.to_owned() });
            }
            WorktreePhase::Creating | WorktreePhase::Removing | WorktreePhase::Applied => {
                return Ok(None);
            }
        }
        let tree = self.tree(&record, folder)?;
        Ok(Some(Worktree { folder: folder.to_owned(), record, locked, tree, notices: Vec::new() }))
    }

    /// Returns the work tree of a record; `None` for a copy.
    fn tree(
        &self,
        record: &WorktreeRecord,
        folder: &Path,
    ) -> Result<Option<GitTree>, WorktreeError> {
        let Some(RepositoryRecord { common_dir, .. }) = &record.repository else { return Ok(None) };
        let git = self.git.as_ref().ok_or_else(|| WorktreeError::NoGit(folder.to_owned()))?;
        let removed =
            || WorktreeError::Removed { name: record.name.clone(), folder: folder.to_owned() };
        let own = repository::linked(common_dir, folder)?.ok_or_else(removed)?;
        GitTree::open(git, &own, Some(folder)).map(Some)
    }

    /// Returns the state of a worktree, the changes in it, and whether they would be lost with it.
    fn examine(
        &self,
        record: &WorktreeRecord,
        folder: &Path,
    ) -> Result<(WorktreeState, WorktreeChanges, bool), WorktreeError> {
        let tree = self.tree(record, folder)?;
        let (state, changes) = examine(record, folder, tree.as_ref(), None)?;
        let has_work = !changes.is_empty()
            && self.loss_of_work(record, folder, tree.as_ref(), &state, &changes)?.is_some();
        Ok((state, changes, has_work))
    }
}

/// Returns the state of a worktree, and the changes in it. With its lock, files count even if git was made to overlook
/// them.
fn examine(
    record: &WorktreeRecord,
    folder: &Path,
    tree: Option<&GitTree>,
    lock: Option<&File>,
) -> Result<(WorktreeState, WorktreeChanges), WorktreeError> {
    if let (Some(repository), Some(tree)) = (&record.repository, tree) {
        if let Some(lock) = lock {
            reveal_files(tree, folder, lock)?;
        }
        let state = git_state(tree, folder, &record.branch())?;
        let changes = git_changes(tree, folder, &state, &repository.base)?;
        return Ok((state, changes));
    }
    let (digest, changes) = copy_state(folder, &read_manifest(folder)?)?;
    Ok((WorktreeState { digest, ..WorktreeState::default() }, changes))
}

impl Worktree {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Returns the branch; `None` for a copy of a folder without git.
    pub fn branch(&self) -> Option<String> {
        self.record.repository.is_some().then(|| self.record.branch())
    }

    /// Returns the session that works or has worked in it.
    pub fn session(&self) -> Option<&str> {
        self.record.session.as_deref()
    }

    /// Returns the folder: the top of the work tree.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the workspace in it: the folder that replaces the original workspace.
    pub fn workspace(&self) -> PathBuf {
        match self.record.subfolder.as_os_str().is_empty() {
            true => self.folder.clone(),
            false => self.folder.join(&self.record.subfolder),
        }
    }

    /// Returns the workspace from which it was created.
    pub fn origin(&self) -> &Path {
        &self.record.workspace
    }

    /// Returns notices about its creation, one sentence each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the temporary files in the user's tree that a merge could not remove. The next merge tries again.
    pub fn leftovers(&self) -> &[PathBuf] {
        &self.record.leftovers
    }

    /// Returns the changes in it, and whether they would be lost with it.
    ///
    /// # Errors
    ///
    /// Fails if git fails.
    pub fn changes(&self) -> Result<(WorktreeChanges, bool), WorktreeError> {
        let (state, changes) =
            examine(&self.record, &self.folder, self.tree.as_ref(), Some(self.locked.file()))?;
        Ok((changes, self.record.has_work(&state.digest)))
    }

    /// Returns the changes in it, and whether it stays when its use ends. Changes that were carried over don't count.
    ///
    /// # Errors
    ///
    /// Fails if git fails.
    pub fn outcome(&self) -> Result<(WorktreeChanges, bool), WorktreeError> {
        let (state, changes) =
            examine(&self.record, &self.folder, self.tree.as_ref(), Some(self.locked.file()))?;
        if !self.record.is_unused(&state.digest) {
            return Ok((changes, true));
        }
        let none = changes.added.map(|_| 0);
        Ok((WorktreeChanges { added: none, removed: none, ..WorktreeChanges::default() }, false))
    }

    /// Keeps the worktree for a session that works in it later.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be written.
    pub fn keep_for(mut self, session: String) -> Result<(), WorktreeError> {
        self.record.session = Some(session);
        self.record.phase = WorktreePhase::Kept;
        Ok(self.locked.write(&self.record)?)
    }

    /// Stores the files in the repository, and returns the id of their tree; `None` for a copy of a folder without git.
    ///
    /// # Errors
    ///
    /// Fails if git fails.
    pub fn snapshot(&self) -> Result<Option<String>, WorktreeError> {
        self.tree.as_ref().map(|tree| snapshot(tree, self.locked.file())).transpose()
    }

    /// Returns the changes since a snapshot as a patch; `None` for a copy of a folder without git.
    ///
    /// # Errors
    ///
    /// Fails if git fails.
    pub fn patch_since(&self, from: &str) -> Result<Option<Vec<u8>>, WorktreeError> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let now = snapshot(tree, self.locked.file())?;
        tree_patch(tree, from, &now).map(Some)
    }

    /// Stores the session that works in it.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be written.
    pub fn use_for(&mut self, session: Option<String>) -> Result<(), WorktreeError> {
        self.record.session = session.or(self.record.session.take());
        self.record.phase = WorktreePhase::InUse;
        Ok(self.locked.write(&self.record)?)
    }

    /// Stores the session of a batch that works in it, and the folder of the batch, which continues the session.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be written.
    pub fn use_for_batch(&mut self, session: String, folder: &Path) -> Result<(), WorktreeError> {
        self.record.batch = Some(real_path(folder));
        self.use_for(Some(session))
    }
}

impl WorktreeRecord {
    /// Returns the branch.
    fn branch(&self) -> String {
        branch_of(&self.name)
    }

    /// Returns whether nothing was changed up to this state.
    fn is_unused(&self, digest: &str) -> bool {
        self.start.as_deref() == Some(digest) && self.merged.is_none()
    }

    /// Returns whether this state has work that exists nowhere else.
    fn has_work(&self, digest: &str) -> bool {
        [&self.start, &self.merged].into_iter().flatten().all(|known| known != digest)
    }
}

impl fmt::Display for WorktreeChanges {
    /// Writes for example `2 commits, 3 files changed (+10 −2), 1 not committed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, files, added, removed, uncommitted } = self;
        if self.is_empty() {
            return f.write_str("no changes");
        }
        if *commits > 0 {
            write!(f, "{}, ", pluralize(*commits, "commit", "commits"))?;
        }
        write!(f, "{} changed", pluralize(*files, "file", "files"))?;
        if let (Some(added), Some(removed)) = (added, removed) {
            write!(f, " (+{added} −{removed})")?;
            if !uncommitted.is_empty() {
                write!(f, ", {} not committed", uncommitted.len())?;
            }
        }
        Ok(())
    }
}

impl WorktreeChanges {
    /// Returns whether nothing differs from the commit at which the branch began.
    pub fn is_empty(&self) -> bool {
        self.commits == 0 && self.files == 0 && self.uncommitted.is_empty()
    }
}

/// Returns whether a workspace is in a worktree of this state folder.
pub fn is_isolated(state: &Path, workspace: &Path) -> bool {
    workspace.starts_with(real_path(&state.join(WORKTREE_FOLDER)))
}

/// Returns the branch of a worktree.
fn branch_of(name: &str) -> String {
    format!("{BRANCH_PREFIX}{name}")
}

/// Returns the records in the folder of a project.
fn record_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == RECORD_EXTENSION)).collect()
}

/// Returns the path of the record of a worktree. Names have no dots, so that no two worktrees share a record.
fn record_path(folder: &Path) -> PathBuf {
    folder.with_extension(RECORD_EXTENSION)
}

fn read_manifest(folder: &Path) -> Result<TreeManifest, IoError> {
    let path = folder.with_extension(MANIFEST_EXTENSION);
    let text = fs::read(&path).io_context("read", &path)?;
    serde_json::from_slice(&text).io_context("read", &path)
}
