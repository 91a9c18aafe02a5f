//! What comes out of reading beside the settings: problems, and where each value comes from.

use std::path::{Path, PathBuf};

use super::origin::{OriginSource, ValueOrigin};
use super::problem::ConfigProblem;
use super::value_tree::ConfigValue;

/// What came out beside the settings.
#[derive(Default)]
pub(super) struct ReadReport {
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) values: Vec<EffectiveValue>,
}

/// A key with the value that holds, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    /// The key.
    pub key: String,
    /// Where the value comes from.
    pub origin: ValueOrigin,
    pub(super) value: Option<ConfigValue>,
    /// Whether the key belongs to an item of a list.
    pub(super) is_list_item: bool,
}

impl EffectiveValue {
    /// Returns the value as TOML writes it; none when nothing is set. Secrets are `***`.
    pub fn value(&self) -> Option<String> {
        self.value.as_ref().map(ConfigValue::to_string)
    }
}

/// What relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub(super) struct RelativePathBase {
    /// The folder of variables and options.
    pub(super) cwd: PathBuf,
    /// What `~` stands for.
    pub(super) home: Option<PathBuf>,
}

impl RelativePathBase {
    /// Returns the absolute path that a text of this origin means.
    pub(super) fn absolute(&self, path: &Path, origin: Option<&ValueOrigin>) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.base_folder(origin).join(path),
        }
    }

    /// Returns the folder that a layer belongs to: for a file its own folder, except that `.architect` belongs to the
    /// folder around it.
    fn base_folder(&self, origin: Option<&ValueOrigin>) -> PathBuf {
        let Some(OriginSource::File(document, _)) = origin.map(|origin| &origin.source) else {
            return self.cwd.clone();
        };
        let mut folders = document.path().ancestors().skip(1);
        let around = folders.find(|folder| !folder.ends_with(".architect"));
        self.cwd.join(around.unwrap_or_else(|| Path::new("")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::{ConfigDocument, LayerRank};

    #[test]
    fn a_path_is_relative_to_the_folder_of_its_layer() {
        let paths = RelativePathBase { cwd: "/work".into(), home: Some("/home/me".into()) };
        let resolve = |path: &str, file: &str| {
            let origin =
                ValueOrigin::in_file(LayerRank::User, &ConfigDocument::new(file.into(), ""), 0..0);
            paths.absolute(Path::new(path), Some(&origin)).display().to_string()
        };
        assert_eq!(resolve("a", "/etc/x/config.toml"), "/etc/x/a");
        assert_eq!(resolve("a", "/repo/.architect/config.toml"), "/repo/a");
        assert_eq!(resolve("a", "ci.toml"), "/work/a");
        assert_eq!(resolve("/a", "ci.toml"), "/a");
        assert_eq!(resolve("~/a", "ci.toml"), "/home/me/a");
        assert_eq!(paths.absolute(Path::new("a"), None), Path::new("/work/a"));
    }
}
