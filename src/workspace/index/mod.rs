//! The index: the number of files in a workspace, their languages, and the folder tree.
//!
//! The index reads names and sizes, never contents, and follows no symbolic links. The walk respects `.gitignore` and
//! similar files. It has a deadline, after which the caller stops waiting; the result says whether it is complete
//! ([`IndexCoverage`]). A longer walk continues in the background, for the cache. The result is small for workspaces of
//! any size: a full tree up to [`FolderTree::MAX_FULL_FILES`] files, and two levels of it beyond that.

mod cache;
mod language;
mod tree;
mod walk;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::cache::IndexCache;
use self::walk::IndexWalk;
pub(super) use self::walk::VERSION_CONTROL_FOLDERS;
use super::root::WorkspaceRoot;

pub use self::tree::{FolderTree, TreeEntry};

/// A summary of the files of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceIndex {
    /// The number of regular files.
    pub files: u64,
    /// The number of files by language, the most frequent first.
    pub languages: Vec<(String, u64)>,
    /// The folders and files.
    pub tree: FolderTree,
    /// Instruction files for agents in subfolders, by path.
    #[serde(rename = "guides")]
    pub instruction_files: Vec<String>,
}

/// Settings for building an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// The size in bytes above which a file counts as data, not as source code of a language.
    pub max_file_size: u64,
    /// Patterns of excluded paths, in addition to `.gitignore`.
    pub exclude: Vec<String>,
    /// The time for which a stored index is used.
    pub ttl: Duration,
    /// The maximum wait for a new index.
    pub max_wait: Duration,
    /// The number of entries for which the caller always waits.
    pub awaited_entries: usize,
    /// The folder in which the index is stored; `None` to store nothing.
    pub cache: Option<PathBuf>,
}

/// An index and its coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexResult {
    /// The index.
    pub index: WorkspaceIndex,
    /// The coverage of the index.
    pub coverage: IndexCoverage,
}

/// The completeness and the age of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexCoverage {
    /// All files, as they are now or were recently when the index was stored.
    Complete,
    /// All files as they were this long ago. There was no time for a new index.
    Stale(Duration),
    /// Some of the files. There was no time for the rest, or there are too many.
    Partial,
}

/// An invalid exclude pattern.
#[derive(Debug, Error)]
#[error("invalid exclude pattern '{pattern}' for the index: {source}")]
pub struct IndexError {
    pattern: String,
    source: ignore::Error,
}

/// The names of instruction files for agents.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The maximum number of instruction files in an index.
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
    /// Returns the stored index of a workspace if it is recent enough, or builds a new one.
    ///
    /// # Errors
    ///
    /// Fails if an exclude pattern is invalid. Folders that cannot be read are skipped.
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
        Ok(Self::await_walk(&walk, due, settings.awaited_entries, stored))
    }

    /// Returns the index of a walk, or the best available index if there is no time for the walk.
    fn await_walk(
        walk: &IndexWalk,
        due: Instant,
        awaited_entries: usize,
        stored: Option<(Self, Duration)>,
    ) -> IndexResult {
        let is_complete = walk.wait(due, awaited_entries);
        let (index, coverage) = match stored {
            _ if is_complete => (walk.index(), IndexCoverage::Complete),
            Some((index, age)) => (index, IndexCoverage::Stale(age)),
            None => (walk.index(), IndexCoverage::Partial),
        };
        IndexResult { index, coverage }
    }

    /// Builds an index from files in any order.
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
            .map(|file| &file.path)
            .filter(|path| path.parent().is_some_and(|folder| !folder.is_root()))
            .filter(|path| INSTRUCTION_FILES.map(OsStr::new).map(Some).contains(&path.name()))
            .map(ToString::to_string)
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
    fn ignored_and_excluded_files_are_skipped() {
        let (folder, root) = workspace(&["a.rs", "target/b.rs", "gen/c.rs", "deep/gen/d.rs", ".e"]);
        put(folder.path(), ".gitignore", "/target\n");
        put(folder.path(), ".git/config", "");
        let settings = IndexSettings { exclude: vec!["gen".to_owned()], ..patient() };
        let indexed = WorkspaceIndex::build(&root, &settings).unwrap();
        assert_eq!(names(&indexed.index.tree), [".e", ".gitignore", "a.rs"]);
        let wrong = IndexSettings { exclude: vec!["[".to_owned()], ..patient() };
        assert!(WorkspaceIndex::build(&root, &wrong).is_err());
    }

    #[test]
    fn links_are_not_followed_and_large_files_have_no_language() {
        let (folder, root) = workspace(&["a.rs"]);
        symlink("/etc", folder.path().join("etc")).unwrap();
        symlink("a.rs", folder.path().join("b.rs")).unwrap();
        put(folder.path(), "large.json", &"1".repeat(1_000_001));
        let index = index(&root);
        assert_eq!((index.files, index.languages), (2, vec![("Rust".to_owned(), 1)]));
    }

    /// Fault R6: a pipe, or a link to a device, in place of an ignore file must not block.
    #[test]
    fn a_folder_with_an_irregular_ignore_file_is_skipped() {
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

    /// Fault X5: a `.git` that points elsewhere, for example to a device, is not followed.
    #[test]
    fn a_git_file_is_not_followed() {
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
    fn a_stored_index_is_used_until_it_is_too_old() {
        let (folder, root) = workspace(&["a.rs"]);
        let cache = tempfile::tempdir().unwrap();
        let settings = IndexSettings { cache: Some(cache.path().join("new")), ..patient() };
        let files =
            |settings: &IndexSettings| WorkspaceIndex::build(&root, settings).unwrap().index.files;
        assert_eq!(files(&settings), 1);
        put(folder.path(), "b.rs", "x");
        assert_eq!(files(&settings), 1);
        assert_eq!(files(&IndexSettings { ttl: Duration::ZERO, ..settings.clone() }), 2);
        // Other settings have a separate index.
        put(folder.path(), "c.rs", "x");
        assert_eq!(files(&IndexSettings { max_file_size: 5, ..settings.clone() }), 3);
        for entry in fs::read_dir(cache.path().join("new")).unwrap() {
            fs::write(entry.unwrap().path(), "{").unwrap();
        }
        assert_eq!(files(&settings), 3);
    }

    /// A small workspace is indexed completely, even if the computer is busy.
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
    fn without_time_an_old_index_is_preferred_to_a_partial_one() {
        let await_walk = |continues_in_background, stored| {
            let walk = IndexWalk::endless(continues_in_background);
            let found = WorkspaceIndex::await_walk(&walk, Instant::now(), 0, stored);
            (found.coverage, found.index.files, walk.is_stopped())
        };
        assert_eq!(await_walk(false, None), (IndexCoverage::Partial, 0, true));
        // The walk continues in the background, for the cache.
        let old = WorkspaceIndex { files: 7, ..WorkspaceIndex::default() };
        let age = Duration::from_secs(9);
        assert_eq!(await_walk(true, Some((old, age))), (IndexCoverage::Stale(age), 7, false));
    }

    #[test]
    fn a_walk_that_is_not_waited_for_fills_the_cache() {
        let (folder, root) = workspace(&["a.rs"]);
        let cache = tempfile::tempdir().unwrap();
        let settings = IndexSettings { cache: Some(cache.path().to_owned()), ..patient() };
        assert_eq!(
            WorkspaceIndex::build(&root, &settings).unwrap().coverage,
            IndexCoverage::Complete
        );
        put(folder.path(), "b.rs", "x");
        let hasty = IndexSettings { ttl: Duration::ZERO, max_wait: Duration::ZERO, ..settings };
        let hasty = IndexSettings { awaited_entries: 0, ..hasty };
        WorkspaceIndex::build(&root, &hasty).unwrap();
        let due = Instant::now() + Duration::from_secs(20);
        let files = || IndexCache::new(&root, &hasty).unwrap().read().unwrap().0.files;
        while files() < 2 {
            assert!(Instant::now() < due, "the walk did not end");
            std::thread::yield_now();
        }
    }

    #[test]
    fn instruction_files_in_folders_are_listed_by_path() {
        let (_folder, root) =
            workspace(&["AGENTS.md", "b/CLAUDE.md", "a/AGENTS.md", "a/README.md"]);
        assert_eq!(index(&root).instruction_files, ["a/AGENTS.md", "b/CLAUDE.md"]);
    }
}
