//! Writing a journal: records are added at its end, by one process at a time.

use std::fs::{File, TryLockError};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Durability;
use super::blobs::Blobs;
use super::error::{JournalError, Tried};
use super::header::{Ended, Header, Resumed, Wall};
use super::id::SessionId;
use super::line::{Body, Line, seal};
use super::mail::{Mail, MailId};
use super::reader::Position;
use super::reserve::Reserve;
use crate::machine::{Done, Event, Mark};
use crate::model::{Span, Time};
use crate::port::{Journal, Record, StoreError};

/// The journal of a session that this process runs.
///
/// Each record is one write, and survives the end of this process from then on; with [`Durability::Full`] a sync makes
/// it survive the end of the machine. A write that fails is taken back, so that no later one is glued to half a record.
#[derive(Debug)]
pub struct FileJournal {
    session: SessionId,
    path: PathBuf,
    file: File,
    durability: Durability,
    blobs: Blobs,
    mail: Mail,
    position: Position,
    reserve: Reserve,
    health: Health,
    /// The time of day when the time of the session was zero.
    dawn: Wall,
    /// How long syncs took since the newest record.
    synced: Span,
    buffer: Vec<u8>,
}

/// Whether a journal can be relied on.
#[derive(Clone, Debug)]
enum Health {
    /// It can.
    Sound,
    /// A record did not fit. What the run says about its end may fit into what was kept free.
    Full(Arc<str>),
    /// The run ends because of that; what it still says is written as far as it fits.
    Ending,
    /// What was written is perhaps lost. Nothing more is written.
    Poisoned(Arc<str>),
}

/// How long the lock is waited for: somebody may just be asking whether it is taken.
const PATIENCE: Duration = Duration::from_millis(200);

impl FileJournal {
    /// Goes on at the end of a journal whose lock this process has.
    pub(super) fn new(files: Files, position: Position, dawn: Wall) -> Self {
        let Files { session, path, file, durability, blobs, mail } = files;
        Self {
            session,
            path,
            file,
            durability,
            blobs,
            mail,
            position,
            reserve: Reserve::default(),
            health: Health::Sound,
            dawn,
            synced: Span::ZERO,
            buffer: Vec::new(),
        }
    }

    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns where messages for the session arrive; what it has taken counts once this journal says so.
    pub fn mail(&self) -> Mail {
        self.mail.clone()
    }

    /// Writes the first record.
    pub(super) fn begin(&mut self, header: &Header) -> Result<(), JournalError> {
        self.add(Time::START, Some(header.created), None, Body::Header(header))?;
        self.make_durable()
    }

    /// Writes that the session goes on, and makes that durable.
    pub(super) fn go_on(
        &mut self,
        at: Time,
        now: Wall,
        met: Mark,
        resumed: &Resumed,
    ) -> Result<(), JournalError> {
        self.dawn = now.before(at);
        self.add(at, Some(now), Some(met), Body::Resumed(resumed))?;
        self.make_durable()
    }

    fn add(
        &mut self,
        at: Time,
        ts: Option<Wall>,
        met: Option<Mark>,
        body: Body<'_>,
    ) -> Result<(), JournalError> {
        let mut line = self.line(at, body);
        (line.ts, line.met) = (ts, met);
        self.write(&line)
    }

    fn line<'a>(&self, at: Time, body: Body<'a>) -> Line<'a> {
        let seq = self.position.seq;
        Line { seq, at, ts: None, met: None, call: None, sync: self.synced, mail: &[], body }
    }

    /// Writes a line at the end; all of it or nothing.
    fn write(&mut self, line: &Line<'_>) -> Result<(), JournalError> {
        if self.file.metadata().tried("look at", &self.path)?.nlink() == 0 {
            let gone = io::Error::new(io::ErrorKind::NotFound, "it was deleted");
            let error = Err(gone).tried("write to", &self.path);
            self.health = Health::Poisoned(said(&error));
            return error;
        }
        let mut buffer = mem::take(&mut self.buffer);
        buffer.clear();
        let written = line.write(&self.blobs, &mut buffer).and_then(|()| {
            let crc = seal(&mut buffer, self.position.crc);
            let Position { offset, seq, .. } = self.position;
            let next = Position { offset: offset + buffer.len() as u64, seq: seq + 1, crc };
            if matches!(self.health, Health::Sound) {
                self.reserve
                    .ensure(&self.file, next.offset)
                    .tried("reserve space for", &self.path)?;
            }
            self.file.write_all_at(&buffer, offset).tried("write to", &self.path)?;
            self.position = next;
            self.synced = Span::ZERO;
            Ok(())
        });
        self.buffer = buffer;
        if written.is_err() {
            self.take_back(&written);
        }
        written
    }

    /// Takes half a record back. When even that fails, the journal is as it is.
    fn take_back(&mut self, why: &Result<(), JournalError>) {
        let is_whole = self.file.metadata().is_ok_and(|found| found.len() == self.position.offset);
        let taken_back = is_whole || self.reserve.release(&self.file, self.position.offset).is_ok();
        self.health = match (&self.health, taken_back) {
            // Also when it is the end that did not fit: a later record that is shorter must not stand for it.
            (Health::Sound | Health::Full(_) | Health::Ending, true) => Health::Full(said(why)),
            (_, false) | (Health::Poisoned(_), _) => Health::Poisoned(said(why)),
        };
    }

    /// Makes everything durable that was written. What the system could not do once is not tried again: it would say
    /// that it is done.
    fn make_durable(&mut self) -> Result<(), JournalError> {
        if self.durability == Durability::Full {
            let begun = Instant::now();
            let synced = self.file.sync_data().tried("make durable", &self.path);
            if synced.is_err() {
                self.health = Health::Poisoned(said(&synced));
                return synced;
            }
            self.synced = Span(self.synced.0 + Span::from(begun.elapsed()).0);
        }
        self.mail.arrived();
        Ok(())
    }

    /// Returns whether a record may be written now.
    fn admit(&mut self, record: &Record<'_>) -> Result<(), StoreError> {
        let is_end = matches!(record, Record::Event { event: Event::StoreFailed { .. }, .. });
        match &self.health {
            Health::Full(_) if is_end => self.health = Health::Ending,
            Health::Sound | Health::Ending => {}
            Health::Full(why) | Health::Poisoned(why) => return Err(StoreError(Arc::clone(why))),
        }
        Ok(())
    }
}

impl Journal for FileJournal {
    fn append(&mut self, at: Time, record: Record<'_>) -> Result<(), StoreError> {
        self.admit(&record)?;
        let written = match record {
            Record::Event { event, met, call } => {
                let mail: Vec<MailId> = self.mail.within(event);
                let mut line = self.line(at, Body::Event(event));
                (line.met, line.call, line.mail) = (Some(met), call, &mail);
                self.write(&line).inspect(|()| self.mail.written(&mail))
            }
            Record::Partial { id, text } => self.add(at, None, None, Body::Partial { id, text }),
            Record::Ended { done, met } => {
                let (ts, before) = (Some(self.dawn.after(at)), self.health.clone());
                let written = self.add(at, ts, Some(met), Body::Ended(&ended(done)));
                // It sums up what is written already, which can be made durable without it.
                if matches!(self.health, Health::Full(_)) {
                    self.health = before;
                }
                written
            }
        };
        written.map_err(|error| StoreError(error.to_string().into()))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        match &self.health {
            Health::Sound | Health::Ending => {}
            Health::Full(why) | Health::Poisoned(why) => return Err(StoreError(Arc::clone(why))),
        }
        self.make_durable().map_err(|error| StoreError(error.to_string().into()))
    }
}

impl Drop for FileJournal {
    /// Gives back what was reserved, and the lock. A poisoned file is left as it is, for whoever looks into it.
    fn drop(&mut self) {
        if !matches!(self.health, Health::Poisoned(_)) {
            let _ = self.reserve.release(&self.file, self.position.offset);
        }
        // A child that another thread has forked, and that has not yet begun its program, has the open file, too.
        let _ = self.file.unlock();
    }
}

/// The files of a session that this process runs.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) session: SessionId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) durability: Durability,
    pub(super) blobs: Blobs,
    pub(super) mail: Mail,
}

/// Takes the lock of a journal; false when another process has it.
///
/// The lock belongs to the open file, so it is gone with the process that had it, however that ended.
pub(super) fn lock(file: &File, path: &Path) -> Result<bool, JournalError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(error)) => return Err(error).tried("lock", path),
        }
    }
}

fn said(failed: &Result<(), JournalError>) -> Arc<str> {
    failed.as_ref().err().map_or_else(String::new, JournalError::to_string).into()
}

fn ended(done: &Done) -> Ended {
    let reason = done.outcome.reason;
    Ended {
        status: reason.status().name().to_owned(),
        reason: reason.name().to_owned(),
        steps: done.run.steps,
        calls: done.run.calls,
        cost: done.run.spent.cost.0,
        tokens: done.run.spent.tokens.0,
    }
}
