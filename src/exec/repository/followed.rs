//! Finds the files in a work tree that git runs or follows because a configuration names them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::command_paths::{CommandPaths, expand_home};
use super::git_config::{Followed, GitSetting, parse_git_config};
use super::git_words::GitWords;
use super::{MAX_REPOSITORIES, read_file};
use crate::workspace::worktree::named_folder;
use crate::workspace::{LinkResolver, MAX_LINKS};

/// The user's own git configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserGitConfig {
    home: Option<PathBuf>,
    files: Vec<PathBuf>,
    /// Settings in environment variables.
    settings: Vec<GitSetting>,
    /// The variables that command lines may use.
    variables: Vec<(String, String)>,
}

/// Variables that name a program, or a folder of programs or hooks, each with an equivalent setting.
const PROGRAM_VARIABLES: [(&str, &str); 14] = [
    ("EDITOR", "core.editor"),
    ("GIT_ASKPASS", "core.askpass"),
    ("GIT_EDITOR", "core.editor"),
    ("GIT_EXEC_PATH", "core.hookspath"),
    ("GIT_EXTERNAL_DIFF", "diff.external"),
    ("GIT_PAGER", "core.pager"),
    ("GIT_PROXY_COMMAND", "core.gitproxy"),
    ("GIT_SEQUENCE_EDITOR", "sequence.editor"),
    ("GIT_SSH", "core.sshcommand"),
    ("GIT_SSH_COMMAND", "core.sshcommand"),
    ("GIT_TEMPLATE_DIR", "init.templatedir"),
    ("PAGER", "core.pager"),
    ("SSH_ASKPASS", "core.askpass"),
    ("VISUAL", "core.editor"),
];

impl UserGitConfig {
    /// Returns the files that a command line, run in a folder, names as programs, scripts or data. Scripts need not
    /// exist.
    pub fn paths_in_command(&self, line: &str, folder: &Path) -> Vec<PathBuf> {
        CommandPaths::find(line, folder, self.home.as_deref(), &self.variables).found
    }

    /// Returns the git configuration for a home and environment variables.
    pub fn new(home: Option<&Path>, variables: impl Iterator<Item = (String, String)>) -> Self {
        // Git and the shell set these variables.
        let variables: Vec<_> =
            variables.filter(|(name, _)| !["PWD", "OLDPWD"].contains(&name.as_str())).collect();
        let value = |name: &str| {
            let found = variables.iter().find(|(found, value)| found == name && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        };
        let file = |name: &str| value(name).map(PathBuf::from);
        let in_home = |name: &str| home.map(|home| home.join(name));
        let configs = file("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
        let usual = configs.map(|folder| folder.join("git/config"));
        let global = file("GIT_CONFIG_GLOBAL").map(|file| vec![file]);
        let global =
            global.unwrap_or_else(|| in_home(".gitconfig").into_iter().chain(usual).collect());
        let system = file("GIT_CONFIG_SYSTEM").map(|file| vec![file]);
        let system = system.unwrap_or_else(|| system_files(value("PATH").unwrap_or_default()));
        let named = PROGRAM_VARIABLES.iter().filter_map(|(name, key)| Some((*key, value(name)?)));
        let count = value("GIT_CONFIG_COUNT").and_then(|count| count.trim().parse().ok());
        let listed = (0..count.unwrap_or(0).min(variables.len())).filter_map(|number| {
            let part = |name: &str| value(&format!("GIT_CONFIG_{name}_{number}"));
            Some((part("KEY")?, part("VALUE")?))
        });
        let parameters =
            value("GIT_CONFIG_PARAMETERS").map(GitWords::of_parameters).unwrap_or_default();
        let passed = parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let settings = named.chain(listed).chain(passed);
        let settings =
            settings.filter_map(|(key, value)| GitSetting::from_key(key, value)).collect();
        Self {
            home: home.map(Path::to_owned),
            files: global.into_iter().chain(system).collect(),
            settings,
            variables,
        }
    }
}

/// Returns the system configurations that git may have been built to read: each installation has its own.
fn system_files(search_path: &str) -> Vec<PathBuf> {
    let programs = std::env::split_paths(search_path).map(|folder| folder.join("git"));
    let links = LinkResolver::default();
    let real = programs.filter_map(|program| links.canonicalize(&program));
    let own = real.filter_map(|program| Some(program.parent()?.parent()?.join("etc/gitconfig")));
    own.chain(["/etc/gitconfig".into(), "/usr/local/etc/gitconfig".into()]).collect()
}

/// Returns the paths below `within` that git, when it works in a folder, runs or follows because of the configurations
/// of the user and the repository: configuration files, folders of hooks, included files, programs, and links to them.
pub fn followed_by_git(
    folder: &Path,
    within: &Path,
    user: &UserGitConfig,
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let (Some(folder), Some(within)) = (links.canonicalize(folder), links.canonicalize(within))
    else {
        return Vec::new();
    };
    // The top of the work tree may be above.
    let has_repository = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    let work_tree = folder.ancestors().find(has_repository).unwrap_or(&folder);
    let git = work_tree.join(".git");
    let own = named_folder(&git, "gitdir: ").unwrap_or_else(|| git.clone());
    let common = named_folder(&own.join("commondir"), "").unwrap_or_else(|| own.clone());
    let mut found = FollowedPaths::new(&within, &git, links);
    for entry in fs::read_dir(common.join("hooks")).into_iter().flatten().flatten() {
        if let Ok(target) = fs::read_link(entry.path()) {
            found.add(&common.join("hooks").join(target));
        }
    }
    let mut files: Vec<PathBuf> = user.files.iter().map(|file| work_tree.join(file)).collect();
    files.iter().for_each(|file| found.add(file));
    files.extend([common.join("config"), own.join("config.worktree")]);
    let (mut read, mut settings) = (Vec::new(), user.settings.clone());
    let (mut aliases, mut commands, mut rounds) = (Vec::new(), Vec::new(), 0);
    loop {
        let folder = read.last().and_then(|file: &PathBuf| file.parent()).unwrap_or(work_tree);
        for setting in &settings {
            let alias = setting.alias().filter(|(_, value)| !value.starts_with('!'));
            aliases.extend(alias.map(|(name, value)| (name.to_owned(), value.to_owned())));
            match setting.followed() {
                Followed::Nothing => {}
                Followed::Include(path) => {
                    let path = folder.join(expand_home(path, user.home.as_deref()));
                    found.add(&path);
                    files.extend(links.resolve(&path));
                }
                Followed::Path(path) => {
                    found.add(&work_tree.join(expand_home(path, user.home.as_deref())));
                }
                Followed::Command(line) => {
                    let home = user.home.as_deref();
                    let paths = CommandPaths::find(line, work_tree, home, &user.variables);
                    paths.found.iter().for_each(|path| found.add(path));
                    commands.extend(paths.git);
                }
                Followed::GitCommand(line) => commands.push(GitWords::of_alias(line)),
            }
        }
        files.retain(|file| !read.contains(file));
        let Some(file) = files.pop().filter(|_| read.len() < MAX_REPOSITORIES) else {
            // All aliases are known now.
            let own = commands.drain(..);
            settings = own
                .flat_map(|words| words.equivalent_settings(&aliases, &user.variables))
                .collect();
            rounds += 1;
            if settings.is_empty() || rounds > MAX_ROUNDS {
                break;
            }
            continue;
        };
        let text = links.canonicalize(&file).and_then(|real| read_file(&real));
        settings = text.and_then(|text| parse_user_file(&text)).unwrap_or_default();
        read.push(file);
    }
    found.paths
}

/// Returns paths below a folder, and their targets below it: of the paths as links, of links above them, and of links
/// in them.
pub fn with_link_targets(
    paths: impl Iterator<Item = PathBuf>,
    within: &Path,
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let mut found = FollowedPaths::new(within, &within.join(".git"), links);
    paths.for_each(|path| found.add(&path));
    found.paths
}

/// Returns the targets below a folder of paths, wherever these are, and of links in them.
pub fn link_targets_within(
    paths: impl Iterator<Item = PathBuf>,
    within: &Path,
    links: &LinkResolver,
) -> Vec<PathBuf> {
    let mut found = FollowedPaths::new(within, &within.join(".git"), links);
    found.outside = Some(BTreeSet::new());
    paths.for_each(|path| found.add(&path));
    found.paths
}

/// Parses a configuration of the user, in any encoding and with any line ends.
fn parse_user_file(text: &[u8]) -> Option<Vec<GitSetting>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let plain = |byte: &u8| match byte {
        b'\r' | 0 => b' ',
        128.. => b'?',
        _ => *byte,
    };
    parse_git_config(text)
        .or_else(|| parse_git_config(&text.iter().map(plain).collect::<Vec<u8>>()))
}

/// The number of rounds in which commands in settings of commands are read.
const MAX_ROUNDS: u32 = 4;

/// The maximum number of folder entries that are searched for links.
const MAX_ENTRIES: usize = 10_000;

struct FollowedPaths<'a> {
    within: &'a Path,
    links: &'a LinkResolver,
    /// The repository of the work tree; its own files are protected separately.
    own: [PathBuf; 3],
    paths: Vec<PathBuf>,
    /// The number of entries searched so far.
    seen: usize,
    /// The folders elsewhere that were searched for links; `None` to search none.
    outside: Option<BTreeSet<PathBuf>>,
}

impl<'a> FollowedPaths<'a> {
    fn new(within: &'a Path, git: &Path, links: &'a LinkResolver) -> Self {
        let own = ["hooks", "config", "config.worktree"].map(|name| git.join(name));
        Self { within, links, own, paths: Vec::new(), seen: 0, outside: None }
    }

    /// Adds a path, the links on the way to it, and the targets of links in it.
    fn add(&mut self, path: &Path) {
        let mut todo = vec![path.to_owned()];
        while let Some(path) = todo.pop() {
            let path = self.follow_links(path);
            let real =
                self.links.resolve(&path).map(|path| match (path.file_name(), path.parent()) {
                    // The scripts in this folder run those in its parent.
                    (Some(name), Some(parent)) if name == "_" => parent.to_owned(),
                    _ => path,
                });
            let mut folders: Vec<PathBuf> =
                real.into_iter().filter(|path| self.enters(path)).collect();
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                    self.seen += 1;
                    match entry.file_type() {
                        _ if self.seen > MAX_ENTRIES => return,
                        Ok(kind) if kind.is_symlink() => todo.push(entry.path()),
                        Ok(kind) if kind.is_dir() && entry.path() != self.within => {
                            folders.push(entry.path());
                        }
                        Ok(_) | Err(_) => {}
                    }
                }
            }
        }
    }

    /// Adds a path itself, and returns whether to search it for links.
    fn enters(&mut self, path: &Path) -> bool {
        let is_inside = path.starts_with(self.within);
        self.add_real(path.to_owned())
            || !is_inside && self.outside.as_mut().is_some_and(|seen| seen.insert(path.to_owned()))
    }

    /// Adds the links on the way to a path, and returns its target, which need not exist.
    fn follow_links(&mut self, mut path: PathBuf) -> PathBuf {
        for _ in 0..MAX_LINKS {
            // The outermost link comes first.
            let links = path.ancestors().map(|link| {
                link.parent()
                    .zip(self.links.read_link(link))
                    .map(|(folder, target)| (link, folder, target))
            });
            let Some((link, folder, target)) = links.flatten().last() else { break };
            let rest = path.strip_prefix(link).unwrap_or(Path::new(""));
            let real = self.links.resolve(folder).zip(link.file_name());
            let next = folder.join(target).join(rest).components().collect();
            self.add_real(real.map_or_else(|| link.to_owned(), |(folder, name)| folder.join(name)));
            path = next;
        }
        path
    }

    /// Adds a path itself, and returns whether it is new and inside.
    fn add_real(&mut self, path: PathBuf) -> bool {
        let is_below = |other: &PathBuf| path.starts_with(other);
        let is_own = |own: &PathBuf| path.starts_with(own) || own.parent() == Some(&path);
        let is_new = path.starts_with(self.within)
            && path != self.within
            && !self.own.iter().any(is_own)
            && !self.paths.iter().any(is_below);
        if is_new {
            self.paths.push(path);
        }
        is_new
    }
}
