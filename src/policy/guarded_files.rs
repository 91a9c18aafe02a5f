//! Existing guarded files, for the sandbox of commands.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cap_std::fs::MetadataExt as _;
use ignore::WalkBuilder;

use super::file_patterns::FilePatterns;
use super::guardrails::Guardrails;
use super::rules::{PermissionRule, PermissionRules, RuleScope};
use crate::workspace::{WorkspaceRoot, open_canonical_parent};

/// The guarded files that exist when a run begins, by their absolute paths.
///
/// The text of a command names some files, but its programs may open others. The sandbox also protects these files from
/// programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedFiles {
    /// Files and folders that must not be changed.
    pub protected: Vec<PathBuf>,
    /// Files and folders that must not be read or changed.
    pub sensitive: Vec<PathBuf>,
}

/// The maximum number of files and folders. Each delays the start of every command.
const MAX_FILES: usize = 500;

impl Guardrails {
    /// Returns the guarded files of a workspace, including ignored ones, and the files that rules deny: files that no
    /// tool may write are kept from commands as well, and so are files that no tool may read. Walks through the whole
    /// workspace, unless there are neither patterns nor rules; through `.git` only for those that name it, since git
    /// needs these files.
    pub fn guarded_files(&self, root: &WorkspaceRoot, rules: &PermissionRules) -> GuardedFiles {
        let mut files = GuardedFiles::default();
        let denied = DeniedFiles::new(root, rules, self);
        let hides = rules.deny.iter().filter(|rule| rule.has_path_pattern(RuleScope::Reads));
        let has_patterns = !self.protected.is_empty() || !self.sensitive.is_empty();
        if !has_patterns && hides.clone().next().is_none() && denied.rules.is_empty() {
            return files;
        }
        // Creation of a missing file can be prevented if its name is known.
        let named =
            denied.rules.iter().filter_map(|rule| Some(root.path().join(rule.only_path()?)));
        files.protected = named.filter(|path| path.symlink_metadata().is_err()).collect();
        let names_git = self.protected.name_git()
            || self.sensitive.name_git()
            || hides.clone().chain(&denied.rules).any(PermissionRule::names_git);
        let git = if names_git { GitFolders::WithoutObjects } else { GitFolders::Skipped };
        let mut is_cut = false;
        let mut within: Option<PathBuf> = None;
        for (path, name) in walk(root.path(), git) {
            // A guarded folder includes its content.
            if within.as_ref().is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            let is_in_git = name.split('/').any(|part| part == ".git");
            let is_listed = |patterns: &FilePatterns| match is_in_git {
                true => patterns.find_in_git(&name).is_some(),
                false => patterns.find(&name).is_some(),
            };
            let is_denied = |rule: &PermissionRule| {
                (rule.names_git() || !is_in_git) && rule.may_match_path(&name)
            };
            let list = if is_listed(&self.sensitive) || hides.clone().any(is_denied) {
                &mut files.sensitive
            } else if is_listed(&self.protected) || denied.rules.iter().any(is_denied) {
                &mut files.protected
            } else {
                continue;
            };
            is_cut |= list.len() >= MAX_FILES;
            if list.len() < MAX_FILES {
                list.push(path.clone());
            }
            within = Some(path);
        }
        if is_cut {
            log::warn!(
                "more than {MAX_FILES} files are protected by guardrails or denied by rules; commands are kept from the first \
                 {MAX_FILES} of them"
            );
        }
        files
    }
}

/// Files that rules and guardrails deny to tools that write; they are looked for before and after a command.
///
/// The confinement keeps commands from files that exist at their start. It cannot cover missing files that match a
/// pattern: these are looked for when the command has ended, except in `.git`, where other programs of the user may
/// have created or replaced files meanwhile.
#[derive(Clone, Debug, Default)]
pub struct DeniedFiles {
    root: PathBuf,
    rules: Vec<PermissionRule>,
    guarded: [(&'static str, FilePatterns); 2],
}

/// The existing denied files with their identities.
pub type ExistingFiles = BTreeMap<PathBuf, (u64, u64)>;

impl DeniedFiles {
    /// Returns the files of a workspace that rules and guardrails deny.
    pub fn new(root: &WorkspaceRoot, rules: &PermissionRules, guardrails: &Guardrails) -> Self {
        let denies = rules.deny.iter().filter(|rule| rule.has_path_pattern(RuleScope::Writes));
        let guarded = [
            ("guardrails.protected_files", guardrails.protected.clone()),
            ("guardrails.sensitive_files", guardrails.sensitive.clone()),
        ];
        Self { root: root.path().to_owned(), rules: denies.cloned().collect(), guarded }
    }

    /// Returns what denies a path.
    fn denial(&self, name: &str) -> Option<String> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.may_match_path(name)) {
            return Some(format!("rule {} of permissions.deny", rule.as_str()));
        }
        let found = |(key, patterns): &(&str, FilePatterns)| {
            patterns.find(name).map(|pattern| format!("'{pattern}' of {key}"))
        };
        self.guarded.iter().find_map(found)
    }

    /// Returns the existing denied files. Walks through the workspace if there are rules or patterns.
    pub fn existing(&self) -> ExistingFiles {
        if self.rules.is_empty() && self.guarded.iter().all(|(_, patterns)| patterns.is_empty()) {
            return ExistingFiles::new();
        }
        let denied = walk(&self.root, GitFolders::Skipped).filter_map(|(path, name)| {
            self.denial(&name)?;
            let meta = path.symlink_metadata().ok()?;
            Some((path, (meta.dev(), meta.ino())))
        });
        denied.collect()
    }

    /// Renames files that a command has created despite a rule. Returns notes about them.
    pub fn rename_denied(&self, before: &ExistingFiles) -> Vec<String> {
        let created = self.existing().into_iter().filter(|(path, file)| {
            before.get(path) != Some(file) && (path.exists() || path.is_symlink())
        });
        let note = |(path, file): (PathBuf, _)| {
            let name = path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy();
            let denial = self.denial(&name)?;
            let what = match rename_file(&path, file) {
                Some(other) => format!("was renamed to '{other}'"),
                None => "could not be renamed".to_owned(),
            };
            Some(format!("'{name}' must not be written, and {what}: {denial}"))
        };
        created.filter_map(note).collect()
    }
}

/// The part of `.git` folders that a walk visits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GitFolders {
    /// Nothing, not even the folder itself.
    Skipped,
    /// All except for what is deep in folders of objects, of which there may be any number.
    WithoutObjects,
}

/// Walks through a workspace, including ignored files. Yields the path of each file, and its name relative to the
/// workspace.
fn walk(root: &Path, git: GitFolders) -> impl Iterator<Item = (PathBuf, String)> {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false).follow_links(false);
    let base = root.to_owned();
    let is_object = move |path: &Path| {
        let around = path.strip_prefix(&base).ok().and_then(|path| path.ancestors().nth(2));
        let around = around.filter(|around| around.ends_with("objects"));
        around.is_some_and(|around| around.iter().any(|part| part == ".git"))
    };
    let entries = walk.filter_entry(move |entry| match git {
        GitFolders::Skipped => entry.file_name() != ".git",
        GitFolders::WithoutObjects => !is_object(entry.path()),
    });
    let entries = entries.build().flatten();
    entries.filter_map(move |entry| {
        let path = entry.into_path();
        // Files whose names are not UTF-8 are guarded, too.
        let name = path.strip_prefix(root).ok()?.to_string_lossy().into_owned();
        Some((path, name))
    })
}

/// The suffix of renamed files.
const DENIED_SUFFIX: &str = ".denied";

/// Renames a file with this identity, and returns its new name. A link that has replaced a folder meanwhile is not
/// followed.
fn rename_file(path: &Path, file: (u64, u64)) -> Option<String> {
    let (folder, name) = open_canonical_parent(path).ok()?;
    let found = folder.symlink_metadata(name).ok()?;
    if (found.dev(), found.ino()) != file {
        return None;
    }
    let endings = std::iter::once(DENIED_SUFFIX.to_owned())
        .chain((2..100).map(|number| format!("-{number}{DENIED_SUFFIX}")));
    let names = endings.map(|ending| {
        let mut new = name.to_owned();
        new.push(ending);
        new
    });
    let mut free = names.filter(|new| folder.symlink_metadata(new).is_err());
    let other = free.next()?;
    folder.rename(name, &folder, &other).ok()?;
    Some(other.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::policy::rules::RuleTools;

    /// A server or another session may replace a folder at any time.
    #[test]
    fn what_is_behind_a_new_link_is_not_renamed() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for folder in ["w/d", "mine"] {
            fs::create_dir_all(path(folder)).unwrap();
            fs::write(path(folder).join("x.pem"), "").unwrap();
        }
        let identity = |name: &str| {
            let found = path(name).symlink_metadata().unwrap();
            (MetadataExt::dev(&found), MetadataExt::ino(&found))
        };
        let (own, other) = (identity("w/d/x.pem"), identity("mine/x.pem"));
        assert_eq!(rename_file(&path("w/d/x.pem"), other), None);
        assert_eq!(rename_file(&path("w/d/x.pem"), own).unwrap(), "x.pem.denied");
        fs::remove_dir_all(path("w/d")).unwrap();
        symlink(path("mine"), path("w/d")).unwrap();
        assert_eq!(rename_file(&path("w/d/x.pem"), other), None);
        assert!(path("mine/x.pem").exists());
    }

    /// The names of renamed files must not circumvent a rule.
    #[test]
    fn a_file_with_the_name_of_a_renamed_one_is_denied_too() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().canonicalize().unwrap().join(name);
        fs::create_dir(path("secrets")).unwrap();
        let (command, read) = (vec!["run_command"], vec!["read_file"]);
        let tools = RuleTools { command, read, write: vec!["write_file"] };
        let rules = vec![PermissionRule::parse(&tools, "write_file(secrets/**)").unwrap()];
        let denied = DeniedFiles { root: path(""), rules, ..DeniedFiles::default() };
        let before = denied.existing();
        fs::write(path("secrets/x.denied"), "").unwrap();
        assert_eq!(denied.rename_denied(&before).len(), 1);
        assert!(!path("secrets/x.denied").exists());
        // Renamed files are not renamed again.
        let before = denied.existing();
        assert_eq!(denied.rename_denied(&before), Vec::<String>::new());
        assert!(path("secrets/x.denied.denied").exists());
    }
}
