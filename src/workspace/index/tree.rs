//! How the files of a workspace are laid out.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use crate::workspace::path::{RelPath, escape_name};

/// A folder with what is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderTree {
    /// Files in it and below it.
    pub files: u64,
    /// What it has, by name as it is shown; not all of it, below the depth that is told.
    pub entries: BTreeMap<String, TreeEntry>,
    /// Entries that are left out because there are too many.
    #[serde(rename = "more")]
    pub omitted: u64,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeEntry {
    /// A file.
    File,
    /// A folder.
    Folder(FolderTree),
}

/// How many levels are told of a tree that is not told in full.
const MAX_LEVELS: usize = 2;

/// Entries of the first level at the most, and of all folders of the second together, about.
const MAX_FIRST_LEVEL: usize = 120;
const MAX_SECOND_LEVEL: usize = 300;

/// Entries of one folder of the second level.
const MIN_PER_FOLDER: usize = 4;
const MAX_PER_FOLDER: usize = 30;

impl FolderTree {
    /// The most files of a tree that is told in full.
    pub const MAX_FULL_FILES: usize = 300;

    /// Returns the tree of so many files.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a RelPath>, files: usize) -> Self {
        let levels = if files <= Self::MAX_FULL_FILES { usize::MAX } else { MAX_LEVELS };
        let mut tree = Self::default();
        for path in paths {
            let parts: Vec<&OsStr> = path.parts().collect();
            tree.insert(&parts, levels);
        }
        if levels == MAX_LEVELS {
            tree.trim();
        }
        tree
    }

    fn insert(&mut self, parts: &[&OsStr], levels: usize) {
        self.files += 1;
        let (Some((first, rest)), Some(below)) = (parts.split_first(), levels.checked_sub(1))
        else {
            return;
        };
        let node = self.entries.entry(escape_name(first));
        if rest.is_empty() {
            node.or_insert(TreeEntry::File);
        } else if let TreeEntry::Folder(folder) =
            node.or_insert_with(|| TreeEntry::Folder(Self::default()))
        {
            folder.insert(rest, below);
        }
    }

    /// Leaves out what is too much to be told.
    fn trim(&mut self) {
        self.truncate(MAX_FIRST_LEVEL);
        let folders: Vec<&mut Self> = self
            .entries
            .values_mut()
            .filter_map(|node| match node {
                TreeEntry::Folder(folder) => Some(folder),
                TreeEntry::File => None,
            })
            .collect();
        let each = (MAX_SECOND_LEVEL / folders.len().max(1)).clamp(MIN_PER_FOLDER, MAX_PER_FOLDER);
        for folder in folders {
            folder.truncate(each);
        }
    }

    /// Keeps so many entries: folders before files, for they tell more.
    fn truncate(&mut self, most: usize) {
        let surplus = self.entries.len().saturating_sub(most);
        let files = self.entries.iter().filter(|(_, node)| **node == TreeEntry::File).rev();
        let folders = self.entries.iter().filter(|(_, node)| **node != TreeEntry::File).rev();
        let names: Vec<String> =
            files.chain(folders).take(surplus).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.entries.remove(&name);
        }
        self.omitted = surplus as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[String]) -> FolderTree {
        let paths: Vec<RelPath> = paths.iter().map(|path| RelPath::new(path).unwrap()).collect();
        FolderTree::new(paths.iter(), paths.len())
    }

    fn folder<'a>(tree: &'a FolderTree, name: &str) -> &'a FolderTree {
        match &tree.entries[name] {
            TreeEntry::Folder(folder) => folder,
            TreeEntry::File => panic!("{name} is a file"),
        }
    }

    #[test]
    fn up_to_three_hundred_files_are_told_in_full() {
        let paths: Vec<String> = (0..300).map(|n| format!("a/b/c/{n}")).collect();
        let tree = tree(&paths);
        let deepest = folder(folder(folder(&tree, "a"), "b"), "c");
        assert_eq!((deepest.entries.len(), deepest.omitted), (300, 0));
    }

    #[test]
    fn beyond_two_levels_are_told_with_what_lies_below() {
        let paths: Vec<String> = (0..301).map(|n| format!("a/b{}/c/{n}", n % 2)).collect();
        let tree = tree(&paths);
        let second = folder(folder(&tree, "a"), "b1");
        assert_eq!((second.files, second.entries.len()), (150, 0));
    }

    #[test]
    fn a_wide_folder_is_cut_and_says_so_and_keeps_its_folders() {
        let mut paths: Vec<String> = (0..1_000).map(|n| format!("a{n}")).collect();
        paths.extend((0..1_000).map(|n| format!("z/{n}")));
        let tree = tree(&paths);
        assert_eq!((tree.files, tree.entries.len(), tree.omitted), (2_000, 120, 881));
        assert_eq!((folder(&tree, "z").entries.len(), folder(&tree, "z").omitted), (30, 970));
    }
}
