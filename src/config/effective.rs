//! The results of reading settings besides the settings: problems, notices, and the origin of each value.

use std::path::{Path, PathBuf};

use super::key_spec::Description;
use super::origin::{ValueOrigin, has_address_with_user, may_be_secret, suggests_secret};
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

    /// Adds the problem that the value of a key is invalid.
    pub(super) fn invalid(&mut self, node: &ConfigNode, key: &str, expected: &str) {
        let what = format!("`{key}` must be {expected}, found {}", node.value.describe(key));
        self.problem(node.origin.clone(), ProblemKind::Other(what));
    }

    /// Adds a notice.
    pub(super) fn notice(&mut self, origin: ValueOrigin, message: String, cause: NoticeCause) {
        self.notices.push(ConfigNotice { origin, message, cause });
    }
}

/// A key with its effective value and the origin of the value.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    /// The key.
    pub key: String,
    /// The origin of the value.
    pub origin: ValueOrigin,
    pub(super) value: Option<ConfigValue>,
}

impl EffectiveValue {
    /// Returns the value as TOML; `None` if it is not set. Secrets are `***`.
    pub fn value(&self) -> Option<String> {
        let name = self.key.rsplit('.').next().unwrap_or_default();
        let (is_arguments, is_command) = (name == "args", name.ends_with("command"));
        // A field of a request body may be named like a key.
        let is_secret = self.key.contains(".options.") && suggests_secret(name);
        let masked = self.value.as_ref().map(|value| match value {
            ConfigValue::Text(_) if is_secret => ConfigValue::Text(MASK.to_owned()),
            ConfigValue::Text(text) if is_command => ConfigValue::Text(mask_command(text)),
            ConfigValue::Text(text) => ConfigValue::Text(mask_address_parts(text)),
            ConfigValue::List(items) if is_arguments => ConfigValue::List(mask_arguments(items)),
            other => other.clone(),
        });
        masked.map(|value| value.to_string())
    }
}

/// Returns an address with the parts of its path and parameters masked that may be secrets.
fn mask_address_parts(text: &str) -> String {
    let masked = mask_address(text);
    let Some((scheme, rest)) = masked.split_once("://") else { return masked };
    let (address, parameters) = match rest.split_once('?') {
        Some((address, parameters)) => (address, Some(parameters)),
        None => (rest, None),
    };
    let mut parts = address.split('/');
    let host = parts.next().unwrap_or_default();
    let path = parts.map(|part| if may_be_secret(part) { MASK } else { part });
    let address = std::iter::once(host).chain(path).collect::<Vec<_>>().join("/");
    let parameters = parameters.map_or(String::new(), |parameters| format!("?{parameters}"));
    format!("{scheme}://{address}{parameters}")
}

/// Masks the words of a command line, one after the other.
#[derive(Default)]
struct ArgumentMask {
    /// Whether the next word is the value of an option that suggests a secret.
    is_value: bool,
}

impl ArgumentMask {
    /// Returns a word, masked if its form or the option before it suggests a secret.
    fn mask(&mut self, text: &str) -> String {
        let is_named = std::mem::take(&mut self.is_value);
        let masked = match text.split_once('=') {
            _ if is_named => MASK.to_owned(),
            Some((name, _)) if suggests_secret(name) => format!("{name}={MASK}"),
            _ if text.contains("://") && !has_address_with_user(text) => mask_address_parts(text),
            _ if may_be_secret(text) => MASK.to_owned(),
            _ => text.to_owned(),
        };
        self.is_value = text.starts_with('-') && !text.contains('=') && suggests_secret(text);
        masked
    }
}

/// Returns the arguments of a program, with possible secrets masked.
fn mask_arguments(items: &[ConfigNode]) -> Vec<ConfigNode> {
    let mut arguments = ArgumentMask::default();
    let mask = |item: &ConfigNode| {
        let masked = arguments.mask(item.value.as_text().unwrap_or_default());
        ConfigNode { value: ConfigValue::Text(masked), ..item.clone() }
    };
    items.iter().map(mask).collect()
}

/// Returns a command line with possible secrets masked. White space stays as it is.
pub(crate) fn mask_command(line: &str) -> String {
    let mut arguments = ArgumentMask::default();
    let parts = line.split_inclusive(char::is_whitespace);
    let mask = |part: &str| {
        let word = part.trim_end();
        match word.is_empty() {
            true => part.to_owned(),
            false => arguments.mask(word) + &part[word.len()..],
        }
    };
    parts.map(mask).collect()
}

/// The base folders of relative paths.
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
        let Some(path) = origin.and_then(ValueOrigin::path) else { return self.cwd.clone() };
        let mut folders = path.ancestors().skip(1);
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
        assert_eq!(shown("llm.options.api_key", text("plain")), "\"***\"");
        assert_eq!(shown("llm.options.user", text("plain")), "\"plain\"");
        let args = ["-y", "some-server", "--token", "plain", "--api-key=plain", "a1b2c3d4e5f6g7h8"];
        let args = args.map(|arg| ConfigNode::new(text(arg), ValueOrigin::DEFAULT));
        assert_eq!(
            shown("mcp.servers.x.args", ConfigValue::List(args.into())),
            r#"["-y", "some-server", "--token", "***", "--api-key=***", "***"]"#
        );
        let address = text("https://h/mcp?key=plain&api-version=1");
        assert_eq!(shown("mcp.servers.x.url", address), r#""https://h/mcp?key=***&api-version=1""#);
        let address = text("https://h:1/v1/a1b2c3d4e5f6g7h8/deployments/gpt-4o");
        assert_eq!(shown("llm.api_base", address), r#""https://h:1/v1/***/deployments/gpt-4o""#);
        let command =
            text("env TOKEN=plain  curl --token plain https://h/a1b2c3d4e5f6g7h8 | cut -c 1-9");
        assert_eq!(
            shown("llm.api_key_command", command),
            r#""env TOKEN=***  curl --token *** https://h/*** | cut -c 1-9""#
        );
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
