//! Programs that the configuration of a repository makes git run.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::command_analysis::is_in;

/// The repositories in which commands run. Checks whether a reading git command runs other programs there.
///
/// The configuration of a repository can name programs for comparing and converting files. It is not part of a clone,
/// but a tree from elsewhere can contain one. The user's own configuration outside of the workspace is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    /// The workspace; without it, nothing is checked.
    workspace: Option<PathBuf>,
}

/// The maximum size of a configuration, in bytes.
const MAX_CONFIG_SIZE: u64 = 1 << 20;

/// The maximum size of an index, in bytes.
const MAX_INDEX_SIZE: u64 = 64 << 20;

/// The maximum number of repositories checked for one command.
const MAX_REPOSITORIES: usize = 64;

/// Settings by which git may run something. With `diff.submodule` and `status.submodulesummary` it runs itself in
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

    /// Returns why git may run something in one of these folders, which are relative to the workspace or absolute;
    /// `None` if it does not. Looks at files.
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

/// Checks the repository to which a folder belongs, and its submodules.
fn check_repository(folder: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    // Git looks for its repository above the folder that a link leads to.
    let folder = &folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let (top, dir) = folder.ancestors().find_map(|top| Some((top, git_directory(top)?)))?;
    if !seen.insert(dir.clone()) {
        return None;
    }
    if seen.len() > MAX_REPOSITORIES {
        return Some("there are too many repositories to look at".to_owned());
    }
    let common = fs::read_to_string(dir.join("commondir"))
        .map_or_else(|_| dir.clone(), |text| dir.join(text.trim_end()));
    let own = [common.join("config"), dir.join("config"), dir.join("config.worktree")];
    let found = own.iter().find_map(|path| dangerous_setting(path));
    found.or_else(|| check_submodules(top, &dir, seen))
}

/// Returns the folder that has the repository of a work tree, if its top is here.
fn git_directory(top: &Path) -> Option<PathBuf> {
    let path = top.join(".git");
    if path.is_dir() {
        return Some(path);
    }
    let text = fs::read_to_string(&path).ok()?;
    Some(top.join(text.strip_prefix("gitdir:")?.trim()))
}

/// Checks the repositories in the index of another one.
fn check_submodules(top: &Path, dir: &Path, seen: &mut BTreeSet<PathBuf>) -> Option<String> {
    let unknown = || Some("the repositories inside of this one cannot be looked at".to_owned());
    let path = dir.join("index");
    let Ok(mut file) = fs::File::open(&path) else { return None };
    let mut index = Vec::new();
    if file.by_ref().take(MAX_INDEX_SIZE + 1).read_to_end(&mut index).is_err()
        || index.len() as u64 > MAX_INDEX_SIZE
    {
        return unknown();
    }
    // The mode of an entry that is a repository; the path stands 38 bytes behind it, in the usual versions.
    let mode = memchr::memmem::Finder::new(&[0, 0, 0xe0, 0]);
    let is_plain = index.get(4..8).is_some_and(|version| matches!(version, [0, 0, 0, 2 | 3]));
    for at in mode.find_iter(&index) {
        let name = index.get(at + 38..).and_then(|rest| rest.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| is_plain && !name.is_empty()) else {
            return unknown();
        };
        if git_directory(&top.join(name)).is_some()
            && let Some(why) = check_repository(&top.join(name), seen)
        {
            return Some(why);
        }
    }
    None
}

/// Returns the setting of a configuration by which git may run something or follow another file.
fn dangerous_setting(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    match fs::File::open(path) {
        Ok(file) => drop(file.take(MAX_CONFIG_SIZE).read_to_end(&mut text)),
        Err(_) => return None,
    }
    let text = String::from_utf8_lossy(&text).to_lowercase();
    let mut section = String::new();
    text.lines().map(str::trim).find_map(|line| {
        let mut setting = line;
        if let Some(header) = line.strip_prefix('[') {
            let (name, rest) = header.rsplit_once(']').unwrap_or((header, ""));
            let end = name
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '.'))
                .unwrap_or(name.len());
            name[..end].clone_into(&mut section);
            setting = rest.trim();
            if matches!(&*section, "include" | "includeif") {
                return Some(describe_setting(path, &section));
            }
        }
        let key = setting.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
        let name = format!("{section}.{key}");
        let runs = is_in(&name, RUNNING_SETTINGS) || section == "gpg" && key.contains("command");
        let is_off = || {
            let value = setting.split_once('=').map_or("", |(_, value)| value.trim());
            matches!(value, "true" | "false" | "1" | "0" | "yes" | "no")
        };
        (runs && !(key == "fsmonitor" && is_off())).then(|| describe_setting(path, &name))
    })
}

fn describe_setting(path: &Path, setting: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "the repository's own configuration ({name}) has {setting}, by which git runs another program"
    )
}

#[cfg(test)]
mod tests {
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
}
