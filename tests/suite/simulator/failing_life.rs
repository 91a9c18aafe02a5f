//! A life that fails, made as small as possible, and written as a scenario of `architect test`.

use std::fmt::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use architect::machine::Fingerprint;
use architect::port::{Journal as _, JournalRecord};
use architect::workflow::scenario::scenario_from_session;

use crate::journal::fixture::SessionFixture;

use super::journal::{SharedDisk, StoredRecord};
use super::rng::Rng;
use super::session_life::{InjectedFault, SessionLife};

/// How often a life is tried again, at most.
const MOST_TRIES: u32 = 3_000;

/// Returns whether the life that these random numbers determine panics.
pub(super) fn panics(chance: &Rng, trouble: InjectedFault, disk: &SharedDisk) -> bool {
    catch_unwind(AssertUnwindSafe(|| SessionLife::simulate(chance, trouble, disk))).is_err()
}

/// Returns the random numbers of a seed that are not needed for a failure: with [quiet](Rng::with_quiet) ones instead, the
/// life fails too. Larger parts are tried before smaller ones, and later parts before earlier ones.
pub(super) fn minimize(seed: u64, fails: impl Fn(&Rng) -> bool) -> Vec<Range<u64>> {
    let life = Rng::new(seed);
    assert!(fails(&life), "the life of {seed} doesn't fail");
    let (mut quiet, mut tries) = (Vec::<Range<u64>>::new(), 0);
    let mut size = life.drawn().next_power_of_two();
    while size > 0 {
        for first in (0..life.drawn()).step_by(usize::try_from(size).unwrap()).rev() {
            let part = first..first + size;
            let is_quiet =
                quiet.iter().any(|other| other.start <= part.start && part.end <= other.end);
            if is_quiet || tries == MOST_TRIES {
                continue;
            }
            tries += 1;
            let candidate: Vec<_> = quiet.iter().cloned().chain([part]).collect();
            if fails(&Rng::with_quiet(seed, candidate.clone())) {
                quiet = candidate;
            }
        }
        size /= 2;
    }
    quiet
}

/// Returns the scenario of the replies, faults and signals of a session. What its tools did is a comment: those of a
/// scenario are real.
pub(super) fn scenario(disk: &SharedDisk) -> Result<String, Box<dyn std::error::Error>> {
    let fixture = SessionFixture::new();
    let disk = disk.lock();
    let rules = disk.rules.clone().unwrap_or_default();
    let (mut journal, mut machine, output) = fixture.try_begin_by(rules)?;
    let mut fingerprint = Fingerprint::of(&machine, &output.effects);
    let mut comments = String::new();
    for (at, record) in &disk.records {
        let StoredRecord::Event(event) = record else {
            writeln!(comments, "# {at:?}: {record:?}")?;
            continue;
        };
        writeln!(comments, "# {at:?}: {}", event.kind().as_str())?;
        let record = JournalRecord::Event { event, fingerprint, timing: None };
        journal.append(*at, record)?;
        let (next, output) = machine.handle(*at, event.clone());
        fingerprint = Fingerprint::of(&next, &output.effects);
        machine = next;
    }
    let session = journal.session();
    drop(journal);
    Ok(comments + &scenario_from_session(&fixture.store, session)?)
}

/// Returns what is known of a seed that fails: a smaller life, as a scenario.
pub(super) fn report(seed: u64, trouble: InjectedFault) -> String {
    let quiet = minimize(seed, |chance| panics(chance, trouble, &SharedDisk::default()));
    let disk = SharedDisk::default();
    panics(&Rng::with_quiet(seed, quiet.clone()), trouble, &disk);
    let scenario = scenario(&disk).unwrap_or_else(|error| format!("# no scenario: {error}"));
    format!("# SEED={seed} with {trouble:?}, quiet: {quiet:?}\n{scenario}")
}
