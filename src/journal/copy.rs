//! Copies of journals: forks, exports and imports. The original is never touched.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use memchr::memmem;

use super::Durability;
use super::blobs::{self, Blobs};
use super::claim::Claim;
use super::error::{JournalError, Tried};
use super::header::{Header, Lineage};
use super::id::SessionId;
use super::line::{self, Body, Content, Line, Stored, seal};
use super::reader::{Found, Reader};
use super::replay::{EndKind, replay};
use super::store::Store;
use super::writer::lock;
use crate::machine::{Event, Mark};
use crate::model::{Span, Time, ToolResult, ToolStatus};

/// Where a fork leaves its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The last record that both have; none for all that there are.
    pub after: Option<u64>,
    /// What that record says instead, when it is the result of a tool call.
    pub instead: Option<Instead>,
    /// The time of day.
    pub now: SystemTime,
}

/// A result that stands for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instead {
    /// How the call ended.
    pub status: ToolStatus,
    /// What the model is told.
    pub text: Arc<str>,
}

/// A session that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Its id: the one that it had, unless there is a session with that already.
    pub session: SessionId,
    /// Its records.
    pub records: u64,
    /// Whether half a record at its end was left out.
    pub torn: bool,
}

impl Store {
    /// Makes a session that begins like another one. Then it can be gone on with, with another model, another prompt or
    /// other rules.
    ///
    /// # Errors
    ///
    /// Fails when the session has no such record, when it is damaged and no record was named, when what is to be replaced is no result, and when the system refuses
    /// something.
    pub fn fork(&self, parent: SessionId, fork: &Fork) -> Result<SessionId, JournalError> {
        let child = SessionId::fresh();
        let mut reader = self.reader(parent)?;
        let (past, end) = self.replay(parent, |_, _, _| {})?;
        if let Some(why) = past.header.newer() {
            return Err(JournalError::ReadOnly { session: parent, why });
        }
        if let (None, Some(why)) = (fork.after, end.damage()) {
            return Err(JournalError::Damaged { session: parent, why });
        }
        let last = end.position.seq.saturating_sub(1);
        let after = fork.after.unwrap_or(last);
        if after > last {
            return Err(JournalError::NoRecord { session: parent, seq: after, last });
        }
        let replaced = fork.instead.as_ref().map(|_| after);
        let lineage = Some(Lineage { session: parent, seq: after, replaced });
        let created = fork.now.into();
        let imported = past.header.imported.map(|imported| imported.min(after));
        let header = Header {
            session: child,
            created,
            lineage,
            imported,
            dispatched_by: None,
            ..past.header
        };
        let blobs = self.blobs(child);
        self.write_copy(child, self.claim_new(child)?, |out| {
            let mut copy = Copy { out, crc: 0 };
            while let Some(stored) = next(&mut reader)?.filter(|stored| stored.seq <= after) {
                let instead = fork.instead.as_ref().filter(|_| stored.seq == after);
                match (&stored.content, instead) {
                    (content, Some(instead)) => {
                        let no = || JournalError::NoResult { session: parent, seq: after };
                        let event = replace(content, instead).ok_or_else(no)?;
                        copy.line(&stored, Body::Event(&event), &blobs)?;
                    }
                    (Content::Header(_), None) => copy.header(&header, &blobs)?,
                    (_, None) => {
                        for blob in stored.moved.values() {
                            blobs.adopt(blob, reader.blobs())?;
                        }
                        copy.text(reader.text())?;
                    }
                }
            }
            Ok(())
        })?;
        self.outputs(child).adopt(&self.outputs(parent))?;
        Ok(child)
    }

    /// Writes the records of a session to `out`: one file with everything in it, but for the mark that it was imported
    /// here.
    ///
    /// # Errors
    ///
    /// Fails when the session can't be read, when it is damaged, or when `out` can't be written.
    pub fn export(&self, session: SessionId, out: &mut dyn Write) -> Result<u64, JournalError> {
        match self.damage(session)? {
            None => self.export_up_to_damage(session, out),
            Some(why) => Err(JournalError::Damaged { session, why }),
        }
    }

    /// Writes the records of a session up to the first that is damaged.
    ///
    /// # Errors
    ///
    /// Fails when the session can't be read, or `out` can't be written.
    pub fn export_up_to_damage(
        &self,
        session: SessionId,
        out: &mut dyn Write,
    ) -> Result<u64, JournalError> {
        let mut reader = self.reader(session)?;
        let mut copy = Copy { out, crc: 0 };
        let mut records = 0;
        while let Some(stored) = next(&mut reader)? {
            let mut text = reader.text();
            let is_marked =
                matches!(&stored.content, Content::Header(header) if header.imported.is_some());
            if !stored.moved.is_empty() || is_marked {
                let lowered = line::lower(&text, &stored.moved, reader.blobs());
                let lost = |why: String| std::io::Error::other(why);
                text = lowered
                    .map_err(|damage| lost(damage.to_string()))
                    .and_then(|lowered| lowered.map_err(lost))
                    .tried("read", &self.path(session))?;
            }
            copy.text(without_commands(text))?;
            records += 1;
        }
        Ok(records)
    }

    /// Takes a session in that was exported.
    ///
    /// # Errors
    ///
    /// Fails when the file is no session, is damaged, or was written by a newer release.
    pub fn import(&self, path: &Path, now: SystemTime) -> Result<Imported, JournalError> {
        let file = File::open(path).tried("open", path)?;
        // What it names is looked for nowhere: an export has everything in it.
        let nowhere = Blobs::new(path.join("none"), Durability::Os);
        let again = file.try_clone().tried("open", path)?;
        let reader = Reader::new(path, file, nowhere.clone());
        let no = |why: String| JournalError::NotASession { path: path.to_owned(), why };
        let (past, end) =
            replay(reader, SessionId::fresh(), |_, _, _| {}).map_err(|error| match error {
                JournalError::ReadOnly { why, .. } => no(why.to_string()),
                error => error,
            })?;
        let read_only = match &end.kind {
            EndKind::ReadOnly(why) => Some(why.clone()),
            EndKind::Whole | EndKind::Torn(_) => past.header.newer(),
        };
        if let Some(why) = read_only {
            return Err(no(why.to_string()));
        }
        let had = past.header.session;
        let (session, claim) = match self.claim_new(had) {
            Ok(claim) => (had, claim),
            Err(JournalError::Exists(_) | JournalError::Busy { .. }) => {
                let fresh = SessionId::fresh();
                (fresh, self.claim_new(fresh)?)
            }
            Err(error) => return Err(error),
        };
        let seq = end.position.seq.saturating_sub(1);
        let lineage = Some(Lineage { session: had, seq, replaced: None });
        let header = Header { imported: Some(seq), ..past.header };
        let header = match session != had {
            true => Header { session, lineage, created: now.into(), ..header },
            false => header,
        };
        let mut reader = Reader::again(path, again, nowhere)?;
        let blobs = self.blobs(session);
        self.write_copy(session, claim, |out| {
            let mut copy = Copy { out, crc: 0 };
            while let Some(stored) = next(&mut reader)? {
                match &stored.content {
                    Content::Header(_) => copy.header(&header, &blobs)?,
                    _ => copy.text(reader.text())?,
                }
            }
            Ok(())
        })?;
        let torn = end.kind != EndKind::Whole;
        Ok(Imported { session, records: end.position.seq, torn })
    }

    /// Writes a journal that appears whole, or not at all.
    fn write_copy(
        &self,
        session: SessionId,
        claim: Claim,
        write: impl FnOnce(&mut dyn Write) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let temporary = self.temporary();
        let file = blobs::create(&temporary).tried("make the file", &temporary)?;
        let written = (|| {
            // Nobody else knows the file; the lock says that somebody is at it.
            lock(&file, &temporary)?;
            let mut out = BufWriter::new(&file);
            write(&mut out)?;
            out.flush().tried("write", &temporary)?;
            drop(out);
            if self.durability() == Durability::Full {
                file.sync_all().tried("make durable", &temporary)?;
            }
            self.publish(&temporary, session)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            self.forsake(session);
        }
        drop(claim);
        written
    }
}

/// Returns the next record of the valid prefix.
fn next(reader: &mut Reader) -> Result<Option<Stored>, JournalError> {
    Ok(match reader.read()? {
        Found::Record(stored) => Some(*stored),
        Found::End | Found::NotUnderstood(_) | Found::Damage(_) => None,
    })
}

/// Returns a record in which no text is a command to a CI system that the record may be printed to: `##[name]` and
/// `##vso[name]` are commands anywhere in a line. The bracket is escaped, which means the same in JSON.
fn without_commands(text: Vec<u8>) -> Vec<u8> {
    if memmem::find(&text, b"##").is_none() {
        return text;
    }
    let mut clean = Vec::with_capacity(text.len());
    for byte in text {
        let is_old = clean.ends_with(b"##")
            || clean.last_chunk::<5>().is_some_and(|last| last.eq_ignore_ascii_case(b"##vso"));
        match byte {
            b'[' if is_old => clean.extend_from_slice(b"\\u005b"),
            byte => clean.push(byte),
        }
    }
    clean
}

/// Returns the event with another result, if it is one that has a result.
fn replace(content: &Content, instead: &Instead) -> Option<Event> {
    let Content::Event(Event::Settled { id, result }) = content else { return None };
    let new = ToolResult::new(result.call.clone(), instead.status, Arc::clone(&instead.text));
    Some(Event::Settled { id: *id, result: ToolResult { took: result.took, ..new } })
}

/// Writes records one after the other, each sealed anew.
struct Copy<'a> {
    out: &'a mut dyn Write,
    crc: u32,
}

impl Copy<'_> {
    fn header(&mut self, header: &Header, blobs: &Blobs) -> Result<(), JournalError> {
        let line = Line {
            seq: 0,
            at: Time::START,
            ts: Some(header.created),
            met: None,
            call: None,
            sync: Span::ZERO,
            mail: &[],
            body: Body::Header(header),
        };
        let mut text = Vec::new();
        line.write(blobs, &mut text)?;
        self.text(text)
    }

    /// Writes a record that was read, with another body.
    fn line(
        &mut self,
        as_read: &Stored,
        body: Body<'_>,
        blobs: &Blobs,
    ) -> Result<(), JournalError> {
        let Stored { seq, at, ts, call, sync, .. } = *as_read;
        let met = as_read
            .met
            .as_ref()
            .and_then(|mark| Some(Mark { state: mark.kind()?, digest: mark.digest? }));
        let line = Line { seq, at, ts, met, call, sync, mail: &as_read.mail, body };
        let mut text = Vec::new();
        line.write(blobs, &mut text)?;
        self.text(text)
    }

    /// Writes a record as it is.
    fn text(&mut self, mut text: Vec<u8>) -> Result<(), JournalError> {
        self.crc = seal(&mut text, self.crc);
        self.out.write_all(&text).tried("write", Path::new("the copy"))
    }
}
