//! Skills: instructions for certain kinds of work, of which the model gets name and purpose and reads the rest when
//! it needs it.
//!
//! A skill is a folder with a `SKILL.md`, whose front matter has `name` and `description`.

use std::fmt::Write as _;

use super::PromptSection;
use super::file_excerpt;
use crate::workspace::{FileKind, RelPath, WorkspaceRoot, escape_name};

/// Where skills are kept; of two with the same name, the one in the earlier folder counts.
const FOLDERS: [&str; 3] = [".agents/skills", ".claude/skills", ".architect/skills"];

/// The most skills that are listed.
const MAX_SKILLS: usize = 100;

/// The most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1_000;

/// How much of a file is read for its front matter, in bytes.
const MAX_FRONT_MATTER_BYTES: usize = 16 * 1024;

/// The longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_024;

const PREFACE: &str = "\
Instructions for certain kinds of work. When the task is of such a kind, read the file with `read_file` before you \
begin, and follow it.

";

/// Returns what skills there are.
pub(super) fn skills_section(root: &WorkspaceRoot) -> PromptSection {
    let mut section = PromptSection::default();
    let mut names: Vec<String> = Vec::new();
    for folder in FOLDERS {
        let Ok(folder) = RelPath::new(folder) else { continue };
        let Ok((entries, _)) = root.list(&folder, MAX_ENTRIES) else { continue };
        for entry in entries {
            let name = escape_name(&entry.name);
            let path = folder.join(&entry.name).join("SKILL.md".as_ref());
            let is_folder = matches!(entry.kind, FileKind::Directory | FileKind::Link);
            if !is_folder || !root.exists(&path) || names.contains(&name) {
                continue;
            }
            if names.len() == MAX_SKILLS {
                section
                    .notices
                    .push(format!("there are more than {MAX_SKILLS} skills; {path} is left out"));
                continue;
            }
            match read_description(root, &path) {
                Ok(description) => {
                    let _ = writeln!(section.text, "* `{name}` ({path}): {description}");
                    names.push(name);
                }
                Err(why) => section.notices.push(format!("the skill {path} is left out: {why}")),
            }
        }
    }
    if !names.is_empty() {
        section.text.insert_str(0, PREFACE);
    }
    section
}

fn read_description(root: &WorkspaceRoot, path: &RelPath) -> Result<String, String> {
    let found = file_excerpt::read_excerpt(root, path, MAX_FRONT_MATTER_BYTES)
        .map_err(|error| error.to_string())?;
    let description = front_matter_value(&found.text, "description");
    let description = description.filter(|text| !text.is_empty());
    let description = description.ok_or("its front matter has no description")?;
    Ok(description.chars().take(MAX_DESCRIPTION_CHARS).collect())
}

/// Returns what the front matter of a text says for a key, in one line.
///
/// Of YAML, this reads what skills use: a value behind its key or in the indented lines after it, quoted or not.
fn front_matter_value(text: &str, key: &str) -> Option<String> {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    lines.next().filter(|first| first.trim_end() == "---")?;
    let front: Vec<&str> = lines.take_while(|line| line.trim_end() != "---").collect();
    let at = front.iter().position(|line| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
    })?;
    let (_, first) = front[at].split_once(':')?;
    // `|` and `>` say how the lines after them are joined; here they become one line in any case.
    let first = first.trim();
    let is_block = first.starts_with(['|', '>']) && first.len() <= 3;
    let more = front[at + 1..]
        .iter()
        .take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t']));
    let words = [first].into_iter().filter(|_| !is_block).chain(more.copied());
    let joined: Vec<&str> = words.flat_map(str::split_whitespace).collect();
    let plain: String = joined.join(" ").chars().filter(|c| !c.is_control()).collect();
    let unquoted = ['"', '\''].iter().find_map(|quote| {
        plain.strip_prefix(*quote).and_then(|inside| inside.strip_suffix(*quote))
    });
    Some(unquoted.unwrap_or(&plain).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_read_in_the_spellings_that_skills_use() {
        for spelling in [
            "description: Does things.",
            "description: \"Does things.\"",
            "description: >-\n  Does\n  things.",
            "description: |\n  Does things.",
            "description: Does\n  things.\nmetadata:\n  description: no",
            "description:\n  'Does things.'\n\nlicense: MIT",
        ] {
            let text = format!("---\nname: a\n{spelling}\n---\nbody\ndescription: other\n");
            assert_eq!(
                front_matter_value(&text, "description").as_deref(),
                Some("Does things."),
                "{spelling}"
            );
        }
        for text in ["", "description: x", "---\nname: a\n---\ndescription: x\n"] {
            assert_eq!(front_matter_value(text, "description"), None, "{text}");
        }
    }

    #[test]
    fn skills_are_listed_by_name_once_and_broken_ones_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            (".agents/skills/b/SKILL.md", "---\ndescription: second\n---\nlong text"),
            (".agents/skills/a/SKILL.md", "---\ndescription: first\n---\n"),
            (".claude/skills/a/SKILL.md", "---\ndescription: again\n---\n"),
            (".claude/skills/bad/SKILL.md", "no front matter"),
            (".architect/skills/c/README.md", "no skill"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let section = skills_section(&WorkspaceRoot::open(folder.path()).unwrap());
        let listed: Vec<&str> = section.text.lines().filter(|l| l.starts_with("* ")).collect();
        let expected = [
            "* `a` (.agents/skills/a/SKILL.md): first",
            "* `b` (.agents/skills/b/SKILL.md): second",
        ];
        assert_eq!(listed, expected);
        let why = "the skill .claude/skills/bad/SKILL.md is left out: its front matter has no description";
        assert_eq!(section.notices, [why]);
    }
}
