//! Reading settings from a tree: what is asked for is what is known.
//!
//! A section asks for each of its keys, with its default and its range. The reader notes everything that is wrong
//! instead of stopping at the first thing; what nobody has asked for is an unknown key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::effective::{EffectiveValue, ReadReport, RelativePathBase};
use super::keys;
use super::origin::ValueOrigin;
use super::problem::{ConfigProblem, ProblemKind};
use super::setting_value::SettingValue;
use super::text_types::ConfigName;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::model::nearest;

/// Reads one table.
pub(super) struct SettingsReader<'a> {
    table: Option<&'a ConfigTable>,
    /// Where the table stands.
    origin: ValueOrigin,
    /// The key of the table, with a dot behind it; empty for the whole.
    path: String,
    known_keys: Vec<&'static str>,
    /// Whether the table is an item of a list.
    is_item: bool,
    paths: &'a RelativePathBase,
    report: &'a mut ReadReport,
}

impl<'a> SettingsReader<'a> {
    /// Reads a whole layer; `path` is its key with a dot behind it, empty unless it is a profile.
    pub(super) fn read_layer<T>(
        table: &ConfigTable,
        path: &str,
        paths: &RelativePathBase,
        report: &mut ReadReport,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) -> T {
        let mut reader = SettingsReader {
            table: Some(table),
            origin: ValueOrigin::DEFAULT,
            path: path.to_owned(),
            known_keys: Vec::new(),
            is_item: false,
            paths,
            report,
        };
        let read = read(&mut reader);
        reader.report_unknown_keys();
        read
    }

    /// Returns a value, or the default.
    pub(super) fn value_or<T: SettingValue>(&mut self, name: &'static str, default: T) -> T {
        let found = self.lookup(name, |_| None);
        self.record_or_default(name, found, default)
    }

    /// Returns a value, if it is set.
    pub(super) fn optional<T: SettingValue>(&mut self, name: &'static str) -> Option<T> {
        let found = self.lookup(name, |_| None);
        self.record_optional(name, found)
    }

    /// Returns a value of a range, or the default.
    pub(super) fn in_range_or<T: SettingValue + PartialOrd>(
        &mut self,
        name: &'static str,
        default: T,
        range: RangeInclusive<T>,
    ) -> T {
        let found = self.lookup(name, |value| range_error(value, &range));
        self.record_or_default(name, found, default)
    }

    /// Returns a value of a range, if it is set.
    pub(super) fn optional_in_range<T: SettingValue + PartialOrd>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let found = self.lookup(name, |value| range_error(value, &range));
        self.record_optional(name, found)
    }

    /// Returns a value that has to be there.
    pub(super) fn required<T: SettingValue>(&mut self, name: &'static str) -> Option<T> {
        if self.node(name).is_none() {
            let key = format!("{}{name}", self.path);
            self.known_keys.push(name);
            self.report_problem(self.origin.clone(), ProblemKind::Missing { key });
            return None;
        }
        self.optional(name)
    }

    /// Returns an absolute path, if it is set: `~` is the home, and what is relative is relative to the folder that
    /// the configuration belongs to.
    pub(super) fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let path: PathBuf = self.optional(name)?;
        Some(self.paths.absolute(&path, self.node(name).map(|node| &node.origin)))
    }

    /// Returns a list of absolute paths, or the default.
    pub(super) fn paths(&mut self, name: &'static str, default: &[&str]) -> Vec<PathBuf> {
        let default = default.iter().map(PathBuf::from).collect();
        let paths: Vec<PathBuf> = self.value_or(name, default);
        let items = match self.node(name).map(|node| &node.value) {
            Some(ConfigValue::List(items)) => items.as_slice(),
            _ => &[],
        };
        let origins = items.iter().map(|item| Some(&item.origin)).chain(std::iter::repeat(None));
        paths.iter().zip(origins).map(|(path, origin)| self.paths.absolute(path, origin)).collect()
    }

    /// Reads a table.
    pub(super) fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) -> T {
        self.known_keys.push(name);
        let (table, origin) = self.subtable(name);
        self.read_subtable(table, origin, name, self.is_item, read)
    }

    /// Reads the tables of a table, each under its own name.
    pub(super) fn named_tables<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&ConfigName, &mut SettingsReader<'_>) -> T,
    ) -> BTreeMap<ConfigName, T> {
        self.known_keys.push(name);
        let mut all = BTreeMap::new();
        let tables = self.subtable(name).0;
        for (key, node) in tables.into_iter().flatten() {
            let path = format!("{name}.{key}");
            let (Some(named), ConfigValue::Table(table)) = (ConfigName::parse(key), &node.value)
            else {
                let expected = "a table with a name of letters, digits, `-` and `_`".to_owned();
                let key = format!("{}{path}", self.path);
                let found = node.value.describe();
                self.report_problem(
                    node.key_origin.clone(),
                    ProblemKind::Invalid { key, expected, found },
                );
                continue;
            };
            let origin = node.key_origin.clone();
            let item = self.read_subtable(Some(table), origin, &path, self.is_item, |reader| {
                read(&named, reader)
            });
            all.insert(named, item);
        }
        all
    }

    /// Reads a list of tables that have names of their own.
    pub(super) fn table_list<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>,
    ) -> Vec<T> {
        self.known_keys.push(name);
        let mut all = Vec::new();
        let mut names: Vec<ConfigName> = Vec::new();
        let Some(node) = self.node(name) else {
            if !self.is_item {
                self.record_value(name, Some(ConfigValue::List(Vec::new())), ValueOrigin::DEFAULT);
            }
            return all;
        };
        let ConfigValue::List(items) = &node.value else {
            self.report_invalid(name, node, "a list of tables ([[…]])");
            return all;
        };
        if items.is_empty() && !self.is_item {
            self.record_value(name, Some(ConfigValue::List(Vec::new())), node.origin.clone());
        }
        for item in items {
            let ConfigValue::Table(table) = &item.value else {
                self.report_invalid(name, item, "a table");
                continue;
            };
            let label = match table.get("name").map(|node| &node.value) {
                Some(ConfigValue::Text(text)) => text.clone(),
                _ => format!("{}", all.len() + 1),
            };
            let path = format!("{name}.{label}");
            let read = |reader: &mut SettingsReader<'_>| {
                let own: Option<ConfigName> = reader.required("name");
                // The rest is read also when the name is wrong, so that all is told.
                let item = read(own.clone().or_else(|| ConfigName::parse("unnamed"))?, reader);
                Some((own?, item?))
            };
            let item_origin = item.origin.clone();
            let read = self.read_subtable(Some(table), item_origin, &path, true, read);
            if let Some((own, item_read)) = read {
                if names.contains(&own) {
                    let (key, name) = (format!("{}{name}", self.path), own.to_string());
                    self.report_problem(item.origin.clone(), ProblemKind::Duplicate { key, name });
                }
                names.push(own);
                all.push(item_read);
            }
        }
        all
    }

    /// Reads a table whose keys are free.
    pub(super) fn string_map<T: SettingValue>(
        &mut self,
        name: &'static str,
    ) -> BTreeMap<String, T> {
        self.known_keys.push(name);
        let mut all = BTreeMap::new();
        for (key, node) in self.subtable(name).0.into_iter().flatten() {
            match T::from_value(&node.value) {
                Ok(value) => {
                    self.record_value(
                        &format!("{name}.{key}"),
                        Some(value.to_value()),
                        node.origin.clone(),
                    );
                    all.insert(key.clone(), value);
                }
                Err(expected) => self.report_invalid(&format!("{name}.{key}"), node, &expected),
            }
        }
        all
    }

    /// Returns whether a key is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.node(name).is_some()
    }

    /// Notes that a value is none that its key can have.
    pub(super) fn reject(&mut self, name: &'static str, expected: &str) {
        if let Some(node) = self.node(name) {
            self.report_invalid(name, node, expected);
        }
    }

    fn node(&self, name: &str) -> Option<&'a ConfigNode> {
        self.table?.get(name)
    }

    /// Returns the table under a key, after noting that something else stands there.
    fn subtable(&mut self, name: &str) -> (Option<&'a ConfigTable>, ValueOrigin) {
        match self.node(name) {
            None => (None, self.origin.clone()),
            Some(ConfigNode { value: ConfigValue::Table(table), key_origin: key, .. }) => {
                (Some(table), key.clone())
            }
            Some(node) => {
                self.report_invalid(name, node, "a table");
                (None, node.origin.clone())
            }
        }
    }

    fn read_subtable<T>(
        &mut self,
        table: Option<&'a ConfigTable>,
        origin: ValueOrigin,
        name: &str,
        is_item: bool,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) -> T {
        let mut reader = SettingsReader {
            table,
            origin,
            path: format!("{}{name}.", self.path),
            known_keys: Vec::new(),
            is_item,
            paths: self.paths,
            report: self.report,
        };
        let read = read(&mut reader);
        reader.report_unknown_keys();
        read
    }

    /// Returns the value under a key with its origin, after noting what is wrong with it.
    fn lookup<T: SettingValue>(
        &mut self,
        name: &'static str,
        wrong: impl FnOnce(&T) -> Option<String>,
    ) -> Option<(T, ValueOrigin)> {
        self.known_keys.push(name);
        let node = self.node(name)?;
        let read = T::from_value(&node.value).and_then(|value| match wrong(&value) {
            None => Ok(value),
            Some(expected) => Err(expected),
        });
        match read {
            Ok(value) => Some((value, node.origin.clone())),
            Err(expected) => {
                self.report_invalid(name, node, &expected);
                None
            }
        }
    }

    fn record_or_default<T: SettingValue>(
        &mut self,
        name: &str,
        found: Option<(T, ValueOrigin)>,
        default: T,
    ) -> T {
        let (value, origin) = found.unwrap_or((default, ValueOrigin::DEFAULT));
        self.record_value(name, Some(value.to_value()), origin);
        value
    }

    fn record_optional<T: SettingValue>(
        &mut self,
        name: &str,
        found: Option<(T, ValueOrigin)>,
    ) -> Option<T> {
        let origin = found.as_ref().map_or(ValueOrigin::DEFAULT, |(_, origin)| origin.clone());
        self.record_value(name, found.as_ref().map(|(value, _)| value.to_value()), origin);
        found.map(|(value, _)| value)
    }

    fn record_value(&mut self, name: &str, value: Option<ConfigValue>, origin: ValueOrigin) {
        let key = format!("{}{name}", self.path);
        self.report.values.push(EffectiveValue { key, value, origin, is_list_item: self.is_item });
    }

    fn report_problem(&mut self, origin: ValueOrigin, trouble: ProblemKind) {
        self.report.problems.push(ConfigProblem::new(origin, trouble));
    }

    fn report_invalid(&mut self, name: &str, node: &ConfigNode, expected: &str) {
        let (key, found) = (format!("{}{name}", self.path), node.value.describe());
        let expected = expected.to_owned();
        self.report_problem(node.origin.clone(), ProblemKind::Invalid { key, expected, found });
    }

    fn report_unknown_keys(&mut self) {
        for (name, node) in self.table.into_iter().flatten() {
            if !self.known_keys.contains(&name.as_str()) {
                let nearest = nearest(name, self.known_keys.iter().copied())
                    .map(str::to_owned)
                    .or_else(|| keys::suggest_from_other_sections(name));
                let key = format!("{}{name}", self.path);
                self.report_problem(
                    node.key_origin.clone(),
                    ProblemKind::UnknownKey { key, nearest },
                );
            }
        }
    }
}

/// Returns what is expected, unless a value lies in its range.
fn range_error<T: SettingValue + PartialOrd>(
    value: &T,
    range: &RangeInclusive<T>,
) -> Option<String> {
    let expected =
        || format!("between {} and {}", range.start().to_value(), range.end().to_value());
    (!range.contains(value)).then(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::value_tree;
    use crate::model::TimeSpan;

    /// Reads a document with a section of each kind, and returns the problems as text.
    fn problems(text: &str) -> Vec<String> {
        let table = value_tree::parse_document(
            LayerRank::User,
            &ConfigDocument::new("a.toml".into(), text),
        )
        .unwrap();
        let mut report = ReadReport::default();
        SettingsReader::read_layer(
            &table,
            "",
            &RelativePathBase::default(),
            &mut report,
            |reader| {
                reader.section("llm", |reader| {
                    reader.in_range_or(
                        "timeout",
                        TimeSpan::from_secs(60),
                        TimeSpan::from_millis(1)..=TimeSpan::from_secs(3_600),
                    );
                    reader.optional::<String>("model");
                });
                reader.table_list("hooks", |_, reader| reader.required::<String>("command"));
            },
        );
        report.problems.iter().map(ToString::to_string).collect()
    }

    /// Fault K3.
    #[test]
    fn a_value_outside_its_range_names_the_range() {
        for wrong in ["-1", "0", "1e99", "nan", "\"60\"", "true", "9223372036854775807"] {
            let problems = problems(&format!("[llm]\ntimeout = {wrong}\n"));
            assert!(problems[0].starts_with("a.toml:2:11: `llm.timeout` must be "), "{problems:?}");
        }
        let range = "a.toml:1:15: `llm.timeout` must be between 0.001 and 3600, found 0";
        assert_eq!(problems("llm.timeout = 0"), [range]);
    }

    /// Fault K2.
    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let problems = problems("[llm]\ntimeot = 5\n[lmm]\nmax_steps = 5\n[llm.deep]\nx = 1");
        let expected = [
            "a.toml:5:6: unknown key `llm.deep`",
            "a.toml:2:1: unknown key `llm.timeot`, did you mean `timeout`?",
            "a.toml:3:2: unknown key `lmm`, did you mean `llm`?",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_key_in_the_wrong_section_is_told_where_it_belongs() {
        let expected = "a.toml:1:1: unknown key `max_steps`, did you mean `limits.max_steps`?";
        assert_eq!(problems("max_steps = 5"), [expected]);
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = "llm = { timeout = 0, model = 1 }\n[[hooks]]\ncommand = 1\nx = 1\n[[hooks]]";
        let expected = [
            "a.toml:1:19: `llm.timeout` must be between 0.001 and 3600, found 0",
            "a.toml:1:30: `llm.model` must be text that is not empty, found 1",
            "a.toml:2:1: `hooks.1.name` is missing",
            "a.toml:3:11: `hooks.1.command` must be text that is not empty, found 1",
            "a.toml:4:1: unknown key `hooks.1.x`",
            "a.toml:5:1: `hooks.1.name` is missing",
            "a.toml:5:1: `hooks.1.command` is missing",
        ];
        assert_eq!(problems(text), expected);
    }

    /// Fault K15.
    #[test]
    fn two_entries_of_one_name_are_told() {
        let hook = "[[hooks]]\nname = \"a\"\ncommand = \"b\"\n";
        let problems = problems(&format!("{hook}{hook}"));
        assert_eq!(problems, ["a.toml:4:1: `hooks` has two entries with the name `a`"]);
    }

    #[test]
    fn something_else_than_a_table_is_told() {
        assert_eq!(problems("llm = 1"), ["a.toml:1:7: `llm` must be a table, found 1"]);
        assert_eq!(
            problems("hooks = 1"),
            ["a.toml:1:9: `hooks` must be a list of tables ([[…]]), found 1"]
        );
    }
}
