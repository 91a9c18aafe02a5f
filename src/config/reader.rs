//! Reading settings from a tree: what is asked for is what is known.
//!
//! A section asks for each of its keys, with its default and its range. The reader notes everything that is wrong
//! instead of stopping at the first thing; what nobody has asked for is an unknown key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::keys;
use super::origin::Origin;
use super::problem::{Problem, Trouble};
use super::report::{Paths, Report, Shown};
use super::setting::Setting;
use super::text::Name;
use super::tree::{Node, Table, Value};
use crate::model::nearest;

/// Reads one table.
pub(super) struct Reader<'a> {
    table: Option<&'a Table>,
    /// Where the table stands.
    origin: Origin,
    /// The key of the table, with a dot behind it; empty for the whole.
    path: String,
    asked: Vec<&'static str>,
    /// Whether the table is an item of a list.
    is_item: bool,
    paths: &'a Paths,
    report: &'a mut Report,
}

impl<'a> Reader<'a> {
    /// Reads a whole layer; `path` is its key with a dot behind it, empty unless it is a profile.
    pub(super) fn whole<T>(
        table: &Table,
        path: &str,
        paths: &Paths,
        report: &mut Report,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut reader = Reader {
            table: Some(table),
            origin: Origin::DEFAULT,
            path: path.to_owned(),
            asked: Vec::new(),
            is_item: false,
            paths,
            report,
        };
        let read = read(&mut reader);
        reader.complain_of_unknown();
        read
    }

    /// Returns a value, or the default.
    pub(super) fn or<T: Setting>(&mut self, name: &'static str, default: T) -> T {
        let found = self.ask(name, |_| None);
        self.settle(name, found, default)
    }

    /// Returns a value, if it is set.
    pub(super) fn maybe<T: Setting>(&mut self, name: &'static str) -> Option<T> {
        let found = self.ask(name, |_| None);
        self.settle_maybe(name, found)
    }

    /// Returns a value of a range, or the default.
    pub(super) fn within<T: Setting + PartialOrd>(
        &mut self,
        name: &'static str,
        default: T,
        range: RangeInclusive<T>,
    ) -> T {
        let found = self.ask(name, |value| outside(value, &range));
        self.settle(name, found, default)
    }

    /// Returns a value of a range, if it is set.
    pub(super) fn maybe_within<T: Setting + PartialOrd>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let found = self.ask(name, |value| outside(value, &range));
        self.settle_maybe(name, found)
    }

    /// Returns a value that has to be there.
    pub(super) fn need<T: Setting>(&mut self, name: &'static str) -> Option<T> {
        if self.peek(name).is_none() {
            let key = format!("{}{name}", self.path);
            self.asked.push(name);
            self.complain(self.origin.clone(), Trouble::Missing { key });
            return None;
        }
        self.maybe(name)
    }

    /// Returns an absolute path, if it is set: `~` is the home, and what is relative is relative to the folder that
    /// the configuration belongs to.
    pub(super) fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let path: PathBuf = self.maybe(name)?;
        Some(self.paths.absolute(&path, self.peek(name).map(|node| &node.origin)))
    }

    /// Returns a list of absolute paths, or the default.
    pub(super) fn paths(&mut self, name: &'static str, default: &[&str]) -> Vec<PathBuf> {
        let default = default.iter().map(PathBuf::from).collect();
        let paths: Vec<PathBuf> = self.or(name, default);
        let items = match self.peek(name).map(|node| &node.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let origins = items.iter().map(|item| Some(&item.origin)).chain(std::iter::repeat(None));
        paths.iter().zip(origins).map(|(path, origin)| self.paths.absolute(path, origin)).collect()
    }

    /// Reads a table.
    pub(super) fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        self.asked.push(name);
        let (table, origin) = self.table_of(name);
        self.below(table, origin, name, self.is_item, read)
    }

    /// Reads the tables of a table, each under its own name.
    pub(super) fn each<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&Name, &mut Reader<'_>) -> T,
    ) -> BTreeMap<Name, T> {
        self.asked.push(name);
        let mut all = BTreeMap::new();
        let tables = self.table_of(name).0;
        for (key, node) in tables.into_iter().flatten() {
            let path = format!("{name}.{key}");
            let (Some(named), Value::Table(table)) = (Name::parse(key), &node.value) else {
                let expected = "a table with a name of letters, digits, `-` and `_`".to_owned();
                let key = format!("{}{path}", self.path);
                let found = node.value.found();
                self.complain(node.key.clone(), Trouble::Invalid { key, expected, found });
                continue;
            };
            let origin = node.key.clone();
            let item =
                self.below(Some(table), origin, &path, self.is_item, |reader| read(&named, reader));
            all.insert(named, item);
        }
        all
    }

    /// Reads a list of tables that have names of their own.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(Name, &mut Reader<'_>) -> Option<T>,
    ) -> Vec<T> {
        self.asked.push(name);
        let mut all = Vec::new();
        let mut names: Vec<Name> = Vec::new();
        let Some(node) = self.peek(name) else {
            if !self.is_item {
                self.show(name, Some(Value::List(Vec::new())), Origin::DEFAULT);
            }
            return all;
        };
        let Value::List(items) = &node.value else {
            self.complain_of(name, node, "a list of tables ([[…]])");
            return all;
        };
        if items.is_empty() && !self.is_item {
            self.show(name, Some(Value::List(Vec::new())), node.origin.clone());
        }
        for item in items {
            let Value::Table(table) = &item.value else {
                self.complain_of(name, item, "a table");
                continue;
            };
            let label = match table.get("name").map(|node| &node.value) {
                Some(Value::Text(text)) => text.clone(),
                _ => format!("{}", all.len() + 1),
            };
            let path = format!("{name}.{label}");
            let read = |reader: &mut Reader<'_>| {
                let own: Option<Name> = reader.need("name");
                // The rest is read also when the name is wrong, so that all is told.
                let item = read(own.clone().or_else(|| Name::parse("unnamed"))?, reader);
                Some((own?, item?))
            };
            let item_origin = item.origin.clone();
            let read = self.below(Some(table), item_origin, &path, true, read);
            if let Some((own, item_read)) = read {
                if names.contains(&own) {
                    let (key, name) = (format!("{}{name}", self.path), own.to_string());
                    self.complain(item.origin.clone(), Trouble::Duplicate { key, name });
                }
                names.push(own);
                all.push(item_read);
            }
        }
        all
    }

    /// Reads a table whose keys are free.
    pub(super) fn pairs<T: Setting>(&mut self, name: &'static str) -> BTreeMap<String, T> {
        self.asked.push(name);
        let mut all = BTreeMap::new();
        for (key, node) in self.table_of(name).0.into_iter().flatten() {
            match T::read(&node.value) {
                Ok(value) => {
                    self.show(&format!("{name}.{key}"), Some(value.show()), node.origin.clone());
                    all.insert(key.clone(), value);
                }
                Err(expected) => self.complain_of(&format!("{name}.{key}"), node, &expected),
            }
        }
        all
    }

    /// Returns whether a key is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.peek(name).is_some()
    }

    /// Notes that a value is none that its key can have.
    pub(super) fn refuse(&mut self, name: &'static str, expected: &str) {
        if let Some(node) = self.peek(name) {
            self.complain_of(name, node, expected);
        }
    }

    fn peek(&self, name: &str) -> Option<&'a Node> {
        self.table?.get(name)
    }

    /// Returns the table under a key, after noting that something else stands there.
    fn table_of(&mut self, name: &str) -> (Option<&'a Table>, Origin) {
        match self.peek(name) {
            None => (None, self.origin.clone()),
            Some(Node { value: Value::Table(table), key, .. }) => (Some(table), key.clone()),
            Some(node) => {
                self.complain_of(name, node, "a table");
                (None, node.origin.clone())
            }
        }
    }

    fn below<T>(
        &mut self,
        table: Option<&'a Table>,
        origin: Origin,
        name: &str,
        is_item: bool,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut reader = Reader {
            table,
            origin,
            path: format!("{}{name}.", self.path),
            asked: Vec::new(),
            is_item,
            paths: self.paths,
            report: self.report,
        };
        let read = read(&mut reader);
        reader.complain_of_unknown();
        read
    }

    /// Returns the value under a key with its origin, after noting what is wrong with it.
    fn ask<T: Setting>(
        &mut self,
        name: &'static str,
        wrong: impl FnOnce(&T) -> Option<String>,
    ) -> Option<(T, Origin)> {
        self.asked.push(name);
        let node = self.peek(name)?;
        let read = T::read(&node.value).and_then(|value| match wrong(&value) {
            None => Ok(value),
            Some(expected) => Err(expected),
        });
        match read {
            Ok(value) => Some((value, node.origin.clone())),
            Err(expected) => {
                self.complain_of(name, node, &expected);
                None
            }
        }
    }

    fn settle<T: Setting>(&mut self, name: &str, found: Option<(T, Origin)>, default: T) -> T {
        let (value, origin) = found.unwrap_or((default, Origin::DEFAULT));
        self.show(name, Some(value.show()), origin);
        value
    }

    fn settle_maybe<T: Setting>(&mut self, name: &str, found: Option<(T, Origin)>) -> Option<T> {
        let origin = found.as_ref().map_or(Origin::DEFAULT, |(_, origin)| origin.clone());
        self.show(name, found.as_ref().map(|(value, _)| value.show()), origin);
        found.map(|(value, _)| value)
    }

    fn show(&mut self, name: &str, value: Option<Value>, origin: Origin) {
        let key = format!("{}{name}", self.path);
        self.report.shown.push(Shown { key, value, origin, is_item: self.is_item });
    }

    fn complain(&mut self, origin: Origin, trouble: Trouble) {
        self.report.problems.push(Problem::new(origin, trouble));
    }

    fn complain_of(&mut self, name: &str, node: &Node, expected: &str) {
        let (key, found) = (format!("{}{name}", self.path), node.value.found());
        let expected = expected.to_owned();
        self.complain(node.origin.clone(), Trouble::Invalid { key, expected, found });
    }

    fn complain_of_unknown(&mut self) {
        for (name, node) in self.table.into_iter().flatten() {
            if !self.asked.contains(&name.as_str()) {
                let nearest = nearest(name, self.asked.iter().copied())
                    .map(str::to_owned)
                    .or_else(|| keys::elsewhere(name));
                let key = format!("{}{name}", self.path);
                self.complain(node.key.clone(), Trouble::UnknownKey { key, nearest });
            }
        }
    }
}

/// Returns what is expected, unless a value lies in its range.
fn outside<T: Setting + PartialOrd>(value: &T, range: &RangeInclusive<T>) -> Option<String> {
    let expected = || format!("between {} and {}", range.start().show(), range.end().show());
    (!range.contains(value)).then(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::{Document, Rank};
    use crate::config::tree;
    use crate::model::Span;

    /// Reads a document with a section of each kind, and returns the problems as text.
    fn problems(text: &str) -> Vec<String> {
        let table = tree::parse(Rank::User, &Document::new("a.toml".into(), text)).unwrap();
        let mut report = Report::default();
        Reader::whole(&table, "", &Paths::default(), &mut report, |reader| {
            reader.section("llm", |reader| {
                reader.within("timeout", Span::secs(60), Span::millis(1)..=Span::secs(3_600));
                reader.maybe::<String>("model");
            });
            reader.list("hooks", |_, reader| reader.need::<String>("command"));
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
