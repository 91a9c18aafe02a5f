//! What comes out of reading beside the settings: problems, and where each value comes from.

use std::path::{Path, PathBuf};

use super::origin::{Origin, Source};
use super::problem::Problem;
use super::tree::Value;

/// What came out beside the settings.
#[derive(Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    pub(super) shown: Vec<Shown>,
}

/// A key with the value that holds, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The key.
    pub key: String,
    /// Where the value comes from.
    pub origin: Origin,
    pub(super) value: Option<Value>,
    /// Whether the key belongs to an item of a list.
    pub(super) is_item: bool,
}

impl Shown {
    /// Returns the value as TOML writes it; none when nothing is set. Secrets are `***`.
    pub fn value(&self) -> Option<String> {
        self.value.as_ref().map(Value::to_string)
    }
}

/// What relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// The folder of variables and options.
    pub(super) cwd: PathBuf,
    /// What `~` stands for.
    pub(super) home: Option<PathBuf>,
}

impl Paths {
    /// Returns the absolute path that a text of this origin means.
    pub(super) fn absolute(&self, path: &Path, origin: Option<&Origin>) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.folder(origin).join(path),
        }
    }

    /// Returns the folder that a layer belongs to: for a file its own folder, except that `.architect` belongs to the
    /// folder around it.
    fn folder(&self, origin: Option<&Origin>) -> PathBuf {
        let Some(Source::File(document, _)) = origin.map(|origin| &origin.source) else {
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
    use crate::config::origin::{Document, Rank};

    #[test]
    fn a_path_is_relative_to_the_folder_of_its_layer() {
        let paths = Paths { cwd: "/work".into(), home: Some("/home/me".into()) };
        let resolve = |path: &str, file: &str| {
            let origin = Origin::file(Rank::User, &Document::new(file.into(), ""), 0..0);
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
