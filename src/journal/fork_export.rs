//! Copies of journals: forks, exports and imports. The original is never touched.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use memchr::memmem;

use super::Durability;
use super::blobs::{self, BlobStore};
use super::error::{IoContext, JournalError};
use super::file_journal::lock;
use super::header::{Ancestry, SessionHeader};
use super::journal_reader::{JournalReader, ReadRecord};
use super::record_line::{self, RecordBody, RecordLine, StoredContent, StoredRecord, seal};
use super::replay::{JournalEndKind, replay};
use super::session_claim::SessionClaim;
use super::session_id::SessionId;
use super::session_store::SessionStore;
use crate::machine::{Event, Fingerprint};
use crate::model::{RunTime, TimeSpan, ToolResult, ToolStatus};

/// Where a fork leaves its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkOptions {
    /// The last record that both have; none for all that there are.
    pub after: Option<u64>,
    /// What that record says instead, when it is the result of a tool call.
    pub replacement: Option<ReplacementResult>,
    /// The time of day.
    pub now: SystemTime,
}

/// A result that stands for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementResult {
    /// How the call ended.
    pub status: ToolStatus,
    /// What the model is told.
    pub text: Arc<str>,
}

/// A session that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedSession {
    /// Its id: the one that it had, unless there is a session with that already.
    pub session: SessionId,
    /// Its records.
    pub records: u64,
    /// Whether half a record at its end was left out.
    pub had_partial_record: bool,
}

impl SessionStore {
    /// Makes a session that begins like another one. Then it can be gone on with, with another model, another prompt or
    /// other rules.
    ///
    /// # Errors
    ///
    /// Fails when the session has no such record, when it is damaged and no record was named, when what is to be replaced is no result, and when the system refuses
    /// something.
    pub fn fork(&self, parent: SessionId, fork: &ForkOptions) -> Result<SessionId, JournalError> {
        let child = SessionId::generate();
        let mut reader = self.reader(parent)?;
        let (past, end) = self.replay(parent, |_, _, _| {})?;
        if let Some(why) = past.header.newer_format() {
            return Err(JournalError::ReadOnly { session: parent, reason: why });
        }
        if let (None, Some(why)) = (fork.after, end.damage()) {
            return Err(JournalError::Damaged { session: parent, reason: why });
        }
        let last = end.position.seq.saturating_sub(1);
        let after = fork.after.unwrap_or(last);
        if after > last {
            return Err(JournalError::NoRecord { session: parent, seq: after, last });
        }
        let replaced = fork.replacement.as_ref().map(|_| after);
        let lineage = Some(Ancestry { session: parent, seq: after, replaced });
        let created = fork.now.into();
        let imported = past.header.imported_up_to.map(|imported| imported.min(after));
        let header = SessionHeader {
            session: child,
            created,
            ancestry: lineage,
            imported_up_to: imported,
            dispatched_by: None,
            ..past.header
        };
        let blobs = self.blobs(child);
        self.write_copy(child, self.claim_id(child)?, |out| {
            let mut copy = RecordCopier { out, crc: 0 };
            while let Some(stored) = next_record(&mut reader)?.filter(|stored| stored.seq <= after)
            {
                let instead = fork.replacement.as_ref().filter(|_| stored.seq == after);
                match (&stored.content, instead) {
                    (content, Some(instead)) => {
                        let no = || JournalError::NotAToolResult { session: parent, seq: after };
                        let event = replace_result(content, instead).ok_or_else(no)?;
                        copy.copy_record(&stored, RecordBody::Event(&event), &blobs)?;
                    }
                    (StoredContent::Header(_), None) => copy.header(&header, &blobs)?,
                    (_, None) => {
                        for blob in stored.blobs.values() {
                            blobs.copy_from(blob, reader.blobs())?;
                        }
                        copy.write_record(reader.last_record())?;
                    }
                }
            }
            Ok(())
        })?;
        self.outputs(child).copy_from(&self.outputs(parent))?;
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
            Some(why) => Err(JournalError::Damaged { session, reason: why }),
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
        let mut copy = RecordCopier { out, crc: 0 };
        let mut records = 0;
        while let Some(stored) = next_record(&mut reader)? {
            let mut text = reader.last_record();
            let is_marked = matches!(&stored.content, StoredContent::Header(header) if header.imported_up_to.is_some());
            if !stored.blobs.is_empty() || is_marked {
                let lowered = record_line::restore_long_texts(&text, &stored.blobs, reader.blobs());
                let lost = |why: String| std::io::Error::other(why);
                text = lowered
                    .map_err(|damage| lost(damage.to_string()))
                    .and_then(|lowered| lowered.map_err(lost))
                    .io_context("read", &self.journal_path(session))?;
            }
            copy.write_record(without_commands(text))?;
            records += 1;
        }
        Ok(records)
    }

    /// Takes a session in that was exported.
    ///
    /// # Errors
    ///
    /// Fails when the file is no session, is damaged, or was written by a newer release.
    pub fn import(&self, path: &Path, now: SystemTime) -> Result<ImportedSession, JournalError> {
        let file = File::open(path).io_context("open", path)?;
        // What it names is looked for nowhere: an export has everything in it.
        let nowhere = BlobStore::new(path.join("none"), Durability::Os);
        let again = file.try_clone().io_context("open", path)?;
        let reader = JournalReader::new(path, file, nowhere.clone());
        let no = |why: String| JournalError::NotAnExport { path: path.to_owned(), reason: why };
        let (past, end) =
            replay(reader, SessionId::generate(), |_, _, _| {}).map_err(|error| match error {
                JournalError::ReadOnly { reason: why, .. } => no(why.to_string()),
                error => error,
            })?;
        let read_only = match &end.kind {
            JournalEndKind::ReadOnly(why) => Some(why.clone()),
            JournalEndKind::Whole | JournalEndKind::Torn(_) => past.header.newer_format(),
        };
        if let Some(why) = read_only {
            return Err(no(why.to_string()));
        }
        let had = past.header.session;
        let (session, claim) = match self.claim_id(had) {
            Ok(claim) => (had, claim),
            Err(JournalError::SessionExists(_) | JournalError::Busy { .. }) => {
                let fresh = SessionId::generate();
                (fresh, self.claim_id(fresh)?)
            }
            Err(error) => return Err(error),
        };
        let seq = end.position.seq.saturating_sub(1);
        let lineage = Some(Ancestry { session: had, seq, replaced: None });
        let header = SessionHeader { imported_up_to: Some(seq), ..past.header };
        let header = match session != had {
            true => SessionHeader { session, ancestry: lineage, created: now.into(), ..header },
            false => header,
        };
        let mut reader = JournalReader::from_start(path, again, nowhere)?;
        let blobs = self.blobs(session);
        self.write_copy(session, claim, |out| {
            let mut copy = RecordCopier { out, crc: 0 };
            while let Some(stored) = next_record(&mut reader)? {
                match &stored.content {
                    StoredContent::Header(_) => copy.header(&header, &blobs)?,
                    _ => copy.write_record(reader.last_record())?,
                }
            }
            Ok(())
        })?;
        let torn = end.kind != JournalEndKind::Whole;
        Ok(ImportedSession { session, records: end.position.seq, had_partial_record: torn })
    }

    /// Writes a journal that appears whole, or not at all.
    fn write_copy(
        &self,
        session: SessionId,
        claim: SessionClaim,
        write: impl FnOnce(&mut dyn Write) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let temporary = self.temporary_path();
        let file =
            blobs::create_private_file(&temporary).io_context("make the file", &temporary)?;
        let written = (|| {
            // Nobody else knows the file; the lock says that somebody is at it.
            lock(&file, &temporary)?;
            let mut out = BufWriter::new(&file);
            write(&mut out)?;
            out.flush().io_context("write", &temporary)?;
            drop(out);
            if self.durability() == Durability::Full {
                file.sync_all().io_context("make durable", &temporary)?;
            }
            self.publish(&temporary, session)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            self.remove_unstarted(session);
        }
        drop(claim);
        written
    }
}

/// Returns the next record of the valid prefix.
fn next_record(reader: &mut JournalReader) -> Result<Option<StoredRecord>, JournalError> {
    Ok(match reader.read()? {
        ReadRecord::Record(stored) => Some(*stored),
        ReadRecord::End | ReadRecord::Unknown(_) | ReadRecord::Damage(_) => None,
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
fn replace_result(content: &StoredContent, instead: &ReplacementResult) -> Option<Event> {
    let StoredContent::Event(Event::ToolCompleted { id, result }) = content else { return None };
    let new = ToolResult::new(result.call.clone(), instead.status, Arc::clone(&instead.text));
    Some(Event::ToolCompleted { id: *id, result: ToolResult { duration: result.duration, ..new } })
}

/// Writes records one after the other, each sealed anew.
struct RecordCopier<'a> {
    out: &'a mut dyn Write,
    crc: u32,
}

impl RecordCopier<'_> {
    fn header(&mut self, header: &SessionHeader, blobs: &BlobStore) -> Result<(), JournalError> {
        let line = RecordLine {
            seq: 0,
            at: RunTime::START,
            ts: Some(header.created),
            fingerprint: None,
            timing: None,
            sync_time: TimeSpan::ZERO,
            message_ids: &[],
            body: RecordBody::Header(header),
        };
        let mut text = Vec::new();
        line.write(blobs, &mut text)?;
        self.write_record(text)
    }

    /// Writes a record that was read, with another body.
    fn copy_record(
        &mut self,
        as_read: &StoredRecord,
        body: RecordBody<'_>,
        blobs: &BlobStore,
    ) -> Result<(), JournalError> {
        let StoredRecord { seq, at, ts, timing: call, sync_time: sync, .. } = *as_read;
        let met = as_read
            .fingerprint
            .as_ref()
            .and_then(|mark| Some(Fingerprint { state: mark.state_kind()?, digest: mark.digest? }));
        let line = RecordLine {
            seq,
            at,
            ts,
            fingerprint: met,
            timing: call,
            sync_time: sync,
            message_ids: &as_read.message_ids,
            body,
        };
        let mut text = Vec::new();
        line.write(blobs, &mut text)?;
        self.write_record(text)
    }

    /// Writes a record as it is.
    fn write_record(&mut self, mut text: Vec<u8>) -> Result<(), JournalError> {
        self.crc = seal(&mut text, self.crc);
        self.out.write_all(&text).io_context("write", Path::new("the copy"))
    }
}
