//! Finds schemas that no value can satisfy, as far as their structure shows.

use serde_json::{Map, Value};

use super::SchemaValidator;
use super::checks::{MAX_DEPTH, violations};
use super::compile::escape;
use super::value_limits::{Kind, count_reason, excludes_kind, integer_reason, number_reason};

/// The maximum number of examined schemas. For some schemas, a complete search takes exponential time.
const MAX_STEPS: usize = 100_000;

/// The maximum number of steps for validating a value that a schema names.
const MAX_VALUE_STEPS: usize = 10_000;

/// Returns the reason why no value satisfies a schema; `None` if some value may.
pub(super) fn unsatisfiable(validator: &SchemaValidator) -> Option<String> {
    let mut search = Search { validator, open: Vec::new(), steps: MAX_STEPS };
    search.nothing_satisfies("")
}

/// A schema and its location, as a JSON Pointer.
type Part<'a> = (String, &'a Map<String, Value>);

struct Search<'a> {
    validator: &'a SchemaValidator,
    /// The schemas around the current one, as JSON Pointers.
    open: Vec<String>,
    /// The number of schemas that may still be examined.
    steps: usize,
}

impl<'a> Search<'a> {
    /// Returns the keywords of a schema; `None` if it has none, or too many schemas were examined.
    fn keywords(&mut self, at: &str) -> Option<&'a Map<String, Value>> {
        self.steps = self.steps.checked_sub(1)?;
        self.validator.schema.pointer(at)?.as_object()
    }

    /// Returns the reason why no value satisfies the schema at this location.
    fn nothing_satisfies(&mut self, at: &str) -> Option<String> {
        if self.validator.schema.pointer(at) == Some(&Value::Bool(false)) {
            return Some(located(at, "is false"));
        }
        if self.open.iter().any(|open| open == at) {
            return Some(located(at, "contains itself without end"));
        }
        if self.open.len() > MAX_DEPTH {
            return None;
        }
        let map = self.keywords(at)?;
        self.open.push(at.to_owned());
        let reason = self.keyword_reason(at, map);
        self.open.pop();
        reason
    }

    fn keyword_reason(&mut self, at: &str, map: &Map<String, Value>) -> Option<String> {
        if let Some(target) = map.get("$ref").and_then(Value::as_str) {
            let reason = self.nothing_satisfies(target);
            if reason.is_some() || self.validator.draft.reference_stands_alone() {
                return reason;
            }
        }
        let list = |keyword: &str| map.get(keyword).and_then(Value::as_array);
        if let Some(empty) = ["enum", "type", "anyOf", "oneOf"]
            .into_iter()
            .find(|keyword| list(keyword).is_some_and(Vec::is_empty))
        {
            return Some(located(&format!("{at}/{empty}"), "is empty"));
        }
        if map.get("not").is_some_and(|not| *not == Value::Bool(true) || is_empty(not)) {
            return Some(located(&format!("{at}/not"), "excludes everything"));
        }
        for index in 0..list("allOf").map_or(0, Vec::len) {
            if let Some(reason) = self.nothing_satisfies(&format!("{at}/allOf/{index}")) {
                return Some(reason);
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            let indexes = 0..list(keyword).map_or(0, Vec::len);
            let reason = self.every(indexes, |it, index| {
                it.nothing_satisfies(&format!("{at}/{keyword}/{index}"))
            });
            if reason.is_some() {
                return reason;
            }
        }
        self.value_reason(at)
    }

    /// Returns the first reason if there are items and all of them have a reason.
    fn every<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut reason: impl FnMut(&mut Self, T) -> Option<String>,
    ) -> Option<String> {
        let reasons = items.into_iter().map(|item| reason(self, item));
        reasons.collect::<Option<Vec<_>>>()?.into_iter().next()
    }

    /// Returns the schemas that apply together to the values of a schema: itself, its reference, and those of `allOf`.
    fn parts(&mut self, at: &str, parts: &mut Vec<Part<'a>>) {
        if parts.len() > MAX_DEPTH || parts.iter().any(|(known, _)| known == at) {
            return;
        }
        let Some(map) = self.keywords(at) else { return };
        let target = map.get("$ref").and_then(Value::as_str);
        if target.is_none() || !self.validator.draft.reference_stands_alone() {
            parts.push((at.to_owned(), map));
            let count = map.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
            (0..count).for_each(|index| self.parts(&format!("{at}/allOf/{index}"), parts));
        }
        if let Some(target) = target {
            self.parts(target, parts);
        }
    }

    /// Returns the reason why no value satisfies all limits of a schema.
    fn value_reason(&mut self, at: &str) -> Option<String> {
        let mut parts = Vec::new();
        self.parts(at, &mut parts);
        if let Some((named, values)) = parts.iter().find_map(named_values) {
            return self
                .excludes_values(at, &values)
                .then(|| located(&named, "names no value that satisfies the rest of the schema"));
        }
        if let Some(reason) = self.kinds_reason(at, &parts) {
            return Some(reason);
        }
        for (at, map) in &parts {
            for keyword in ["anyOf", "oneOf"] {
                let count = map.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
                let reason = self.every(0..count, |it, index| {
                    let mut parts = parts.clone();
                    it.parts(&format!("{at}/{keyword}/{index}"), &mut parts);
                    it.kinds_reason(at, &parts)
                });
                if reason.is_some() {
                    return reason;
                }
            }
        }
        None
    }

    /// Returns whether a schema excludes all these values.
    fn excludes_values(&mut self, at: &str, values: &[Value]) -> bool {
        let Some(schema) = self.validator.schema.pointer(at) else { return false };
        values.iter().all(|value| {
            self.steps = self.steps.saturating_sub(1);
            let limit = MAX_VALUE_STEPS.min(self.steps);
            violations(self.validator, schema, value, limit).is_ok_and(|found| !found.is_empty())
        })
    }

    /// Returns the reason why no kind of value satisfies schemas that all apply.
    fn kinds_reason(&mut self, at: &str, parts: &[Part]) -> Option<String> {
        let is_allowed = |kind: &Kind| !parts.iter().any(|(_, map)| excludes_kind(map, *kind));
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_allowed).collect();
        if kinds.is_empty() {
            return Some(located(at, "allows no type"));
        }
        self.every(kinds, |it, kind| match kind {
            Kind::Null => {
                it.excludes_values(at, &[Value::Null]).then(|| located(at, "excludes null"))
            }
            Kind::Boolean => it
                .excludes_values(at, &[true.into(), false.into()])
                .then(|| located(at, "excludes true and false")),
            Kind::String => {
                count_reason(parts, "minLength", "maxLength").map(|why| located(at, &why))
            }
            Kind::Integer => integer_reason(parts).map(|why| located(at, &why)),
            Kind::Fraction => number_reason(parts).map(|why| located(at, &why)),
            Kind::Array => it.array_reason(at, parts),
            Kind::Object => it.object_reason(at, parts),
        })
    }

    fn array_reason(&mut self, at: &str, parts: &[Part]) -> Option<String> {
        if let Some(why) = count_reason(parts, "minItems", "maxItems") {
            return Some(located(at, &why));
        }
        let counts = parts.iter().filter_map(|(_, map)| map.get("minItems")?.as_f64());
        let least = counts.fold(0.0, f64::max);
        for (at, map) in parts {
            // As in validation, a list applies to the first elements.
            let (first, rest) = if let Some(Value::Array(first)) = map.get("items") {
                (Some(("items", first)), "additionalItems")
            } else {
                let first = map.get("prefixItems").and_then(Value::as_array);
                (first.map(|first| ("prefixItems", first)), "items")
            };
            let (mut position, mut required) = (0.0, Vec::new());
            if let Some((keyword, first)) = first {
                for index in 0..first.len() {
                    if position < least {
                        required.push(format!("{at}/{keyword}/{index}"));
                    }
                    position += 1.0;
                }
            }
            if position < least && map.contains_key(rest) {
                required.push(format!("{at}/{rest}"));
            }
            for schema in required {
                let reason = self.nothing_satisfies(&schema);
                if reason.is_some() {
                    return reason;
                }
            }
        }
        None
    }

    fn object_reason(&mut self, at: &str, parts: &[Part]) -> Option<String> {
        if let Some(why) = count_reason(parts, "minProperties", "maxProperties") {
            return Some(located(at, &why));
        }
        let required = parts.iter().filter_map(|(_, map)| map.get("required")?.as_array());
        let mut required: Vec<&str> = required.flatten().filter_map(Value::as_str).collect();
        required.sort_unstable();
        required.dedup();
        let most = parts.iter().filter_map(|(_, map)| map.get("maxProperties")?.as_u64()).min();
        if most.is_some_and(|most| most < required.len() as u64) {
            return Some(located(at, "requires more properties than its maxProperties allows"));
        }
        for (at, map) in parts {
            for name in &required {
                let reason = self.property_reason(at, map, name);
                if reason.is_some() {
                    return reason;
                }
            }
        }
        None
    }

    /// Returns the reason why a property can't exist.
    fn property_reason(
        &mut self,
        at: &str,
        map: &Map<String, Value>,
        name: &str,
    ) -> Option<String> {
        let fields = map.get("properties").and_then(Value::as_object);
        if fields.is_some_and(|fields| fields.contains_key(name)) {
            return self.nothing_satisfies(&format!("{at}/properties/{}", escape(name)));
        }
        let patterns = map.get("patternProperties").and_then(Value::as_object);
        let is_known = patterns.is_some_and(|patterns| {
            patterns.keys().any(|pattern| self.validator.matches(pattern, name))
        });
        if is_known || !map.contains_key("additionalProperties") {
            return None;
        }
        let additional = format!("{at}/additionalProperties");
        match self.validator.schema.pointer(&additional) {
            Some(Value::Bool(false)) => {
                let what = format!("requires {name:?}, which is not in its properties");
                Some(located(at, &what))
            }
            _ => self.nothing_satisfies(&additional),
        }
    }
}

/// Returns the values that a schema names, and the location of their keyword, if it allows no other values.
fn named_values((at, map): &Part) -> Option<(String, Vec<Value>)> {
    if let Some(value) = map.get("const") {
        return Some((format!("{at}/const"), vec![value.clone()]));
    }
    let values = map.get("enum")?.as_array()?;
    Some((format!("{at}/enum"), values.clone()))
}

fn is_empty(schema: &Value) -> bool {
    schema.as_object().is_some_and(Map::is_empty)
}

fn located(at: &str, what: &str) -> String {
    if at.is_empty() { format!("it {what}") } else { format!("{at} {what}") }
}
