//! Records the workspace's state during a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::process_env::ProcessEnv;
use super::run_setup::RunSetup;
use super::sandbox::OWN_FOLDERS;
use super::session::SessionTarget;
use super::undo::has_open_change;
use crate::config::Config;
use crate::journal::{SessionHistory, SessionId, SessionStore};
use crate::port::{CancellationToken, Checkpoints, EffectContext, HookPoint, lock};
use crate::tools::ExecutionMode;
use crate::types::{
    CheckpointKind, CheckpointOutcome, CheckpointRecord, Durability, RecordedState, RunActivity,
};
use crate::workspace::checkpoint::{
    CheckpointError, ContentStore, ScanOptions, ScannedState, StatCache, WorkspaceScanner,
};
use crate::workspace::{FileId, WorkspaceRoot};

/// Records the state of a session's workspace.
pub(super) struct SessionCheckpoints {
    root: WorkspaceRoot,
    options: ScanOptions,
    output_files: Vec<FileId>,
    cache: StatCache,
    folder: PathBuf,
    session: SessionId,
    durability: Durability,
    /// The files of contents at the beginning of the run, with their lengths.
    lengths: BTreeMap<Arc<str>, u64>,
    /// The recorder; `None` before the first record.
    recorder: Mutex<Option<StateRecorder>>,
    hooks: RunCommands,
    /// Whether an earlier process of the session was killed before it could record its changes.
    has_open_change: bool,
    /// Whether the workspace is too large to record, so that further steps don't wait for a record.
    is_given_up: AtomicBool,
}

/// The commands that a run starts by itself, in addition to those of calls.
#[derive(Clone, Copy)]
struct RunCommands {
    /// Whether commands may start at any time.
    at_any_time: bool,
    /// Whether commands may start in calls that edit files.
    in_edits: bool,
    /// Whether commands may start while an answer is checked.
    in_checks: bool,
}

impl RunCommands {
    fn new(config: &Config) -> Self {
        let has_hooks = |point| config.settings.hooks.enabled_at(point).next().is_some();
        let others = [HookPoint::PostEdit, HookPoint::Stop, HookPoint::SessionEnd];
        Self {
            at_any_time: HookPoint::ALL
                .iter()
                .any(|point| !others.contains(point) && has_hooks(*point)),
            in_edits: has_hooks(HookPoint::PostEdit),
            in_checks: has_hooks(HookPoint::Stop)
                || !config.settings.guardrails.quality_gates.is_empty(),
        }
    }
}

/// A scanner with its store.
pub(super) struct StateRecorder {
    pub(super) scanner: WorkspaceScanner,
    pub(super) store: ContentStore,
    pub(super) lengths: BTreeMap<Arc<str>, u64>,
}

/// The maximum time that the calls of a step wait for a record, as part of their own time limit. After that, the run
/// continues without records.
const MAX_RECORD_TIME: Duration = Duration::from_secs(10);

/// Returns the options for scanning a workspace.
pub(super) fn scan_options(
    config: &Config,
    root: &WorkspaceRoot,
    store: &SessionStore,
) -> ScanOptions {
    let settings = &config.settings.checkpoints;
    let state = store.root().canonicalize().unwrap_or_else(|_| store.root().to_owned());
    let state = state.strip_prefix(root.path()).ok().map(PathBuf::from);
    ScanOptions {
        max_file_size: settings.max_file_size,
        max_total: settings.max_total,
        max_files: settings.max_files,
        exclude: settings.exclude.iter().map(ToString::to_string).collect(),
        generated: settings.generated,
        own_folders: OWN_FOLDERS.map(PathBuf::from).into_iter().chain(state).collect(),
    }
}

/// Returns the files to which this process writes its output and its log.
pub(super) fn output_files(config: &Config, env: &ProcessEnv) -> Vec<FileId> {
    let log = config.settings.logging.file.as_deref().and_then(FileId::at);
    env.output_files.iter().copied().chain(log).collect()
}

/// Returns the files of contents that a session's newest record names, with their lengths.
pub(super) fn content_lengths(history: &SessionHistory) -> BTreeMap<Arc<str>, u64> {
    let states = history.checkpoints.iter().rev().filter_map(|found| found.record.state());
    states.map(|state| state.contents.clone()).next().unwrap_or_default()
}

impl StateRecorder {
    /// Opens the store, and loads the cached state of the workspace.
    pub(super) fn open(
        root: &WorkspaceRoot,
        options: ScanOptions,
        cache: &StatCache,
        store: ContentStore,
        lengths: BTreeMap<Arc<str>, u64>,
    ) -> Result<Self, CheckpointError> {
        let mut recorder = Self { scanner: WorkspaceScanner::new(root, options)?, store, lengths };
        cache.load(&mut recorder.scanner, &mut recorder.store);
        Ok(recorder)
    }

    /// Records the present state. Its contents are durable when this function returns.
    pub(super) fn record(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<RecordedState, CheckpointError> {
        let scanned = self.scanner.scan(&self.store, cancel).and_then(|state| {
            self.lengths = self.store.commit()?;
            Ok(state)
        });
        let ScannedState { tree, totals } = scanned.inspect_err(|_| {
            self.store.abandon();
            self.scanner.distrust_store();
        })?;
        Ok(RecordedState {
            tree: tree.to_string().into(),
            files: totals.files,
            bytes: totals.bytes,
            left_out: totals.left_out,
            contents: self.lengths.clone(),
        })
    }
}

impl SessionCheckpoints {
    /// Returns the recorder of a session; `None` if nothing is recorded.
    pub(super) fn new(
        setup: &RunSetup,
        store: &SessionStore,
        session: SessionId,
        target: &SessionTarget,
    ) -> Option<Self> {
        let settings = &setup.config.settings.checkpoints;
        let is_child = matches!(target, SessionTarget::Child(..));
        if !settings.enabled || is_child || setup.execution != ExecutionMode::Real {
            return None;
        }
        let options = scan_options(&setup.config, &setup.root, store);
        let history = target.opened().map(|opened| &opened.history);
        let lengths = history.map(content_lengths);
        Some(Self {
            cache: StatCache::new(&store.root().join("workspaces"), setup.root.path(), &options),
            options,
            output_files: output_files(&setup.config, &setup.env),
            root: setup.root.clone(),
            folder: store.checkpoint_folder(session),
            session,
            durability: store.durability(),
            lengths: lengths.unwrap_or_default(),
            recorder: Mutex::new(None),
            hooks: RunCommands::new(&setup.config),
            has_open_change: history.is_some_and(has_open_change),
            is_given_up: AtomicBool::new(false),
        })
    }

    fn try_record(
        &self,
        kind: CheckpointKind,
        scope: &EffectContext,
    ) -> Result<RecordedState, CheckpointError> {
        let mut recorder = lock(&self.recorder);
        let recorder = match &mut *recorder {
            Some(recorder) => recorder,
            none => {
                let (folder, own) = (self.folder.clone(), self.session.to_string());
                let store = ContentStore::open(folder, &own, &self.lengths, self.durability)?;
                let (options, lengths) = (self.options.clone(), self.lengths.clone());
                let opened = StateRecorder::open(&self.root, options, &self.cache, store, lengths);
                let recorder = none.insert(opened?);
                recorder.scanner.set_time_limit(MAX_RECORD_TIME);
                recorder.scanner.leave_out(self.output_files.clone());
                recorder
            }
        };
        let state = recorder.record(&scope.cancel)?;
        if kind == CheckpointKind::End {
            // The cache is for the next run.
            self.cache.save(&recorder.scanner, &recorder.store, &recorder.lengths);
        }
        Ok(state)
    }
}

impl Checkpoints for SessionCheckpoints {
    fn is_enabled(&self) -> bool {
        !self.is_given_up.load(Ordering::Relaxed)
    }

    fn has_open_change(&self) -> bool {
        self.has_open_change
    }

    fn weigh(&self, seen: RunActivity) -> RunActivity {
        let has_commands = self.hooks.at_any_time
            || match seen {
                RunActivity::Idle => false,
                RunActivity::Checks => self.hooks.in_checks,
                RunActivity::Edits => self.hooks.in_edits,
                RunActivity::Commands | RunActivity::Unknown => return seen,
            };
        match seen {
            _ if has_commands => RunActivity::Commands,
            RunActivity::Checks => RunActivity::Idle,
            seen => seen,
        }
    }

    fn record(
        &self,
        kind: CheckpointKind,
        step: u32,
        since: RunActivity,
        scope: &EffectContext,
    ) -> Option<CheckpointRecord> {
        let outcome = match self.try_record(kind, scope) {
            Ok(state) => CheckpointOutcome::Recorded(state),
            Err(CheckpointError::Cancelled) => return None,
            Err(error) => {
                let is_too_large =
                    matches!(error, CheckpointError::TooManyFiles(_) | CheckpointError::TooSlow(_));
                self.is_given_up.fetch_or(is_too_large, Ordering::Relaxed);
                log::warn!(
                    "the state of the workspace is not recorded, so `undo` can't restore it: {error}"
                );
                CheckpointOutcome::Failed(error.to_string().into())
            }
        };
        Some(CheckpointRecord { kind, step, since, target: None, outcome })
    }
}
