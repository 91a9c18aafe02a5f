//! Reading settings from a table of values.
//!
//! Each declared field is looked up. Reading does not stop at the first problem: all problems are collected. A key that
//! was never looked up is unknown.

use std::collections::BTreeMap;

use super::effective::{EffectiveValue, ReadReport, RelativePathBase};
use super::key_spec::{self, Description, KeySpec, MergeStrategy, ValueType, doc_text};
use super::origin::ValueOrigin;
use super::problem::ProblemKind;
use super::setting_value::SettingValue;
use super::text_types::ConfigName;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};
use crate::types::nearest;

/// Reads one table.
pub(super) struct SettingsReader<'a> {
    table: Option<&'a ConfigTable>,
    /// The origin of the table.
    origin: ValueOrigin,
    /// The key of the table, followed by a dot; empty for the whole layer.
    path: String,
    known_keys: Vec<&'static str>,
    paths: &'a RelativePathBase,
    report: &'a mut ReadReport,
}

/// The declaration of a field of a section: a [`Key`](super::key_declaration::Key), or a function that reads the field.
pub(super) trait Field {
    /// The type of the field.
    type Output;

    /// Reads the field; problems are added to the report of the reader.
    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Self::Output;
}

impl<T, F: FnOnce(&'static str, &str, &mut SettingsReader<'_>) -> T> Field for F {
    type Output = T;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        self(name, doc, from)
    }
}

impl<'a> SettingsReader<'a> {
    /// Reads a whole layer; `path` is its key followed by a dot, and empty unless the layer is a profile.
    pub(super) fn read_layer<T>(
        table: &'a ConfigTable,
        path: &str,
        paths: &'a RelativePathBase,
        report: &'a mut ReadReport,
        read: impl FnOnce(&mut SettingsReader<'_>) -> T,
    ) -> T {
        let (path, origin) = (path.to_owned(), ValueOrigin::DEFAULT);
        let known_keys = Vec::new();
        Self { table: Some(table), origin, path, known_keys, paths, report }.finish(read)
    }

    /// Returns the declarations of these settings.
    pub(super) fn describe<T>(read: impl FnOnce(&mut SettingsReader<'_>) -> T) -> Description {
        let mut report =
            ReadReport { description: Some(Description::default()), ..ReadReport::default() };
        let paths = RelativePathBase::default();
        SettingsReader::read_layer(&ConfigTable::new(), "", &paths, &mut report, read);
        report.description.unwrap_or_default()
    }

    /// Reads a field.
    pub(super) fn read<F: Field>(&mut self, name: &'static str, doc: &str, field: F) -> F::Output {
        field.read(name, doc, self)
    }

    /// Adds a key of this table to the description, if a description is collected.
    pub(super) fn declare(&mut self, name: &str, doc: &str, spec: KeySpec) {
        let path = self.key(name);
        if let Some(description) = &mut self.report.description {
            description.keys.push(KeySpec { path, doc: doc_text(doc), ..spec });
        }
    }

    /// Returns whether a key is known: if its condition holds, and always for a description.
    pub(super) fn knows(&self, condition: bool) -> bool {
        condition || self.report.description.is_some()
    }

    /// Returns the value of a key; `None` if it is not set or invalid.
    pub(super) fn value<T: SettingValue>(
        &mut self,
        name: &'static str,
        doc: &str,
        spec: KeySpec,
    ) -> Option<T> {
        let read = self.node(name).map(|node| (T::from_value(&node.value), node));
        let found = match &read {
            Some((Ok(value), node)) => Some((Ok(value.to_value()), *node)),
            Some((Err(expected), node)) => Some((Err(expected.as_str()), *node)),
            None => None,
        };
        let is_right = self.check_value(name, doc, spec, found);
        let (value, node) = read.filter(|_| is_right)?;
        Some(value.ok()?.resolve(self.paths, node))
    }

    /// Records a key and its value, which is a parsed value or an expectation that was not met. Returns whether the
    /// value is valid.
    fn check_value(
        &mut self,
        name: &'static str,
        doc: &str,
        spec: KeySpec,
        found: Option<(Result<ConfigValue, &str>, &ConfigNode)>,
    ) -> bool {
        self.known_keys.push(name);
        if found.is_none() && spec.is_required {
            self.report_missing(name);
            self.declare(name, doc, spec);
            return false;
        }
        let right = match found {
            Some((Ok(value), node)) if spec.is_in_range(&value) => Some((value, node)),
            Some((Ok(_), node)) => {
                let range = spec.range.as_ref();
                let between = range.map(|(least, most)| format!("between {least} and {most}"));
                self.report_invalid(name, node, &between.unwrap_or_default());
                None
            }
            Some((Err(expected), node)) => {
                self.report_invalid(name, node, expected);
                None
            }
            None => None,
        };
        let is_right = right.is_some();
        let (shown, origin) = match right {
            Some((value, node)) => (Some(value), node.origin.clone()),
            None => (spec.default.clone(), ValueOrigin::DEFAULT),
        };
        self.record_value(name, shown, origin);
        self.declare(name, doc, spec);
        is_right
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
        self.below(table, origin, name).finish(read)
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
            self.below(None, ValueOrigin::DEFAULT, &path).finish(&mut read);
        }
        for (key, node) in self.subtable(name).0.into_iter().flatten() {
            let (path, origin) = (format!("{name}.{key}"), node.key_origin.clone());
            if let (Some(named), Some(table)) = (ConfigName::parse(key), node.value.as_table()) {
                let item = self.below(Some(table), origin, &path);
                all.insert(named, item.finish(&mut read));
            } else {
                let (expected, found) = match node.value {
                    ConfigValue::Table(_) => {
                        let expected = "named with letters, digits, `-` and `_`, at most 64";
                        (expected, format!("{key:?}"))
                    }
                    _ => ("a table", node.value.describe(&self.key(&path))),
                };
                let what = format!("`{}` must be {expected}, found {found}", self.key(&path));
                self.report.problem(origin, ProblemKind::Other(what));
            }
        }
        all
    }

    /// Reads a list of tables that have names.
    pub(super) fn table_list<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        spec: KeySpec,
        mut read: impl FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>,
    ) -> Vec<T> {
        self.known_keys.push(name);
        let mut read_entry = |reader: &mut SettingsReader<'_>| {
            let spec = KeySpec { is_required: true, ..KeySpec::default() };
            let own = reader.value::<ConfigName>("name", "The name.", spec);
            // The rest is read even if the name is invalid, so that all problems are reported.
            let entry = read(own.clone().or_else(|| ConfigName::parse("unnamed"))?, reader);
            Some((own?, entry?))
        };
        let empty = || Some(ConfigValue::List(Vec::new()));
        if self.report.description.is_some() {
            let entry = ValueType::Tables(SettingsReader::describe(&mut read_entry).keys);
            let (default, merge) = (empty(), MergeStrategy::MergeByName);
            self.declare(name, doc, KeySpec { value_type: entry, default, merge, ..spec });
        }
        let node = self.node(name);
        let items = node.and_then(|node| node.value.as_list());
        if let (Some(node), None) = (node, items) {
            self.report_invalid(name, node, "a list of tables ([[…]])");
            return Vec::new();
        }
        let items = items.unwrap_or_default();
        if items.is_empty() {
            let origin = node.map_or(ValueOrigin::DEFAULT, |node| node.origin.clone());
            self.record_value(name, empty(), origin);
        }
        let mut all: Vec<(ConfigName, T)> = Vec::new();
        for item in items {
            let Some(table) = item.value.as_table() else {
                self.report_invalid(name, item, "a table");
                continue;
            };
            let number = (all.len() + 1).to_string();
            let path = format!("{name}.{}", item.text_at("name").unwrap_or(&number));
            let reader = self.below(Some(table), item.origin.clone(), &path);
            if let Some((own, entry)) = reader.finish(&mut read_entry) {
                if all.iter().any(|(other, _)| *other == own) {
                    let duplicate = ProblemKind::duplicate(&self.key(name), own.as_str());
                    self.report.problem(item.origin.clone(), duplicate);
                }
                all.push((own, entry));
            }
        }
        all.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Reads a table with free names.
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

    /// Reports that a required key is not set.
    pub(super) fn report_missing(&mut self, name: &'static str) {
        self.known_keys.push(name);
        let missing = ProblemKind::Other(format!("`{}` is missing", self.key(name)));
        self.report.problem(self.origin.clone(), missing);
    }

    /// Reports that the value of a key is invalid.
    pub(super) fn reject(&mut self, name: &'static str, expected: &str) {
        // The key counts as known, so that one mistake is not reported twice.
        self.known_keys.push(name);
        if let Some(node) = self.node(name) {
            self.report_invalid(name, node, expected);
        }
    }

    /// Reports that the name or value of an entry is invalid, in a table with free names.
    pub(super) fn reject_entry(&mut self, name: &'static str, entry: &str, problem: &str) {
        let node = self.node(name).and_then(|node| node.value.as_table()?.get(entry));
        if let Some(node) = node {
            let what = format!("`{}.{entry}` {problem}", self.key(name));
            self.report.problem(node.key_origin.clone(), ProblemKind::Other(what));
        }
    }

    /// Returns the path of a key of this table.
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    fn node(&self, name: &str) -> Option<&'a ConfigNode> {
        self.table?.get(name)
    }

    /// Returns the table under a key; reports any other value there.
    fn subtable(&mut self, name: &str) -> (Option<&'a ConfigTable>, ValueOrigin) {
        let Some(node) = self.node(name) else { return (None, self.origin.clone()) };
        let table = node.value.as_table();
        if table.is_none() {
            self.report_invalid(name, node, "a table");
        }
        (table, node.key_origin.clone())
    }

    /// Returns a reader of a table in this table.
    fn below<'b>(
        &'b mut self,
        table: Option<&'b ConfigTable>,
        origin: ValueOrigin,
        name: &str,
    ) -> SettingsReader<'b> {
        let path = format!("{}{name}.", self.path);
        let (paths, report) = (self.paths, &mut *self.report);
        SettingsReader { table, origin, path, known_keys: Vec::new(), paths, report }
    }

    /// Reads the table, and reports the keys that were not looked up.
    fn finish<T>(mut self, read: impl FnOnce(&mut SettingsReader<'_>) -> T) -> T {
        let read = read(&mut self);
        for (name, node) in self.table.into_iter().flatten() {
            if !self.known_keys.contains(&name.as_str()) {
                let nearest = nearest(name, self.known_keys.iter().copied())
                    .map(str::to_owned)
                    .or_else(|| key_spec::suggest_from_other_sections(name));
                let kind = ProblemKind::unknown("key", &self.key(name), nearest);
                self.report.problem(node.key_origin.clone(), kind);
            }
        }
        read
    }

    fn declare_table(&mut self, name: &str, doc: &str) {
        let path = self.key(name);
        if let Some(description) = &mut self.report.description {
            description.tables.push((path, doc_text(doc)));
        }
    }

    fn record_value(&mut self, name: &str, value: Option<ConfigValue>, origin: ValueOrigin) {
        self.report.values.push(EffectiveValue { key: self.key(name), origin, value });
    }

    fn report_invalid(&mut self, name: &str, node: &ConfigNode, expected: &str) {
        self.report.invalid(node, &self.key(name), expected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::key_declaration::{optional, required, table, table_list};
    use crate::config::origin::{ConfigDocument, LayerRank};
    use crate::config::toml_document::parse_document;
    use crate::types::TimeSpan;

    /// Reads a document with a section of each kind, and returns the problems as text.
    fn problems(text: &str) -> Vec<String> {
        let document = ConfigDocument::new("a.toml".into(), text);
        let mut report = ReadReport::default();
        let layer = parse_document(LayerRank::User, &document, &mut report).unwrap();
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
