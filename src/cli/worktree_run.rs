//! The isolated worktree of a run: created before the run, reported and kept or removed after it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use architect::app::{
    AppError, ProcessEnv, Sandbox, SandboxedGit, open_worktrees, worktree_result,
};
use architect::config::Config;
use architect::exec::{SandboxLevel, sweep_caches};
use architect::journal::{JournalError, SessionId, WorkspaceIdentity};
use architect::view::WorktreeResult;
use architect::workspace::worktree::{
    Worktree, WorktreeContent, WorktreeError, WorktreeName, WorktreeRequest, Worktrees,
};
use rustix::fs::OFlags;

use super::error::CliError;

/// The worktree of a run. An unchanged worktree is removed when this value is dropped, which must be after everything
/// that runs in it.
pub(crate) struct WorktreeRun {
    worktrees: Worktrees,
    worktree: Option<Worktree>,
}

/// Cleans up after killed runs.
pub(crate) fn sweep(env: &ProcessEnv) {
    sweep_except(env, None);
}

/// Cleans up after killed runs, except worktrees that a batch in this folder continues.
pub(crate) fn sweep_except(env: &ProcessEnv, batches: Option<&Path>) {
    if let Some(state) = env.folders().state {
        sweep_caches(&state.join("caches"));
    }
    let Ok(worktrees) = open_worktrees(env) else { return };
    if worktrees.exist() {
        worktrees.sweep(batches).iter().for_each(|sentence| log::warn!("{sentence}"));
    }
}

impl WorktreeRun {
    /// Creates a worktree of a configuration's workspace, and makes it the workspace of the configuration.
    ///
    /// # Errors
    ///
    /// Fails if the workspace can't have a worktree.
    pub(crate) fn create(
        config: &mut Config,
        env: &ProcessEnv,
        name: WorktreeName<'_>,
        content: WorktreeContent<'_>,
    ) -> Result<Self, CliError> {
        let worktrees = open_worktrees(env)?;
        let confined = SandboxedGit { config, env };
        let workspace = config.workspace.clone();
        let request = WorktreeRequest { workspace: &workspace, name, content };
        let worktree = worktrees.create(&request, &confined)?;
        worktree.notices().iter().for_each(|note| log::warn!("{note}"));
        Ok(Self::new(worktrees, worktree, config))
    }

    /// Opens the worktree of a stored session with this workspace; `None` if the workspace is not a worktree.
    ///
    /// # Errors
    ///
    /// Fails if the worktree is removed or in use.
    pub(crate) fn reopen(
        session: SessionId,
        workspace: &Path,
        env: &ProcessEnv,
    ) -> Result<Option<Self>, CliError> {
        let Ok(worktrees) = open_worktrees(env) else { return Ok(None) };
        let worktree = match worktrees.reopen(workspace) {
            Err(error @ WorktreeError::Removed { .. }) => {
                return Err(CliError::from(error)
                    .hint(format!(
                        "`architect resume {session} --workspace DIR` resumes in another folder"
                    ))
                    .hint("`architect run --worktree` makes a new worktree; an unchanged one is removed when its run ends"));
            }
            worktree => worktree?,
        };
        Ok(worktree.map(|worktree| Self { worktrees, worktree: Some(worktree) }))
    }

    /// Opens the worktree that a workflow has created before, or creates it. The marker file exists if it was created
    /// before.
    ///
    /// # Errors
    ///
    /// Fails if the workspace can't have a worktree, if another run has one with that name, or if it is in use.
    pub(crate) fn open_or_create(
        config: &mut Config,
        env: &ProcessEnv,
        (name, marker): (&str, &Path),
        content: WorktreeContent<'_>,
    ) -> Result<Self, CliError> {
        let worktrees = open_worktrees(env)?;
        let workspace = config.real_workspace();
        let is_own = marker.exists();
        match worktrees.open(&workspace, name) {
            Ok(worktree) if is_own => return Ok(Self::new(worktrees, worktree, config)),
            // Creating the worktree fails with the reason.
            Ok(_) | Err(WorktreeError::Unknown(_) | WorktreeError::Removed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        sweep(env);
        let failed =
            |error| CliError::failed(format!("could not write {}: {error}", marker.display()));
        let made = Self::create(config, env, WorktreeName::Given(name), content);
        if made.is_ok() {
            // A command may have put a link there, if the folder is in its workspace.
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = File::options();
            options.write(true).create(true).truncate(true).custom_flags(flags);
            let mut file = options.open(marker).map_err(failed)?;
            file.write_all(name.as_bytes()).map_err(failed)?;
        }
        made
    }

    fn new(worktrees: Worktrees, worktree: Worktree, config: &mut Config) -> Self {
        let run = Self { worktrees, worktree: Some(worktree) };
        run.enter(config);
        run
    }

    /// Makes the worktree the workspace of a configuration. Settings and trust stay those of the user's workspace.
    pub(crate) fn enter(&self, config: &mut Config) {
        if let Some(worktree) = &self.worktree {
            config.workspace = worktree.workspace();
        }
    }

    /// Returns the workspace from which the worktree was created.
    pub(crate) fn origin(&self) -> Option<&Path> {
        self.worktree.as_ref().map(Worktree::origin)
    }

    /// Stores the session that works in the worktree.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be written.
    pub(crate) fn use_for(&mut self, session: Option<SessionId>) -> Result<(), CliError> {
        match &mut self.worktree {
            Some(worktree) => Ok(worktree.use_for(session.map(|id| id.to_string()))?),
            None => Ok(()),
        }
    }

    /// Keeps the worktree for a session that works in it later.
    ///
    /// # Errors
    ///
    /// Fails if the record can't be written.
    pub(crate) fn keep_for(mut self, session: SessionId) -> Result<(), CliError> {
        match self.worktree.take() {
            Some(worktree) => Ok(worktree.keep_for(session.to_string())?),
            None => Ok(()),
        }
    }

    /// Returns the identity of the worktree as a workspace.
    pub(crate) fn identity(&self) -> Option<Result<WorkspaceIdentity, JournalError>> {
        let worktree = self.worktree.as_ref()?;
        let origin = Some(worktree.origin().to_owned());
        let found = WorkspaceIdentity::inspect(&worktree.workspace());
        Some(found.map(|identity| WorkspaceIdentity { origin, ..identity }))
    }

    /// Returns the name of the worktree.
    pub(crate) fn name(&self) -> &str {
        self.worktree.as_ref().map_or("", Worktree::name)
    }

    /// Returns the description of the worktree, for the result of the run.
    pub(crate) fn result(&self) -> Option<WorktreeResult> {
        let worktree = self.worktree.as_ref()?;
        Some(worktree_result(worktree))
    }
}

/// Warns if the commands of a run are not confined and can write outside the worktree.
///
/// # Errors
///
/// Fails if no command can be run.
pub(crate) fn warn_if_unconfined(sandbox: &Sandbox) -> Result<(), CliError> {
    let enforced = sandbox.model.enforcement().map_err(AppError::from)?;
    if enforced.level == SandboxLevel::None {
        let reason = match enforced.reason {
            Some(reason) => format!("commands can't be confined on this system ({reason})"),
            None => "confinement is off".to_owned(),
        };
        log::warn!(
            "{reason}: commands of this run can write outside of its worktree; `--set sandbox.required=true` refuses to run then"
        );
    }
    Ok(())
}

impl Drop for WorktreeRun {
    fn drop(&mut self) {
        let Some(worktree) = self.worktree.take() else { return };
        if let Err(error) = self.worktrees.finish(worktree) {
            log::warn!("{error}");
        }
    }
}

impl From<WorktreeError> for CliError {
    fn from(error: WorktreeError) -> Self {
        let hints: &[&str] = match &error {
            WorktreeError::NameTaken { .. } => {
                &["without a name, one is generated; `architect worktrees` lists the worktrees"]
            }
            WorktreeError::BranchInTheWay(_) => {
                &["rename that branch: git branch -m architect another-name"]
            }
            WorktreeError::InvalidName(_) => &[
                "a name has letters, digits, '-' and '_', at most 64, and begins with a letter or digit",
            ],
            WorktreeError::InsideTree { .. } => {
                &["XDG_STATE_HOME names another folder for state, outside of the workspace"]
            }
            WorktreeError::NoRepository(_) => &[
                "create one: git init && git add -A && git commit -m 'First commit'",
                "--workspace names another folder",
            ],
            WorktreeError::NoCommit => {
                &["make a commit first: git commit --allow-empty -m 'First commit'"]
            }
            WorktreeError::NoChanges(_) => {
                &["without --with-changes the worktree has the commit that is checked out"]
            }
            WorktreeError::NoSubfolder { .. } => &[
                "commit it; `run --worktree --with-changes` carries it over if git does not ignore it",
            ],
            WorktreeError::Unknown(_) => &["`architect worktrees` lists the worktrees"],
            WorktreeError::HasWork { .. } => &["--force removes it, with its branch"],
            _ => &[],
        };
        // A merge with conflicts, and work that would be lost, are not mistakes in the command line.
        let failure = match &error {
            WorktreeError::Conflicts { .. } | WorktreeError::HasWork { .. } => Self::failed(&error),
            _ if error.is_user_error() => Self::usage(&error),
            _ => Self::failed(&error),
        };
        hints.iter().fold(failure, |failure, hint| failure.hint(*hint))
    }
}
