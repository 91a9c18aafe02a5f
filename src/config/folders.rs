//! The folders of this program, by the XDG base directory specification.

use std::path::{Path, PathBuf};

/// The folders of this program; `None` if no environment variable determines a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// The home of the user.
    pub home: Option<PathBuf>,
    /// The folder for configuration.
    pub config: Option<PathBuf>,
    /// The folder for files that commands must not write: sessions, trusted folders, indexes of workspaces.
    pub state: Option<PathBuf>,
}

impl Folders {
    /// Returns the folders that these variables name: `HOME`, `XDG_CONFIG_HOME`, `XDG_STATE_HOME`.
    ///
    /// Relative paths are ignored, as the specification requires.
    pub fn new<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Self {
        let path = |name: &str| {
            variable(name).map(Path::new).filter(|path| path.is_absolute()).map(Path::to_owned)
        };
        let home = path("HOME");
        let folder = |name: &str, in_home: &str| {
            let base = path(name).or_else(|| Some(home.as_ref()?.join(in_home)));
            base.map(|base| base.join("architect"))
        };
        Self {
            config: folder("XDG_CONFIG_HOME", ".config"),
            state: folder("XDG_STATE_HOME", ".local/state"),
            home,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &'static str)]) -> Option<PathBuf> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| *v);
        Folders::new(find).config
    }

    /// Fault K11.
    #[test]
    fn folders_are_found_or_absent_but_never_relative() {
        assert_eq!(config(&[("HOME", "/h")]), Some("/h/.config/architect".into()));
        assert_eq!(config(&[("HOME", "/")]), Some("/.config/architect".into()));
        assert_eq!(
            config(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]),
            Some("/x/architect".into())
        );
        assert_eq!(
            config(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")]),
            Some("/h/.config/architect".into())
        );
        assert_eq!(config(&[("HOME", "")]), None);
        assert_eq!(config(&[]), None);
    }
}
