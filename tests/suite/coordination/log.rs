//! The log of a batch: its contents after damage, with other processes, and with other clocks.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use architect::types::TimeSpan;
use architect::workflow::batch::coordination::{
    CellClaim, CellOutcome, CoordinationError, CoordinationSettings, Coordinator, ReopenAs,
    ReserveError,
};

use super::settings::{LEASE_TIME, TestClock, cells, claim, dollars, money, settings, worker};

const LOG: &str = "coordination.jsonl";

#[test]
fn two_processes_share_the_cells_and_each_finishes_once() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = || Coordinator::open(dir.path(), &cells(3), settings(&clock)).unwrap();
    let (first, second) = (open(), open());
    assert!(first.has_locks());
    let leases = [claim(&first), claim(&second), claim(&first)];
    assert!(leases.is_sorted_by_key(|lease| lease.token));
    assert!(matches!(second.claim(&worker("w")).unwrap(), CellClaim::Wait(_)));
    for lease in &leases {
        second.finish(lease, CellOutcome::Succeeded).unwrap();
        let again = first.finish(lease, CellOutcome::Succeeded);
        assert!(matches!(again, Err(CoordinationError::LeaseLost(_))));
    }
    assert_eq!(first.claim(&worker("w")).unwrap(), CellClaim::NothingLeft);
    assert_eq!(open().progress().unwrap().succeeded, 3);
}

#[test]
fn a_suspended_owner_that_comes_back_changes_nothing() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = || Coordinator::open(dir.path(), &cells(1), settings(&clock)).unwrap();
    let (old, new) = (open(), open());
    let lost = claim(&old);
    clock.advance(LEASE_TIME);
    let CellClaim::Resume(lease) = new.claim(&worker("new")).unwrap() else {
        panic!("not resumed")
    };
    assert_eq!((lease.session, lease.attempt), (lost.session, lost.attempt));
    for refused in [old.renew(&lost), old.release(&lost), old.finish(&lost, CellOutcome::Partial)] {
        assert!(matches!(refused, Err(CoordinationError::LeaseLost(_))));
    }
    assert!(matches!(old.reserve(&lost, money(1)), Err(ReserveError::Failed(_))));
    new.finish(&lease, CellOutcome::Succeeded).unwrap();
}

#[test]
fn a_renewed_lease_lasts() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let coordinator = Coordinator::open(dir.path(), &cells(1), settings(&clock)).unwrap();
    let lease = claim(&coordinator);
    for _ in 0..9 {
        clock.advance(LEASE_TIME.fraction(1, 3));
        coordinator.renew(&lease).unwrap();
    }
    assert!(matches!(coordinator.claim(&worker("w")).unwrap(), CellClaim::Wait(_)));
}

#[test]
fn a_lease_that_has_ended_goes_on_unless_another_worker_has_the_cell() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let coordinator = Coordinator::open(dir.path(), &cells(3), settings(&clock)).unwrap();
    let [first, second, third] = [(); 3].map(|()| claim(&coordinator));
    clock.advance(LEASE_TIME);
    coordinator.reserve(&first, money(1)).unwrap();
    coordinator.finish(&first, CellOutcome::Succeeded).unwrap();
    let CellClaim::Resume(taken) = coordinator.claim(&worker("w")).unwrap() else { panic!() };
    assert_eq!(taken.session, second.session);
    let lost = coordinator.renew_all(&[second.token, third.token]).unwrap();
    assert_eq!(lost, [second.token]);
    assert!(coordinator.finish(&second, CellOutcome::Succeeded).is_err());
    assert!(matches!(coordinator.claim(&worker("w")).unwrap(), CellClaim::Wait(_)));
    coordinator.finish(&third, CellOutcome::Succeeded).unwrap();
}

/// A machine whose clock is ahead doesn't end the leases of others.
#[test]
fn the_clocks_of_machines_may_differ() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, fast) = (Arc::new(TestClock::default()), Arc::new(TestClock::default()));
    fast.advance(LEASE_TIME.fraction(1, 3));
    let [on_slow, on_fast] = [&slow, &fast]
        .map(|clock| Coordinator::open(dir.path(), &cells(2), settings(clock)).unwrap());
    let lease = claim(&on_slow);
    let other = claim(&on_fast);
    for _ in 0..9 {
        slow.advance(LEASE_TIME.fraction(1, 2));
        fast.advance(LEASE_TIME.fraction(1, 2));
        assert!(matches!(on_fast.claim(&worker("w")).unwrap(), CellClaim::Wait(_)));
        on_slow.renew(&lease).unwrap();
        on_fast.renew(&other).unwrap();
    }
}

#[test]
fn a_torn_last_line_is_dropped_wherever_it_is_torn() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = || Coordinator::open(dir.path(), &cells(2), settings(&clock));
    let first = claim(&open().unwrap());
    let before = fs::read(dir.path().join(LOG)).unwrap();
    open().unwrap().finish(&first, CellOutcome::Succeeded).unwrap();
    let whole = fs::read(dir.path().join(LOG)).unwrap();
    for length in before.len()..whole.len() {
        fs::write(dir.path().join(LOG), &whole[..length]).unwrap();
        let coordinator = open().unwrap();
        assert_eq!(coordinator.progress().unwrap().succeeded, 0);
        coordinator.finish(&first, CellOutcome::Succeeded).unwrap();
        assert_eq!(fs::read(dir.path().join(LOG)).unwrap(), whole, "torn at {length}");
    }
    // The file has its final length, but not the content.
    let zeros = [&whole[..before.len()], &vec![0; whole.len() - before.len() - 1], b"\n"].concat();
    fs::write(dir.path().join(LOG), zeros).unwrap();
    assert_eq!(open().unwrap().progress().unwrap().running, 1);
}

#[test]
fn damage_before_other_records_is_reported() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = || Coordinator::open(dir.path(), &cells(3), settings(&clock));
    let coordinator = open().unwrap();
    let [first, _, _] = [(); 3].map(|()| claim(&coordinator));
    let whole = fs::read(dir.path().join(LOG)).unwrap();
    for at in [0, 20] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(dir.path().join(LOG), damaged).unwrap();
        assert!(matches!(open(), Err(CoordinationError::Damaged { offset: 0, .. })));
    }
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    fs::write(dir.path().join(LOG), &whole[second..]).unwrap();
    assert!(matches!(open(), Err(CoordinationError::Damaged { offset: 0, .. })));
    fs::remove_file(dir.path().join(LOG)).unwrap();
    let gone = coordinator.renew(&first).unwrap_err().to_string();
    assert!(gone.contains("it was deleted"), "{gone}");
}

#[test]
fn a_record_of_a_newer_release_is_not_skipped() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let path = dir.path().join(LOG);
    let mut line = br#"{"at":0,"record":{"borrowed":{}}"#.to_vec();
    let crc = crc32fast_of(&line);
    writeln!(line, ",\"crc\":\"{crc:08x}\"}}").unwrap();
    OpenOptions::new().create(true).append(true).open(&path).unwrap().write_all(&line).unwrap();
    let error = Coordinator::open(dir.path(), &cells(1), settings(&clock)).unwrap_err();
    assert!(error.to_string().contains("borrowed"), "{error}");
}

/// The checksum of the journals, computed bit by bit.
fn crc32fast_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

#[test]
fn a_finished_cell_runs_again_only_when_it_is_opened() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let coordinator = Coordinator::open(dir.path(), &cells(1), settings(&clock)).unwrap();
    let first = claim(&coordinator);
    coordinator.finish(&first, CellOutcome::Failed(1)).unwrap();
    assert_eq!(coordinator.outcome(&first.cell), Some((CellOutcome::Failed(1), first.session)));
    coordinator.reopen(&first.cell, ReopenAs::SameSession).unwrap();
    let second = claim(&coordinator);
    assert_eq!((second.session, second.attempt), (first.session, 2));
    coordinator.reopen(&first.cell, ReopenAs::NewSession).unwrap();
    coordinator.finish(&second, CellOutcome::Failed(5)).unwrap();
    coordinator.reopen(&first.cell, ReopenAs::NewSession).unwrap();
    let third = claim(&coordinator);
    assert!(third.session != first.session && third.attempt == 3);
}

#[test]
fn cells_that_the_budget_ended_open_when_it_changes() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = |limit| {
        let settings = CoordinationSettings { limits: dollars(limit), ..settings(&clock) };
        Coordinator::open(dir.path(), &cells(2), settings).unwrap()
    };
    let coordinator = open(5);
    let lease = claim(&coordinator);
    assert!(matches!(coordinator.reserve(&lease, money(6)), Err(ReserveError::BudgetReached)));
    coordinator.finish(&lease, CellOutcome::BudgetReached).unwrap();
    assert_eq!(coordinator.claim(&worker("w")).unwrap(), CellClaim::BudgetReached);
    assert_eq!(open(5).claim(&worker("w")).unwrap(), CellClaim::BudgetReached);
    let raised = open(10);
    let CellClaim::Resume(again) = raised.claim(&worker("w")).unwrap() else {
        panic!("not resumed")
    };
    assert_eq!(again.session, lease.session);
    raised.reserve(&again, money(6)).unwrap();
}

/// Other processes can have other cells of the same folder.
#[test]
fn shards_share_the_budget_and_not_the_cells() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let all = cells(4);
    let open = |cells| {
        let settings = CoordinationSettings { limits: dollars(10), ..settings(&clock) };
        Coordinator::open(dir.path(), cells, settings).unwrap()
    };
    let (first, second) = (open(&all[..2]), open(&all[2..]));
    let (lease, other) = (claim(&first), claim(&second));
    assert_eq!((&lease.cell, &other.cell), (&all[0], &all[2]));
    first.reserve(&lease, money(7)).unwrap();
    assert!(matches!(second.reserve(&other, money(4)), Err(ReserveError::Pending)));
    second.reserve(&other, money(3)).unwrap();
    clock.advance(LEASE_TIME);
    assert!(
        matches!(second.claim(&worker("w")).unwrap(), CellClaim::Resume(lease) if lease.cell == all[2])
    );
    assert_eq!(second.progress().unwrap().running, 1);
}

/// The cost of a claim or a finish depends on the new records, and not on the length of the log.
#[test]
fn ten_thousand_cells_cost_the_same_each() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let all = cells(10_000);
    let coordinator = Coordinator::open(dir.path(), &all, settings(&clock)).unwrap();
    // The first cell stays under way, so that the others finish behind it.
    let first = claim(&coordinator);
    let mut times = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        for _ in 0..1_111 {
            let lease = claim(&coordinator);
            coordinator.finish(&lease, CellOutcome::Succeeded).unwrap();
        }
        times.push(begun.elapsed());
    }
    coordinator.finish(&first, CellOutcome::Succeeded).unwrap();
    println!("1 111 cells each: {times:?}");
    let begun = Instant::now();
    let again = Coordinator::open(dir.path(), &all, settings(&clock)).unwrap();
    println!("read in {:?}", begun.elapsed());
    assert_eq!(again.claim(&worker("w")).unwrap(), CellClaim::NothingLeft);
    // The quickest of three, since the machine may be busy.
    let (early, late) = (times[..3].iter().min().unwrap(), times[6..].iter().min().unwrap());
    assert!(*late < *early * 5, "{times:?}");
}

#[test]
fn a_provider_that_asks_one_worker_to_slow_down_slows_all() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let open = || Coordinator::open(dir.path(), &cells(2), settings(&clock)).unwrap();
    let (first, second) = (open(), open());
    first.pause("openai", TimeSpan::from_secs(20)).unwrap();
    first.pause("openai", TimeSpan::from_secs(5)).unwrap();
    second.progress().unwrap();
    assert_eq!(second.pause_of("openai"), TimeSpan::from_secs(20));
    assert_eq!(second.pause_of("anthropic"), TimeSpan::ZERO);
    clock.advance(TimeSpan::from_secs(20));
    assert_eq!(second.pause_of("openai"), TimeSpan::ZERO);
}
