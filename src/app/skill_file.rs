//! The front matter of a `SKILL.md`, in the format of the Agent Skills specification.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::context::file_excerpt::read_excerpt;
use crate::workspace::{RelPath, WorkspaceRoot};

/// The maximum number of bytes read for the front matter.
const MAX_FRONT_MATTER_BYTES: usize = 16 * 1024;

/// The maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_024;

/// The maximum length of the description of a skill's requirements, in characters.
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// The known keys.
const KEYS: [&str; 6] = [
    "name",
    "description",
    "license",
    "compatibility",
    "allowed-tools",
    "disable-model-invocation",
];

/// The front matter of a skill's `SKILL.md`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillFile {
    /// The name; that of the folder if the file has none.
    pub name: String,
    /// The purpose of the skill, and when to use it.
    pub description: String,
    /// The licence.
    pub license: Option<String>,
    /// The requirements on the environment.
    pub compatibility: Option<String>,
    /// The tools that the author would have run without confirmation. This grants them no permission.
    pub allowed_tools: Option<String>,
    /// Whether the model can't choose the skill by itself.
    pub is_for_users_only: bool,
    /// The reason why the skill can't be used.
    pub error: Option<String>,
    /// Harmless violations of the specification.
    pub problems: Vec<String>,
}

impl SkillFile {
    /// Reads the file of a skill in a folder of this name.
    pub(super) fn read(root: &WorkspaceRoot, path: &RelPath, folder: &str) -> Self {
        match read_excerpt(root, path, MAX_FRONT_MATTER_BYTES) {
            Ok(found) if found.omitted_bytes > 0 && has_open_front_matter(&found.text) => {
                let error = format!(
                    "its front matter does not end within the first {MAX_FRONT_MATTER_BYTES} bytes, and no more are read"
                );
                Self::invalid(folder, error)
            }
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
        let (values, problem) = match read_front_matter(&front) {
            Ok(found) => found,
            Err(error) => {
                return Self::invalid(folder, format!("its front matter is invalid: {error}"));
            }
        };
        let value = |key: &str| values.get(key)?.clone().filter(|text| !text.is_empty());
        let not_text = |key: &&str| values.get(*key).is_some_and(Option::is_none);
        let not_text =
            KEYS.into_iter().filter(not_text).map(|key| format!("its {key} is not a text"));
        let mut problems: Vec<String> = problem.into_iter().chain(not_text).collect();
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
        let is_for_users_only = match value("disable-model-invocation").as_deref() {
            None | Some("false" | "False" | "FALSE") => false,
            Some("true" | "True" | "TRUE") => true,
            Some(_) => {
                problems.push("its disable-model-invocation is neither true nor false".to_owned());
                true
            }
        };
        Self {
            name: name.unwrap_or_else(|| folder.to_owned()).chars().take(MAX_NAME_CHARS).collect(),
            description: description.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            license: value("license"),
            compatibility,
            allowed_tools: value("allowed-tools"),
            is_for_users_only,
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

/// Returns whether a text begins with front matter that does not end in it.
fn has_open_front_matter(text: &str) -> bool {
    let first = text.trim_start_matches('\u{feff}').lines().next();
    first.is_some_and(|first| first.trim_end() == "---") && front_matter(text).is_none()
}

/// Returns the lines of the front matter; `None` if its beginning or its end is missing.
fn front_matter(text: &str) -> Option<Vec<&str>> {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    lines.next().filter(|first| first.trim_end() == "---")?;
    let lines: Vec<&str> = lines.collect();
    let end = lines.iter().position(|line| line.trim_end() == "---")?;
    Some(lines[..end].to_vec())
}

/// The values of a front matter by their keys; `None` for a value that is neither a text nor a list of texts.
type FrontMatter = BTreeMap<String, Option<String>>;

/// Reads front matter, even if it only becomes YAML with its texts quoted. In that case, also returns the problem.
///
/// # Errors
///
/// Fails if the text is not YAML.
fn read_front_matter(lines: &[&str]) -> Result<(FrontMatter, Option<String>), String> {
    let error = match parse_yaml(&lines.join("\n")) {
        Ok(values) => return Ok((values, None)),
        Err(error) => error,
    };
    // Many descriptions contain a colon.
    let quoted: Vec<String> = lines.iter().map(|line| quote_value(line)).collect();
    let values = parse_yaml(&quoted.join("\n")).map_err(|_| error.clone())?;
    Ok((values, Some(format!("a text with a colon has to be quoted in YAML: {error}"))))
}

/// Quotes the value of a line `key: value` if it is a plain text with a colon.
fn quote_value(line: &str) -> String {
    let is_key = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    match line.split_once(':').map(|(key, value)| (key, value.trim())) {
        Some((key, value))
            if is_key(key) && value.contains(':') && !value.starts_with(YAML_INDICATORS) =>
        {
            format!("{key}: '{}'", value.replace('\'', "''"))
        }
        _ => line.to_owned(),
    }
}

/// Characters with which no plain text begins in YAML.
const YAML_INDICATORS: [char; 14] =
    ['"', '\'', '[', ']', '{', '}', '|', '>', '&', '*', '!', '#', '%', '@'];

/// Parses a mapping. Each text and each list of texts becomes one line.
///
/// # Errors
///
/// Fails if the text is not YAML or not a mapping, or if a key occurs twice.
fn parse_yaml(text: &str) -> Result<FrontMatter, String> {
    let mut events = YamlEvents { parser: Parser::new_from_str(text), line: 1 };
    let mut values = FrontMatter::new();
    loop {
        match events.next()? {
            Event::StreamStart | Event::DocumentStart(_) => {}
            Event::MappingStart(..) => break,
            _ => return Err(events.error("expected keys with values")),
        }
    }
    loop {
        let key = match events.next()? {
            Event::Scalar(key, ..) => key.into_owned(),
            Event::MappingEnd => break,
            _ => return Err(events.error("a key has to be a text")),
        };
        let value = match events.next()? {
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "~" | "null") => {
                Some(String::new())
            }
            Event::Scalar(text, ..) => Some(text.into_owned()),
            Event::SequenceStart(..) => events.read_list()?,
            _ => events.skip(1).map(|()| None)?,
        };
        let value = value.map(|text| {
            let words: Vec<&str> = text.split_whitespace().collect();
            words.join(" ").chars().filter(|c| !c.is_control()).collect()
        });
        if values.insert(key.clone(), value).is_some() {
            return Err(events.error(&format!("`{key}` is there twice")));
        }
    }
    while events.next()? != Event::StreamEnd {}
    Ok(values)
}

/// The events of a YAML document.
struct YamlEvents<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The line of the last event, in the file.
    line: usize,
}

impl<'a> YamlEvents<'a> {
    /// Returns the next event. An alias is an error, since its target is not kept.
    fn next(&mut self) -> Result<Event<'a>, String> {
        // The front matter begins on the second line of the file.
        match self.parser.next() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, span))) => {
                self.line = span.start.line() + 1;
                match event {
                    Event::Alias(_) => Err(self.error("aliases (`*`) are not supported")),
                    event => Ok(event),
                }
            }
            Some(Err(error)) => {
                self.line = error.marker().line() + 1;
                Err(self.error(error.info()))
            }
        }
    }

    /// Returns the rest of a list as a text; `None` if it contains anything else than texts.
    fn read_list(&mut self) -> Result<Option<String>, String> {
        let mut items = Some(Vec::new());
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(items.map(|items| items.join(" "))),
                Event::Scalar(text, ..) => {
                    items.iter_mut().for_each(|items| items.push(text.clone()));
                }
                _ => {
                    self.skip(1)?;
                    items = None;
                }
            }
        }
    }

    /// Skips the rest of `open` nested lists and mappings.
    fn skip(&mut self, mut open: usize) -> Result<(), String> {
        while open > 0 {
            match self.next()? {
                Event::SequenceStart(..) | Event::MappingStart(..) => open += 1,
                Event::SequenceEnd | Event::MappingEnd | Event::StreamEnd => open -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn error(&self, what: &str) -> String {
        format!("line {}: {what}", self.line)
    }
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
    fn what_is_not_understood_is_reported() {
        let parse = |front: &str| SkillFile::parse(&format!("---\nname: a\n{front}\n---\n"), "a");
        for (front, description) in [
            ("description: \"It says \\\"go\\\": \\u00e4\"", "It says \"go\": ä"),
            ("description: 'it''s' # a comment", "it's"),
            ("description: >-\n  Does: things\n  # and more", "Does: things # and more"),
            ("\"description\": [Does, things]", "Does things"),
        ] {
            let skill = parse(front);
            assert_eq!((&*skill.description, skill.problems.len()), (description, 0), "{front}");
        }
        let skill = parse("description: Use it: it's good");
        assert_eq!(skill.description, "Use it: it's good");
        assert!(skill.problems[0].contains("quoted in YAML: line 3: "), "{skill:?}");
        for (front, expected) in [
            ("description: \"x\n  unfinished", "line "),
            ("license: &a MIT\ndescription: *a", "line 4: aliases"),
            ("description: x\ndescription: y", "line 4: `description` is there twice"),
            ("description: {text: x}", "no description"),
            ("description: [x", "line "),
            ("- x", "line "),
        ] {
            let skill = parse(front);
            assert!(
                skill.error.as_ref().is_some_and(|error| error.contains(expected)),
                "{skill:?}"
            );
        }
        let skill = parse("description: x\nlicense: {name: MIT}\ndisable-model-invocation: yes");
        let problems =
            ["its license is not a text", "its disable-model-invocation is neither true nor false"];
        assert_eq!(
            (skill.problems.as_slice(), skill.is_for_users_only),
            (&problems.map(str::to_owned)[..], true)
        );
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
