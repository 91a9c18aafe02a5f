//! The minimum number of steps for validating any value.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaValidator;
use super::checks::MAX_DEPTH;

/// Returns the reason why no value can be validated in this number of steps; `None` if some value may be.
pub(super) fn too_costly(validator: &SchemaValidator, steps: usize) -> Option<String> {
    let mut costs = Costs { validator, known: HashMap::new(), open: Vec::new() };
    match costs.least("") {
        Ok(least) if least <= steps => None,
        Ok(_) => Some(format!("the validation of any answer takes more than {steps} steps")),
        Err(why) => Some(why.to_owned()),
    }
}

/// The minimum numbers of steps, by schema.
struct Costs<'a> {
    validator: &'a SchemaValidator,
    known: HashMap<String, usize>,
    /// The schemas around the current one, as JSON Pointers.
    open: Vec<String>,
}

impl Costs<'_> {
    /// Returns the minimum number of steps for applying a schema to a value.
    ///
    /// # Errors
    ///
    /// Fails if the schema is applied to the same value endlessly, or nests too deeply.
    fn least(&mut self, at: &str) -> Result<usize, &'static str> {
        if let Some(known) = self.known.get(at) {
            return Ok(*known);
        }
        if self.open.iter().any(|open| open == at) {
            return Err("it refers to itself without end");
        }
        if self.open.len() > MAX_DEPTH {
            return Err("its references nest too deep");
        }
        let Some(map) = self.validator.schema.pointer(at).and_then(Value::as_object) else {
            return Ok(1);
        };
        self.open.push(at.to_owned());
        let mut least: usize = 1;
        for applied in self.applied(at, map) {
            least = least.saturating_add(self.least(&applied)?);
        }
        self.open.pop();
        self.known.insert(at.to_owned(), least);
        Ok(least)
    }

    /// Returns the schemas that are applied to the same value, regardless of the value.
    fn applied(&self, at: &str, map: &Map<String, Value>) -> Vec<String> {
        let mut applied = Vec::new();
        applied.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
        if !applied.is_empty() && self.validator.draft.reference_stands_alone() {
            return applied;
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let count = map.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
            applied.extend((0..count).map(|index| format!("{at}/{keyword}/{index}")));
        }
        let single = ["not", "if"].into_iter().filter(|keyword| map.contains_key(*keyword));
        applied.extend(single.map(|keyword| format!("{at}/{keyword}")));
        applied
    }
}
