//! The writer of a journal, which appends records. One process writes at a time.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::Durability;
use super::blobs::{BlobStore, digest_of};
use super::error::{IoContext, JournalError, Result};
use super::header::{EndedRecord, ResumedRecord, SessionHeader, WallTime};
use super::journal_reader::JournalPosition;
use super::record_line::{RecordBody, RecordLine, seal};
use super::session_id::SessionId;
use super::space_reservation::SpaceReservation;
use super::steering_queue::SteeringQueue;
use crate::machine::{Done, Event, Fingerprint, StopReason};
use crate::port::{Journal, JournalRecord, StoreError};
use crate::types::{CheckpointRecord, RunTime, Sha256Digest, TimeSpan};
use crate::workspace::{IoError, lock_within};

/// The journal of a session that this process runs.
///
/// Each record is one write, which survives the end of the process; with [`Durability::Full`] a sync makes it survive a
/// crash of the computer. A failed write is undone, so that a later record is never appended to an incomplete record.
#[derive(Debug)]
pub struct FileJournal {
    pub(super) session: SessionId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) durability: Durability,
    pub(super) blobs: BlobStore,
    pub(super) queue: SteeringQueue,
    pub(super) position: JournalPosition,
    /// The hasher of all records.
    pub(super) hasher: Sha256,
    pub(super) reservation: SpaceReservation,
    pub(super) health: WriterHealth,
    /// The wall-clock time at session time zero.
    pub(super) epoch: WallTime,
    /// The time that syncs took since the newest record.
    pub(super) sync_time: TimeSpan,
    pub(super) buffer: Vec<u8>,
}

/// The writer's ability to write more records.
#[derive(Clone, Debug, Default)]
pub(super) enum WriterHealth {
    /// All records can be written.
    #[default]
    Usable,
    /// A record did not fit. The end of the run may still fit into the reserved space.
    Full(Arc<str>),
    /// The run ends because a record did not fit. The remaining records are written as far as they fit.
    Ending,
    /// Written records may be lost. Nothing else is written.
    Poisoned(Arc<str>),
}

/// The time to wait for the lock, which another process may hold briefly to check whether it is free.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

impl FileJournal {
    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the queue of messages for the session. A taken message counts as delivered once this journal contains
    /// it.
    pub fn queue(&self) -> SteeringQueue {
        self.queue.clone()
    }

    /// Writes the header.
    pub(super) fn write_header(&mut self, header: &SessionHeader) -> Result<()> {
        let line = self.record_line(RunTime::START, RecordBody::Header(header));
        self.write_line(&RecordLine { ts: Some(header.created), ..line })?;
        self.sync_file()
    }

    /// Writes the record of a resume, and syncs.
    pub(super) fn write_resumed(
        &mut self,
        at: RunTime,
        now: WallTime,
        fingerprint: Fingerprint,
        resumed: &ResumedRecord,
    ) -> Result<()> {
        self.epoch = now.minus(at);
        let line = self.record_line(at, RecordBody::Resumed(resumed)).with_fingerprint(fingerprint);
        let hash_before = Some(digest_of(&self.hasher));
        self.write_line(&RecordLine { ts: Some(now), hash_before, ..line })?;
        self.sync_file()
    }

    /// Writes a record of the workspace's state.
    pub(super) fn write_checkpoint(
        &mut self,
        at: RunTime,
        record: &CheckpointRecord,
    ) -> Result<(), JournalError> {
        let ts = Some(self.epoch.plus(at));
        let line = self.record_line(at, RecordBody::Checkpoint(record));
        self.write_line(&RecordLine { ts, ..line })
    }

    /// Writes the end of a run with this reason, which is the run's own or that of the evaluation of its answer.
    pub(super) fn write_ended(
        &mut self,
        at: RunTime,
        done: &Done,
        reason: StopReason,
        fingerprint: Fingerprint,
    ) -> Result<()> {
        let (ts, before) = (Some(self.epoch.plus(at)), self.health.clone());
        let ended = EndedRecord::new(done, reason);
        let line = self.record_line(at, RecordBody::Ended(&ended)).with_fingerprint(fingerprint);
        let hash_before = Some(digest_of(&self.hasher));
        let written = self.write_line(&RecordLine { ts, hash_before, ..line });
        // The end summarizes earlier records, which can be synced without it.
        if matches!(self.health, WriterHealth::Full(_)) {
            self.health = before;
        }
        written
    }

    pub(super) fn record_line<'a>(&self, at: RunTime, body: RecordBody<'a>) -> RecordLine<'a> {
        RecordLine { sync_time: self.sync_time, ..RecordLine::new(self.position.seq, at, body) }
    }

    /// Fails if another process has deleted or truncated the file. The reserved space does not count as length.
    fn check_file(&self) -> Result<()> {
        let found = self.file.metadata().io_context("inspect", &self.path)?;
        let changed = match (found.nlink(), found.len()) {
            (0, _) => io::Error::new(io::ErrorKind::NotFound, "it was deleted"),
            (_, length) if length < self.position.offset => {
                io::Error::other("another process has truncated it")
            }
            _ => return Ok(()),
        };
        Err(IoError { operation: "write to", path: self.path.clone(), source: changed }.into())
    }

    /// Appends a line: either the whole line or nothing.
    pub(super) fn write_line(&mut self, line: &RecordLine<'_>) -> Result<()> {
        self.check_file().inspect_err(|error| self.health = WriterHealth::Poisoned(text(error)))?;
        let mut buffer = mem::take(&mut self.buffer);
        buffer.clear();
        let written = line.write(&self.blobs, &mut buffer).and_then(|()| {
            let crc = seal(&mut buffer, self.position.crc);
            let JournalPosition { offset, seq, .. } = self.position;
            let next = JournalPosition { offset: offset + buffer.len() as u64, seq: seq + 1, crc };
            if matches!(self.health, WriterHealth::Usable) {
                self.reservation
                    .ensure(&self.file, next.offset)
                    .io_context("reserve space for", &self.path)?;
            }
            self.file.write_all_at(&buffer, offset).io_context("write to", &self.path)?;
            self.hasher.update(&buffer);
            self.position = next;
            self.sync_time = TimeSpan::ZERO;
            Ok(())
        });
        self.buffer = buffer;
        written.inspect_err(|error| self.truncate_partial(error))
    }

    /// Removes an incomplete record. If that fails, too, the journal is poisoned.
    fn truncate_partial(&mut self, reason: &JournalError) {
        let is_whole = self.file.metadata().is_ok_and(|found| found.len() == self.position.offset);
        let is_truncated =
            is_whole || self.reservation.truncate(&self.file, self.position.offset).is_ok();
        self.health = match &self.health {
            // This applies even if the end of the run did not fit: a later, shorter record must not take its place.
            WriterHealth::Usable | WriterHealth::Full(_) | WriterHealth::Ending if is_truncated => {
                WriterHealth::Full(text(reason))
            }
            _ => WriterHealth::Poisoned(text(reason)),
        };
    }

    /// Syncs the file. A failed sync is not retried, because the system would report success the second time.
    pub(super) fn sync_file(&mut self) -> Result<()> {
        if self.durability == Durability::Full {
            let started = Instant::now();
            let synced = self.file.sync_data().io_context("make durable", &self.path);
            let synced = synced.map_err(JournalError::from);
            synced.inspect_err(|error| self.health = WriterHealth::Poisoned(text(error)))?;
            self.sync_time = TimeSpan(self.sync_time.0 + TimeSpan::from(started.elapsed()).0);
        }
        self.queue.mark_delivered();
        Ok(())
    }

    /// Returns an error unless records can be written.
    fn check_health(&self) -> Result<(), StoreError> {
        match &self.health {
            WriterHealth::Usable | WriterHealth::Ending => Ok(()),
            WriterHealth::Full(reason) | WriterHealth::Poisoned(reason) => {
                Err(StoreError(Arc::clone(reason)))
            }
        }
    }
}

impl Journal for FileJournal {
    fn append(&mut self, at: RunTime, record: JournalRecord<'_>) -> Result<(), StoreError> {
        let is_end =
            matches!(record, JournalRecord::Event { event: Event::StoreFailed { .. }, .. });
        if is_end && matches!(self.health, WriterHealth::Full(_)) {
            self.health = WriterHealth::Ending;
        }
        self.check_health()?;
        let written = match record {
            JournalRecord::Event { event, fingerprint, timing } => {
                let message_ids = &self.queue.ids_in(event);
                let line = self.record_line(at, RecordBody::Event(event));
                let line = line.with_fingerprint(fingerprint);
                self.write_line(&RecordLine { timing, message_ids, ..line })
                    .inspect(|()| self.queue.mark_written(message_ids))
            }
            JournalRecord::Partial { id, text } => {
                self.write_line(&self.record_line(at, RecordBody::Partial { id, text }))
            }
            JournalRecord::Checkpoint(record) => self.write_checkpoint(at, record),
            JournalRecord::Ended { done, fingerprint } => {
                self.write_ended(at, done, done.outcome.reason, fingerprint)
            }
        };
        written.map_err(|error| StoreError(text(&error)))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.check_health()?;
        self.sync_file().map_err(|error| StoreError(text(&error)))
    }

    fn head(&self) -> Option<Sha256Digest> {
        let is_known = !matches!(self.health, WriterHealth::Poisoned(_));
        is_known.then(|| digest_of(&self.hasher))
    }
}

impl Drop for FileJournal {
    /// Releases the reserved space and the lock. A poisoned file is left as it is, for inspection.
    fn drop(&mut self) {
        if !matches!(self.health, WriterHealth::Poisoned(_)) {
            let _ = self.reservation.truncate(&self.file, self.position.offset);
        }
        // Unlock explicitly: a child that another thread has forked shares the open file until it executes its program.
        let _ = self.file.unlock();
    }
}

/// Takes the lock of a journal; `false` if another process holds it.
pub(super) fn lock(file: &File, path: &Path) -> Result<bool> {
    Ok(lock_within(file, LOCK_TIMEOUT).io_context("lock", path)?)
}

fn text(error: &JournalError) -> Arc<str> {
    error.to_string().into()
}
