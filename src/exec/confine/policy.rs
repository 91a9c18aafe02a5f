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

/// How commands are confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// What commands may write.
    pub mode: SandboxMode,
    /// The network that they may use.
    pub network: NetworkAccess,
    /// The hosts that they may reach with [`NetworkAccess::List`].
    pub allowed_hosts: AllowedHosts,
    /// What happens if the system cannot enforce the policy.
    pub need: SandboxRequirement,
    /// The highest level to try.
    pub ceiling: SandboxLevel,
    /// The workspace.
    #[serde(with = "stored_path")]
    pub workspace: PathBuf,
    /// A private folder for temporary files.
    #[serde(with = "stored_path")]
    pub temp: PathBuf,
    /// Who creates that folder and removes it at the end.
    pub temp_owner: TempOwner,
    /// Further writable paths.
    #[serde(with = "stored_path")]
    pub writable: Vec<PathBuf>,
    /// The caches of package managers: those of the user are readable, private ones writable.
    pub caches: PackageCaches,
    /// Paths in writable folders that they may not write.
    #[serde(with = "stored_path")]
    pub protected: Vec<PathBuf>,
    /// Paths below protected ones that this program writes while commands run. Where nothing is mounted, they are not
    /// restored.
    #[serde(with = "stored_path")]
    pub own_state: Vec<PathBuf>,
    /// Paths that they may neither read nor write.
    #[serde(with = "stored_path")]
    pub hidden: Vec<PathBuf>,
    /// Hidden files of which commands read what is no secret, where the system can show it.
    pub redacted: Vec<RedactedFile>,
    /// Readable paths among those that would be hidden.
    #[serde(with = "stored_path")]
    pub readable: Vec<PathBuf>,
    /// Folders, without links, that they may read although a hidden one is around them.
    #[serde(with = "stored_path")]
    pub visible: Vec<PathBuf>,
    /// Limits of resources.
    pub limits: ResourceLimits,
    /// Symbolic links that they may not replace.
    #[serde(with = "stored_path")]
    pub links: Vec<PathBuf>,
    /// Files replaced by a copy.
    pub copied: Vec<CopiedFile>,
    /// The folder for copies, in that for temporary files, one for each worker.
    #[serde(with = "stored_path")]
    pub copies: PathBuf,
    /// Folders in which repositories of git are checked.
    #[serde(with = "stored_path")]
    pub repositories: Vec<PathBuf>,
    /// What they may write of the repository, if it is elsewhere and the workspace is one of its linked work trees; for the
    /// engine alone.
    #[serde(skip)]
    pub linked_repository: LinkedRepositoryAccess,
    /// The user's own configuration of git; for the engine alone.
    #[serde(skip)]
    pub user_git: UserGitConfig,
    /// The names of what other programs obey in a folder that the user works in; for the engine alone.
    #[serde(skip)]
    pub obeyed: Vec<OsString>,
    /// The record of pending cleanup, in case the engine is killed.
    #[serde(with = "stored_path")]
    pub record_path: Option<PathBuf>,
}

/// A hidden file with secrets, and what else is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactedFile {
    /// The file.
    #[serde(with = "stored_path")]
    pub file: PathBuf,
    /// The text that commands read in its place.
    pub text: String,
}

/// A file replaced by a copy that commands may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// The original.
    #[serde(with = "stored_path")]
    pub file: PathBuf,
    /// The folder of the copy, relative to that for copies.
    #[serde(with = "stored_path")]
    pub copy: PathBuf,
}

/// What commands may write of a repository elsewhere that has the workspace as a linked work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LinkedRepositoryAccess {
    /// What git writes, as in a main work tree; not what it executes or follows.
    #[default]
    Shared,
    /// Objects, what belongs to this work tree alone, and the branches below this folder of the repository.
    Branches(PathBuf),
}

/// Who creates the folder for temporary files and removes it at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TempOwner {
    /// The caller.
    #[default]
    Caller,
    /// The supervisors: the first one creates it, and those that lose their engine remove it.
    Supervisors,
}

word_enum! {
    /// What commands may write.
    #[derive(Default)]
    pub enum SandboxMode {
        /// Temporary files only.
        ReadOnly = "read-only",
        /// The workspace, temporary files, and the writable paths of the policy.
        #[default]
        WorkspaceWrite = "workspace-write",
        /// Everything that the user may.
        Off = "off",
    }
}

word_enum! {
    /// The network that commands may use.
    #[derive(Default)]
    pub enum NetworkAccess {
        /// None, except the loopback interface.
        Off = "off",
        /// The hosts of a list, through a proxy.
        List = "list",
        /// Unrestricted.
        #[default]
        On = "on",
    }
}

/// What happens if the system cannot enforce the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxRequirement {
    /// Commands are confined as far as possible, and gaps are reported.
    #[default]
    Preferred,
    /// No command is started.
    Required,
}

/// Limits of a command's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The largest file that it may write, in bytes.
    pub file_size: Option<u64>,
    /// Open files of a process.
    pub open_files: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Memory of all its processes together, in bytes.
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

    /// Returns the state of this program that commands could write, with links resolved.
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

/// Returns an absolute path without links; `None` if one of them leads out of one of these folders, which have none.
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
