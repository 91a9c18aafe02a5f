//! Settings for git in the environment of a command.
//!
//! A repository's configuration can name programs that git runs even for a query. A clone does not get the
//! configuration of its origin. But the files of a clone may contain a hidden bare repository with its own
//! configuration. So git is made to accept a bare repository only if it is named explicitly, and to ignore any file
//! system monitor that a repository names.

use std::ffi::{OsStr, OsString};

use super::variables::is_secret_variable;
use super::{Variable, VariableFilter};

/// Settings that override those of all files.
const FORCED_SETTINGS: [(&str, &str); 3] = [
    ("safe.bareRepository", "explicit"),
    ("core.fsmonitor", "false"),
    // A diff should only read; without this setting, it may write the index and run a hook.
    ("diff.autoRefreshIndex", "false"),
];

const COUNT: &str = "GIT_CONFIG_COUNT";
const KEY: &str = "GIT_CONFIG_KEY_";
const VALUE: &str = "GIT_CONFIG_VALUE_";

/// Returns whether a variable carries settings for git: their number, a name, or a value.
pub(in crate::exec) fn is_setting_variable(variable: &OsStr) -> bool {
    variable
        .to_str()
        .is_some_and(|name| name == COUNT || name.starts_with(KEY) || name.starts_with(VALUE))
}

/// Returns the variables that carry settings for git: those of the engine without secrets, followed by the forced ones.
pub(in crate::exec) fn setting_variables(
    engine: &[Variable],
    filter: &VariableFilter<'_>,
) -> Vec<Variable> {
    let value = |name: &str| {
        let found = engine.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.clone())
    };
    let count = value(COUNT).and_then(|count| count.to_str()?.trim().parse::<usize>().ok());
    let own = (0..count.unwrap_or(0).min(engine.len())).filter_map(|index| {
        let (key, text) = (format!("{KEY}{index}"), format!("{VALUE}{index}"));
        let setting = (value(&key)?, value(&text)?);
        let decided = [&key, &text].map(|name| (filter.rule)(name));
        let is_kept = !decided.contains(&Some(false))
            && (decided.contains(&Some(true)) || !has_secret(&setting.0));
        is_kept.then_some(setting)
    });
    let added = FORCED_SETTINGS.map(|(key, value)| (OsString::from(key), OsString::from(value)));
    let own = own.filter(|setting| !added.contains(setting));
    let all: Vec<_> = own.chain(added.clone()).collect();
    let mut variables = vec![(COUNT.into(), all.len().to_string().into())];
    for (index, (key, value)) in all.into_iter().enumerate() {
        variables.push((format!("{KEY}{index}").into(), key));
        variables.push((format!("{VALUE}{index}").into(), value));
    }
    variables
}

/// Returns whether a setting of this name holds a secret: a header, credentials, an address with a password.
fn has_secret(key: &OsStr) -> bool {
    let key = key.to_string_lossy().to_lowercase();
    is_secret_variable(&key) || key.ends_with(".extraheader") || key.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(engine: &[(&str, &str)], rule: &dyn Fn(&str) -> Option<bool>) -> Vec<String> {
        let engine = engine.iter().map(|(name, value)| (name.into(), value.into()));
        let engine: Vec<Variable> = engine.collect();
        let variables = setting_variables(&engine, &VariableFilter { rule });
        let text = |text: &OsString| text.to_str().unwrap().to_owned();
        variables.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }

    const OURS: [&str; 7] = [
        "GIT_CONFIG_COUNT=3",
        "GIT_CONFIG_KEY_0=safe.bareRepository",
        "GIT_CONFIG_VALUE_0=explicit",
        "GIT_CONFIG_KEY_1=core.fsmonitor",
        "GIT_CONFIG_VALUE_1=false",
        "GIT_CONFIG_KEY_2=diff.autoRefreshIndex",
        "GIT_CONFIG_VALUE_2=false",
    ];

    #[test]
    fn settings_of_the_user_come_before_forced_ones() {
        assert_eq!(settings(&[], &|_| None), OURS);
        let own = [
            ("GIT_CONFIG_COUNT", "3"),
            ("GIT_CONFIG_KEY_0", "http.https://a.example/.extraHeader"),
            ("GIT_CONFIG_VALUE_0", "Authorization: secret"),
            ("GIT_CONFIG_KEY_1", "safe.directory"),
            ("GIT_CONFIG_VALUE_1", "*"),
            ("GIT_CONFIG_KEY_2", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_2", "true"),
            ("GIT_CONFIG_KEY_7", "not.counted"),
            ("GIT_CONFIG_VALUE_7", "x"),
        ];
        let expected = [
            "GIT_CONFIG_COUNT=5",
            "GIT_CONFIG_KEY_0=safe.directory",
            "GIT_CONFIG_VALUE_0=*",
            "GIT_CONFIG_KEY_1=core.fsmonitor",
            "GIT_CONFIG_VALUE_1=true",
            "GIT_CONFIG_KEY_2=safe.bareRepository",
            "GIT_CONFIG_VALUE_2=explicit",
            "GIT_CONFIG_KEY_3=core.fsmonitor",
            "GIT_CONFIG_VALUE_3=false",
            "GIT_CONFIG_KEY_4=diff.autoRefreshIndex",
            "GIT_CONFIG_VALUE_4=false",
        ];
        assert_eq!(settings(&own, &|_| None), expected);
        assert_eq!(settings(&own, &|name| name.starts_with(KEY).then_some(false)), OURS);
        assert_eq!(settings(&own, &|_| Some(true))[0], "GIT_CONFIG_COUNT=6");
    }

    #[test]
    fn forced_settings_are_not_repeated() {
        let forced = OURS.map(|text| text.split_once('=').unwrap());
        assert_eq!(settings(&forced, &|_| None), OURS);
        assert_eq!(settings(&[("GIT_CONFIG_COUNT", "99999999999")], &|_| None), OURS);
    }
}
