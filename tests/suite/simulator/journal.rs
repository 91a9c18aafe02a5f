//! A journal in memory, whose disk can be full, fail, and lose unsynced records.

use std::sync::{Arc, Mutex, MutexGuard};

use architect::machine::{Event, Fingerprint, Resumption};
use architect::port::{Journal, JournalRecord, StoreError};
use architect::types::{CheckpointKind, RunRules, RunTime, Tokens};

use super::directed_fault::{DirectedFault, DirectedKind};
use super::executor::Crash;
use super::rng::Rng;
use super::session_life::InjectedFault;

/// A record that continues a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredRecord {
    /// An event, and how much of a reply had arrived.
    Event(Event, Tokens),
    Resumed(Box<Resumption>),
    Checkpoint(CheckpointKind),
    Partial,
    Ended,
}

#[derive(Default)]
pub(super) struct SimulatedDisk {
    pub(super) records: Vec<(RunTime, StoredRecord)>,
    /// The number of records that would survive a crash.
    pub(super) durable: usize,
    /// The fingerprints before the events, with the numbers of their records.
    pub(super) fingerprints: Vec<(usize, Fingerprint)>,
    /// Whether a use has failed in this process.
    pub(super) has_failed: bool,
    /// Whether a use has ever failed.
    pub(super) has_ever_failed: bool,
    /// The number of uses of the journal.
    pub(super) uses: u64,
    /// The rules of the session, once it has begun.
    pub(super) rules: Option<RunRules>,
    /// Errors that were found in code where a panic would be caught.
    pub(super) broken: Option<String>,
}

/// The disk, which survives the process.
#[derive(Clone, Default)]
pub(super) struct SharedDisk(Arc<Mutex<SimulatedDisk>>);

pub(super) struct SimulatedJournal {
    pub(super) disk: SharedDisk,
    pub(super) chance: Rng,
    pub(super) trouble: InjectedFault,
    pub(super) directed: DirectedFault,
}

impl SimulatedDisk {
    /// Returns whether the reasons of all effects would survive a crash. The partial reply of an aborted call is not one.
    pub(super) fn is_durable(&self) -> bool {
        self.records[self.durable..].iter().all(|(_, record)| *record == StoredRecord::Partial)
    }
}

impl SharedDisk {
    pub(super) fn lock(&self) -> MutexGuard<'_, SimulatedDisk> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records that weren't durable are lost, or some of them; a partial record is lost.
    pub(super) fn crash(&self, chance: &Rng) {
        let mut disk = self.lock();
        let loose = (disk.records.len() - disk.durable) as u64;
        let left = disk.durable + usize::try_from(chance.below(loose + 1)).unwrap();
        disk.records.truncate(left);
        disk.fingerprints.retain(|(number, _)| *number < left);
        disk.durable = left;
        disk.has_failed = false;
    }

    pub(super) fn add_durably(&self, at: RunTime, kept: StoredRecord) {
        let mut disk = self.lock();
        disk.records.push((at, kept));
        disk.durable = disk.records.len();
    }
}

impl SimulatedJournal {
    /// Counts a use, and fails or crashes if it is time. A failed change may still be applied.
    fn used(&self, change: impl FnOnce(&mut SimulatedDisk)) -> Result<(), StoreError> {
        let mut disk = self.disk.lock();
        assert!(disk.broken.is_none(), "{:?}", disk.broken);
        let nth = disk.uses;
        disk.uses += 1;
        let fails = match self.trouble {
            InjectedFault::FailsOnce(at) => nth == at,
            InjectedFault::FailsFrom(at) => nth >= at,
            InjectedFault::Chance => {
                self.directed.occurs(DirectedKind::StoreError) || self.chance.once_in(600)
            }
            InjectedFault::None
            | InjectedFault::DiesAt(_)
            | InjectedFault::ReaderLeaves(_)
            | InjectedFault::BreaksDownOnce(_)
            | InjectedFault::BreaksDownFrom(_)
            | InjectedFault::HangsOnce(_)
            | InjectedFault::HangsFrom(_)
            | InjectedFault::DiesAfter(_) => false,
        };
        if matches!(self.trouble, InjectedFault::DiesAt(at) if nth == at)
            || (self.trouble == InjectedFault::Chance && self.chance.once_in(200))
        {
            drop(disk);
            std::panic::resume_unwind(Box::new(Crash));
        }
        if !fails {
            change(&mut disk);
            return Ok(());
        }
        (disk.has_failed, disk.has_ever_failed) = (true, true);
        if self.trouble == InjectedFault::Chance && self.chance.once_in(2) {
            change(&mut disk);
        }
        Err(StoreError("no space left on device".into()))
    }
}

impl Journal for SimulatedJournal {
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError> {
        let (stored, fingerprint) = match record {
            JournalRecord::Event { event, fingerprint, timing } => {
                let received = timing.map_or(Tokens::ZERO, |timing| timing.received);
                (StoredRecord::Event(event.clone(), received), Some(fingerprint))
            }
            JournalRecord::Partial { .. } => (StoredRecord::Partial, None),
            JournalRecord::Checkpoint(record) => (StoredRecord::Checkpoint(record.kind), None),
            JournalRecord::Ended { .. } => (StoredRecord::Ended, None),
        };
        self.used(|disk| {
            // After the end, only the partial replies of cancelled calls are written.
            let is_over = matches!(disk.records.last(), Some((_, StoredRecord::Ended)));
            let is_late = is_over && !disk.has_failed && stored != StoredRecord::Partial;
            assert!(!is_late, "a record after the end: {stored:?}");
            let number = disk.records.len();
            disk.fingerprints.extend(fingerprint.map(|fingerprint| (number, fingerprint)));
            disk.records.push((at, stored));
        })
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.used(|disk| disk.durable = disk.records.len())
    }
}
