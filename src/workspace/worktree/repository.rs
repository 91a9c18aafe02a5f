//! The repository of a workspace, found without running git.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::workspace::{IoContext, IoError, open_input};

/// The repository of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The git folder of the work tree: `.git`, or that of a linked work tree.
    pub(super) git_dir: PathBuf,
    /// The folder that all work trees of the repository share.
    pub(super) common_dir: PathBuf,
    /// The top of the work tree; `None` for a bare repository.
    pub(super) top: Option<PathBuf>,
    /// The path of the workspace below the top; empty if it is the top.
    pub(super) subfolder: PathBuf,
}

/// Files in the git folder that exist while an operation is under way, and the operation's name.
const OPERATIONS: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("sequencer", "a sequence of picks"),
];

/// The maximum size of a git file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

impl Repository {
    /// Finds the repository of a workspace, whose path has no links.
    pub(super) fn find(workspace: &Path) -> Option<Self> {
        // Try twice: an error of a disk may be temporary, and a git repository must not be treated as a folder without
        // git.
        Self::look_for(workspace).or_else(|| Self::look_for(workspace))
    }

    fn look_for(workspace: &Path) -> Option<Self> {
        for folder in workspace.ancestors() {
            let dot_git = folder.join(".git");
            let Ok(found) = fs::metadata(&dot_git) else { continue };
            let git_dir = match found.is_dir() {
                true => dot_git.canonicalize().ok(),
                false => named_folder(&dot_git, "gitdir: "),
            };
            // Like git, continue in the parent folders if a folder of this name is not a repository.
            let Some(git_dir) = git_dir.filter(|git_dir| git_dir.join("HEAD").exists()) else {
                continue;
            };
            let common_dir =
                named_folder(&git_dir.join("commondir"), "").unwrap_or_else(|| git_dir.clone());
            let subfolder = workspace.strip_prefix(folder).ok()?.to_owned();
            return Some(Self { git_dir, common_dir, top: Some(folder.to_owned()), subfolder });
        }
        let is_bare = workspace.join("HEAD").is_file()
            && ["objects", "refs"].iter().all(|name| workspace.join(name).is_dir());
        is_bare.then(|| Self {
            git_dir: workspace.to_owned(),
            common_dir: workspace.to_owned(),
            top: None,
            subfolder: PathBuf::new(),
        })
    }

    /// Returns the operation that is under way in the work tree.
    pub(super) fn operation(&self) -> Option<&'static str> {
        let (_, name) = OPERATIONS
            .iter()
            .find(|(file, _)| self.git_dir.join(file).symlink_metadata().is_ok())?;
        Some(*name)
    }
}

/// Returns the git folder for a linked work tree of a repository.
///
/// # Errors
///
/// Fails if the linked work trees can't be listed, because an unlisted one would count as removed.
pub(super) fn linked(common_dir: &Path, work_tree: &Path) -> Result<Option<PathBuf>, IoError> {
    let (all, file) = (common_dir.join("worktrees"), work_tree.join(".git"));
    let find = || -> io::Result<Option<PathBuf>> {
        for entry in fs::read_dir(&all)? {
            let folder = entry?.path();
            if read(&folder.join("gitdir")).is_some_and(|text| Path::new(&text) == file) {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    };
    match find() {
        // Git removes the folder with the last linked work tree.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.io_context("list", &all),
    }
}

/// Returns the first line of a small file.
fn read(path: &Path) -> Option<String> {
    let file = open_input(path).ok()?;
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Returns the existing folder or file that a git file names after a prefix.
pub(crate) fn named_folder(path: &Path, prefix: &str) -> Option<PathBuf> {
    let text = read(path)?;
    path.parent()?.join(text.strip_prefix(prefix)?).canonicalize().ok()
}
