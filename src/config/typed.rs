//! What is typed: variables of the environment, `--set`, and the other options of the command line.

use std::sync::Arc;

use super::keys::{self, Found, KEYS, Key, Shape};
use super::origin::{Origin, Rank, Source};
use super::problem::{Notice, NoticeCause, Problem, Trouble};
use super::report::Report;
use super::setting::typed_list;
use super::tree::{self, Node, Table, Value};
use crate::model::{did_you_mean, nearest};

/// An option of the command line that stands for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The key.
    pub key: &'static str,
    /// The value; for a list one of its items, so that the option can be repeated.
    pub value: String,
    /// The option, as typed.
    pub option: String,
}

/// What every variable for this program begins with.
const PREFIX: &str = "ARCHITECT_";

/// The variable that names a configuration file, as `--config` does.
pub(super) const CONFIG: &str = "ARCHITECT_CONFIG";
/// The variable that names a profile, as `--profile` does.
pub(super) const PROFILE: &str = "ARCHITECT_PROFILE";

/// The variable that trusts the project's folder for one run, as `--trust` does.
pub const TRUST: &str = "ARCHITECT_TRUST";

/// Variables that this program sets for the processes it starts; they reach it when one of those starts it again.
const OURS: [&str; 6] = [
    "ARCHITECT_CALL_ID",
    "ARCHITECT_EDITED_FILE",
    "ARCHITECT_HOOK",
    "ARCHITECT_HOOK_DEPTH",
    "ARCHITECT_SESSION_ID",
    "ARCHITECT_WORKSPACE",
];

/// Variables that stand for options which are no keys.
const NAMED: [&str; 3] = [CONFIG, PROFILE, TRUST];

/// Returns the variable that stands for a key: `llm.model` is `ARCHITECT_LLM_MODEL`. Keys of agents have none.
fn variable(key: &Key) -> Option<String> {
    let name = key.path.replace('.', "_").to_uppercase();
    (!key.path.contains('*')).then(|| format!("{PREFIX}{name}"))
}

/// Returns the layer that variables make.
pub(super) fn of_variables(
    variables: &[(String, String)],
    report: &mut Report,
    notices: &mut Vec<Notice>,
) -> Table {
    let mut table = Table::new();
    for (name, text) in variables.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        let source = Source::Variable(Arc::from(name.as_str()));
        let origin = Origin { rank: Rank::Variable, source };
        let key = KEYS.iter().find(|key| variable(key).as_deref() == Some(name));
        match key {
            Some(key) => put(&mut table, key.path, value(key, text, &origin), &origin),
            None if OURS.contains(&name.as_str()) || NAMED.contains(&name.as_str()) => {}
            None => unknown_variable(name, origin, report, notices),
        }
    }
    table
}

/// A variable that is nearly known is a mistake; another one may belong to somebody else.
fn unknown_variable(name: &str, origin: Origin, report: &mut Report, notices: &mut Vec<Notice>) {
    let variables: Vec<String> = KEYS.iter().filter_map(variable).collect();
    let known = variables.iter().map(String::as_str).chain(NAMED);
    // The prefix alone makes any two alike.
    let bare = |name: &str| name[PREFIX.len()..].to_owned();
    let bares: Vec<String> = known.map(bare).collect();
    if let Some(found) = nearest(&bare(name), bares.iter().map(String::as_str)) {
        let nearest = Some(format!("{PREFIX}{found}"));
        let (name, known) = (name.to_owned(), [].into());
        let trouble = Trouble::Unknown { kind: "variable", name, nearest, known };
        report.problems.push(Problem::new(origin, trouble));
        return;
    }
    let meant = keys::elsewhere(&bare(name).to_lowercase());
    let meant = meant.and_then(|path| variable(keys::find(&path)?));
    let message = format!("no setting has this variable{}", did_you_mean(meant.as_deref()));
    notices.push(Notice { origin, message, cause: NoticeCause::Other });
}

/// What one `--set KEY=VALUE` says, as a layer.
#[derive(Debug)]
pub(super) enum Set {
    /// A key, or nothing when it is wrong.
    Key(Table),
    /// A key of an entry with a name in a list, as in `mcp.servers.NAME.timeout`: right or wrong only together with the
    /// entry.
    EntryKey(Table),
}

/// Returns the layer that one `--set KEY=VALUE` makes.
pub(super) fn of_set(set: &str, report: &mut Report) -> Set {
    let mut table = Table::new();
    let (path, text) =
        set.split_once('=').map_or((set, None), |(key, value)| (key.trim(), Some(value)));
    let origin = argument(&format!("--set {path}"));
    let trouble = match (keys::find_any(path), text) {
        (Some(Found::Key(key)), Some(text)) if key.adds_up() && text.trim().is_empty() => {
            Trouble::Other("expected a list; [] empties it".to_owned())
        }
        (Some(Found::Key(key)), Some(text)) => {
            put(&mut table, path, value(key, text, &origin), &origin);
            return Set::Key(table);
        }
        (Some(Found::Pair(key, name)), Some(text)) => {
            let pair = Node::new(literal(text, &origin), origin.clone());
            let pairs = Value::Table(Table::from([(name.to_owned(), pair)]));
            put(&mut table, key.path, pairs, &origin);
            return Set::Key(table);
        }
        (Some(Found::EntryKey), Some(text)) => {
            put(&mut table, path, literal(text, &origin), &origin);
            return Set::EntryKey(table);
        }
        (Some(_), None) => Trouble::Other("expected KEY=VALUE".to_owned()),
        (None, _) => {
            let nearest = nearest(path, KEYS.iter().map(|key| key.path)).map(str::to_owned);
            let nearest = nearest.or_else(|| keys::elsewhere(path.rsplit('.').next()?));
            Trouble::UnknownKey { key: path.to_owned(), nearest }
        }
    };
    report.problems.push(Problem::new(origin, trouble));
    Set::Key(table)
}

/// Returns the layer that the other options make.
pub(super) fn of_flags(flags: &[Flag]) -> Table {
    let mut table = Table::new();
    for Flag { key, value, option } in flags {
        let origin = argument(option);
        let item = || Node::new(Value::Typed(value.clone()), origin.clone());
        match keys::find(key).map(|key| key.shape) {
            Some(Shape::List | Shape::Sum) => match entry(&mut table, key) {
                Some(Node { value: Value::List(items), .. }) => items.push(item()),
                _ => put(&mut table, key, Value::List(vec![item()]), &origin),
            },
            Some(Shape::One | Shape::Named) | None => {
                put(&mut table, key, Value::Typed(value.clone()), &origin);
            }
        }
    }
    table
}

fn argument(option: &str) -> Origin {
    Origin { rank: Rank::Argument, source: Source::Argument(option.into()) }
}

fn value(key: &Key, text: &str, origin: &Origin) -> Value {
    match key.shape {
        Shape::One | Shape::Named => literal(text, origin),
        Shape::List | Shape::Sum => typed_list(text, origin),
    }
}

/// Returns a string, a list or a table of TOML as that, and anything else as it was typed: what a bare word or a number
/// means depends on the key.
fn literal(text: &str, origin: &Origin) -> Value {
    match tree::parse_value(text.trim(), origin) {
        Some(value @ (Value::Text(_) | Value::List(_) | Value::Table(_))) => value,
        Some(
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Typed(_) | Value::Date(_),
        )
        | None => Value::Typed(text.to_owned()),
    }
}

/// Puts a value under a path, and makes the tables on the way.
pub(super) fn put(table: &mut Table, path: &str, value: Value, origin: &Origin) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), Node::new(value, origin.clone()));
        }
        Some((first, rest)) => {
            let empty = || Node::new(Value::Table(Table::new()), origin.clone());
            let node = table.entry(first.to_owned()).or_insert_with(empty);
            if let Value::Table(below) = &mut node.value {
                put(below, rest, value, origin);
            }
        }
    }
}

/// Returns what stands under a path.
fn entry<'a>(table: &'a mut Table, path: &str) -> Option<&'a mut Node> {
    match path.split_once('.') {
        None => table.get_mut(path),
        Some((first, rest)) => match &mut table.get_mut(first)?.value {
            Value::Table(below) => entry(below, rest),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> (Table, Vec<String>, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        let (mut report, mut notices) = (Report::default(), Vec::new());
        let table = of_variables(&variables, &mut report, &mut notices);
        let told = report.problems.iter().map(ToString::to_string).collect();
        (table, told, notices.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_key_but_those_of_agents_has_one_variable() {
        let mut names: Vec<String> = KEYS.iter().filter_map(variable).collect();
        let agents = KEYS.iter().filter(|key| key.path.starts_with("agents.")).count();
        assert_eq!(names.len() + agents, KEYS.len());
        assert!(names.contains(&"ARCHITECT_LIMITS_MAX_STEPS".to_owned()));
        names.extend(OURS.map(str::to_owned));
        names.sort();
        names.dedup();
        assert_eq!(names.len() + agents, KEYS.len() + OURS.len());
    }

    #[test]
    fn a_variable_becomes_a_value_of_its_key() {
        let (table, ..) = from(&[("ARCHITECT_LLM_RETRIES", "5"), ("OTHER", "1")]);
        let Value::Table(llm) = &table["llm"].value else { panic!() };
        assert_eq!(llm["retries"].value, Value::Typed("5".to_owned()));
        assert_eq!(llm["retries"].origin.to_string(), "ARCHITECT_LLM_RETRIES");
    }

    /// Fault K2: a typo in a variable must not be ignored.
    #[test]
    fn a_variable_that_is_nearly_known_is_a_mistake() {
        let (_, problems, notices) = from(&[("ARCHITECT_SANBOX_MODE", "read-only")]);
        let expected = "ARCHITECT_SANBOX_MODE: there is no variable `ARCHITECT_SANBOX_MODE`, \
                        did you mean `ARCHITECT_SANDBOX_MODE`?";
        assert_eq!((problems, notices.len()), (vec![expected.to_owned()], 0));
    }

    #[test]
    fn a_variable_of_somebody_else_is_told_and_one_of_ours_is_not() {
        let (_, problems, notices) =
            from(&[("ARCHITECT_BUILDING_SITE", "x"), ("ARCHITECT_HOOK_DEPTH", "1")]);
        assert_eq!(problems.len(), 0);
        assert_eq!(notices, ["ARCHITECT_BUILDING_SITE: no setting has this variable"]);
    }

    #[test]
    fn set_takes_any_key_and_says_what_is_wrong() {
        let mut report = Report::default();
        let sets = ["agents.build.max_steps=3", "llm.modle=x", "stream=x", "llm.model"];
        let tables = sets.map(|set| of_set(set, &mut report));
        assert!(matches!(&tables[0], Set::Key(table) if table.contains_key("agents")));
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
        let flag = |value: &str| Flag {
            key: "permissions.allow",
            value: value.to_owned(),
            option: "--allow".to_owned(),
        };
        let mut table = of_flags(&[flag("a(b, c)"), flag("d")]);
        let node = entry(&mut table, "permissions.allow").unwrap();
        assert_eq!(node.value.to_string(), "[\"a(b, c)\", \"d\"]");
    }
}
