//! Real processes that share a folder, killed at random.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use architect::journal::SessionId;
use architect::types::TimeSpan;
use architect::workflow::batch::coordination::{
    CellClaim, CellOutcome, Charge, ChargeLimits, CoordinationError, CoordinationSettings,
    Coordinator, ReserveError, SessionProbe,
};

use super::settings::{cells, dollars, money, real_time, worker};
use crate::kit::system::wait_until;
use crate::simulator::rng::Rng;

/// The variables that make this program a worker: its folder, and the budget of the batch.
const FOLDER: &str = "ARCHITECT_TEST_WORKER_FOLDER";
const BUDGET: &str = "ARCHITECT_TEST_WORKER_BUDGET";

const CELLS: usize = 40;
const STEPS: usize = 3;

/// The cost of a call, and the amount that is reserved for it.
const COST: u64 = 7;
const WORST: u64 = 10;

/// The sessions of a folder: one file for each, which the session's process locks. Each line is a step with its call.
struct SessionFiles(PathBuf);

impl SessionFiles {
    fn open(&self, session: SessionId) -> File {
        let path = self.0.join(session.to_string());
        OpenOptions::new().create(true).append(true).read(true).open(path).unwrap()
    }

    fn steps(&self, session: SessionId) -> usize {
        fs::read_to_string(self.0.join(session.to_string())).unwrap_or_default().lines().count()
    }
}

impl SessionProbe for SessionFiles {
    fn is_running(&self, session: SessionId) -> bool {
        let file = self.open(session);
        let is_locked = file.try_lock().is_err();
        let _ = file.unlock();
        is_locked
    }

    fn last_charge(&self, _: SessionId) -> Option<Charge> {
        None
    }
}

fn open(dir: &Path, limits: ChargeLimits) -> Coordinator {
    let sessions = Arc::new(SessionFiles(dir.join("sessions")));
    let lease_time = TimeSpan::from_millis(300);
    let settings = CoordinationSettings { limits, lease_time, sessions, ..real_time() };
    Coordinator::open(dir, &cells(CELLS), settings).unwrap()
}

/// Not a test: a process of the tests below.
#[test]
fn work() {
    let Some(dir) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let limits = dollars(env::var(BUDGET).unwrap().parse().unwrap());
    let coordinator = open(&dir, limits);
    let sessions = SessionFiles(dir.join("sessions"));
    'cells: loop {
        let lease = match coordinator.claim(&worker("w")).unwrap() {
            CellClaim::Start(lease) | CellClaim::Resume(lease) => lease,
            CellClaim::Wait(span) => {
                thread::sleep(span.into());
                continue;
            }
            CellClaim::BudgetReached | CellClaim::NothingLeft => return,
        };
        let mut session = sessions.open(lease.session);
        // The lock is held for a moment by a process that checks whether the session runs.
        wait_until("no other process runs this session", || session.try_lock().is_ok());
        let outcome = loop {
            let step = sessions.steps(lease.session);
            if step == STEPS {
                break CellOutcome::Succeeded;
            }
            let id = match coordinator.reserve(&lease, money(WORST)) {
                Ok(id) => id,
                Err(ReserveError::Pending) => {
                    thread::sleep(Duration::from_millis(5));
                    let _ = coordinator.renew(&lease);
                    continue;
                }
                Err(ReserveError::BudgetReached) => break CellOutcome::BudgetReached,
                // The machine was slow.
                Err(ReserveError::Failed(CoordinationError::LeaseLost(_))) => continue 'cells,
                Err(ReserveError::Failed(error)) => panic!("{error}"),
            };
            thread::sleep(Duration::from_millis(1));
            // The provider counts, and the journal has the reply.
            append(&dir.join("provider"), "call\n");
            session.write_all(format!("{} {step}\n", lease.cell.0).as_bytes()).unwrap();
            coordinator.settle(id, money(COST)).unwrap();
        };
        match coordinator.finish(&lease, outcome) {
            Ok(()) | Err(CoordinationError::LeaseLost(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn spawn(dir: &Path, budget: u64) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "coordination::processes::work", "--nocapture"])
        .env(FOLDER, dir)
        .env(BUDGET, budget.to_string())
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(dir.join("stderr")).unwrap())
        .spawn()
        .unwrap()
}

/// Runs four processes, and kills this number of them; returns the coordination at the end.
fn run(dir: &Path, budget: u64, kills: u32) -> Coordinator {
    fs::create_dir(dir.join("sessions")).unwrap();
    let rng = Rng::new(u64::from(kills));
    let mut children: Vec<Child> = (0..4).map(|_| spawn(dir, budget)).collect();
    let mut killed = 0;
    let begun = Instant::now();
    while !children.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the batch does not end");
        thread::sleep(Duration::from_millis(5 + rng.below(30)));
        if killed < kills {
            let index = usize::try_from(rng.below(children.len() as u64)).unwrap();
            children[index].kill().unwrap();
            children[index].wait().unwrap();
            children[index] = spawn(dir, budget);
            killed += 1;
        }
        let is_over = |child: &mut Child| match child.try_wait().unwrap() {
            None => false,
            Some(status) => {
                let text = || fs::read_to_string(dir.join("stderr")).unwrap_or_default();
                assert!(status.success(), "{status}: {}", text());
                true
            }
        };
        children.retain_mut(|child| !is_over(child));
        while killed < kills && children.len() < 4 {
            children.push(spawn(dir, budget));
        }
    }
    open(dir, dollars(budget))
}

fn check(dir: &Path, coordinator: &Coordinator, budget: u64) {
    let ends = coordinator.progress().unwrap();
    println!("{ends:?}");
    assert_eq!((ends.running, ends.reserved), (0, Charge::default()));
    let calls = fs::read_to_string(dir.join("provider")).unwrap().lines().count() as u64;
    assert!(calls * COST <= ends.spent.money.0 && ends.spent.money.0 <= budget);
    // Each step ran once, in one session of its cell.
    let mut steps: BTreeMap<String, u32> = BTreeMap::new();
    for session in fs::read_dir(dir.join("sessions")).unwrap() {
        for line in fs::read_to_string(session.unwrap().path()).unwrap().lines() {
            *steps.entry(line.to_owned()).or_default() += 1;
        }
    }
    assert!(steps.values().all(|times| *times == 1), "{steps:?}");
    assert!(steps.len() >= ends.succeeded * STEPS);
    assert_eq!(ends.succeeded + ends.over_budget + ends.open, CELLS);
}

#[test]
fn killed_processes_lose_nothing_and_run_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let kills = 60;
    let budget = (CELLS * STEPS) as u64 * COST + u64::from(kills) * WORST + 4 * WORST;
    let coordinator = run(dir.path(), budget, kills);
    check(dir.path(), &coordinator, budget);
    assert_eq!(coordinator.progress().unwrap().succeeded, CELLS);
}

#[test]
fn killed_processes_stay_within_a_budget_that_is_too_small() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = run(dir.path(), 300, 15);
    check(dir.path(), &coordinator, 300);
    let ends = coordinator.progress().unwrap();
    assert!(ends.over_budget > 0 && ends.spent.money.0 > 300 - WORST, "{ends:?}");
}

/// The lock of the log is that of its file, between processes too.
#[test]
fn a_process_waits_for_the_lock_of_another() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sessions")).unwrap();
    drop(open(dir.path(), dollars(1_000_000)));
    let log = File::open(dir.path().join("coordination.jsonl")).unwrap();
    log.lock().unwrap();
    let before = fs::metadata(dir.path().join("coordination.jsonl")).unwrap().len();
    let mut child = spawn(dir.path(), 1_000_000);
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    assert_eq!(log.metadata().unwrap().len(), before);
    log.unlock().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(log.metadata().unwrap().len() > before);
}
