//! The journal of a workflow: one line of JSON per event. The checksum of each line continues the previous one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::history::{EventDetail, StoredEvent};
use super::machine::{Program, StepEvent};
use crate::journal::{WallTime, seal, verify_seal};
use crate::types::Durability;
use crate::workspace::{IoContext, IoError, lock_within};

/// The name of the journal in the folder of a workflow.
const FILE_NAME: &str = "workflow.jsonl";

/// The version of the format.
const FORMAT: u32 = 1;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// The version of the format.
    workflow: u32,
    /// The hash of the workflow's definition.
    pub definition: String,
    /// The program.
    pub program: Program,
}

/// The journal of a workflow, open only in this process.
#[derive(Debug)]
pub struct WorkflowJournal {
    path: PathBuf,
    file: File,
    crc: u32,
    durability: Durability,
}

/// The reason why the journal of a workflow can't be used.
#[derive(Debug, Error)]
pub enum WorkflowJournalError {
    /// Another process has the journal open.
    #[error("another process runs the workflow in {}", .0.display())]
    Busy(PathBuf),
    /// The journal belongs to another workflow.
    #[error("{} has another workflow: its prompt, commands or settings differ", .0.display())]
    OtherWorkflow(PathBuf),
    /// A line is damaged, and others follow it.
    #[error("{}:{line} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
    },
    /// The journal can't be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
}

type Result<T, E = WorkflowJournalError> = std::result::Result<T, E>;

impl WorkflowJournal {
    /// Opens the journal of a workflow in its folder, or creates it. Returns its events, and the program of the first
    /// command, to which they belong: a repeated command may have other limits.
    ///
    /// # Errors
    ///
    /// Fails if another process has it open, if it belongs to another workflow or is damaged, and on an I/O error.
    pub fn open(
        folder: &Path,
        definition: &str,
        program: &Program,
        durability: Durability,
    ) -> Result<(Self, Program, Vec<StoredEvent>)> {
        let path = folder.join(FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        // If this were a link, the creator of the folder would choose the file.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(&path).io_context("open", &path)?;
        if !lock_within(&file, LOCK_TIMEOUT).io_context("lock", &path)? {
            return Err(WorkflowJournalError::Busy(folder.to_owned()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).io_context("read", &path)?;
        let ValidLines { lines, length, crc } = valid_lines(&bytes, &path)?;
        if length < bytes.len() {
            // The last line is incomplete: the process was killed while it wrote.
            file.set_len(length as u64).io_context("cut", &path)?;
        }
        let mut journal = Self { path: path.clone(), file, crc, durability };
        let damaged = |line| WorkflowJournalError::Damaged { path: path.clone(), line };
        let Some((first, events)) = lines.split_first() else {
            let header = JournalHeader {
                workflow: FORMAT,
                definition: definition.to_owned(),
                program: program.clone(),
            };
            journal.append_line(&header)?;
            if let Ok(folder) = File::open(folder) {
                folder.sync_all().io_context("sync the folder of", &path)?;
            }
            return Ok((journal, program.clone(), Vec::new()));
        };
        let header: JournalHeader = serde_json::from_slice(first).map_err(|_| damaged(1))?;
        if header.workflow != FORMAT || header.definition != definition {
            return Err(WorkflowJournalError::OtherWorkflow(folder.to_owned()));
        }
        let parse = |(index, line): (usize, &&[u8])| {
            serde_json::from_slice(line).map_err(|_| damaged(index + 2))
        };
        let events = events.iter().enumerate().map(parse).collect::<Result<_>>()?;
        Ok((journal, header.program, events))
    }

    /// Appends an event. With full durability, the event is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn append(&mut self, event: StepEvent, detail: &EventDetail) -> Result<()> {
        let at = WallTime::from(SystemTime::now()).unix_micros();
        self.append_line(&StoredEvent { at, event, detail: detail.clone() })
    }

    fn append_line(&mut self, line: &impl Serialize) -> Result<()> {
        let write = || {
            let mut bytes = serde_json::to_vec(line)?;
            let crc = seal(&mut bytes, self.crc);
            (&self.file).write_all(&bytes)?;
            if self.durability == Durability::Full {
                self.file.sync_data()?;
            }
            io::Result::Ok(crc)
        };
        self.crc = write().io_context("write to", &self.path)?;
        Ok(())
    }
}

/// Timeout for the lock, which a child process may still hold for a moment.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The valid lines before the first incomplete one.
struct ValidLines<'a> {
    lines: Vec<&'a [u8]>,
    /// Their length in bytes, and the checksum that the next line continues.
    length: usize,
    crc: u32,
}

fn valid_lines<'a>(bytes: &'a [u8], path: &Path) -> Result<ValidLines<'a>> {
    let mut valid = ValidLines { lines: Vec::new(), length: 0, crc: 0 };
    while let Some(end) = memchr::memchr(b'\n', &bytes[valid.length..]) {
        let line = &bytes[valid.length..valid.length + end];
        let next = valid.length + end + 1;
        match verify_seal(line, valid.crc) {
            Ok(crc) => valid.crc = crc,
            // The last line of the file is incomplete.
            Err(_) if next == bytes.len() => break,
            Err(_) => {
                let (path, line) = (path.to_owned(), valid.lines.len() + 1);
                return Err(WorkflowJournalError::Damaged { path, line });
            }
        }
        valid.lines.push(line);
        valid.length = next;
    }
    Ok(valid)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::machine::StepNeed;
    use super::*;

    fn open(folder: &Path) -> Result<(WorkflowJournal, Vec<StoredEvent>)> {
        let program = Program { steps: Vec::new() };
        let opened = WorkflowJournal::open(folder, "d", &program, Durability::Os);
        opened.map(|(journal, _, events)| (journal, events))
    }

    #[test]
    fn a_journal_has_what_was_written_completely() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, events) = open(folder.path()).unwrap();
        assert!(events.is_empty());
        journal.append(StepEvent::Undone, &EventDetail::default()).unwrap();
        journal.append(StepEvent::Decided(StepNeed::Iterations), &EventDetail::default()).unwrap();
        assert!(matches!(open(folder.path()), Err(WorkflowJournalError::Busy(_))));
        drop(journal);
        let path = folder.path().join(FILE_NAME);
        let whole = fs::read(&path).unwrap();
        let first_event = memchr::memchr(b'\n', &whole).unwrap() + 1;
        for length in first_event..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, events) = open(folder.path()).unwrap();
            let complete = memchr::memchr_iter(b'\n', &whole[first_event..length]).count();
            assert_eq!(events.len(), complete, "{length} bytes");
            journal.append(StepEvent::Undone, &EventDetail::default()).unwrap();
            drop(journal);
            assert_eq!(open(folder.path()).unwrap().1.len(), complete + 1);
        }
        let mut damaged = whole.clone();
        damaged[first_event + 3] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(matches!(open(folder.path()), Err(WorkflowJournalError::Damaged { line: 2, .. })));
    }

    #[test]
    fn a_folder_has_one_workflow() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path()).unwrap());
        let program = Program { steps: Vec::new() };
        let other = WorkflowJournal::open(folder.path(), "other", &program, Durability::Os);
        assert!(matches!(other, Err(WorkflowJournalError::OtherWorkflow(_))));
    }
}
