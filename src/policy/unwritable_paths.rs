//! Paths in the workspace that tools may not write.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::exec::{SandboxMode, SandboxPolicy, UserGitConfig, followed_by_git};
use crate::types::escape_name;
use crate::workspace::LinkResolver;

/// Paths in the workspace that neither tools nor commands may write.
///
/// The user's programs use the hooks and the configuration of git, and the project's settings, outside the sandbox.
/// Writing them would be a way out of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwritablePaths {
    paths: Vec<PathBuf>,
    /// Whether the folders of all git repositories are among them.
    has_repositories: bool,
    workspace: PathBuf,
    user_git: UserGitConfig,
    /// Names, in lower case, of files that other programs obey in a folder that the user works in.
    obeyed: Vec<OsString>,
}

impl UnwritablePaths {
    /// Returns the paths that a policy protects, by name and with links resolved; none for a policy that lets commands
    /// write anything. Reads the file system.
    pub fn new(policy: &SandboxPolicy) -> Self {
        if policy.mode == SandboxMode::Off {
            return Self::default();
        }
        let links = LinkResolver::default();
        let names =
            policy.protected.iter().flat_map(|path| [Some(path.clone()), links.resolve(path)]);
        let inside = names.flatten().filter_map(|path| {
            let inside = path.strip_prefix(&policy.workspace).ok()?;
            Some(fold_case(&escape_name(inside.as_os_str())))
        });
        // The workspace itself has the empty path, which is a prefix of every path.
        let places = inside.collect();
        Self {
            paths: places,
            has_repositories: true,
            workspace: policy.workspace.clone(),
            user_git: policy.user_git.clone(),
            obeyed: policy.obeyed.iter().map(|name| OsStr::to_ascii_lowercase(name)).collect(),
        }
    }

    /// Returns whether tools may not write in the folder of a repository, whatever its name.
    pub fn has_repositories(&self) -> bool {
        self.has_repositories
    }

    /// Returns whether writing a path below the workspace would change one of these paths: because it is in one of
    /// them, or because one of them is below it and would be replaced.
    pub fn contains(&self, path: &str) -> bool {
        let named = Path::new(path);
        let path = fold_case(path);
        let is_place = |place: &PathBuf| path.starts_with(place) || place.starts_with(&path);
        self.has_repositories
            && (path.iter().any(|name| may_be_git_folder(&name.to_string_lossy()))
                || self.followed_around(named).iter().any(is_place))
            || self.paths.iter().any(is_place)
            || path.iter().any(|name| self.obeyed.iter().any(|obeyed| name == obeyed))
    }

    /// Returns the paths that git follows in the work trees below the workspace that contain a path.
    fn followed_around(&self, path: &Path) -> Vec<PathBuf> {
        let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let folders = folders.map(|folder| self.workspace.join(folder));
        let work_trees = folders.filter(|folder| folder.join(".git").symlink_metadata().is_ok());
        let links = LinkResolver::default();
        let found = work_trees
            .flat_map(|folder| followed_by_git(&folder, &self.workspace, &self.user_git, &links));
        let inside = found.filter_map(|path| {
            let inside = path.strip_prefix(&self.workspace).ok()?;
            Some(fold_case(&escape_name(inside.as_os_str())))
        });
        inside.collect()
    }
}

/// Returns whether a file system may treat a name, in lower case, as `.git`: some file systems ignore invisible
/// characters, or dots and spaces at the end, and some also have short names.
fn may_be_git_folder(name: &str) -> bool {
    let is_hidden = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let seen: String = name.chars().filter(|c| !is_hidden(*c)).collect();
    let seen = seen.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    seen == ".git" || seen == "git~1"
}

/// Some file systems do not distinguish upper and lower case.
fn fold_case(path: &str) -> PathBuf {
    path.to_lowercase().into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_the_sandbox_protects_is_unwritable_by_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap();
        fs::create_dir(workspace.join("real")).unwrap();
        symlink("real", workspace.join(".git")).unwrap();
        let protected = [".git/hooks", ".git/config", "../state"].map(|path| workspace.join(path));
        let policy = SandboxPolicy {
            mode: SandboxMode::WorkspaceWrite,
            protected: protected.into(),
            ..SandboxPolicy::off(&workspace)
        };
        let unwritable = UnwritablePaths::new(&policy);
        for path in [
            ".git",
            ".git/HEAD",
            ".git/hooks/pre-commit",
            ".Git/CONFIG",
            "real/config",
            "real",
            "a/.git/config",
            "a/.g\u{200c}it/config",
            "a/GIT~1/config",
            "a/.git. /config",
        ] {
            assert!(unwritable.contains(path), "{path}");
        }
        for path in [".gitignore", ".github/x", "real/config2", "state", "a.git/config"] {
            assert!(!unwritable.contains(path), "{path}");
        }
        assert_eq!(
            UnwritablePaths::new(&SandboxPolicy { mode: SandboxMode::Off, ..policy }),
            UnwritablePaths::default()
        );
    }
}
