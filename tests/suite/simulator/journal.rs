//! A journal in memory, whose disk can be full, fail, and lose what was not made durable.

use std::sync::{Arc, Mutex, MutexGuard};

use architect::machine::{Event, Resumption};
use architect::model::Time;
use architect::port::{Journal, Record, StoreError};

use super::chance::Chance;
use super::hands::Crash;
use super::life::Trouble;

/// A record that tells how a run went on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kept {
    Event(Event),
    Resumed(Box<Resumption>),
    Partial,
    Ended,
}

#[derive(Default)]
pub(super) struct Disk {
    pub(super) records: Vec<(Time, Kept)>,
    /// How many of them would survive a crash.
    pub(super) durable: usize,
    /// How often the journal was used.
    pub(super) uses: u64,
    /// What was found wrong where nobody hears a panic.
    pub(super) broken: Option<String>,
}

/// The disk, which outlives the process.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Disk>>);

pub(super) struct SimulatedJournal {
    pub(super) disk: Shared,
    pub(super) chance: Chance,
    pub(super) trouble: Trouble,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What was not durable is lost, or some of it; a record that was half-written is none.
    pub(super) fn crash(&self, chance: &Chance) {
        let mut disk = self.lock();
        let loose = (disk.records.len() - disk.durable) as u64;
        let left = disk.durable + usize::try_from(chance.below(loose + 1)).unwrap();
        disk.records.truncate(left);
        disk.durable = left;
    }

    pub(super) fn add_durably(&self, at: Time, kept: Kept) {
        let mut disk = self.lock();
        disk.records.push((at, kept));
        disk.durable = disk.records.len();
    }
}

impl SimulatedJournal {
    /// Counts a use, and does what is to happen at it.
    fn used(&self) -> Result<MutexGuard<'_, Disk>, StoreError> {
        let mut disk = self.disk.lock();
        let nth = disk.uses;
        disk.uses += 1;
        let fails = match self.trouble {
            Trouble::FailsOnce(at) => nth == at,
            Trouble::FailsFrom(at) => nth >= at,
            Trouble::Chance => self.chance.once_in(600),
            Trouble::None
            | Trouble::DiesAt(_)
            | Trouble::ReaderLeaves(_)
            | Trouble::BreaksDownOnce(_)
            | Trouble::BreaksDownFrom(_)
            | Trouble::HangsOnce(_)
            | Trouble::HangsFrom(_)
            | Trouble::DiesAfter(_) => false,
        };
        if matches!(self.trouble, Trouble::DiesAt(at) if nth == at)
            || (self.trouble == Trouble::Chance && self.chance.once_in(200))
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
    fn append(&mut self, at: Time, record: Record<'_>) -> Result<(), StoreError> {
        let mut disk = self.used()?;
        disk.records.push((
            at,
            match record {
                Record::Event { event, .. } => Kept::Event(event.clone()),
                Record::Partial { .. } => Kept::Partial,
                Record::Ended { .. } => Kept::Ended,
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
