//! The environment of a command: what of the engine's may be known, and what keeps programs from waiting for somebody.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::git;

/// What a variable's name must not contain, to be passed on.
const SECRET: [&str; 7] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];

/// Variables that make a shell run something first.
const STARTS_SOMETHING: [&str; 4] = ["BASH_ENV", "ENV", "PROMPT_COMMAND", "SHELLOPTS"];

/// There is no terminal, no editor, no pager and nobody to answer.
const UNATTENDED: [(&str, &str); 17] = [
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
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("SUDO_ASKPASS", "/bin/false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
];

/// Which variables of the engine a command gets.
pub struct Filter<'a> {
    /// Is asked first: true keeps a variable, false leaves it out, and none leaves it to its name.
    pub rule: &'a dyn Fn(&str) -> Option<bool>,
}

/// Returns the environment for commands, made of the engine's.
pub fn clean(
    engine: impl IntoIterator<Item = (OsString, OsString)>,
    filter: &Filter<'_>,
    temp: &Path,
) -> Vec<(OsString, OsString)> {
    let (settings, others): (Vec<_>, Vec<_>) =
        engine.into_iter().partition(|(name, _)| git::is_setting(name));
    let mut kept: Vec<_> = others.into_iter().filter(|(name, _)| is_kept(name, filter)).collect();
    kept.extend(git::settings(&settings, filter));
    let mut set = |name: &str, value: &OsStr| {
        kept.retain(|(other, _)| other != name);
        kept.push((name.into(), value.to_owned()));
    };
    for (name, value) in UNATTENDED {
        set(name, OsStr::new(value));
    }
    for name in ["TMPDIR", "TMP", "TEMP"] {
        set(name, temp.as_os_str());
    }
    kept
}

/// Returns whether a variable of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    let upper = name.to_uppercase();
    // The keys of git's settings are names.
    !upper.starts_with("GIT_CONFIG_KEY_") && SECRET.iter().any(|secret| upper.contains(secret))
}

fn is_kept(name: &OsStr, filter: &Filter<'_>) -> bool {
    let name = name.to_string_lossy();
    if let Some(decided) = (filter.rule)(&name) {
        return decided;
    }
    let upper = name.to_uppercase();
    !is_secret(&upper)
        && !STARTS_SOMETHING.contains(&upper.as_str())
        && !upper.starts_with("ARCHITECT_")
        // A function that a shell would define before it does anything.
        && !upper.starts_with("BASH_FUNC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: &Filter<'_>) -> Vec<String> {
        let engine = [
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "k"),
            ("github_token", "t"),
            ("MY_PASSWORD", "p"),
            ("BASH_ENV", "/tmp/x"),
            ("BASH_FUNC_ls%%", "() { evil; }"),
            ("ARCHITECT_MODEL", "m"),
            ("EDITOR", "vim"),
        ];
        let engine = engine.map(|(name, value)| (name.into(), value.into()));
        let cleaned = clean(engine, filter, Path::new("/t"));
        let added = |name: &str| {
            name.starts_with("GIT_CONFIG_") || UNATTENDED.iter().any(|(added, _)| *added == name)
        };
        let names = cleaned.iter().map(|(name, _)| name.to_str().unwrap().to_owned());
        names.filter(|name| !added(name) && !["TMPDIR", "TMP", "TEMP"].contains(&&**name)).collect()
    }

    #[test]
    fn secrets_are_left_out_by_their_names() {
        assert_eq!(names(&Filter { rule: &|_| None }), ["PATH"]);
    }

    #[test]
    fn the_user_decides_first() {
        let rule = |name: &str| match name {
            "github_token" => Some(true),
            "PATH" => Some(false),
            _ => None,
        };
        assert_eq!(names(&Filter { rule: &rule }), ["github_token"]);
    }

    /// Fault T8.
    #[test]
    fn nothing_asks_anybody() {
        let cleaned =
            clean([("EDITOR".into(), "vim".into())], &Filter { rule: &|_| None }, Path::new("/t"));
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
