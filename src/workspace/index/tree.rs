//! How the files of a workspace are laid out.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use crate::workspace::path::{RelPath, shown};

/// A folder with what is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Files in it and below it.
    pub files: u64,
    /// What it has, by name as it is shown; not all of it, below the depth that is told.
    pub entries: BTreeMap<String, Node>,
    /// Entries that are left out because there are too many.
    pub more: u64,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// A file.
    File,
    /// A folder.
    Folder(Tree),
}

/// How many levels are told of a tree that is not told in full.
const LEVELS: usize = 2;

/// Entries of the first level at the most, and of all folders of the second together, about.
const WIDEST: usize = 120;
const SECOND: usize = 300;

/// Entries of one folder of the second level.
const NARROWEST: usize = 4;
const BROADEST: usize = 30;

impl Tree {
    /// The most files of a tree that is told in full.
    pub const DETAILED: usize = 300;

    /// Returns the tree of so many files.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a RelPath>, files: usize) -> Self {
        let levels = if files <= Self::DETAILED { usize::MAX } else { LEVELS };
        let mut tree = Self::default();
        for path in paths {
            let parts: Vec<&OsStr> = path.parts().collect();
            tree.insert(&parts, levels);
        }
        if levels == LEVELS {
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
        let node = self.entries.entry(shown(first));
        if rest.is_empty() {
            node.or_insert(Node::File);
        } else if let Node::Folder(folder) = node.or_insert_with(|| Node::Folder(Self::default())) {
            folder.insert(rest, below);
        }
    }

    /// Leaves out what is too much to be told.
    fn trim(&mut self) {
        self.keep(WIDEST);
        let folders: Vec<&mut Self> = self
            .entries
            .values_mut()
            .filter_map(|node| match node {
                Node::Folder(folder) => Some(folder),
                Node::File => None,
            })
            .collect();
        let each = (SECOND / folders.len().max(1)).clamp(NARROWEST, BROADEST);
        for folder in folders {
            folder.keep(each);
        }
    }

    /// Keeps so many entries: folders before files, for they tell more.
    fn keep(&mut self, most: usize) {
        let surplus = self.entries.len().saturating_sub(most);
        let files = self.entries.iter().filter(|(_, node)| **node == Node::File).rev();
        let folders = self.entries.iter().filter(|(_, node)| **node != Node::File).rev();
        let names: Vec<String> =
            files.chain(folders).take(surplus).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.entries.remove(&name);
        }
        self.more = surplus as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[String]) -> Tree {
        let paths: Vec<RelPath> = paths.iter().map(|path| RelPath::new(path).unwrap()).collect();
        Tree::new(paths.iter(), paths.len())
    }

    fn folder<'a>(tree: &'a Tree, name: &str) -> &'a Tree {
        match &tree.entries[name] {
            Node::Folder(folder) => folder,
            Node::File => panic!("{name} is a file"),
        }
    }

    #[test]
    fn up_to_three_hundred_files_are_told_in_full() {
        let paths: Vec<String> = (0..300).map(|n| format!("a/b/c/{n}")).collect();
        let tree = tree(&paths);
        let deepest = folder(folder(folder(&tree, "a"), "b"), "c");
        assert_eq!((deepest.entries.len(), deepest.more), (300, 0));
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
        assert_eq!((tree.files, tree.entries.len(), tree.more), (2_000, 120, 881));
        assert_eq!((folder(&tree, "z").entries.len(), folder(&tree, "z").more), (30, 970));
    }
}
