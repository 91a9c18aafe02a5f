//! Finds what git runs or follows in a work tree because a configuration names it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::git_config::{GitPathBase, GitSetting, parse};
use super::{MAX_REPOSITORIES, named_folder, read_file};
use crate::exec::confine::policy::resolve_path;

/// The configuration files of git that belong to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserGitConfig {
    home: Option<PathBuf>,
    files: Vec<PathBuf>,
}

impl UserGitConfig {
    /// Returns the files that git reads with this home and these variables.
    pub fn new(home: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let in_home = |name: &str| home.map(|home| home.join(name));
        let configs = absolute("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
        let usual = configs.map(|folder| folder.join("git/config"));
        let global = absolute("GIT_CONFIG_GLOBAL").map(|file| vec![file]);
        let global =
            global.unwrap_or_else(|| in_home(".gitconfig").into_iter().chain(usual).collect());
        let system = absolute("GIT_CONFIG_SYSTEM").unwrap_or_else(|| "/etc/gitconfig".into());
        let files = global.into_iter().chain([system]).collect();
        Self { home: home.map(Path::to_owned), files }
    }
}

/// Returns what git runs or follows below `within` when it works in a folder, according to the configurations of the
/// user and the repository: configuration files, folders of hooks, included files, programs, and links to them.
pub fn followed_by_git(folder: &Path, within: &Path, user: &UserGitConfig) -> Vec<PathBuf> {
    let (Ok(folder), Ok(within)) = (folder.canonicalize(), within.canonicalize()) else {
        return Vec::new();
    };
    // The work tree may be above.
    let has_repository = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    let work_tree = folder.ancestors().find(has_repository).unwrap_or(&folder);
    let git = work_tree.join(".git");
    let own = named_folder(&git, "gitdir: ").unwrap_or_else(|| git.clone());
    let common = named_folder(&own.join("commondir"), "").unwrap_or_else(|| own.clone());
    let mut found = FollowedPaths { within: &within, git: &git, paths: Vec::new() };
    for file in &user.files {
        found.add(file);
    }
    for entry in fs::read_dir(common.join("hooks")).into_iter().flatten().flatten() {
        if let Ok(target) = fs::read_link(entry.path()) {
            found.add(&common.join("hooks").join(target));
        }
    }
    let mut files = user.files.clone();
    files.extend([common.join("config"), own.join("config.worktree")]);
    let mut read = Vec::new();
    while let Some(file) = files.pop() {
        if read.contains(&file) || read.len() >= MAX_REPOSITORIES {
            continue;
        }
        let settings = read_file(&file).and_then(|text| parse_user_file(&text)).unwrap_or_default();
        for (base, path) in settings.iter().flat_map(GitSetting::followed_paths) {
            let path = match (path.strip_prefix("~"), &user.home, base) {
                (Ok(rest), Some(home), _) => home.join(rest),
                (_, _, GitPathBase::WorkTree | GitPathBase::ExistingFile) => work_tree.join(path),
                (_, _, GitPathBase::Include) => file.parent().unwrap_or(work_tree).join(path),
            };
            if base == GitPathBase::ExistingFile && !path.is_file() {
                continue;
            }
            found.add(&path);
            if base == GitPathBase::Include {
                files.extend(resolve_path(&path));
            }
        }
        read.push(file);
    }
    found.paths.sort();
    found.paths.dedup();
    found.paths
}

/// Parses a configuration that is the user's own, in any encoding and with any line ends.
fn parse_user_file(text: &[u8]) -> Option<Vec<GitSetting>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let plain = |byte: &u8| match byte {
        b'\r' | 0 => b' ',
        128.. => b'?',
        _ => *byte,
    };
    parse(text).or_else(|| parse(&text.iter().map(plain).collect::<Vec<u8>>()))
}

/// The most links in folders that are followed.
const MAX_LINKS: usize = 1_000;

struct FollowedPaths<'a> {
    within: &'a Path,
    /// The repository of the work tree, whose own files are protected as such.
    git: &'a Path,
    paths: Vec<PathBuf>,
}

impl FollowedPaths<'_> {
    /// Adds a path with the links on the way to it.
    fn add(&mut self, path: &Path) {
        let is_inside = |path: &Path| path.starts_with(self.within) && path != self.within;
        let links = path.ancestors().filter(|path| is_inside(path) && path.is_symlink());
        let links: Vec<PathBuf> = links.map(Path::to_owned).collect();
        let real = resolve_path(path).map(|path| match (path.file_name(), path.parent()) {
            // The scripts in this folder run those in its parent.
            (Some(name), Some(parent)) if name == "_" => parent.to_owned(),
            _ => path,
        });
        let own = ["hooks", "config", "config.worktree"].map(|name| self.git.join(name));
        let real = real.filter(|path| {
            is_inside(path) && path != self.git && !own.iter().any(|own| path.starts_with(own))
        });
        self.paths.extend(links);
        let Some(real) = real.filter(|real| !self.paths.contains(real)) else { return };
        let entries = fs::read_dir(&real).into_iter().flatten().flatten();
        self.paths.push(real);
        // What is in a folder of hooks may be elsewhere.
        for entry in entries.filter(|entry| entry.path().is_symlink()) {
            if self.paths.len() < MAX_LINKS {
                self.add(&entry.path());
            }
        }
    }
}
