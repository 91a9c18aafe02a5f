//! Reading a journal: its longest valid prefix, and what lies behind that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::blobs::BlobStore;
use super::error::{IoContext, JournalError};
use super::record_line::{self, StoredContent, StoredRecord};
use crate::machine::EventKind;

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordDamage {
    /// The file ends within it.
    #[error("its line has no end")]
    Unterminated,
    /// Its line does not end with a checksum.
    #[error("its line has no checksum")]
    NoChecksum,
    /// Its checksum does not go on from the one before.
    #[error("its checksum does not fit")]
    WrongChecksum,
    /// It has another place than it says.
    #[error("it says that it is record {0}")]
    WrongSequence(u64),
    /// It is the first one and no header, or a header and not the first one.
    #[error("a journal has one header, and begins with it")]
    MisplacedHeader,
    /// Its line is longer than any that is written.
    #[error("its line is too long")]
    TooLong,
    /// A long text that it keeps elsewhere is not there.
    #[error("{0}")]
    MissingBlob(String),
}

/// Where a reader stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalPosition {
    /// Bytes of the valid prefix.
    pub offset: u64,
    /// Records in it; the place of the next one.
    pub seq: u64,
    /// The checksum that the next one goes on from.
    pub crc: u32,
}

/// What a reader found next.
#[derive(Debug)]
pub enum ReadRecord {
    /// A record.
    Record(Box<StoredRecord>),
    /// A record that is intact, and means nothing to this release.
    Unknown(String),
    /// The end; the prefix is all that there is.
    End,
    /// Something that is no valid record.
    Damage(RecordDamage),
}

/// What a reader found next that parses no events.
#[derive(Debug)]
pub(super) enum Skimmed {
    /// An intact record with an event of this kind.
    Event(EventKind),
    /// Anything else.
    Found(ReadRecord),
}

/// What lies behind damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordsAfterDamage {
    /// How many records are intact in themselves.
    pub(super) count: u64,
    /// Whether one of them says that everything before it was made durable.
    pub(super) is_synced: bool,
}

/// Reads a journal record by record, in bounded memory.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    input: BufReader<File>,
    blobs: BlobStore,
    line: Vec<u8>,
    position: JournalPosition,
}

/// No line that is longer was ever written.
const MAX_LINE_BYTES: u64 = 256 << 20;

impl JournalReader {
    pub(super) fn new(path: &Path, file: File, blobs: BlobStore) -> Self {
        Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(256 << 10, file),
            blobs,
            line: Vec::new(),
            position: JournalPosition::default(),
        }
    }

    /// Reads a file from its beginning that another reader has read.
    pub(super) fn from_start(
        path: &Path,
        mut file: File,
        blobs: BlobStore,
    ) -> Result<Self, JournalError> {
        file.seek(SeekFrom::Start(0)).io_context("read", path)?;
        Ok(Self::new(path, file, blobs))
    }

    /// Returns where the valid prefix ends, as far as it was read.
    pub fn position(&self) -> JournalPosition {
        self.position
    }

    /// Returns the record that was read last as it is written, without its seal.
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
    /// Fails when the file can't be read; what is wrong with its content is found, not failed with.
    pub fn read(&mut self) -> Result<ReadRecord, JournalError> {
        Ok(match self.next_intact()? {
            Ok(crc) => self.parse(crc),
            Err(found) => found,
        })
    }

    /// Reads the next record; an event is checked against its checksum and its place, and not parsed.
    ///
    /// # Errors
    ///
    /// Fails when the file can't be read.
    pub(super) fn skim(&mut self) -> Result<Skimmed, JournalError> {
        let crc = match self.next_intact()? {
            Ok(crc) => crc,
            Err(found) => return Ok(Skimmed::Found(found)),
        };
        let seq = self.position.seq;
        match record_line::event_kind(&self.line, seq).filter(|_| seq > 0) {
            Some(kind) => {
                self.pass(crc);
                Ok(Skimmed::Event(kind))
            }
            None => Ok(Skimmed::Found(self.parse(crc))),
        }
    }

    /// Reads the next line and returns its checksum if it is intact.
    fn next_intact(&mut self) -> Result<Result<u32, ReadRecord>, JournalError> {
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

    /// Parses the line that was read last, which is intact.
    fn parse(&mut self, crc: u32) -> ReadRecord {
        let stored = match record_line::read_record(&self.line, &self.blobs) {
            Ok(Ok(stored)) => stored,
            Ok(Err(why)) => return ReadRecord::Unknown(why),
            Err(damage) => return ReadRecord::Damage(damage),
        };
        let seq = self.position.seq;
        if stored.seq != seq {
            return ReadRecord::Damage(RecordDamage::WrongSequence(stored.seq));
        }
        if matches!(stored.content, StoredContent::Header(_)) != (seq == 0) {
            return ReadRecord::Damage(RecordDamage::MisplacedHeader);
        }
        self.pass(crc);
        ReadRecord::Record(Box::new(stored))
    }

    /// Adds the line that was read last to the valid prefix.
    fn pass(&mut self, crc: u32) {
        let JournalPosition { offset, seq, .. } = self.position;
        self.position =
            JournalPosition { offset: offset + self.line.len() as u64 + 1, seq: seq + 1, crc };
    }

    /// Returns whether zeros stand in the line that was read last, as where a part of it never reached the disk. No
    /// record contains any.
    pub(super) fn has_zeros(&self) -> bool {
        self.line.contains(&0)
    }

    /// Looks for records behind damage that are intact in themselves: damage before them is none of a torn end.
    ///
    /// # Errors
    ///
    /// Fails when the file can't be read.
    pub(super) fn scan_after_damage(mut self) -> Result<RecordsAfterDamage, JournalError> {
        let offset = self.position.offset;
        self.input.seek(SeekFrom::Start(offset)).io_context("read", &self.path)?;
        // What is damaged may be the checksum alone, or anything but the checksum.
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

    fn next_line(&mut self) -> Result<usize, JournalError> {
        self.line.clear();
        let mut input = self.input.by_ref().take(MAX_LINE_BYTES);
        input.read_until(b'\n', &mut self.line).io_context("read", &self.path)
    }
}
