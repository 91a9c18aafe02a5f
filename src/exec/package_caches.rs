//! The caches of package managers: commands read those of the user and write private copies. Nothing in the private
//! copies is run outside the confinement.
//!
//! With mount namespaces, a private folder is mounted over the user's folder as an overlay: earlier downloads are
//! available, and changes stay in the private folder. If the user has no such folder, or an overlay is not possible,
//! variables such as `CARGO_HOME` name a private folder instead.
//!
//! Private folders are kept, one set per workspace, so that a project cannot change what another project builds with.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Mode as FileMode, OFlags, mkdirat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::command_env::Variable;
use super::stored_path;
use crate::types::Durability;
use crate::workspace::{create_private_folder, remove_tree, replace_file};

/// The caches of package managers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageCaches {
    /// The parent of the private folders; `None` if there are no caches.
    #[serde(with = "stored_path")]
    pub store: Option<PathBuf>,
    /// The caches, one for each known tool.
    pub caches: Vec<PackageCache>,
}

/// The cache of one tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageCache {
    /// The name of its private folder.
    pub name: String,
    /// The user's own folder, if it can be determined.
    #[serde(with = "stored_path")]
    pub folder: Option<PathBuf>,
    /// Variables that name the private folder, each with a suffix to its path.
    pub variables: Vec<String>,
    /// Settings in the user's folder that the private folder links to.
    pub linked: Vec<String>,
}

/// All supported tools. An outer folder in the home precedes its inner ones. Each entry has
///
/// 1. the name of its private folder,
/// 2. the variable with which the user sets the location,
/// 3. its path in the home if the variable is not set; empty if the folder is then part of another cache,
/// 4. variables for the private folder, each with a suffix to its path,
/// 5. settings in the user's folder that the private folder links to.
const TOOLS: [[&str; 5]; 27] = [
    ["cache", "XDG_CACHE_HOME", ".cache", "XDG_CACHE_HOME", ""],
    ["cargo", "CARGO_HOME", ".cargo", "CARGO_HOME", "config.toml config"],
    // Without an overlay, there is no substitute for the user's tool chains.
    ["rustup", "RUSTUP_HOME", ".rustup", "", ""],
    // Packages that are installed for all projects of the user are in the folders of these version managers.
    ["pyenv", "PYENV_ROOT", ".pyenv", "", ""],
    ["nvm", "NVM_DIR", ".nvm", "", ""],
    ["rbenv", "RBENV_ROOT", ".rbenv", "", ""],
    ["asdf", "ASDF_DATA_DIR", ".asdf", "", ""],
    ["python-user", "", ".local/lib", "", ""],
    ["npm", "npm_config_cache", ".npm", "npm_config_cache", ""],
    ["pnpm", "PNPM_HOME", ".local/share/pnpm", "PNPM_HOME", ""],
    ["yarn", "YARN_CACHE_FOLDER", ".yarn", "YARN_GLOBAL_FOLDER/berry YARN_CACHE_FOLDER/cache", ""],
    ["bun", "BUN_INSTALL", ".bun", "BUN_INSTALL_CACHE_DIR/install/cache", ""],
    ["deno", "DENO_DIR", "", "DENO_DIR", ""],
    ["pip", "PIP_CACHE_DIR", "", "PIP_CACHE_DIR", ""],
    ["uv", "UV_CACHE_DIR", "", "UV_CACHE_DIR", ""],
    [
        "uv-data",
        "",
        ".local/share/uv",
        "UV_TOOL_DIR/tools UV_PYTHON_INSTALL_DIR/python UV_TOOL_BIN_DIR/bin UV_PYTHON_BIN_DIR/bin",
        "",
    ],
    ["uv-tools", "UV_TOOL_DIR", "", "UV_TOOL_DIR", ""],
    ["uv-python", "UV_PYTHON_INSTALL_DIR", "", "UV_PYTHON_INSTALL_DIR", ""],
    ["poetry", "POETRY_CACHE_DIR", "", "POETRY_CACHE_DIR", ""],
    ["go", "GOPATH", "go", "GOPATH", ""],
    ["go-mod", "GOMODCACHE", "", "GOMODCACHE", ""],
    ["go-build", "GOCACHE", "", "GOCACHE", ""],
    ["maven", "", ".m2", "MAVEN_OPTS MAVEN_USER_HOME", ""],
    [
        "gradle",
        "GRADLE_USER_HOME",
        ".gradle",
        "GRADLE_USER_HOME",
        "gradle.properties init.gradle init.gradle.kts init.d",
    ],
    ["nuget", "", ".nuget", "NUGET_PACKAGES/packages", ""],
    ["ccache", "CCACHE_DIR", ".ccache", "CCACHE_DIR", ""],
    ["sccache", "SCCACHE_DIR", "", "SCCACHE_DIR", ""],
];

/// The variable with options for Maven. The options name the repository in the private folder, and are appended to the
/// user's.
const MAVEN_OPTIONS: &str = "MAVEN_OPTS";

/// Folders of programs in private folders, appended to the search path.
const PROGRAM_FOLDERS: [(&str, &str); 4] =
    [("cargo", "bin"), ("go", "bin"), ("uv-data", "bin"), ("pnpm", "")];

impl PackageCaches {
    /// Returns the caches of a user with this home and these variables; `store` is the parent of the private folders.
    pub fn detect<'a>(
        store: PathBuf,
        home: Option<&Path>,
        variable: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let cache = |[name, set_by, in_home, variables, linked]: [&str; 5]| {
            // Of several folders, Go writes to the first.
            let set = variable(set_by).and_then(|set| set.split(':').next());
            let set = set.map(PathBuf::from).filter(|set| set.is_absolute());
            if set.is_none() && in_home.is_empty() {
                return None;
            }
            let folder = set.or_else(|| Some(home?.join(in_home)));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
            let (variables, linked) = (words(variables), words(linked));
            Some(PackageCache { name: name.to_owned(), folder, variables, linked })
        };
        Self { store: Some(store), caches: TOOLS.into_iter().filter_map(cache).collect() }
    }

    /// Returns the parent of the private folders that are not mounted over the user's.
    pub(super) fn private_root(&self) -> Option<PathBuf> {
        Some(self.store.as_ref()?.join("private"))
    }

    /// Returns the private folder of a cache, for use without an overlay.
    fn private_folder(&self, cache: &PackageCache) -> Option<PathBuf> {
        Some(self.private_root()?.join(&cache.name))
    }

    /// Creates the private folders of a workspace.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses it.
    pub(super) fn create_folders(&self, workspace: &Path) -> io::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        create_private_folder(store)?;
        let owner = store.join(OWNER);
        let workspace = workspace.as_os_str().as_bytes();
        if fs::read(&owner).ok().as_deref() != Some(workspace) {
            replace_file(&owner, workspace, Durability::Os)?;
        } else if let Err(error) =
            File::open(&owner).and_then(|file| file.set_modified(SystemTime::now()))
        {
            log::debug!("could not set the time of {}: {error}", owner.display());
        }
        let Some(all) = self.private_root() else { return Ok(()) };
        create_private_folder(&all)?;
        let all = open_folder(CWD, &all)?;
        for cache in &self.caches {
            let private = open_private_folder(&all, &cache.name)?;
            for name in &cache.linked {
                let Some(own) = cache.folder.as_ref().map(|folder| folder.join(name)) else {
                    continue;
                };
                let found = statat(&private, name, AtFlags::SYMLINK_NOFOLLOW);
                if own.exists() && found.is_err_and(|error| error == Errno::NOENT) {
                    symlinkat(own, &private, name)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the variables that name private folders, for the caches without an overlay.
    pub(super) fn variables(&self, caches: &[&PackageCache]) -> Vec<Variable> {
        let mut all = Vec::new();
        let mut programs = Vec::new();
        for cache in caches {
            let Some(private) = self.private_folder(cache) else { continue };
            for variable in &cache.variables {
                let (name, below) = variable.split_once('/').unwrap_or((variable, ""));
                let value = match name {
                    MAVEN_OPTIONS => maven_options(&private),
                    _ if below.is_empty() => Some(private.clone().into()),
                    _ => Some(private.join(below).into()),
                };
                all.extend(value.map(|value| (OsString::from(name), value)));
            }
            let known = PROGRAM_FOLDERS.iter().find(|(name, _)| **name == cache.name);
            programs.extend(known.map(|(_, below)| private.join(below)));
        }
        if let (Some(path), false) = (std::env::var_os("PATH"), programs.is_empty()) {
            let known = std::env::split_paths(&path).collect::<Vec<_>>();
            let path = std::env::join_paths(known.into_iter().chain(programs));
            all.extend(path.ok().map(|path| ("PATH".into(), path)));
        }
        all
    }
}

/// The file next to the private folders that holds the path of their workspace.
const OWNER: &str = "workspace";

/// The minimum time for which unused private folders are kept: a workspace may be moved, or its disk mounted again.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Removes the private folders of workspaces that no longer exist.
pub fn sweep_caches(all: &Path) {
    let Some(before) = SystemTime::now().checked_sub(KEPT) else { return };
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let store = entry.path();
        let owner = store.join(OWNER);
        let is_old = |data: &fs::Metadata| data.modified().is_ok_and(|at| at < before);
        let Ok(path) = fs::read(&owner) else { continue };
        let workspace = Path::new(OsStr::from_bytes(&path));
        let is_gone = fs::symlink_metadata(workspace)
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_gone
            && workspace.is_absolute()
            && fs::symlink_metadata(&owner).is_ok_and(|data| is_old(&data))
            && let Err(error) = remove_tree(&store)
        {
            log::debug!("could not remove {}: {error}", store.display());
        }
    }
}

/// Opens a folder that commands may write, in a parent that they cannot replace. If a command has replaced the folder,
/// the replacement is removed: a link would lead out of the private folders.
fn open_private_folder(all: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let made = || match mkdirat(all, name, FileMode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_folder(all, Path::new(name)),
        Err(error) => Err(error.into()),
    };
    made().or_else(|_| {
        unlinkat(all, name, AtFlags::empty())?;
        made()
    })
}

/// Opens a folder; fails for a link.
fn open_folder(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, FileMode::empty())?)
}

/// Returns the user's options for Maven, and a repository in a private folder. `None` if Maven's script would split the
/// path.
fn maven_options(private: &Path) -> Option<OsString> {
    let path = private.to_str().filter(|path| !path.contains(char::is_whitespace))?;
    let mut value = std::env::var_os(MAVEN_OPTIONS).unwrap_or_default();
    if !value.is_empty() {
        value.push(" ");
    }
    value.push(format!("-Dmaven.repo.local={path}/repository"));
    Some(value)
}

/// A set of private folders for overlays, locked against other processes: the behavior of two overlays with the same
/// upper folder is undefined.
#[cfg(target_os = "linux")]
pub(super) struct OverlayFolders {
    folder: PathBuf,
    _lock: File,
}

/// The maximum number of sets.
#[cfg(target_os = "linux")]
const MAX_SETS: usize = 32;

#[cfg(target_os = "linux")]
impl OverlayFolders {
    /// Locks the first free set.
    pub(super) fn take(caches: &PackageCaches) -> Option<Self> {
        let store = caches.store.as_ref()?;
        (0..MAX_SETS).find_map(|number| {
            let folder = store.join(format!("layers-{number}"));
            create_private_folder(&folder).ok()?;
            let path = folder.join("lock");
            File::create(&path).ok()?;
            // A file opened for writing would keep its file system from being remounted read-only.
            let lock = File::open(path).ok()?;
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()?;
            Some(Self { folder, _lock: lock })
        })
    }

    /// Returns the upper and the work folder of an overlay.
    pub(super) fn for_cache(&self, cache: &PackageCache) -> io::Result<(PathBuf, PathBuf)> {
        let own = self.folder.join(&cache.name);
        let (upper, work) = (own.join("upper"), own.join("work"));
        create_private_folder(&upper)?;
        create_private_folder(&work)?;
        Ok((upper, work))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn private_folders_are_removed_with_their_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("there")).unwrap();
        for (name, workspace, is_old) in
            [("a", "gone", true), ("b", "gone", false), ("c", "there", true)]
        {
            let caches = PackageCaches::detect(path("all").join(name), None, |_| None);
            caches.create_folders(&path(workspace)).unwrap();
            let closed = path("all").join(name).join("private/closed");
            fs::create_dir(&closed).unwrap();
            fs::write(closed.join("x"), "").unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
            let owner =
                fs::OpenOptions::new().read(true).open(path("all").join(name).join(OWNER)).unwrap();
            let age = if is_old { KEPT * 2 } else { Duration::ZERO };
            owner.set_modified(SystemTime::now() - age).unwrap();
        }
        sweep_caches(&path("all"));
        let left = ["a", "b", "c"].map(|name| path("all").join(name).exists());
        assert_eq!(left, [false, true, true]);
        // The folder was used a moment ago.
        PackageCaches::detect(path("all/c"), None, |_| None)
            .create_folders(&path("there"))
            .unwrap();
        fs::remove_dir(path("there")).unwrap();
        sweep_caches(&path("all"));
        assert!(path("all/c").exists());
    }

    fn caches(variables: &[(&str, &'static str)]) -> PackageCaches {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| *v);
        PackageCaches::detect("/s".into(), Some(Path::new("/h")), find)
    }

    fn folder(caches: &PackageCaches, name: &str) -> Option<PathBuf> {
        caches.caches.iter().find(|cache| cache.name == name)?.folder.clone()
    }

    #[test]
    fn variables_of_the_user_locate_a_cache() {
        let usual = caches(&[]);
        assert_eq!(folder(&usual, "cargo"), Some("/h/.cargo".into()));
        assert_eq!(folder(&usual, "pip"), None, "it is part of another one");
        let set =
            caches(&[("CARGO_HOME", "/opt/cargo"), ("GOPATH", "/a:/b"), ("PIP_CACHE_DIR", "/p")]);
        assert_eq!(folder(&set, "cargo"), Some("/opt/cargo".into()));
        assert_eq!(folder(&set, "go"), Some("/a".into()));
        assert_eq!(folder(&set, "pip"), Some("/p".into()));
        assert_eq!(
            folder(&caches(&[("CARGO_HOME", "relative")]), "cargo"),
            Some("/h/.cargo".into())
        );
    }

    #[test]
    fn variables_name_the_private_folders() {
        let caches = caches(&[]);
        let all: Vec<&PackageCache> = caches.caches.iter().collect();
        let variables = caches.variables(&all);
        let value = |name: &str| {
            let found = variables.iter().find(|(found, _)| found == name);
            found.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        assert_eq!(value("CARGO_HOME").as_deref(), Some("/s/private/cargo"));
        assert!(
            value("MAVEN_OPTS")
                .unwrap()
                .ends_with("-Dmaven.repo.local=/s/private/maven/repository")
        );
        assert!(value("PATH").unwrap().contains("/s/private/go/bin"));
        assert_eq!(value("RUSTUP_HOME"), None);
    }

    #[test]
    fn a_private_folder_links_to_the_settings_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join(".cargo")).unwrap();
        fs::write(home.join(".cargo/config.toml"), "x").unwrap();
        fs::write(home.join(".cargo/credentials.toml"), "secret").unwrap();
        let caches = PackageCaches::detect(folder.path().join("store"), Some(&home), |_| None);
        for _ in 0..2 {
            caches.create_folders(Path::new("/w")).unwrap();
        }
        let private = folder.path().join("store/private/cargo");
        assert_eq!(fs::read_to_string(private.join("config.toml")).unwrap(), "x");
        assert!(!private.join("credentials.toml").exists());
    }

    #[test]
    fn a_replaced_private_folder_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("home/.cargo")).unwrap();
        fs::write(path("home/.cargo/config.toml"), "x").unwrap();
        fs::create_dir(path("home/other")).unwrap();
        let caches = PackageCaches::detect(path("store"), Some(&path("home")), |_| None);
        caches.create_folders(Path::new("/w")).unwrap();
        let private = path("store/private");
        fs::remove_dir_all(private.join("cargo")).unwrap();
        std::os::unix::fs::symlink(path("home/other"), private.join("cargo")).unwrap();
        fs::remove_dir(private.join("npm")).unwrap();
        fs::write(private.join("npm"), "").unwrap();
        caches.create_folders(Path::new("/w")).unwrap();
        assert_eq!(fs::read_dir(path("home/other")).unwrap().count(), 0);
        assert!(private.join("cargo").symlink_metadata().unwrap().is_dir());
        assert!(private.join("npm").is_dir());
    }
}
