//! Finds schemas that no value satisfies, as far as their structure shows.

use serde_json::{Map, Value};

use super::SchemaValidator;
use super::compile::escape;

/// The most schemas that are looked at. Schemas exist for which that takes exponential time.
const MAX_STEPS: usize = 100_000;

/// Returns why no value satisfies a schema; `None` if one may.
pub(super) fn unsatisfiable(validator: &SchemaValidator) -> Option<String> {
    let mut search = Search { validator, open: Vec::new(), steps: MAX_STEPS };
    if search.is_endless("") {
        return Some("it refers to itself without end".to_owned());
    }
    search.nothing_satisfies("")
}

struct Search<'a> {
    validator: &'a SchemaValidator,
    /// The schemas around the present one, as JSON Pointers.
    open: Vec<String>,
    /// The schemas that may still be looked at.
    steps: usize,
}

impl<'a> Search<'a> {
    /// Opens a schema; `None` if it has no keywords, or too many were looked at.
    fn open(&mut self, at: &str) -> Option<&'a Map<String, Value>> {
        self.steps = self.steps.checked_sub(1)?;
        let map = self.validator.schema.pointer(at)?.as_object()?;
        self.open.push(at.to_owned());
        Some(map)
    }

    /// Returns whether the validation of any value comes back to this schema with the same value.
    fn is_endless(&mut self, at: &str) -> bool {
        if self.open.iter().any(|open| open == at) {
            return true;
        }
        let Some(map) = self.open(at) else { return false };
        let mut applied = Vec::new();
        applied.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
        if applied.is_empty() || !self.validator.draft.reference_stands_alone() {
            let count =
                |keyword: &str| map.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
            // The others of `anyOf` are not looked at if the first one is satisfied.
            for (keyword, count) in [
                ("allOf", count("allOf")),
                ("oneOf", count("oneOf")),
                ("anyOf", count("anyOf").min(1)),
            ] {
                applied.extend((0..count).map(|index| format!("{at}/{keyword}/{index}")));
            }
            applied.extend(["not", "if"].map(|keyword| format!("{at}/{keyword}")));
        }
        let is_endless = applied.iter().any(|at| self.is_endless(at));
        self.open.pop();
        is_endless
    }

    /// Returns why no value satisfies the schema here.
    fn nothing_satisfies(&mut self, at: &str) -> Option<String> {
        if self.validator.schema.pointer(at) == Some(&Value::Bool(false)) {
            return Some(located(at, "is false"));
        }
        if self.open.iter().any(|open| open == at) {
            return Some(located(at, "contains itself without end"));
        }
        let map = self.open(at)?;
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
            let reasons =
                indexes.map(|index| self.nothing_satisfies(&format!("{at}/{keyword}/{index}")));
            if let Some(reason) =
                reasons.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next())
            {
                return Some(reason);
            }
        }
        self.part_reason(at, map)
    }

    /// Returns why a part that a value must have can't be.
    fn part_reason(&mut self, at: &str, map: &Map<String, Value>) -> Option<String> {
        let types = map.get("type");
        let is_only = |name: &str| {
            types.is_some_and(|types| *types == name || *types == Value::from(vec![name]))
        };
        if is_only("object") {
            let fields = map.get("properties").and_then(Value::as_object);
            let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false))
                && !map.contains_key("patternProperties");
            let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                let is_known = fields.is_some_and(|fields| fields.contains_key(name));
                if is_closed && !is_known {
                    let what = format!("requires {name:?}, which is not in its properties");
                    return Some(located(at, &what));
                }
                let reason = self.nothing_satisfies(&format!("{at}/properties/{}", escape(name)));
                if reason.is_some() {
                    return reason;
                }
            }
        }
        let has_items = map.get("minItems").and_then(Value::as_f64) >= Some(1.0);
        if is_only("array") && has_items && !map.contains_key("prefixItems") {
            return self.nothing_satisfies(&format!("{at}/items"));
        }
        None
    }
}

fn is_empty(schema: &Value) -> bool {
    schema.as_object().is_some_and(Map::is_empty)
}

fn located(at: &str, what: &str) -> String {
    if at.is_empty() { format!("it {what}") } else { format!("{at} {what}") }
}
