//! A journal in memory, whose disk can be full, fail, and lose what wasn't synced.

use std::sync::{Arc, Mutex, MutexGuard};

use architect::machine::{Event, Resumption};
use architect::model::{RunRules, RunTime};
use architect::port::{Journal, JournalRecord, StoreError};

use super::executor::Crash;
use super::rng::Rng;
use super::session_life::InjectedFault;

/// A record that continues a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredRecord {
    Event(Event),
    Resumed(Box<Resumption>),
    Checkpoint,
    Partial,
    Ended,
}

#[derive(Default)]
pub(super) struct SimulatedDisk {
    pub(super) records: Vec<(RunTime, StoredRecord)>,
    /// The number of records that would survive a crash.
    pub(super) durable: usize,
    /// How often the journal was used.
    pub(super) uses: u64,
    /// The rules of the session, once it has begun.
    pub(super) rules: Option<RunRules>,
    /// Errors that were found where a panic would be caught.
    pub(super) broken: Option<String>,
}

/// The disk, which survives the process.
#[derive(Clone, Default)]
pub(super) struct SharedDisk(Arc<Mutex<SimulatedDisk>>);

pub(super) struct SimulatedJournal {
    pub(super) disk: SharedDisk,
    pub(super) chance: Rng,
    pub(super) trouble: InjectedFault,
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
        disk.durable = left;
    }

    pub(super) fn add_durably(&self, at: RunTime, kept: StoredRecord) {
        let mut disk = self.lock();
        disk.records.push((at, kept));
        disk.durable = disk.records.len();
    }
}

impl SimulatedJournal {
    /// Counts a use, and fails or crashes if it is time.
    fn used(&self) -> Result<MutexGuard<'_, SimulatedDisk>, StoreError> {
        let mut disk = self.disk.lock();
        let nth = disk.uses;
        disk.uses += 1;
        let fails = match self.trouble {
            InjectedFault::FailsOnce(at) => nth == at,
            InjectedFault::FailsFrom(at) => nth >= at,
            InjectedFault::Chance => self.chance.once_in(600),
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
        match fails {
            true => Err(StoreError("no space left on device".into())),
            false => Ok(disk),
        }
    }
}

impl Journal for SimulatedJournal {
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError> {
        let mut disk = self.used()?;
        disk.records.push((
            at,
            match record {
                JournalRecord::Event { event, .. } => StoredRecord::Event(event.clone()),
                JournalRecord::Partial { .. } => StoredRecord::Partial,
                JournalRecord::Checkpoint(_) => StoredRecord::Checkpoint,
                JournalRecord::Ended { .. } => StoredRecord::Ended,
            },
        ));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let mut disk = self.used()?;
        disk.durable = disk.records.len();
        Ok(())
    }
}
