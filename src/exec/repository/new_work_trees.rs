//! Work trees that commands create, and the files in them that git runs because of the user's own configuration.

use std::path::{Path, PathBuf};

use super::cleanup::rename_item;
use super::followed::{UserGitConfig, followed_by_git};
use super::scan::{GitItems, MAX_CONFIG, is_git_name, read};
use super::{MAX_REPOSITORIES, ScanRoot};
use crate::exec::protected::absent_paths::DENIED_SUFFIX;
use crate::workspace::LinkResolver;

/// The maximum number of files examined in one work tree.
const MAX_FILES: usize = 10_000;

/// Returns the work trees below a folder that contain the items of a scan.
pub(super) fn work_trees_of<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    let work_tree = |path: &PathBuf| {
        let names = path.components().take_while(|name| !is_git_name(name.as_os_str()));
        let work_tree: PathBuf = names.collect();
        (work_tree != *path).then_some(work_tree)
    };
    let mut found: Vec<PathBuf> = paths.filter_map(work_tree).collect();
    found.sort();
    found.dedup();
    found
}

/// Renames files in new work trees that git would run or follow because the user's configuration names them, except
/// copies of files of the surrounding work tree. Returns a sentence for each.
pub(super) fn rename_followed(
    root: &ScanRoot,
    before: &GitItems,
    now: &[PathBuf],
    user: &UserGitConfig,
) -> Vec<String> {
    let known = work_trees_of(before.keys());
    let new = now.iter().filter(|path| !known.contains(path) && !path.as_os_str().is_empty());
    let mut notices = Vec::new();
    for work_tree in new.take(MAX_REPOSITORIES) {
        let folder = root.path.join(work_tree);
        for path in followed_by_git(&folder, &folder, user, &LinkResolver::default()) {
            let Ok(path) = path.strip_prefix(&root.path) else { continue };
            for file in files_at(root, path) {
                let beside = file.strip_prefix(work_tree).unwrap_or(&file);
                if has_same_content(root, &file, beside) {
                    continue;
                }
                let shown = file.display();
                let end = match rename_item(&root.dir, &file) {
                    Ok(Some(new)) => format!("was renamed to {}", new.display()),
                    Ok(None) => "was removed".to_owned(),
                    Err(error) => format!("could not be renamed: {error}"),
                };
                notices.push(format!(
                    "sandbox denied: the user's configuration makes git run or follow {shown} in a work tree that a \
                     command has created; it {end}"
                ));
            }
        }
    }
    notices
}

/// Returns the files at and below a path, without renamed ones.
fn files_at(root: &ScanRoot, path: &Path) -> Vec<PathBuf> {
    let (mut todo, mut files) = (vec![path.to_owned()], Vec::new());
    while let Some(path) = todo.pop().filter(|_| files.len() < MAX_FILES) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match root.dir.symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {
                let entries = root.dir.read_dir(&path).into_iter().flatten().flatten();
                todo.extend(entries.map(|entry| path.join(entry.file_name())));
            }
            Ok(_) if !name.contains(DENIED_SUFFIX) => files.push(path),
            Ok(_) | Err(_) => {}
        }
    }
    files
}

/// Returns whether two paths hold equal files, or links with the same target.
fn has_same_content(root: &ScanRoot, path: &Path, other: &Path) -> bool {
    let file = |path: &Path| read(&root.dir, path, MAX_CONFIG).ok();
    let link = |path: &Path| root.dir.read_link_contents(path).ok();
    match link(path) {
        Some(target) => link(other) == Some(target),
        None => file(path).is_some_and(|content| file(other) == Some(content)),
    }
}
