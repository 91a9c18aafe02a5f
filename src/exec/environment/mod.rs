//! The environment of a command: what of the engine's may be known, and what keeps programs from waiting for somebody.

mod git;
pub(super) mod variables;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use self::variables::{is_passed_variable, passed_value};

/// There is no terminal, no editor, no pager and nobody to answer.
const NONINTERACTIVE: [(&str, &str); 18] = [
    ("AGENT", "architect"),
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    // What only reads a repository does not write its index.
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("SUDO_ASKPASS", "/bin/false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
];

/// Which variables of the engine a command gets.
pub struct VariableFilter<'a> {
    /// Is asked first: true keeps a variable as it is, false leaves it out, and none leaves it to the list of those that
    /// are passed on.
    pub rule: &'a dyn Fn(&str) -> Option<bool>,
}

/// Returns the environment for commands, made of the engine's.
pub fn clean_environment(
    engine: impl IntoIterator<Item = (OsString, OsString)>,
    filter: &VariableFilter<'_>,
    temp: &Path,
) -> Vec<(OsString, OsString)> {
    let (settings, others): (Vec<_>, Vec<_>) =
        engine.into_iter().partition(|(name, _)| git::is_setting_variable(name));
    let mut kept: Vec<_> = others
        .into_iter()
        .filter_map(|(name, value)| filter_variable(name, value, filter))
        .collect();
    kept.extend(git::setting_variables(&settings, filter));
    let mut set = |name: &str, value: &OsStr| {
        kept.retain(|(other, _)| other != name);
        kept.push((name.into(), value.to_owned()));
    };
    for (name, value) in NONINTERACTIVE {
        set(name, OsStr::new(value));
    }
    for name in ["TMPDIR", "TMP", "TEMP"] {
        set(name, temp.as_os_str());
    }
    kept
}

/// Returns a variable as a command gets it; `None` if it does not get it.
fn filter_variable(
    name: OsString,
    value: OsString,
    filter: &VariableFilter<'_>,
) -> Option<(OsString, OsString)> {
    let text = name.to_string_lossy();
    match (filter.rule)(&text) {
        Some(true) => return Some((name, value)),
        Some(false) => return None,
        None => {}
    }
    if !is_passed_variable(&text) {
        return None;
    }
    if text == "PATH" {
        return Some((name, absolute_search_path(&value)));
    }
    let value = match value.to_str() {
        Some(value) => passed_value(&text, value)?.into_owned().into(),
        None => value,
    };
    Some((name, value))
}

/// Returns a search path without folders that depend on where a command runs: a program there is not the user's.
fn absolute_search_path(path: &OsStr) -> OsString {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    std::env::join_paths(folders).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: &VariableFilter<'_>) -> Vec<String> {
        let engine = [
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "k"),
            ("github_token", "t"),
            ("MY_PASSWORD", "p"),
            ("BASH_ENV", "/tmp/x"),
            ("BASH_FUNC_ls%%", "() { evil; }"),
            ("ARCHITECT_MODEL", "m"),
            ("EDITOR", "vim"),
            ("GH_PAT", "p"),
            ("SENTRY_DSN", "https://a@b.example/1"),
            ("COOKIE", "c"),
            ("DATABASE_URL", "postgres://u:p@h/d"),
            ("PIP_INDEX_URL", "https://u:p@h/simple"),
            ("npm_config__auth", "a"),
            ("SSH_AUTH_SOCK", "/run/x"),
            ("LD_PRELOAD", "/x.so"),
            ("GITHUB_ENV", "/x"),
            ("UNHEARD_OF", "x"),
        ];
        let engine = engine.map(|(name, value)| (name.into(), value.into()));
        let cleaned = clean_environment(engine, filter, Path::new("/t"));
        let added = |name: &str| {
            name.starts_with("GIT_CONFIG_")
                || NONINTERACTIVE.iter().any(|(added, _)| *added == name)
        };
        let names = cleaned.iter().map(|(name, _)| name.to_str().unwrap().to_owned());
        names.filter(|name| !added(name) && !["TMPDIR", "TMP", "TEMP"].contains(&&**name)).collect()
    }

    #[test]
    fn what_is_not_on_the_list_is_left_out() {
        assert_eq!(names(&VariableFilter { rule: &|_| None }), ["PATH"]);
    }

    #[test]
    fn the_user_decides_first() {
        let rule = |name: &str| match name {
            "github_token" => Some(true),
            "PATH" => Some(false),
            _ => None,
        };
        assert_eq!(names(&VariableFilter { rule: &rule }), ["github_token"]);
    }

    #[test]
    fn tool_chains_are_found_and_folders_of_the_place_are_not() {
        let engine = [
            ("PATH", ":.:/bin:node_modules/.bin:/usr/bin"),
            ("CARGO_HOME", "/c"),
            ("LC_CTYPE", "C"),
            ("npm_config_cache", "/n"),
            ("https_proxy", "http://u:p@h.example:1"),
        ];
        let engine = engine.map(|(name, value)| (name.into(), value.into()));
        let cleaned =
            clean_environment(engine, &VariableFilter { rule: &|_| None }, Path::new("/t"));
        let value = |name: &str| {
            let found = cleaned.iter().find(|(found, _)| found == name);
            found.map(|(_, value)| value.to_str().unwrap())
        };
        assert_eq!(value("PATH"), Some("/bin:/usr/bin"));
        assert_eq!(value("CARGO_HOME"), Some("/c"));
        assert_eq!(value("LC_CTYPE"), Some("C"));
        assert_eq!(value("npm_config_cache"), Some("/n"));
        assert_eq!(value("https_proxy"), Some("http://h.example:1"));
    }

    /// Fault T8.
    #[test]
    fn nothing_asks_anybody() {
        let cleaned = clean_environment(
            [("EDITOR".into(), "vim".into())],
            &VariableFilter { rule: &|_| None },
            Path::new("/t"),
        );
        let value = |name: &str| {
            let mut found = cleaned.iter().filter(|(found, _)| found == name);
            let (_, value) = found.next().unwrap();
            assert!(found.next().is_none());
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(value("EDITOR"), "true");
        assert_eq!(value("GIT_TERMINAL_PROMPT"), "0");
        assert_eq!(value("TMPDIR"), "/t");
    }
}
