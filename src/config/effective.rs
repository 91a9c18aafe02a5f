//! The results of reading settings besides the settings: problems, notices, and the origin of each value.

use std::path::{Path, PathBuf};

use super::keys::Description;
use super::origin::{OriginSource, ValueOrigin, may_be_secret, suggests_secret};
use super::problem::{ConfigNotice, ConfigProblem, NoticeCause, ProblemKind};
use super::value_tree::{ConfigNode, ConfigValue};
use crate::net::{MASK, mask_address};

/// The results of reading settings besides the settings.
#[derive(Default)]
pub(super) struct ReadReport {
    pub(super) problems: Vec<ConfigProblem>,
    pub(super) notices: Vec<ConfigNotice>,
    pub(super) values: Vec<EffectiveValue>,
    /// The declarations of the settings, if they are collected.
    pub(super) description: Option<Description>,
}

impl ReadReport {
    /// Adds a problem.
    pub(super) fn problem(&mut self, origin: ValueOrigin, kind: ProblemKind) {
        self.problems.push(ConfigProblem { origin, kind });
    }

    /// Adds the problem that a key can't have this value.
    pub(super) fn invalid(&mut self, node: &ConfigNode, key: &str, expected: &str) {
        let what = format!("`{key}` must be {expected}, found {}", node.value.describe(key));
        self.problem(node.origin.clone(), ProblemKind::Other(what));
    }

    /// Adds a notice.
    pub(super) fn notice(&mut self, origin: ValueOrigin, message: String, cause: NoticeCause) {
        self.notices.push(ConfigNotice { origin, message, cause });
    }
}

/// A key with its effective value, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    /// The key.
    pub key: String,
    /// Where the value comes from.
    pub origin: ValueOrigin,
    pub(super) value: Option<ConfigValue>,
}

impl EffectiveValue {
    /// Returns the value as TOML; `None` if it is not set. Secrets are `***`.
    pub fn value(&self) -> Option<String> {
        let is_arguments = self.key.rsplit('.').next() == Some("args");
        let masked = self.value.as_ref().map(|value| match value {
            ConfigValue::Text(text) => ConfigValue::Text(mask_address(text)),
            ConfigValue::List(items) if is_arguments => ConfigValue::List(mask_arguments(items)),
            other => other.clone(),
        });
        masked.map(|value| value.to_string())
    }
}

/// Returns arguments of a program without those that may be secrets, by their form or by the option that they belong to.
fn mask_arguments(items: &[ConfigNode]) -> Vec<ConfigNode> {
    let mut is_value = false;
    let mask = |item: &ConfigNode| {
        let text = item.value.as_text().unwrap_or_default();
        let is_named = std::mem::take(&mut is_value);
        let masked = match text.split_once('=') {
            _ if is_named => MASK.to_owned(),
            Some((name, _)) if suggests_secret(name) => format!("{name}={MASK}"),
            _ if text.contains('?') && text.contains("://") => mask_address(text),
            _ if may_be_secret(text) => MASK.to_owned(),
            _ => text.to_owned(),
        };
        is_value = text.starts_with('-') && !text.contains('=') && suggests_secret(text);
        ConfigNode { value: ConfigValue::Text(masked), ..item.clone() }
    };
    items.iter().map(mask).collect()
}

/// The folders that relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub(super) struct RelativePathBase {
    /// The folder for variables and options.
    pub(super) cwd: PathBuf,
    /// The folder for `~`.
    pub(super) home: Option<PathBuf>,
}

impl RelativePathBase {
    /// Makes a path absolute, by the origin of the text.
    pub(super) fn absolute(&self, path: &Path, origin: Option<&ValueOrigin>) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.base_folder(origin).join(path),
        }
    }

    /// Returns the folder that a layer belongs to: for a file its own folder, or the parent of an `.architect` folder.
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
    fn keys_in_arguments_and_addresses_are_not_shown() {
        let shown = |key: &str, value| {
            let (key, value) = (key.to_owned(), Some(value));
            EffectiveValue { key, origin: ValueOrigin::DEFAULT, value }.value().unwrap()
        };
        let text = |text: &str| ConfigValue::Text(text.to_owned());
        let args = ["-y", "some-server", "--token", "plain", "--api-key=plain", "a1b2c3d4e5f6g7h8"];
        let args = args.map(|arg| ConfigNode::new(text(arg), ValueOrigin::DEFAULT));
        assert_eq!(
            shown("mcp.servers.x.args", ConfigValue::List(args.into())),
            r#"["-y", "some-server", "--token", "***", "--api-key=***", "***"]"#
        );
        let address = text("https://h/mcp?key=plain&api-version=1");
        assert_eq!(shown("mcp.servers.x.url", address), r#""https://h/mcp?key=***&api-version=1""#);
    }

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
