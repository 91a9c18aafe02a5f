//! Running the cells of a batch: worker threads claim cells, and one thread renews their leases.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use thiserror::Error;

use super::cell::BatchCell;
use super::cell_run::{CellConfigurator, CellEnd, CellRunner};
use super::coordination::{
    CellClaim, CellId, CellOutcome, CoordinationError, Coordinator, Lease, LeaseToken, WorkerId,
};
use super::folder::BatchFolder;
use super::results::lost_result;
use crate::app::{ProcessEnv, RunInterrupts};
use crate::journal::SessionStore;
use crate::port::{CancellationToken, lock, panic_message, unique_id};
use crate::types::{Signal, TimeSpan};

/// The cells of a batch to run in this process, and everything a run needs.
pub struct BatchRun<'a> {
    /// The folder of the batch.
    pub folder: &'a BatchFolder,
    /// The store of the cells' sessions, in that folder.
    pub store: &'a SessionStore,
    /// The coordination with the other processes of the batch.
    pub coordinator: &'a Arc<Coordinator>,
    /// The environment of the process.
    pub env: &'a ProcessEnv,
    /// The cells of this process.
    pub cells: &'a [BatchCell],
    /// The number of cells that run at the same time.
    pub jobs: usize,
    /// Interrupts the cells, which can be resumed.
    pub interrupts: &'a RunInterrupts,
    /// The end of the batch's time. Cells that run then are interrupted, and can be resumed.
    pub deadline: Option<Instant>,
    /// Configures the cells.
    pub configurator: &'a dyn CellConfigurator,
    /// Receives the events of the batch.
    pub observer: &'a dyn BatchObserver,
}

/// An event of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchEvent<'a> {
    /// A cell begins, or is resumed.
    Began {
        /// The cell.
        cell: &'a BatchCell,
        /// The lease on the cell.
        lease: &'a Lease,
        /// Whether it was interrupted before.
        is_resumed: bool,
    },
    /// A cell ended.
    Ended {
        /// The cell.
        cell: &'a BatchCell,
        /// The result document.
        result: &'a Value,
    },
    /// A cell was stopped, and can be resumed.
    Stopped {
        /// The cell.
        cell: &'a BatchCell,
    },
}

/// Receives the events of a batch, on the threads of the workers.
pub trait BatchObserver: Sync {
    /// Receives an event.
    fn on_event(&self, event: BatchEvent<'_>);
}

/// The reason why a batch stops. Finished cells stay finished.
#[derive(Debug, Error)]
pub enum BatchRunError {
    /// The processes of the batch can't be coordinated.
    #[error(transparent)]
    Coordination(#[from] CoordinationError),
    /// A cell can't be stored.
    #[error("the batch stops, since {cell} can't be stored: {why}")]
    NotStored {
        /// The name of the cell.
        cell: String,
        /// The error of the system.
        why: String,
    },
    /// No thread for a cell can be started.
    #[error("no cell can be started: the system allows no more threads")]
    NoWorker,
    /// A thread has ended because of a bug in this program.
    #[error("a thread of the batch has ended unexpectedly; the same command continues it")]
    LostWorker,
}

/// The time after which a lease that was not renewed ends.
pub(super) const LEASE_TIME: TimeSpan = TimeSpan::from_secs(15);

/// The interval at which leases are renewed.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest wait before a worker claims a cell again.
const MAX_CLAIM_WAIT: Duration = Duration::from_millis(200);

/// The number of files that a cell has open while a command of its model runs, with a margin.
const FILES_PER_CELL: u64 = 12;

/// The number of files that the process has open for everything else.
const OTHER_FILES: u64 = 100;

/// The leases of this process, each with the interrupts of its cell.
type LeaseTable = Mutex<Vec<(LeaseToken, RunInterrupts)>>;

impl BatchRun<'_> {
    /// Runs cells until no cell is left, the limits are reached, or the batch is interrupted. Returns whether its time
    /// ended.
    ///
    /// # Errors
    ///
    /// Fails if the coordination fails, or a cell can't be stored. The same command continues the batch.
    pub fn run(&self) -> Result<bool, BatchRunError> {
        let cells: HashMap<&CellId, &BatchCell> =
            self.cells.iter().map(|cell| (&cell.id, cell)).collect();
        let (leases, done) = (LeaseTable::default(), CancellationToken::new());
        thread::scope(|scope| {
            let keeper = scope.spawn(|| self.keep_leases(&leases, &done));
            let workers = limit_by_open_files(self.jobs.clamp(1, self.cells.len().max(1)));
            let workers: Vec<_> = (0..workers)
                .filter_map(|index| {
                    let name = format!("cell-{index}");
                    let work = || self.work(&cells, &leases);
                    let started = thread::Builder::new().name(name).spawn_scoped(scope, work);
                    started
                        .inspect_err(|error| log::warn!("could not start another worker: {error}"))
                        .ok()
                })
                .collect();
            let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            done.cancel();
            let is_over = keeper.join().unwrap_or(false);
            if ends.is_empty() {
                return Err(BatchRunError::NoWorker);
            }
            for end in ends {
                end.unwrap_or(Err(BatchRunError::LostWorker))?;
            }
            Ok(is_over)
        })
    }

    /// Runs cells one after the other.
    fn work(
        &self,
        cells: &HashMap<&CellId, &BatchCell>,
        leases: &LeaseTable,
    ) -> Result<(), BatchRunError> {
        let worker = WorkerId(unique_id().to_string().into());
        while self.interrupts.signal().is_none() && !self.is_time_over() {
            let (lease, is_resumed) = match self.coordinator.claim(&worker)? {
                CellClaim::Start(lease) => (lease, false),
                CellClaim::Resume(lease) => (lease, true),
                CellClaim::Wait(time) => {
                    self.interrupts.token().wait_for(Duration::from(time).min(MAX_CLAIM_WAIT));
                    continue;
                }
                CellClaim::BudgetReached | CellClaim::NothingLeft => break,
            };
            if let Some(cell) = cells.get(&lease.cell) {
                self.run_cell(cell, &lease, is_resumed, leases)?;
            }
        }
        Ok(())
    }

    fn run_cell(
        &self,
        cell: &BatchCell,
        lease: &Lease,
        is_resumed: bool,
        leases: &LeaseTable,
    ) -> Result<(), BatchRunError> {
        let interrupts = RunInterrupts::default();
        let inner = interrupts.clone();
        let _registration = self.interrupts.on_interrupt(move |signal| inner.interrupt(signal));
        lock(leases).push((lease.token, interrupts.clone()));
        self.observer.on_event(BatchEvent::Began { cell, lease, is_resumed });
        let Self { folder, store, coordinator, env, configurator, .. } = *self;
        let runner = CellRunner { folder, store, coordinator, env, configurator };
        let end = catch_unwind(AssertUnwindSafe(|| runner.run(cell, lease, &interrupts)));
        lock(leases).retain(|(token, _)| *token != lease.token);
        let end = end.unwrap_or_else(|panic| {
            let why = panic_message(&*panic);
            log::error!("the run of {} broke down: {why}", cell.label());
            CellEnd::Finished(CellOutcome::Failed(1), lost_result(cell, why))
        });
        let stored = match &end {
            CellEnd::Finished(outcome, _) => coordinator.finish(lease, *outcome),
            CellEnd::Interrupted | CellEnd::NotStored(_) => coordinator.release(lease),
        };
        match (stored, end) {
            (_, CellEnd::NotStored(why)) => {
                // Without a stop, every other cell would fail in the same way.
                self.interrupts.interrupt(Signal::Terminate);
                return Err(BatchRunError::NotStored { cell: cell.label(), why });
            }
            (Ok(()), CellEnd::Finished(_, result)) => {
                self.observer.on_event(BatchEvent::Ended { cell, result: &result });
            }
            (Ok(()), CellEnd::Interrupted) => {
                self.observer.on_event(BatchEvent::Stopped { cell });
            }
            (Err(CoordinationError::LeaseLost(_)), _) => {
                log::warn!(
                    "another worker has taken {}; its run here does not count",
                    cell.label()
                );
                self.observer.on_event(BatchEvent::Stopped { cell });
            }
            (Err(error), _) => return Err(error.into()),
        }
        Ok(())
    }

    /// Renews the leases of this process until its workers are done, and interrupts the cells when the time ends.
    /// Returns whether it ended.
    fn keep_leases(&self, leases: &LeaseTable, done: &CancellationToken) -> bool {
        let mut is_over = false;
        loop {
            let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = left.filter(|_| !is_over).unwrap_or(RENEWAL_INTERVAL);
            let is_done = done.wait_for(wait.min(RENEWAL_INTERVAL));
            if !is_over && self.is_time_over() {
                is_over = true;
                self.interrupts.interrupt(Signal::Terminate);
            }
            if is_done {
                return is_over;
            }
            let tokens: Vec<_> = lock(leases).iter().map(|(token, _)| *token).collect();
            if tokens.is_empty() {
                continue;
            }
            // One request for all leases, so that many busy cells can't delay it by one wait each.
            match self.coordinator.renew_all(&tokens) {
                Ok(lost) => {
                    let mut held = lock(leases).clone();
                    held.retain(|(token, _)| lost.contains(token));
                    held.iter().for_each(|(_, it)| it.interrupt(Signal::Terminate));
                }
                Err(error) => log::warn!("the leases could not be renewed: {error}"),
            }
        }
    }

    fn is_time_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Returns the number of cells that may run at the same time, `cells` at most. Raises the limit of open files as far as
/// needed and allowed by the system; commands inherit this limit.
fn limit_by_open_files(cells: usize) -> usize {
    let wanted = u64::try_from(cells).unwrap_or(u64::MAX);
    let files = wanted.saturating_mul(FILES_PER_CELL).saturating_add(OTHER_FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(now) = current.filter(|now| *now < files) else { return cells };
    let raised = maximum.map_or(files, |maximum| maximum.min(files));
    let limit = Rlimit { current: Some(raised), maximum };
    let most = if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { now };
    let possible = (most.saturating_sub(OTHER_FILES) / FILES_PER_CELL).max(1);
    if possible >= wanted {
        return cells;
    }
    log::warn!(
        "{possible} cells run at the same time instead of {cells}: a process may have {most} files open here (`ulimit -Hn`)"
    );
    usize::try_from(possible).unwrap_or(cells)
}
