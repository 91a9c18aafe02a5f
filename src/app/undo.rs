//! Restores what a session has changed, and shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use thiserror::Error;

use super::checkpoints::{OWN_FOLDERS, StateRecorder, content_lengths, scan_options};
use super::error::AppError;
use super::process_env::ProcessEnv;
use super::sandbox::watch_writes;
use crate::config::Config;
use crate::journal::{
    AuthorizedEdit, DamagePolicy, JournalError, OpenedSession, SessionHistory, SessionId,
    SessionStore, StoredCheckpoint,
};
use crate::model::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, Durability, RecordedState, RunActivity,
};
use crate::port::{CancellationToken, lock};
use crate::workspace::WorkspaceRoot;
use crate::workspace::checkpoint::{
    AuthoredChange, ChangeAuthor, ChangeInterval, ChangePatch, CheckpointError, ContentHash,
    ContentStore, ForeignChanges, PathChange, PathState, PendingRestore, RestoreLog, RestorePlan,
    Restorer, ScanOptions, SkipReason, SkippedEntry, StatCache, ToolEdit, WorkspaceScanner,
    copy_beside, remove_leftovers,
};
use crate::workspace::worktree::FileWriter;

/// Why a state is not restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The session has no recorded states.
    #[error("session {0} has no recorded states of its files{1}")]
    NothingRecorded(SessionId, String),
    /// No state is recorded for this record.
    #[error("the files just after record {seq} are not recorded: {reason}")]
    NotRecorded {
        /// The record.
        seq: u64,
        /// The reason.
        reason: String,
    },
    /// The state before a step was to be recorded, and could not be.
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
        /// The last one.
        last: u64,
    },
    /// The session has no such step.
    #[error("session {session} has no step {step}; its last one is {last}")]
    NoStep {
        /// The session.
        session: SessionId,
        /// The step.
        step: u32,
        /// The last one.
        last: u32,
    },
    /// A link is on the way to the workspace now.
    #[error("the workspace {} of the session has become a link to {}", .path.display(), .real.display())]
    Link {
        /// The workspace.
        path: PathBuf,
        /// Where the link leads.
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
            | Self::NotRecorded { .. }
            | Self::StepNotRecorded { .. }
            | Self::NoRecord { .. }
            | Self::NoStep { .. }
            | Self::Link { .. } => true,
            Self::Busy(_) | Self::Interrupted { .. } => false,
        }
    }
}

/// The state to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoTarget {
    /// Before the last change of the session's files.
    LastChange,
    /// Before the first one.
    Start,
    /// Before a step.
    Step(u32),
    /// Just after a record.
    Record(u64),
}

/// The recorded states of a session.
struct StateList<'a> {
    history: &'a SessionHistory,
    /// Those that were recorded, with their trees.
    states: Vec<(&'a StoredCheckpoint, ContentHash)>,
}

impl<'a> StateList<'a> {
    fn new(history: &'a SessionHistory) -> Result<Self, AppError> {
        // The contents of an imported session stayed where it came from.
        let imported = history.header.imported_up_to;
        let states = history.checkpoints.iter().filter_map(|found| {
            let tree = ContentHash::parse(&found.record.state()?.tree)?;
            imported.is_none_or(|last| found.seq > last).then_some((found, tree))
        });
        let mut states: Vec<_> = states.collect();
        // An undo that was not made.
        while states.pop_if(|(found, _)| found.record.kind == CheckpointKind::BeforeUndo).is_some()
        {
        }
        if states.is_empty() {
            let failed = history.checkpoints.iter().find_map(|found| match &found.record.outcome {
                CheckpointOutcome::Failed(reason) => Some(format!(": {reason}")),
                CheckpointOutcome::Recorded(_) => None,
            });
            let reason = match (&history.header.dispatched_by, failed) {
                (Some(parent), _) => format!("; those of {} have them", parent.session),
                (None, _) if history.is_imported_setup() => "; an import contains none".to_owned(),
                (None, Some(failed)) => failed,
                (None, None) => ": it changed nothing, or checkpoints.enabled was false".into(),
            };
            return Err(UndoError::NothingRecorded(history.header.session, reason).into());
        }
        Ok(Self { history, states })
    }

    /// Returns what happened after each state, until the next one or `now`.
    fn intervals(
        &self,
        now: Option<ContentHash>,
    ) -> impl Iterator<Item = (ChangeInterval, &'a StoredCheckpoint)> {
        let next = self.states.iter().skip(1).map(|(next, tree)| (Some(*next), *tree));
        let pairs = self.states.iter().zip(next.chain(now.map(|now| (None, now))));
        pairs.map(|((found, from), (next, to))| {
            let author = self.author(found, next);
            (ChangeInterval { from: *from, to, author }, *found)
        })
    }

    /// Returns the author of what has changed after a state.
    fn author(&self, found: &StoredCheckpoint, next: Option<&StoredCheckpoint>) -> ChangeAuthor {
        let of_kind = |is_own| if is_own { ChangeAuthor::Session } else { ChangeAuthor::Others };
        if self.is_inherited(found) {
            return ChangeAuthor::Others;
        }
        match next.map_or(RunActivity::Unknown, |next| next.record.since) {
            RunActivity::Idle | RunActivity::Checks => ChangeAuthor::Others,
            RunActivity::Commands => ChangeAuthor::Session,
            RunActivity::Edits => {
                let to = next.map_or(u64::MAX, |next| next.seq);
                ChangeAuthor::Tools(self.tool_edits(found.seq, to))
            }
            RunActivity::Unknown => {
                // An undo that failed has no restored state.
                let is_made = found.record.kind != CheckpointKind::BeforeUndo
                    || next.is_some_and(|next| next.record.kind == CheckpointKind::Restored);
                let to = next.map_or(u64::MAX, |next| next.seq);
                let is_failed = self.failed_steps(found.seq, to).next().is_some();
                of_kind(found.record.kind.is_before_change() && is_made || is_failed)
            }
        }
    }

    /// Returns the changes of files that tools may have made between two records.
    fn tool_edits(&self, from: u64, to: u64) -> Vec<ToolEdit> {
        let mut edits: Vec<&AuthorizedEdit> = self.history.edits.iter().collect();
        edits.retain(|edit| {
            edit.authorized < to && edit.completed.is_none_or(|(seq, _)| seq > from)
        });
        edits.sort_by_key(|edit| edit.completed.map_or(u64::MAX, |(seq, _)| seq));
        let hash = |digest: &Option<Arc<str>>| digest.as_deref().and_then(ContentHash::parse);
        let files = edits.into_iter().flat_map(|edit| {
            let is_made = edit.completed.is_some_and(|(_, is_made)| is_made);
            edit.files.iter().map(move |file| ToolEdit {
                path: (*file.path).into(),
                before: hash(&file.before),
                after: hash(&file.after),
                is_made,
            })
        });
        files.collect()
    }

    /// Returns the intervals in which the session may have changed files.
    fn own_intervals(&self) -> impl Iterator<Item = (ChangeInterval, &'a StoredCheckpoint)> {
        let intervals = self.intervals(None);
        intervals.filter(|(interval, _)| interval.author != ChangeAuthor::Others)
    }

    /// Returns whether the session's last change has no recorded end: its process was killed, or records failed.
    fn is_open(&self) -> bool {
        let is_open = |(found, _): &(&StoredCheckpoint, _)| {
            let is_failed = self.failed_steps(found.seq, u64::MAX).next().is_some();
            (found.record.kind == CheckpointKind::Step || is_failed) && !self.is_inherited(found)
        };
        self.states.last().is_some_and(is_open)
    }

    /// Returns the session's own records between two others that were to have the state before a step, and failed.
    fn failed_steps(&self, from: u64, to: u64) -> impl Iterator<Item = &'a CheckpointRecord> {
        let header = &self.history.header;
        let inherited = header.ancestry.map_or(0, |parent| parent.seq);
        let first = from.max(inherited).max(header.imported_up_to.unwrap_or(0));
        let between =
            self.history.checkpoints.iter().filter(move |it| it.seq > first && it.seq < to);
        let failed = between.filter(|it| it.is_failed() && it.record.kind == CheckpointKind::Step);
        failed.map(|it| &it.record)
    }

    /// Returns the error of the first step, from this one on, whose earlier state was to be recorded before a state, and is not.
    fn missing_before(&self, index: usize, step: u32) -> Option<UndoError> {
        let next = self.states[index].0.seq;
        let failed = self.failed_steps(0, next).find(|it| it.step >= step)?;
        let CheckpointOutcome::Failed(reason) = &failed.outcome else { return None };
        Some(UndoError::StepNotRecorded { step: failed.step, reason: Arc::clone(reason), next })
    }

    /// Fails if the state before the session's first change is not recorded.
    fn check_start(&self) -> Result<(), UndoError> {
        self.missing_before(0, 0).map_or(Ok(()), Err)
    }

    /// Returns whether the next change after a state is not that of a fork, but of its original.
    fn is_inherited(&self, found: &StoredCheckpoint) -> bool {
        let Some(parent) = self.history.header.ancestry else { return false };
        let next = self.states.iter().find(|(next, _)| next.seq > found.seq);
        found.seq <= parent.seq && next.is_none_or(|(next, _)| next.seq > parent.seq)
    }

    /// Returns the number of the state just after a record.
    fn after_record(&self, seq: u64) -> Result<usize, AppError> {
        let (session, last) = (self.history.header.session, self.history.last_seq);
        if seq > last {
            return Err(UndoError::NoRecord { session, seq, last }.into());
        }
        let changes = &self.history.change_records;
        let is_changed = |from: u64, to: u64| changes.iter().any(|at| (from..to).contains(at));
        let next = self.states.partition_point(|(found, _)| found.seq <= seq);
        let before = next.checked_sub(1).and_then(|last| self.states.get(last));
        let after = self.states.get(next);
        if let Some((found, _)) = before
            && !is_changed(found.seq + 1, seq + 1)
        {
            return Ok(next - 1);
        }
        if let Some((found, _)) = after
            && !is_changed(seq + 1, found.seq)
        {
            return Ok(next);
        }
        let near: Vec<String> = [before, after]
            .into_iter()
            .flatten()
            .map(|(found, _)| format!("record {}", found.seq))
            .collect();
        let reason = match after {
            None => "the session ended without recording them".to_owned(),
            Some(_) => {
                format!("other calls of the step were running; {} have a state", near.join(" and "))
            }
        };
        Err(UndoError::NotRecorded { seq, reason }.into())
    }

    fn before_step(&self, step: u32) -> Result<usize, AppError> {
        let last = self.history.machine.state.run().steps;
        if step == 0 || step > last {
            let session = self.history.header.session;
            return Err(UndoError::NoStep { session, step, last }.into());
        }
        let records = || self.states.iter().map(|(found, _)| &found.record);
        let is_own = |it: &CheckpointRecord| it.step == step && it.kind == CheckpointKind::Step;
        if let Some(own) = records().position(is_own) {
            return Ok(own);
        }
        // The step changed nothing. What comes after it, an undo for example, is not before it.
        let earlier = records().take_while(|it| it.step < step).enumerate().last();
        let found = match earlier {
            None => 0,
            Some((at, it)) if it.kind.is_before_change() => (at + 1).min(self.states.len() - 1),
            Some((at, _)) => at,
        };
        // Or its record failed.
        self.missing_before(found, step).map_or(Ok(found), |error| Err(error.into()))
    }

    /// Returns what happened since the state to go back to; `None` if there is no change to take back.
    fn resolve(
        &self,
        target: UndoTarget,
        now: ContentHash,
        contents: &ContentStore,
    ) -> Result<Option<Vec<ChangeInterval>>, AppError> {
        let mut intervals: Vec<_> = self.intervals(Some(now)).map(|(found, _)| found).collect();
        let first = match target {
            UndoTarget::LastChange => {
                let mut last = None;
                for (index, interval) in intervals.iter().enumerate().rev() {
                    if contents.authored_changes(interval)?.iter().any(AuthoredChange::is_own) {
                        last = Some(index);
                        break;
                    }
                }
                let Some(first) = last else {
                    self.check_start()?;
                    return Ok(None);
                };
                first
            }
            UndoTarget::Start => {
                self.check_start()?;
                0
            }
            UndoTarget::Step(step) => self.before_step(step)?,
            UndoTarget::Record(seq) => self.after_record(seq)?,
        };
        Ok(Some(intervals.split_off(first)))
    }
}

/// What a session has changed, as its records show.
pub struct RecordedChanges {
    /// The patches.
    pub patches: Vec<ChangePatch>,
    /// Whether the session's last change has no recorded end.
    pub is_open: bool,
    /// Why the state before the first change is not recorded.
    pub missing_start: Option<UndoError>,
}

impl RecordedChanges {
    /// Returns what a session has changed; between two records, if they are given.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, or no recorded state.
    pub fn load(
        store: &SessionStore,
        session: SessionId,
        between: Option<(Option<u64>, Option<u64>)>,
    ) -> Result<Self, AppError> {
        let (history, _) = store.replay(session, |_, _, _| {})?;
        let list = StateList::new(&history)?;
        let contents = open_contents(store, &history)?;
        let (first, last) = (list.states[0].1, list.states[list.states.len() - 1].1);
        let changes = if let Some((from, to)) = between {
            let after = |seq| list.after_record(seq).map(|found| list.states[found].1);
            let from = from.map_or(Ok(first), after)?;
            let to = to.map_or(Ok(last), after)?;
            contents.changes(&from, &to)?
        } else {
            // What others changed between runs is not the session's.
            let mut own = BTreeSet::new();
            for (found, _) in list.own_intervals() {
                let changes = contents.authored_changes(&found)?.into_iter();
                own.extend(changes.filter(AuthoredChange::is_own).map(|it| it.change.path));
            }
            let mut changes = contents.changes(&first, &last)?;
            changes.retain(|change| own.contains(&change.path));
            changes
        };
        let patches = changes.iter().map(|change| contents.patch(change));
        Ok(Self {
            patches: patches.collect::<Result<_, _>>()?,
            is_open: list.is_open(),
            missing_start: list.check_start().err(),
        })
    }

    /// Returns what each step has changed, in at most this many bytes of patches each.
    ///
    /// # Errors
    ///
    /// Fails if a content is missing or damaged.
    pub fn by_step(
        store: &SessionStore,
        history: &SessionHistory,
        most: usize,
    ) -> Result<BTreeMap<u32, Vec<ChangePatch>>, AppError> {
        let mut steps: BTreeMap<u32, Vec<ChangePatch>> = BTreeMap::new();
        let Ok(list) = StateList::new(history) else { return Ok(steps) };
        let contents = open_contents(store, history)?;
        for (interval, found) in list.own_intervals() {
            if found.record.kind != CheckpointKind::Step {
                continue;
            }
            let patches = steps.entry(found.record.step).or_default();
            let changes = contents.authored_changes(&interval)?.into_iter();
            for found in changes.filter(AuthoredChange::is_own) {
                let mut patch = contents.patch(&found.change)?;
                let size: usize = patches.iter().map(|patch| patch.text.len()).sum();
                if size + patch.text.len() > most {
                    patch.text.clear();
                }
                patches.push(patch);
            }
        }
        Ok(steps)
    }
}

/// Returns whether a session has changed files, as its records show; `None` if that is not recorded.
pub fn has_changed_files(config: &Config, history: &SessionHistory) -> Option<bool> {
    let is_changed = |interval: &ChangeInterval| match &interval.author {
        ChangeAuthor::Tools(edits) => edits.iter().any(|edit| edit.before != edit.after),
        ChangeAuthor::Session | ChangeAuthor::Others => true,
    };
    match StateList::new(history) {
        _ if history.checkpoints.iter().any(StoredCheckpoint::is_failed) => None,
        Ok(list) => {
            let is_changed = list
                .own_intervals()
                .any(|(interval, _)| interval.from != interval.to && is_changed(&interval));
            (is_changed || !list.is_open()).then_some(is_changed)
        }
        // No call that may change something has run.
        Err(_) => config.settings.checkpoints.enabled.then_some(false),
    }
}

/// What taking back a whole session has done.
#[derive(Debug, Default)]
pub struct UndoneSession {
    /// The paths that changed.
    pub restored: Vec<PathBuf>,
    /// The copies of files that someone else has changed since, and those that were saved meanwhile.
    pub copies: Vec<PathBuf>,
    /// The paths that could not be restored, with the reason, without those that the user has left out. Nothing was restored
    /// then.
    pub unrestorable: Vec<(PathBuf, String)>,
}

/// Takes back all that a session has changed, or nothing, and keeps a copy of each file that others have changed since.
///
/// Completes a restore that a killed process has left, so it can be called again.
///
/// # Errors
///
/// Fails if a file can't be restored. The files are as before then.
pub fn undo_whole_session(
    config: &Config,
    env: &ProcessEnv,
    store: &SessionStore,
    session: SessionId,
) -> Result<UndoneSession, AppError> {
    complete_pending_restore(store, &config.workspace, config, env)?;
    let (history, _) = store.replay(session, |_, _, _| {})?;
    let is_failed = history.checkpoints.iter().any(StoredCheckpoint::is_failed);
    let _watch = watch_writes(config, env, &config.workspace);
    if is_failed {
        let why = "not all of its states could be recorded".to_owned();
        let unrestorable = vec![(config.workspace.clone(), why)];
        return Ok(UndoneSession { unrestorable, ..UndoneSession::default() });
    }
    let mut undo = match UndoSession::open(config, store, session) {
        Err(AppError::Undo(UndoError::NothingRecorded(..))) => return Ok(UndoneSession::default()),
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

fn open_contents(
    store: &SessionStore,
    history: &SessionHistory,
) -> Result<ContentStore, CheckpointError> {
    let session = history.header.session;
    let lengths = content_lengths(history);
    ContentStore::open(
        store.checkpoint_folder(session),
        &session.to_string(),
        &lengths,
        store.durability(),
    )
}

/// Verifies that every content of a session's checkpoints is there and intact.
///
/// # Errors
///
/// Fails with the first one that is missing or damaged.
pub(super) fn verify_checkpoints(
    store: &SessionStore,
    history: &SessionHistory,
) -> Result<(), AppError> {
    let Ok(list) = StateList::new(history) else { return Ok(()) };
    let contents = open_contents(store, history)?;
    let mut hashes = BTreeSet::new();
    for (_, tree) in &list.states {
        contents.walk_tree(tree, &mut |_, state| {
            if let PathState::File { hash, .. } = state {
                hashes.insert(*hash);
            }
        })?;
    }
    for hash in &hashes {
        contents.get(hash)?;
    }
    Ok(())
}

/// The files of a session's workspace at an earlier time.
pub struct RecordedWorkspace {
    contents: ContentStore,
    tree: ContentHash,
    options: ScanOptions,
    /// What was not restored, with the reasons.
    left_out: Mutex<BTreeMap<PathBuf, String>>,
}

impl RecordedWorkspace {
    /// Returns the files of a session as they were just after a record, or at its end.
    ///
    /// # Errors
    ///
    /// Fails if no such state is recorded.
    pub fn load(
        store: &SessionStore,
        history: &SessionHistory,
        after: Option<u64>,
        config: &Config,
    ) -> Result<Self, AppError> {
        let list = StateList::new(history)?;
        let tree = match after {
            Some(seq) => list.states[list.after_record(seq)?].1,
            None => list.states[list.states.len() - 1].1,
        };
        // The session may run, and append to its own.
        let own = SessionId::generate().to_string();
        let folder = store.checkpoint_folder(history.header.session);
        let lengths = content_lengths(history);
        let contents = ContentStore::open(folder, &own, &lengths, Durability::Os)?;
        let settings = &config.settings.checkpoints;
        // No limits on sizes: what is in the place of a file is replaced.
        let options = ScanOptions {
            exclude: settings.exclude.iter().map(ToString::to_string).collect(),
            generated: settings.generated,
            own_folders: OWN_FOLDERS.map(PathBuf::from).into(),
            ..ScanOptions::default()
        };
        Ok(Self { contents, tree, options, left_out: Mutex::default() })
    }

    /// Returns what was not restored, with the reasons.
    pub fn left_out(&self) -> BTreeMap<PathBuf, String> {
        let mut left_out = lock(&self.left_out).clone();
        left_out.remove(Path::new(".git"));
        left_out
    }

    fn restore(&self, folder: &Path) -> Result<(), AppError> {
        let failed = |cause| AppError::Workspace { path: folder.to_owned(), cause };
        let root = WorkspaceRoot::open(folder).map_err(failed)?;
        let mut scanner = WorkspaceScanner::new(&root, self.options.clone())?;
        let now = scanner.scan(&self.contents, &CancellationToken::new())?.tree;
        let all = ChangeInterval { from: self.tree, to: now, author: ChangeAuthor::Session };
        let plan = self.contents.plan_restore(&now, &[all], ForeignChanges::Refuse)?;
        let staging = PendingRestore::staging_name();
        let mut restorer = Restorer::new(&mut scanner, &self.contents, Durability::Os, &staging);
        restorer.restore(&plan.now, &plan.result)?;
        let mut left_out = lock(&self.left_out);
        left_out.extend(plan.unrestorable.into_iter().map(|it| (it.path, it.reason)));
        self.contents.walk_tree(&self.tree, &mut |path, state| {
            if let PathState::LeftOut(skipped) = state {
                left_out.insert(path.to_owned(), skipped.to_string());
            }
        })?;
        Ok(())
    }
}

impl FileWriter for RecordedWorkspace {
    fn write(&self, folder: &Path) -> Result<(), String> {
        let restored = self.restore(folder).map_err(|error| error.to_string());
        // What was read of the files before.
        self.contents.remove_own();
        restored
    }
}

/// A session that is open for an undo. No other process runs it, or restores files in its workspace.
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
    /// Fails if it has no recorded states, if a process runs it, and on an I/O error.
    pub fn open(
        config: &Config,
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

    /// Returns what is there and not recorded, but for the data of version control systems and of architect.
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
    /// Fails if a file was changed since the plan, or can't be restored. The files are as before then.
    pub fn restore(mut self, plan: &RestorePlan) -> Result<KeptFiles, AppError> {
        let now = self.recorder.record(&CancellationToken::new())?;
        if tree_of(&now)? != plan.now {
            let changes = self.recorder.store.changes(&plan.now, &tree_of(&now)?)?;
            let path = changes.first().map_or_else(String::new, |it| it.path.display().to_string());
            return Err(CheckpointError::ChangedMeanwhile(path).into());
        }
        let copies = plan.copies.iter().map(|path| {
            copy_beside(&self.root, path).map_err(|cause| AppError::System {
                what: "keep a copy of a file",
                cause: format!("{}: {cause}", path.display()),
            })
        });
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
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
        self.opened.write_checkpoint(restored_record(&pending, &mut self.recorder, &copies)?)?;
        self.log.finish()?;
        let StateRecorder { scanner, store, lengths } = &self.recorder;
        self.cache.save(scanner, store, lengths);
        Ok(KeptFiles { copies, saved })
    }
}

/// Files with changes of others that a restore has kept beside those that it has replaced.
pub struct KeptFiles {
    /// Copies of files that were changed before.
    pub copies: Vec<PathBuf>,
    /// Files that were saved during the restore.
    pub saved: Vec<PathBuf>,
}

/// Returns the record of the state that was restored, without what others changed meanwhile. The copies are a part of it.
fn restored_record(
    pending: &PendingRestore,
    recorder: &mut StateRecorder,
    copies: &[PathBuf],
) -> Result<CheckpointRecord, CheckpointError> {
    let mut state = recorder.record(&CancellationToken::new())?;
    let present = tree_of(&state)?;
    if let Some(result) = ContentHash::parse(&pending.to) {
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

fn tree_of(state: &RecordedState) -> Result<ContentHash, CheckpointError> {
    let damaged = || CheckpointError::Damaged("the digest of a tree is invalid".to_owned());
    ContentHash::parse(&state.tree).ok_or_else(damaged)
}

/// Completes a restore of files in this workspace that a killed process has left, and returns a note about it.
///
/// # Errors
///
/// Fails if it can't be completed.
pub fn complete_pending_restore(
    store: &SessionStore,
    workspace: &Path,
    config: &Config,
    env: &ProcessEnv,
) -> Result<Option<String>, AppError> {
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
    let session: SessionId = pending.session.parse()?;
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
    let own = session.to_string();
    let contents = ContentStore::open(
        store.checkpoint_folder(session),
        &own,
        &pending.contents,
        store.durability(),
    )?;
    let scanner = WorkspaceScanner::new(&root, pending.options.clone())?;
    let lengths: BTreeMap<Arc<str>, u64> = pending.contents.clone();
    let mut recorder = StateRecorder { scanner, store: contents, lengths };
    let parse = |tree: &str| {
        ContentHash::parse(tree).ok_or_else(|| interrupted("its log is damaged".to_owned()))
    };
    let (from, to) = (parse(&pending.from)?, parse(&pending.to)?);
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
    let mut note = format!("An undo of session {session} was interrupted; it is complete now.");
    for path in left {
        note.push_str(&format!("\n  {} was changed meanwhile, and stays", path.display()));
    }
    for path in saved {
        note.push_str(&format!("\n  A file was saved meanwhile: it is now {}", path.display()));
    }
    log::warn!("{note}");
    Ok(Some(note))
}
