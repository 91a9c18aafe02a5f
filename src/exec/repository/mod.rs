//! Protects git repositories in folders that commands may write.
//!
//! Git executes or follows files of a repository: configuration, hooks, rebase lists, pointers to other folders. By
//! changing them, a command could run a program outside the sandbox with the user's next `git status`. So:
//!
//! * Existing files are mounted read-only. The configuration, which ordinary git commands change, is replaced by a copy
//!   for each worker ([`CopiedFile`]); after a command, harmless changes are merged, others are rejected.
//! * Files that a command has created are found after its end and made harmless ([`RepositoryGuard::clean_up`]).
//!   Without mounts, this applies to all files.
//! * If the engine is killed, its supervisors do this ([`DeferredCleanup`]); if they are killed too, the next start of
//!   the program does ([`finish_interrupted`]), by a record in the state folder.

mod cleanup;
mod cleanup_record;
mod command_paths;
mod config_merge;
mod followed;
mod git_config;
mod git_words;
mod linked_repository;
mod new_work_trees;
mod scan;
mod watched_root;
mod watches;
mod write_watch;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

#[cfg(target_os = "linux")]
pub(super) use self::cleanup_record::DeferredCleanup;
use self::cleanup_record::{CleanupRecord, RecordedRoot};
pub use self::cleanup_record::{finish_interrupted, new_record_path};
use self::config_merge::{merge_config, replace_file};
pub use self::followed::{UserGitConfig, followed_by_git, link_targets_within, with_link_targets};
use self::git_config::PlaceValue;
pub(crate) use self::git_config::parse_git_config;
use self::linked_repository::{LinkedRepository, in_linked, linked_work_trees, others};
use self::scan::{FolderRole, GitItems, MAX_CONFIG, ScanDepth, Scanner};
use self::watched_root::WatchedRoot;
pub use self::write_watch::WriteWatch;
use super::confine::SandboxLevel;
use super::confine::policy::{CopiedFile, LinkedRepositoryAccess, SandboxMode, SandboxPolicy};
use super::protected::absent_paths::AbsentPaths;
use crate::port::lock;
use crate::workspace::{LinkResolver, open_canonical, real_path};

/// A folder that is searched for repositories.
struct ScanRoot {
    dir: Dir,
    path: PathBuf,
}

/// Protects the repositories that commands may write.
pub(super) struct RepositoryGuard {
    policy: SandboxPolicy,
    roots: Mutex<Vec<WatchedRoot>>,
    /// The folders of the copied configurations.
    config_folders: Vec<Dir>,
    /// Whether existing files are mounted read-only; set by the first worker.
    is_mounted: OnceLock<bool>,
    record_file: OnceLock<Option<File>>,
}

/// The maximum number of repositories whose files are mounted; each delays the start of a worker.
const MAX_REPOSITORIES: usize = 100;

/// Folders of dependencies and build outputs; their repositories change often.
const DEPENDENCY_FOLDERS: [&str; 6] =
    ["node_modules", "target", ".venv", "venv", "vendor", "build"];

impl RepositoryGuard {
    /// Finds the repositories that commands with this policy may write.
    pub(super) fn new(policy: &SandboxPolicy) -> Self {
        let mut watch = Self {
            policy: policy.clone(),
            roots: Mutex::default(),
            config_folders: Vec::new(),
            is_mounted: OnceLock::new(),
            record_file: OnceLock::new(),
        };
        if policy.mode != SandboxMode::WorkspaceWrite {
            return watch;
        }
        let whole = |(path, place): (PathBuf, FolderRole)| (path, place, ScanDepth::Whole);
        let mut roots = vec![whole((policy.workspace.clone(), FolderRole::WorkTree))];
        roots.extend(watch.add_linked_repository().into_iter().map(whole));
        roots.extend(policy.writable.iter().filter_map(|path| scan_root_for(path)));
        let mut work_trees = vec![policy.workspace.clone()];
        for (path, place, depth) in roots {
            work_trees.extend(watch.add(&path, place, depth));
        }
        if !policy.writable.is_empty() {
            watch.protect_named_elsewhere(&work_trees);
        }
        watch
    }

    /// Returns the policy, including the paths protected for git.
    pub(super) fn policy(&self) -> &SandboxPolicy {
        &self.policy
    }

    /// Adds a folder to search. Returns the work trees in it.
    fn add(&mut self, path: &Path, place: FolderRole, depth: ScanDepth) -> Vec<PathBuf> {
        let Ok(path) = path.canonicalize() else { return Vec::new() };
        let Ok(dir) = open_canonical(&path) else { return Vec::new() };
        let mut scanner = Scanner::watching(depth).with_names(self.policy.obeyed.clone());
        let (before, repositories) = scanner.scan(&dir, place);
        if let ScanDepth::Levels(levels) = scanner.depth() {
            log::warn!(
                "{} in sandbox.writable has so many folders that what is more than {levels} levels below it is not \
                 searched for repositories: a command could make git run something there; name folders inside of it instead",
                path.display()
            );
        }
        for repository in
            repositories.iter().filter(|path| !is_dependency(path)).take(MAX_REPOSITORIES)
        {
            self.protect(&path.join(repository), &path);
        }
        if place == FolderRole::WorkTree {
            // The repository of the workspace itself.
            let own = path.join(".git");
            match fs::symlink_metadata(&own) {
                Ok(meta) if meta.is_file() => self.policy.protected.push(own),
                Ok(meta) if meta.is_symlink() => self.policy.links.push(own),
                Ok(_) | Err(_) => {}
            }
        }
        let work_trees = self.protect_followed(&path, &before, &repositories);
        let obeyed = scanner.named().filter(|path| !is_dependency(path)).take(MAX_REPOSITORIES);
        let obeyed = obeyed.map(|found| path.join(found)).collect::<Vec<_>>().into_iter();
        let missing = work_trees
            .iter()
            .flat_map(|work_tree| self.policy.obeyed.iter().map(move |name| work_tree.join(name)));
        let missing: Vec<PathBuf> = missing.collect();
        self.protect_with_links(obeyed.chain(missing), &path);
        self.policy.repositories.push(path.clone());
        let root = ScanRoot { dir, path };
        let led = cleanup::find_targets(&root, &before);
        let roots = self.roots.get_mut().unwrap_or_else(PoisonError::into_inner);
        roots.push(WatchedRoot {
            root,
            place,
            exact: Vec::new(),
            own: Vec::new(),
            scanner,
            before,
            targets: led,
            private: private_folders(&self.policy),
        });
        work_trees
    }

    /// Protects the files in the work trees below a folder that git runs or follows because a configuration names them.
    /// Returns the work trees.
    fn protect_followed(
        &mut self,
        root: &Path,
        items: &GitItems,
        repositories: &[PathBuf],
    ) -> Vec<PathBuf> {
        let named = items.keys().chain(repositories);
        let named = named.filter(|path| path.file_name().is_some_and(scan::is_git_name));
        let work_trees = named.filter_map(|path| Some(root.join(path.parent()?)));
        let work_trees: Vec<PathBuf> = work_trees.take(MAX_REPOSITORIES).collect();
        work_trees.iter().for_each(|work_tree| self.protect_named(work_tree, root));
        work_trees
    }

    /// Protects the files below a folder that git runs or follows when it works in a work tree.
    fn protect_named(&mut self, work_tree: &Path, within: &Path) {
        let found =
            followed_by_git(work_tree, within, &self.policy.user_git, &LinkResolver::default());
        self.protect_all(found);
    }

    /// Protects paths, and the targets of their links within a folder.
    fn protect_with_links(&mut self, paths: impl Iterator<Item = PathBuf>, within: &Path) {
        let found = with_link_targets(paths, within, &LinkResolver::default());
        self.protect_all(found);
    }

    fn protect_all(&mut self, paths: Vec<PathBuf>) {
        let known = &self.policy.protected;
        let new: Vec<_> = paths.into_iter().filter(|path| !known.contains(path)).collect();
        self.policy.protected.extend(new);
    }

    /// Protects paths in other writable folders that the configuration of a work tree names, and files there that other
    /// programs obey. The other work trees of the workspace's repository count as well: the user may work in one of
    /// them while the run is isolated from it.
    fn protect_named_elsewhere(&mut self, work_trees: &[PathBuf]) {
        let workspace = self.policy.workspace.clone();
        let siblings = linked_work_trees(&workspace);
        let work_trees = work_trees.iter().chain(&siblings).take(MAX_REPOSITORIES);
        let work_trees: Vec<&PathBuf> = work_trees.collect();
        let writable = self.policy.writable.iter().filter_map(|path| path.canonicalize().ok());
        let folders: Vec<PathBuf> = writable.chain([workspace.clone()]).collect();
        for folder in folders {
            let elsewhere = work_trees.iter().filter(|work_tree| !work_tree.starts_with(&folder));
            elsewhere.for_each(|work_tree| self.protect_named(work_tree, &folder));
            // The top of the work tree may be above.
            self.protect_named(&folder, &folder);
            // The user may work in the folder itself, or in a work tree from which the run is isolated.
            let inside = work_trees.iter().copied().chain([&folder]);
            let inside = inside.filter(|path| path.starts_with(&folder) && **path != workspace);
            let inside: BTreeSet<&PathBuf> = inside.collect();
            let obeyed = inside.iter().flat_map(|work_tree| {
                self.policy.obeyed.iter().map(move |name| work_tree.join(name))
            });
            let obeyed: Vec<PathBuf> = obeyed.collect();
            self.protect_with_links(obeyed.into_iter(), &folder);
        }
    }

    /// Protects the existing files of a repository in a root. A configuration that commands must not read or write gets
    /// no copy.
    fn protect(&mut self, repository: &Path, root: &Path) {
        // The files of a linked work tree belong to that work tree.
        if repository.parent().and_then(Path::file_name) == Some(OsStr::new("worktrees")) {
            return;
        }
        for name in ["config", "config.worktree", "commondir", "hooks"] {
            let path = repository.join(name);
            // The repository may be below several folders that commands may write.
            let policy = &self.policy;
            let is_known = policy.copied.iter().any(|copied| copied.file == path)
                || policy.protected.contains(&path)
                || policy.links.contains(&path);
            if is_known {
                continue;
            }
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_symlink() {
                // Its target is protected as well.
                self.policy.protected.extend(path.canonicalize());
                self.policy.links.push(path);
            } else if name == "config" && !self.is_guarded(&path, root) {
                self.copy_config(repository);
            } else {
                self.policy.protected.push(path);
            }
        }
    }

    /// Returns whether a path, or a folder around it in a root, is hidden or protected.
    fn is_guarded(&self, path: &Path, root: &Path) -> bool {
        let mut around = path.ancestors().take_while(|folder| *folder != root);
        around.any(|folder| {
            self.policy.hidden.iter().chain(&self.policy.protected).any(|guarded| guarded == folder)
        })
    }

    fn copy_config(&mut self, repository: &Path) {
        let Ok(owner) = Dir::open_ambient_dir(repository, ambient_authority()) else { return };
        let copy = PathBuf::from(self.policy.copied.len().to_string());
        self.policy.copied.push(CopiedFile { file: repository.join("config"), copy });
        self.config_folders.push(owner);
    }

    /// Makes a repository elsewhere writable if it has the workspace as a work tree. Returns the folders to scan.
    fn add_linked_repository(&mut self) -> Vec<(PathBuf, FolderRole)> {
        let workspace = self.policy.workspace.clone();
        let Some(found) = LinkedRepository::detect(&workspace) else { return Vec::new() };
        match found {
            LinkedRepository::WorkTree { own, common } => {
                let (linked, work_trees) = others(&common, &own);
                self.policy.protected.extend(in_linked(&own));
                if let LinkedRepositoryAccess::Branches(branches) = &self.policy.linked_repository {
                    let logs = Path::new("logs").join(branches);
                    let refs =
                        [branches, &logs, Path::new("objects")].map(|part| common.join(part));
                    let refs = refs.into_iter().filter(|part| part.is_dir());
                    let refs = refs.map(|part| (part, FolderRole::Inside)).collect::<Vec<_>>();
                    let parts = ["objects", "lfs", "reftable"].map(Path::new);
                    let parts = parts.into_iter().chain([branches.as_path(), &logs]);
                    let parts = parts.map(|part| common.join(part)).filter(|part| part.is_dir());
                    let parts = parts.map(|part| real_path(&part));
                    let parts: Vec<PathBuf> = parts.collect();
                    self.policy.writable.extend(parts.into_iter().chain([own.clone()]));
                    return refs.into_iter().chain([(own, FolderRole::Repository)]).collect();
                }
                // As in a main work tree, git creates files at the top of the repository: locks, packed references.
                if !work_trees.iter().chain([&workspace]).any(|path| path.starts_with(&common)) {
                    let is_outside = |(_, path): &(_, &PathBuf)| !path.starts_with(&workspace);
                    let outside =
                        linked.iter().zip(&work_trees).filter(is_outside).take(MAX_REPOSITORIES);
                    let followed = outside.flat_map(|(linked, _)| in_linked(linked));
                    let there = followed.filter(|path| path.symlink_metadata().is_ok());
                    self.policy.protected.extend(there);
                    self.policy.writable.push(common.clone());
                    return vec![(common, FolderRole::Repository)];
                }
                // The repository may contain work trees.
                let names = ["objects", "refs", "logs"];
                let parts: Vec<_> =
                    names.iter().map(|name| real_path(&common.join(name))).collect();
                self.policy.writable.extend(parts.iter().cloned().chain([own.clone()]));
                self.copy_config(&common);
                let parts = parts.into_iter().map(|path| (path, FolderRole::Inside));
                parts.chain([(own, FolderRole::Repository)]).collect()
            }
            LinkedRepository::Submodule(own) => {
                self.policy.writable.push(own.clone());
                vec![(own, FolderRole::Repository)]
            }
        }
    }

    /// Begins a run whose commands are confined at this level.
    pub(super) fn begin(&self, level: SandboxLevel) {
        let is_mounted = *self.is_mounted.get_or_init(|| {
            let is_mounted = level == SandboxLevel::Namespaces;
            if !is_mounted {
                let mut roots = lock(&self.roots);
                roots.iter_mut().for_each(|watched| watched.remember_exact(&self.policy));
            }
            is_mounted
        });
        self.record_file.get_or_init(|| {
            let marker = self.policy.record_path.as_ref()?;
            match self.record(is_mounted).write(marker) {
                Ok(file) => Some(file),
                Err(error) => {
                    log::warn!(
                        "{} was not written: {error}; if this process is killed, what commands made for git stays",
                        marker.display()
                    );
                    None
                }
            }
        });
    }

    fn record(&self, is_mounted: bool) -> CleanupRecord {
        let roots = lock(&self.roots);
        let root = |watched: &WatchedRoot| {
            let WatchedRoot { root, place, exact, before, .. } = watched;
            RecordedRoot(root.path.clone(), *place, exact.clone(), before.clone())
        };
        CleanupRecord {
            roots: roots.iter().map(root).collect(),
            mounted: if is_mounted { read_only_paths(&self.policy) } else { Vec::new() },
            targets: roots.iter().map(|watched| watched.targets.clone()).collect(),
            absent: AbsentPaths::new(&self.policy),
            own: self.policy.exposed_state(),
            private: private_folders(&self.policy),
            depths: roots.iter().map(|watched| watched.scanner.depth()).collect(),
        }
    }

    /// Makes files harmless that commands created for git. Returns a sentence for each change.
    ///
    /// A mount disappears when a process outside replaces the file. So a command may have written the files now at the
    /// paths in `uncovered`.
    pub(super) fn clean_up(&self, uncovered: &[PathBuf]) -> Vec<String> {
        let mounted = match self.is_mounted.get() {
            Some(true) => read_only_paths(&self.policy),
            Some(false) => Vec::new(),
            None => return Vec::new(),
        };
        let mut roots = lock(&self.roots);
        let user = &self.policy.user_git;
        roots.iter_mut().flat_map(|watched| watched.clean(&mounted, uncovered, user)).collect()
    }

    /// Gives a worker copies of the current configurations.
    pub(super) fn write_copies(&self, copies: &Path) -> ConfigCopies {
        let Ok(temp) = Dir::open_ambient_dir(&self.policy.temp, ambient_authority()) else {
            return ConfigCopies::default();
        };
        let lent = self.policy.copied.iter().zip(&self.config_folders).map(|(lent, owner)| {
            let content = scan::read(owner, Path::new("config"), MAX_CONFIG).unwrap_or_default();
            let copied = replace_file(&temp, &copies.join(&lent.copy), &content);
            copied
                .inspect_err(|error| log::debug!("{} was not copied: {error}", lent.file.display()))
                .map(|()| content)
                .ok()
        });
        ConfigCopies(lent.collect())
    }

    /// Merges the harmless changes that a command made in its copies.
    pub(super) fn merge_copies(&self, copies: &Path, before: &ConfigCopies) -> Vec<String> {
        let Ok(temp) = Dir::open_ambient_dir(&self.policy.temp, ambient_authority()) else {
            return Vec::new();
        };
        let mut open = private_folders(&self.policy);
        open.extend(self.policy.writable.iter().filter_map(|path| path.canonicalize().ok()));
        let lent = self.policy.copied.iter().zip(&self.config_folders).zip(&before.0);
        let taken = lent.filter_map(|((lent, owner), old)| {
            // Without a new copy, the command had an earlier copy, or none.
            let old = old.as_ref()?;
            let new = scan::read(&temp, &copies.join(&lent.copy).join("config"), MAX_CONFIG).ok()?;
            if new == *old {
                return None;
            }
            let is_fine = |value: PlaceValue<'_>| match value {
                PlaceValue::WorkTree(_) => false,
                PlaceValue::Remote(address) => lent.file.ancestors().skip(1).take(2).all(|folder| {
                    !cleanup::leads_into(address, folder, &open)
                }),
            };
            let why = cleanup::refusal_reason(old, &new, &is_fine).or_else(|| {
                let taken = merge_config(owner, old, &new);
                taken.err().map(|error| error.to_string())
            })?;
            Some(format!(
                "sandbox denied: changes of the command in {} were not merged: {why}; the user can make \
                 them, or allow them with --sandbox off",
                lent.file.display()
            ))
        });
        taken.collect()
    }
}

/// The configurations that were copied for a command; `None` for each that could not be copied.
#[derive(Default)]
pub(super) struct ConfigCopies(Vec<Option<Vec<u8>>>);

impl Drop for RepositoryGuard {
    fn drop(&mut self) {
        let notices = self.clean_up(&[]);
        for sentence in notices {
            log::warn!("{sentence}");
        }
        if let (Some(Some(_)), Some(marker)) = (self.record_file.get(), &self.policy.record_path) {
            let _ = fs::remove_file(marker);
        }
    }
}

/// Returns the read-only mounts of a policy.
fn read_only_paths(policy: &SandboxPolicy) -> Vec<PathBuf> {
    let lent = policy.copied.iter().map(|lent| &lent.file);
    policy
        .protected
        .iter()
        .chain(&policy.hidden)
        .chain(&policy.links)
        .chain(lent)
        .cloned()
        .collect()
}

/// Returns the folders that commands may write, but that are not scanned.
fn private_folders(policy: &SandboxPolicy) -> Vec<PathBuf> {
    let temp = Some(&policy.temp).filter(|temp| !temp.as_os_str().is_empty());
    let all = policy.caches.store.iter().chain(temp);
    let links = LinkResolver::default();
    all.filter_map(|path| links.resolve(path)).collect()
}

/// Returns the folder to scan for a further writable path, and the depth: outside a work tree, it may be a cache of any
/// size.
fn scan_root_for(path: &Path) -> Option<(PathBuf, FolderRole, ScanDepth)> {
    // A command may have replaced the path by a link.
    let path = path.canonicalize().ok().filter(|real| real == path)?;
    if path.ancestors().any(|folder| folder.file_name().is_some_and(scan::is_git_name)) {
        let place =
            if path.join("HEAD").exists() { FolderRole::Repository } else { FolderRole::Inside };
        return Some((path, place, ScanDepth::Whole));
    }
    let is_work_tree = path.join(".git").exists();
    let depth = if is_work_tree { ScanDepth::Whole } else { ScanDepth::Bounded };
    Some((path, FolderRole::WorkTree, depth))
}

fn is_dependency(path: &Path) -> bool {
    path.iter().any(|name| DEPENDENCY_FOLDERS.iter().any(|other| name == *other))
}

/// Reads a regular file, following links. Opening a named pipe would block.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let path = path.canonicalize().ok()?;
    let folder = Dir::open_ambient_dir(path.parent()?, ambient_authority()).ok()?;
    scan::read(&folder, Path::new(path.file_name()?), MAX_CONFIG).ok()
}
