//! The reader of a journal: its longest valid prefix, and the data after it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::blobs::{BlobStore, digest_of};
use super::error::{IoContext, RecordDamage, Result};
use super::record_line::{self, ReadRecord, StoredContent};
use crate::machine::EventKind;
use crate::types::Sha256Digest;

/// A position in a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalPosition {
    /// The length of the valid prefix in bytes.
    pub offset: u64,
    /// The number of its records, which is the sequence number of the next record.
    pub seq: u64,
    /// The checksum that the next record continues.
    pub crc: u32,
}

/// The records after damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordsAfterDamage {
    /// The number of records that are intact by themselves.
    pub(super) count: u64,
    /// Whether one of these records was written after a sync.
    pub(super) is_synced: bool,
}

/// A reader of a journal, record by record, in bounded memory.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    input: BufReader<File>,
    blobs: BlobStore,
    line: Vec<u8>,
    position: JournalPosition,
    /// The hasher of the valid prefix, if hashes are requested.
    hasher: Option<Sha256>,
    /// Whether the newest record contains a wrong hash of the records before it.
    has_wrong_hash: bool,
}

/// The maximum length of a line that any release has written, in bytes.
const MAX_LINE_BYTES: u64 = 256 << 20;

impl JournalReader {
    pub(super) fn new(path: &Path, file: File, blobs: BlobStore) -> Self {
        Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(256 << 10, file),
            blobs,
            line: Vec::new(),
            position: JournalPosition::default(),
            hasher: None,
            has_wrong_hash: false,
        }
    }

    /// Returns the reader with a hash of the data that it reads.
    pub(super) fn with_hash(self) -> Self {
        Self { hasher: Some(Sha256::new()), ..self }
    }

    /// Returns the SHA-256 of the valid prefix that was read so far, if hashes are requested.
    pub(super) fn hash(&self) -> Option<Sha256Digest> {
        self.hasher.as_ref().map(digest_of)
    }

    /// Returns the hasher of the valid prefix, if hashes are requested.
    pub(super) fn into_hasher(self) -> Option<Sha256> {
        self.hasher
    }

    /// Returns whether the newest record contains a wrong hash of the records before it.
    pub(super) fn has_wrong_hash(&self) -> bool {
        self.has_wrong_hash
    }

    /// Returns the end of the valid prefix that was read so far.
    pub fn position(&self) -> JournalPosition {
        self.position
    }

    /// Returns the last record as it was written, without its checksum.
    pub(super) fn last_record(&self) -> Vec<u8> {
        let body = record_line::unseal(&self.line).map_or(&[][..], |(body, _)| body);
        [body, b"}"].concat()
    }

    pub(super) fn blobs(&self) -> &BlobStore {
        &self.blobs
    }

    /// Reads the next record.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read. Damage is a result, not an error.
    pub fn read(&mut self) -> Result<ReadRecord> {
        Ok(match self.next_intact()? {
            Ok(crc) => self.parse(crc),
            Err(found) => found,
        })
    }

    /// Reads the next record. An event is verified by its checksum and sequence number, and only its kind is returned.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read.
    pub(super) fn skim(&mut self) -> Result<Result<EventKind, ReadRecord>> {
        let crc = match self.next_intact()? {
            Ok(crc) => crc,
            Err(found) => return Ok(Err(found)),
        };
        let seq = self.position.seq;
        let kind = record_line::event_kind(&self.line, seq).filter(|_| seq > 0);
        Ok(match kind {
            Some(kind) => {
                self.pass(crc);
                Ok(kind)
            }
            None => Err(self.parse(crc)),
        })
    }

    /// Reads the next line and returns its checksum if it is intact.
    fn next_intact(&mut self) -> Result<Result<u32, ReadRecord>> {
        let ended = match self.next_line()? {
            0 => return Ok(Err(ReadRecord::End)),
            _ => self.line.pop_if(|byte| *byte == b'\n').is_some(),
        };
        if !ended {
            let too_long = self.line.len() as u64 >= MAX_LINE_BYTES;
            let damage = if too_long { RecordDamage::TooLong } else { RecordDamage::Unterminated };
            return Ok(Err(ReadRecord::Damage(damage)));
        }
        Ok(record_line::verify_seal(&self.line, self.position.crc).map_err(ReadRecord::Damage))
    }

    /// Parses the last line, which is intact.
    fn parse(&mut self, crc: u32) -> ReadRecord {
        let stored = match record_line::read_record(&self.line, &self.blobs) {
            ReadRecord::Record(stored) => stored,
            found => return found,
        };
        let seq = self.position.seq;
        if stored.seq != seq {
            return ReadRecord::Damage(RecordDamage::WrongSequence(stored.seq));
        }
        if matches!(stored.content, StoredContent::Header(_)) != (seq == 0) {
            return ReadRecord::Damage(RecordDamage::MisplacedHeader);
        }
        let stated = stored.hash_before.filter(|_| self.hasher.is_some());
        self.has_wrong_hash = stated.is_some() && stated != self.hash();
        self.pass(crc);
        ReadRecord::Record(stored)
    }

    /// Adds the last line to the valid prefix.
    fn pass(&mut self, crc: u32) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&self.line);
            hasher.update(b"\n");
        }
        let JournalPosition { offset, seq, .. } = self.position;
        self.position =
            JournalPosition { offset: offset + self.line.len() as u64 + 1, seq: seq + 1, crc };
    }

    /// Returns whether the last line contains zero bytes, as when a part of it never reached the disk. No record
    /// contains any.
    pub(super) fn has_zeros(&self) -> bool {
        self.line.contains(&0)
    }

    /// Searches for intact records after damage. If there are any, the damage is not a torn end.
    ///
    /// # Errors
    ///
    /// Fails if the file can't be read.
    pub(super) fn scan_after_damage(&mut self) -> Result<RecordsAfterDamage> {
        let offset = self.position.offset;
        self.input.seek(SeekFrom::Start(offset)).io_context("read", &self.path)?;
        // Either the checksum alone may be damaged, or anything but the checksum.
        let mut before = vec![];
        let mut behind = RecordsAfterDamage::default();
        loop {
            if self.next_line()? == 0 {
                return Ok(behind);
            }
            let ended = self.line.pop_if(|byte| *byte == b'\n').is_some();
            let is_intact = |before: &u32| record_line::verify_seal(&self.line, *before).is_ok();
            if ended && before.iter().any(is_intact) {
                behind.count += 1;
                behind.is_synced |= record_line::is_after_sync(&self.line);
            }
            before = match record_line::unseal(&self.line) {
                Ok((body, crc)) => vec![crc, record_line::checksum(body, self.position.crc)],
                Err(_) => vec![],
            };
        }
    }

    fn next_line(&mut self) -> Result<usize> {
        self.line.clear();
        let mut input = self.input.by_ref().take(MAX_LINE_BYTES);
        Ok(input.read_until(b'\n', &mut self.line).io_context("read", &self.path)?)
    }
}
