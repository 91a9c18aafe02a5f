//! Validates values against a JSON Schema.
//!
//! Supports drafts 4 to 2020-12, with references inside the schema. Other documents are never loaded, and dynamic
//! references are not supported. A validation takes a limited number of steps.

mod big_integer;
mod checks;
mod compile;
mod cost;
mod pattern;
mod satisfiable;
#[cfg(test)]
mod tests;
mod value_limits;

pub use big_integer::first_big_integer;

use std::collections::HashMap;

use regex_automata::meta::Regex;
use serde_json::Value;

/// A JSON Schema against which values can be validated.
pub struct SchemaValidator {
    /// The schema, with each reference as a pointer into it.
    schema: Value,
    draft: SchemaDraft,
    patterns: HashMap<String, Regex>,
    /// Whether the schema has keywords for parts that no other keyword has evaluated.
    has_unevaluated: bool,
}

/// A violation of a schema by a part of a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", located(.path, .message))]
pub struct SchemaViolation {
    /// The part, as a JSON Pointer; empty for the whole value.
    pub path: String,
    /// A description of the problem, without the value itself.
    pub message: String,
}

/// The reason why a schema cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", located(.path, .message))]
pub struct SchemaError {
    path: String,
    message: String,
}

fn located(path: &str, message: &str) -> String {
    if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") }
}

/// An error for a validation that takes more steps than allowed. For some schemas, it takes exponential time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("validation takes too many steps")]
pub struct TooManySteps;

/// A version of JSON Schema; versions without a difference are combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum SchemaDraft {
    Draft4,
    /// Draft 6 and 7.
    Draft7,
    Draft201909,
    Draft202012,
}

impl SchemaValidator {
    /// Compiles a schema. Its dialect is given by `$schema`; draft 2020-12 if that is missing or unknown.
    ///
    /// # Errors
    ///
    /// Fails if the schema is invalid, or uses an unsupported feature.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        compile::compile(schema)
    }

    /// Returns the reason why no value can satisfy the schema, or be validated in this number of steps, as far as the
    /// structure of the schema shows; `None` if some value may.
    pub fn unsatisfiable(&self, steps: usize) -> Option<String> {
        cost::too_costly(self, steps).or_else(|| satisfiable::unsatisfiable(self))
    }

    /// Returns whether a text matches a pattern of the schema.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        self.patterns.get(pattern).is_none_or(|pattern| pattern.is_match(text))
    }

    /// Returns the violations by a value, in the order of the schema.
    ///
    /// # Errors
    ///
    /// Fails if the validation takes more than this number of steps, or nests too deeply. A step applies a schema or a
    /// part of it to a value or a part of it.
    pub fn violations(
        &self,
        value: &Value,
        steps: usize,
    ) -> Result<Vec<SchemaViolation>, TooManySteps> {
        checks::violations(self, &self.schema, value, steps)
    }
}

impl SchemaDraft {
    fn of(schema: &Value) -> Self {
        let dialect = schema["$schema"].as_str().unwrap_or_default();
        match dialect.trim_end_matches('#').trim_end_matches('/').split_once("json-schema.org/") {
            Some((_, "draft-04/schema")) => Self::Draft4,
            Some((_, "draft-06/schema" | "draft-07/schema")) => Self::Draft7,
            Some((_, "draft/2019-09/schema")) => Self::Draft201909,
            _ => Self::Draft202012,
        }
    }

    /// Returns whether the other keywords of a schema with a reference are ignored.
    fn reference_stands_alone(self) -> bool {
        self <= Self::Draft7
    }
}
