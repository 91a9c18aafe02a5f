//! Protects git repositories in folders that commands may write.
//!
//! Git executes or follows files of a repository: configuration, hooks, rebase lists, pointers to other folders. A
//! command that changes them would run a program outside of the sandbox with the user's next `git status`. So:
//!
//! * Existing files are mounted read-only. The configuration, which ordinary git commands change, is a copy of the
//!   worker's ([`CopiedFile`]); after a command, harmless changes are merged, others are rejected.
//! * Files that a command created are found after its end and made harmless ([`RepositoryGuard::clean_up`]). Without
//!   mounts, this applies to all files.
//! * If the engine is killed, its supervisors do this ([`DeferredCleanup`]); if they are killed too, the next start of
//!   the program does ([`finish_interrupted`]), from a record in the state folder.

mod cleanup;
mod command_paths;
mod followed;
mod git_config;
mod git_words;
mod new_work_trees;
mod scan;
mod watches;
mod write_watch;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptionsExt as _};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::cleanup::{LinkTargets, RootState};
pub use self::followed::{UserGitConfig, followed_by_git, link_targets_within, with_link_targets};
use self::git_config::{GitSetting, PlaceValue, parse};
use self::scan::{FolderRole, GitItems, MAX_CONFIG, ScanDepth, Scanner};
pub use self::write_watch::WriteWatch;
use super::confine::SandboxLevel;
use super::confine::policy::{CopiedFile, LinkedRepositoryAccess, SandboxMode, SandboxPolicy};
use super::protected::absent_paths::AbsentPaths;
use super::stored_path;
use crate::port::lock;
use crate::workspace::{PathResolver, open_canonical, real_path};

/// A folder that is searched for repositories.
struct ScanRoot {
    dir: Dir,
    path: PathBuf,
}

/// A root, and the files that git executed or followed there before the first command.
struct WatchedRoot {
    root: ScanRoot,
    place: FolderRole,
    /// Files that must stay unchanged, where nothing is mounted.
    exact: Vec<PathBuf>,
    /// What this program writes among them.
    own: Vec<PathBuf>,
    scanner: Scanner,
    before: GitItems,
    /// The folders that the items refer to.
    targets: LinkTargets,
    private: Vec<PathBuf>,
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

/// The record of a run, in case it is killed.
#[derive(Serialize, Deserialize)]
struct CleanupRecord {
    #[serde(with = "stored_path")]
    roots: Vec<(PathBuf, FolderRole, Vec<PathBuf>, GitItems)>,
    /// Paths that commands cannot change.
    #[serde(with = "stored_path")]
    mounted: Vec<PathBuf>,
    /// The folders that the original items refer to, in the order of the roots.
    #[serde(default)]
    #[serde(rename = "led", with = "stored_path")]
    targets: Vec<LinkTargets>,
    /// Protected paths that did not exist.
    #[serde(default)]
    absent: AbsentPaths,
    /// What this program writes below protected paths.
    #[serde(default, with = "stored_path")]
    own: Vec<PathBuf>,
    /// Folders that commands may write, and that are not scanned.
    #[serde(default, with = "stored_path")]
    private: Vec<PathBuf>,
    /// How deep the roots are searched, in their order.
    #[serde(default)]
    depths: Vec<ScanDepth>,
}

/// The most repositories whose files are mounted; each takes time at the start of a worker.
const MAX_REPOSITORIES: usize = 100;

/// Folders of dependencies and build outputs, whose repositories change often.
const DEPENDENCY_FOLDERS: [&str; 6] =
    ["node_modules", "target", ".venv", "venv", "vendor", "build"];

/// The folder for records, in the state folder, with a file for each run.
const RECORD_FOLDER: &str = "repositories";

/// How often, and at what interval, a configuration locked by git is tried again.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

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

    /// Returns the policy, extended by the paths protected for git.
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
            self.protect(&path.join(repository));
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

    /// Protects what git runs or follows in the work trees below a folder because a configuration names it. Returns the
    /// work trees.
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

    /// Protects what git runs or follows below a folder when it works in a work tree.
    fn protect_named(&mut self, work_tree: &Path, within: &Path) {
        let found =
            followed_by_git(work_tree, within, &self.policy.user_git, &PathResolver::default());
        self.protect_all(found);
    }

    /// Protects paths, and what they lead to in a folder.
    fn protect_with_links(&mut self, paths: impl Iterator<Item = PathBuf>, within: &Path) {
        let found = with_link_targets(paths, within, &PathResolver::default());
        self.protect_all(found);
    }

    fn protect_all(&mut self, paths: Vec<PathBuf>) {
        let known = &self.policy.protected;
        let new: Vec<_> = paths.into_iter().filter(|path| !known.contains(path)).collect();
        self.policy.protected.extend(new);
    }

    /// Protects what the configuration of one work tree names in another folder that commands may write, and what other
    /// programs obey there. The other work trees of the workspace's repository count as well: a run may be isolated from
    /// the one that the user works in.
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
            // The work tree may be above.
            self.protect_named(&folder, &folder);
            // The user may work in the folder itself, and in one that the run is isolated from.
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

    /// Protects the existing files of a repository.
    fn protect(&mut self, repository: &Path) {
        // Files of a linked work tree belong to it.
        if repository.parent().and_then(Path::file_name) == Some(OsStr::new("worktrees")) {
            return;
        }
        for name in ["config", "config.worktree", "commondir", "hooks"] {
            let path = repository.join(name);
            // It may be below several folders that commands may write.
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
            } else if name == "config" {
                self.copy_config(repository);
            } else {
                self.policy.protected.push(path);
            }
        }
    }

    fn copy_config(&mut self, repository: &Path) {
        let Ok(owner) = Dir::open_ambient_dir(repository, ambient_authority()) else { return };
        let copy = PathBuf::from(self.policy.copied.len().to_string());
        self.policy.copied.push(CopiedFile { file: repository.join("config"), copy });
        self.config_folders.push(owner);
    }

    /// Makes a repository elsewhere writable if the workspace is one of its work trees. Returns the folders to scan.
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
                // Work trees may be in there, too.
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
            (root.path.clone(), *place, exact.clone(), before.clone())
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

    /// Makes harmless what commands created for git. Returns a sentence for each change.
    ///
    /// A mount disappears when a process that has not got it replaces the file. So what is at these paths now, a command
    /// may have written.
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
    pub(super) fn write_copies(&self, copies: &Path) -> Vec<Vec<u8>> {
        let Ok(temp) = Dir::open_ambient_dir(&self.policy.temp, ambient_authority()) else {
            return Vec::new();
        };
        let lent = self.policy.copied.iter().zip(&self.config_folders).map(|(lent, owner)| {
            let content = scan::read(owner, Path::new("config"), MAX_CONFIG).unwrap_or_default();
            if let Err(error) = replace_file(&temp, &copies.join(&lent.copy), &content) {
                log::debug!("{} was not copied: {error}", lent.file.display());
            }
            content
        });
        lent.collect()
    }

    /// Merges the harmless changes that a command made in its copies.
    pub(super) fn merge_copies(&self, copies: &Path, before: &[Vec<u8>]) -> Vec<String> {
        let Ok(temp) = Dir::open_ambient_dir(&self.policy.temp, ambient_authority()) else {
            return Vec::new();
        };
        let mut open = private_folders(&self.policy);
        open.extend(self.policy.writable.iter().filter_map(|path| path.canonicalize().ok()));
        let lent = self.policy.copied.iter().zip(&self.config_folders).zip(before);
        let taken = lent.filter_map(|((lent, owner), old)| {
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

impl WatchedRoot {
    /// Records the files that must stay unchanged.
    fn remember_exact(&mut self, policy: &SandboxPolicy) {
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

    fn clean(
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

/// Returns the folders that commands may write, and that are not scanned.
fn private_folders(policy: &SandboxPolicy) -> Vec<PathBuf> {
    let temp = Some(&policy.temp).filter(|temp| !temp.as_os_str().is_empty());
    let all = policy.caches.store.iter().chain(temp);
    let links = PathResolver::default();
    all.filter_map(|path| links.resolve(path)).collect()
}

/// Replaces a file in a folder that commands may write, whatever is at its path.
fn replace_file(temp: &Dir, folder: &Path, content: &[u8]) -> io::Result<()> {
    temp.create_dir_all(folder)?;
    let new = folder.join(Uuid::now_v7().simple().to_string());
    temp.open_with(&new, cap_std::fs::OpenOptions::new().write(true).create_new(true))?
        .write_all(content)?;
    temp.rename(&new, temp, folder.join("config"))
}

/// Writes a configuration as git does: to a lock file first.
fn merge_config(owner: &Dir, old: &[u8], new: &[u8]) -> io::Result<()> {
    let mut options = cap_std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    let mut attempt = 0;
    let mut lock = loop {
        match owner.open_with("config.lock", &options) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < LOCK_ATTEMPTS =>
            {
                attempt += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => break opened?,
        }
    };
    let write = || {
        if scan::read(owner, Path::new("config"), MAX_CONFIG)? != old {
            return Err(io::Error::other("it was changed meanwhile"));
        }
        lock.write_all(new)?;
        if let Ok(meta) = owner.metadata("config") {
            owner.set_permissions("config.lock", meta.permissions())?;
        }
        // Renaming would remove the mount on the file from every running command and server.
        if in_place(owner, old.len(), new).is_ok() {
            return owner.remove_file("config.lock");
        }
        owner.rename("config.lock", owner, "config")
    };
    let mut write = write;
    write().inspect_err(|_| {
        let _ = owner.remove_file("config.lock");
    })
}

/// Overwrites a configuration in place. It is valid at every moment: the surplus is filled with blank lines before it
/// is cut off.
fn in_place(owner: &Dir, old: usize, new: &[u8]) -> io::Result<()> {
    let mut options = cap_std::fs::OpenOptions::new();
    options.write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut config = owner.open_with("config", &options)?;
    let mut padded = new.to_vec();
    padded.resize(old.max(new.len()), b'\n');
    config.write_all(&padded)?;
    config.set_len(new.len() as u64)
}

/// A repository elsewhere that has the workspace as a work tree.
enum LinkedRepository {
    /// The workspace is a linked work tree, with a folder of its own in a repository.
    WorkTree { own: PathBuf, common: PathBuf },
    /// The workspace is a submodule.
    Submodule(PathBuf),
}

impl LinkedRepository {
    /// Returns the repository, if it refers back to the workspace: a file in the workspace alone could name any folder.
    fn detect(workspace: &Path) -> Option<Self> {
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
        let config = parse(&read_file(&own.join("config"))?)?;
        let mut work_trees = config.iter().filter_map(GitSetting::work_tree);
        let is_known = work_trees
            .any(|path| own.join(path).canonicalize().is_ok_and(|found| found == workspace));
        is_known.then_some(Self::Submodule(own))
    }
}

/// Returns the existing folder or file that a file of git names after a prefix.
fn named_folder(path: &Path, prefix: &str) -> Option<PathBuf> {
    let text = String::from_utf8(read_file(path)?).ok()?;
    let target = text.strip_prefix(prefix)?.trim_end_matches(['\n', '\r']);
    path.parent()?.join(target).canonicalize().ok()
}

/// Returns the paths that git follows in the folder of a linked work tree.
fn in_linked(own: &Path) -> [PathBuf; 3] {
    ["commondir", "config.worktree", "gitdir"].map(|name| own.join(name))
}

/// Returns the folders of other linked work trees in a repository, and the paths of these work trees.
fn others(common: &Path, own: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten();
    let linked = entries.map(|entry| entry.path()).filter(|linked| linked != own);
    let located = linked.filter_map(|linked| {
        let file = String::from_utf8(read_file(&linked.join("gitdir"))?).ok()?;
        let work_tree = linked.join(file.trim_end_matches('\n')).parent()?.to_owned();
        Some((linked, super::confine::policy::resolve_path(&work_tree)?))
    });
    located.unzip()
}

/// Returns the other work trees of the repository of a workspace that is a linked one.
fn linked_work_trees(workspace: &Path) -> Vec<PathBuf> {
    let Some(LinkedRepository::WorkTree { own, common }) = LinkedRepository::detect(workspace)
    else {
        return Vec::new();
    };
    let main = common.file_name().filter(|name| scan::is_git_name(name)).and(common.parent());
    others(&common, &own).1.into_iter().chain(main.map(Path::to_owned)).collect()
}

/// Returns the folder to scan for a further writable path, and how deep: if it is no work tree, it may be a cache of any
/// size.
fn scan_root_for(path: &Path) -> Option<(PathBuf, FolderRole, ScanDepth)> {
    // A command may have put a link there.
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

/// The beginning of the name of a record that is not written to its end.
const UNFINISHED: &str = ".";

fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

impl CleanupRecord {
    /// Writes the record, and returns the file, which is locked while open.
    fn write(&self, path: &Path) -> io::Result<File> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        // No other process finds it before it is locked and whole.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!("{UNFINISHED}{name}"));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.try_lock().map_err(io::Error::from);
        let written = written.and_then(|()| file.write_all(&serde_json::to_vec(self)?));
        // An earlier record of the run stays.
        let written = written.and_then(|()| fs::hard_link(&new, path));
        fs::remove_file(&new)?;
        written.map(|()| file)
    }

    /// Does the cleanup of an interrupted run.
    fn clean_up(self, user: &UserGitConfig, open: impl Fn(&Path) -> Option<Dir>) -> Vec<String> {
        let Self { roots, mounted, targets: led, absent, own, private, depths } = self;
        let led = led.into_iter().map(Some).chain(std::iter::repeat(None));
        let depths = depths.into_iter().chain(std::iter::repeat(ScanDepth::Whole));
        let watched =
            roots.into_iter().zip(led).zip(depths).filter_map(|((watched, led), depth)| {
                let (path, place, exact, before) = watched;
                let root = ScanRoot { dir: open(&path)?, path };
                let led = led.unwrap_or_else(|| cleanup::find_targets(&root, &before));
                let own = own.iter().filter_map(|path| path.strip_prefix(&root.path).ok());
                let own: Vec<PathBuf> = own.map(Path::to_owned).collect();
                Some(WatchedRoot {
                    root,
                    place,
                    exact,
                    own,
                    scanner: Scanner::new(depth),
                    before,
                    targets: led,
                    private: private.clone(),
                })
            });
        let cleaned = watched.flat_map(|mut watched| watched.clean(&mounted, &[], user));
        let renamed = absent.rename_created().into_iter().map(|path| {
            format!("{} is protected; what a command created there was renamed", path.display())
        });
        cleaned.chain(renamed).collect()
    }
}

/// Returns a path for the record of a new run.
pub fn new_record_path(state: &Path) -> PathBuf {
    state.join(RECORD_FOLDER).join(Uuid::now_v7().simple().to_string())
}

/// Makes harmless what commands of killed runs created for git. Returns a sentence for each change.
pub fn finish_interrupted(state: &Path, user: impl FnOnce() -> UserGitConfig) -> Vec<String> {
    let user = LazyCell::new(user);
    let entries = fs::read_dir(state.join(RECORD_FOLDER)).into_iter().flatten().flatten();
    let is_whole = |entry: &fs::DirEntry| !is_unfinished(&entry.file_name());
    let finished = entries.filter(is_whole).flat_map(|entry| {
        let path = entry.path();
        let left = File::open(&path).and_then(|file| match file.try_lock() {
            Ok(()) => serde_json::from_reader::<_, CleanupRecord>(io::BufReader::new(&file))
                .map(Some)
                .map_err(Into::into),
            // The run is still active.
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        // A command may have put a link in its place meanwhile.
        let open = |path: &Path| open_canonical(path).ok();
        let notices = match left {
            Ok(None) => return Vec::new(),
            Ok(Some(record)) => record.clean_up(&user, open),
            // The run has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => vec![format!("{} can't be read: {error}", path.display())],
        };
        let _ = fs::remove_file(&path);
        notices
    });
    finished.collect()
}

/// What a supervisor needs to clean up after a killed engine.
#[cfg(target_os = "linux")]
pub(super) struct DeferredCleanup {
    records: Dir,
    name: OsString,
    roots: Vec<(PathBuf, Dir)>,
}

#[cfg(target_os = "linux")]
impl DeferredCleanup {
    /// Opens all folders; must be called before mounting.
    pub(super) fn open(policy: &SandboxPolicy) -> Option<Self> {
        let marker = policy.record_path.as_ref()?;
        let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority());
        let folder = marker.parent()?;
        // The engine writes its record before the first command.
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let roots = policy.repositories.iter();
        let roots = roots.filter_map(|path| Some((path.clone(), open_canonical(path).ok()?)));
        Some(Self {
            records: open(folder).ok()?,
            name: marker.file_name()?.to_owned(),
            roots: roots.collect(),
        })
    }

    /// Does the cleanup that the engine would have done.
    pub(super) fn run(self) {
        let Ok(file) = self.records.open(&self.name) else { return };
        let file = file.into_std();
        // Another supervisor may be doing it.
        if file.lock().is_err() || self.records.symlink_metadata(&self.name).is_err() {
            return;
        }
        let record = serde_json::from_reader::<_, CleanupRecord>(io::BufReader::new(&file));
        if let Ok(record) = record {
            // The user's configuration stays with the engine: it may hold secrets.
            record.clean_up(&UserGitConfig::default(), |path| {
                let (_, dir) = self.roots.iter().find(|(root, _)| root == path)?;
                dir.try_clone().ok()
            });
        }
        let _ = self.records.remove_file(&self.name);
    }
}

/// Reads a regular file, following links. Opening a named pipe would block.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let path = path.canonicalize().ok()?;
    let folder = Dir::open_ambient_dir(path.parent()?, ambient_authority()).ok()?;
    scan::read(&folder, Path::new(path.file_name()?), MAX_CONFIG).ok()
}
