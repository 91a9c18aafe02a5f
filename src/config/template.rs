//! The configuration file for a new project, made from the declarations of the keys.

use std::fmt::Write as _;

use super::key_spec::{KeySpec, ValueType};
use super::settings::description;
use crate::types::word_enum;

word_enum! {
    /// The kind of project that a configuration file is for.
    pub enum ProjectPreset {
        /// Any.
        Plain = "plain",
        /// Cargo.
        Rust = "rust",
        /// Python, with ruff and pytest.
        Python = "python",
        /// Node, with npm.
        Node = "node",
        /// A job without a user.
        Ci = "ci",
    }
}

impl ProjectPreset {
    fn text(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Rust => include_str!("template/rust.toml"),
            Self::Python => include_str!("template/python.toml"),
            Self::Node => include_str!("template/node.toml"),
            Self::Ci => include_str!("template/ci.toml"),
        }
    }
}

/// The file with the JSON Schema, beside the configuration file.
pub const SCHEMA_FILE: &str = "config.schema.json";

/// The first line: editors with TOML support (taplo, Even Better TOML) complete and check the file by this schema.
const SCHEMA_LINE: &str = "#:schema ./config.schema.json\n";

const HEAD: &str = "\
# Every key with its default. Remove the `#` in front of a key, and of its [section], to change it.
#
# Values come from, each overriding the ones before: the defaults, the user's config.toml, this project's
# .architect/config.toml, ARCHITECT_* variables (llm.model is ARCHITECT_LLM_MODEL), --config FILE, --profile NAME,
# --set KEY=VALUE and the other options. `architect config show` prints where each value comes from.
#
# Until its folder is trusted, a project's file can only tighten: lower a limit, add a denial, turn something off.
# `architect config trust` trusts it from then on; `--trust`, or ARCHITECT_TRUST=1 in CI, does for one run.
";

const PROFILES: &str = "
# Sets of values for `--profile NAME`; the same keys as above.
#[profiles.careful]
#limits = { max_steps = 20, budget_usd = 0.5 }
#sandbox = { network = \"off\" }
";

/// The name of the example agent in the template.
const AGENT: &str = "docs";

/// Returns the configuration file for a new project: the values of the preset, and every key with its default as a
/// comment. `providers` are the names of the model providers, for a comment.
pub fn template(preset: ProjectPreset, providers: &str) -> String {
    let mut text = format!("{HEAD}\n");
    let description = description();
    for key in description.keys.iter().filter(|key| !key.path.contains('.')) {
        write_key(&mut text, key, providers);
    }
    for (table, doc) in &description.tables {
        let _ = write!(text, "\n{}", comment(doc));
        let keys = || description.keys.iter().filter(|key| key.table() == table);
        let is_plain = |key: &&KeySpec| !matches!(key.value_type, ValueType::Tables(_));
        let has_plain = keys().any(|key| is_plain(&key));
        if has_plain {
            let _ = writeln!(text, "#[{}]", table.replace('*', AGENT));
        }
        keys().filter(is_plain).for_each(|key| write_key(&mut text, key, providers));
        let lists = keys().filter_map(|key| match &key.value_type {
            ValueType::Tables(entry) => Some((key, entry, key.example?)),
            _ => None,
        });
        for (index, (key, entry, example)) in lists.enumerate() {
            if index == 0 {
                let about = if has_plain {
                    format!("\n{}", comment(&key.describe(providers)))
                } else {
                    String::new()
                };
                text.push_str(&about);
                write_entry(&mut text, key, entry, providers);
            }
            text.push('\n');
            for line in example.lines() {
                let _ = writeln!(text, "{}{line}", if line.is_empty() { "" } else { "#" });
            }
        }
    }
    text.push_str(PROFILES);
    match preset.text() {
        "" => format!("{SCHEMA_LINE}{text}"),
        own => format!("{SCHEMA_LINE}{own}\n{text}"),
    }
}

fn write_key(text: &mut String, key: &KeySpec, providers: &str) {
    text.push_str(&comment(&key.describe(providers)));
    let name = key.last_part();
    let _ = match (&key.default, key.example) {
        (Some(default), None) => writeln!(text, "#{name} = {default}"),
        (Some(default), Some(example)) => writeln!(text, "#{name} = {default} # {example}"),
        (None, example) => writeln!(text, "#{name} = {} # no default", example.unwrap_or("")),
    };
}

/// Writes the keys of a list's entry.
fn write_entry(text: &mut String, list: &KeySpec, entry: &[KeySpec], providers: &str) {
    let about = format!("Each entry of `{}` has:", list.path);
    text.push_str(&comment(&about));
    for key in entry {
        let default = match (&key.default, key.is_required) {
            (_, true) => " Required.".to_owned(),
            (Some(default), _) => format!(" Default: {default}."),
            (None, false) => String::new(),
        };
        text.push_str(&comment(&format!("- {}: {}{default}", key.path, key.describe(providers))));
    }
}

/// Returns a text as comment lines of at most 120 columns.
fn comment(text: &str) -> String {
    let mut lines = String::from("#");
    let mut width = 1;
    for word in text.split(' ') {
        let length = word.chars().count() + 1;
        if width + length > 120 {
            lines.push_str("\n#");
            width = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        width += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective::{ReadReport, RelativePathBase};
    use crate::config::key_spec::{MergeStrategy, keys};
    use crate::config::layers;
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::settings::Settings;
    use crate::config::settings_reader::SettingsReader;
    use crate::config::value_tree::ConfigTable;
    use crate::types::WordEnum;

    fn read_table(table: &ConfigTable) -> (Settings, ReadReport) {
        let mut report = ReadReport::default();
        let paths = RelativePathBase::default();
        let settings = SettingsReader::read_layer(table, "", &paths, &mut report, Settings::read);
        (settings, report)
    }

    /// Reads a file with its profiles; fails the test if the file has problems.
    fn read(text: &str) -> (Settings, ReadReport) {
        let document = ConfigDocument::new("config.toml".into(), text);
        let mut report = ReadReport::default();
        let (table, profiles) =
            layers::parse_layer(&document, LayerRank::User, &mut report).unwrap();
        for table in profiles.values().chain([&table]) {
            assert_eq!(read_table(table).1.problems, []);
        }
        read_table(&table)
    }

    fn uncommented() -> String {
        let line = |line: &str| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with([' ', ':']) => rest.to_owned(),
            _ => line.to_owned(),
        };
        template(ProjectPreset::Plain, "x, y").lines().map(|text| line(text) + "\n").collect()
    }

    #[test]
    fn every_preset_is_valid() {
        for (_, preset) in ProjectPreset::WORDS {
            read(&template(*preset, "x, y"));
        }
    }

    #[test]
    fn the_plain_template_sets_nothing() {
        assert_eq!(
            read(&template(ProjectPreset::Plain, "x, y")).0,
            read_table(&ConfigTable::new()).0
        );
    }

    /// Without its `#`, each key is there with its default, or is marked as having none.
    #[test]
    fn each_key_is_in_the_template_with_its_default() {
        let text = uncommented();
        let (_, report) = read(&text);
        for key in keys().iter().filter(|key| key.merge != MergeStrategy::MergeByName) {
            if let ValueType::Map(_) = key.value_type {
                assert!(text.contains(&format!("\n{} = {{}} # ", key.last_part())), "{}", key.path);
                continue;
            }
            let path = key.path.replace('*', AGENT);
            let found = report.values.iter().find(|value| value.key == path).unwrap();
            let origin = found.origin.to_string();
            let line: usize = origin.split(':').nth(1).unwrap().parse().unwrap();
            let line = text.lines().nth(line - 1).unwrap();
            match &key.default {
                Some(default) => assert_eq!(Some(default.to_string()), found.value(), "{line}"),
                None => assert!(line.ends_with("# no default"), "{line}"),
            }
        }
    }

    #[test]
    fn comments_fit_120_columns() {
        let text = template(ProjectPreset::Plain, "x, y");
        let long = text.lines().find(|line| line.starts_with("# ") && line.chars().count() > 120);
        assert_eq!(long, None);
    }
}
