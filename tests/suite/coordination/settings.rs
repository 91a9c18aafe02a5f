//! Coordinators for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use architect::journal::SessionId;
use architect::port::Clock;
use architect::runner::SystemClock;
use architect::types::{Durability, MicroUsd, RunTime, TimeSpan, Tokens};
use architect::workflow::batch::coordination::{
    CellClaim, CellId, Charge, ChargeLimits, CoordinationSettings, Coordinator, Lease,
    SessionProbe, WorkerId,
};

/// A clock that a test moves.
#[derive(Default)]
pub(super) struct TestClock(AtomicU64);

impl TestClock {
    pub(super) fn advance(&self, span: TimeSpan) {
        self.0.fetch_add(span.0, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> RunTime {
        RunTime(self.0.load(Ordering::Relaxed))
    }

    fn wall_time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Reports that no session is open, and that the costs of lost calls are unknown.
pub(super) struct NoSessions;

impl SessionProbe for NoSessions {
    fn is_running(&self, _: SessionId) -> bool {
        false
    }

    fn last_charge(&self, _: SessionId) -> Option<Charge> {
        None
    }
}

pub(super) const LEASE_TIME: TimeSpan = TimeSpan::from_secs(60);

/// Returns settings with this clock, without limits.
pub(super) fn settings(clock: &Arc<TestClock>) -> CoordinationSettings {
    let clock: Arc<TestClock> = Arc::clone(clock);
    CoordinationSettings { clock, ..real_time() }
}

/// Returns settings with the system's clock, without limits.
pub(super) fn real_time() -> CoordinationSettings {
    CoordinationSettings {
        limits: ChargeLimits::default(),
        lease_time: LEASE_TIME,
        durability: Durability::Os,
        clock: Arc::new(SystemClock::start()),
        sessions: Arc::new(NoSessions),
    }
}

/// Returns the limits of a batch that may cost so much.
pub(super) fn dollars(micros: u64) -> ChargeLimits {
    ChargeLimits { money: Some(MicroUsd(micros)), tokens: None }
}

/// Returns a charge of money alone.
pub(super) fn money(micros: u64) -> Charge {
    Charge { money: MicroUsd(micros), tokens: Tokens::ZERO }
}

/// Returns this number of cells.
pub(super) fn cells(count: usize) -> Vec<CellId> {
    (0..count).map(|number| CellId(format!("cell-{number}").into())).collect()
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId(name.into())
}

/// Takes a cell, which has to be there.
pub(super) fn claim(coordinator: &Coordinator) -> Lease {
    match coordinator.claim(&worker("w")).unwrap() {
        CellClaim::Start(lease) | CellClaim::Resume(lease) => lease,
        other => panic!("{other:?}"),
    }
}
