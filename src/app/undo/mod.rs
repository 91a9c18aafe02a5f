//! Display and undo of a session's changes.

mod recorded_files;
mod state_list;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub use self::recorded_files::{RecordedChanges, RecordedWorkspace, has_changed_files};
pub(super) use self::recorded_files::{has_open_change, verify_checkpoints};
use self::recorded_files::{open_contents, open_contents_of};
use self::state_list::StateList;
use super::checkpoints::{StateRecorder, content_lengths, output_files, scan_options};
use super::error::AppError;
use super::process_env::ProcessEnv;
use super::sandbox::watch_writes;
use crate::config::Config;
use crate::journal::{
    DamagePolicy, JournalError, OpenedSession, SessionId, SessionStore, StoredCheckpoint,
};
use crate::port::CancellationToken;
use crate::types::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, RecordedState, RunActivity, Sha256Digest,
};
use crate::workspace::WorkspaceRoot;
use crate::workspace::checkpoint::{
    ChangePatch, CheckpointError, ForeignChanges, PathChange, PathState, PendingRestore,
    RestoreLog, RestorePlan, Restorer, SkipReason, SkippedEntry, StatCache, WorkspaceScanner,
    copy_beside, remove_leftovers,
};

/// A reason why a state is not restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The session has no recorded states.
    #[error("session {0} has no recorded states of its files{1}")]
    NothingRecorded(SessionId, String),
    /// The session made no call that may change a file.
    #[error("session {0} has changed no files")]
    NothingChanged(SessionId),
    /// No state is recorded for this record.
    #[error("the files just after record {seq} are not recorded: {reason}")]
    NotRecorded {
        /// The record.
        seq: u64,
        /// The reason.
        reason: String,
    },
    /// The state before a step should have been recorded, and could not be.
    #[error(
        "the files before step {step} are not recorded: {reason}; --to {next} restores the next recorded state"
    )]
    StepNotRecorded {
        /// The step.
        step: u32,
        /// The reason.
        reason: Arc<str>,
        /// The record with the next state.
        next: u64,
    },
    /// The session has no such record.
    #[error("session {session} has no record {seq}; its last one is {last}")]
    NoRecord {
        /// The session.
        session: SessionId,
        /// The record.
        seq: u64,
        /// The last record.
        last: u64,
    },
    /// The session has no such step.
    #[error("session {session} has no step {step}; its last one is {last}")]
    NoStep {
        /// The session.
        session: SessionId,
        /// The step.
        step: u32,
        /// The last step.
        last: u32,
    },
    /// The path of the workspace now contains a link.
    #[error("the workspace {} of the session has become a link to {}", .path.display(), .real.display())]
    Link {
        /// The workspace.
        path: PathBuf,
        /// The target of the link.
        real: PathBuf,
    },
    /// Another process restores files in the workspace.
    #[error("another process restores files in {}", .0.display())]
    Busy(PathBuf),
    /// An interrupted restore can't be completed.
    #[error("an interrupted undo in {} can't be completed: {reason}", .workspace.display())]
    Interrupted {
        /// The workspace.
        workspace: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl UndoError {
    /// Returns whether the user can fix it with other arguments.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::NothingRecorded(..)
            | Self::NothingChanged(_)
            | Self::NotRecorded { .. }
            | Self::StepNotRecorded { .. }
            | Self::NoRecord { .. }
            | Self::NoStep { .. }
            | Self::Link { .. } => true,
            Self::Busy(_) | Self::Interrupted { .. } => false,
        }
    }
}

/// The state to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoTarget {
    /// The state before the last change of the session's files.
    LastChange,
    /// The state before the first change.
    Start,
    /// The state before a step.
    Step(u32),
    /// The state just after a record.
    Record(u64),
}

/// The result of undoing a whole session.
#[derive(Debug, Default)]
pub struct UndoneSession {
    /// The restored paths.
    pub restored: Vec<PathBuf>,
    /// The copies of files that others have changed since, and of files that were saved during the restore.
    pub copies: Vec<PathBuf>,
    /// The paths that could not be restored, with the reason, except those that the user has left out. If there are
    /// any, nothing was restored.
    pub unrestorable: Vec<(PathBuf, String)>,
}

/// Undoes all changes of a session, or none, and keeps a copy of each file that others have changed since.
///
/// Also completes a restore that was interrupted by a kill, so the function can be called again.
///
/// # Errors
///
/// Fails if a file can't be restored. In that case, the files are as before.
pub fn undo_whole_session(
    config: &Config,
    env: &ProcessEnv,
    store: &SessionStore,
    session: SessionId,
) -> Result<UndoneSession, AppError> {
    complete_pending_restore(store, &config.workspace, config, env)?;
    let (history, _) = store.load(session)?;
    let is_failed = history.checkpoints.iter().any(StoredCheckpoint::is_failed);
    let _watch = watch_writes(config, env, &config.workspace);
    if is_failed {
        let why = "not all of its states could be recorded".to_owned();
        let unrestorable = vec![(config.workspace.clone(), why)];
        return Ok(UndoneSession { unrestorable, ..UndoneSession::default() });
    }
    let mut undo = match UndoSession::open(config, env, store, session) {
        Err(AppError::Undo(UndoError::NothingRecorded(..) | UndoError::NothingChanged(_))) => {
            return Ok(UndoneSession::default());
        }
        undo => undo?,
    };
    let Some(plan) = undo.plan(UndoTarget::Start, ForeignChanges::KeepCopies)? else {
        return Ok(UndoneSession::default());
    };
    let refused = plan.unrestorable.iter().filter(|it| !it.is_expected);
    let unrestorable: Vec<_> = refused.map(|it| (it.path.clone(), it.reason.clone())).collect();
    if !unrestorable.is_empty() {
        return Ok(UndoneSession { unrestorable, ..UndoneSession::default() });
    }
    if plan.changes.is_empty() {
        return Ok(UndoneSession::default());
    }
    let restored = plan.changes.iter().map(|change| change.path.clone()).collect();
    let kept = undo.restore(&plan)?;
    let copies = [kept.copies, kept.saved].concat();
    Ok(UndoneSession { restored, copies, unrestorable: Vec::new() })
}

/// A session that is open for an undo. No other process can run it, or restore files in its workspace.
pub struct UndoSession {
    opened: OpenedSession,
    recorder: StateRecorder,
    cache: StatCache,
    log: RestoreLog,
    root: WorkspaceRoot,
    now: RecordedState,
    is_open: bool,
}

impl UndoSession {
    /// Opens a session, and records the present state of its files.
    ///
    /// # Errors
    ///
    /// Fails if the session has no recorded states, if a process runs it, and on an I/O error.
    pub fn open(
        config: &Config,
        env: &ProcessEnv,
        store: &SessionStore,
        session: SessionId,
    ) -> Result<Self, AppError> {
        let opened = store.reopen(session, DamagePolicy::Refuse)?;
        let history = &opened.history;
        let list = StateList::new(history)?;
        let path = history.setup.workspace.root.clone();
        let root = WorkspaceRoot::open(&path)
            .map_err(|cause| AppError::Workspace { path: path.clone(), cause })?;
        // A command of a later session may have made the link.
        if root.path() != path {
            return Err(UndoError::Link { real: root.path().to_owned(), path }.into());
        }
        let log = RestoreLog::open(&store.root().join("undo"), root.path(), store.durability())?;
        let log = log.ok_or(UndoError::Busy(path))?;
        remove_leftovers(&root);
        let options = scan_options(config, &root, store);
        let cache = StatCache::new(&store.root().join("workspaces"), root.path(), &options);
        let contents = open_contents(store, history)?;
        let lengths = content_lengths(history);
        let mut recorder = StateRecorder::open(&root, options, &cache, contents, lengths)?;
        recorder.scanner.leave_out(output_files(config, env));
        let now = recorder.record(&CancellationToken::new())?;
        let is_open = list.is_open();
        Ok(Self { opened, recorder, cache, log, root, now, is_open })
    }

    /// Returns whether the session's last change has no recorded end, so that all later changes count as its own.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Path {
        self.root.path()
    }

    /// Plans an undo; `None` if the session has changed nothing.
    ///
    /// # Errors
    ///
    /// Fails if there is no such state.
    pub fn plan(
        &mut self,
        target: UndoTarget,
        foreign: ForeignChanges,
    ) -> Result<Option<RestorePlan>, AppError> {
        let now = tree_of(&self.now)?;
        let list = StateList::new(&self.opened.history)?;
        let store = &mut self.recorder.store;
        let Some(intervals) = list.resolve(target, now, store)? else { return Ok(None) };
        let plan = store.plan_restore(&now, &intervals, foreign)?;
        self.recorder.lengths = store.commit()?;
        Ok(Some(plan))
    }

    /// Returns the existing files that are not recorded, except the data of version control systems and of this
    /// program.
    ///
    /// # Errors
    ///
    /// Fails if a content is missing or damaged.
    pub fn left_out(&self) -> Result<Vec<(PathBuf, SkippedEntry)>, AppError> {
        let mut left_out = Vec::new();
        self.recorder.store.walk_tree(&tree_of(&self.now)?, &mut |path, state| {
            if let PathState::LeftOut(skipped) = state
                && !matches!(skipped.reason, SkipReason::Repository | SkipReason::Own)
            {
                left_out.push((path.to_owned(), *skipped));
            }
        })?;
        Ok(left_out)
    }

    /// Returns the patch of a planned change.
    ///
    /// # Errors
    ///
    /// Fails if a content is missing or damaged.
    pub fn patch(&self, change: &PathChange) -> Result<ChangePatch, AppError> {
        Ok(self.recorder.store.patch(change)?)
    }

    /// Restores the files.
    ///
    /// # Errors
    ///
    /// Fails if a file was changed since the plan, or can't be restored. In that case, the files are as before.
    pub fn restore(mut self, plan: &RestorePlan) -> Result<KeptFiles, AppError> {
        let now = self.recorder.record(&CancellationToken::new())?;
        if tree_of(&now)? != plan.now {
            let changes = self.recorder.store.changes(&plan.now, &tree_of(&now)?)?;
            let path = changes.first().map_or_else(String::new, |it| it.path.display().to_string());
            return Err(CheckpointError::ChangedMeanwhile(path).into());
        }
        let mut copies = Vec::new();
        let restored = self.restore_beside_copies(plan, now, &mut copies);
        if restored.is_err() {
            for path in &copies {
                log::warn!("a copy was made before the undo failed, and stays: {}", path.display());
            }
        }
        Ok(KeptFiles { saved: restored?, copies })
    }

    /// Copies the files that others have changed, and restores the files. Returns the files that were saved meanwhile.
    fn restore_beside_copies(
        &mut self,
        plan: &RestorePlan,
        now: RecordedState,
        copies: &mut Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, AppError> {
        for path in &plan.copies {
            let copy = copy_beside(&self.root, path).map_err(|cause| AppError::System {
                what: "keep a copy of a file",
                cause: format!("{}: {cause}", path.display()),
            })?;
            copies.push(copy);
        }
        let step = self.opened.history.machine.state.run().steps;
        let (kind, since) = (CheckpointKind::BeforeUndo, RunActivity::Unknown);
        let outcome = CheckpointOutcome::Recorded(now);
        self.opened.write_checkpoint(CheckpointRecord {
            kind,
            step,
            since,
            target: None,
            outcome,
        })?;
        let pending = PendingRestore {
            session: self.opened.history.header.session.to_string(),
            workspace: self.root.path().to_owned(),
            from: plan.now.to_string().into(),
            to: plan.result.to_string().into(),
            target: None,
            step,
            contents: self.recorder.lengths.clone(),
            options: self.recorder.scanner.options().clone(),
            staging: PendingRestore::staging_name(),
        };
        self.log.begin(&pending)?;
        let durability = self.log.durability();
        let StateRecorder { scanner, store, .. } = &mut self.recorder;
        let mut restorer = Restorer::new(scanner, store, durability, &pending.staging);
        let restored = restorer.restore(&plan.now, &plan.result);
        let saved = restorer.kept().to_vec();
        if let Err(error) = restored {
            for path in &saved {
                log::warn!("a file was saved during the undo: it is now {}", path.display());
            }
            if !matches!(error, CheckpointError::HalfRestored { .. }) {
                self.log.finish()?;
            }
            return Err(error.into());
        }
        self.opened.write_checkpoint(restored_record(&pending, &mut self.recorder, copies)?)?;
        self.log.finish()?;
        let StateRecorder { scanner, store, lengths } = &self.recorder;
        self.cache.save(scanner, store, lengths);
        Ok(saved)
    }
}

/// Files with changes of others that a restore has kept beside the replaced files.
pub struct KeptFiles {
    /// Copies of files that were changed before the restore.
    pub copies: Vec<PathBuf>,
    /// Files that were saved during the restore.
    pub saved: Vec<PathBuf>,
}

/// Returns the record of the restored state, without changes that others made meanwhile. The copies are part of the
/// state.
fn restored_record(
    pending: &PendingRestore,
    recorder: &mut StateRecorder,
    copies: &[PathBuf],
) -> Result<CheckpointRecord, CheckpointError> {
    let mut state = recorder.record(&CancellationToken::new())?;
    let present = tree_of(&state)?;
    if let Ok(result) = pending.to.parse() {
        let tree = recorder.store.without_foreign(&present, &result, copies)?;
        if tree != present {
            recorder.lengths = recorder.store.commit()?;
            state.tree = tree.to_string().into();
            state.contents = recorder.lengths.clone();
        }
    }
    Ok(CheckpointRecord {
        kind: CheckpointKind::Restored,
        step: pending.step,
        since: RunActivity::Unknown,
        target: pending.target,
        outcome: CheckpointOutcome::Recorded(state),
    })
}

fn tree_of(state: &RecordedState) -> Result<Sha256Digest, CheckpointError> {
    let damaged = |_| CheckpointError::Damaged("the digest of a tree is invalid".to_owned());
    state.tree.parse().map_err(damaged)
}

/// A restore that was interrupted by a kill and is now complete.
pub struct CompletedRestore {
    /// The session.
    pub session: SessionId,
    /// Whether no file was changed or saved by others meanwhile.
    pub is_undisturbed: bool,
}

/// Completes an interrupted restore of files in this workspace, logs a warning, and returns its description.
///
/// # Errors
///
/// Fails if the restore can't be completed.
pub fn complete_pending_restore(
    store: &SessionStore,
    workspace: &Path,
    config: &Config,
    env: &ProcessEnv,
) -> Result<Option<CompletedRestore>, AppError> {
    let folder = store.root().join("undo");
    if !RestoreLog::is_pending(&folder, workspace) {
        return Ok(None);
    }
    let _watch = watch_writes(config, env, workspace);
    let log = RestoreLog::open(&folder, workspace, store.durability())?;
    let log = log.ok_or_else(|| UndoError::Busy(workspace.to_owned()))?;
    let Some(pending) = log.pending()? else { return Ok(None) };
    let interrupted =
        |reason: String| UndoError::Interrupted { workspace: workspace.to_owned(), reason };
    let session: SessionId = pending.session.parse().map_err(JournalError::from)?;
    let mut opened = match store.reopen(session, DamagePolicy::Refuse) {
        Ok(opened) => opened,
        Err(JournalError::UnknownSession(_)) => {
            log.finish()?;
            return Err(interrupted(format!("its session {session} was removed")).into());
        }
        Err(error) => return Err(error.into()),
    };
    let root = WorkspaceRoot::open(workspace)
        .map_err(|cause| AppError::Workspace { path: workspace.to_owned(), cause })?;
    let contents = open_contents_of(store, session, &pending.contents)?;
    let mut scanner = WorkspaceScanner::new(&root, pending.options.clone())?;
    scanner.leave_out(output_files(config, env));
    let mut recorder =
        StateRecorder { scanner, store: contents, lengths: pending.contents.clone() };
    let damaged = |_| interrupted("its log is damaged".to_owned());
    let from = pending.from.parse().map_err(damaged)?;
    let to = pending.to.parse().map_err(damaged)?;
    let StateRecorder { scanner, store: contents, .. } = &mut recorder;
    let mut restorer = Restorer::new(scanner, contents, store.durability(), &pending.staging);
    let left = restorer.complete(&from, &to)?;
    let saved = restorer.kept().to_vec();
    let record = restored_record(&pending, &mut recorder, &[])?;
    let last = opened.history.checkpoints.last().map(|found| &found.record);
    if last.is_none_or(|last| last.kind != CheckpointKind::Restored) {
        opened.write_checkpoint(record)?;
    }
    log.finish()?;
    let is_undisturbed = left.is_empty() && saved.is_empty();
    let mut note = format!("An undo of session {session} was interrupted; it is complete now.");
    for path in left {
        note.push_str(&format!("\n  {} was changed meanwhile, and stays", path.display()));
    }
    for path in saved {
        note.push_str(&format!("\n  A file was saved meanwhile: it is now {}", path.display()));
    }
    log::warn!("{note}");
    Ok(Some(CompletedRestore { session, is_undisturbed }))
}
