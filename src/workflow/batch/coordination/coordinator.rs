//! The coordination of a batch in its folder.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::error::{CoordinationError, ReserveError, Result};
use super::protocol::{
    CellId, CellOutcome, Charge, ChargeLimits, CoordinationRecord, CoordinationRefusal,
    CoordinationRequest, Lease, LeaseToken, ReopenAs, ReservationId, SharedState, SharedTime,
    WorkerId, decide,
};
use super::shared_log::SharedLog;
use crate::journal::{SessionId, WallTime};
use crate::port::{Clock, lock};
use crate::types::{Durability, TimeSpan};

/// The coordination of this process with the other processes of its batch, shared by all threads of the process.
pub struct Coordinator {
    settings: CoordinationSettings,
    has_locks: bool,
    log: Mutex<SharedLog>,
}

/// The settings of a process that takes part in a batch.
#[derive(Clone)]
pub struct CoordinationSettings {
    /// The limits of the batch. Those of the most recently started command are in force.
    pub limits: ChargeLimits,
    /// The time after which a lease ends unless it is renewed. Leases are renewed three times in this time.
    pub lease_time: TimeSpan,
    /// Whether the log survives a crash of the machine.
    pub durability: Durability,
    /// The time of day. The clocks of the machines may differ by less than half of the lease time.
    pub clock: Arc<dyn Clock>,
    /// Access to the sessions of the cells.
    pub sessions: Arc<dyn SessionProbe>,
}

/// Information about sessions whose lease has ended.
pub trait SessionProbe: Send + Sync {
    /// Returns whether a living process has the session open. Its lease is not taken over then.
    fn is_running(&self, session: SessionId) -> bool;

    /// Returns the cost of the session's last model call, from its journal; `None` if it is unknown, for example
    /// because the call was under way. An unknown call counts with its full reservation.
    fn last_charge(&self, session: SessionId) -> Option<Charge>;
}

/// The answer to a worker's claim of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellClaim {
    /// Start this cell, in a new session with the id of the lease.
    Start(Lease),
    /// Resume the session of this cell. If it was never created, create it with the id of the lease.
    Resume(Lease),
    /// The remaining cells have owners. Claim again after this time, since an owner may be gone by then.
    Wait(TimeSpan),
    /// The limits of the batch ended a cell. No other cell is started until the limits are changed.
    BudgetReached,
    /// All cells are finished.
    NothingLeft,
}

/// The progress and the usage of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Cells of this process without an owner.
    pub open: usize,
    /// Cells of this process under a lease of any process.
    pub running: usize,
    /// Cells of this process that succeeded.
    pub succeeded: usize,
    /// Cells of this process with partial results.
    pub partial: usize,
    /// Cells of this process that failed.
    pub failed: usize,
    /// Cells of this process that were ended by the limits of the batch.
    pub over_budget: usize,
    /// Usage of all processes.
    pub spent: Charge,
    /// Reservations of all processes for calls under way.
    pub reserved: Charge,
}

/// Number of times that a waiting worker looks for a cell within one lease time.
const LOOKS_PER_LEASE: u64 = 4;

/// The shortest wait of a worker without a cell.
const MIN_WAIT: TimeSpan = TimeSpan::from_millis(10);

impl Coordinator {
    /// Creates or continues the log of a batch, for these cells in this order. Other processes may have other cells of
    /// the same batch, or the same cells.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used, and if a limit is set but file locks don't work in the folder.
    pub fn open(dir: &Path, cells: &[CellId], settings: CoordinationSettings) -> Result<Self> {
        let log = SharedLog::open(dir, cells)?;
        let limits = settings.limits;
        let has_locks = log.has_working_locks()?;
        if !has_locks && limits != ChargeLimits::default() {
            return Err(CoordinationError::LocalLocks(dir.to_owned()));
        }
        let coordinator = Self { settings, has_locks, log: Mutex::new(log) };
        coordinator.request(CoordinationRequest::SetLimits(limits))?.ok();
        Ok(coordinator)
    }

    /// Returns whether file locks work in the folder across all machines. If not, only one machine may work on the
    /// batch.
    pub fn has_locks(&self) -> bool {
        self.has_locks
    }

    /// Takes the next cell: one whose owner is gone, or else an open one.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn claim(&self, worker: &WorkerId) -> Result<CellClaim> {
        let (session, span) = (SessionId::generate(), self.settings.lease_time);
        let mut skip = Vec::new();
        loop {
            let (worker, asked) = (worker.clone(), skip.clone());
            let claim =
                CoordinationRequest::Claim { worker: worker.clone(), session, span, skip: asked };
            let (token, gone, has_reservation) = match self.request(claim)? {
                Ok(records) => return Ok(self.claimed(&records, session)),
                Err(CoordinationRefusal::Expired { token, session, has_reservation }) => {
                    (token, session, has_reservation)
                }
                Err(CoordinationRefusal::AllLeased(first_end)) => return Ok(self.wait(first_end)),
                Err(CoordinationRefusal::BudgetReached) => return Ok(CellClaim::BudgetReached),
                Err(
                    CoordinationRefusal::NothingLeft
                    | CoordinationRefusal::LeaseLost
                    | CoordinationRefusal::ReservedByOthers
                    | CoordinationRefusal::Unchanged,
                ) => return Ok(CellClaim::NothingLeft),
            };
            if self.settings.sessions.is_running(gone) {
                skip.push(token);
                continue;
            }
            let owed = has_reservation.then(|| self.settings.sessions.last_charge(gone)).flatten();
            // A refusal means that another worker was faster.
            if let Ok(records) =
                self.request(CoordinationRequest::TakeOver { token, worker, span, owed })?
            {
                return Ok(self.claimed(&records, session));
            }
        }
    }

    /// Extends a lease. A lease that has ended is extended, too, unless another worker has taken its cell.
    ///
    /// # Errors
    ///
    /// Fails with [`CoordinationError::LeaseLost`] if another worker has taken the cell. The run has to stop then.
    pub fn renew(&self, lease: &Lease) -> Result<()> {
        match self.renew_all(&[lease.token])?.is_empty() {
            true => Ok(()),
            false => Err(CoordinationError::LeaseLost(lease.cell.clone())),
        }
    }

    /// Extends leases in one step, as [`renew`](Self::renew) does. Returns those that are lost.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn renew_all(&self, leases: &[LeaseToken]) -> Result<Vec<LeaseToken>> {
        // The state shows the lost leases, so the answer is not needed.
        let _ =
            self.request(CoordinationRequest::Renew(leases.to_vec(), self.settings.lease_time))?;
        let log = lock(&self.log);
        let is_over = |token: &LeaseToken| log.state.lease(*token).is_none();
        Ok(leases.iter().copied().filter(is_over).collect())
    }

    /// Gives an interrupted cell back. The next worker resumes its session.
    ///
    /// # Errors
    ///
    /// Fails with [`CoordinationError::LeaseLost`] if the lease has ended.
    pub fn release(&self, lease: &Lease) -> Result<()> {
        self.with_lease(lease, CoordinationRequest::Release(lease.token))
    }

    /// Stores the outcome of a cell. Store the result before, since a finished cell does not run again.
    ///
    /// # Errors
    ///
    /// Fails with [`CoordinationError::LeaseLost`] if the lease has ended; the result doesn't count then.
    pub fn finish(&self, lease: &Lease, outcome: CellOutcome) -> Result<()> {
        self.with_lease(lease, CoordinationRequest::Finish(lease.token, outcome))
    }

    /// Opens a finished cell for another attempt. Does nothing if the cell isn't finished.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn reopen(&self, cell: &CellId, how: ReopenAs) -> Result<()> {
        self.request(CoordinationRequest::Reopen(cell.clone(), how)).map(|_| ())
    }

    /// Returns the outcome of a finished cell and its session, as far as this process knows.
    pub fn outcome(&self, cell: &CellId) -> Option<(CellOutcome, SessionId)> {
        lock(&self.log).state.outcome(cell)
    }

    /// Reserves the worst case of a model call. With full durability, the reservation is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the limits don't cover the charge, now or ever, and if the lease has ended.
    pub fn reserve(&self, lease: &Lease, charge: Charge) -> Result<ReservationId, ReserveError> {
        match self.request_under(lease, CoordinationRequest::Reserve(lease.token, charge))? {
            Ok(records) => match records.first() {
                Some(CoordinationRecord::Reserved { id, .. }) => Ok(*id),
                _ => Err(CoordinationError::LeaseLost(lease.cell.clone()).into()),
            },
            Err(CoordinationRefusal::ReservedByOthers) => Err(ReserveError::Pending),
            Err(CoordinationRefusal::BudgetReached) => Err(ReserveError::BudgetReached),
            Err(_) => Err(CoordinationError::LeaseLost(lease.cell.clone()).into()),
        }
    }

    /// Replaces a reservation by the actual cost of its call. Does nothing if it is settled already.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn settle(&self, reservation: ReservationId, charge: Charge) -> Result<()> {
        self.request(CoordinationRequest::Settle(reservation, charge)).map(|_| ())
    }

    /// Makes all workers pause their calls to a provider for a time.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn pause(&self, provider: &str, span: TimeSpan) -> Result<()> {
        self.request(CoordinationRequest::Pause(provider.into(), span)).map(|_| ())
    }

    /// Returns the remaining pause of a provider, as far as this process knows.
    pub fn pause_of(&self, provider: &str) -> TimeSpan {
        let until = lock(&self.log).state.pause(provider);
        until.map_or(TimeSpan::ZERO, |until| until.since(self.now()))
    }

    /// Returns the limits, the spent charge and the reserved charge, as far as this process knows.
    pub fn budget(&self) -> (ChargeLimits, Charge, Charge) {
        let state = &lock(&self.log).state;
        let (spent, reserved) = state.usage();
        (state.limits(), spent, reserved)
    }

    /// Returns the present progress and usage, without waiting for other processes.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be read.
    pub fn progress(&self) -> Result<Progress> {
        let mut log = lock(&self.log);
        log.refresh(self.clock_time())?;
        Ok(progress(&log.state))
    }

    /// Decides a request, and appends its records to the log.
    fn request(
        &self,
        request: CoordinationRequest,
    ) -> Result<Result<Vec<CoordinationRecord>, CoordinationRefusal>> {
        let sync = request.must_be_durable() && self.settings.durability == Durability::Full;
        let decide = |state: &SharedState, now| decide(state, request, now);
        lock(&self.log).transact(|| self.clock_time(), sync, decide)
    }

    fn with_lease(&self, lease: &Lease, request: CoordinationRequest) -> Result<()> {
        let lost = |_| CoordinationError::LeaseLost(lease.cell.clone());
        self.request_under(lease, request)?.map(|_| ()).map_err(lost)
    }

    /// Decides a request under a lease. If the lease has ended because this machine was slow, and no other worker has
    /// taken the cell, the lease is renewed first.
    fn request_under(
        &self,
        lease: &Lease,
        request: CoordinationRequest,
    ) -> Result<Result<Vec<CoordinationRecord>, CoordinationRefusal>> {
        match self.request(request.clone())? {
            Err(CoordinationRefusal::LeaseLost) if self.renew_all(&[lease.token])?.is_empty() => {
                self.request(request)
            }
            decided => Ok(decided),
        }
    }

    /// Returns the claim recorded in `records`. The session is new if it is the proposed one.
    fn claimed(&self, records: &[CoordinationRecord], proposed: SessionId) -> CellClaim {
        let token = records.iter().find_map(|record| match record {
            CoordinationRecord::Claimed { token, .. } => Some(*token),
            _ => None,
        });
        let log = lock(&self.log);
        match token.and_then(|token: LeaseToken| log.state.lease(token)) {
            Some(lease) if lease.session == proposed => CellClaim::Start(lease),
            Some(lease) => CellClaim::Resume(lease),
            // Another process has taken over this lease already.
            None => CellClaim::Wait(MIN_WAIT),
        }
    }

    fn wait(&self, first_end: SharedTime) -> CellClaim {
        let most = self.settings.lease_time.fraction(1, LOOKS_PER_LEASE);
        let left = first_end.since(self.now());
        // A lease that has ended, but can't be taken over: its owner is slow, or suspended.
        let wait = if left == TimeSpan::ZERO { most } else { left.min(most) };
        CellClaim::Wait(wait.max(MIN_WAIT))
    }

    fn now(&self) -> SharedTime {
        lock(&self.log).shared_time(self.clock_time())
    }

    fn clock_time(&self) -> SharedTime {
        let micros = WallTime::from(self.settings.clock.wall_time()).unix_micros();
        SharedTime(u64::try_from(micros).unwrap_or(0))
    }
}

fn progress(state: &SharedState) -> Progress {
    let (open, running) = state.unfinished();
    let (spent, reserved) = state.usage();
    let mut progress = Progress { open, running, spent, reserved, ..Progress::default() };
    for outcome in state.outcomes() {
        let count = match outcome {
            CellOutcome::Succeeded => &mut progress.succeeded,
            CellOutcome::Partial => &mut progress.partial,
            CellOutcome::Failed(_) => &mut progress.failed,
            CellOutcome::BudgetReached => &mut progress.over_budget,
        };
        *count += 1;
    }
    progress
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("log", &self.log).finish_non_exhaustive()
    }
}
