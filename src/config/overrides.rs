//! The layers of environment variables, of `--set`, and of the other options of the command line.

use std::sync::Arc;

use super::effective::ReadReport;
use super::key_spec::{self, KeyMatch, KeySpec, VARIABLE_PREFIX, is_list, keys};
use super::origin::{LayerRank, OriginSource, ValueOrigin};
use super::problem::{NoticeCause, ProblemKind};
use super::setting_value::parse_list;
use super::toml_document;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue, insert_at_path};
use crate::types::{did_you_mean, nearest};

/// A value that an option of the command line sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionOverride {
    /// The key.
    pub key: &'static str,
    /// The value; for a list, one item, since the option can be repeated.
    pub value: String,
    /// The option, for messages.
    pub option: String,
}

/// The variable that names a configuration file, as `--config` does.
pub(super) const CONFIG_VARIABLE: &str = "ARCHITECT_CONFIG";
/// The variable that names a profile, as `--profile` does.
pub(super) const PROFILE_VARIABLE: &str = "ARCHITECT_PROFILE";

/// The variable that trusts the project's folder for one run, as `--trust` does.
pub const TRUST_VARIABLE: &str = "ARCHITECT_TRUST";

/// Variables that this program sets for the processes that it starts.
const CHILD_PROCESS_VARIABLES: [&str; 6] = [
    "ARCHITECT_CALL_ID",
    "ARCHITECT_EDITED_FILE",
    "ARCHITECT_HOOK",
    "ARCHITECT_HOOK_DEPTH",
    "ARCHITECT_SESSION_ID",
    "ARCHITECT_WORKSPACE",
];

/// Variables for options that set no key.
const OPTION_VARIABLES: [&str; 3] = [CONFIG_VARIABLE, PROFILE_VARIABLE, TRUST_VARIABLE];

/// Returns the layer of the environment variables.
pub(super) fn layer_from_variables(
    variables: &[(String, String)],
    report: &mut ReadReport,
) -> ConfigTable {
    let mut table = ConfigTable::new();
    for (name, text) in variables.iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)) {
        let source = OriginSource::Variable(Arc::from(name.as_str()));
        let origin = ValueOrigin { rank: LayerRank::Variable, source };
        if let Some(key) = keys().iter().find(|key| key.variable().as_deref() == Some(name)) {
            insert_at_path(&mut table, &key.path, parse_override(key, text, &origin), &origin);
        } else if !CHILD_PROCESS_VARIABLES.iter().chain(&OPTION_VARIABLES).any(|own| own == name) {
            report_unknown_variable(name, origin, report);
        }
    }
    table
}

/// Reports a variable that sets no key. A name similar to a known one is a mistake; other variables may belong to
/// another program.
fn report_unknown_variable(name: &str, origin: ValueOrigin, report: &mut ReadReport) {
    let variables: Vec<String> = keys().iter().filter_map(KeySpec::variable).collect();
    let known = variables.iter().map(String::as_str).chain(OPTION_VARIABLES);
    // With the common prefix, any two names would be similar.
    let bare = &name[VARIABLE_PREFIX.len()..];
    if let Some(found) = nearest(bare, known.map(|name| &name[VARIABLE_PREFIX.len()..])) {
        let nearest = Some(format!("{VARIABLE_PREFIX}{found}"));
        return report.problem(origin, ProblemKind::unknown("variable", name, nearest));
    }
    let bare = bare.to_lowercase();
    let meant = key_spec::suggest_from_other_sections(&bare);
    let meant = meant.and_then(|path| key_spec::find_key(&path));
    // A setting without its section must not be ignored: it may be a limit.
    let is_named = meant.is_some_and(|key| key.last_part().starts_with(&bare));
    let is_section = keys().iter().any(|key| key.path.split('.').next() == Some(&bare));
    let meant = meant.and_then(KeySpec::variable);
    if is_named || is_section {
        return report.problem(origin, ProblemKind::unknown("variable", name, meant));
    }
    let message = format!("no setting has this variable{}", did_you_mean(meant.as_deref()));
    report.notice(origin, message, NoticeCause::Other);
}

/// The layer of one `--set KEY=VALUE`.
#[derive(Debug)]
pub(super) enum SetOverride {
    /// A key; empty if the option is invalid.
    Key(ConfigTable),
    /// A key of a list's entry, as in `mcp.servers.NAME.timeout`: it can only be checked together with the entry.
    EntryKey(ConfigTable),
}

/// The origin of a value in the form of `--set`.
#[derive(Clone, Copy, Debug)]
pub(super) enum SetOrigin {
    /// The command line.
    Argument,
    /// A manifest.
    Manifest,
    /// The options of a stored session.
    Session,
}

/// Returns the layer of one `--set KEY=VALUE`.
pub(super) fn layer_from_set(set: &str, from: SetOrigin, report: &mut ReadReport) -> SetOverride {
    let mut table = ConfigTable::new();
    let (path, text) =
        set.split_once('=').map_or((set, None), |(key, value)| (key.trim(), Some(value)));
    let option = || format!("--set {path}").into();
    let source = match from {
        SetOrigin::Argument => OriginSource::Argument(option()),
        SetOrigin::Manifest => OriginSource::Manifest(option()),
        SetOrigin::Session => OriginSource::Session,
    };
    let origin = ValueOrigin { rank: LayerRank::Argument, source };
    let kind = match (key_spec::find_match(path), text) {
        (Some(KeyMatch::Key(key)), Some(text)) if key.is_cumulative() && text.trim().is_empty() => {
            ProblemKind::Other("expected a list; [] empties it".to_owned())
        }
        (Some(KeyMatch::Key(key)), Some(text)) => {
            insert_at_path(&mut table, path, parse_override(key, text, &origin), &origin);
            return SetOverride::Key(table);
        }
        (Some(KeyMatch::Pair(key, name)), Some(text)) => {
            let pair = ConfigNode::new(parse_literal(text, &origin), origin.clone());
            let pairs = ConfigValue::Table(ConfigTable::from([(name.to_owned(), pair)]));
            insert_at_path(&mut table, &key.path, pairs, &origin);
            return SetOverride::Key(table);
        }
        (Some(KeyMatch::EntryKey), Some(text)) => {
            insert_at_path(&mut table, path, parse_literal(text, &origin), &origin);
            return SetOverride::EntryKey(table);
        }
        (Some(_), None) => ProblemKind::Other("expected KEY=VALUE".to_owned()),
        (None, _) => {
            let nearest = nearest(path, keys().iter().map(|key| key.path.as_str()));
            let nearest = nearest.map(str::to_owned);
            let nearest =
                nearest.or_else(|| key_spec::suggest_from_other_sections(path.rsplit('.').next()?));
            ProblemKind::unknown("key", path, nearest)
        }
    };
    report.problem(origin, kind);
    SetOverride::Key(table)
}

/// Returns the layer of an option other than `--set`.
pub(super) fn layer_from_option(option: &OptionOverride) -> ConfigTable {
    let origin = argument_origin(&option.option);
    let value = ConfigValue::Untyped(option.value.clone());
    let value = match is_list(option.key) {
        true => ConfigValue::List(vec![ConfigNode::new(value, origin.clone())]),
        false => value,
    };
    let mut table = ConfigTable::new();
    insert_at_path(&mut table, option.key, value, &origin);
    table
}

fn argument_origin(option: &str) -> ValueOrigin {
    ValueOrigin { rank: LayerRank::Argument, source: OriginSource::Argument(option.into()) }
}

fn parse_override(key: &KeySpec, text: &str, origin: &ValueOrigin) -> ConfigValue {
    if key.is_list() { parse_list(text, origin) } else { parse_literal(text, origin) }
}

/// Parses strings, lists and tables as TOML and keeps anything else as text: the meaning of a bare word or a number
/// depends on the key.
fn parse_literal(text: &str, origin: &ValueOrigin) -> ConfigValue {
    use ConfigValue::{List, Table, Text, Untyped};
    let value = toml_document::parse_value(text.trim(), origin);
    let value = value.filter(|value| matches!(value, Text(_) | List(_) | Table(_)));
    value.unwrap_or_else(|| Untyped(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::merge::merge;

    fn from(variables: &[(&str, &str)]) -> (ConfigTable, Vec<String>, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        let mut report = ReadReport::default();
        let table = layer_from_variables(&variables, &mut report);
        let problems = report.problems.iter().map(ToString::to_string).collect();
        (table, problems, report.notices.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_key_but_those_with_chosen_names_has_one_variable() {
        let mut names: Vec<String> = keys().iter().filter_map(KeySpec::variable).collect();
        let agents = keys().iter().filter(|key| key.path.contains('*')).count();
        assert_eq!(names.len() + agents, keys().len());
        assert!(names.contains(&"ARCHITECT_LIMITS_MAX_STEPS".to_owned()));
        names.extend(CHILD_PROCESS_VARIABLES.map(str::to_owned));
        names.sort();
        names.dedup();
        assert_eq!(names.len() + agents, keys().len() + CHILD_PROCESS_VARIABLES.len());
    }

    #[test]
    fn a_variable_becomes_a_value_of_its_key() {
        let (table, ..) = from(&[("ARCHITECT_LLM_RETRIES", "5"), ("OTHER", "1")]);
        let ConfigValue::Table(llm) = &table["llm"].value else { panic!() };
        assert_eq!(llm["retries"].value, ConfigValue::Untyped("5".to_owned()));
        assert_eq!(llm["retries"].origin.to_string(), "ARCHITECT_LLM_RETRIES");
    }

    /// Fault K2: a typo in a variable must not be ignored.
    #[test]
    fn a_misspelled_variable_is_a_mistake() {
        let (_, problems, notices) = from(&[("ARCHITECT_SANBOX_MODE", "read-only")]);
        let expected = "ARCHITECT_SANBOX_MODE: unknown variable `ARCHITECT_SANBOX_MODE`, \
                        did you mean `ARCHITECT_SANDBOX_MODE`?";
        assert_eq!((problems, notices.len()), (vec![expected.to_owned()], 0));
    }

    /// Fault K2: a limit that is meant is not ignored.
    #[test]
    fn a_variable_without_its_section_is_a_mistake() {
        let (_, problems, notices) =
            from(&[("ARCHITECT_BUDGET_USD", "0"), ("ARCHITECT_SANDBOX", "x")]);
        let expected = [
            "ARCHITECT_BUDGET_USD: unknown variable `ARCHITECT_BUDGET_USD`, did you mean \
             `ARCHITECT_LIMITS_BUDGET_USD`?",
            "ARCHITECT_SANDBOX: unknown variable `ARCHITECT_SANDBOX`",
        ];
        assert_eq!((problems, notices.len()), (expected.map(str::to_owned).into(), 0));
    }

    #[test]
    fn a_variable_of_another_program_is_reported_and_one_for_child_processes_is_not() {
        let (_, problems, notices) =
            from(&[("ARCHITECT_BUILDING_SITE", "x"), ("ARCHITECT_HOOK_DEPTH", "1")]);
        assert_eq!(problems.len(), 0);
        assert_eq!(notices, ["ARCHITECT_BUILDING_SITE: no setting has this variable"]);
    }

    #[test]
    fn set_accepts_any_key_and_reports_mistakes() {
        let mut report = ReadReport::default();
        let sets = ["agents.build.max_steps=3", "llm.modle=x", "stream=x", "llm.model"];
        let tables = sets.map(|set| layer_from_set(set, SetOrigin::Argument, &mut report));
        assert!(matches!(&tables[0], SetOverride::Key(table) if table.contains_key("agents")));
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        let expected = [
            "--set llm.modle: unknown key `llm.modle`, did you mean `llm.model`?",
            "--set stream: unknown key `stream`, did you mean `llm.stream`?",
            "--set llm.model: expected KEY=VALUE",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn an_option_for_a_list_can_be_repeated_and_may_have_commas() {
        let flag = |value: &str| OptionOverride {
            key: "permissions.allow",
            value: value.to_owned(),
            option: "--allow".to_owned(),
        };
        let table = merge(layer_from_option(&flag("a(b, c)")), layer_from_option(&flag("d")), "");
        let rules = &table["permissions"].value.as_table().unwrap()["allow"];
        assert_eq!(rules.value.to_string(), "[\"a(b, c)\", \"d\"]");
    }
}
