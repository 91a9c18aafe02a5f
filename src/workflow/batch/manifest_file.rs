//! The two formats of a manifest: JSON Lines and TOML. Every value keeps its line number.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::types::{did_you_mean, nearest};

/// The text of a manifest, with its name.
#[derive(Clone, Copy, Debug)]
pub struct ManifestText<'a> {
    /// The name of the file, for messages. A known extension determines the format.
    pub name: &'a str,
    /// The content.
    pub text: &'a str,
}

/// An entry of a manifest: a task or a variant.
pub(in crate::workflow) struct ManifestEntry {
    /// The line in which the entry begins, counted from one.
    pub(in crate::workflow) line: usize,
    pub(in crate::workflow) fields: BTreeMap<String, ManifestField>,
}

/// A value of an entry.
pub(in crate::workflow) struct ManifestField {
    pub(in crate::workflow) line: usize,
    pub(in crate::workflow) value: Value,
}

impl ManifestEntry {
    /// Removes a field, and returns it.
    pub(in crate::workflow) fn take(&mut self, key: &str) -> Option<ManifestField> {
        self.fields.remove(key)
    }
}

/// An entry, or a line with an error in the format of the file, and its description.
pub(in crate::workflow) type ReadEntry = Result<ManifestEntry, (usize, String)>;

/// Returns the entries of a manifest, and every error in its format. In TOML, the entries are tables with one of the
/// names in `tables`. JSON Lines are read one by one.
pub(in crate::workflow) fn read_entries<'a>(
    file: ManifestText<'a>,
    tables: &[&str],
) -> Box<dyn Iterator<Item = ReadEntry> + 'a> {
    let text = file.text.strip_prefix('\u{feff}').unwrap_or(file.text);
    let extension = Path::new(file.name).extension().and_then(|extension| extension.to_str());
    match extension {
        Some("toml") => Box::new(read_toml(text, tables).into_iter()),
        Some("jsonl" | "ndjson" | "json") => Box::new(read_lines(text)),
        _ if text.trim_start().starts_with('{') => Box::new(read_lines(text)),
        _ => Box::new(read_toml(text, tables).into_iter()),
    }
}

fn read_lines(text: &str) -> impl Iterator<Item = ReadEntry> {
    let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    lines.map(|(index, text)| {
        let line = index + 1;
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(fields)) => {
                let field = |(key, value)| (key, ManifestField { line, value });
                Ok(ManifestEntry { line, fields: fields.into_iter().map(field).collect() })
            }
            Ok(_) => Err((line, "a line has to be a JSON object".to_owned())),
            Err(error) => {
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                let column = error.column();
                Err((line, format!("it is not JSON: {message} (column {column})")))
            }
        }
    })
}

fn read_toml(text: &str, tables: &[&str]) -> Vec<ReadEntry> {
    let line_at = LineNumbers::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut wrong: Vec<(usize, String)> = Vec::new();
    for error in errors {
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        wrong.push((line_at.of(error.span().map_or(0, |span| span.start)), message));
    }
    let misread: Vec<usize> = wrong.iter().map(|(line, _)| *line).collect();
    let mut entries = Vec::new();
    for (key, value) in table.into_inner() {
        let line = line_at.of(key.span().start);
        match value.into_inner() {
            // The table header above this key may have been unreadable, so the key is reported only without such
            // errors.
            _ if !tables.contains(&key.get_ref().as_ref()) && misread.is_empty() => {
                let key = key.get_ref();
                let meant = did_you_mean(nearest(key, tables.iter().copied()));
                wrong.push((line, format!("unknown key `{key}`{meant}")));
            }
            DeValue::Array(items) if tables.contains(&key.get_ref().as_ref()) => {
                for item in items {
                    let line = line_at.of(item.span().start);
                    match item.into_inner() {
                        DeValue::Table(fields) => entries.push(toml_entry(line, fields, &line_at)),
                        _ => wrong.push((line, format!("`{}` has to be tables", key.get_ref()))),
                    }
                }
            }
            _ if misread.is_empty() => {
                let message = format!("write [[{0}]], since there can be several", key.get_ref());
                wrong.push((line, message));
            }
            _ => {}
        }
    }
    entries.sort_by_key(|entry| entry.line);
    // An entry with an unreadable line would seem to lack keys, so it is left out.
    let ends: Vec<usize> =
        entries.iter().skip(1).map(|next| next.line).chain([usize::MAX]).collect();
    let is_whole = |(entry, end): &(ManifestEntry, usize)| {
        !misread.iter().any(|line| (entry.line..*end).contains(line))
    };
    let whole = entries.into_iter().zip(ends).filter(is_whole).map(|(entry, _)| Ok(entry));
    wrong.sort();
    wrong.into_iter().map(Err).chain(whole).collect()
}

fn toml_entry(line: usize, fields: DeTable<'_>, line_at: &LineNumbers) -> ManifestEntry {
    let fields = fields.into_iter().map(|(key, value)| {
        let line = line_at.of(key.span().start);
        (key.into_inner().into_owned(), ManifestField { line, value: to_json(value) })
    });
    ManifestEntry { line, fields: fields.collect() }
}

/// Converts a TOML value to JSON. Numbers that JSON can't express become texts, which are not valid where numbers are.
fn to_json(value: Spanned<DeValue<'_>>) -> Value {
    match value.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => integer.into(),
            Err(_) => Value::String(integer.as_str().to_owned()),
        },
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| Value::String(float.as_str().to_owned()), Value::Number)
        }
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => Value::Array(items.into_iter().map(to_json).collect()),
        DeValue::Table(table) => Value::Object(
            table
                .into_iter()
                .map(|(key, value)| (key.into_inner().into_owned(), to_json(value)))
                .collect(),
        ),
    }
}

/// Finds the line of a position in a text.
struct LineNumbers(Vec<usize>);

impl LineNumbers {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Returns the line of a byte position, counted from one.
    fn of(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}
