//! The configuration file that `architect init` writes.

/// What a project is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectPreset {
    /// Nothing special.
    Plain,
    /// Cargo.
    Rust,
    /// Python, with ruff and pytest.
    Python,
    /// Node, with npm.
    Node,
    /// A job without a user.
    Ci,
}

/// The keys with their defaults, all of them behind `#`.
const KEYS_TEMPLATE: &str = include_str!("template/keys.toml");

impl ProjectPreset {
    /// Every preset.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Rust, Self::Python, Self::Node, Self::Ci];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Node => "node",
            Self::Ci => "ci",
        }
    }

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

/// Returns the configuration file for a new project: what the preset sets, and every key with its default as a comment.
pub fn template(preset: ProjectPreset) -> String {
    match preset.text() {
        "" => KEYS_TEMPLATE.to_owned(),
        text => format!("{text}\n{KEYS_TEMPLATE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective::{ReadReport, RelativePathBase};
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::settings::Settings;
    use crate::config::settings_reader::SettingsReader;
    use crate::config::value_tree::{self, ConfigTable};
    use crate::config::{keys, layers};

    /// Reads a file with its profiles; fails the test when something is wrong with it.
    fn read(text: &str) -> (Settings, ReadReport) {
        let table = value_tree::parse_document(
            LayerRank::User,
            &ConfigDocument::new("config.toml".into(), text),
        )
        .unwrap();
        let (table, profiles) = layers::split_profiles(table).unwrap();
        let mut report = ReadReport::default();
        for table in profiles.values().chain([&table]) {
            SettingsReader::read_layer(
                table,
                "",
                &RelativePathBase::default(),
                &mut report,
                Settings::read,
            );
        }
        assert_eq!(report.problems, []);
        let mut report = ReadReport::default();
        let settings = SettingsReader::read_layer(
            &table,
            "",
            &RelativePathBase::default(),
            &mut report,
            Settings::read,
        );
        (settings, report)
    }

    fn uncommented() -> String {
        let line = |line: &'static str| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
            _ => line,
        };
        KEYS_TEMPLATE.lines().map(|text| line(text).to_owned() + "\n").collect()
    }

    #[test]
    fn every_preset_is_a_right_configuration() {
        for preset in ProjectPreset::ALL {
            read(&template(preset));
        }
    }

    #[test]
    fn the_keys_are_all_comments_until_somebody_wants_them() {
        let (with, _) = read(KEYS_TEMPLATE);
        let mut report = ReadReport::default();
        let paths = RelativePathBase::default();
        let without = SettingsReader::read_layer(
            &ConfigTable::new(),
            "",
            &paths,
            &mut report,
            Settings::read,
        );
        assert_eq!(with, without);
    }

    /// The file is written by hand, so that it reads well; here it is held against the types.
    #[test]
    fn every_key_is_there_with_its_default() {
        let text = uncommented();
        let (_, report) = read(&text);
        let mut defaults = ReadReport::default();
        SettingsReader::read_layer(
            &ConfigTable::new(),
            "",
            &RelativePathBase::default(),
            &mut defaults,
            Settings::read,
        );
        for default in defaults.values {
            if keys::find_key(&default.key).unwrap().merge == keys::MergeStrategy::MergeByName {
                continue;
            }
            let found = report.values.iter().find(|shown| shown.key == default.key).unwrap();
            let Some(position) = found.origin.position() else {
                panic!("{} is missing", default.key)
            };
            let line = text.lines().nth(position.line - 1).unwrap();
            match default.value() {
                Some(_) => assert_eq!(default.value(), found.value(), "{line}"),
                None => assert!(line.ends_with("# no default"), "{line}"),
            }
        }
        for key in keys::KEYS {
            let last = key.path.rsplit('.').next().unwrap();
            assert!(text.contains(last), "{} is missing", key.path);
        }
    }
}
