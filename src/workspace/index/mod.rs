//! The index: how many files a workspace has, in which languages, and how they are laid out.
//!
//! It looks at names and sizes, never into a file, and follows no symbolic link. The walk obeys
//! `.gitignore` and its like. It has a deadline: whoever asks waits no longer than that, and learns whether the answer
//! is whole ([`Reach`]); a walk that takes longer goes on behind, for the cache. What is kept of it is small, however
//! large the workspace is: a tree in full up to [`Tree::DETAILED`] files, and two levels of it beyond.

mod cache;
mod ignore_files;
mod language;
mod tree;
mod walk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::cache::IndexCache;
use self::walk::IndexWalk;
use super::root::WorkspaceRoot;

pub use self::tree::{FolderTree, TreeEntry};

/// What is known of the files of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceIndex {
    /// How many regular files there are.
    pub files: u64,
    /// How many of them are written in which language; the most frequent first.
    pub languages: Vec<(String, u64)>,
    /// How they are laid out.
    pub tree: FolderTree,
    /// Files with instructions for agents that lie in a folder of their own, by path.
    #[serde(rename = "guides")]
    pub instruction_files: Vec<String>,
}

/// How an index is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// The size in bytes above which a file counts for no language: it is data.
    pub max_file_size: u64,
    /// Patterns of what is left out, besides what `.gitignore` says.
    pub exclude: Vec<String>,
    /// How long an index that was stored is used again.
    pub ttl: Duration,
    /// How long to wait for a new one.
    pub max_wait: Duration,
    /// How many entries are always waited for.
    pub awaited_entries: usize,
    /// The folder in which it is stored; none to store nothing.
    pub cache: Option<PathBuf>,
}

/// An index, and how far it can be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexResult {
    /// The index.
    pub index: WorkspaceIndex,
    /// How far it can be relied on.
    pub coverage: IndexCoverage,
}

/// How far an index can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexCoverage {
    /// It has all files, as they are now or were when it was stored a short while ago.
    Complete,
    /// It has all files as they were this long ago; there was no time for a new one.
    Stale(Duration),
    /// It has some of the files; there was no time for the rest, or there are too many.
    Partial,
}

/// Why no index can be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A pattern of what is left out is none.
    #[error("the pattern '{pattern}' of what the index leaves out cannot be used: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: ignore::Error,
    },
}

/// The names of files with instructions for agents.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The most of them that are told.
const MAX_INSTRUCTION_FILES: usize = 50;

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            max_file_size: 1_000_000,
            exclude: Vec::new(),
            ttl: Duration::from_secs(300),
            max_wait: Duration::from_millis(250),
            awaited_entries: 20_000,
            cache: None,
        }
    }
}

impl WorkspaceIndex {
    /// Returns the index of a workspace: the stored one while it is new enough, else a new one.
    ///
    /// # Errors
    ///
    /// Fails when a pattern of what is left out is none. Folders that cannot be read are left out.
    pub fn build(
        root: &WorkspaceRoot,
        settings: &IndexSettings,
    ) -> Result<IndexResult, IndexError> {
        let cache = IndexCache::new(root, settings);
        let stored = cache.as_ref().and_then(IndexCache::read);
        if let Some((index, age)) = &stored
            && *age < settings.ttl
        {
            return Ok(IndexResult { index: index.clone(), coverage: IndexCoverage::Complete });
        }
        let due = Instant::now() + settings.max_wait;
        let walk = IndexWalk::start(root, settings, cache)?;
        let reach = match walk.wait(due, settings.awaited_entries) {
            true => IndexCoverage::Complete,
            false => match stored {
                Some((index, age)) => {
                    return Ok(IndexResult { index, coverage: IndexCoverage::Stale(age) });
                }
                None => IndexCoverage::Partial,
            },
        };
        Ok(IndexResult { index: walk.index(), coverage: reach })
    }

    /// Returns the index of files that were found in any order.
    fn from_files(found: &[walk::IndexedFile]) -> Self {
        let mut languages: BTreeMap<&str, u64> = BTreeMap::new();
        for language in found.iter().filter_map(|file| file.language) {
            *languages.entry(language).or_default() += 1;
        }
        let mut languages: Vec<_> =
            languages.into_iter().map(|(name, files)| (name.to_owned(), files)).collect();
        languages.sort_by_key(|(_, files)| std::cmp::Reverse(*files));
        let mut guides: Vec<String> = found
            .iter()
            .filter(|file| file.path.parent().is_some_and(|folder| !folder.is_root()))
            .filter(|file| {
                file.path.name().is_some_and(|name| INSTRUCTION_FILES.iter().any(|g| name == *g))
            })
            .map(|file| file.path.to_string())
            .collect();
        guides.sort();
        guides.truncate(MAX_INSTRUCTION_FILES);
        let tree = FolderTree::new(found.iter().map(|file| &file.path), found.len());
        Self { files: found.len() as u64, languages, tree, instruction_files: guides }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::workspace::RelPath;

    fn put(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn workspace(paths: &[&str]) -> (tempfile::TempDir, WorkspaceRoot) {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            put(folder.path(), path, "x");
        }
        let root = WorkspaceRoot::open(folder.path()).unwrap();
        (folder, root)
    }

    fn patient() -> IndexSettings {
        IndexSettings { max_wait: Duration::from_secs(20), ..IndexSettings::default() }
    }

    fn index(root: &WorkspaceRoot) -> WorkspaceIndex {
        let indexed = WorkspaceIndex::build(root, &patient()).unwrap();
        assert_eq!(indexed.coverage, IndexCoverage::Complete);
        indexed.index
    }

    fn names(tree: &FolderTree) -> Vec<&str> {
        tree.entries.keys().map(String::as_str).collect()
    }

    #[test]
    fn files_are_counted_by_language_the_most_frequent_first() {
        let (_folder, root) = workspace(&["a.py", "src/b.rs", "src/c.rs", "Makefile", "odd.xyz"]);
        let index = index(&root);
        assert_eq!(index.files, 5);
        let languages: Vec<_> = index.languages.iter().map(|(n, files)| (&**n, *files)).collect();
        assert_eq!(languages, [("Rust", 2), ("Make", 1), ("Python", 1)]);
    }

    #[test]
    fn what_git_ignores_and_what_is_excluded_is_left_out() {
        let (folder, root) = workspace(&["a.rs", "target/b.rs", "gen/c.rs", "deep/gen/d.rs", ".e"]);
        put(folder.path(), ".gitignore", "/target\n");
        put(folder.path(), ".git/config", "");
        let settings = IndexSettings { exclude: vec!["gen".to_owned()], ..patient() };
        let indexed = WorkspaceIndex::build(&root, &settings).unwrap();
        assert_eq!(names(&indexed.index.tree), [".e", ".gitignore", "a.rs"]);
        let wrong = IndexSettings { exclude: vec!["[".to_owned()], ..patient() };
        assert!(matches!(WorkspaceIndex::build(&root, &wrong), Err(IndexError::Pattern { .. })));
    }

    #[test]
    fn links_lead_nowhere_and_large_files_count_for_no_language() {
        let (folder, root) = workspace(&["a.rs"]);
        symlink("/etc", folder.path().join("etc")).unwrap();
        symlink("a.rs", folder.path().join("b.rs")).unwrap();
        put(folder.path(), "large.json", &"1".repeat(1_000_001));
        let index = index(&root);
        assert_eq!((index.files, index.languages), (2, vec![("Rust".to_owned(), 1)]));
    }

    /// Fault R6: a pipe, or a device behind a link, in place of a list of patterns must not be waited for.
    #[test]
    fn a_list_of_patterns_that_is_no_file_leaves_its_folder_out() {
        for list in [".gitignore", ".ignore"] {
            let (folder, root) = workspace(&["a.rs", "pipe/b.rs", "zero/c.rs"]);
            for place in ["pipe", "zero"] {
                let path = folder.path().join(place).join(list);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match place {
                    "pipe" => {
                        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
                    }
                    _ => symlink("/dev/zero", &path).unwrap(),
                }
            }
            assert_eq!(names(&index(&root).tree), ["a.rs"], "{list}");
        }
    }

    /// Fault X5: a `.git` that points elsewhere is not followed, to a device say.
    #[test]
    fn where_a_git_folder_is_said_to_be_is_not_looked_at() {
        let (folder, root) = workspace(&["a.rs", "sub/b.rs", "evil/info/c.rs"]);
        let evil = folder.path().join("evil");
        symlink("/dev/zero", evil.join("commondir")).unwrap();
        symlink("/dev/zero", evil.join("info/exclude")).unwrap();
        for place in [".git", "sub/.git"] {
            put(folder.path(), place, &format!("gitdir: {}\n", evil.display()));
        }
        assert_eq!(index(&root).files, 3);
    }

    #[test]
    fn a_stored_index_is_used_again_until_it_is_too_old() {
        let (folder, root) = workspace(&["a.rs"]);
        let cache = tempfile::tempdir().unwrap();
        let settings = IndexSettings { cache: Some(cache.path().join("new")), ..patient() };
        let files =
            |settings: &IndexSettings| WorkspaceIndex::build(&root, settings).unwrap().index.files;
        assert_eq!(files(&settings), 1);
        put(folder.path(), "b.rs", "x");
        assert_eq!(files(&settings), 1);
        assert_eq!(files(&IndexSettings { ttl: Duration::ZERO, ..settings.clone() }), 2);
        // Other settings have another index.
        put(folder.path(), "c.rs", "x");
        assert_eq!(files(&IndexSettings { max_file_size: 5, ..settings.clone() }), 3);
        for entry in fs::read_dir(cache.path().join("new")).unwrap() {
            fs::write(entry.unwrap().path(), "{").unwrap();
        }
        assert_eq!(files(&settings), 3);
    }

    /// However busy the machine is, a small workspace is told in full.
    #[test]
    fn a_small_workspace_needs_no_time() {
        let (_folder, root) = workspace(&["a.rs", "b/c.rs", "node_modules/x/y.js", "b/target/z"]);
        let hasty = IndexSettings { max_wait: Duration::ZERO, ..IndexSettings::default() };
        let indexed = WorkspaceIndex::build(&root, &hasty).unwrap();
        assert_eq!((indexed.coverage, indexed.index.files), (IndexCoverage::Complete, 3));
        let all = RelPath::new("node_modules").unwrap();
        assert!(root.exists(&all));
    }

    #[test]
    fn without_time_the_old_index_is_better_than_a_part() {
        let (folder, root) = workspace(&["a.rs"]);
        let cache = tempfile::tempdir().unwrap();
        let hasty = IndexSettings { max_wait: Duration::ZERO, awaited_entries: 0, ..patient() };
        assert_eq!(WorkspaceIndex::build(&root, &hasty).unwrap().coverage, IndexCoverage::Partial);
        let settings = IndexSettings { cache: Some(cache.path().to_owned()), ..patient() };
        assert_eq!(
            WorkspaceIndex::build(&root, &settings).unwrap().coverage,
            IndexCoverage::Complete
        );
        put(folder.path(), "b.rs", "x");
        let hasty = IndexSettings { ttl: Duration::ZERO, ..hasty };
        let hasty = IndexSettings { cache: settings.cache.clone(), ..hasty };
        let indexed = WorkspaceIndex::build(&root, &hasty).unwrap();
        assert!(matches!(indexed.coverage, IndexCoverage::Stale(_)), "{:?}", indexed.coverage);
        // The walk goes on behind, for the cache.
        let due = Instant::now() + Duration::from_secs(20);
        let files = || IndexCache::new(&root, &settings).unwrap().read().unwrap().0.files;
        while files() < 2 {
            assert!(Instant::now() < due, "the walk never came to its end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn guides_in_folders_are_told_by_path() {
        let (_folder, root) =
            workspace(&["AGENTS.md", "b/CLAUDE.md", "a/AGENTS.md", "a/README.md"]);
        assert_eq!(index(&root).instruction_files, ["a/AGENTS.md", "b/CLAUDE.md"]);
    }
}
