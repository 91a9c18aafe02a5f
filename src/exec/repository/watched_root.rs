//! A folder whose repositories are watched while commands run.

use std::path::{Path, PathBuf};

use super::cleanup::{self, LinkTargets, RootState};
use super::followed::UserGitConfig;
use super::scan::{FolderRole, GitItems, Scanner};
use super::{ScanRoot, new_work_trees};
use crate::exec::confine::policy::SandboxPolicy;

/// A root, and the files below it that git executed or followed before the first command.
pub(super) struct WatchedRoot {
    pub(super) root: ScanRoot,
    pub(super) place: FolderRole,
    /// Files that must stay unchanged, if nothing is mounted.
    pub(super) exact: Vec<PathBuf>,
    /// Paths among them that this program writes.
    pub(super) own: Vec<PathBuf>,
    pub(super) scanner: Scanner,
    pub(super) before: GitItems,
    /// The folders that the items refer to.
    pub(super) targets: LinkTargets,
    pub(super) private: Vec<PathBuf>,
}

impl WatchedRoot {
    /// Records the files that must stay unchanged.
    pub(super) fn remember_exact(&mut self, policy: &SandboxPolicy) {
        let Self { root, exact, own, before, .. } = self;
        let state = policy.exposed_state();
        own.extend(
            state.iter().filter_map(|path| path.strip_prefix(&root.path).ok()).map(Path::to_owned),
        );
        let inside = policy.protected.iter().filter_map(|path| path.strip_prefix(&root.path).ok());
        let inside = inside.filter(|path| !path.as_os_str().is_empty());
        exact.extend(inside.filter(|path| !before.contains_key(*path)).map(Path::to_owned));
        // Missing files are handled separately.
        exact.retain(|path| root.dir.symlink_metadata(path).is_ok());
        exact.iter().for_each(|path| cleanup::exact_items(&root.dir, path, own, before));
    }

    pub(super) fn clean(
        &mut self,
        mounted: &[PathBuf],
        uncovered: &[PathBuf],
        user: &UserGitConfig,
    ) -> Vec<String> {
        let Self { root, place, exact, own, scanner, before, targets: led, private } = self;
        let (mut now, repositories) = scanner.scan(&root.dir, *place);
        let work_trees = new_work_trees::work_trees_of(now.keys().chain(&repositories));
        exact.iter().for_each(|path| cleanup::exact_items(&root.dir, path, own, &mut now));
        let is_left = |path: &Path| {
            let path = root.path.join(path);
            let is_below = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
            is_below(mounted) && !is_below(uncovered)
        };
        let is_repository = |path: &Path| scanner.is_repository(path);
        let found = RootState {
            before,
            led,
            now: &now,
            is_read_only: &is_left,
            is_repository: &is_repository,
            private,
        };
        let mut notices = cleanup::clean_root(root, &found);
        notices.extend(new_work_trees::rename_followed(root, before, &work_trees, user));
        notices
    }
}
