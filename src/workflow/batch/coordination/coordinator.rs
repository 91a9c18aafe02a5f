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

/// What a process shares with the other processes of its batch. All threads of a process use one.
pub struct Coordinator {
    settings: CoordinationSettings,
    has_locks: bool,
    log: Mutex<SharedLog>,
}

/// How a process takes part.
#[derive(Clone)]
pub struct CoordinationSettings {
    /// The limits of the batch. Those of the command that was started last are in force.
    pub limits: ChargeLimits,
    /// The time after which a lease ends unless it is renewed. It is renewed three times as often.
    pub lease_time: TimeSpan,
    /// Whether the log survives the end of the machine.
    pub durability: Durability,
    /// The time of day. The clocks of machines may differ by less than half of the time of a lease.
    pub clock: Arc<dyn Clock>,
    /// The sessions of the cells.
    pub sessions: Arc<dyn SessionProbe>,
}

/// What the coordination has to know of a session whose lease has ended.
pub trait SessionProbe: Send + Sync {
    /// Returns whether a living process has the session open. Its lease is not taken over then.
    fn is_running(&self, session: SessionId) -> bool;

    /// Returns what the last model call of the session cost by its journal, or `None` if that is unknown, for example
    /// because the call was under way. What was reserved for it counts as spent then.
    fn last_charge(&self, session: SessionId) -> Option<Charge>;
}

/// The answer to a worker that asks for a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellClaim {
    /// Start this cell, in a new session with the id of the lease.
    Start(Lease),
    /// Resume the session of this cell. If it was never created, create it with the id of the lease.
    Resume(Lease),
    /// The remaining cells have owners. Ask again after this time, since one of them may be gone.
    Wait(TimeSpan),
    /// The limits of the batch ended a cell. No other cell is started until they are changed.
    BudgetReached,
    /// All cells are finished.
    NothingLeft,
}

/// What is done and used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Cells of this process without an owner.
    pub open: usize,
    /// Cells of this process under a lease, by whichever process.
    pub running: usize,
    /// Cells of this process that succeeded.
    pub succeeded: usize,
    /// Cells of this process with partial results.
    pub partial: usize,
    /// Cells of this process that failed.
    pub failed: usize,
    /// Cells of this process that the limits of the batch ended.
    pub over_budget: usize,
    /// What all processes have spent.
    pub spent: Charge,
    /// What all processes have reserved for calls under way.
    pub reserved: Charge,
}

/// The part of the time of a lease after which a waiting worker looks again.
const LOOKS_PER_LEASE: u64 = 4;

/// The shortest wait of a worker without a cell.
const MIN_WAIT: TimeSpan = TimeSpan::from_millis(10);

impl Coordinator {
    /// Creates or continues the log of a batch, for these cells in this order. Other processes may have other cells of
    /// the same batch, or the same ones.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used, and if there are limits to share and file locks don't hold there.
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

    /// Returns whether file locks hold in the folder, on all machines. Otherwise, no other machine may work on it.
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
            // If this is refused, another worker was faster.
            if let Ok(records) =
                self.request(CoordinationRequest::TakeOver { token, worker, span, owed })?
            {
                return Ok(self.claimed(&records, session));
            }
        }
    }

    /// Extends a lease, also one that has ended if no other worker has taken its cell.
    ///
    /// # Errors
    ///
    /// Fails with [`CoordinationError::LeaseLost`] if another worker has. The run has to stop then.
    pub fn renew(&self, lease: &Lease) -> Result<()> {
        match self.renew_all(&[lease.token])?.is_empty() {
            true => Ok(()),
            false => Err(CoordinationError::LeaseLost(lease.cell.clone())),
        }
    }

    /// Extends leases in one step, as [`renew`](Self::renew) does. Returns those that are over.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn renew_all(&self, leases: &[LeaseToken]) -> Result<Vec<LeaseToken>> {
        // Those that are over are seen in the state.
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

    /// Stores how a cell ended. Its result has to be stored before, since a finished cell does not run again.
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

    /// Returns how a cell ended, and its session, as far as this process knows.
    pub fn outcome(&self, cell: &CellId) -> Option<(CellOutcome, SessionId)> {
        lock(&self.log).state.outcome(cell)
    }

    /// Reserves the worst case of a model call. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Fails if the limits don't cover it, now or at all, and if the lease has ended.
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

    /// Replaces a reservation by what the call cost. Does nothing if it is settled already.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn settle(&self, reservation: ReservationId, charge: Charge) -> Result<()> {
        self.request(CoordinationRequest::Settle(reservation, charge)).map(|_| ())
    }

    /// Lets all workers send nothing to a provider for a time.
    ///
    /// # Errors
    ///
    /// Fails if the log can't be used.
    pub fn pause(&self, provider: &str, span: TimeSpan) -> Result<()> {
        self.request(CoordinationRequest::Pause(provider.into(), span)).map(|_| ())
    }

    /// Returns how long nothing may be sent to a provider, as far as this process knows.
    pub fn pause_of(&self, provider: &str) -> TimeSpan {
        let until = lock(&self.log).state.pause(provider);
        until.map_or(TimeSpan::ZERO, |until| until.since(self.now()))
    }

    /// Returns the limits, what is spent and what is reserved, as far as this process knows.
    pub fn budget(&self) -> (ChargeLimits, Charge, Charge) {
        let state = &lock(&self.log).state;
        let (spent, reserved) = state.usage();
        (state.limits(), spent, reserved)
    }

    /// Returns what is done and used now, without waiting for other processes.
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

    /// Decides a request under a lease. The lease is renewed if it has ended while this machine was slow, and no one has
    /// taken the cell.
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

    /// Returns the claim of these records. A session other than the proposed one was there before.
    fn claimed(&self, records: &[CoordinationRecord], proposed: SessionId) -> CellClaim {
        let token = records.iter().find_map(|record| match record {
            CoordinationRecord::Claimed { token, .. } => Some(*token),
            _ => None,
        });
        let log = lock(&self.log);
        match token.and_then(|token: LeaseToken| log.state.lease(token)) {
            Some(lease) if lease.session == proposed => CellClaim::Start(lease),
            Some(lease) => CellClaim::Resume(lease),
            // Another process has taken it over already.
            None => CellClaim::Wait(MIN_WAIT),
        }
    }

    fn wait(&self, first_end: SharedTime) -> CellClaim {
        let most = self.settings.lease_time.fraction(1, LOOKS_PER_LEASE);
        let left = first_end.since(self.now());
        // A lease that has ended and can't be taken over: its owner is slow, or suspended.
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
