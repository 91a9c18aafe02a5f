//! The protocol of the workers of a batch, as a pure machine: [`decide`] converts a request to records, and [`apply`]
//! adds a record to the state. All processes apply the same records in the same order, and so have the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::journal::SessionId;
use crate::machine::BudgetUsage;
use crate::types::{MicroUsd, TimeSpan, Tokens};

/// The id of a cell, derived from its definition (task, variant, hash). It is the same in every process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CellId(pub Arc<str>);

/// The id of a worker, which runs one cell at a time. It is only shown; leases are distinguished by their tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub Arc<str>);

/// The number of a lease. It is larger than the numbers of all earlier leases of the batch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LeaseToken(pub u64);

/// The number of a reservation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ReservationId(pub u64);

/// A time for comparisons between the processes of a batch: microseconds since 1970. It never decreases in a log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SharedTime(pub u64);

/// An amount of money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Charge {
    /// Cost in micro-dollars.
    pub money: MicroUsd,
    /// Input and output tokens.
    pub tokens: Tokens,
}

/// Limits for all cells of a batch, or all sessions of a workflow, together. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChargeLimits {
    /// Limit of the cost.
    pub money: Option<MicroUsd>,
    /// Limit of input and output tokens.
    pub tokens: Option<Tokens>,
}

/// The right to run a cell, for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The cell.
    pub cell: CellId,
    /// The number. Requests of earlier owners have an older one, and are refused.
    pub token: LeaseToken,
    /// The session of the cell. The session of a new cell has to be created with this id.
    pub session: SessionId,
    /// The attempt, counted from one. It increases when a finished cell is opened again.
    pub attempt: u32,
}

/// The outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellOutcome {
    /// Success (exit code 0).
    Succeeded,
    /// An incomplete result (exit code 2).
    Partial,
    /// Failure, with this exit code.
    Failed(u8),
    /// The limits of the batch were reached. The cell opens again when the limits change.
    BudgetReached,
}

/// The session in which a finished cell runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReopenAs {
    /// The previous session is resumed.
    SameSession,
    /// A new session begins.
    NewSession,
}

/// A record of the log: a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinationRecord {
    /// These limits are in force. Cells ended by earlier limits are open again.
    Limits(ChargeLimits),
    /// A worker got a lease on a cell. This ends an earlier lease on it.
    Claimed {
        /// The cell.
        cell: CellId,
        /// The lease.
        token: LeaseToken,
        /// The worker.
        worker: WorkerId,
        /// The session of the cell.
        session: SessionId,
        /// The end of the lease.
        until: SharedTime,
    },
    /// A lease got another end.
    Renewed {
        /// The lease.
        token: LeaseToken,
        /// The new end.
        until: SharedTime,
    },
    /// A lease ended, and its cell is open.
    Released {
        /// The lease.
        token: LeaseToken,
    },
    /// A lease ended, and its cell is finished.
    Finished {
        /// The lease.
        token: LeaseToken,
        /// The outcome of the cell.
        outcome: CellOutcome,
    },
    /// A finished cell is open again.
    Reopened {
        /// The cell.
        cell: CellId,
        /// The session to use.
        how: ReopenAs,
    },
    /// The worst case of a call is reserved.
    Reserved {
        /// The reservation.
        id: ReservationId,
        /// The lease.
        token: LeaseToken,
        /// The reserved charge.
        charge: Charge,
    },
    /// A reservation is settled.
    Settled {
        /// The reservation.
        id: ReservationId,
        /// The spent charge.
        charge: Charge,
    },
    /// All workers pause their calls to a provider.
    Paused {
        /// The provider.
        provider: Arc<str>,
        /// The end of the pause.
        until: SharedTime,
    },
}

/// A request of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinationRequest {
    /// Put these limits in force.
    SetLimits(ChargeLimits),
    /// Take a cell.
    Claim {
        /// The worker.
        worker: WorkerId,
        /// The id for the session of the cell, if it has none yet.
        session: SessionId,
        /// The duration of the lease.
        span: TimeSpan,
        /// Ended leases that must not be taken over.
        skip: Vec<LeaseToken>,
    },
    /// Take over the cell of a lease that has ended.
    TakeOver {
        /// The ended lease.
        token: LeaseToken,
        /// The worker.
        worker: WorkerId,
        /// The duration of the new lease.
        span: TimeSpan,
        /// The cost of the call whose reservation is not settled; `None` if it is unknown.
        owed: Option<Charge>,
    },
    /// Set the end of leases to this time from now. An ended lease is renewed, too, unless another one has replaced it.
    Renew(Vec<LeaseToken>, TimeSpan),
    /// Give a cell back.
    Release(LeaseToken),
    /// Finish a cell.
    Finish(LeaseToken, CellOutcome),
    /// Open a finished cell again.
    Reopen(CellId, ReopenAs),
    /// Reserve the worst case of a call.
    Reserve(LeaseToken, Charge),
    /// Replace a reservation by the actual cost of the call.
    Settle(ReservationId, Charge),
    /// Pause calls to a provider for this time.
    Pause(Arc<str>, TimeSpan),
}

/// The reason why a request has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinationRefusal {
    /// The lease has ended, or another worker has the cell.
    LeaseLost,
    /// An unfinished cell has a lease that ended. It can be taken over if its owner is gone.
    Expired {
        /// The lease.
        token: LeaseToken,
        /// The session of the cell.
        session: SessionId,
        /// Whether the lease has an unsettled reservation.
        has_reservation: bool,
    },
    /// All unfinished cells have owners. The first of their leases ends at this time.
    AllLeased(SharedTime),
    /// The limits are reached.
    BudgetReached,
    /// The rest of the limits is reserved by calls under way.
    ReservedByOthers,
    /// Every cell is finished.
    NothingLeft,
    /// The request would change nothing.
    Unchanged,
}

/// The state that all processes of a batch share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedState {
    limits: ChargeLimits,
    spent: Charge,
    reserved: Charge,
    /// All cells: first those of this process, in their order.
    cells: Vec<SharedCell>,
    index: BTreeMap<CellId, usize>,
    /// The number of cells of this process.
    own: usize,
    /// Open cells of this process.
    open: BTreeSet<usize>,
    leases: BTreeMap<LeaseToken, HeldLease>,
    reservations: BTreeMap<ReservationId, Reservation>,
    pauses: BTreeMap<Arc<str>, SharedTime>,
    /// Cells that were ended by the limits.
    over_budget: BTreeSet<usize>,
    last_token: LeaseToken,
    last_reservation: ReservationId,
}

/// A cell in the shared state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SharedCell {
    id: CellId,
    session: Option<SessionId>,
    attempt: u32,
    progress: CellProgress,
}

/// The progress of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CellProgress {
    Open,
    Leased(LeaseToken),
    Finished(CellOutcome),
}

/// The newest lease of a cell. It may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeldLease {
    cell: usize,
    until: SharedTime,
}

/// A reservation that is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reservation {
    token: LeaseToken,
    charge: Charge,
}

/// Returns the records that fulfill a request at this time.
///
/// Every prefix of the records is valid, too, since a process may be killed while it writes them.
///
/// # Errors
///
/// Fails if the request is refused. A refused request changes nothing.
pub fn decide(
    state: &SharedState,
    request: CoordinationRequest,
    now: SharedTime,
) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
    match request {
        CoordinationRequest::SetLimits(limits) if limits == state.limits => {
            Err(CoordinationRefusal::Unchanged)
        }
        CoordinationRequest::SetLimits(limits) => Ok(vec![CoordinationRecord::Limits(limits)]),
        CoordinationRequest::Claim { worker, session, span, skip } => {
            let cell = state.next_open_cell(now, &skip)?;
            Ok(vec![state.claimed(cell, worker, session, now.after(span))])
        }
        CoordinationRequest::TakeOver { token, worker, span, owed } => {
            let lease = state.leases.get(&token).ok_or(CoordinationRefusal::LeaseLost)?;
            let session = state.cells[lease.cell].session.ok_or(CoordinationRefusal::LeaseLost)?;
            if now < lease.until {
                return Err(CoordinationRefusal::LeaseLost);
            }
            let mut records = state.settled(token, owed);
            records.push(state.claimed(lease.cell, worker, session, now.after(span)));
            Ok(records)
        }
        CoordinationRequest::Renew(tokens, span) => {
            let (until, held) = (now.after(span), |token: &_| state.leases.contains_key(token));
            let tokens: Vec<_> = tokens.into_iter().filter(held).collect();
            let renewed =
                tokens.into_iter().map(|token| CoordinationRecord::Renewed { token, until });
            let records: Vec<_> = renewed.collect();
            if records.is_empty() { Err(CoordinationRefusal::LeaseLost) } else { Ok(records) }
        }
        CoordinationRequest::Release(token) => {
            state.valid_lease(token, now)?;
            let mut records = state.settled(token, None);
            records.push(CoordinationRecord::Released { token });
            Ok(records)
        }
        CoordinationRequest::Finish(token, outcome) => {
            state.valid_lease(token, now)?;
            let mut records = state.settled(token, None);
            records.push(CoordinationRecord::Finished { token, outcome });
            Ok(records)
        }
        CoordinationRequest::Reopen(cell, how) => match state.cell(&cell).map(|cell| cell.progress)
        {
            Some(CellProgress::Finished(_)) => Ok(vec![CoordinationRecord::Reopened { cell, how }]),
            Some(CellProgress::Open | CellProgress::Leased(_)) | None => {
                Err(CoordinationRefusal::Unchanged)
            }
        },
        CoordinationRequest::Reserve(token, charge) => {
            state.valid_lease(token, now)?;
            let spent = state.spent;
            if state.limits.cover(spent + state.reserved + charge) {
                let id = ReservationId(state.last_reservation.0 + 1);
                Ok(vec![CoordinationRecord::Reserved { id, token, charge }])
            } else if state.limits.cover(spent + state.reserved_without_owner(now) + charge) {
                Err(CoordinationRefusal::ReservedByOthers)
            } else {
                Err(CoordinationRefusal::BudgetReached)
            }
        }
        // Allowed after the end of the lease, too: the cost of a call doesn't depend on it.
        CoordinationRequest::Settle(id, charge) if state.reservations.contains_key(&id) => {
            Ok(vec![CoordinationRecord::Settled { id, charge }])
        }
        CoordinationRequest::Settle(..) => Err(CoordinationRefusal::Unchanged),
        CoordinationRequest::Pause(provider, span) => match now.after(span) {
            until if state.pauses.get(&provider) >= Some(&until) => {
                Err(CoordinationRefusal::Unchanged)
            }
            until => Ok(vec![CoordinationRecord::Paused { provider, until }]),
        },
    }
}

/// Adds a record to the state. A record of a replaced lease changes no cell, and a reservation is settled only once.
pub fn apply(state: &mut SharedState, record: &CoordinationRecord) {
    match record {
        CoordinationRecord::Limits(limits) => {
            state.limits = *limits;
            for cell in std::mem::take(&mut state.over_budget) {
                state.reopen(cell, ReopenAs::SameSession);
            }
        }
        CoordinationRecord::Claimed { cell, token, worker: _, session, until } => {
            let cell = state.index_of(cell);
            if let CellProgress::Leased(earlier) = state.cells[cell].progress {
                state.leases.remove(&earlier);
            }
            state.over_budget.remove(&cell);
            state.open.remove(&cell);
            state.cells[cell].session = Some(*session);
            state.cells[cell].progress = CellProgress::Leased(*token);
            state.leases.insert(*token, HeldLease { cell, until: *until });
            state.last_token = state.last_token.max(*token);
        }
        CoordinationRecord::Renewed { token, until } => {
            if let Some(lease) = state.leases.get_mut(token) {
                lease.until = *until;
            }
        }
        CoordinationRecord::Released { token } => {
            if let Some(HeldLease { cell, .. }) = state.leases.remove(token) {
                state.set_open(cell);
            }
        }
        CoordinationRecord::Finished { token, outcome } => {
            if let Some(HeldLease { cell, .. }) = state.leases.remove(token) {
                state.cells[cell].progress = CellProgress::Finished(*outcome);
                if *outcome == CellOutcome::BudgetReached {
                    state.over_budget.insert(cell);
                }
            }
        }
        CoordinationRecord::Reopened { cell, how } => {
            let cell = state.index_of(cell);
            if matches!(state.cells[cell].progress, CellProgress::Finished(_)) {
                state.over_budget.remove(&cell);
                state.reopen(cell, *how);
            }
        }
        CoordinationRecord::Reserved { id, token, charge } => {
            state.reserved = state.reserved + *charge;
            state.reservations.insert(*id, Reservation { token: *token, charge: *charge });
            state.last_reservation = state.last_reservation.max(*id);
        }
        CoordinationRecord::Settled { id, charge } => {
            if let Some(reservation) = state.reservations.remove(id) {
                state.reserved = state.reserved.saturating_sub(reservation.charge);
                state.spent = state.spent + *charge;
            }
        }
        CoordinationRecord::Paused { provider, until } => {
            state.pauses.insert(Arc::clone(provider), *until);
        }
    }
}

impl CoordinationRequest {
    /// Returns whether the records must survive a crash of the machine, because their consequences can't be undone.
    pub fn must_be_durable(&self) -> bool {
        match self {
            Self::SetLimits(_)
            | Self::Claim { .. }
            | Self::TakeOver { .. }
            | Self::Finish(..)
            | Self::Reopen(..)
            | Self::Reserve(..) => true,
            Self::Renew(..) | Self::Release(_) | Self::Settle(..) | Self::Pause(..) => false,
        }
    }
}

impl SharedState {
    /// Returns the state before the first record, in a process with these cells.
    pub fn new(cells: &[CellId]) -> Self {
        let mut state = Self::default();
        for cell in cells {
            let cell = state.index_of(cell);
            state.open.insert(cell);
        }
        state.own = state.cells.len();
        state
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> ChargeLimits {
        self.limits
    }

    /// Returns the spent and the reserved charge.
    pub fn usage(&self) -> (Charge, Charge) {
        (self.spent, self.reserved)
    }

    /// Returns the end of the pause of a provider.
    pub fn pause(&self, provider: &str) -> Option<SharedTime> {
        self.pauses.get(provider).copied()
    }

    /// Returns the outcome of a finished cell, and its session.
    pub fn outcome(&self, cell: &CellId) -> Option<(CellOutcome, SessionId)> {
        let cell = self.cell(cell)?;
        match cell.progress {
            CellProgress::Finished(outcome) => Some((outcome, cell.session?)),
            CellProgress::Open | CellProgress::Leased(_) => None,
        }
    }

    /// Returns the outcomes of the finished cells of this process.
    pub fn outcomes(&self) -> impl Iterator<Item = CellOutcome> {
        self.cells[..self.own].iter().filter_map(|cell| match cell.progress {
            CellProgress::Finished(outcome) => Some(outcome),
            CellProgress::Open | CellProgress::Leased(_) => None,
        })
    }

    /// Returns the number of open and of leased cells of this process.
    pub fn unfinished(&self) -> (usize, usize) {
        (self.open.len(), self.own_leases().count())
    }

    /// Returns the lease with this number, unless another one has replaced it. It may have ended.
    pub fn lease(&self, token: LeaseToken) -> Option<Lease> {
        let cell = &self.cells[self.leases.get(&token)?.cell];
        let (session, attempt) = (cell.session?, cell.attempt);
        Some(Lease { cell: cell.id.clone(), token, session, attempt })
    }

    fn cell(&self, cell: &CellId) -> Option<&SharedCell> {
        self.index.get(cell).map(|index| &self.cells[*index])
    }

    fn own_leases(&self) -> impl Iterator<Item = (LeaseToken, HeldLease)> {
        let leases = self.leases.iter().filter(|(_, lease)| lease.cell < self.own);
        leases.map(|(token, lease)| (*token, *lease))
    }

    /// Checks that a lease is the newest one of its cell and hasn't ended.
    fn valid_lease(&self, token: LeaseToken, now: SharedTime) -> Result<(), CoordinationRefusal> {
        let lease = self.leases.get(&token).filter(|lease| now < lease.until);
        lease.map(|_| ()).ok_or(CoordinationRefusal::LeaseLost)
    }

    /// Returns the next open cell. A cell whose lease has ended takes precedence, with
    /// [`CoordinationRefusal::Expired`].
    fn next_open_cell(
        &self,
        now: SharedTime,
        skip: &[LeaseToken],
    ) -> Result<usize, CoordinationRefusal> {
        let (next, first_end) =
            (self.open.first(), self.own_leases().map(|(_, it)| it.until).min());
        if next.is_none() && first_end.is_none() {
            return Err(if self.over_budget.iter().any(|cell| *cell < self.own) {
                CoordinationRefusal::BudgetReached
            } else {
                CoordinationRefusal::NothingLeft
            });
        }
        let ended =
            |(token, lease): &(LeaseToken, HeldLease)| lease.until <= now && !skip.contains(token);
        if let Some((token, lease)) = self.own_leases().find(ended)
            && let Some(session) = self.cells[lease.cell].session
        {
            let has_reservation = self.reservations_of(token).next().is_some();
            return Err(CoordinationRefusal::Expired { token, session, has_reservation });
        }
        match next {
            Some(cell) if self.over_budget.is_empty() => Ok(*cell),
            // Cells under way may still be finished with the reservations that others give back.
            Some(_) | None => Err(first_end
                .map_or(CoordinationRefusal::BudgetReached, CoordinationRefusal::AllLeased)),
        }
    }

    fn claimed(
        &self,
        cell: usize,
        worker: WorkerId,
        session: SessionId,
        until: SharedTime,
    ) -> CoordinationRecord {
        let SharedCell { id, session: known, .. } = &self.cells[cell];
        CoordinationRecord::Claimed {
            cell: id.clone(),
            token: LeaseToken(self.last_token.0 + 1),
            worker,
            session: known.unwrap_or(session),
            until,
        }
    }

    fn reservations_of(&self, token: LeaseToken) -> impl Iterator<Item = (ReservationId, Charge)> {
        let reservations = self.reservations.iter().filter(move |(_, it)| it.token == token);
        reservations.map(|(id, it)| (*id, it.charge))
    }

    /// Returns the records that settle the reservations of a lease: a single one by `owed`, if known, others as fully
    /// spent.
    fn settled(&self, token: LeaseToken, owed: Option<Charge>) -> Vec<CoordinationRecord> {
        let is_one = self.reservations_of(token).nth(1).is_none();
        let owed = owed.filter(|_| is_one);
        let settle = |(id, charge): (ReservationId, Charge)| CoordinationRecord::Settled {
            id,
            charge: owed.map_or(charge, |owed| owed.min(charge)),
        };
        self.reservations_of(token).map(settle).collect()
    }

    /// Returns the reservations of ended leases. Their owners are not expected to settle them soon.
    fn reserved_without_owner(&self, now: SharedTime) -> Charge {
        let reservations = self.reservations.values();
        let ended = reservations.filter(|it| self.valid_lease(it.token, now).is_err());
        ended.fold(Charge::default(), |sum, it| sum + it.charge)
    }

    /// Returns the index of a cell, and adds the cell if it is unknown.
    fn index_of(&mut self, cell: &CellId) -> usize {
        if let Some(index) = self.index.get(cell) {
            return *index;
        }
        let index = self.cells.len();
        let (session, attempt, progress) = (None, 1, CellProgress::Open);
        self.cells.push(SharedCell { id: cell.clone(), session, attempt, progress });
        self.index.insert(cell.clone(), index);
        index
    }

    fn set_open(&mut self, cell: usize) {
        self.cells[cell].progress = CellProgress::Open;
        if cell < self.own {
            self.open.insert(cell);
        }
    }

    fn reopen(&mut self, cell: usize, how: ReopenAs) {
        self.set_open(cell);
        let cell = &mut self.cells[cell];
        cell.attempt += 1;
        cell.session = cell.session.filter(|_| how == ReopenAs::SameSession);
    }
}

impl ChargeLimits {
    /// Returns whether a charge is within the limits.
    pub fn cover(&self, charge: Charge) -> bool {
        self.money.is_none_or(|limit| charge.money <= limit)
            && self.tokens.is_none_or(|limit| charge.tokens <= limit)
    }

    /// Returns whether a charge uses up one of the limits.
    pub fn are_reached(&self, charge: Charge) -> bool {
        self.money.is_some_and(|limit| charge.money >= limit)
            || self.tokens.is_some_and(|limit| charge.tokens >= limit)
    }

    /// Returns the limits less a charge.
    pub fn less(self, charge: Charge) -> Self {
        Self {
            money: self.money.map(|limit| limit.saturating_sub(charge.money)),
            tokens: self.tokens.map(|limit| limit.saturating_sub(charge.tokens)),
        }
    }
}

impl Charge {
    /// Returns the difference; zero where `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            money: self.money.saturating_sub(other.money),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    fn min(self, other: Self) -> Self {
        Self { money: self.money.min(other.money), tokens: self.tokens.min(other.tokens) }
    }
}

impl From<BudgetUsage> for Charge {
    fn from(used: BudgetUsage) -> Self {
        Self { money: used.cost, tokens: used.tokens }
    }
}

impl Add for Charge {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { money: self.money + other.money, tokens: self.tokens + other.tokens }
    }
}

impl SharedTime {
    /// Returns the time `span` later.
    pub fn after(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> TimeSpan {
        TimeSpan(self.0.saturating_sub(earlier.0))
    }
}
