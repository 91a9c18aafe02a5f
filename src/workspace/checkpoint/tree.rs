//! Trees: the recorded state of folders. Each folder is a content that refers to its subfolders by their digests, so
//! that a changed file changes only the folders above it.

#![allow(clippy::cast_possible_truncation)] // of lengths that are short, or checked

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::content_store::ContentStore;
use super::error::CheckpointError;
use crate::port::lock;
use crate::types::{Sha256Digest, word_enum};

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedEntry {
    pub(super) name: OsString,
    pub(super) node: RecordedNode,
}

/// The kind of an entry, with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordedNode {
    File { mode: u32, size: u64, hash: Sha256Digest },
    Link { target: OsString },
    Folder { mode: u32, tree: Sha256Digest },
    LeftOut(SkippedEntry),
}

/// The state of one path, without the entries below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    /// A regular file.
    File {
        /// Its permissions.
        mode: u32,
        /// Its size in bytes.
        size: u64,
        /// Its content.
        hash: Sha256Digest,
    },
    /// A symbolic link.
    Link {
        /// The target of the link, as it is written.
        target: OsString,
    },
    /// A folder.
    Folder {
        /// Its permissions.
        mode: u32,
    },
    /// An entry that is not recorded.
    LeftOut(SkippedEntry),
}

/// An existing file or folder that is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedEntry {
    /// The reason.
    pub reason: SkipReason,
    /// The size of a file in bytes.
    pub size: u64,
    /// The modification time of a file, in nanoseconds since 1970.
    pub(super) modified: i64,
}

word_enum! {
    /// The reason why an entry is not recorded.
    pub enum SkipReason {
        /// The data of a version control system.
        Repository = "data of a version control system",
        /// A file of this program.
        Own = "a file of architect",
        /// A path that matches `checkpoints.exclude`.
        Excluded = "excluded by checkpoints.exclude",
        /// A folder of dependencies, caches or build outputs.
        Generated = "a folder of dependencies, caches or build outputs; checkpoints.generated = true records it",
        /// A file larger than `checkpoints.max_file_size`.
        TooLarge = "larger than checkpoints.max_file_size",
        /// The session's contents have reached `checkpoints.max_total`.
        OverTotal = "the session has reached checkpoints.max_total",
        /// An unreadable entry.
        Unreadable = "it can't be read",
        /// A pipe, a socket or a device.
        Special = "a pipe, a socket or a device",
        /// An entry on another file system.
        OtherFileSystem = "on another file system",
        /// A folder that is too many levels down.
        TooDeep = "more than 100 folders down",
        /// The contents would take more than half of the free space.
        LowSpace = "too little space is free for its content",
    }
}

impl SkipReason {
    /// Returns whether such entries are never recorded, regardless of their content.
    pub fn is_rule(self) -> bool {
        match self {
            Self::Repository | Self::Own | Self::Excluded | Self::Generated => true,
            Self::TooLarge
            | Self::OverTotal
            | Self::Unreadable
            | Self::Special
            | Self::OtherFileSystem
            | Self::TooDeep
            | Self::LowSpace => false,
        }
    }
}

impl fmt::Display for SkippedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())
    }
}

/// A path whose state differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path, relative to the workspace.
    pub path: PathBuf,
    /// The state before; `None` if there was no entry.
    pub before: Option<PathState>,
    /// The state after; `None` if there is no entry.
    pub after: Option<PathState>,
}

/// The recorded entries of a folder in one of two trees.
#[derive(PartialEq, Eq)]
enum FolderSide {
    Recorded(Sha256Digest),
    /// The folder and all of its content were not recorded.
    LeftOut(SkippedEntry),
    Nothing,
}

impl FolderSide {
    fn of(node: Option<&RecordedNode>) -> Self {
        match node {
            Some(RecordedNode::Folder { tree, .. }) => Self::Recorded(*tree),
            Some(RecordedNode::LeftOut(skipped)) => Self::LeftOut(*skipped),
            Some(RecordedNode::File { .. } | RecordedNode::Link { .. }) | None => Self::Nothing,
        }
    }
}

/// New states of paths.
pub(super) type TreeEdits = BTreeMap<PathBuf, Option<PathState>>;

impl RecordedNode {
    pub(super) fn state(&self) -> PathState {
        match self {
            Self::File { mode, size, hash } => {
                PathState::File { mode: *mode, size: *size, hash: *hash }
            }
            Self::Link { target } => PathState::Link { target: target.clone() },
            Self::Folder { mode, .. } => PathState::Folder { mode: *mode },
            Self::LeftOut(skipped) => PathState::LeftOut(*skipped),
        }
    }
}

impl PathState {
    /// Returns whether it is a folder.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// Returns whether it is a file or folder of this program.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::LeftOut(it) if it.reason == SkipReason::Own)
    }
}

const FILE: u8 = 1;
const LINK: u8 = 2;
const FOLDER: u8 = 3;
const LEFT_OUT: u8 = 4;

/// Writes a folder. Its entries must be sorted by their names.
pub(super) fn encode<'a>(
    entries: impl Iterator<Item = (&'a OsStr, impl Borrow<RecordedNode>)>,
    out: &mut Vec<u8>,
) {
    for (name, node) in entries {
        match node.borrow() {
            RecordedNode::File { mode, size, hash } => {
                out.push(FILE);
                out.extend_from_slice(&mode.to_le_bytes());
                out.extend_from_slice(&size.to_le_bytes());
                out.extend_from_slice(&hash.0);
            }
            RecordedNode::Link { target } => {
                out.push(LINK);
                write_text(out, target.as_bytes());
            }
            RecordedNode::Folder { mode, tree } => {
                out.push(FOLDER);
                out.extend_from_slice(&mode.to_le_bytes());
                out.extend_from_slice(&tree.0);
            }
            RecordedNode::LeftOut(skipped) => {
                out.push(LEFT_OUT);
                write_skipped(out, skipped);
            }
        }
        write_text(out, name.as_bytes());
    }
}

pub(super) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

pub(super) fn write_skipped(out: &mut Vec<u8>, skipped: &SkippedEntry) {
    let reason = SkipReason::ALL.iter().position(|other| *other == skipped.reason);
    out.push(reason.unwrap_or_default() as u8);
    out.extend_from_slice(&skipped.size.to_le_bytes());
    out.extend_from_slice(&skipped.modified.to_le_bytes());
}

/// A reader of values from bytes.
pub(super) struct RecordReader<'a>(pub(super) &'a [u8]);

impl<'a> RecordReader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Option<OsString> {
        let length = self.u32()? as usize;
        Some(OsString::from_vec(self.bytes(length)?.to_vec()))
    }

    pub(super) fn skipped(&mut self) -> Option<SkippedEntry> {
        let reason = *SkipReason::ALL.get(usize::from(self.bytes(1)?[0]))?;
        let (size, modified) = (self.u64()?, i64::from_le_bytes(self.array()?));
        Some(SkippedEntry { reason, size, modified })
    }

    fn entry(&mut self) -> Option<RecordedEntry> {
        let node = match self.bytes(1)? {
            [FILE] => RecordedNode::File {
                mode: self.u32()?,
                size: self.u64()?,
                hash: Sha256Digest(self.array()?),
            },
            [LINK] => RecordedNode::Link { target: self.text()? },
            [FOLDER] => {
                RecordedNode::Folder { mode: self.u32()?, tree: Sha256Digest(self.array()?) }
            }
            [LEFT_OUT] => RecordedNode::LeftOut(self.skipped()?),
            _ => return None,
        };
        let name = self.text()?;
        let is_name = !name.is_empty()
            && name != "."
            && name != ".."
            && !name.as_bytes().iter().any(|byte| [0, b'/'].contains(byte));
        is_name.then_some(RecordedEntry { name, node })
    }
}

/// Reads a folder; `None` if it is damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<RecordedEntry>> {
    let mut reader = RecordReader(bytes);
    let mut entries: Vec<RecordedEntry> = Vec::new();
    while !reader.0.is_empty() {
        let entry = reader.entry()?;
        if entries.last().is_some_and(|last| last.name >= entry.name) {
            return None;
        }
        entries.push(entry);
    }
    Some(entries)
}

/// The maximum number of folders whose entries stay in memory: enough for those above a few paths.
const MAX_RECENT_FOLDERS: usize = 16;

impl ContentStore {
    /// Returns the entries of a recorded folder.
    pub(super) fn tree(&self, tree: &Sha256Digest) -> Result<Vec<RecordedEntry>, CheckpointError> {
        let bytes = self.get(tree)?;
        decode(&bytes)
            .ok_or_else(|| CheckpointError::damaged(format!("the tree {tree} is damaged")))
    }

    /// Returns the entries of a recorded folder. The folder is not read again for each path in it.
    fn recent_tree(&self, tree: &Sha256Digest) -> Result<Arc<[RecordedEntry]>, CheckpointError> {
        let mut recent = lock(&self.recent_folders);
        let entries = match recent.iter().position(|(found, _)| found == tree) {
            Some(position) => recent.remove(position).1,
            None => self.tree(tree)?.into(),
        };
        recent.insert(0, (*tree, Arc::clone(&entries)));
        recent.truncate(MAX_RECENT_FOLDERS);
        Ok(entries)
    }

    fn put_tree(&self, entries: &[RecordedEntry]) -> Result<Sha256Digest, CheckpointError> {
        let mut bytes = Vec::new();
        encode(entries.iter().map(|entry| (&*entry.name, &entry.node)), &mut bytes);
        let hash = Sha256Digest::of(&bytes);
        self.put(hash, &bytes).map(|()| hash)
    }

    /// Returns the paths whose states differ between two trees, sorted. A folder comes before its content.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn changes(
        &self,
        before: &Sha256Digest,
        after: &Sha256Digest,
    ) -> Result<Vec<PathChange>, CheckpointError> {
        let mut changes = Vec::new();
        let [before, after] = [before, after].map(|tree| FolderSide::Recorded(*tree));
        self.add_changes(Path::new(""), &before, &after, &mut changes)?;
        Ok(changes)
    }

    fn add_changes(
        &self,
        path: &Path,
        before: &FolderSide,
        after: &FolderSide,
        changes: &mut Vec<PathChange>,
    ) -> Result<(), CheckpointError> {
        if before == after {
            return Ok(());
        }
        let entries = |side: &FolderSide| match side {
            FolderSide::Recorded(tree) => self.tree(tree),
            FolderSide::LeftOut(_) | FolderSide::Nothing => Ok(Vec::new()),
        };
        let none = |side: &FolderSide| match side {
            FolderSide::LeftOut(skipped) => Some(RecordedNode::LeftOut(*skipped)),
            FolderSide::Recorded(_) | FolderSide::Nothing => None,
        };
        let mut names: BTreeMap<OsString, (Option<RecordedNode>, Option<RecordedNode>)> =
            BTreeMap::new();
        let missing = (none(before), none(after));
        for entry in entries(before)? {
            names.entry(entry.name).or_insert(missing.clone()).0 = Some(entry.node);
        }
        for entry in entries(after)? {
            names.entry(entry.name).or_insert(missing.clone()).1 = Some(entry.node);
        }
        for (name, (before, after)) in names {
            let path = path.join(name);
            let state = |node: &Option<RecordedNode>| node.as_ref().map(RecordedNode::state);
            let (was, is) = (state(&before), state(&after));
            if was != is {
                changes.push(PathChange { path: path.clone(), before: was, after: is });
            }
            let [before, after] = [&before, &after].map(|node| FolderSide::of(node.as_ref()));
            self.add_changes(&path, &before, &after, changes)?;
        }
        Ok(())
    }

    /// Returns the state of a path.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn state_of(
        &self,
        tree: &Sha256Digest,
        path: &Path,
    ) -> Result<Option<PathState>, CheckpointError> {
        Ok(self.node_of(tree, path)?.map(|node| node.state()))
    }

    fn node_of(
        &self,
        tree: &Sha256Digest,
        path: &Path,
    ) -> Result<Option<RecordedNode>, CheckpointError> {
        let (mut tree, mut found) = (*tree, None);
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let entries = self.recent_tree(&tree)?;
            let position = entries.binary_search_by(|entry| entry.name.as_os_str().cmp(name));
            let Ok(position) = position else { return Ok(None) };
            let node = entries[position].node.clone();
            match (&node, names.peek()) {
                (RecordedNode::Folder { tree: below, .. }, _) => tree = *below,
                // The same applies to the content of an unrecorded folder.
                (RecordedNode::LeftOut(_), Some(_)) => return Ok(Some(node)),
                (_, Some(_)) => return Ok(None),
                (_, None) => {}
            }
            found = Some(node);
        }
        Ok(found)
    }

    /// Returns a tree with other states of some paths. The tree is stored. A removed folder loses its content.
    pub(super) fn edit_tree(
        &self,
        tree: &Sha256Digest,
        edits: &TreeEdits,
    ) -> Result<Sha256Digest, CheckpointError> {
        let mut below: BTreeMap<&OsStr, (Option<&Option<PathState>>, TreeEdits)> = BTreeMap::new();
        for (path, state) in edits {
            let mut names = path.iter();
            let Some(first) = names.next() else { continue };
            let slot = below.entry(first).or_default();
            match names.as_path() {
                rest if rest == Path::new("") => slot.0 = Some(state),
                rest => drop(slot.1.insert(rest.to_owned(), state.clone())),
            }
        }
        let mut entries: BTreeMap<OsString, RecordedNode> =
            self.tree(tree)?.into_iter().map(|entry| (entry.name, entry.node)).collect();
        for (name, (state, inner)) in below {
            let old = entries.remove(name);
            let old_tree = match &old {
                Some(RecordedNode::Folder { tree, .. }) => Some(*tree),
                _ => None,
            };
            let node = match state {
                None => old,
                Some(None) => None,
                Some(Some(PathState::File { mode, size, hash })) => {
                    Some(RecordedNode::File { mode: *mode, size: *size, hash: *hash })
                }
                Some(Some(PathState::Link { target })) => {
                    Some(RecordedNode::Link { target: target.clone() })
                }
                Some(Some(PathState::LeftOut(skipped))) => Some(RecordedNode::LeftOut(*skipped)),
                Some(Some(PathState::Folder { mode })) => {
                    let tree = old_tree.map_or_else(|| self.put_tree(&[]), Ok)?;
                    Some(RecordedNode::Folder { mode: *mode, tree })
                }
            };
            let node = match node {
                Some(RecordedNode::Folder { mode, tree }) if !inner.is_empty() => {
                    Some(RecordedNode::Folder { mode, tree: self.edit_tree(&tree, &inner)? })
                }
                node => node,
            };
            if let Some(node) = node {
                entries.insert(name.to_owned(), node);
            }
        }
        let entries: Vec<RecordedEntry> =
            entries.into_iter().map(|(name, node)| RecordedEntry { name, node }).collect();
        self.put_tree(&entries)
    }

    /// Calls `see` with each path of a tree, a folder before its content.
    ///
    /// # Errors
    ///
    /// Fails if a tree is missing or damaged.
    pub fn walk_tree(
        &self,
        tree: &Sha256Digest,
        see: &mut dyn FnMut(&Path, &PathState),
    ) -> Result<(), CheckpointError> {
        self.walk_folder(Path::new(""), tree, see)
    }

    /// Calls `see` with each path below a folder of a tree.
    pub(super) fn walk_below(
        &self,
        tree: &Sha256Digest,
        folder: &Path,
        see: &mut dyn FnMut(&Path, &PathState),
    ) -> Result<(), CheckpointError> {
        match self.node_of(tree, folder)? {
            Some(RecordedNode::Folder { tree, .. }) => self.walk_folder(folder, &tree, see),
            _ => Ok(()),
        }
    }

    fn walk_folder(
        &self,
        path: &Path,
        tree: &Sha256Digest,
        see: &mut dyn FnMut(&Path, &PathState),
    ) -> Result<(), CheckpointError> {
        for entry in self.tree(tree)? {
            let path = path.join(&entry.name);
            see(&path, &entry.node.state());
            if let RecordedNode::Folder { tree, .. } = &entry.node {
                self.walk_folder(&path, tree, see)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Durability;

    fn store() -> (tempfile::TempDir, ContentStore) {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("c");
        let store = ContentStore::open(folder, "own", &BTreeMap::new(), Durability::Os).unwrap();
        (temp, store)
    }

    fn file(mode: u32, text: &str) -> PathState {
        let hash = Sha256Digest::of(text.as_bytes());
        PathState::File { mode, size: text.len() as u64, hash }
    }

    #[test]
    fn a_tree_is_read_as_it_was_written() {
        let (_temp, store) = store();
        let skipped = SkippedEntry { reason: SkipReason::TooDeep, size: 7, modified: -3 };
        let odd = OsStr::from_bytes(b"odd\xff\n");
        let empty = store.put_tree(&[]).unwrap();
        let edits = TreeEdits::from([
            (PathBuf::from("a"), Some(file(0o644, "one"))),
            (PathBuf::from("d"), Some(PathState::Folder { mode: 0o700 })),
            (Path::new("d").join(odd), Some(PathState::Link { target: odd.to_owned() })),
            (PathBuf::from("e"), Some(PathState::LeftOut(skipped))),
        ]);
        let tree = store.edit_tree(&empty, &edits).unwrap();
        let mut seen = TreeEdits::new();
        store
            .walk_tree(&tree, &mut |path, state| {
                seen.insert(path.to_owned(), Some(state.clone()));
            })
            .unwrap();
        assert_eq!(seen, edits);
        let found = store.state_of(&tree, &Path::new("d").join(odd)).unwrap();
        assert_eq!(found, edits[&Path::new("d").join(odd)]);
        assert_eq!(store.state_of(&tree, Path::new("a/b")).unwrap(), None);
    }

    #[test]
    fn differences_are_found_and_applied_both_ways() {
        let (_temp, store) = store();
        let empty = store.put_tree(&[]).unwrap();
        let edits = TreeEdits::from([
            (PathBuf::from("a"), Some(file(0o644, "one"))),
            (PathBuf::from("b"), Some(PathState::Folder { mode: 0o755 })),
            (PathBuf::from("b/c"), Some(file(0o644, "two"))),
        ]);
        let first = store.edit_tree(&empty, &edits).unwrap();
        let edits = TreeEdits::from([
            (PathBuf::from("a"), Some(PathState::Folder { mode: 0o755 })),
            (PathBuf::from("a/x"), Some(file(0o755, "one"))),
            (PathBuf::from("b"), None),
        ]);
        let second = store.edit_tree(&first, &edits).unwrap();
        for (from, to) in [(first, second), (second, first)] {
            let changes = store.changes(&from, &to).unwrap();
            let paths: Vec<_> =
                changes.iter().map(|change| change.path.to_str().unwrap()).collect();
            assert_eq!(paths, ["a", "a/x", "b", "b/c"]);
            let edits = changes.into_iter().map(|change| (change.path, change.after)).collect();
            assert_eq!(store.edit_tree(&from, &edits).unwrap(), to);
        }
    }

    #[test]
    fn a_tree_that_leads_outside_is_damaged() {
        for name in ["..", ".", "", "a/b", "a\0"] {
            let entry = RecordedEntry {
                name: name.into(),
                node: RecordedNode::Link { target: "x".into() },
            };
            let mut bytes = Vec::new();
            encode([(&*entry.name, &entry.node)].into_iter(), &mut bytes);
            assert_eq!(decode(&bytes), None, "{name:?}");
        }
    }
}
