//! Copies of journals: forks, exports and imports. The original is never changed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use memchr::memmem;
use sha2::{Digest as _, Sha256};

use super::blobs::{self, BlobStore, digest_of};
use super::error::{IoContext, JournalError, Result};
use super::file_journal::lock;
use super::header::{Ancestry, SessionHeader};
use super::journal_reader::JournalReader;
use super::record_line::{
    self, ReadRecord, RecordBody, RecordLine, StoredContent, StoredRecord, seal,
};
use super::replay::{JournalEndKind, replay};
use super::session_id::SessionId;
use super::session_store::SessionStore;
use super::workspace_identity::WorkspaceIdentity;
use super::{Durability, folder};
use crate::machine::Event;
use crate::net::Secrets;
use crate::types::{ConversationItem, MessageOrigin, RunTime, ToolResult, ToolStatus};
use crate::workspace::{open_input, sync_folder};

/// The differences between a fork and its original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkOptions {
    /// The last shared record; `None` to share all records.
    pub after: Option<u64>,
    /// The result that replaces the tool result in that record.
    pub replacement: Option<ReplacementResult>,
    /// The options of a lane, which is compared with the original; `None` for a fork of the user.
    pub lane: Option<LaneFork>,
    /// The separate workspace of the fork; `None` for the workspace of the original.
    pub workspace: Option<WorkspaceIdentity>,
    /// The creation time of the fork.
    pub now: SystemTime,
}

impl ForkOptions {
    /// Creates the options of a fork that is made at this time, and shares everything up to a record.
    pub fn new(after: Option<u64>, now: SystemTime) -> Self {
        Self { after, replacement: None, lane: None, workspace: None, now }
    }
}

/// A fork that is compared with its original. The name `last` never refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneFork {
    /// The task that replaces the original's task; `None` for the same task.
    pub task: Option<Arc<str>>,
}

/// A tool result that replaces another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementResult {
    /// The outcome of the call.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: Arc<str>,
}

/// An imported session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedSession {
    /// The id of the session: the id in the file, unless that is taken.
    pub session: SessionId,
    /// The number of its records.
    pub records: u64,
    /// Whether an incomplete record at its end was omitted.
    pub had_partial_record: bool,
}

impl SessionStore {
    /// Creates a session that begins with the records of another session. It can be resumed with another model, prompt
    /// or rules.
    ///
    /// # Errors
    ///
    /// Fails if the session has no such record, if it is damaged and no record was named, if the record to replace is
    /// not a tool result, and on an I/O error.
    pub fn fork(&self, parent: SessionId, fork: &ForkOptions) -> Result<SessionId> {
        let child = SessionId::generate();
        let reader = self.reader(parent)?;
        let (history, end) = self.load(parent)?;
        if let Some(reason) = history.header.newer_format() {
            return Err(JournalError::ReadOnly { session: parent, reason });
        }
        if let (None, Some(reason)) = (fork.after, end.damage()) {
            return Err(JournalError::Damaged { session: parent, reason });
        }
        let last = end.position.seq.saturating_sub(1);
        let after = fork.after.unwrap_or(last);
        if after > last {
            return Err(JournalError::NoRecord { session: parent, seq: after, last });
        }
        let replaced = fork.replacement.as_ref().map(|_| after);
        // A fork of a fork with its own files shares these files.
        let inherited = history.header.ancestry.is_some_and(|ancestry| ancestry.has_own_files);
        let has_own_files = fork.workspace.is_some() || inherited;
        let is_lane = fork.lane.is_some();
        let ancestry =
            Some(Ancestry { session: parent, seq: after, replaced, has_own_files, is_lane });
        let mut setup = history.header.setup;
        if has_own_files {
            setup.workspace = fork.workspace.clone().unwrap_or(history.setup.workspace);
        }
        let created = fork.now.into();
        let imported = history.header.imported_up_to.map(|imported| imported.min(after));
        let task = match fork.lane.as_ref().and_then(|lane| lane.task.as_ref()) {
            Some(task) => ConversationItem::user(MessageOrigin::Task, Arc::clone(task)),
            None => history.header.task,
        };
        let header = SessionHeader {
            session: child,
            created,
            ancestry,
            imported_up_to: imported,
            dispatched_by: None,
            setup,
            task,
            ..history.header
        };
        let replacement = fork.replacement.as_ref();
        let claimed = self.claim_id(child)?;
        // The files that the records refer to must exist before the records.
        let outputs = self.outputs(child).copy_from(&self.outputs(parent));
        let copied = outputs.and_then(|()| self.share_contents(parent, child));
        copied.inspect_err(|_| self.remove_unpublished(child))?;
        self.write_copy(claimed, &header, reader, after, replacement)?;
        Ok(child)
    }

    /// Shares the contents of the parent's checkpoints with the child, by hard links where the file system supports
    /// them.
    fn share_contents(&self, parent: SessionId, child: SessionId) -> Result<(), JournalError> {
        let (from, to) = (self.checkpoint_folder(parent), self.checkpoint_folder(child));
        if !from.exists() {
            return Ok(());
        }
        folder::create_durable(&to, self.durability())?;
        for entry in folder::read_dir(&from).io_context("list", &from)? {
            let entry = entry.io_context("list", &from)?;
            let (path, copy) = (entry.path(), to.join(entry.file_name()));
            if fs::hard_link(&path, &copy).is_err() {
                fs::copy(&path, &copy).io_context("copy", &path)?;
            }
        }
        Ok(sync_folder(&to, self.durability())?)
    }

    /// Writes the records of a session to `out` as one self-contained file. Secrets are masked, and the mark of an
    /// import into this store is omitted.
    ///
    /// # Errors
    ///
    /// Fails if the session can't be read or is damaged, or if `out` can't be written.
    pub fn export(
        &self,
        session: SessionId,
        secrets: &Secrets,
        out: &mut dyn Write,
    ) -> Result<u64> {
        match self.damage(session)? {
            None => self.export_up_to_damage(session, secrets, out),
            Some(reason) => Err(JournalError::Damaged { session, reason }),
        }
    }

    /// Writes the records of a session up to the first damaged record, as [`export`](Self::export) does.
    ///
    /// # Errors
    ///
    /// Fails if the session can't be read, or `out` can't be written.
    pub fn export_up_to_damage(
        &self,
        session: SessionId,
        secrets: &Secrets,
        out: &mut dyn Write,
    ) -> Result<u64> {
        let mut reader = self.reader(session)?;
        let mut copy = RecordCopier::new(out);
        let (mut records, mut is_masked) = (0, false);
        while let Some(stored) = next_record(&mut reader)? {
            let mut text = reader.last_record();
            let is_marked = matches!(&stored.content, StoredContent::Header(header) if header.imported_up_to.is_some());
            if !stored.blobs.is_empty() || is_marked {
                text = record_line::restore_long_texts(&text, &stored.blobs, reader.blobs())
                    .map_err(|found| match found {
                        ReadRecord::Damage(damage) => io::Error::other(damage),
                        ReadRecord::Unknown(reason) => io::Error::other(reason),
                        ReadRecord::Record(_) | ReadRecord::End => io::ErrorKind::Other.into(),
                    })
                    .io_context("read", &self.journal_path(session))?;
            }
            let text = without_commands(text);
            let mut masked = secrets.mask_bytes_for_export(&text);
            is_masked |= masked != text;
            if is_masked
                && stored.fingerprint.as_ref().is_some_and(|before| before.digest.is_some())
            {
                remove_digest(&mut masked, b",\"mark\":\"", b'"');
            }
            if is_masked && stored.timing.is_some_and(|timing| timing.request.is_some()) {
                remove_digest(&mut masked, b",\"request\":{", b'}');
            }
            copy.write_record(masked, &stored)?;
            records += 1;
        }
        Ok(records)
    }

    /// Imports an exported session, as one of this folder.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a session, is damaged, or was written by a newer release.
    pub fn import(&self, path: &Path, folder: &Path, now: SystemTime) -> Result<ImportedSession> {
        let file = open_input(path).io_context("open", path)?;
        // An export contains all texts, so references are not resolved.
        let nowhere = BlobStore::new(path.join("none"), Durability::Os);
        let mut again = file.try_clone().io_context("open", path)?;
        let mut reader = JournalReader::new(path, file, nowhere.clone());
        let no = |reason: String| JournalError::NotAnExport { path: path.to_owned(), reason };
        let (history, end) = replay(&mut reader, SessionId::generate(), &mut |_, _, _| {})
            .map_err(|error| match error {
                JournalError::ReadOnly { reason, .. } => no(reason.to_string()),
                error => error,
            })?;
        if let JournalEndKind::ReadOnly(reason) = &end.kind {
            return Err(no(reason.to_string()));
        }
        if let Some(reason) = history.header.newer_format() {
            return Err(no(reason.to_string()));
        }
        let had = history.header.session;
        let (session, claim) = match self.claim_id(had) {
            Ok(claim) => (had, claim),
            Err(JournalError::SessionExists(_) | JournalError::Busy { .. }) => {
                let fresh = SessionId::generate();
                (fresh, self.claim_id(fresh)?)
            }
            Err(error) => return Err(error),
        };
        let seq = end.position.seq.saturating_sub(1);
        let ancestry = Some(Ancestry {
            session: had,
            seq,
            replaced: None,
            has_own_files: false,
            is_lane: false,
        });
        let imported_into = Some(folder.to_string_lossy().into_owned());
        let header = SessionHeader { imported_up_to: Some(seq), imported_into, ..history.header };
        let header = match session != had {
            true => SessionHeader { session, ancestry, created: now.into(), ..header },
            false => header,
        };
        again.rewind().io_context("read", path)?;
        let reader = JournalReader::new(path, again, nowhere);
        self.write_copy(claim, &header, reader, seq, None)?;
        let torn = end.kind != JournalEndKind::Whole;
        Ok(ImportedSession { session, records: end.position.seq, had_partial_record: torn })
    }

    /// Writes the records of a journal up to the record `last` as a new session, which appears complete or not at all.
    fn write_copy(
        &self,
        claim: File,
        header: &SessionHeader,
        mut reader: JournalReader,
        last: u64,
        replacement: Option<&ReplacementResult>,
    ) -> Result<()> {
        let (session, blobs) = (header.session, self.blobs(header.session));
        let temporary = self.temporary_path();
        let file =
            blobs::create_private_file(&temporary).io_context("create the file", &temporary)?;
        let mut copy = || {
            // No other process knows the file. The lock shows that it is in use.
            lock(&file, &temporary)?;
            let mut out = BufWriter::new(&file);
            let mut copy = RecordCopier::new(&mut out);
            while let Some(stored) = next_record(&mut reader)?.filter(|stored| stored.seq <= last) {
                match (&stored.content, replacement.filter(|_| stored.seq == last)) {
                    (content, Some(instead)) => {
                        let session = header.ancestry.map_or(session, |parent| parent.session);
                        let event = replace_result(content, instead)
                            .ok_or(JournalError::NotAToolResult { session, seq: last })?;
                        let before = stored.fingerprint.as_ref();
                        let line = RecordLine {
                            ts: stored.ts,
                            state: before.map(|before| &*before.state),
                            mark: before.and_then(|before| before.digest.map(|d| d.to_string())),
                            timing: stored.timing,
                            sync_time: stored.sync_time,
                            message_ids: &stored.message_ids,
                            ..RecordLine::new(stored.seq, stored.at, RecordBody::Event(&event))
                        };
                        copy.write_line(&line, &blobs)?;
                    }
                    (StoredContent::Header(_), None) => {
                        let line = RecordLine::new(0, RunTime::START, RecordBody::Header(header));
                        let line = RecordLine { ts: Some(header.created), ..line };
                        copy.write_line(&line, &blobs)?;
                    }
                    (_, None) => {
                        for blob in stored.blobs.values() {
                            blobs.copy_from(blob, reader.blobs())?;
                        }
                        copy.write_record(reader.last_record(), &stored)?;
                    }
                }
            }
            out.flush().io_context("write", &temporary)?;
            drop(out);
            if self.durability() == Durability::Full {
                file.sync_all().io_context("make durable", &temporary)?;
            }
            self.publish(&temporary, session)
        };
        let written = copy().inspect_err(|_| self.remove_unstarted(&temporary, session));
        drop(claim);
        written
    }
}

/// Returns the next record of the valid prefix.
fn next_record(reader: &mut JournalReader) -> Result<Option<StoredRecord>> {
    Ok(match reader.read()? {
        ReadRecord::Record(stored) => Some(*stored),
        ReadRecord::End | ReadRecord::Unknown(_) | ReadRecord::Damage(_) => None,
    })
}

/// Removes a digest from a record, if it has one: after a masked text, the state and the rebuilt request differ. Only
/// numbers and names precede the digests in the record.
fn remove_digest(text: &mut Vec<u8>, begin: &[u8], end: u8) {
    let Some(start) = memmem::find(text, begin) else { return };
    let digest = start + begin.len();
    if let Some(length) = text[digest..].iter().position(|byte| *byte == end) {
        text.drain(start..=digest + length);
    }
}

/// Escapes the record so that no text in it is a command to a CI system that prints it: `##[name]` and `##vso[name]`
/// are commands anywhere in a line. The escaped bracket is equivalent JSON.
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

/// Returns the event with another result, if it is the completion of a tool call.
fn replace_result(content: &StoredContent, instead: &ReplacementResult) -> Option<Event> {
    let StoredContent::Event(Event::ToolCompleted { id, result }) = content else { return None };
    let new = ToolResult::new(result.call.clone(), instead.status, Arc::clone(&instead.text));
    Some(Event::ToolCompleted { id: *id, result: ToolResult { duration: result.duration, ..new } })
}

/// A writer of copied records, with new checksums.
struct RecordCopier<'a> {
    out: &'a mut dyn Write,
    crc: u32,
    hasher: Sha256,
}

impl<'a> RecordCopier<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self { out, crc: 0, hasher: Sha256::new() }
    }

    fn write_line(&mut self, line: &RecordLine<'_>, blobs: &BlobStore) -> Result<()> {
        let mut text = Vec::new();
        line.write(blobs, &mut text)?;
        self.write_text(text)
    }

    /// Writes a record. It is unchanged except for the hash of the records before it.
    fn write_record(&mut self, mut text: Vec<u8>, stored: &StoredRecord) -> Result<()> {
        if stored.hash_before.is_some() {
            record_line::replace_hash(&mut text, digest_of(&self.hasher));
        }
        self.write_text(text)
    }

    fn write_text(&mut self, mut text: Vec<u8>) -> Result<()> {
        self.crc = seal(&mut text, self.crc);
        self.hasher.update(&text);
        Ok(self.out.write_all(&text).io_context("write", Path::new("the copy"))?)
    }
}
