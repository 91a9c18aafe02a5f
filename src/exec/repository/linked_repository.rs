//! The repository of a workspace, if it is elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use super::git_config::{GitSetting, parse_git_config};
use super::{read_file, scan};
use crate::exec::confine::policy::resolve_path;
use crate::workspace::worktree::named_folder;

/// A repository elsewhere that has the workspace as a work tree.
pub(super) enum LinkedRepository {
    /// The workspace is a linked work tree, with a folder of its own in a repository.
    WorkTree { own: PathBuf, common: PathBuf },
    /// The workspace is a submodule.
    Submodule(PathBuf),
}

impl LinkedRepository {
    /// Returns the repository, if it refers back to the workspace; a file in the workspace alone could name any folder.
    pub(super) fn detect(workspace: &Path) -> Option<Self> {
        let file = workspace.join(".git");
        if !fs::symlink_metadata(&file).ok()?.is_file() {
            return None;
        }
        let own = named_folder(&file, "gitdir: ")?;
        let workspace = workspace.canonicalize().ok()?;
        if own.starts_with(&workspace) {
            return None;
        }
        if let Some(common) = named_folder(&own.join("commondir"), "") {
            let is_known = named_folder(&own.join("gitdir"), "")? == workspace.join(".git");
            let is_own = own.parent()? == common.join("worktrees");
            return (is_known && is_own).then_some(Self::WorkTree { own, common });
        }
        let config = parse_git_config(&read_file(&own.join("config"))?)?;
        let mut work_trees = config.iter().filter_map(GitSetting::work_tree);
        let is_known = work_trees
            .any(|path| own.join(path).canonicalize().is_ok_and(|found| found == workspace));
        is_known.then_some(Self::Submodule(own))
    }
}

/// Returns the paths that git follows in the folder of a linked work tree.
pub(super) fn in_linked(own: &Path) -> [PathBuf; 3] {
    ["commondir", "config.worktree", "gitdir"].map(|name| own.join(name))
}

/// Returns the folders of other linked work trees in a repository, and the paths of these work trees.
pub(super) fn others(common: &Path, own: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let linked = entries.map(|entry| entry.path()).filter(|linked| linked != own);
    let located = linked.filter_map(|linked| {
        let file = String::from_utf8(read_file(&linked.join("gitdir"))?).ok()?;
        let work_tree = linked.join(file.trim_end_matches('\n')).parent()?.to_owned();
        Some((linked, resolve_path(&work_tree)?))
    });
    located.unzip()
}

/// Returns the other work trees of the repository if the workspace is a linked work tree.
pub(super) fn linked_work_trees(workspace: &Path) -> Vec<PathBuf> {
    let Some(LinkedRepository::WorkTree { own, common }) = LinkedRepository::detect(workspace)
    else {
        return Vec::new();
    };
    let main = common.file_name().filter(|name| scan::is_git_name(name)).and(common.parent());
    others(&common, &own).1.into_iter().chain(main.map(Path::to_owned)).collect()
}
