//! A home and a project in a temporary folder.

use std::fs;
use std::path::PathBuf;

use architect::config::{
    Config, ConfigSources, Folders, OptionOverride, ProjectTrust, TrustStore, load,
};

/// A home, a project, and the other inputs of a configuration.
pub(crate) struct ConfigFixture {
    folder: tempfile::TempDir,
    pub(crate) sources: ConfigSources,
}

impl ConfigFixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home").display().to_string();
        let project = folder.path().join("project");
        fs::create_dir_all(&home).unwrap();
        fs::create_dir_all(&project).unwrap();
        let folders = Folders::new(|name| (name == "HOME").then_some(home.as_str()));
        let sources = ConfigSources { folders, cwd: project, ..ConfigSources::default() };
        Self { folder, sources }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file below the temporary folder.
    pub(crate) fn write(self, path: &str, text: &str) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn user(self, text: &str) -> Self {
        self.write("home/.config/architect/config.toml", text)
    }

    pub(crate) fn project(self, text: &str) -> Self {
        self.write("project/.architect/config.toml", text)
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn set(mut self, set: &str) -> Self {
        self.sources.sets.push(set.to_owned());
        self
    }

    pub(crate) fn flag(mut self, key: &'static str, value: &str, option: &str) -> Self {
        let (value, option) = (value.to_owned(), option.to_owned());
        self.sources.options.push(OptionOverride { key, value, option });
        self
    }

    pub(crate) fn profile(mut self, name: &str) -> Self {
        self.sources.profile = Some(name.to_owned());
        self
    }

    pub(crate) fn file(mut self, path: &str) -> Self {
        self.sources.file = Some(self.path(path));
        self
    }

    pub(crate) fn trust(mut self, trust: ProjectTrust) -> Self {
        self.sources.trust = trust;
        self
    }

    /// Adds the project to the list of trusted folders.
    pub(crate) fn trusted(self) -> Self {
        let store = TrustStore::new(self.sources.folders.state.as_deref().unwrap());
        store.add(&self.sources.cwd).unwrap();
        self
    }

    pub(crate) fn load(&self) -> Config {
        load(&self.sources).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns all problems, without the temporary folder in paths.
    pub(crate) fn problems(&self) -> Vec<String> {
        let error = load(&self.sources).unwrap_err();
        error.problems.iter().map(|problem| self.short(&problem.to_string())).collect()
    }

    /// Returns all notices, without the temporary folder in paths.
    pub(crate) fn notices(&self) -> Vec<String> {
        self.load().notices.iter().map(|notice| self.short(&notice.to_string())).collect()
    }

    fn short(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }

    /// Returns the value of a key and its source.
    pub(crate) fn shown(&self, key: &str) -> (String, String) {
        let config = self.load();
        let shown = config.effective_values.iter().find(|shown| shown.key == key).unwrap();
        (shown.value().unwrap_or_default(), self.short(&shown.origin.to_string()))
    }
}
