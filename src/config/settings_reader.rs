//! Reading settings from a table of values.
//!
//! Each field that is declared is looked up. Everything that is wrong is noted, instead of stopping at the first
//! problem; what was never looked up is an unknown key.

use std::collections::BTreeMap;

use super::effective::{EffectiveValue, ReadReport, RelativePathBase};
use super::key_declaration::Field;
use super::keys::{self, Description, KeySpec, MergeStrategy, doc_text};
use super::origin::ValueOrigin;
use super::problem::{ConfigProblem, ProblemKind};
use super::setting_value::{SettingValue, ValueType};
use super::text_types::ConfigName;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::model::nearest;

/// Reads one table.
pub(super) struct SettingsReader<'a> {
    table: Option<&'a ConfigTable>,
    /// Where the table is.
    origin: ValueOrigin,
    /// The key of the table, followed by a dot; empty for the whole.
    path: String,
    known_keys: Vec<&'static str>,
    /// Whether the table is an entry of a list.
    is_item: bool,
    paths: &'a RelativePathBase,
    report: &'a mut ReadReport,
}

impl<'a> SettingsReader<'a> {
    /// Reads a whole layer; `path` is its key followed by a dot, empty unless it is a profile.
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

    /// Returns everything that these settings declare.
    pub(super) fn describe<T>(read: impl FnOnce(&mut SettingsReader<'_>) -> T) -> Description {
        let mut report =
            ReadReport { description: Some(Description::default()), ..ReadReport::default() };
        let paths = RelativePathBase::default();
        Self::read_layer(&ConfigTable::new(), "", &paths, &mut report, read);
        report.description.unwrap_or_default()
    }

    /// Reads a field.
    pub(super) fn read<F: Field>(&mut self, name: &'static str, doc: &str, field: F) -> F::Output {
        field.read(name, doc, self)
    }

    /// Adds a key to the description, if there is to be one; it gets the path of this table.
    pub(super) fn declare(&mut self, key: impl FnOnce(&str) -> KeySpec) {
        if let Some(description) = &mut self.report.description {
            description.keys.push(key(&self.path));
        }
    }

    /// Returns whether a key is known: under its condition, or for a description.
    pub(super) fn knows(&self, condition: bool) -> bool {
        condition || self.report.description.is_some()
    }

    /// Returns a value, if it is set and right.
    pub(super) fn value<T: SettingValue>(
        &mut self,
        name: &'static str,
        default: Option<&T>,
        range_error: impl FnOnce(&T) -> Option<String>,
    ) -> Option<T> {
        self.known_keys.push(name);
        let node = self.node(name);
        let read = node.map(|node| {
            let value = T::from_value(&node.value)?;
            range_error(&value).map_or(Ok(value), Err)
        });
        let found = match (node, read) {
            (Some(node), Some(Ok(value))) => Some((value, node)),
            (Some(node), Some(Err(expected))) => {
                self.report_invalid(name, node, &expected);
                None
            }
            _ => None,
        };
        let (shown, origin) = match &found {
            Some((value, node)) => (Some(value.to_value()), node.origin.clone()),
            None => (default.map(T::to_value), ValueOrigin::DEFAULT),
        };
        self.record_value(name, shown, origin);
        found.map(|(value, node)| value.resolve(self.paths, node))
    }

    /// Reads a table.
    pub(super) fn section<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) -> T {
        self.known_keys.push(name);
        self.declare_table(name, doc);
        let (table, origin) = self.subtable(name);
        self.read_subtable(table, origin, name, self.is_item, read)
    }

    /// Reads the tables of a table, each under its own name.
    pub(super) fn named_tables<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        mut read: impl FnMut(&mut SettingsReader<'_>) -> T,
    ) -> BTreeMap<ConfigName, T> {
        self.known_keys.push(name);
        let mut all = BTreeMap::new();
        if self.report.description.is_some() {
            let path = format!("{name}.*");
            self.declare_table(&path, doc);
            self.read_subtable(None, ValueOrigin::DEFAULT, &path, false, &mut read);
        }
        for (key, node) in self.subtable(name).0.into_iter().flatten() {
            let path = format!("{name}.{key}");
            let (Some(named), ConfigValue::Table(table)) = (ConfigName::parse(key), &node.value)
            else {
                let key = format!("{}{path}", self.path);
                let (expected, found) = match node.value {
                    ConfigValue::Table(_) => {
                        let right = "named with letters, digits, `-` and `_`, at most 64";
                        (right.to_owned(), "another name".to_owned())
                    }
                    _ => ("a table".to_owned(), node.value.describe()),
                };
                self.report_problem(
                    node.key_origin.clone(),
                    ProblemKind::Invalid { key, expected, found },
                );
                continue;
            };
            let origin = node.key_origin.clone();
            let item = self.read_subtable(Some(table), origin, &path, self.is_item, &mut read);
            all.insert(named, item);
        }
        all
    }

    /// Reads a list of tables that have names.
    pub(super) fn table_list<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        example: Option<&'static str>,
        mut read: impl FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>,
    ) -> Vec<T> {
        self.known_keys.push(name);
        let mut all = Vec::new();
        let mut names: Vec<ConfigName> = Vec::new();
        let mut read_entry = |reader: &mut SettingsReader<'_>| {
            let own = reader.entry_name();
            // The rest is read also when the name is wrong, so that everything wrong is reported.
            let entry = read(own.clone().or_else(|| ConfigName::parse("unnamed"))?, reader);
            Some((own?, entry?))
        };
        self.describe_list(name, doc, example, &mut read_entry);
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
            let (path, origin) = (format!("{name}.{label}"), item.origin.clone());
            let read = self.read_subtable(Some(table), origin, &path, true, &mut read_entry);
            if let Some((own, entry)) = read {
                if names.contains(&own) {
                    let (key, name) = (format!("{}{name}", self.path), own.to_string());
                    self.report_problem(item.origin.clone(), ProblemKind::Duplicate { key, name });
                }
                names.push(own);
                all.push(entry);
            }
        }
        all
    }

    fn entry_name(&mut self) -> Option<ConfigName> {
        self.declare(|path| KeySpec {
            is_required: true,
            ..KeySpec::new(path, "name", "The name.", ConfigName::value_type())
        });
        if !self.is_set("name") {
            self.report_missing("name");
            return None;
        }
        self.value("name", None, |_| None)
    }

    /// Adds a list of tables to the description, with the keys of an entry.
    fn describe_list<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        example: Option<&'static str>,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) {
        let Some(description) = &mut self.report.description else { return };
        let outer = std::mem::take(&mut description.keys);
        self.read_subtable(None, ValueOrigin::DEFAULT, "", true, read);
        let Some(description) = &mut self.report.description else { return };
        let entry = std::mem::replace(&mut description.keys, outer);
        description.keys.push(KeySpec {
            default: Some(ConfigValue::List(Vec::new())),
            example,
            merge: MergeStrategy::MergeByName,
            ..KeySpec::new(&self.path, name, doc, ValueType::Tables(entry))
        });
    }

    /// Reads a table whose names are free.
    pub(super) fn string_map<T: SettingValue>(
        &mut self,
        name: &'static str,
    ) -> BTreeMap<String, T> {
        self.known_keys.push(name);
        let mut all = BTreeMap::new();
        for (key, node) in self.subtable(name).0.into_iter().flatten() {
            let path = format!("{name}.{key}");
            match T::from_value(&node.value) {
                Ok(value) => {
                    self.record_value(&path, Some(value.to_value()), node.origin.clone());
                    all.insert(key.clone(), value);
                }
                Err(expected) => self.report_invalid(&path, node, &expected),
            }
        }
        all
    }

    /// Returns whether a key is set.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.node(name).is_some()
    }

    /// Reports that a key that has to be set is not.
    pub(super) fn report_missing(&mut self, name: &'static str) {
        self.known_keys.push(name);
        let key = format!("{}{name}", self.path);
        self.report_problem(self.origin.clone(), ProblemKind::Missing { key });
    }

    /// Reports that a key can't have the value that it has.
    pub(super) fn reject(&mut self, name: &'static str, expected: &str) {
        // It is a known key, so that one mistake is not reported twice.
        self.known_keys.push(name);
        if let Some(node) = self.node(name) {
            self.report_invalid(name, node, expected);
        }
    }

    fn node(&self, name: &str) -> Option<&'a ConfigNode> {
        self.table?.get(name)
    }

    /// Returns the table under a key, after reporting any other value there.
    fn subtable(&mut self, name: &str) -> (Option<&'a ConfigTable>, ValueOrigin) {
        match self.node(name) {
            None => (None, self.origin.clone()),
            Some(ConfigNode { value: ConfigValue::Table(table), key_origin, .. }) => {
                (Some(table), key_origin.clone())
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
        let path = match name {
            "" => String::new(),
            name => format!("{}{name}.", self.path),
        };
        let mut reader = SettingsReader {
            table,
            origin,
            path,
            known_keys: Vec::new(),
            is_item,
            paths: self.paths,
            report: self.report,
        };
        let read = read(&mut reader);
        reader.report_unknown_keys();
        read
    }

    fn declare_table(&mut self, name: &str, doc: &str) {
        if let Some(description) = &mut self.report.description {
            description.tables.push((format!("{}{name}", self.path), doc_text(doc)));
        }
    }

    fn record_value(&mut self, name: &str, value: Option<ConfigValue>, origin: ValueOrigin) {
        let key = format!("{}{name}", self.path);
        let is_list_item = self.is_item;
        self.report.values.push(EffectiveValue { key, origin, value, is_list_item });
    }

    fn report_problem(&mut self, origin: ValueOrigin, kind: ProblemKind) {
        self.report.problems.push(ConfigProblem::new(origin, kind));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::key_declaration::{optional, required, table, table_list};
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::value_tree::parse_document;
    use crate::model::TimeSpan;

    /// Reads a document with a section of each kind, and returns the problems as text.
    fn problems(text: &str) -> Vec<String> {
        let document = ConfigDocument::new("a.toml".into(), text);
        let layer = parse_document(LayerRank::User, &document).unwrap();
        let mut report = ReadReport::default();
        let paths = RelativePathBase::default();
        SettingsReader::read_layer(&layer, "", &paths, &mut report, |reader| {
            let llm = table(|reader: &mut SettingsReader<'_>| {
                let range = TimeSpan::from_millis(1)..=TimeSpan::from_secs(3_600);
                reader.read("timeout", "", optional().range(range));
                reader.read("model", "", optional::<String>());
            });
            reader.read("llm", "", llm);
            let command = |_, reader: &mut SettingsReader<'_>| {
                Some(reader.read("command", "", required::<String>()))
            };
            reader.read("hooks", "", table_list(command));
        });
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
    fn a_key_in_the_wrong_section_is_reported_with_the_right_one() {
        let expected = "a.toml:1:1: unknown key `max_steps`, did you mean `limits.max_steps`?";
        assert_eq!(problems("max_steps = 5"), [expected]);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
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
    fn two_entries_with_one_name_are_reported() {
        let hook = "[[hooks]]\nname = \"a\"\ncommand = \"b\"\n";
        let problems = problems(&format!("{hook}{hook}"));
        assert_eq!(problems, ["a.toml:4:1: `hooks` has two entries with the name `a`"]);
    }

    #[test]
    fn a_value_in_place_of_a_table_is_reported() {
        assert_eq!(problems("llm = 1"), ["a.toml:1:7: `llm` must be a table, found 1"]);
        assert_eq!(
            problems("hooks = 1"),
            ["a.toml:1:9: `hooks` must be a list of tables ([[…]]), found 1"]
        );
    }
}
