//! The changes in a worktree since its creation.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use sha2::{Digest, Sha256};

use super::error::WorktreeError;
use super::git::{GitTree, path_of};
use super::tree_copy::{EntryContent, TreeManifest, open_tree};
use crate::types::hex;
use crate::workspace::open_folder::{open_file, open_parent};
use crate::workspace::{IoContext, IoError};

/// The changes in a worktree since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorktreeChanges {
    /// The number of commits since the commit at which the branch began.
    pub commits: u64,
    /// The number of files that differ from that commit, including untracked files.
    pub files: u64,
    /// The number of added lines; `None` without git.
    pub added: Option<u64>,
    /// The number of removed lines; `None` without git.
    pub removed: Option<u64>,
    /// The paths with uncommitted changes.
    pub uncommitted: Vec<PathBuf>,
}

/// The state of a worktree.
#[derive(Default)]
pub(super) struct WorktreeState {
    /// The digest of commits, index and files. Ignored files don't count.
    pub(super) digest: String,
    /// The paths with uncommitted changes.
    pub(super) uncommitted: Vec<PathBuf>,
    /// The untracked paths among them.
    pub(super) untracked: Vec<PathBuf>,
}

/// The maximum size of an untracked file whose lines are counted, in bytes.
const MAX_COUNTED_BYTES: u64 = 16 << 20;

/// Lets git check every file again: a command may have turned that off (`git update-index --skip-worktree`).
pub(super) fn reveal_files(
    tree: &GitTree,
    folder: &Path,
    lock: &File,
) -> Result<(), WorktreeError> {
    let listed = tree.query(&["ls-files", "-v", "-z"])?;
    let is_hidden = |line: &&[u8]| match line.first() {
        // A sparse checkout omits files, which must stay marked.
        Some(b'S') => folder.join(path_of(&line[2..])).symlink_metadata().is_ok(),
        Some(tag) => tag.is_ascii_lowercase(),
        None => false,
    };
    let hidden = listed.split(|byte| *byte == 0).filter(is_hidden);
    let paths: Vec<u8> = hidden.flat_map(|line| [&line[2..], b"\0"].concat()).collect();
    if !paths.is_empty() {
        for flag in ["--no-assume-unchanged", "--no-skip-worktree"] {
            tree.change(&["update-index", flag, "-z", "--stdin"], Some(&paths), lock)?;
        }
    }
    Ok(())
}

/// Returns the first submodule in the work tree that is set up: its repository may have commits that are nowhere else.
pub(super) fn nested_repository(
    tree: &GitTree,
    folder: &Path,
) -> Result<Option<PathBuf>, WorktreeError> {
    let listed = tree.query(&["ls-files", "-s", "-z"])?;
    let links = listed.split(|byte| *byte == 0).filter(|line| line.starts_with(b"160000 "));
    let mut paths = links.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1));
    let is_set_up = |path: &&[u8]| folder.join(path_of(path)).join(".git").exists();
    Ok(paths.find(is_set_up).map(path_of))
}

/// Returns the state of a work tree with this branch.
pub(super) fn git_state(
    tree: &GitTree,
    folder: &Path,
    branch: &str,
) -> Result<WorktreeState, WorktreeError> {
    let mut hash = Sha256::new();
    let head = tree.commit("HEAD")?;
    let tip = tree.commit(&format!("refs/heads/{branch}"))?;
    let name = tree.line(&["symbolic-ref", "--quiet", "HEAD"])?;
    for part in [&head, &tip, &name] {
        hash.update(part.as_deref().unwrap_or("-"));
        hash.update([0]);
    }
    // A submodule that was set up has a repository here, which may have its own commits.
    let path = tree.git_dir().join("modules");
    let modules = match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        modules => modules.io_context("read", &path)?.next().is_some(),
    };
    hash.update([u8::from(modules)]);
    let args = [
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--ignore-submodules=dirty",
    ];
    let (mut uncommitted, mut untracked) = (Vec::new(), Vec::new());
    let (listed, unread) = tree.list(&args)?;
    if let Some(message) = unread {
        return Err(WorktreeError::Git { command: "status".to_owned(), message });
    }
    let top = open_tree(folder)?;
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let fields = match line[0] {
            b'1' => 9,
            b'u' => 11,
            b'?' => 2,
            _ => continue,
        };
        let Some(path) = line.splitn(fields, |byte| *byte == b' ').nth(fields - 1) else {
            continue;
        };
        let path = path_of(path);
        hash.update(line);
        let entry = EntryContent::read(&top, &path).io_context("read", &path)?;
        hash.update(entry.digest());
        if line[0] == b'?' {
            untracked.push(path.clone());
        }
        uncommitted.push(path);
    }
    Ok(WorktreeState { digest: hex(&hash.finalize()), uncommitted, untracked })
}

/// Returns the changes in a work tree since a commit.
pub(super) fn git_changes(
    tree: &GitTree,
    folder: &Path,
    state: &WorktreeState,
    base: &str,
) -> Result<WorktreeChanges, WorktreeError> {
    let range = format!("{base}..HEAD");
    let commits = tree.line(&["rev-list", "--count", &range])?;
    let args = ["diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let numbers = tree.query(&[&args[..], &["--ignore-submodules=dirty", base, "--"]].concat())?;
    let (mut files, mut added, mut removed) = (0, 0, 0);
    for line in numbers.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let text = String::from_utf8_lossy(line);
        let mut columns = text.split('\t');
        // Binary files have `-` instead of numbers.
        let mut number = || columns.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        files += 1;
        added += number();
        removed += number();
    }
    let top = open_tree(folder)?;
    for path in &state.untracked {
        files += 1;
        added += count_lines(&top, path).unwrap_or(0);
    }
    Ok(WorktreeChanges {
        commits: commits.and_then(|text| text.parse().ok()).unwrap_or(0),
        files,
        added: Some(added),
        removed: Some(removed),
        uncommitted: state.uncommitted.clone(),
    })
}

/// Returns the id of a tree with the files of a work tree, except ignored ones. The index stays as it is.
pub(super) fn snapshot(tree: &GitTree, lock: &File) -> Result<String, WorktreeError> {
    let copy = tempfile::Builder::new().prefix("index-").tempfile_in(tree.git_dir());
    let copy = copy.io_context("write", tree.git_dir())?.into_temp_path();
    // Copy the index, so that git does not read unchanged files again. Commands can write to its folder, too, and may
    // put a link or a pipe in its place.
    let copied = match open_file(&open_tree(tree.git_dir())?, OsStr::new("index")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_file(&copy),
        index => index.and_then(|mut index| {
            io::copy(&mut index, &mut File::options().write(true).open(&copy)?).map(drop)
        }),
    };
    copied.io_context("write", tree.git_dir())?;
    let tree = tree.with_index(&copy);
    if let Some(folder) = tree.work_tree() {
        reveal_files(&tree, folder, lock)?;
    }
    tree.change(&["add", "--all", "--", "."], None, lock)?;
    tree.line(&["write-tree"])?.ok_or_else(|| WorktreeError::Git {
        command: "write-tree".to_owned(),
        message: "the files can't be stored in the repository".to_owned(),
    })
}

/// Returns the difference of two trees as a patch.
pub(super) fn tree_patch(tree: &GitTree, from: &str, to: &str) -> Result<Vec<u8>, WorktreeError> {
    let diff = ["diff", "--patch", "--binary", "--full-index", "--no-renames", "--no-color"];
    tree.query(&[&diff[..], &["--no-ext-diff", "--no-textconv", from, to, "--"]].concat())
}

fn count_lines(top: &Dir, path: &Path) -> io::Result<u64> {
    let (folder, name) = open_parent(top, path)?;
    if folder.symlink_metadata(name)?.len() > MAX_COUNTED_BYTES {
        return Ok(0);
    }
    let EntryContent::File(content, _) = EntryContent::read(&folder, Path::new(name))? else {
        return Ok(0);
    };
    let lines = memchr::memchr_iter(b'\n', &content).count();
    let is_open = content.last().is_some_and(|byte| *byte != b'\n');
    Ok(lines as u64 + u64::from(is_open))
}

/// Returns the digest of a copy of a folder, and the changes in it.
pub(super) fn copy_state(
    folder: &Path,
    before: &TreeManifest,
) -> Result<(String, WorktreeChanges), IoError> {
    let now = TreeManifest::of(&open_tree(folder)?).io_context("read", folder)?;
    let uncommitted = before.changes_to(&now);
    let files = uncommitted.len() as u64;
    Ok((now.digest(), WorktreeChanges { files, uncommitted, ..WorktreeChanges::default() }))
}
