//! The recorded changes of a session, and the files of its workspace at an earlier time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::UndoError;
use super::state_list::StateList;
use crate::app::checkpoints::content_lengths;
use crate::app::error::AppError;
use crate::app::sandbox::OWN_FOLDERS;
use crate::config::Config;
use crate::journal::{JournalError, SessionHistory, SessionId, SessionStore, StoredCheckpoint};
use crate::port::{CancellationToken, lock};
use crate::types::{CheckpointKind, Durability, Sha256Digest};
use crate::workspace::WorkspaceRoot;
use crate::workspace::checkpoint::{
    AuthoredChange, ChangeAuthor, ChangeInterval, ChangePatch, CheckpointError, ContentStore,
    ForeignChanges, PathState, PendingRestore, Restorer, ScanOptions, WorkspaceScanner,
};
use crate::workspace::worktree::FileWriter;

/// The recorded changes of a session.
#[derive(Default)]
pub struct RecordedChanges {
    /// The patches.
    pub patches: Vec<ChangePatch>,
    /// Whether the session's last change has no recorded end.
    pub is_open: bool,
    /// The reason why the state before the first change is not recorded.
    pub missing_start: Option<UndoError>,
}

impl RecordedChanges {
    /// Returns the changes of a session; only those between two records, if they are given.
    ///
    /// # Errors
    ///
    /// Fails if there is no such session, no recorded state, or a damaged record, since all later changes are unknown
    /// then.
    pub fn load(
        store: &SessionStore,
        session: SessionId,
        between: Option<(Option<u64>, Option<u64>)>,
    ) -> Result<Self, AppError> {
        let (history, end) = store.load(session)?;
        if let Some(reason) = end.damage() {
            return Err(JournalError::Damaged { session, reason }.into());
        }
        let list = StateList::new(&history)?;
        let contents = open_contents(store, &history)?;
        let (first, last) = (list.states[0].1, list.states[list.states.len() - 1].1);
        let changes = if let Some((from, to)) = between {
            let after = |seq| list.after_record(seq).map(|found| list.states[found].1);
            let from = from.map_or(Ok(first), after)?;
            let to = to.map_or(Ok(last), after)?;
            contents.changes(&from, &to)?
        } else {
            // Changes that others made between runs don't belong to the session.
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

    /// Returns the changes of each step, with at most `most` bytes of patches per step.
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

/// Returns whether a session has changed files, by its records; `None` if that is not recorded.
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
        // No call that may change files has run.
        Err(_) => config.settings.checkpoints.enabled.then_some(false),
    }
}

/// Returns whether a session's last change has no recorded end, so that all later changes count as its own.
pub(in crate::app) fn has_open_change(history: &SessionHistory) -> bool {
    StateList::new(history).is_ok_and(|list| list.is_open())
}

pub(super) fn open_contents(
    store: &SessionStore,
    history: &SessionHistory,
) -> Result<ContentStore, CheckpointError> {
    open_contents_of(store, history.header.session, &content_lengths(history))
}

/// Opens the contents of a session's checkpoints; `lengths` are the lengths of the files of contents.
pub(super) fn open_contents_of(
    store: &SessionStore,
    session: SessionId,
    lengths: &BTreeMap<Arc<str>, u64>,
) -> Result<ContentStore, CheckpointError> {
    let folder = store.checkpoint_folder(session);
    ContentStore::open(folder, &session.to_string(), lengths, store.durability())
}

/// Verifies that every content of a session's checkpoints exists and is intact.
///
/// # Errors
///
/// Fails with the first content that is missing or damaged.
pub(in crate::app) fn verify_checkpoints(
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
    tree: Sha256Digest,
    options: ScanOptions,
    /// The paths that were not restored, with the reasons.
    left_out: Mutex<BTreeMap<PathBuf, String>>,
}

impl RecordedWorkspace {
    /// Returns the files of a session just after a record, or at its end.
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
        // The session may be running, and append to its own file of contents.
        let own = SessionId::generate().to_string();
        let folder = store.checkpoint_folder(history.header.session);
        let lengths = content_lengths(history);
        let contents = ContentStore::open(folder, &own, &lengths, Durability::Os)?;
        let settings = &config.settings.checkpoints;
        // There are no limits on sizes, because files in the way are replaced.
        let options = ScanOptions {
            exclude: settings.exclude.iter().map(ToString::to_string).collect(),
            generated: settings.generated,
            own_folders: OWN_FOLDERS.map(PathBuf::from).into(),
            ..ScanOptions::default()
        };
        Ok(Self { contents, tree, options, left_out: Mutex::default() })
    }

    /// Returns the paths that were not restored, with the reasons.
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
        // Removes the contents that were read of the files before the restore.
        self.contents.remove_own();
        restored
    }
}
