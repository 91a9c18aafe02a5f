//! The environment of a command: no secrets of the engine, and settings that keep programs from waiting for input.

mod git;
pub(super) mod variables;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use self::variables::{is_passed_variable, passed_value};

/// A variable with its value.
pub(super) type Variable = (OsString, OsString);

/// Settings for a process without a terminal, an editor, a pager or a user; commands that only read a repository do not
/// write its index.
const NONINTERACTIVE: &str = "\
    AGENT=architect TERM=dumb NO_COLOR=1 EDITOR=true VISUAL=true GIT_EDITOR=true GIT_SEQUENCE_EDITOR=true PAGER=cat \
    GIT_PAGER=cat MANPAGER=cat SYSTEMD_PAGER=cat GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=false \
    SSH_ASKPASS=false SUDO_ASKPASS=/bin/false DEBIAN_FRONTEND=noninteractive PIP_NO_INPUT=1";

/// Decides which variables of the engine are passed to a command.
pub struct VariableFilter<'a> {
    /// The first filter: `Some(true)` keeps a variable unchanged, `Some(false)` removes it, and `None` leaves the
    /// decision to the list of passed variables.
    pub rule: &'a dyn Fn(&str) -> Option<bool>,
}

/// Returns the environment for commands, derived from the engine's.
pub fn clean_environment(
    engine: impl IntoIterator<Item = Variable>,
    filter: &VariableFilter<'_>,
    temp: &Path,
) -> Vec<Variable> {
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
    for (name, value) in NONINTERACTIVE.split(' ').filter_map(|setting| setting.split_once('=')) {
        set(name, OsStr::new(value));
    }
    for name in ["TMPDIR", "TMP", "TEMP"] {
        set(name, temp.as_os_str());
    }
    kept
}

/// Returns the value of a variable for a command; `None` if it is not passed.
fn filter_variable(
    name: OsString,
    value: OsString,
    filter: &VariableFilter<'_>,
) -> Option<Variable> {
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
    let Some(readable) = value.to_str() else { return Some((name, value)) };
    let Some(passed) = passed_value(&text, readable) else {
        log::debug!(
            "commands do not get the variable {text}, since its value may contain a secret"
        );
        return None;
    };
    Some((name, passed.into_owned().into()))
}

/// Returns a search path without relative folders: programs found in these are not the user's.
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
                || NONINTERACTIVE.split(' ').any(|added| added.starts_with(&format!("{name}=")))
        };
        let names = cleaned.iter().map(|(name, _)| name.to_str().unwrap().to_owned());
        names.filter(|name| !added(name) && !["TMPDIR", "TMP", "TEMP"].contains(&&**name)).collect()
    }

    #[test]
    fn variables_that_are_not_listed_are_removed() {
        assert_eq!(names(&VariableFilter { rule: &|_| None }), ["PATH"]);
    }

    #[test]
    fn the_rule_of_the_user_comes_first() {
        let rule = |name: &str| match name {
            "github_token" => Some(true),
            "PATH" => Some(false),
            _ => None,
        };
        assert_eq!(names(&VariableFilter { rule: &rule }), ["github_token"]);
    }

    #[test]
    fn search_paths_keep_tool_chains_and_lose_relative_folders() {
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
    fn programs_do_not_wait_for_input() {
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
