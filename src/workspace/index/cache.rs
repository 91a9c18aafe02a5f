//! Storage of an index between runs, in the user's cache folder.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{IndexSettings, WorkspaceIndex};
use crate::types::Durability;
use crate::workspace::root::WorkspaceRoot;
use crate::workspace::{create_private_folder, replace_file, sha256};

/// The cache file of one workspace with these settings.
pub(super) struct IndexCache {
    folder: PathBuf,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct StoredIndex {
    /// The time in seconds since 1970.
    #[serde(rename = "made")]
    created_at: u64,
    index: WorkspaceIndex,
}

/// Incremented when the meaning of an index changes.
const FORMAT_VERSION: u8 = 2;

/// The maximum size of a file that is read, in bytes.
const MAX_FILE_SIZE: u64 = 4 << 20;

impl IndexCache {
    /// Returns the cache file, if it has a folder and the settings allow its use.
    pub(super) fn new(root: &WorkspaceRoot, settings: &IndexSettings) -> Option<Self> {
        let mut key = vec![FORMAT_VERSION];
        key.extend_from_slice(root.path().as_os_str().as_bytes());
        key.extend_from_slice(&settings.max_file_size.to_le_bytes());
        for pattern in &settings.exclude {
            key.push(0);
            key.extend_from_slice(pattern.as_bytes());
        }
        let name = format!("index-{}.json", &sha256(&key)[..32]);
        settings.cache.clone().map(|folder| Self { folder, name })
    }

    /// Returns the stored index and its age; `None` if it cannot be read, or is from the future.
    pub(super) fn read(&self) -> Option<(WorkspaceIndex, Duration)> {
        let mut text = String::new();
        let file = File::open(self.folder.join(&self.name)).ok()?;
        file.take(MAX_FILE_SIZE).read_to_string(&mut text).ok()?;
        let StoredIndex { created_at: made, index } = serde_json::from_str(&text).ok()?;
        Some((index, Duration::from_secs(unix_time().checked_sub(made)?)))
    }

    /// Stores an index. If this fails, the next run builds its own.
    pub(super) fn write(&self, index: &WorkspaceIndex) {
        if let Err(error) = self.try_write(index) {
            log::debug!("the index is not stored in {}: {error}", self.folder.display());
        }
    }

    fn try_write(&self, index: &WorkspaceIndex) -> io::Result<()> {
        // If this creates the folder of the state, it is private as well.
        create_private_folder(&self.folder)?;
        let stored = StoredIndex { created_at: unix_time(), index: index.clone() };
        let path = self.folder.join(&self.name);
        replace_file(&path, &serde_json::to_vec(&stored)?, Durability::Os)
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
