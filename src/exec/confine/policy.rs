//! The policy for confining commands.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SandboxLevel;
use crate::exec::egress::AllowedHosts;
use crate::exec::package_caches::PackageCaches;
use crate::exec::repository::UserGitConfig;
use crate::exec::stored_path;
use crate::types::word_enum;
use crate::workspace::LinkResolver;

/// The policy for confining commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// The paths that commands may write.
    pub mode: SandboxMode,
    /// The network access of commands.
    pub network: NetworkAccess,
    /// The hosts that commands may reach with [`NetworkAccess::List`].
    pub allowed_hosts: AllowedHosts,
    /// The behavior if the system cannot enforce the policy.
    pub need: SandboxRequirement,
    /// The highest level to try.
    pub ceiling: SandboxLevel,
    /// The workspace.
    #[serde(with = "stored_path")]
    pub workspace: PathBuf,
    /// A private folder for temporary files.
    #[serde(with = "stored_path")]
    pub temp: PathBuf,
    /// The owner of `temp`, which creates it and removes it at the end.
    pub temp_owner: TempOwner,
    /// Further writable paths.
    #[serde(with = "stored_path")]
    pub writable: Vec<PathBuf>,
    /// The caches of package managers: those of the user are readable, private ones writable.
    pub caches: PackageCaches,
    /// Paths in writable folders that commands may not write.
    #[serde(with = "stored_path")]
    pub protected: Vec<PathBuf>,
    /// Paths below protected ones that this program writes while commands run. They are not restored where mounts are
    /// not available.
    #[serde(with = "stored_path")]
    pub own_state: Vec<PathBuf>,
    /// Paths that commands may neither read nor write.
    #[serde(with = "stored_path")]
    pub hidden: Vec<PathBuf>,
    /// Hidden files whose parts that are not secret commands can read, if the system can show them.
    pub redacted: Vec<RedactedFile>,
    /// Readable paths that would otherwise be hidden.
    #[serde(with = "stored_path")]
    pub readable: Vec<PathBuf>,
    /// Folders, without links, that commands may read although a folder around them is hidden.
    #[serde(with = "stored_path")]
    pub visible: Vec<PathBuf>,
    /// Limits of resources.
    pub limits: ResourceLimits,
    /// Symbolic links that commands may not replace.
    #[serde(with = "stored_path")]
    pub links: Vec<PathBuf>,
    /// Files that are replaced by a copy.
    pub copied: Vec<CopiedFile>,
    /// The folder for copies, relative to `temp`; each worker has its own.
    #[serde(with = "stored_path")]
    pub copies: PathBuf,
    /// Folders in which repositories of git are checked.
    #[serde(with = "stored_path")]
    pub repositories: Vec<PathBuf>,
    /// Access to the repository if it is elsewhere and has the workspace as a linked work tree; used by the engine
    /// alone.
    #[serde(skip)]
    pub linked_repository: LinkedRepositoryAccess,
    /// The user's own git configuration; used by the engine alone.
    #[serde(skip)]
    pub user_git: UserGitConfig,
    /// The names of files that other programs obey in a folder that the user works in; used by the engine alone.
    #[serde(skip)]
    pub obeyed: Vec<OsString>,
    /// The path of the cleanup record, which is used if the engine is killed.
    #[serde(with = "stored_path")]
    pub record_path: Option<PathBuf>,
}

/// A hidden file with secrets, and its other text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactedFile {
    /// The file.
    #[serde(with = "stored_path")]
    pub file: PathBuf,
    /// The text that commands read in place of the file.
    pub text: String,
}

/// A file replaced by a copy that commands may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// The original.
    #[serde(with = "stored_path")]
    pub file: PathBuf,
    /// The folder of the copy, relative to the folder for copies.
    #[serde(with = "stored_path")]
    pub copy: PathBuf,
}

/// Write access to a repository elsewhere that has the workspace as a linked work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkedRepositoryAccess {
    /// Everything that git writes, as in a main work tree, except for files that it executes or follows.
    #[default]
    Shared,
    /// Objects, files that belong to this work tree alone, and the branches below this folder of the repository.
    Branches(PathBuf),
}

/// The owner of the folder for temporary files, which creates it and removes it at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TempOwner {
    /// The caller.
    #[default]
    Caller,
    /// The supervisors: the first one creates the folder, and those that lose their engine remove it.
    Supervisors,
}

word_enum! {
    /// The paths that commands may write.
    #[derive(Default)]
    pub enum SandboxMode {
        /// Temporary files only.
        ReadOnly = "read-only",
        /// The workspace, temporary files, and the writable paths of the policy.
        #[default]
        WorkspaceWrite = "workspace-write",
        /// Everything that the user may write.
        Off = "off",
    }
}

word_enum! {
    /// The network access of commands.
    #[derive(Default)]
    pub enum NetworkAccess {
        /// The loopback interface only.
        Off = "off",
        /// The hosts of a list, through a proxy.
        List = "list",
        /// Unrestricted.
        #[default]
        On = "on",
    }
}

/// The behavior if the system cannot enforce the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxRequirement {
    /// Commands are confined as far as possible, and gaps are reported.
    #[default]
    Preferred,
    /// Commands are not started.
    Required,
}

/// Limits of a command's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The maximum size of a written file, in bytes.
    pub file_size: Option<u64>,
    /// The maximum number of open files of a process.
    pub open_files: Option<u64>,
    /// The maximum number of processes and threads.
    pub processes: Option<u64>,
    /// The maximum memory of all processes of a command together, in bytes.
    pub memory: Option<u64>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { file_size: Some(16 << 30), open_files: None, processes: None, memory: None }
    }
}

impl SandboxPolicy {
    /// Returns a policy that confines nothing.
    pub fn off(workspace: impl Into<PathBuf>) -> Self {
        Self {
            mode: SandboxMode::Off,
            workspace: workspace.into(),
            temp: std::env::temp_dir(),
            ..Self::default()
        }
    }

    /// Returns the paths that commands may write in a mode other than [`SandboxMode::Off`], without private caches.
    pub(in crate::exec) fn writable_roots(&self) -> Vec<PathBuf> {
        let mut roots = vec![self.temp.clone()];
        if self.mode == SandboxMode::WorkspaceWrite {
            roots.push(self.workspace.clone());
            roots.extend(self.writable.iter().cloned());
        }
        roots
    }

    /// Returns the state paths of this program that commands could write, with links resolved.
    pub(in crate::exec) fn exposed_state(&self) -> Vec<PathBuf> {
        let folders = [&self.workspace].into_iter().chain(&self.writable);
        let folders: Vec<_> = folders.filter_map(|path| resolve_path(path)).collect();
        let own = self.own_state.iter().filter_map(|path| resolve_path(path));
        own.filter(|path| folders.iter().any(|folder| path.starts_with(folder))).collect()
    }

    /// Returns whether the policy confines nothing.
    pub fn is_off(&self) -> bool {
        self.mode == SandboxMode::Off && self.network == NetworkAccess::On
    }
}

/// Returns an absolute path without links; `None` if a link leads out of these folders, whose own paths have no links.
pub fn resolve_within(path: &Path, folders: &[PathBuf]) -> Option<PathBuf> {
    let (mut at, links) = (PathBuf::new(), LinkResolver::default());
    for part in path.components() {
        let next = match part {
            Component::Normal(name) => at.join(name),
            Component::ParentDir => at.parent().unwrap_or(Path::new("/")).to_owned(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => at.join(part),
        };
        let target = links.resolve(&next).unwrap_or_else(|| next.clone());
        let is_link = matches!(part, Component::Normal(_)) && target != next;
        let is_left = |folder: &PathBuf| at.starts_with(folder) && !target.starts_with(folder);
        if is_link && folders.iter().any(is_left) {
            return None;
        }
        at = target;
    }
    Some(at)
}

/// Resolves links in a path. The last component need not exist.
pub fn resolve_path(path: &Path) -> Option<PathBuf> {
    LinkResolver::default().resolve(path)
}
