//! The front matter of a `SKILL.md`, as the Agent Skills specification describes it.

use super::context::file_excerpt::read_excerpt;
use crate::workspace::{RelPath, WorkspaceRoot};

/// How much of a file is read for its front matter, in bytes.
const MAX_FRONT_MATTER_BYTES: usize = 16 * 1024;

/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The longest description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// The longest description of what a skill needs, in characters.
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// What the `SKILL.md` of a skill says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillFile {
    /// The name; that of the folder if the file has none.
    pub name: String,
    /// What it does, and when to use it.
    pub description: String,
    /// The licence.
    pub license: Option<String>,
    /// What it needs of its environment.
    pub compatibility: Option<String>,
    /// The tools that its author would have run without asking. They get no permission by this.
    pub allowed_tools: Option<String>,
    /// Whether the model may not choose it by itself.
    pub is_for_users_only: bool,
    /// Why it can't be used.
    pub error: Option<String>,
    /// What contradicts the specification and does no harm.
    pub problems: Vec<String>,
}

impl SkillFile {
    /// Reads the file of a skill in a folder of this name.
    pub(super) fn read(root: &WorkspaceRoot, path: &RelPath, folder: &str) -> Self {
        match read_excerpt(root, path, MAX_FRONT_MATTER_BYTES) {
            Ok(found) => Self::parse(&found.text, folder),
            Err(error) => Self::invalid(folder, error.to_string()),
        }
    }

    fn invalid(folder: &str, error: String) -> Self {
        Self { name: folder.to_owned(), error: Some(error), ..Self::default() }
    }

    fn parse(text: &str, folder: &str) -> Self {
        let Some(front) = front_matter(text) else {
            let error = "it has no front matter between two lines of `---`";
            return Self::invalid(folder, error.to_owned());
        };
        let value = |key: &str| value_of(&front, key).filter(|text| !text.is_empty());
        let mut problems = Vec::new();
        let name = value("name");
        match &name {
            None => problems.push("it has no name; that of its folder is used".to_owned()),
            Some(name) if !is_valid_name(name) => problems.push(format!(
                "its name is not of at most {MAX_NAME_CHARS} lower-case letters, digits and single hyphens between them"
            )),
            Some(name) if name != folder => {
                problems.push(format!("its folder has another name, {folder}"));
            }
            Some(_) => {}
        }
        let Some(description) = value("description") else {
            return Self::invalid(folder, "its front matter has no description".to_owned());
        };
        let mut too_long = |what: &str, text: &str, most: usize| {
            if text.chars().count() > most {
                problems.push(format!("its {what} has more than {most} characters"));
            }
        };
        too_long("description", &description, MAX_DESCRIPTION_CHARS);
        let compatibility = value("compatibility");
        too_long(
            "compatibility",
            compatibility.as_deref().unwrap_or_default(),
            MAX_COMPATIBILITY_CHARS,
        );
        Self {
            name: name.unwrap_or_else(|| folder.to_owned()).chars().take(MAX_NAME_CHARS).collect(),
            description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            license: value("license"),
            compatibility,
            allowed_tools: value("allowed-tools"),
            is_for_users_only: value("disable-model-invocation").is_some_and(|text| text == "true"),
            error: None,
            problems,
        }
    }
}

fn is_valid_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() && !c.is_uppercase())
    };
    name.chars().count() <= MAX_NAME_CHARS && name.split('-').all(is_part)
}

/// Returns the lines of the front matter; `None` if it has no beginning or no end.
fn front_matter(text: &str) -> Option<Vec<&str>> {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    lines.next().filter(|first| first.trim_end() == "---")?;
    let lines: Vec<&str> = lines.collect();
    let end = lines.iter().position(|line| line.trim_end() == "---")?;
    Some(lines[..end].to_vec())
}

/// Returns what front matter says for a key, in one line.
///
/// Of YAML, this reads what skills use: a value behind its key or in the indented lines after it, quoted or not, and lists.
fn value_of(front: &[&str], key: &str) -> Option<String> {
    let at = front.iter().position(|line| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
    })?;
    let (_, first) = front[at].split_once(':')?;
    // `|` and `>` say how the lines after them are joined; here they become one line in any case.
    let first = first.trim();
    let is_block = first.starts_with(['|', '>']) && first.len() <= 3;
    let more = front[at + 1..].iter().take_while(|line| {
        line.trim().is_empty() || line.starts_with([' ', '\t']) || line.starts_with("- ")
    });
    let is_list = first.is_empty();
    let more = more.map(|line| match line.trim_start().strip_prefix("- ") {
        Some(item) if is_list => item,
        _ => line,
    });
    let words = [first].into_iter().filter(|_| !is_block).chain(more);
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
            let skill = SkillFile::parse(&text, "a");
            assert_eq!(
                (&*skill.description, skill.problems),
                ("Does things.", Vec::new()),
                "{spelling}"
            );
        }
        for text in
            ["", "description: x", "---\nname: a\n---\ndescription: x\n", "---\ndescription: x"]
        {
            assert!(SkillFile::parse(text, "a").error.is_some(), "{text}");
        }
    }

    #[test]
    fn the_optional_fields_are_read() {
        let text = "---\nname: a\ndescription: x\nlicense: MIT\ncompatibility: Requires git\n\
                    allowed-tools:\n  - Bash(git:*)\n  - Read\nmetadata:\n  version: \"1.0\"\n---\n";
        let skill = SkillFile::parse(text, "a");
        assert_eq!(skill.license.as_deref(), Some("MIT"));
        assert_eq!(skill.compatibility.as_deref(), Some("Requires git"));
        assert_eq!(skill.allowed_tools.as_deref(), Some("Bash(git:*) Read"));
        assert!(skill.problems.is_empty() && skill.error.is_none());
    }

    #[test]
    fn what_contradicts_the_specification_is_a_problem() {
        for (name, expected) in [
            ("PDF", "lower-case"),
            ("-a", "lower-case"),
            ("a--b", "lower-case"),
            ("a_b", "lower-case"),
            ("", "no name"),
            ("b", "another name"),
        ] {
            let skill = SkillFile::parse(&format!("---\nname: {name}\ndescription: x\n---\n"), "a");
            assert!(skill.error.is_none() && skill.problems[0].contains(expected), "{skill:?}");
        }
        let long = "x".repeat(1_025);
        let skill = SkillFile::parse(&format!("---\nname: a\ndescription: {long}\n---\n"), "a");
        assert_eq!(skill.description.len(), 1_024);
        assert_eq!(skill.problems, ["its description has more than 1024 characters"]);
    }
}
