//! The log of a restore that has begun, with which the next command completes the restore of a killed process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::CheckpointError;
use super::scan::ScanOptions;
use crate::port::unique_id;
use crate::types::{Durability, Sha256Digest};
use crate::workspace::open_folder::remove_unneeded;
use crate::workspace::{IoContext, TemporaryFile, create_durable_folder, lock_within, sync_folder};

/// The log of the restores of one workspace. While it is open, no other process restores files there.
#[derive(Debug)]
pub struct RestoreLog {
    path: PathBuf,
    durability: Durability,
    _lock: File,
}

/// A restore that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRestore {
    /// The session.
    pub session: String,
    /// The workspace.
    pub workspace: PathBuf,
    /// The tree before the restore, in hexadecimal.
    pub from: Arc<str>,
    /// The tree after the restore, in hexadecimal.
    pub to: Arc<str>,
    /// The record whose state is restored.
    pub target: Option<u64>,
    /// The step for the record of the restore.
    pub step: u32,
    /// The content files, with their lengths.
    pub contents: BTreeMap<Arc<str>, u64>,
    /// The options with which the workspace is recorded.
    pub options: ScanOptions,
    /// The name of the folder for new contents.
    pub staging: String,
}

/// The prefix of the names of folders for new contents.
pub(super) const STAGING_PREFIX: &str = ".architect-undo-";

impl PendingRestore {
    /// Returns a unique name for a folder of new contents.
    pub fn staging_name() -> String {
        format!("{STAGING_PREFIX}{}", unique_id())
    }
}

impl RestoreLog {
    /// Returns whether a restore of this workspace has begun. Fast: one look-up of one file.
    pub fn is_pending(folder: &Path, workspace: &Path) -> bool {
        fs::symlink_metadata(log_path(folder, workspace)).is_ok()
    }

    /// Opens the log of a workspace in this folder; `None` if another process has it open.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn open(
        folder: &Path,
        workspace: &Path,
        durability: Durability,
    ) -> Result<Option<Self>, CheckpointError> {
        create_durable_folder(folder, durability)?;
        let path = log_path(folder, workspace);
        let lock_path = path.with_extension("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&lock_path).io_context("open", &lock_path)?;
        let is_free = lock_within(&lock, Duration::ZERO).io_context("lock", &lock_path)?;
        Ok(is_free.then_some(Self { path, durability, _lock: lock }))
    }

    /// Returns the durability of a written restore.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the restore that a killed process has left, if any.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error, or if the log is damaged.
    pub fn pending(&self) -> Result<Option<PendingRestore>, CheckpointError> {
        let mut text = String::new();
        match File::open(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened
                .and_then(|mut file| file.read_to_string(&mut text))
                .io_context("read", &self.path)?,
        };
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|error| {
            CheckpointError::damaged(format!("{} is damaged: {error}", self.path.display()))
        })
    }

    /// Writes the beginning of a restore. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error. Nothing is then written.
    pub fn begin(&self, restore: &PendingRestore) -> Result<(), CheckpointError> {
        let temporary = self.path.with_extension("new");
        // A killed process may have left the file.
        let _ = fs::remove_file(&temporary);
        let write = || {
            let new = TemporaryFile::create(temporary, 0o600)?;
            new.file().write_all(&serde_json::to_vec(restore)?)?;
            new.publish(&self.path, self.durability)
        };
        let begun = write().inspect_err(|_| {
            remove_unneeded(self.path.display(), || fs::remove_file(&self.path));
        });
        Ok(begun.io_context("write", &self.path)?)
    }

    /// Writes the completion of the restore.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error.
    pub fn finish(&self) -> Result<(), CheckpointError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Ok(Err(error).io_context("remove", &self.path)?)
            }
            _ => Ok(sync_folder(self.path.parent().unwrap_or(Path::new(".")), self.durability)?),
        }
    }
}

fn log_path(folder: &Path, workspace: &Path) -> PathBuf {
    let hash = Sha256Digest::of(workspace.as_os_str().as_bytes()).to_string();
    folder.join(format!("{hash:.32}.json"))
}
