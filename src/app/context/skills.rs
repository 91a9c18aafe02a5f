//! The section about skills: their names and descriptions, and the way to read the rest.

use std::fmt::Write as _;

use super::PromptSection;
use crate::app::skills::{MAX_SKILLS, Skill, SkillScope, SkillStatus};
use crate::tools::{READ_FILE, READ_SKILL};

/// The maximum number of bytes of all descriptions together.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

const PREFACE: &str = "\
Instructions for certain kinds of work. When the task is of such a kind, read the skill before you begin, and follow it: \
";

/// Returns the section about the skills. If all descriptions together are too long, each gets the same space.
pub(super) fn skills_section(skills: &[Skill]) -> PromptSection {
    let mut section = PromptSection::default();
    let is_invalid = |skill: &&Skill| skill.status == SkillStatus::Invalid;
    for skill in skills.iter().filter(is_invalid) {
        // The name of a folder may contain line breaks, which would look like further lines of the log.
        let file = skill.file.to_string_lossy().replace(char::is_control, " ");
        let why = skill.reason.as_deref().unwrap_or_default();
        section.notices.push(format!("the skill {file} is left out: {why}"));
    }
    for scope in [SkillScope::Project, SkillScope::User] {
        let is_over =
            |skill: &&Skill| skill.scope == scope && skill.status == SkillStatus::OverLimit;
        let count = skills.iter().filter(is_over).count();
        if count > 0 {
            section.notices.push(format!(
                "only {MAX_SKILLS} skills of the {} count, and {count} are left out; `architect skills` lists them",
                scope.as_str()
            ));
        }
    }
    let active: Vec<&Skill> =
        skills.iter().filter(|skill| skill.status == SkillStatus::Active).collect();
    if active.is_empty() {
        return section;
    }
    let total: usize = active.iter().map(|skill| skill.about.description.len()).sum();
    let share = match total > MAX_DESCRIPTION_BYTES {
        true => MAX_DESCRIPTION_BYTES / active.len(),
        false => MAX_DESCRIPTION_BYTES,
    };
    if total > MAX_DESCRIPTION_BYTES {
        let count = active.len();
        section.notices.push(format!(
            "the descriptions of {count} skills are shortened to {share} bytes each; `skills.exclude` leaves skills out"
        ));
    }
    let has = |scope| active.iter().any(|skill| skill.scope == scope);
    section.text.push_str(PREFACE);
    section.text += &match (has(SkillScope::Project), has(SkillScope::User)) {
        (_, false) => format!("its file with `{READ_FILE}`"),
        (false, true) => format!("with `{READ_SKILL}`"),
        (true, true) => {
            format!("its file with `{READ_FILE}`, or where none is named, with `{READ_SKILL}`")
        }
    };
    section.text += ".\n\n";
    for skill in active {
        let name = &skill.name;
        let _ = match skill.scope {
            SkillScope::Project => write!(section.text, "* `{name}` ({}): ", skill.file.display()),
            SkillScope::User => write!(section.text, "* `{name}`: "),
        };
        let description = &skill.about.description;
        let mut ends = (0..=share.min(description.len())).rev();
        let end = ends.find(|end| description.is_char_boundary(*end)).unwrap_or(0);
        section.text += &description[..end];
        section.text += if end < description.len() { "…\n" } else { "\n" };
    }
    section
}

/// Returns the skills that an agent can read with the tools that it may use.
pub(in crate::app) fn readable_skills(
    skills: &[Skill],
    may_use: impl Fn(&str) -> bool,
) -> Vec<Skill> {
    let has_tool = may_use(READ_SKILL);
    skills.iter().filter(|skill| has_tool || skill.scope == SkillScope::Project).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::app::skill_file::SkillFile;

    fn skill(number: usize, scope: SkillScope, description: String) -> Skill {
        let name = format!("s{number}");
        let about = SkillFile { name: name.clone(), description, ..SkillFile::default() };
        let file = PathBuf::from(format!("{name}/SKILL.md"));
        Skill { name, scope, file, about, status: SkillStatus::Active, reason: None }
    }

    #[test]
    fn the_section_says_how_each_skill_is_read() {
        let skills = [
            skill(1, SkillScope::Project, "One.".to_owned()),
            skill(2, SkillScope::User, "Two.".to_owned()),
        ];
        let text = skills_section(&skills).text;
        assert!(
            text.contains("with `read_file`, or where none is named, with `read_skill`.\n\n"),
            "{text}"
        );
        assert!(text.ends_with("* `s1` (s1/SKILL.md): One.\n* `s2`: Two.\n"), "{text}");
        let section = skills_section(&readable_skills(&skills, |tool| tool == "read_file"));
        assert!(
            !section.text.contains("s2") && !section.text.contains("read_skill"),
            "{}",
            section.text
        );
    }

    #[test]
    fn all_descriptions_together_are_bounded() {
        let skills: Vec<Skill> =
            (0..100).map(|number| skill(number, SkillScope::User, "ä".repeat(512))).collect();
        let section = skills_section(&skills);
        assert!(section.text.len() < MAX_DESCRIPTION_BYTES + 4_096, "{}", section.text.len());
        assert_eq!(section.text.lines().filter(|line| line.ends_with('…')).count(), 100);
        assert!(
            section.notices[0].contains("shortened to 163 bytes each"),
            "{:?}",
            section.notices
        );
    }
}
