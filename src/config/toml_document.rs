//! Parsing TOML into values, each with its origin.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::effective::ReadReport;
use super::origin::{ConfigDocument, LayerRank, ValueOrigin};
use super::problem::ProblemKind;
use super::value_tree::{ConfigNode, ConfigTable, ConfigValue};

/// Returns the origin of a part of a document, as a range of bytes.
pub(super) type OriginAt<'a> = dyn Fn(Range<usize>) -> ValueOrigin + 'a;

/// Parses a TOML document; reports every syntax error.
pub(super) fn parse_document(
    rank: LayerRank,
    document: &Arc<ConfigDocument>,
    report: &mut ReadReport,
) -> Option<ConfigTable> {
    let (table, mut errors) = DeTable::parse_recoverable(document.text());
    let at = |span| ValueOrigin::in_file(rank, document, span);
    if errors.is_empty() {
        return Some(convert_table(table.into_inner(), &at));
    }
    errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
    for error in errors {
        // The first line of the parser's message is the problem; the others are help.
        let what = error.message().lines().next().unwrap_or_default().to_owned();
        report.problem(at(error.span().unwrap_or(0..0)), ProblemKind::Syntax(what));
    }
    None
}

/// Parses the right side of a TOML assignment; `None` if it is invalid.
pub(super) fn parse_value(text: &str, origin: &ValueOrigin) -> Option<ConfigValue> {
    let value = DeValue::parse(text).ok()?;
    Some(convert_value(value.into_inner(), &|_| origin.clone()))
}

fn convert_table(table: DeTable<'_>, at: &OriginAt<'_>) -> ConfigTable {
    let entry = |(key, value): (Spanned<Cow<'_, str>>, Spanned<DeValue<'_>>)| {
        let node = ConfigNode { key_origin: at(key.span()), ..convert_node(value, at) };
        (key.into_inner().into_owned(), node)
    };
    table.into_iter().map(entry).collect()
}

fn convert_node(value: Spanned<DeValue<'_>>, at: &OriginAt<'_>) -> ConfigNode {
    let origin = at(value.span());
    ConfigNode::new(convert_value(value.into_inner(), at), origin)
}

fn convert_value(value: DeValue<'_>, at: &OriginAt<'_>) -> ConfigValue {
    match value {
        DeValue::String(text) => ConfigValue::Text(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => ConfigValue::Integer(integer),
            // The number is outside every range, so the range is reported.
            Err(_) => ConfigValue::Float(integer.as_str().parse().unwrap_or(f64::INFINITY)),
        },
        DeValue::Float(float) => ConfigValue::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => ConfigValue::Bool(value),
        DeValue::Datetime(date) => ConfigValue::Date(date.to_string()),
        DeValue::Array(items) => {
            ConfigValue::List(items.into_iter().map(|item| convert_node(item, at)).collect())
        }
        DeValue::Table(table) => ConfigValue::Table(convert_table(table, at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::problem::ConfigProblem;

    fn parse_text(text: &str) -> Result<ConfigTable, Vec<ConfigProblem>> {
        let (document, mut report) =
            (ConfigDocument::new("a.toml".into(), text), ReadReport::default());
        parse_document(LayerRank::User, &document, &mut report).ok_or(report.problems)
    }

    /// Fault K6.
    #[test]
    fn windows_line_ends_and_a_byte_order_mark_are_read() {
        let table = parse_text("\u{feff}[llm]\r\nretries = 1_0\r\n").unwrap();
        let ConfigValue::Table(llm) = &table["llm"].value else { panic!() };
        assert_eq!(llm["retries"].value, ConfigValue::Integer(10));
        assert_eq!(llm["retries"].key_origin.to_string(), "a.toml:2:1");
        assert_eq!(llm["retries"].origin.to_string(), "a.toml:2:11");
    }

    /// Fault K1.
    #[test]
    fn every_syntax_error_is_reported_with_its_position() {
        let problems = parse_text("a = \nb = 1\nc = [1,\n").unwrap_err();
        let places: Vec<String> = problems.iter().map(|p| p.origin.to_string()).collect();
        assert!(places.len() >= 2 && places[0].starts_with("a.toml:1:"), "{problems:?}");
    }

    #[test]
    fn numbers_too_large_for_a_whole_number_stay_numbers() {
        let huge = parse_value("99999999999999999999", &ValueOrigin::DEFAULT).unwrap();
        assert_eq!(huge, ConfigValue::Float(1e20));
    }
}
