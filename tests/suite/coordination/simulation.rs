//! Lives of batches in simulated time: three processes with a log on disk, which are killed and suspended at random
//! points, also within a write. Each life follows from its seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use architect::journal::SessionId;
use architect::types::TimeSpan;
use architect::workflow::batch::coordination::{
    CellClaim, CellOutcome, Charge, CoordinationError, CoordinationSettings, Coordinator, Lease,
    ReservationId, ReserveError, SessionProbe,
};

use super::settings::{LEASE_TIME, TestClock, cells, dollars, money, settings, worker};
use crate::simulator::rng::Rng;

/// Steps that each cell has. Each is one model call and one effect.
const STEPS: u32 = 3;

/// The highest cost of a call.
const WORST: u64 = 10;

/// The sessions and the provider: the facts, whether or not the log has them.
#[derive(Default)]
struct Outside {
    sessions: BTreeMap<SessionId, Session>,
    cost: u64,
}

#[derive(Default)]
struct Session {
    /// The steps that ran.
    steps: u32,
    /// The process that has it open.
    owner: Option<u64>,
    /// The cost of the last call, if it ended.
    last: Option<u64>,
}

struct Sessions(Arc<Mutex<Outside>>);

impl SessionProbe for Sessions {
    fn is_running(&self, session: SessionId) -> bool {
        self.0.lock().unwrap().sessions.get(&session).is_some_and(|found| found.owner.is_some())
    }

    fn last_charge(&self, session: SessionId) -> Option<Charge> {
        let outside = self.0.lock().unwrap();
        Some(money(outside.sessions.get(&session)?.last?))
    }
}

/// A process with one worker.
struct Process {
    id: u64,
    coordinator: Coordinator,
    task: Task,
    /// Turns that it is suspended for.
    suspended: u64,
}

enum Task {
    Idle,
    Running(Lease),
    Reserved(Lease, ReservationId),
    Called(Lease, ReservationId, u64),
    Done,
}

struct Life {
    rng: Rng,
    dir: PathBuf,
    clock: Arc<TestClock>,
    outside: Arc<Mutex<Outside>>,
    settings: CoordinationSettings,
    cells: usize,
    processes: u64,
    kills: u32,
}

impl Life {
    fn new(seed: u64, dir: &Path) -> Self {
        let rng = Rng::new(seed);
        let clock = Arc::new(TestClock::default());
        let outside = Arc::new(Mutex::new(Outside::default()));
        let limits = dollars(30 + rng.below(400));
        let sessions = Arc::new(Sessions(Arc::clone(&outside)));
        let settings = CoordinationSettings { limits, sessions, ..settings(&clock) };
        let cells = 1 + usize::try_from(rng.below(6)).unwrap();
        let dir = dir.join(seed.to_string());
        fs::create_dir(&dir).unwrap();
        Self { rng, dir, clock, outside, settings, cells, processes: 0, kills: 0 }
    }

    fn start(&mut self) -> Process {
        self.processes += 1;
        let settings = self.settings.clone();
        let coordinator = Coordinator::open(&self.dir, &cells(self.cells), settings).unwrap();
        Process { id: self.processes, coordinator, task: Task::Idle, suspended: 0 }
    }

    fn log_length(&self) -> u64 {
        fs::metadata(self.dir.join("coordination.jsonl")).unwrap().len()
    }

    /// Ends a process, perhaps within the write of its last step, which began at this length of the log.
    fn kill(&mut self, process: &Process, before: u64) {
        let written = self.log_length() - before;
        let is_torn = written > 0 && self.rng.below(2) == 0;
        if is_torn {
            let log = fs::OpenOptions::new().write(true).open(self.dir.join("coordination.jsonl"));
            log.unwrap().set_len(before + self.rng.below(written)).unwrap();
        }
        let sessions = &mut self.outside.lock().unwrap().sessions;
        // The effects of a torn write have not happened.
        sessions.retain(|_, it| !(is_torn && it.owner == Some(process.id) && it.steps == 0));
        for session in sessions.values_mut() {
            session.owner = session.owner.filter(|owner| *owner != process.id);
        }
        self.kills += 1;
    }

    /// One step of a process.
    fn step(&self, process: &mut Process) {
        let rng = &self.rng;
        let task = std::mem::replace(&mut process.task, Task::Idle);
        let coordinator = &process.coordinator;
        process.task = match task {
            Task::Idle => match coordinator.claim(&worker("w")).unwrap() {
                CellClaim::Start(lease) | CellClaim::Resume(lease) => {
                    self.open_session(process.id, lease)
                }
                CellClaim::Wait(span) => {
                    assert!(span <= LEASE_TIME);
                    Task::Idle
                }
                CellClaim::BudgetReached | CellClaim::NothingLeft => Task::Done,
            },
            Task::Running(lease) if rng.below(4) == 0 => match coordinator.renew(&lease) {
                Ok(()) => Task::Running(lease),
                Err(CoordinationError::LeaseLost(_)) => self.close_session(&lease),
                Err(error) => panic!("{error}"),
            },
            Task::Running(lease) if rng.below(20) == 0 => {
                let _ = coordinator.release(&lease);
                self.close_session(&lease)
            }
            Task::Running(lease) if self.steps(&lease) == STEPS => {
                let _ = coordinator.finish(&lease, CellOutcome::Succeeded);
                self.close_session(&lease)
            }
            Task::Running(lease) => match coordinator.reserve(&lease, money(WORST)) {
                Ok(id) => {
                    self.outside.lock().unwrap().sessions.get_mut(&lease.session).unwrap().last =
                        None;
                    Task::Reserved(lease, id)
                }
                Err(ReserveError::Pending) => Task::Running(lease),
                Err(ReserveError::BudgetReached) => {
                    let _ = coordinator.finish(&lease, CellOutcome::BudgetReached);
                    self.close_session(&lease)
                }
                Err(ReserveError::Failed(_)) => self.close_session(&lease),
            },
            Task::Reserved(lease, id) => {
                let cost = rng.below(WORST + 1);
                self.outside.lock().unwrap().cost += cost;
                Task::Called(lease, id, cost)
            }
            Task::Called(lease, id, cost) => {
                // The reply is in the journal, and its effect has happened, before the reservation is settled or after.
                if rng.below(4) == 0 {
                    self.run_effect(process.id, &lease, cost);
                    coordinator.settle(id, money(cost)).unwrap();
                } else {
                    coordinator.settle(id, money(cost)).unwrap();
                    self.run_effect(process.id, &lease, cost);
                }
                Task::Running(lease)
            }
            Task::Done => Task::Done,
        };
    }

    fn steps(&self, lease: &Lease) -> u32 {
        self.outside.lock().unwrap().sessions[&lease.session].steps
    }

    /// Opens the session; panics if another process has it open.
    fn open_session(&self, id: u64, lease: Lease) -> Task {
        let mut outside = self.outside.lock().unwrap();
        let session = outside.sessions.entry(lease.session).or_default();
        assert_eq!(session.owner.replace(id), None, "a session runs twice");
        Task::Running(lease)
    }

    fn close_session(&self, lease: &Lease) -> Task {
        self.outside.lock().unwrap().sessions.get_mut(&lease.session).unwrap().owner = None;
        Task::Idle
    }

    fn run_effect(&self, id: u64, lease: &Lease, cost: u64) {
        let mut outside = self.outside.lock().unwrap();
        let session = outside.sessions.get_mut(&lease.session).unwrap();
        assert_eq!(session.owner, Some(id));
        (session.steps, session.last) = (session.steps + 1, Some(cost));
    }

    /// Lives to the end. Returns how many processes were killed, and how many cells succeeded.
    fn live(mut self) -> (u32, usize) {
        let mut processes: Vec<Process> = (0..3).map(|_| self.start()).collect();
        let mut turns = 0_u64;
        loop {
            turns += 1;
            assert!(turns < 20_000, "the batch doesn't end");
            let has_faults = turns < 300;
            if processes.iter().all(|process| matches!(process.task, Task::Done)) {
                break;
            }
            self.clock.advance(match self.rng.below(10) {
                0 => LEASE_TIME.fraction(self.rng.below(8), 8),
                _ => TimeSpan::from_millis(self.rng.below(2_000)),
            });
            let index = usize::try_from(self.rng.below(3)).unwrap();
            let process = &mut processes[index];
            if process.suspended > 0 {
                process.suspended -= 1;
                continue;
            }
            let before = self.log_length();
            self.step(process);
            let fault = self.rng.below(12);
            if has_faults && fault == 0 {
                self.kill(process, before);
                *process = self.start();
            } else if has_faults && fault == 1 {
                process.suspended = self.rng.below(30);
            }
            self.check(&processes[index]);
        }
        let ends = self.start().coordinator.progress().unwrap();
        assert_eq!((ends.running, ends.reserved), (0, Charge::default()));
        let is_over_budget = ends.over_budget > 0;
        assert_eq!(ends.open + ends.succeeded + ends.over_budget, self.cells);
        assert!(is_over_budget || ends.succeeded == self.cells);
        // Each step of each cell that succeeded ran once, in one session.
        let outside = self.outside.lock().unwrap();
        let whole = outside.sessions.values().filter(|session| session.steps == STEPS);
        assert!(whole.count() >= ends.succeeded);
        assert!(outside.sessions.len() <= self.cells);
        (self.kills, ends.succeeded)
    }

    fn check(&self, process: &Process) {
        let ends = process.coordinator.progress().unwrap();
        let paid = (ends.spent + ends.reserved).money;
        assert!(paid <= self.settings.limits.money.unwrap());
        assert!(self.outside.lock().unwrap().cost <= paid.0, "a call is not paid");
    }
}

#[test]
fn thousands_of_lives_lose_nothing_run_nothing_twice_and_stay_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (mut kills, mut succeeded) = (0, 0);
    for seed in 0..2_000 {
        let life = Life::new(seed, dir.path());
        let folder = life.dir.clone();
        let (killed, done) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.live()))
            .unwrap_or_else(|_| panic!("the life of seed {seed}"));
        (kills, succeeded) = (kills + killed, succeeded + done);
        fs::remove_dir_all(folder).unwrap();
    }
    println!("{kills} kills, {succeeded} cells succeeded");
    assert!(kills > 5_000 && succeeded > 2_000, "{kills} kills, {succeeded} cells");
}
