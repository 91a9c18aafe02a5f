//! A breadth-first search over all actions of three workers with two cells and a small budget: run, stop for any time,
//! crash, come back late. Time passes at any point. Accepted records are checked against facts that the protocol
//! doesn't keep: the newest lease, the real cost of calls, the real process of a session.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use architect::journal::SessionId;
use architect::types::TimeSpan;
use architect::workflow::batch::coordination::protocol::{
    CoordinationRecord, CoordinationRefusal, CoordinationRequest, SharedState, SharedTime, apply,
    decide,
};
use architect::workflow::batch::coordination::{CellId, CellOutcome, LeaseToken, ReservationId};

use super::settings::{cells, dollars, money, worker};

/// The explored protocol and workers, or one of them with a seeded defect.
#[derive(Clone, Copy)]
struct Subject {
    decide: fn(
        &SharedState,
        CoordinationRequest,
        SharedTime,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal>,
    /// Whether workers reserve a call before they make it.
    reserves_first: bool,
}

const PROTOCOL: Subject = Subject { decide, reserves_first: true };

/// The bounds of the search.
#[derive(Clone, Copy)]
struct Bounds {
    cells: usize,
    /// The budget; each call reserves one and costs one or nothing.
    budget: u64,
    leases: u64,
    calls: u64,
    time: u64,
    /// Whether a worker sees the open sessions of other living workers.
    sees_sessions: bool,
}

const BOUNDS: Bounds =
    Bounds { cells: 2, budget: 1, leases: 3, calls: 2, time: 3, sees_sessions: true };

/// A lease ends after this time.
const LEASE: TimeSpan = TimeSpan(2);

/// The protocol's state, the workers, and the facts.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Scene {
    state: SharedState,
    now: SharedTime,
    workers: Vec<Worker>,
    facts: GroundTruth,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Worker {
    /// A process without a cell.
    Idle,
    /// It runs the session of its lease, as far as it knows.
    Running { token: LeaseToken, session: SessionId, call: Call },
}

/// The model call of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    None,
    Reserved(ReservationId),
    /// It was made, and cost this. Without a reservation only with a defect.
    Made(Option<ReservationId>, u64),
}

/// The facts that hold whether or not the protocol knows them.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct GroundTruth {
    /// The newest lease of each cell, with its end, unless it is released or finished.
    leases: BTreeMap<CellId, (LeaseToken, SharedTime)>,
    newest: LeaseToken,
    sessions: BTreeMap<CellId, SessionId>,
    finished: BTreeSet<CellId>,
    reservations: BTreeSet<ReservationId>,
    made: u64,
    cost: u64,
    /// The cost of a crashed worker's last call, if its journal shows the call.
    journal: BTreeMap<SessionId, u64>,
}

/// The results of a search.
#[derive(Default)]
struct Report {
    scenes: usize,
    violations: BTreeSet<&'static str>,
}

const ONE_LEASE: &str = "a cell has one valid lease at most";
const STALE: &str = "nothing is accepted under a lease that another has replaced";
const LATE: &str = "nothing is accepted under a lease that has ended";
const RUNS_TWICE: &str = "no session runs in two processes that see each other";
const OVER_LIMIT: &str = "what is spent and reserved is within the limit";
const UNPAID: &str = "what calls cost is spent or reserved";
const SETTLED_TWICE: &str = "a reservation is settled once";
const FINISHED_TWICE: &str = "a cell finishes once";
const OTHER_SESSION: &str = "a cell keeps its session";
const LOST_CELL: &str = "an unfinished cell can be claimed at some time";

fn explore(subject: Subject, bounds: Bounds, most: usize) -> Report {
    let mut state = SharedState::default();
    state.clone_from(&SharedState::new(&cells(bounds.cells)));
    apply(&mut state, &CoordinationRecord::Limits(dollars(bounds.budget)));
    let workers = vec![Worker::Idle; 3];
    let first = Scene { state, now: SharedTime(0), workers, facts: GroundTruth::default() };
    let mut report = Report::default();
    let mut seen = HashSet::from([hash(&first)]);
    let mut queue = VecDeque::from([first]);
    while let Some(scene) = queue.pop_front() {
        report.scenes += 1;
        for mut next in scene.successors(subject, bounds, &mut report.violations) {
            // The workers are alike.
            next.workers.sort();
            next.check(bounds, &mut report.violations);
            if seen.len() < most && seen.insert(hash(&next)) {
                queue.push_back(next);
            }
        }
    }
    report
}

fn hash(scene: &Scene) -> u64 {
    let mut hasher = DefaultHasher::new();
    scene.hash(&mut hasher);
    hasher.finish()
}

fn session(number: u64) -> SessionId {
    format!("00000000-0000-7000-8000-{number:012}").parse().unwrap()
}

impl Scene {
    fn successors(
        &self,
        subject: Subject,
        bounds: Bounds,
        violations: &mut BTreeSet<&'static str>,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        if self.now.0 < bounds.time {
            found.push(Self { now: SharedTime(self.now.0 + 1), ..self.clone() });
        }
        for index in 0..self.workers.len() {
            let mut scenes = match self.workers[index] {
                Worker::Idle => self.claims(subject, bounds, index, violations),
                Worker::Running { token, session, call } => {
                    self.steps(subject, bounds, index, (token, session, call), violations)
                }
            };
            found.append(&mut scenes);
        }
        found
    }

    /// A worker without a cell asks for one.
    fn claims(
        &self,
        subject: Subject,
        bounds: Bounds,
        index: usize,
        violations: &mut BTreeSet<&'static str>,
    ) -> Vec<Self> {
        if self.facts.newest.0 >= bounds.leases {
            return Vec::new();
        }
        let proposed = session(self.facts.newest.0 + 1);
        let mut skip = Vec::new();
        loop {
            let claim = CoordinationRequest::Claim {
                worker: worker("w"),
                session: proposed,
                span: LEASE,
                skip: skip.clone(),
            };
            let request = match (subject.decide)(&self.state, claim.clone(), self.now) {
                Ok(_) => claim,
                Err(CoordinationRefusal::Expired { token, session, .. }) => {
                    if bounds.sees_sessions && self.runs(session) {
                        skip.push(token);
                        continue;
                    }
                    let known = self.facts.journal.get(&session).filter(|_| !self.runs(session));
                    let owed = known.map(|cost| money(*cost));
                    CoordinationRequest::TakeOver { token, worker: worker("w"), span: LEASE, owed }
                }
                Err(_) => return Vec::new(),
            };
            let mut next = self.clone();
            let Ok(records) = next.request(subject, bounds, request, violations) else {
                return Vec::new();
            };
            for record in records {
                if let CoordinationRecord::Claimed { token, session, .. } = record {
                    next.facts.journal.remove(&session);
                    next.workers[index] = Worker::Running { token, session, call: Call::None };
                }
            }
            return vec![next];
        }
    }

    /// A worker continues with its cell, or crashes.
    fn steps(
        &self,
        subject: Subject,
        bounds: Bounds,
        index: usize,
        (token, session, call): (LeaseToken, SessionId, Call),
        violations: &mut BTreeSet<&'static str>,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        let running = |call| Worker::Running { token, session, call };
        let mut crashed = self.clone();
        crashed.workers[index] = Worker::Idle;
        if let Call::Made(Some(_), cost) = call {
            // Its journal may have the reply or not.
            let mut known = crashed.clone();
            known.facts.journal.insert(session, cost);
            found.push(known);
        }
        found.push(crashed);
        let mut ask = |request, after: Worker| {
            let mut next = self.clone();
            let answer = next.request(subject, bounds, request, violations);
            match answer {
                Ok(records) => {
                    let reserved = records.iter().find_map(|record| match record {
                        CoordinationRecord::Reserved { id, .. } => Some(*id),
                        _ => None,
                    });
                    next.workers[index] = match (&after, reserved, call) {
                        (Worker::Running { .. }, Some(id), Call::Made(None, cost)) => {
                            running(Call::Made(Some(id), cost))
                        }
                        (Worker::Running { .. }, Some(id), _) => running(Call::Reserved(id)),
                        _ => after,
                    };
                }
                Err(CoordinationRefusal::Unchanged) => next.workers[index] = after,
                // The run stops.
                Err(CoordinationRefusal::LeaseLost) => next.workers[index] = Worker::Idle,
                Err(_) => return,
            }
            found.push(next);
        };
        match call {
            Call::None => {
                ask(CoordinationRequest::Renew(vec![token], LEASE), running(call));
                ask(CoordinationRequest::Release(token), Worker::Idle);
                ask(CoordinationRequest::Finish(token, CellOutcome::Succeeded), Worker::Idle);
                if self.facts.made < bounds.calls && subject.reserves_first {
                    ask(CoordinationRequest::Reserve(token, money(1)), running(call));
                } else if self.facts.made < bounds.calls {
                    found.extend(self.calls(index, None, running));
                }
            }
            Call::Reserved(id) => found.extend(self.calls(index, Some(id), running)),
            Call::Made(None, _) => {
                ask(CoordinationRequest::Reserve(token, money(1)), running(call));
            }
            Call::Made(Some(id), cost) => {
                ask(CoordinationRequest::Settle(id, money(cost)), running(Call::None));
            }
        }
        found
    }

    /// The call is made, for one or for nothing.
    fn calls(
        &self,
        index: usize,
        id: Option<ReservationId>,
        running: impl Fn(Call) -> Worker,
    ) -> impl Iterator<Item = Self> {
        [0, 1]
            .map(|cost| {
                let mut next = self.clone();
                next.workers[index] = running(Call::Made(id, cost));
                next.facts.made += 1;
                next.facts.cost += cost;
                next
            })
            .into_iter()
    }

    fn request(
        &mut self,
        subject: Subject,
        bounds: Bounds,
        request: CoordinationRequest,
        violations: &mut BTreeSet<&'static str>,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
        let records = (subject.decide)(&self.state, request, self.now)?;
        for record in &records {
            self.check_record(record, bounds, violations);
            apply(&mut self.state, record);
        }
        Ok(records)
    }

    /// Checks a record against the facts, and adds it to them.
    fn check_record(
        &mut self,
        record: &CoordinationRecord,
        bounds: Bounds,
        violations: &mut BTreeSet<&'static str>,
    ) {
        let now = self.now;
        let held = |facts: &GroundTruth, token: LeaseToken| {
            let found = facts.leases.iter().find(|(_, (newest, _))| *newest == token);
            found.map(|(cell, (_, until))| (cell.clone(), *until))
        };
        match record {
            CoordinationRecord::Claimed { cell, token, session, until, .. } => {
                if *token <= self.facts.newest {
                    violations.insert(ONE_LEASE);
                }
                if self.facts.leases.get(cell).is_some_and(|(_, end)| now < *end) {
                    violations.insert(ONE_LEASE);
                }
                if bounds.sees_sessions && self.runs(*session) {
                    violations.insert(RUNS_TWICE);
                }
                if self.facts.sessions.get(cell).is_some_and(|known| known != session) {
                    violations.insert(OTHER_SESSION);
                }
                if self.facts.finished.contains(cell) {
                    violations.insert(FINISHED_TWICE);
                }
                self.facts.newest = *token;
                self.facts.leases.insert(cell.clone(), (*token, *until));
                self.facts.sessions.insert(cell.clone(), *session);
            }
            CoordinationRecord::Renewed { token, .. }
            | CoordinationRecord::Released { token }
            | CoordinationRecord::Finished { token, .. }
            | CoordinationRecord::Reserved { token, .. } => match held(&self.facts, *token) {
                None => {
                    violations.insert(STALE);
                }
                // A renewal may be late: no other worker has the cell.
                Some((_, until))
                    if now >= until && !matches!(record, CoordinationRecord::Renewed { .. }) =>
                {
                    violations.insert(LATE);
                }
                Some((cell, _)) => match record {
                    CoordinationRecord::Renewed { until, .. } => {
                        self.facts.leases.insert(cell, (*token, *until));
                    }
                    CoordinationRecord::Reserved { id, .. } => {
                        self.facts.reservations.insert(*id);
                    }
                    CoordinationRecord::Finished { .. } => {
                        self.facts.leases.remove(&cell);
                        if !self.facts.finished.insert(cell) {
                            violations.insert(FINISHED_TWICE);
                        }
                    }
                    _ => {
                        self.facts.leases.remove(&cell);
                    }
                },
            },
            CoordinationRecord::Settled { id, .. } => {
                if !self.facts.reservations.remove(id) {
                    violations.insert(SETTLED_TWICE);
                }
            }
            CoordinationRecord::Limits(_)
            | CoordinationRecord::Reopened { .. }
            | CoordinationRecord::Paused { .. } => {}
        }
    }

    /// Checks the invariants of every scene.
    fn check(&self, bounds: Bounds, violations: &mut BTreeSet<&'static str>) {
        let (spent, reserved) = self.state.usage();
        let paid = (spent + reserved).money.0;
        if paid > bounds.budget {
            violations.insert(OVER_LIMIT);
        }
        if self.facts.cost > paid {
            violations.insert(UNPAID);
        }
        let claim = CoordinationRequest::Claim {
            worker: worker("w"),
            session: session(0),
            span: LEASE,
            skip: Vec::new(),
        };
        let answer = decide(&self.state, claim, SharedTime(u64::MAX));
        if self.facts.finished.len() < bounds.cells
            && answer == Err(CoordinationRefusal::NothingLeft)
        {
            violations.insert(LOST_CELL);
        }
    }

    /// Returns whether a living worker has this session open.
    fn runs(&self, searched: SessionId) -> bool {
        let has = |worker: &Worker| matches!(worker, Worker::Running { session, .. } if *session == searched);
        self.workers.iter().any(has)
    }
}

#[test]
fn three_workers_break_no_invariant() {
    for sees_sessions in [true, false] {
        let begun = Instant::now();
        let report = explore(PROTOCOL, Bounds { sees_sessions, ..BOUNDS }, usize::MAX);
        println!("{} scenes in {:?}", report.scenes, begun.elapsed());
        assert_eq!(report.violations, BTreeSet::new());
        assert!(report.scenes > 10_000, "the search has become shallow: {}", report.scenes);
    }
}

/// Returns the invariants that a defective protocol violates.
fn violations(subject: Subject) -> BTreeSet<&'static str> {
    let bounds = Bounds { sees_sessions: false, ..BOUNDS };
    explore(subject, bounds, 20_000).violations
}

/// Returns the token and the records of a request under a lease, whether that is valid or not.
fn records_without_check(request: &CoordinationRequest) -> Option<Vec<CoordinationRecord>> {
    match request {
        CoordinationRequest::Finish(token, outcome) => {
            Some(vec![CoordinationRecord::Finished { token: *token, outcome: *outcome }])
        }
        CoordinationRequest::Release(token) => {
            Some(vec![CoordinationRecord::Released { token: *token }])
        }
        _ => None,
    }
}

#[test]
fn tokens_that_are_not_checked_are_found() {
    fn unfenced(
        state: &SharedState,
        request: CoordinationRequest,
        now: SharedTime,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
        let unchecked = records_without_check(&request);
        decide(state, request, now).or_else(|refusal| match refusal {
            CoordinationRefusal::LeaseLost => unchecked.ok_or(refusal),
            refusal => Err(refusal),
        })
    }
    assert!(violations(Subject { decide: unfenced, ..PROTOCOL }).contains(STALE));
}

#[test]
fn ended_leases_that_are_accepted_are_found() {
    fn timeless(
        state: &SharedState,
        request: CoordinationRequest,
        now: SharedTime,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
        let now = match &request {
            CoordinationRequest::Finish(..) | CoordinationRequest::Reserve(..) => SharedTime(0),
            _ => now,
        };
        decide(state, request, now)
    }
    let found = violations(Subject { decide: timeless, ..PROTOCOL });
    assert!(found.contains(LATE) && !found.contains(STALE), "{found:?}");
}

#[test]
fn a_call_before_its_reservation_is_found() {
    let found = violations(Subject { reserves_first: false, ..PROTOCOL });
    assert!(found.contains(UNPAID), "{found:?}");
}

#[test]
fn a_second_settlement_is_found() {
    fn repeating(
        state: &SharedState,
        request: CoordinationRequest,
        now: SharedTime,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
        match request {
            CoordinationRequest::Settle(id, charge) => {
                Ok(vec![CoordinationRecord::Settled { id, charge }])
            }
            request => decide(state, request, now),
        }
    }
    assert_eq!(
        violations(Subject { decide: repeating, ..PROTOCOL }),
        BTreeSet::from([SETTLED_TWICE])
    );
}

#[test]
fn a_takeover_before_the_end_of_a_lease_is_found() {
    fn hasty(
        state: &SharedState,
        request: CoordinationRequest,
        now: SharedTime,
    ) -> Result<Vec<CoordinationRecord>, CoordinationRefusal> {
        let now = match &request {
            CoordinationRequest::Claim { .. } | CoordinationRequest::TakeOver { .. } => {
                SharedTime(now.0 + 1)
            }
            _ => now,
        };
        decide(state, request, now)
    }
    assert!(violations(Subject { decide: hasty, ..PROTOCOL }).contains(ONE_LEASE));
}
