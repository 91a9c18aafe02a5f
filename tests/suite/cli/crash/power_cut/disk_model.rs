//! A model of a file system: possible contents of a disk after a power cut.
//!
//! Synced changes are there. Every other change of a file is lost, kept or torn independently, and each folder has the
//! changes of its names up to some point, independent of other folders. No file system loses more than that, so a
//! program that withstands this model withstands all of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::disk_operations::DiskOperation;

/// Files with their contents, and folders, which have none.
pub(super) type FileTree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The file system, with each change and its durability.
pub(super) struct DiskModel {
    /// The first one is the root.
    nodes: Vec<DiskNode>,
}

enum DiskNode {
    File { changes: Vec<FileChange>, synced: usize },
    Folder { changes: Vec<DirectoryChange>, synced: usize },
}

enum FileChange {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

enum DirectoryChange {
    Put(String, usize),
    Gone(String),
    Moved(String, String),
}

/// The unsynced changes that survive a power cut.
pub(super) enum PowerCut {
    /// None.
    Nothing,
    /// All of them.
    Everything,
    /// Names and lengths, but no contents: the usual state where metadata are journalled and data are not.
    Lengths,
    /// A random part of them.
    Some(SeededRng),
}

/// Pseudo-random numbers, the same for each seed.
#[derive(Clone)]
pub(super) struct SeededRng(pub(super) u64);

/// The number of bytes that a disk writes at once.
const SECTOR: usize = 512;

impl SeededRng {
    /// Returns a number below a bound.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % bound
    }
}

impl PowerCut {
    /// Returns the number of surviving changes of names in a folder.
    fn names(&mut self, unsynced: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Everything | Self::Lengths => unsynced,
            Self::Some(chance) => chance.below(unsynced + 1),
        }
    }

    fn truncates(&mut self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything | Self::Lengths => true,
            Self::Some(chance) => chance.below(2) == 0,
        }
    }

    /// Writes the surviving part of a write.
    fn write(&mut self, file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Everything => write_at(file, at, bytes),
            Self::Lengths => write_at(file, at + bytes.len(), &[]),
            Self::Some(chance) => match chance.below(5) {
                0 => {}
                1 => write_at(file, at, bytes),
                2 => write_at(file, at + bytes.len(), &[]),
                3 => write_at(file, at, &bytes[..chance.below(bytes.len() + 1)]),
                _ => {
                    write_at(file, at + bytes.len(), &[]);
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = bytes.len().min(((at + from) / SECTOR + 1) * SECTOR - at);
                        if chance.below(2) == 0 {
                            write_at(file, at + from, &bytes[from..to]);
                        }
                        from = to;
                    }
                }
            },
        }
    }
}

/// Writes into a file; a gap is filled with zeros.
fn write_at(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    file.resize(file.len().max(at + bytes.len()), 0);
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn content(changes: &[FileChange], synced: usize, cut: &mut PowerCut) -> Vec<u8> {
    let mut file = Vec::new();
    for (rank, change) in changes.iter().enumerate() {
        match change {
            FileChange::Write { at, bytes } if rank < synced => write_at(&mut file, *at, bytes),
            FileChange::Write { at, bytes } => cut.write(&mut file, *at, bytes),
            FileChange::Truncate(length) => {
                if rank < synced || cut.truncates() {
                    file.resize(*length, 0);
                }
            }
        }
    }
    file
}

fn names(changes: &[DirectoryChange]) -> BTreeMap<&str, usize> {
    let mut names = BTreeMap::new();
    for change in changes {
        match change {
            DirectoryChange::Put(name, node) => drop(names.insert(&**name, *node)),
            DirectoryChange::Gone(name) => drop(names.remove(&**name)),
            DirectoryChange::Moved(from, to) => {
                let node = names.remove(&**from).unwrap();
                names.insert(to, node);
            }
        }
    }
    names
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl DiskModel {
    /// Returns a disk with these files, all durable.
    pub(super) fn from_tree(tree: &FileTree) -> Self {
        let mut disk = Self { nodes: vec![DiskNode::Folder { changes: Vec::new(), synced: 0 }] };
        for (path, content) in tree {
            match content {
                None => disk.apply(&DiskOperation::Mkdir(path.clone())),
                Some(bytes) => {
                    let (path, bytes) = (path.clone(), bytes.clone());
                    disk.apply(&DiskOperation::Create(path.clone()));
                    disk.apply(&DiskOperation::Write { path, at: None, bytes });
                }
            }
        }
        for node in &mut disk.nodes {
            node.sync();
        }
        disk
    }

    fn find(&self, path: &Path) -> Option<usize> {
        path.components().try_fold(0, |node, part| match &self.nodes[node] {
            DiskNode::Folder { changes, .. } => {
                names(changes).get(part.as_os_str().to_str().unwrap()).copied()
            }
            DiskNode::File { .. } => None,
        })
    }

    fn folder(&mut self, path: &Path) -> &mut Vec<DirectoryChange> {
        let node = self.find(path.parent().unwrap());
        match node.map(|node| &mut self.nodes[node]) {
            Some(DiskNode::Folder { changes, .. }) => changes,
            Some(DiskNode::File { .. }) | None => panic!("no folder for {}", path.display()),
        }
    }

    fn file(&mut self, path: &Path) -> &mut Vec<FileChange> {
        let node = self.find(path);
        match node.map(|node| &mut self.nodes[node]) {
            Some(DiskNode::File { changes, .. }) => changes,
            Some(DiskNode::Folder { .. }) | None => panic!("no file {}", path.display()),
        }
    }

    fn add(&mut self, path: &Path, node: DiskNode) {
        let new = self.nodes.len();
        self.nodes.push(node);
        self.folder(path).push(DirectoryChange::Put(name(path), new));
    }

    /// Returns the current content of a file, as processes see it.
    pub(super) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        match &self.nodes[self.find(path)?] {
            DiskNode::File { changes, .. } => {
                Some(content(changes, changes.len(), &mut PowerCut::Everything))
            }
            DiskNode::Folder { .. } => None,
        }
    }

    /// Applies an operation of a process.
    pub(super) fn apply(&mut self, op: &DiskOperation) {
        match op {
            DiskOperation::Create(path) if self.find(path).is_some() => {}
            DiskOperation::Create(path) => {
                self.add(path, DiskNode::File { changes: Vec::new(), synced: 0 });
            }
            DiskOperation::Mkdir(path) => {
                self.add(path, DiskNode::Folder { changes: Vec::new(), synced: 0 });
            }
            DiskOperation::Write { path, at, bytes } => {
                let at = at.unwrap_or_else(|| self.content(path).unwrap_or_default().len());
                self.file(path).push(FileChange::Write { at, bytes: bytes.clone() });
            }
            DiskOperation::Truncate(path, length) => {
                self.file(path).push(FileChange::Truncate(*length));
            }
            DiskOperation::Sync(path) => {
                let node = self.find(path).unwrap_or_else(|| panic!("no {}", path.display()));
                self.nodes[node].sync();
            }
            DiskOperation::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "no file moves to another folder");
                self.folder(from).push(DirectoryChange::Moved(name(from), name(to)));
            }
            DiskOperation::Link(from, to) => {
                let node = self.find(from).unwrap();
                self.folder(to).push(DirectoryChange::Put(name(to), node));
            }
            DiskOperation::Remove(path) => {
                self.folder(path).push(DirectoryChange::Gone(name(path)));
            }
            DiskOperation::Effect(_) => {}
        }
    }

    /// Returns possible contents of the disk if the power is cut now.
    pub(super) fn after_cut(&self, mut cut: PowerCut) -> FileTree {
        let mut tree = FileTree::new();
        let mut open = vec![(PathBuf::new(), 0)];
        while let Some((path, node)) = open.pop() {
            match &self.nodes[node] {
                DiskNode::File { changes, synced } => {
                    tree.insert(path, Some(content(changes, *synced, &mut cut)));
                }
                DiskNode::Folder { changes, synced } => {
                    let kept = synced + cut.names(changes.len() - synced);
                    let inside = names(&changes[..kept]);
                    open.extend(inside.into_iter().map(|(name, node)| (path.join(name), node)));
                    if path != Path::new("") {
                        tree.insert(path, None);
                    }
                }
            }
        }
        tree
    }
}

impl DiskNode {
    fn sync(&mut self) {
        match self {
            Self::File { changes, synced } => *synced = changes.len(),
            Self::Folder { changes, synced } => *synced = changes.len(),
        }
    }
}

/// Reads the content of a folder.
pub(super) fn read(root: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let within = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                tree.insert(within, None);
                folders.push(path);
            } else {
                tree.insert(within, Some(fs::read(path).unwrap()));
            }
        }
    }
    tree
}

/// Makes a folder contain exactly these files.
pub(super) fn write(root: &Path, tree: &FileTree) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    for (path, content) in tree {
        let path = root.join(path);
        match content {
            None => fs::create_dir(path).unwrap(),
            Some(content) => fs::write(path, content).unwrap(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn replaced(synced: &[&str]) -> DiskModel {
        let mut disk = DiskModel::from_tree(&[(path("a"), Some(b"old".to_vec()))].into());
        disk.apply(&DiskOperation::Create(path("new")));
        disk.apply(&DiskOperation::Write { path: path("new"), at: None, bytes: b"new".to_vec() });
        if synced.contains(&"new") {
            disk.apply(&DiskOperation::Sync(path("new")));
        }
        disk.apply(&DiskOperation::Rename(path("new"), path("a")));
        if synced.contains(&"") {
            disk.apply(&DiskOperation::Sync(path("")));
        }
        disk
    }

    fn possible(disk: &DiskModel) -> Vec<Vec<u8>> {
        let mut found: Vec<Vec<u8>> = (0..200)
            .map(|seed| {
                disk.after_cut(PowerCut::Some(SeededRng(seed)))[&path("a")].clone().unwrap()
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn a_file_that_is_replaced_without_a_sync_may_be_torn() {
        let torn = possible(&replaced(&[""]));
        assert!(torn.contains(&b"n".to_vec()) && torn.contains(&vec![0; 3]), "{torn:?}");
        assert_eq!(possible(&replaced(&["new"])), [b"new".to_vec(), b"old".to_vec()]);
        assert_eq!(possible(&replaced(&["new", ""])), [b"new".to_vec()]);
        let least = replaced(&["new"]).after_cut(PowerCut::Nothing);
        assert_eq!(least[&path("a")].as_deref(), Some(&b"old"[..]));
    }
}
