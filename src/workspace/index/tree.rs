//! The folder tree of a workspace.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use crate::types::escape_name;
use crate::workspace::path::RelPath;

/// A folder of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderTree {
    /// The number of files in the folder and below it.
    pub files: u64,
    /// The entries by displayed name. Incomplete below the depth of the tree.
    pub entries: BTreeMap<String, TreeEntry>,
    /// The number of omitted entries.
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

/// The depth of an incomplete tree.
const MAX_LEVELS: usize = 2;

/// The maximum number of entries of the first level, and the approximate maximum of all folders of the second level
/// together.
const MAX_FIRST_LEVEL: usize = 120;
const MAX_SECOND_LEVEL: usize = 300;

/// The lowest and the highest limit for one folder of the second level.
const MIN_PER_FOLDER: usize = 4;
const MAX_PER_FOLDER: usize = 30;

impl FolderTree {
    /// The maximum number of files of a complete tree.
    pub const MAX_FULL_FILES: usize = 300;

    /// Builds the tree of `files` files.
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

    /// Removes entries beyond the limits.
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

    /// Keeps the first entries: folders before files, which are less informative.
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
    fn a_tree_of_up_to_three_hundred_files_is_complete() {
        let paths: Vec<String> = (0..300).map(|n| format!("a/b/c/{n}")).collect();
        let tree = tree(&paths);
        let deepest = folder(folder(folder(&tree, "a"), "b"), "c");
        assert_eq!((deepest.entries.len(), deepest.omitted), (300, 0));
    }

    #[test]
    fn a_large_tree_has_two_levels_with_counts() {
        let paths: Vec<String> = (0..301).map(|n| format!("a/b{}/c/{n}", n % 2)).collect();
        let tree = tree(&paths);
        let second = folder(folder(&tree, "a"), "b1");
        assert_eq!((second.files, second.entries.len()), (150, 0));
    }

    #[test]
    fn a_wide_folder_is_truncated_and_keeps_its_folders() {
        let mut paths: Vec<String> = (0..1_000).map(|n| format!("a{n}")).collect();
        paths.extend((0..1_000).map(|n| format!("z/{n}")));
        let tree = tree(&paths);
        assert_eq!((tree.files, tree.entries.len(), tree.omitted), (2_000, 120, 881));
        assert_eq!((folder(&tree, "z").entries.len(), folder(&tree, "z").omitted), (30, 970));
    }
}
