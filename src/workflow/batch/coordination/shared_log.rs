//! The log of a batch: one line of JSON per record. The checksum of each continues the previous one, as in a journal.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Dev, OFlags, fstat, major, minor};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::{CoordinationError, Result};
use super::protocol::{CellId, CoordinationRecord, SharedState, SharedTime, apply};
use crate::journal::{seal, verify_seal};
use crate::types::TimeSpan;
use crate::workflow::batch::folder::LOG_FILE;
use crate::workspace::{IoContext, IoError, lock_within};

/// Timeout for the lock. A process holds it for some milliseconds, unless it is suspended meanwhile.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The list of mounted file systems, with their options.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Options of network file systems whose locks only exclude processes of the same machine.
const LOCAL_LOCKS: [&str; 4] = ["nolock", "local_lock=flock", "local_lock=all", "localflock"];

/// Number of bytes read at once.
const READ_BYTES: u64 = 64 << 10;

/// The log, and the state after the records read so far.
#[derive(Debug)]
pub(super) struct SharedLog {
    path: PathBuf,
    file: File,
    /// The number of bytes read, and the checksum that the next record continues.
    offset: u64,
    crc: u32,
    /// The state after the records read so far.
    pub(super) state: SharedState,
    /// The lead of the clocks of other machines over this one.
    clock_lead: TimeSpan,
    /// The time of the newest record.
    newest: SharedTime,
}

/// A record with its time.
#[derive(Serialize, Deserialize)]
struct LogLine<R> {
    at: SharedTime,
    record: R,
}

/// The end of the log after its valid records.
enum LogTail {
    /// No further bytes.
    Nothing,
    /// A record that was not written completely.
    Incomplete,
    /// A damaged record, followed by others.
    Damaged,
}

impl SharedLog {
    /// Opens the log in a folder, or creates it, for a process with these cells.
    pub(super) fn open(dir: &Path, cells: &[CellId]) -> Result<Self> {
        let path = dir.join(LOG_FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // If this were a link, the creator of the folder would choose the file.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(&path).io_context("open", &path)?;
        Ok(Self {
            path,
            file,
            offset: 0,
            crc: 0,
            state: SharedState::new(cells),
            clock_lead: TimeSpan::ZERO,
            newest: SharedTime::default(),
        })
    }

    /// Returns whether file locks exclude other open files, on this machine and on others.
    ///
    /// # Errors
    ///
    /// Fails if the file system refuses locks.
    pub(super) fn has_working_locks(&self) -> Result<bool> {
        let other = File::open(&self.path).io_context("open", &self.path)?;
        self.lock()?;
        let second = other.try_lock();
        let _ = other.unlock();
        self.unlock();
        let found = fstat(&self.file).map_err(io::Error::from);
        let device = found.io_context("inspect", &self.path)?.st_dev;
        let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
        match second {
            Err(TryLockError::WouldBlock) => Ok(!are_locks_local(&mounts, device)),
            Ok(()) => Ok(false),
            Err(TryLockError::Error(error)) => Err(self.lock_error(error)),
        }
    }

    /// Reads the new records, appends the records that `decide` returns for the state and the time, and reads those,
    /// too.
    ///
    /// The lock is held throughout, so no other process reads or writes in between. The outer error is an error of the
    /// log, the inner one is the error of `decide`.
    pub(super) fn transact<E>(
        &mut self,
        now: impl Fn() -> SharedTime,
        sync: bool,
        decide: impl FnOnce(&SharedState, SharedTime) -> Result<Vec<CoordinationRecord>, E>,
    ) -> Result<Result<Vec<CoordinationRecord>, E>> {
        self.lock()?;
        let result = self.transact_locked(now, sync, decide);
        self.unlock();
        result
    }

    fn transact_locked<E>(
        &mut self,
        now: impl Fn() -> SharedTime,
        sync: bool,
        decide: impl FnOnce(&SharedState, SharedTime) -> Result<Vec<CoordinationRecord>, E>,
    ) -> Result<Result<Vec<CoordinationRecord>, E>> {
        self.check_is_linked()?;
        self.read_new(now())?;
        let now = self.shared_time(now());
        let records = match decide(&self.state, now) {
            Ok(records) => records,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (mut buffer, mut crc) = (Vec::new(), self.crc);
        for record in &records {
            let mut line = Vec::new();
            serde_json::to_writer(&mut line, &LogLine { at: now, record })
                .io_context("write to", &self.path)?;
            crc = seal(&mut line, crc);
            buffer.append(&mut line);
        }
        if let Err(error) = self.file.write_all_at(&buffer, self.offset) {
            // If this fails, the next process that writes drops the incomplete record.
            let _ = self.file.set_len(self.offset);
            Err(error).io_context("write to", &self.path)?;
        }
        if sync {
            self.file.sync_data().io_context("make durable", &self.path)?;
        }
        self.read_new(now)?;
        Ok(Ok(records))
    }

    /// Reads the new records without the lock. A record that another process is writing is read next time.
    pub(super) fn refresh(&mut self, now: SharedTime) -> Result<()> {
        self.read_records(now).map(|_| ())
    }

    /// Returns the time to compare with the ends of leases: this machine's, or that of a machine whose clock is ahead.
    pub(super) fn shared_time(&self, now: SharedTime) -> SharedTime {
        now.after(self.clock_lead).max(self.newest)
    }

    /// Reads the new records under the lock, and drops an incomplete one.
    fn read_new(&mut self, now: SharedTime) -> Result<()> {
        match self.read_records(now)? {
            LogTail::Nothing => Ok(()),
            LogTail::Incomplete => {
                Ok(self.file.set_len(self.offset).io_context("truncate", &self.path)?)
            }
            LogTail::Damaged => {
                Err(CoordinationError::Damaged { path: self.path.clone(), offset: self.offset })
            }
        }
    }

    /// Reads records up to the first invalid one, or to the end.
    fn read_records(&mut self, now: SharedTime) -> Result<LogTail> {
        let end = self.file.metadata().io_context("inspect", &self.path)?.len();
        let mut unread = Vec::new();
        loop {
            let from = self.offset + unread.len() as u64;
            let Some(size @ 1..) = end.checked_sub(from).map(|left| left.min(READ_BYTES)) else {
                return Ok(if unread.is_empty() { LogTail::Nothing } else { LogTail::Incomplete });
            };
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            let read = self.file.read_at(&mut bytes, from).io_context("read", &self.path)?;
            if read == 0 {
                // Without the lock, another process may have dropped the incomplete record meanwhile.
                return Ok(LogTail::Incomplete);
            }
            unread.extend_from_slice(&bytes[..read]);
            let mut done = 0;
            while let Some(length) = memchr::memchr(b'\n', &unread[done..]) {
                let line = &unread[done..done + length];
                let Ok(crc) = verify_seal(line, self.crc) else {
                    let is_last = self.offset + length as u64 + 1 == end;
                    return Ok(if is_last { LogTail::Incomplete } else { LogTail::Damaged });
                };
                let LogLine { at, record } =
                    serde_json::from_slice::<LogLine<CoordinationRecord>>(line)
                        .io_context("understand a record of", &self.path)?;
                apply(&mut self.state, &record);
                self.clock_lead = self.clock_lead.max(at.since(now));
                self.newest = self.newest.max(at);
                self.crc = crc;
                self.offset += length as u64 + 1;
                done += length + 1;
            }
            unread.drain(..done);
        }
    }

    /// Fails if the log was deleted, since other processes wouldn't see new records in a deleted file.
    fn check_is_linked(&self) -> Result<()> {
        let links = self.file.metadata().io_context("inspect", &self.path)?.nlink();
        if links == 0 {
            let gone = io::Error::new(io::ErrorKind::NotFound, "it was deleted");
            Err(gone).io_context("write to", &self.path)?;
        }
        Ok(())
    }

    fn lock(&self) -> Result<()> {
        match lock_within(&self.file, LOCK_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(CoordinationError::Locked(self.path.clone())),
            Err(error) => Err(self.lock_error(error)),
        }
    }

    fn lock_error(&self, error: io::Error) -> CoordinationError {
        match has_no_locks(&error) {
            true => CoordinationError::NoLocks(self.path.clone()),
            false => IoError { operation: "lock", path: self.path.clone(), source: error }.into(),
        }
    }

    /// Releases the lock. Closing the file is not enough: a child that another thread has forked shares it until
    /// `exec`.
    fn unlock(&self) {
        let _ = self.file.unlock();
    }
}

/// Returns whether an error means that the file system has no locks.
fn has_no_locks(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

/// Returns whether the file system with this device number is a network file system with locks local to this machine.
fn are_locks_local(mounts: &str, device: Dev) -> bool {
    let number = format!("{}:{}", major(device), minor(device));
    // ID PARENT MAJOR:MINOR ROOT FOLDER OPTIONS … - TYPE SOURCE OPTIONS
    mounts.lines().filter_map(|line| line.split_once(" - ")).any(|(before, after)| {
        let options = after.rsplit(' ').next().unwrap_or_default();
        before.split(' ').nth(2) == Some(&number)
            && options.split(',').any(|option| LOCAL_LOCKS.contains(&option))
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    #[test]
    fn a_network_file_system_may_keep_its_locks_to_the_machine() {
        let mounts = "36 25 0:33 / /home rw,relatime shared:1 - nfs4 host:/home rw,vers=4.2,local_lock=none\n\
            37 25 0:34 / /old rw - nfs host:/old rw,vers=3,nolock,addr=10.0.0.1\n\
            38 25 0:35 / /scratch rw - lustre host@tcp:/scratch rw,localflock\n\
            39 25 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let local = |major, minor| are_locks_local(mounts, makedev(major, minor));
        assert_eq!(
            [(0, 33), (0, 34), (0, 35), (8, 1)].map(|(a, b)| local(a, b)),
            [false, true, true, false]
        );
        for (errno, expected) in [
            (Errno::NOLCK, true),
            (Errno::OPNOTSUPP, true),
            (Errno::NOSYS, true),
            (Errno::IO, false),
        ] {
            assert_eq!(has_no_locks(&errno.into()), expected, "{errno:?}");
        }
    }
}
