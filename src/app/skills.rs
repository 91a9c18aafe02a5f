//! Skills: folders with instructions for certain kinds of work, in the format of the Agent Skills specification.
//!
//! The skills of a project are in its workspace, those of the user elsewhere. The model gets names and descriptions,
//! and reads the rest when needed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::process_env::ProcessEnv;
use super::skill_file::SkillFile;
use crate::config::Config;
use crate::types::{matches_pattern, matches_wildcard, word_enum};
use crate::view::sanitize::is_harmful;
use crate::workspace::{FileKind, RelPath, WorkspaceRoot};

/// The folders of a project's skills. Of two skills with the same name, the one in the earlier folder takes precedence.
const PROJECT_FOLDERS: [&str; 3] = [".agents/skills", ".claude/skills", ".architect/skills"];

/// The folders in the user's home with skills for several programs.
const HOME_FOLDERS: [&str; 2] = [".agents/skills", ".claude/skills"];

/// The file that makes a folder a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";

/// The maximum number of skills read, for the project and for the user each.
pub(super) const MAX_SKILLS: usize = 100;

/// The maximum number of entries read of a folder.
const MAX_ENTRIES: usize = 1_000;

/// A skill, usable or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name from the front matter; by default the name of the folder.
    pub name: String,
    /// The origin of the skill.
    pub scope: SkillScope,
    /// The path of the skill's `SKILL.md`: relative to the workspace for the project's skills, otherwise absolute with
    /// links resolved.
    pub file: PathBuf,
    /// The front matter.
    pub about: SkillFile,
    /// Whether the model gets it.
    pub status: SkillStatus,
    /// The reason if the model does not get the skill.
    pub reason: Option<String>,
}

word_enum! {
    /// The origin of a skill.
    pub enum SkillScope {
        /// The workspace.
        Project = "project",
        /// A folder of the user.
        User = "user",
    }
}

word_enum! {
    /// Whether the model gets a skill.
    pub enum SkillStatus {
        /// The model gets the skill.
        Active = "active",
        /// The settings, or the skill itself, turn it off.
        Off = "off",
        /// Another skill with the same name takes precedence.
        Shadowed = "shadowed",
        /// The skill can't be used.
        Invalid = "invalid",
        /// The skill is not read, since there are too many.
        OverLimit = "over-limit",
    }
}

impl Skill {
    /// Returns the skill's folder, if it is outside the workspace.
    pub(super) fn user_folder(&self) -> Option<&Path> {
        (self.scope == SkillScope::User).then(|| self.file.parent()).flatten()
    }
}

/// The sources of the user's skills, and the selection of skills.
#[derive(Clone, Debug, Default)]
pub struct SkillSources {
    /// The folders with the user's skills; earlier folders take precedence.
    pub folders: Vec<PathBuf>,
    /// The folders in which a newly created folder would also be a source of skills.
    pub parents: Vec<PathBuf>,
    /// The names of the skills to use, with wildcards.
    pub include: Vec<String>,
    /// The names of the skills not to use, with wildcards.
    pub exclude: Vec<String>,
    /// Whether a skill of the project takes precedence over one of the user.
    pub is_project_trusted: bool,
}

/// The user's skills that were read.
#[derive(Clone, Debug, Default)]
pub struct UserSkills {
    sources: SkillSources,
    skills: Vec<Skill>,
}

impl SkillSources {
    /// Returns the sources from the configuration.
    pub fn new(config: &Config, world: &ProcessEnv) -> Self {
        let settings = &config.settings.skills;
        let folders = world.folders();
        let own = folders.config.map(|config| config.join("skills"));
        let more = settings.folders.iter().flat_map(|pattern| expand(pattern));
        let home = folders.home.iter();
        let home = home.flat_map(|home| HOME_FOLDERS.map(|folder| home.join(folder)));
        Self {
            folders: own.into_iter().chain(more).chain(home).collect(),
            parents: settings
                .folders
                .iter()
                .filter_map(|pattern| parent_of_matches(pattern))
                .collect(),
            include: settings.include.clone(),
            exclude: settings.exclude.clone(),
            is_project_trusted: config.is_trusted,
        }
    }

    /// Reads the skills of the user.
    pub fn read(self) -> UserSkills {
        UserSkills { skills: self.user_skills(), sources: self }
    }

    fn project_skills(&self, root: &WorkspaceRoot) -> Vec<Skill> {
        let mut skills = Vec::new();
        let mut seen = Vec::new();
        for folder in PROJECT_FOLDERS {
            let Ok(folder) = RelPath::new(folder) else { continue };
            let Ok((entries, has_more)) = root.list(&folder, MAX_ENTRIES) else { continue };
            if has_more {
                warn_about_entries(folder.as_path());
            }
            for entry in entries {
                let path = folder.join(&entry.name);
                let file = path.join(SKILL_FILE.as_ref());
                let is_folder = matches!(entry.kind, FileKind::Directory | FileKind::Link);
                let real = root.path().join(file.as_path()).canonicalize().ok();
                let is_known = real.as_ref().is_some_and(|real| seen.contains(real));
                // A link that leads out of the workspace is listed as a skill that can't be read.
                let is_outside = real.as_ref().is_some_and(|real| !real.starts_with(root.path()));
                if !is_folder || !(is_outside || root.exists(&file)) || is_known {
                    continue;
                }
                seen.extend(real);
                let name = crate::types::escape_name(&entry.name);
                let read = || SkillFile::read(root, &file, &name);
                let path = file.as_path().to_owned();
                skills.push(self.skill(SkillScope::Project, path, skills.len(), &name, read));
            }
        }
        skills
    }

    fn user_skills(&self) -> Vec<Skill> {
        let mut skills: Vec<Skill> = Vec::new();
        for folder in &self.folders {
            for (name, path) in subfolders(folder) {
                let file = path.join(SKILL_FILE);
                let is_known = skills.iter().any(|skill| skill.file == file);
                if is_known || file.symlink_metadata().is_err() {
                    continue;
                }
                let (Ok(root), Ok(inside)) = (WorkspaceRoot::open(&path), RelPath::new(SKILL_FILE))
                else {
                    continue;
                };
                let read = || SkillFile::read(&root, &inside, &name);
                skills.push(self.skill(SkillScope::User, file, skills.len(), &name, read));
            }
        }
        skills
    }

    /// Returns a skill in a folder of this name. It is not read if too many skills precede it.
    fn skill(
        &self,
        scope: SkillScope,
        file: PathBuf,
        earlier: usize,
        folder: &str,
        read: impl FnOnce() -> SkillFile,
    ) -> Skill {
        if earlier >= MAX_SKILLS {
            let reason = format!("only {MAX_SKILLS} skills of the {} count", scope.as_str());
            let about = SkillFile { name: folder.to_owned(), ..SkillFile::default() };
            let (name, status) = (folder.to_owned(), SkillStatus::OverLimit);
            return Skill { name, scope, file, about, status, reason: Some(reason) };
        }
        let about = read();
        let name = about.name.clone();
        let is_in =
            |patterns: &[String]| patterns.iter().any(|pattern| matches_wildcard(pattern, &name));
        let (status, reason) = if let Some(error) = &about.error {
            (SkillStatus::Invalid, Some(error.clone()))
        } else if file.to_string_lossy().contains(is_harmful) {
            // The path becomes part of the prompt.
            (SkillStatus::Invalid, Some("its path has control characters".to_owned()))
        } else if !is_in(&self.include) {
            (SkillStatus::Off, Some("skills.include does not name it".to_owned()))
        } else if is_in(&self.exclude) {
            (SkillStatus::Off, Some("skills.exclude names it".to_owned()))
        } else if about.is_for_users_only {
            (SkillStatus::Off, Some("it sets disable-model-invocation".to_owned()))
        } else {
            (SkillStatus::Active, None)
        };
        Skill { name, scope, file, about, status, reason }
    }
}

impl UserSkills {
    /// Returns the folders of the active skills, with links resolved.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let used = self.skills.iter().filter(|skill| skill.status == SkillStatus::Active);
        used.filter_map(|skill| Some(skill.user_folder()?.to_owned())).collect()
    }

    /// Returns the sources of the skills.
    pub(super) fn sources(&self) -> &SkillSources {
        &self.sources
    }

    /// Returns the skills of a workspace and of the user, those of the workspace first.
    pub fn find(&self, root: &WorkspaceRoot) -> Vec<Skill> {
        let mut skills = self.sources.project_skills(root);
        let is_inside = |skill: &Skill| skill.file.starts_with(root.path());
        let known: Vec<PathBuf> = skills
            .iter()
            .filter_map(|skill| root.path().join(&skill.file).canonicalize().ok())
            .collect();
        // One file under two names is one skill.
        let own = self.skills.iter();
        let own = own.filter(|skill| !is_inside(skill) || !known.contains(&skill.file));
        skills.extend(own.cloned());
        let (first, second) = match self.sources.is_project_trusted {
            true => (SkillScope::Project, SkillScope::User),
            false => (SkillScope::User, SkillScope::Project),
        };
        let mut chosen: BTreeMap<String, PathBuf> = BTreeMap::new();
        for scope in [first, second] {
            for skill in skills.iter_mut().filter(|skill| skill.scope == scope) {
                if skill.status != SkillStatus::Active {
                    continue;
                }
                if let Some(other) = chosen.get(&skill.name) {
                    skill.status = SkillStatus::Shadowed;
                    skill.reason = Some(format!("{} has the same name", other.display()));
                } else {
                    chosen.insert(skill.name.clone(), skill.file.clone());
                }
            }
        }
        skills
    }
}

/// Returns the subfolders of a folder in the order of their names, with links resolved.
fn subfolders(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, PathBuf)> = entries
        .by_ref()
        .take(MAX_ENTRIES)
        .filter_map(|entry| {
            let path = entry.path().canonicalize().ok().filter(|path| path.is_dir())?;
            Some((crate::types::escape_name(&entry.file_name()), path))
        })
        .collect();
    if entries.next().is_some() {
        warn_about_entries(folder);
    }
    found.sort();
    found
}

fn warn_about_entries(folder: &Path) {
    log::warn!("only {MAX_ENTRIES} entries of {} are looked at for skills", folder.display());
}

/// Returns the folder in which a newly created folder could match the first name with a `*` in a path.
fn parent_of_matches(pattern: &Path) -> Option<PathBuf> {
    let has_star = |path: &&Path| path.as_os_str().to_string_lossy().contains('*');
    let first = pattern.ancestors().filter(has_star).last()?;
    first.parent().map(Path::to_owned)
}

/// Returns the folders that match a path with `*` in its names, sorted by name.
fn expand(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        if !name.contains('*') {
            found.iter_mut().for_each(|folder| folder.push(part));
            continue;
        }
        let below = found.iter().flat_map(|folder| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_ENTRIES);
            let names = entries.map(|entry| entry.path());
            let mut names: Vec<PathBuf> = names
                .filter(|path| {
                    let own = path.file_name().unwrap_or_default().to_string_lossy();
                    // As in a shell, a star does not match hidden names.
                    own.starts_with('.') == name.starts_with('.') && matches_pattern(&name, &own)
                })
                .collect();
            names.sort();
            names
        });
        let mut below = below.into_iter();
        let first: Vec<PathBuf> = below.by_ref().take(MAX_ENTRIES).collect();
        if below.next().is_some() {
            log::warn!(
                "only {MAX_ENTRIES} folders of {} are looked at for skills",
                pattern.display()
            );
        }
        drop(below);
        found = first;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn skill(name: &str) -> String {
        format!("---\nname: {name}\ndescription: About {name}.\n---\n")
    }

    fn found(folder: &Path, sources: &SkillSources) -> Vec<String> {
        let root = WorkspaceRoot::open(folder.join("w")).unwrap();
        let base = folder.canonicalize().unwrap();
        let skills = sources.clone().read().find(&root).into_iter();
        let line = |skill: Skill| {
            let file = skill.file.strip_prefix(&base).unwrap_or(&skill.file).display().to_string();
            format!("{} {} {file}", skill.name, skill.status.as_str())
        };
        skills.map(line).collect()
    }

    fn sources(folder: &Path) -> SkillSources {
        SkillSources {
            folders: expand(&folder.join("*/skills")),
            include: vec!["*".to_owned()],
            ..SkillSources::default()
        }
    }

    #[test]
    fn skills_of_project_and_user_are_found_once_and_broken_ones_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("w/.agents/skills/b/SKILL.md", skill("b")),
            ("w/.agents/skills/a/SKILL.md", skill("a")),
            ("w/.claude/skills/a/SKILL.md", skill("a")),
            ("w/.claude/skills/bad/SKILL.md", "no front matter".to_owned()),
            ("w/.architect/skills/c/README.md", "no skill".to_owned()),
            ("home/skills/b/SKILL.md", skill("b")),
            ("home/skills/d/SKILL.md", skill("d")),
            ("home/skills/note.md", String::new()),
            ("other/skills/d/SKILL.md", skill("d")),
            (".hidden/skills/e/SKILL.md", skill("e")),
        ] {
            put(folder.path(), path, &text);
        }
        std::os::unix::fs::symlink(
            "../../.agents/skills/b",
            folder.path().join("w/.claude/skills/b"),
        )
        .unwrap();
        let sources = sources(folder.path());
        let expected = [
            "a active .agents/skills/a/SKILL.md",
            "b shadowed .agents/skills/b/SKILL.md",
            "a shadowed .claude/skills/a/SKILL.md",
            "bad invalid .claude/skills/bad/SKILL.md",
            "b active home/skills/b/SKILL.md",
            "d active home/skills/d/SKILL.md",
            "d shadowed other/skills/d/SKILL.md",
        ];
        assert_eq!(found(folder.path(), &sources), expected);
        // Once the user trusts the project, its own skill takes precedence.
        let trusted = SkillSources { is_project_trusted: true, ..sources };
        let listed = found(folder.path(), &trusted);
        assert!(
            listed[1].starts_with("b active") && listed[4].starts_with("b shadowed"),
            "{listed:?}"
        );
    }

    #[test]
    fn a_path_with_control_characters_is_in_no_prompt() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "w/.agents/skills/x\n\n# Heading/SKILL.md", &skill("x"));
        let root = WorkspaceRoot::open(folder.path().join("w")).unwrap();
        let found = sources(folder.path()).read().find(&root);
        assert_eq!((found.len(), found[0].status), (1, SkillStatus::Invalid));
    }

    #[test]
    fn settings_and_skills_themselves_turn_skills_off() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pdf-a", "pdf-b", "other"] {
            put(folder.path(), &format!("home/skills/{name}/SKILL.md"), &skill(name));
        }
        let manual = "---\nname: pdf-c\ndescription: x\ndisable-model-invocation: true\n---\n";
        put(folder.path(), "home/skills/pdf-c/SKILL.md", manual);
        fs::create_dir(folder.path().join("w")).unwrap();
        let sources = SkillSources {
            include: vec!["pdf-*".to_owned()],
            exclude: vec!["*-b".to_owned()],
            ..sources(folder.path())
        };
        let active: Vec<String> = found(folder.path(), &sources)
            .into_iter()
            .filter(|line| line.contains(" active "))
            .collect();
        assert_eq!(active, ["pdf-a active home/skills/pdf-a/SKILL.md"]);
        assert_eq!(
            sources.read().folders(),
            [folder.path().canonicalize().unwrap().join("home/skills/pdf-a")]
        );
    }
}
