//! The store of contents by their SHA-256 digests, in a few files beside a session.
//!
//! A content file is only appended to. A batch is the contents of one checkpoint, an index of them, and a footer. It
//! counts once a record in the journal contains its end. Bytes after the last such end, which a killed process has
//! left, are skipped by the next batch and never overwritten, because another session may have shared them. One file
//! and one sync for each checkpoint cost less than a file for each content. Sessions of one workspace share content
//! files by hard links, so that removing a session removes only files that no other session needs.

#![allow(clippy::cast_possible_truncation)] // of lengths that are short, or checked

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{OFlags, statvfs};

use super::error::CheckpointError;
use super::tree::RecordedEntry;
use crate::port::lock;
use crate::types::{Durability, Sha256Digest};
use crate::workspace::{IoContext, create_durable_folder, sync_folder};

/// The contents of a session's checkpoints.
#[derive(Debug)]
pub struct ContentStore {
    folder: PathBuf,
    /// The name of the file that this session appends to.
    own: Arc<str>,
    durability: Durability,
    files: Vec<ContentFile>,
    index: HashMap<Sha256Digest, ContentLocation>,
    batch: Mutex<Batch>,
    /// The folders that were read last, newest first.
    pub(super) recent_folders: Mutex<Vec<RecentFolder>>,
    /// Whether the folder has names that are not durable yet.
    has_new_names: bool,
}

/// A recorded folder, with its entries.
pub(super) type RecentFolder = (Sha256Digest, Arc<[RecordedEntry]>);

/// A content file.
#[derive(Debug)]
struct ContentFile {
    name: Arc<str>,
    file: File,
    /// The end of its last batch.
    length: u64,
}

#[derive(Clone, Copy, Debug)]
struct ContentLocation {
    file: usize,
    offset: u64,
    length: u64,
}

/// The contents that no record contains yet.
#[derive(Debug, Default)]
struct Batch {
    file: Option<File>,
    /// The end of the previous batch.
    previous: u64,
    start: u64,
    /// The number of bytes in the file.
    written: u64,
    /// The bytes that follow those in the file.
    buffer: Vec<u8>,
    entries: Vec<(Sha256Digest, u64, u64)>,
    offsets: HashMap<Sha256Digest, (u64, u64)>,
}

/// The footer of a batch: a mark, the end of the previous batch, and the number of its contents.
const MARK: [u8; 8] = *b"archchk1";
const FOOTER_BYTES: u64 = 24;
const ENTRY_BYTES: u64 = 48;

/// The number of bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// The maximum length of a content, in bytes. A longer one is damage.
const MAX_CONTENT_BYTES: u64 = 1 << 40;

fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl ContentStore {
    /// Opens the store in this folder, which is created with the first content.
    ///
    /// `lengths` are the content files in the newest record, with their lengths. Bytes after these lengths don't count.
    ///
    /// # Errors
    ///
    /// Fails if a file is missing, too short, or damaged.
    pub fn open(
        folder: PathBuf,
        own: &str,
        lengths: &BTreeMap<Arc<str>, u64>,
        durability: Durability,
    ) -> Result<Self, CheckpointError> {
        let (files, index, batch, recent_folders) = Default::default();
        let own = own.into();
        let mut store = Self {
            folder,
            own,
            durability,
            files,
            index,
            batch,
            recent_folders,
            has_new_names: false,
        };
        for (name, length) in lengths {
            store.add_file(name, *length)?;
        }
        Ok(store)
    }

    /// Returns the path of a content file. Its name must not lead out of the folder.
    fn path(&self, name: &str) -> Result<PathBuf, CheckpointError> {
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b == b'-' || b.is_ascii_alphanumeric());
        match is_name {
            true => Ok(self.folder.join(name)),
            false => Err(CheckpointError::damaged("the name of a file of contents is invalid")),
        }
    }

    /// Opens a content file, and reads its index from the end, batch by batch.
    fn add_file(&mut self, name: &Arc<str>, length: u64) -> Result<(), CheckpointError> {
        let path = self.path(name)?;
        let mut options = OpenOptions::new();
        let file =
            options.read(true).custom_flags(flags()).open(&path).io_context("open", &path)?;
        let damaged = || CheckpointError::damaged(format!("{} is damaged", path.display()));
        let position = self.files.len();
        let mut end = length;
        while end > 0 {
            let mut footer = [0; FOOTER_BYTES as usize];
            let at = end.checked_sub(FOOTER_BYTES).ok_or_else(damaged)?;
            file.read_exact_at(&mut footer, at).io_context("read", &path)?;
            let (previous, count) = (number(&footer[8..16]), number(&footer[16..]));
            let bytes = count.checked_mul(ENTRY_BYTES).ok_or_else(damaged)?;
            let entries_at = at.checked_sub(bytes).ok_or_else(damaged)?;
            if footer[..8] != MARK || previous > entries_at {
                return Err(damaged());
            }
            let mut entries = vec![0; usize::try_from(bytes).map_err(|_| damaged())?];
            file.read_exact_at(&mut entries, entries_at).io_context("read", &path)?;
            for entry in entries.chunks_exact(ENTRY_BYTES as usize) {
                let hash = Sha256Digest(entry[..32].try_into().map_err(|_| damaged())?);
                let (offset, length) = (number(&entry[32..40]), number(&entry[40..]));
                if length > MAX_CONTENT_BYTES || offset.saturating_add(length) > entries_at {
                    return Err(damaged());
                }
                let location = ContentLocation { file: position, offset, length };
                self.index.entry(hash).or_insert(location);
            }
            end = previous;
        }
        self.files.push(ContentFile { name: Arc::clone(name), file, length });
        Ok(())
    }

    /// Shares a content file of another session, up to a length that its journal contains.
    ///
    /// # Errors
    ///
    /// Fails if it is missing, or on another file system.
    pub fn share(
        &mut self,
        from: &Path,
        name: &Arc<str>,
        length: u64,
    ) -> Result<(), CheckpointError> {
        if self.files.iter().any(|file| file.name == *name) || *name == self.own {
            return Ok(());
        }
        create_durable_folder(&self.folder, self.durability)?;
        let (source, path) = (from.join(&**name), self.path(name)?);
        match fs::hard_link(&source, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).io_context("link", &source)?;
            }
            _ => {}
        }
        self.has_new_names = true;
        self.add_file(name, length)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether a content is stored.
    pub fn contains(&self, hash: &Sha256Digest) -> bool {
        self.index.contains_key(hash) || self.batch().offsets.contains_key(hash)
    }

    /// Returns the length of a committed content.
    pub(super) fn length_of(&self, hash: &Sha256Digest) -> Option<u64> {
        self.index.get(hash).map(|location| location.length)
    }

    /// Returns the number of bytes that these contents take in each content file.
    pub(super) fn use_of_files(
        &self,
        used: impl Iterator<Item = Sha256Digest>,
    ) -> Vec<(Arc<str>, u64, u64)> {
        let mut bytes = vec![0; self.files.len()];
        for location in used.filter_map(|hash| self.index.get(&hash)) {
            bytes[location.file] += location.length;
        }
        let files = self.files.iter().zip(bytes);
        files.map(|(file, used)| (Arc::clone(&file.name), used, file.length)).collect()
    }

    /// Returns the total bytes of all contents.
    pub fn total_bytes(&self) -> u64 {
        let batch = self.batch();
        let stored: u64 = self.files.iter().map(|file| file.length).sum();
        stored + batch.written.saturating_sub(batch.start) + batch.buffer.len() as u64
    }

    /// Returns the free bytes for contents; `u64::MAX` if unknown.
    pub(super) fn free_bytes(&self) -> u64 {
        let found = self.folder.ancestors().find_map(|folder| statvfs(folder).ok());
        found.map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Returns a content, after verifying it.
    ///
    /// # Errors
    ///
    /// Fails if it is missing or damaged.
    pub fn get(&self, hash: &Sha256Digest) -> Result<Vec<u8>, CheckpointError> {
        let content = match self.index.get(hash) {
            Some(location) => self.read(*location)?,
            None => self.read_pending(hash)?,
        };
        match Sha256Digest::of(&content) == *hash {
            true => Ok(content),
            false => Err(CheckpointError::damaged(format!("the content {hash} is damaged"))),
        }
    }

    fn read(&self, location: ContentLocation) -> Result<Vec<u8>, CheckpointError> {
        let ContentLocation { file, offset, length } = location;
        let file = &self.files[file];
        let path = self.folder.join(&*file.name);
        let too_long = |_| CheckpointError::damaged("a content is longer than the memory");
        let mut content = vec![0; usize::try_from(length).map_err(too_long)?];
        file.file.read_exact_at(&mut content, offset).io_context("read", &path)?;
        Ok(content)
    }

    /// Returns a content of the current batch.
    fn read_pending(&self, hash: &Sha256Digest) -> Result<Vec<u8>, CheckpointError> {
        let missing = || CheckpointError::damaged(format!("the content {hash} is missing"));
        let batch = self.batch();
        let (offset, length) = *batch.offsets.get(hash).ok_or_else(missing)?;
        let length = usize::try_from(length).map_err(|_| missing())?;
        if let Some(start) = offset.checked_sub(batch.written) {
            let start = usize::try_from(start).map_err(|_| missing())?;
            let content = batch.buffer.get(start..start + length).ok_or_else(missing)?;
            return Ok(content.to_vec());
        }
        let mut content = vec![0; length];
        let file = batch.file.as_ref().ok_or_else(missing)?;
        file.read_exact_at(&mut content, offset).io_context("read", &self.folder)?;
        Ok(content)
    }

    /// Stores a content, which counts once it is committed.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error. The batch then doesn't count.
    pub fn put(&self, hash: Sha256Digest, content: &[u8]) -> Result<(), CheckpointError> {
        if self.index.contains_key(&hash) {
            return Ok(());
        }
        let mut batch = self.batch();
        if batch.offsets.contains_key(&hash) {
            return Ok(());
        }
        if batch.file.is_none() {
            self.begin_batch(&mut batch)?;
        }
        let (offset, length) = (batch.written + batch.buffer.len() as u64, content.len() as u64);
        batch.entries.push((hash, offset, length));
        batch.offsets.insert(hash, (offset, length));
        batch.buffer.extend_from_slice(content);
        if batch.buffer.len() >= BUFFER_BYTES { self.flush(&mut batch) } else { Ok(()) }
    }

    fn begin_batch(&self, batch: &mut Batch) -> Result<(), CheckpointError> {
        create_durable_folder(&self.folder, self.durability)?;
        let path = self.path(&self.own)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(flags()).open(&path).io_context("open", &path)?;
        let own = self.files.iter().find(|file| file.name == self.own);
        let previous = own.map_or(0, |file| file.length);
        let start = file.metadata().io_context("inspect", &path)?.len().max(previous);
        *batch = Batch { file: Some(file), previous, start, written: start, ..Batch::default() };
        Ok(())
    }

    fn flush(&self, batch: &mut Batch) -> Result<(), CheckpointError> {
        let Batch { file: Some(file), written, buffer, .. } = batch else { return Ok(()) };
        file.write_all_at(buffer, *written).io_context("write", &self.folder)?;
        *written += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Makes the contents since the last commit durable, and returns the lengths of all content files.
    ///
    /// # Errors
    ///
    /// Fails on an I/O error. None of these contents counts then, and they can be abandoned.
    pub fn commit(&mut self) -> Result<BTreeMap<Arc<str>, u64>, CheckpointError> {
        let mut batch = std::mem::take(&mut *self.batch());
        if !batch.entries.is_empty() {
            for (hash, offset, length) in &batch.entries {
                batch.buffer.extend_from_slice(&hash.0);
                batch.buffer.extend_from_slice(&offset.to_le_bytes());
                batch.buffer.extend_from_slice(&length.to_le_bytes());
            }
            batch.buffer.extend_from_slice(&MARK);
            batch.buffer.extend_from_slice(&batch.previous.to_le_bytes());
            batch.buffer.extend_from_slice(&(batch.entries.len() as u64).to_le_bytes());
            let written = self.flush(&mut batch).and_then(|()| self.finish_batch(&mut batch));
            written.inspect_err(|_| *self.batch() = batch)?;
        }
        if std::mem::take(&mut self.has_new_names) {
            sync_folder(&self.folder, self.durability)?;
        }
        Ok(self.files.iter().map(|file| (Arc::clone(&file.name), file.length)).collect())
    }

    fn finish_batch(&mut self, batch: &mut Batch) -> Result<(), CheckpointError> {
        if let (Durability::Full, Some(file)) = (self.durability, &batch.file) {
            file.sync_data().io_context("make durable", &self.folder)?;
        }
        let Batch { file: Some(file), start, written, entries, .. } = std::mem::take(batch) else {
            return Ok(());
        };
        self.has_new_names |= start == 0;
        let position = self.files.iter().position(|file| file.name == self.own);
        let position = position.unwrap_or(self.files.len());
        if position == self.files.len() {
            self.files.push(ContentFile { name: Arc::clone(&self.own), file, length: written });
        } else {
            self.files[position].length = written;
        }
        for (hash, offset, length) in entries {
            self.index.insert(hash, ContentLocation { file: position, offset, length });
        }
        Ok(())
    }

    /// Removes the contents since the last commit.
    pub fn abandon(&self) {
        let Batch { file, start, .. } = std::mem::take(&mut *self.batch());
        // No other session has shared these contents yet. If they stay, they are skipped.
        let _ = file.map(|file| file.set_len(start));
    }

    /// Removes the file that this store appends to, if no record refers to it.
    pub fn remove_own(&self) {
        self.abandon();
        let _ = self.path(&self.own).map(fs::remove_file);
    }

    fn batch(&self) -> MutexGuard<'_, Batch> {
        lock(&self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, lengths: &BTreeMap<Arc<str>, u64>) -> ContentStore {
        ContentStore::open(folder.join("checkpoints"), "own", lengths, Durability::Full).unwrap()
    }

    fn put(store: &ContentStore, content: &[u8]) -> Sha256Digest {
        let hash = Sha256Digest::of(content);
        store.put(hash, content).unwrap();
        hash
    }

    #[test]
    fn a_content_is_kept_once_and_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open(temp.path(), &BTreeMap::new());
        let (a, b) = (put(&store, b"one"), put(&store, &vec![7; 3 << 20]));
        assert_eq!(store.get(&a).unwrap(), b"one");
        let lengths = store.commit().unwrap();
        put(&store, b"one");
        assert_eq!(store.commit().unwrap(), lengths);
        let c = put(&store, b"");
        let lengths = store.commit().unwrap();
        let store = open(temp.path(), &lengths);
        assert_eq!(store.get(&a).unwrap(), b"one");
        assert_eq!(store.get(&b).unwrap().len(), 3 << 20);
        assert_eq!(store.get(&c).unwrap(), b"");
        assert!(store.get(&Sha256Digest::of(b"two")).is_err());
    }

    /// A killed process leaves a batch that no record contains.
    #[test]
    fn what_no_record_contains_is_skipped() {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open(temp.path(), &BTreeMap::new());
        let a = put(&store, b"one");
        let lengths = store.commit().unwrap();
        put(&store, b"lost");
        store.commit().unwrap();
        let mut store = open(temp.path(), &lengths);
        assert!(!store.contains(&Sha256Digest::of(b"lost")));
        let b = put(&store, b"next");
        let lengths = store.commit().unwrap();
        let store = open(temp.path(), &lengths);
        assert_eq!(
            (store.get(&a).unwrap(), store.get(&b).unwrap()),
            (b"one".into(), b"next".into())
        );
    }

    #[test]
    fn a_damaged_content_is_not_returned() {
        let temp = tempfile::tempdir().unwrap();
        let mut store = open(temp.path(), &BTreeMap::new());
        let a = put(&store, b"one");
        let lengths = store.commit().unwrap();
        let path = temp.path().join("checkpoints/own");
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(open(temp.path(), &lengths).get(&a).is_err());
        fs::write(&path, &bytes[..20]).unwrap();
        let folder = temp.path().join("checkpoints");
        assert!(ContentStore::open(folder, "own", &lengths, Durability::Os).is_err());
    }

    #[test]
    fn a_shared_file_survives_the_session_that_wrote_it() {
        let temp = tempfile::tempdir().unwrap();
        let mut first = open(temp.path(), &BTreeMap::new());
        let a = put(&first, b"one");
        let lengths = first.commit().unwrap();
        let folder = temp.path().join("other");
        let mut second =
            ContentStore::open(folder, "other", &BTreeMap::new(), Durability::Os).unwrap();
        second.share(first.folder(), &"own".into(), lengths["own"]).unwrap();
        fs::remove_dir_all(temp.path().join("checkpoints")).unwrap();
        assert_eq!(second.get(&a).unwrap(), b"one");
        let b = put(&second, b"two");
        let lengths = second.commit().unwrap();
        assert_eq!(lengths.keys().map(|name| &**name).collect::<Vec<_>>(), ["other", "own"]);
        assert_eq!(second.get(&b).unwrap(), b"two");
    }
}
