//! How commands are confined, as a plain value.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SandboxLevel;
use crate::exec::egress::AllowedHosts;
use crate::exec::package_caches::PackageCaches;

/// How commands are confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// What they may write.
    pub mode: SandboxMode,
    /// Whether they may use the network.
    pub network: NetworkAccess,
    /// The hosts that they may reach with [`Network::List`].
    pub allowed_hosts: AllowedHosts,
    /// What happens when the system cannot confine them like this.
    pub need: SandboxRequirement,
    /// The highest level that is tried.
    pub ceiling: SandboxLevel,
    /// The workspace.
    pub workspace: PathBuf,
    /// A folder for temporary files, theirs alone.
    pub temp: PathBuf,
    /// Who makes that folder, and sees to it that it does not outlive the engine.
    pub temp_owner: TempOwner,
    /// What else they may write.
    pub writable: Vec<PathBuf>,
    /// The caches of package managers: the user's to read, private ones to write.
    pub caches: PackageCaches,
    /// What they may not write although it lies in the workspace.
    pub protected: Vec<PathBuf>,
    /// What they may neither read nor write.
    pub hidden: Vec<PathBuf>,
    /// What they may read although it would be out of reach otherwise.
    pub readable: Vec<PathBuf>,
    /// What they may use up.
    pub limits: ResourceLimits,
    /// Symbolic links that they may not replace.
    #[serde(default)]
    pub links: Vec<PathBuf>,
    /// Files of which they get a copy.
    #[serde(default)]
    pub copied: Vec<CopiedFile>,
    /// Where the copies lie: a folder in that for temporary files, each worker's own.
    #[serde(default)]
    pub copies: PathBuf,
    /// Folders below which repositories of git are looked after.
    #[serde(default)]
    pub repositories: Vec<PathBuf>,
    /// The file in which is written what is to be done for them, should the engine be killed.
    #[serde(default)]
    pub record_path: Option<PathBuf>,
}

/// A file of which commands get a copy, which they may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// The file.
    pub file: PathBuf,
    /// The folder of its copy, in that for copies.
    pub copy: PathBuf,
}

/// Who makes the folder for temporary files, and sees to it that it does not outlive the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TempOwner {
    /// Whoever asks for commands to be run.
    #[default]
    Caller,
    /// The supervisors of commands: the first one makes it, and those that lose their engine remove it.
    Supervisors,
}

/// What commands may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Temporary files.
    ReadOnly,
    /// The workspace, temporary files, and what the policy names.
    #[default]
    WorkspaceWrite,
    /// Whatever the user may.
    Off,
}

/// Whether commands may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkAccess {
    /// They may.
    #[default]
    On,
    /// They may reach the hosts of a list, through a proxy.
    List,
    /// They may reach themselves at the most.
    Off,
}

/// What happens when the system cannot confine commands as the policy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxRequirement {
    /// They are confined as far as it can, and that is reported.
    #[default]
    Preferred,
    /// None is started.
    Required,
}

/// What a command may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The largest file that it may write, in bytes.
    pub file_size: Option<u64>,
    /// Files that it may have open at the same time.
    pub open_files: Option<u64>,
    /// Processes and threads that it may have at the same time.
    pub processes: Option<u64>,
    /// Memory that all its processes may use together, in bytes.
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
            network: NetworkAccess::On,
            allowed_hosts: AllowedHosts::default(),
            need: SandboxRequirement::Preferred,
            ceiling: SandboxLevel::Namespaces,
            workspace: workspace.into(),
            temp: std::env::temp_dir(),
            temp_owner: TempOwner::Caller,
            writable: Vec::new(),
            caches: PackageCaches::default(),
            protected: Vec::new(),
            hidden: Vec::new(),
            readable: Vec::new(),
            limits: ResourceLimits::default(),
            links: Vec::new(),
            copied: Vec::new(),
            copies: PathBuf::new(),
            repositories: Vec::new(),
            record_path: None,
        }
    }

    /// Returns whether there is anything to confine.
    pub fn is_off(&self) -> bool {
        self.mode == SandboxMode::Off && self.network == NetworkAccess::On
    }
}

/// Returns where a path leads, be there something at its end or not: what does not exist yet will stand in a folder that
/// does.
pub fn resolve_path(path: &Path) -> Option<PathBuf> {
    let real = path.ancestors().find_map(|existing| {
        let rest = path.strip_prefix(existing).ok()?;
        Some(existing.canonicalize().ok()?.join(rest))
    })?;
    // Joining nothing leaves a slash behind.
    Some(real.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_without_links_also_where_nothing_is_yet() {
        let folder = tempfile::tempdir().unwrap();
        let (there, link) =
            (folder.path().canonicalize().unwrap().join("there"), folder.path().join("link"));
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        assert_eq!(resolve_path(&link).unwrap().as_os_str(), there.as_os_str());
        assert_eq!(resolve_path(&link.join(".git/hooks")), Some(there.join(".git/hooks")));
    }
}
