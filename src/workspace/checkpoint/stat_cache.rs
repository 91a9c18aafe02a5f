//! A cache of the status of a workspace's files between runs: a file that looks unchanged is not read again.

#![allow(clippy::cast_possible_truncation)] // of lengths that are short, or checked

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content_store::ContentStore;
use super::scan::{
    EntryState, FileStat, FolderState, NodeState, ScanOptions, ScanTotals, WorkspaceScanner,
};
use super::tree::{RecordReader, write_skipped, write_text};
use crate::types::{Durability, Sha256Digest};
use crate::workspace::{create_private_folder, replace_file};

/// The cache of one workspace, recorded with these options.
#[derive(Clone, Debug)]
pub struct StatCache {
    path: PathBuf,
}

/// The minimum size of another session's content file that is shared. It must also be at least half in use.
const MIN_SHARED_BYTES: u64 = 64 << 10;

/// The maximum number of content files that a session shares.
const MAX_SHARED_FILES: usize = 8;

/// The maximum size of a cache that is read, in bytes.
const MAX_CACHE_BYTES: u64 = 1 << 30;

const MARK: &[u8; 8] = b"archsta1";

impl StatCache {
    /// Creates the cache of a workspace in this folder.
    pub fn new(folder: &Path, workspace: &Path, options: &ScanOptions) -> Self {
        let mut key = workspace.as_os_str().as_bytes().to_vec();
        key.extend_from_slice(format!("{options:?}").as_bytes());
        let name = format!("files-{:.32}.cache", Sha256Digest::of(&key).to_string());
        Self { path: folder.join(name) }
    }

    /// Loads the stored state into a scanner, and shares the contents of the session that stored it.
    ///
    /// Without a cache, or with a damaged one, everything is read again.
    pub fn load(&self, scanner: &mut WorkspaceScanner, store: &mut ContentStore) {
        let Some((folder, lengths, state)) = self.read() else { return };
        if folder != store.folder() {
            share_contents(&folder, &lengths, &state, store);
        }
        scanner.set_state(state);
    }

    /// Stores the state of a scanner. All of `lengths` must be committed.
    pub fn save(
        &self,
        scanner: &WorkspaceScanner,
        store: &ContentStore,
        lengths: &BTreeMap<Arc<str>, u64>,
    ) {
        let Some(state) = scanner.state() else { return };
        if let Err(error) = self.write(store.folder(), lengths, state) {
            log::debug!("{} is not stored: {error}", self.path.display());
        }
    }

    fn read(&self) -> Option<(PathBuf, BTreeMap<Arc<str>, u64>, FolderState)> {
        let mut bytes = Vec::new();
        File::open(&self.path).ok()?.take(MAX_CACHE_BYTES).read_to_end(&mut bytes).ok()?;
        let (content, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Sha256Digest::of(content).0 != *digest {
            return None;
        }
        let mut reader = RecordReader(content.strip_prefix(MARK)?);
        let folder = PathBuf::from(reader.text()?);
        let mut lengths = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let name = reader.text()?.into_string().ok()?;
            lengths.insert(name.into(), reader.u64()?);
        }
        Some((folder, lengths, read_folder(&mut reader)?))
    }

    fn write(
        &self,
        folder: &Path,
        lengths: &BTreeMap<Arc<str>, u64>,
        state: &FolderState,
    ) -> io::Result<()> {
        let mut out = MARK.to_vec();
        write_text(&mut out, folder.as_os_str().as_bytes());
        out.extend_from_slice(&(lengths.len() as u32).to_le_bytes());
        for (name, length) in lengths {
            write_text(&mut out, name.as_bytes());
            out.extend_from_slice(&length.to_le_bytes());
        }
        write_folder(&mut out, state);
        let digest = Sha256Digest::of(&out);
        out.extend_from_slice(&digest.0);
        let parent = self.path.parent().unwrap_or(Path::new("."));
        create_private_folder(parent)?;
        replace_file(&self.path, &out, Durability::Os)
    }
}

/// Shares the content files that are mostly in use. The contents of the others are read from the workspace again.
fn share_contents(
    folder: &Path,
    lengths: &BTreeMap<Arc<str>, u64>,
    state: &FolderState,
    store: &mut ContentStore,
) {
    let opened = ContentStore::open(folder.to_owned(), "none", lengths, Durability::Os);
    let Ok(other) = opened else { return };
    let mut used = Vec::new();
    state.contents(&mut |hash| used.push(hash));
    let mut files = other.use_of_files(used.into_iter());
    files.retain(|(_, used, length)| *length >= MIN_SHARED_BYTES && used * 2 >= *length);
    files.sort_unstable_by_key(|(_, used, _)| std::cmp::Reverse(*used));
    for (name, _, length) in files.into_iter().take(MAX_SHARED_FILES) {
        if let Err(error) = store.share(folder, &name, length) {
            log::debug!("the contents of an earlier session are not shared: {error}");
        }
    }
}

fn write_stat(out: &mut Vec<u8>, stat: &FileStat) {
    out.extend_from_slice(&stat.mode.to_le_bytes());
    out.extend_from_slice(&stat.inode.to_le_bytes());
    out.extend_from_slice(&stat.size.to_le_bytes());
    out.extend_from_slice(&stat.modified.to_le_bytes());
    out.extend_from_slice(&stat.changed.to_le_bytes());
    out.push(u8::from(stat.is_racy));
}

fn write_folder(out: &mut Vec<u8>, folder: &FolderState) {
    out.extend_from_slice(&folder.mode.to_le_bytes());
    out.extend_from_slice(&folder.tree.0);
    let ScanTotals { files, bytes, left_out } = folder.totals;
    for number in [files, bytes, left_out, folder.entries.len() as u64] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for EntryState { name, node } in &folder.entries {
        write_text(out, name.as_bytes());
        match node {
            NodeState::File { stat, hash } => {
                out.push(1);
                write_stat(out, stat);
                out.extend_from_slice(&hash.0);
            }
            NodeState::Link { stat, target } => {
                out.push(2);
                write_stat(out, stat);
                write_text(out, target.as_bytes());
            }
            NodeState::Folder(folder) => {
                out.push(3);
                write_folder(out, folder);
            }
            NodeState::LeftOut(skipped) => {
                out.push(4);
                write_skipped(out, skipped);
            }
        }
    }
}

fn read_stat(reader: &mut RecordReader<'_>) -> Option<FileStat> {
    Some(FileStat {
        mode: reader.u32()?,
        inode: reader.u64()?,
        size: reader.u64()?,
        modified: i64::from_le_bytes(reader.array()?),
        changed: i64::from_le_bytes(reader.array()?),
        is_racy: reader.bytes(1)? != [0],
    })
}

fn read_folder(reader: &mut RecordReader<'_>) -> Option<FolderState> {
    let (mode, tree) = (reader.u32()?, Sha256Digest(reader.array()?));
    let totals = ScanTotals { files: reader.u64()?, bytes: reader.u64()?, left_out: reader.u64()? };
    let mut entries = Vec::new();
    for _ in 0..reader.u64()? {
        let name = reader.text()?;
        let node = match reader.bytes(1)? {
            [1] => {
                NodeState::File { stat: read_stat(reader)?, hash: Sha256Digest(reader.array()?) }
            }
            [2] => NodeState::Link { stat: read_stat(reader)?, target: reader.text()? },
            [3] => NodeState::Folder(Box::new(read_folder(reader)?)),
            [4] => NodeState::LeftOut(reader.skipped()?),
            _ => return None,
        };
        entries.push(EntryState { name, node });
    }
    Some(FolderState { mode, tree, totals, entries })
}
