//! Programs that git runs because of the configuration of a repository.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::command_analysis::is_in;
use crate::exec::parse_git_config;
use crate::workspace::open_input;

/// The repositories in which commands run. Checks whether a git command that reads runs other programs there.
///
/// The configuration of a repository can name programs for comparing and converting files. A clone does not get it, but
/// files from elsewhere can contain a repository with one. The user's own configuration outside the workspace is
/// trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    /// The workspace; without it, nothing is checked.
    workspace: Option<PathBuf>,
}

/// The maximum size of a configuration, in bytes.
const MAX_CONFIG_SIZE: u64 = 1 << 20;

/// The maximum size of a file that names a folder, in bytes.
const MAX_LINE_SIZE: u64 = 1 << 16;

/// The maximum size of an index, in bytes.
const MAX_INDEX_SIZE: u64 = 64 << 20;

/// The maximum number of repositories checked for one command.
const MAX_REPOSITORIES: usize = 64;

/// Settings that can make git run a program. With `diff.submodule` and `status.submodulesummary`, git runs itself in
/// repositories that only a commit names.
const RUNNING_SETTINGS: &str = "core.fsmonitor core.alternaterefscommand core.sshcommand core.gitproxy \
    diff.external diff.command diff.textconv diff.submodule status.submodulesummary filter.clean \
    filter.smudge filter.process merge.driver gpg.program log.showsignature log.diffmerges \
    remote.promisor remote.uploadpack remote.vcs extensions.partialclone";

impl Repositories {
    /// Returns the repositories of a workspace.
    pub fn new(workspace: &Path) -> Self {
        Self { workspace: Some(workspace.to_owned()) }
    }

    /// Returns the reason why git may run a program in one of these folders, which are relative to the workspace or
    /// absolute; `None` if it does not. Reads files.
    pub(super) fn execution_risk(&self, folders: &[String]) -> Option<String> {
        let workspace = self.workspace.as_ref()?;
        let mut seen = BTreeSet::new();
        folders.iter().find_map(|folder| {
            if folder.contains('$') {
                return Some(format!("the repository in '{folder}' cannot be looked at"));
            }
            check_repository(&workspace.join(folder), &mut seen)
        })
    }
}

/// Checks the repository that contains a folder, and its submodules.
fn check_repository(folder: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    // If the folder is a link, git searches its repository above the target.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.ancestors().find_map(|top| match git_directory(top) {
        // Git also treats a folder without a work tree as a repository.
        Ok(None) if top.join("HEAD").symlink_metadata().is_ok() => {
            check_git_directory(top, top, seen).map(Some)
        }
        Ok(None) => None,
        Ok(Some(dir)) => Some(check_git_directory(top, &dir, seen)),
        Err(why) => Some(Some(why)),
    })?
}

/// Checks the repository of a work tree, and its submodules.
fn check_git_directory(top: &Path, dir: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    if !seen.insert(dir.to_owned()) {
        return None;
    }
    if seen.len() > MAX_REPOSITORIES {
        return Some("there are too many repositories to look at".to_owned());
    }
    let common = match read_line(&dir.join("commondir")) {
        Ok(line) => line.map_or_else(|| dir.to_owned(), |line| dir.join(line)),
        Err(why) => return Some(why),
    };
    let own = [common.join("config"), dir.join("config"), dir.join("config.worktree")];
    let found = own.iter().find_map(|path| dangerous_setting(path));
    found.or_else(|| check_submodules(top, dir, seen))
}

/// Returns the folder with the repository of a work tree, if `top` is the top of one. Fails with the reason if that
/// can't be determined.
fn git_directory(top: &Path) -> Result<Option<PathBuf>, String> {
    let path = top.join(".git");
    if path.is_dir() {
        return Ok(Some(path));
    }
    let Some(line) = read_line(&path)? else { return Ok(None) };
    let dir = line.strip_prefix("gitdir: ").ok_or_else(|| describe_unreadable(&path))?;
    Ok(Some(top.join(dir)))
}

/// Reads a file of git with one line, as git does: only line ends are removed. Returns `None` if there is no such file.
fn read_line(path: &Path) -> Result<Option<String>, String> {
    let Some(content) = read_bounded(path, MAX_LINE_SIZE)? else { return Ok(None) };
    let text = String::from_utf8(content).map_err(|_| describe_unreadable(path))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

/// Reads a regular file up to a size, without blocking. Returns `None` if there is no such file, and an error for
/// anything else: a command can create a pipe or a device at the path.
fn read_bounded(path: &Path, max: u64) -> Result<Option<Vec<u8>>, String> {
    let read = || {
        let mut content = Vec::new();
        open_input(path)?.take(max + 1).read_to_end(&mut content)?;
        Ok::<_, io::Error>(content)
    };
    match read() {
        Ok(content) if content.len() as u64 <= max => Ok(Some(content)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        _ => Err(describe_unreadable(path)),
    }
}

/// Checks the repositories in the index of another one.
fn check_submodules(top: &Path, dir: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    let unknown = || Some("the repositories inside of this one cannot be looked at".to_owned());
    let index = match read_bounded(&dir.join("index"), MAX_INDEX_SIZE) {
        Ok(index) => index?,
        Err(why) => return Some(why),
    };
    // The mode of entries that are repositories; in the usual versions, the path follows 38 bytes later.
    let mode = memchr::memmem::Finder::new(&[0, 0, 0xe0, 0]);
    let is_plain = index.get(4..8).is_some_and(|version| matches!(version, [0, 0, 0, 2 | 3]));
    for at in mode.find_iter(&index) {
        let name = index.get(at + 38..).and_then(|rest| rest.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| is_plain && !name.is_empty()) else {
            return unknown();
        };
        let inner = top.join(name);
        if !matches!(git_directory(&inner), Ok(None))
            && let Some(why) = check_repository(&inner, seen)
        {
            return Some(why);
        }
    }
    None
}

/// Returns the setting of a configuration that may make git run a program or follow another file, or the reason why
/// that can't be determined.
fn dangerous_setting(path: &Path) -> Option<String> {
    let content = match read_bounded(path, MAX_CONFIG_SIZE) {
        Ok(content) => content?,
        Err(why) => return Some(why),
    };
    let Some(settings) = parse_git_config(&content) else {
        return Some(describe_unreadable(path));
    };
    settings.iter().find_map(|setting| {
        let (section, key) = (setting.section(), setting.name());
        let name = format!("{section}.{key}");
        let runs = matches!(section, "include" | "includeif")
            || is_in(&name, RUNNING_SETTINGS)
            || section == "gpg" && key.contains("command");
        let is_off = || {
            let value = setting.value().unwrap_or_default().to_lowercase();
            matches!(&*value, "true" | "false" | "1" | "0" | "yes" | "no")
        };
        (runs && !(key == "fsmonitor" && is_off())).then(|| describe_setting(path, &name))
    })
}

fn describe_unreadable(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "a file of the repository ({name}) cannot be read, and may make git run another program"
    )
}

fn describe_setting(path: &Path, setting: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "the repository's own configuration ({name}) has {setting}, by which git runs another program"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn settings_that_run_programs_are_found_wherever_they_stand() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join(".git/config");
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let repositories = Repositories::new(folder.path());
        let runs = |text: &str| {
            fs::write(&config, text).unwrap();
            repositories.execution_risk(&["a/b".to_owned()]).is_some()
        };
        for text in [
            "[diff]\n\texternal = ./x",
            "[DIFF]\nExternal=./x",
            "[diff \"a\"] textconv = ./x",
            "[diff \"a]b\"]\ncommand = ./x",
            "[diff.a]\ncommand = ./x",
            "[filter \"a\"]\n\tclean = ./x",
            "[filter \"a\"]\n\tprocess=./x",
            "[include]\npath = x",
            "[includeIf \"gitdir:/\"]\npath = x",
            "[core]\nfsmonitor = ./x",
            "[core]\n\tbare = false\n\tsshCommand = ./x",
            "[gpg]\nprogram = ./x",
            "[gpg \"ssh\"]\ndefaultKeyCommand = ./x",
            "[remote \"o\"]\npromisor = true",
            "[merge \"a\"]\ndriver = ./x",
            "[diff]\nsubmodule = diff",
            "[status]\nsubmoduleSummary = true",
            "[diff] external = touch OWNED # ]",
            "\u{feff}[diff]\nexternal = ./x",
            &format!("#{}\n[diff]\nexternal = ./x", "x".repeat(1 << 20)),
            "[diff]\nexternal \\",
        ] {
            assert!(runs(text), "{text}");
        }
        for text in [
            "",
            "[core]\n\tbare = false\n\tfsmonitor = true\n\thooksPath = .husky",
            "[remote \"origin\"]\n\turl = https://a.example/b\n\tfetch = +refs/heads/*:refs/remotes/origin/*",
            "[diff]\n\talgorithm = histogram\n[user]\n\tname = x",
        ] {
            assert!(!runs(text), "{text}");
        }
        assert_eq!(Repositories::default().execution_risk(&[String::new()]), None);
    }

    /// A command can replace every file by a pipe or a device.
    #[test]
    fn what_can_not_be_read_is_a_risk_and_is_not_waited_for() {
        for name in [".git", ".git/config", ".git/config.worktree", ".git/commondir", ".git/index"]
        {
            for device in [None, Some("/dev/zero")] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join(name);
                if name != ".git" {
                    fs::create_dir(folder.path().join(".git")).unwrap();
                }
                if let Some(device) = device {
                    symlink(device, &path).unwrap();
                } else {
                    let made = std::process::Command::new("mkfifo").arg(&path).status();
                    assert!(made.unwrap().success());
                }
                let repositories = Repositories::new(folder.path());
                assert!(repositories.execution_risk(&[String::new()]).is_some(), "{name}");
            }
        }
    }

    /// Git removes no blanks.
    #[test]
    fn the_folder_of_a_repository_is_found_as_git_does() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dir ")).unwrap();
        fs::write(folder.path().join("dir /config"), "[diff]\nexternal = ./x").unwrap();
        fs::write(folder.path().join(".git"), "gitdir: dir \n").unwrap();
        let repositories = Repositories::new(folder.path());
        assert!(repositories.execution_risk(&[String::new()]).is_some());
        fs::remove_file(folder.path().join(".git")).unwrap();
        assert_eq!(repositories.execution_risk(&["dir /sub".to_owned()]), None);
        fs::write(folder.path().join("dir /HEAD"), "ref: refs/heads/main").unwrap();
        assert!(repositories.execution_risk(&["dir /sub".to_owned()]).is_some());
    }
}
