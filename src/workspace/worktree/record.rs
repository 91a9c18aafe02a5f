//! The record of a worktree: its name, its origin, its phase, and its user.
//!
//! The file is beside the folder of the worktree. Creating it claims the name. The process that creates, uses or
//! removes the worktree holds the lock on it, and so do the git commands that it runs for that. Therefore, an unlocked
//! record belongs to no process, and the next process that finds it finishes its operation.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MANIFEST_EXTENSION, repository};
use crate::types::FileChange;
use crate::workspace::file_lock::lock_within;
use crate::workspace::{IoContext, IoError};

/// The stored data about a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorktreeRecord {
    /// The name.
    pub(super) name: String,
    /// The phase of the worktree.
    pub(super) phase: WorktreePhase,
    /// The workspace from which it was created.
    pub(super) workspace: PathBuf,
    /// The path of the workspace below the top of the repository.
    #[serde(default)]
    pub(super) subfolder: PathBuf,
    /// The session that works in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// The folder of the batch that continues this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<PathBuf>,
    /// The repository; `None` for a copy of a folder without git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repository: Option<RepositoryRecord>,
    /// The digest of its content at its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<String>,
    /// The digest of its content at the last merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) merged: Option<String>,
    /// The changes of the last merge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<FileChange>,
    /// Temporary files in the workspace that merges could not remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) leftovers: Vec<PathBuf>,
}

/// The repository of a worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RepositoryRecord {
    /// The git folder from which the worktree was created.
    pub(super) git_dir: PathBuf,
    /// The folder that all work trees share.
    pub(super) common_dir: PathBuf,
    /// The git folder that belongs to the worktree alone, once it is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own_dir: Option<PathBuf>,
    /// The commit at which the branch began.
    pub(super) base: String,
    /// The commit of the branch when it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tip: Option<String>,
}

/// The phase of a worktree's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorktreePhase {
    /// The worktree is being created. It contains no work yet.
    Creating,
    /// A run uses the worktree, or was killed while using it.
    InUse,
    /// The worktree has changes, and stays until the user removes it.
    Kept,
    /// The worktree is being removed.
    Removing,
    /// Its changes were applied, and the worktree is being removed. The record stays until the session that waits for
    /// it knows the changes.
    Applied,
}

/// A locked record.
#[derive(Debug)]
pub(super) struct LockedRecord {
    path: PathBuf,
    file: File,
}

/// The extension of records.
pub(super) const RECORD_EXTENSION: &str = "json";

/// The time to wait for a locked record.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// The maximum size of a record that is read, in bytes. It lists the changes of a merge.
const MAX_RECORD_BYTES: u64 = 1 << 28;

/// The maximum number of characters of a name.
const MAX_NAME_LENGTH: usize = 64;

/// Returns whether a text is a valid name for a folder, a branch and a record.
pub(super) fn is_name(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.len() <= MAX_NAME_LENGTH
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(fine)
}

/// Returns whether a folder without a record belongs to no worktree: git does not know it, and it is not a copy.
pub(super) fn is_orphan(folder: &Path) -> bool {
    let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let link = folder.join(".git");
    is_folder(folder)
        && !is_folder(&link)
        && repository::named_folder(&link, "gitdir: ").is_none()
        && !folder.with_extension(MANIFEST_EXTENSION).exists()
}

impl LockedRecord {
    /// Claims a name; `None` if it is taken.
    pub(super) fn claim(path: &Path) -> Result<Option<Self>, IoError> {
        loop {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
            let file = match file {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                opened => opened.io_context("create", path)?,
            };
            file.lock().io_context("create", path)?;
            // Another process may have removed the empty file as a leftover.
            if file.metadata().io_context("create", path)?.nlink() > 0 {
                return Ok(Some(Self { path: path.to_owned(), file }));
            }
        }
    }

    /// Locks an existing record; `None` if another process holds the lock.
    pub(super) fn lock(path: &Path) -> Result<Option<Self>, IoError> {
        Self::lock_for(path, Duration::ZERO)
    }

    /// Locks an existing record, after a short wait for processes that only inspect it.
    pub(super) fn lock_patiently(path: &Path) -> Result<Option<Self>, IoError> {
        Self::lock_for(path, LOCK_TIMEOUT)
    }

    fn lock_for(path: &Path, timeout: Duration) -> Result<Option<Self>, IoError> {
        let lock = || {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            match lock_within(&file, timeout)? {
                true if file.metadata()?.nlink() == 0 => Err(io::ErrorKind::NotFound.into()),
                is_locked => {
                    io::Result::Ok(is_locked.then(|| Self { path: path.to_owned(), file }))
                }
            }
        };
        lock().io_context("open", path)
    }

    /// Returns the file, which is locked as long as any process has it open.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Reads the record; `None` if its process was killed before it wrote anything.
    pub(super) fn read(&mut self) -> Result<Option<WorktreeRecord>, IoError> {
        let Self { path, file } = self;
        parse(path, file)
    }

    /// Writes the record in one call, so that a killed process has written either all of it or nothing. If the disk is
    /// too full, the earlier record stays.
    pub(super) fn write(&self, record: &WorktreeRecord) -> Result<(), IoError> {
        let write = || {
            let (mut text, mut old, mut file) =
                (serde_json::to_vec(record)?, Vec::new(), &self.file);
            file.seek(SeekFrom::Start(0))?;
            file.read_to_end(&mut old)?;
            // The rest of a longer record is overwritten with blanks.
            text.resize(text.len().max(old.len()), b' ');
            self.file.write_all_at(&text, 0).inspect_err(|_| {
                let _ = self.file.write_all_at(&old, 0);
                let _ = self.file.set_len(old.len() as u64);
            })
        };
        write().io_context("write", &self.path)
    }

    /// Removes the record, which releases the name.
    pub(super) fn remove(self) -> Result<(), IoError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.io_context("remove", &self.path),
        }
    }
}

/// Reads a record that another process may have locked. Also returns whether a process has.
pub(super) fn peek(path: &Path) -> Result<(Option<WorktreeRecord>, bool), IoError> {
    let mut file = File::open(path).io_context("open", path)?;
    let is_used = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error).io_context("lock", path),
    };
    Ok((parse(path, &mut file)?, is_used))
}

fn parse(path: &Path, file: &mut File) -> Result<Option<WorktreeRecord>, IoError> {
    let mut read = || {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(MAX_RECORD_BYTES).read_to_end(&mut text)?;
        if text.iter().all(u8::is_ascii_whitespace) {
            return io::Result::Ok(None);
        }
        Ok(Some(serde_json::from_slice(&text)?))
    };
    read().io_context("read", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileAction;

    #[test]
    fn names_are_those_that_a_branch_a_folder_and_a_record_can_have() {
        for name in ["a", "fix-1", "A_b", &"x".repeat(64)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a/b", "a.b", "..", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn the_record_of_a_large_merge_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.json");
        let change = |number| FileChange {
            path: format!("{number}/{}", "x".repeat(200)).into(),
            action: FileAction::Created,
            added: 1,
            removed: 0,
        };
        let record = WorktreeRecord {
            name: "w".to_owned(),
            phase: WorktreePhase::Kept,
            workspace: folder.path().to_owned(),
            subfolder: PathBuf::new(),
            session: None,
            batch: None,
            repository: None,
            start: None,
            merged: None,
            changes: (0..10_000).map(change).collect(),
            leftovers: Vec::new(),
        };
        let mut locked = LockedRecord::claim(&path).unwrap().unwrap();
        locked.write(&record).unwrap();
        assert_eq!(locked.read().unwrap().as_ref(), Some(&record));
        assert_eq!(peek(&path).unwrap().0, Some(record));
    }
}
