//! Parallel items of a step: a batch in a folder below the folder of the workflow, with a worktree for each item. When
//! all items have succeeded, their worktrees are merged into the workspace, in the order of the items.
//!
//! Leases, budget and results are those of a batch, and so is the resume. If a merge is killed, the next one completes
//! it:
//! `merged.json` lists the worktrees that are merged already and may be removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::StepDefinition;
use super::history::{ItemReport, SessionReport};
use super::machine::{SessionEnd, SessionOutcome, WorkflowLimit};
use super::run::{StepSetup, WorkflowError, WorkflowEvent, WorkflowObserver, WorkflowRun};
use super::session::MAX_ANSWER;
use crate::app::{AppError, RunInterrupts, SandboxedGit, open_worktrees, watch_writes};
use crate::config::Config;
use crate::journal::{SessionId, SessionStore};
use crate::machine::{CloseReason, RunStatus, StopReason};
use crate::view::{ReportSink, Reporter, sanitize};
use crate::workflow::batch::coordination::{
    CellId, CellOutcome, ChargeLimits, Coordinator, ReopenAs,
};
use crate::workflow::batch::{
    self, BatchCell, BatchEvent, BatchFolder, BatchManifest, BatchObserver, BatchResults, BatchRun,
    BatchTask, CellConfig, CellConfigurator, CellRow, CellSession, CommonOptions, StoredSessions,
    TaskOptions, TaskWorkspace, log_file_sinks,
};
use crate::workspace::worktree::{BRANCH_PREFIX, Worktree, WorktreeError, Worktrees};

/// The folder with the batches of a workflow, each named by the id of its iteration.
const BATCHES: &str = "batches";

/// Name of the file with the names of merged worktrees.
const MERGED_FILE: &str = "merged.json";

/// Length limit of an item in a message.
const MAX_SHOWN_ITEM: usize = 100;

/// The parallel items of a step.
pub(super) struct ParallelItems<'a> {
    pub(super) run: &'a WorkflowRun<'a>,
    pub(super) step: &'a StepDefinition,
    pub(super) setup: &'a StepSetup,
    /// The id of the iteration.
    pub(super) id: SessionId,
    /// The number of items that run at the same time.
    pub(super) jobs: usize,
    /// The items, each with the first message of its session.
    pub(super) items: Vec<(String, String)>,
    /// The remaining limits of the workflow, for all items together.
    pub(super) limits: ChargeLimits,
    /// Whether the iteration has ended before. Items that did not succeed are tried again.
    pub(super) is_repeated: bool,
}

/// The outcome of merging the worktrees.
enum ItemsMerge {
    /// All worktrees are merged.
    Complete,
    /// The worktree of this item has conflicts or a denied change, as described. The worktrees after it are not merged.
    Refused(usize, String),
    /// A signal interrupted the merge.
    Interrupted,
}

/// Returns the folder of an iteration with parallel items.
pub(super) fn batch_path(store: &SessionStore, id: SessionId) -> PathBuf {
    store.root().join(BATCHES).join(id.to_string())
}

/// Returns the outcome of the items, and the index of the item that determines it unless all succeeded.
fn find_failure(ends: &[Option<CellOutcome>]) -> (SessionOutcome, Option<usize>) {
    let find = |is_it: fn(&CellOutcome) -> bool| {
        ends.iter().position(|end| end.is_some_and(|it| is_it(&it)))
    };
    let limited = find(|it| *it == CellOutcome::BudgetReached);
    let failed = find(|it| matches!(it, CellOutcome::Failed(_)));
    let partial = find(|it| *it == CellOutcome::Partial);
    match (limited, failed, partial) {
        (Some(_), ..) => (SessionOutcome::Limited(WorkflowLimit::Budget), limited),
        (None, Some(index), _) => {
            let code = match ends[index] {
                Some(CellOutcome::Failed(code)) => code,
                _ => StopReason::InternalError.exit_code(),
            };
            (SessionOutcome::Failed(code), failed)
        }
        (None, None, Some(_)) => (SessionOutcome::Partial, partial),
        (None, None, None) => (SessionOutcome::Answered, None),
    }
}

impl ParallelItems<'_> {
    /// Runs all items, and merges their worktrees. Returns `None` if a signal or the end of the time interrupted it.
    pub(super) fn run(&self) -> Result<Option<(SessionEnd, SessionReport)>, WorkflowError> {
        let path = batch_path(self.run.store, self.id);
        path.parent().map_or(Ok(()), batch::refuse_link)?;
        let durability = self.run.store.durability();
        let store = SessionStore::open(&path, durability).map_err(AppError::from)?;
        let folder = BatchFolder::create(&path)?;
        let cells = self.cells();
        let ids: Vec<CellId> = cells.iter().map(|cell| cell.id.clone()).collect();
        let sessions = StoredSessions { store: store.clone(), folder: folder.clone() };
        let settings = sessions.coordination(self.limits);
        let coordinator = Arc::new(Coordinator::open(&path, &ids, settings)?);
        if self.is_repeated {
            reopen(&coordinator, &ids)?;
        }
        // Separate interrupts, since the end of the time interrupts the items, but not the workflow.
        let interrupts = RunInterrupts::default();
        let inner = interrupts.clone();
        let _registration = self.run.interrupts.on_interrupt(move |signal| inner.interrupt(signal));
        let setup = &self.setup.setup;
        let ran = BatchRun {
            folder: &folder,
            store: &store,
            coordinator: &coordinator,
            env: &setup.env,
            cells: &cells,
            jobs: self.jobs,
            interrupts: &interrupts,
            deadline: self.run.limits.deadline,
            configurator: &ItemConfigurator { setup: self.setup, reporter: &self.run.io.reporter },
            observer: &ItemProgress {
                step: self.step,
                items: &self.items,
                cells: &ids,
                observer: self.run.observer,
            },
        }
        .run();
        let charge = coordinator.progress()?.spent;
        self.run.observer.on_event(WorkflowEvent::Spent(charge.money));
        ran?;
        let rows = BatchResults::write(&folder, &coordinator, cells.clone())?.read_rows()?;
        let ends = ids.iter().map(|id| coordinator.outcome(id).map(|(outcome, _)| outcome));
        let ends: Vec<Option<CellOutcome>> = ends.collect();
        let is_unfinished = ends.contains(&None);
        let is_over_budget = ends.contains(&Some(CellOutcome::BudgetReached));
        if interrupts.signal().is_some() && (is_unfinished || is_over_budget) {
            return Ok(None);
        }
        if is_unfinished && !is_over_budget {
            return Err(WorkflowError::NoEnd);
        }
        let mut report = SessionReport {
            status: RunStatus::Success,
            stop_reason: StopReason::LlmDone.name().to_owned(),
            exit_code: 0,
            output: answers(&folder, &coordinator, &ids),
            error: None,
            charge,
            records: 0,
            items: self.item_reports(&rows),
        };
        let has_changed = rows.iter().any(|row| row.branch.is_some());
        let (outcome, bad) = find_failure(&ends);
        let (bad, error) = match (outcome, bad) {
            (_, Some(bad)) => (bad, self.describe_failure(bad, &rows[bad])),
            (_, None) => match self.merge(&folder, &rows)? {
                ItemsMerge::Interrupted => return Ok(None),
                ItemsMerge::Complete => {
                    return Ok(Some((SessionEnd { outcome, has_changed }, report)));
                }
                ItemsMerge::Refused(bad, why) => (bad, why),
            },
        };
        self.run.observer.on_event(WorkflowEvent::ItemFailed { step: self.step, why: &error });
        let own = rows[bad].stop_reason.as_deref().and_then(StopReason::from_name);
        let (outcome, reason) = match outcome {
            SessionOutcome::Limited(_) => {
                (outcome, StopReason::Closed(CloseReason::BudgetExceeded))
            }
            SessionOutcome::Failed(_) => (outcome, own.unwrap_or(StopReason::InternalError)),
            SessionOutcome::Partial => (outcome, own.unwrap_or(StopReason::ChecksFailed)),
            SessionOutcome::Answered => (SessionOutcome::Partial, StopReason::ChecksFailed),
        };
        report.exit_code = match outcome {
            SessionOutcome::Failed(code) => code,
            _ => reason.exit_code(),
        };
        (report.status, report.stop_reason) = (reason.status(), reason.name().to_owned());
        report.error = Some(error);
        Ok(Some((SessionEnd { outcome, has_changed }, report)))
    }

    /// Returns a cell for each item, in order.
    fn cells(&self) -> Vec<BatchCell> {
        let setup = &self.setup.setup;
        let folder = setup.config.real_workspace();
        let task = |(index, (_, message)): (usize, &(String, String))| BatchTask {
            id: format!("{}-{}", self.step.name, index + 1),
            line: 0,
            prompt: message.clone(),
            workspace: TaskWorkspace::Changes(folder.clone()),
            options: TaskOptions::default(),
            setup: Vec::new(),
            checks: self.step.checks.clone(),
        };
        let tasks = self.items.iter().enumerate().map(task).collect();
        let manifest = BatchManifest { tasks, variants: Vec::new() };
        let agent = setup.agent.name.to_string();
        BatchCell::all(manifest, &CommonOptions { agent, ..CommonOptions::default() })
    }

    fn item_reports(&self, rows: &[CellRow]) -> Vec<ItemReport> {
        let report = |((item, _), row): (&(String, String), &CellRow)| ItemReport {
            item: item.clone(),
            session: row.session_id.clone(),
            status: row.status.clone(),
            stop_reason: row.stop_reason.clone(),
            branch: row.branch.clone(),
            cost: row.cost,
        };
        self.items.iter().zip(rows).map(report).collect()
    }

    /// Returns the name of an item in messages.
    fn name_of(&self, index: usize) -> String {
        let item = self.items.get(index).map_or("", |(item, _)| item);
        format!("item {} ({})", index + 1, sanitize::headline(item, MAX_SHOWN_ITEM))
    }

    fn describe_failure(&self, index: usize, row: &CellRow) -> String {
        let why = match (&row.error, &row.checks_failed[..], &row.stop_reason) {
            (Some(error), _, _) => error.clone(),
            (None, [check, ..], _) => format!("`{check}` failed"),
            (None, [], Some(reason)) => reason.clone(),
            (None, [], None) => "it was not started".to_owned(),
        };
        format!("{}: {why}; nothing was merged", self.name_of(index))
    }

    /// Merges the worktrees of the items that changed something, in order, and removes merged worktrees.
    fn merge(&self, folder: &BatchFolder, rows: &[CellRow]) -> Result<ItemsMerge, WorkflowError> {
        let setup = &self.setup.setup;
        let worktrees = open_worktrees(&setup.env)?;
        let confined = SandboxedGit { config: &setup.config, env: &setup.env };
        let workspace = setup.config.real_workspace();
        let merged_file = folder.path().join(MERGED_FILE);
        let stored = fs::read(&merged_file).unwrap_or_default();
        let mut merged: BTreeSet<String> = serde_json::from_slice(&stored).unwrap_or_default();
        let merge_watched = |worktree: &mut Worktree| {
            let watch = watch_writes(&setup.config, &setup.env, &workspace);
            worktrees.merge(worktree, &confined).map(|_| watch.finish())
        };
        for (index, row) in rows.iter().enumerate() {
            let Some(name) = row.branch.as_deref().and_then(|it| it.strip_prefix(BRANCH_PREFIX))
            else {
                continue;
            };
            if merged.contains(name) {
                // An earlier process was killed between the merge and the removal.
                if let Ok(worktree) = worktrees.open(&workspace, name) {
                    remove_merged(&worktrees, worktree);
                }
                continue;
            }
            if self.run.interrupts.signal().is_some() {
                return Ok(ItemsMerge::Interrupted);
            }
            let (worktree, denied) = match worktrees.open(&workspace, name) {
                Ok(mut worktree) => match merge_watched(&mut worktree) {
                    Ok(denied) => (Some(worktree), denied),
                    Err(error @ WorktreeError::Conflicts { .. }) => {
                        let (item, place) = (self.name_of(index), worktree.folder().display());
                        let why = format!(
                            "{item}: {error}\nits changes stay on the branch {BRANCH_PREFIX}{name}, in {place}; when your \
                             files fit, or `architect worktrees rm --force {name}` has removed it, the same command continues"
                        );
                        return Ok(ItemsMerge::Refused(index, why));
                    }
                    Err(error) => return Err(error.into()),
                },
                // The user has removed the worktree, and so decided against its changes.
                Err(WorktreeError::Unknown(_) | WorktreeError::Removed { .. }) => {
                    let patch = row.patch_file.as_deref().unwrap_or_default();
                    let item = self.name_of(index);
                    log::warn!(
                        "{item}: its worktree {name} is gone, and not merged; its changes are in {patch}"
                    );
                    (None, Vec::new())
                }
                Err(error) => return Err(error.into()),
            };
            merged.insert(name.to_owned());
            folder.write(&merged_file, json!(merged).to_string().as_bytes())?;
            if let Some(worktree) = worktree {
                remove_merged(&worktrees, worktree);
            }
            if !denied.is_empty() {
                let (item, why) = (self.name_of(index), denied.join("\n"));
                let why = format!("{item}: {why}\nthe rest is merged; the same command continues");
                return Ok(ItemsMerge::Refused(index, why));
            }
        }
        Ok(ItemsMerge::Complete)
    }
}

/// Opens items again that did not succeed. Each gets a new session and a new worktree.
fn reopen(coordinator: &Coordinator, ids: &[CellId]) -> Result<(), WorkflowError> {
    for id in ids {
        match coordinator.outcome(id) {
            Some((CellOutcome::Failed(_) | CellOutcome::Partial, _)) => {
                coordinator.reopen(id, ReopenAs::NewSession)?;
            }
            Some((CellOutcome::Succeeded | CellOutcome::BudgetReached, _)) | None => {}
        }
    }
    Ok(())
}

/// Returns the answers in order, separated by empty lines.
fn answers(folder: &BatchFolder, coordinator: &Coordinator, ids: &[CellId]) -> String {
    let answer = |id: &CellId| {
        let (_, session) = coordinator.outcome(id)?;
        let result = folder.read_result(session)?;
        let output = result["output"].as_str()?.trim_end();
        Some(sanitize::truncate(output, MAX_ANSWER))
    };
    let answers: Vec<String> = ids.iter().map(|id| answer(id).unwrap_or_default()).collect();
    answers.join("\n\n")
}

/// Removes a merged worktree, unless it has changed since.
fn remove_merged(worktrees: &Worktrees, worktree: Worktree) {
    if let Err(error) = worktrees.remove(worktree, false) {
        log::warn!("{error}");
    }
}

/// Configures every item like its step, and forwards its events.
struct ItemConfigurator<'a> {
    setup: &'a StepSetup,
    /// The reporter of the workflow.
    reporter: &'a Reporter,
}

impl CellConfigurator for ItemConfigurator<'_> {
    fn configure(&self, _: &BatchCell) -> Result<CellConfig, AppError> {
        let StepSetup { setup, options } = self.setup;
        let mut config = setup.config.clone();
        // The batch has these limits for all items together.
        let limits = &mut config.settings.limits;
        (limits.budget_usd, limits.max_tokens, limits.timeout) = (None, None, None);
        let (agent, execution) = (setup.agent.name.to_string(), setup.execution);
        Ok(CellConfig { config, agent, execution, options: options.clone(), evaluator: None })
    }

    fn sinks(
        &self,
        _: &BatchCell,
        _: CellSession,
        config: &Config,
    ) -> Result<Vec<Box<dyn ReportSink>>, String> {
        let setup = &self.setup.setup;
        let mut sinks = log_file_sinks(config, &setup.env, &setup.config.workspace)?;
        sinks.push(Box::new(self.reporter.parallel_sink()));
        Ok(sinks)
    }
}

/// Reports the progress of a step's items.
struct ItemProgress<'a> {
    step: &'a StepDefinition,
    items: &'a [(String, String)],
    cells: &'a [CellId],
    observer: &'a dyn WorkflowObserver,
}

impl BatchObserver for ItemProgress<'_> {
    fn on_event(&self, event: BatchEvent<'_>) {
        let index = |cell: &BatchCell| self.cells.iter().position(|id| *id == cell.id);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        match event {
            BatchEvent::Began { cell, is_resumed, .. } => {
                let index = index(cell).unwrap_or_default();
                self.observer.on_event(WorkflowEvent::Iteration {
                    step: self.step,
                    number: count(index + 1),
                    of: count(self.items.len()),
                    item: self.items.get(index).map(|(item, _)| item.as_str()),
                    is_resumed,
                });
            }
            BatchEvent::Ended { cell, result } => {
                self.observer.on_event(WorkflowEvent::ItemEnded {
                    step: self.step,
                    number: count(index(cell).unwrap_or_default() + 1),
                    result,
                });
            }
            BatchEvent::Stopped { .. } => {}
        }
    }
}
