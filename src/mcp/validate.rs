//! Validates arguments against the schema of a tool.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::tools::{SchemaError, SchemaValidator, SchemaViolation};
use crate::types::shorten;

/// The schema of a tool's arguments, compiled for the first call.
#[derive(Default)]
pub(super) struct CompiledSchema(OnceLock<Option<SchemaValidator>>);

/// The maximum number of errors in a message.
const MAX_ERRORS: usize = 3;

/// The maximum length of an error, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// The maximum number of steps of a validation: with a hostile schema, it could take exponential time.
const MAX_STEPS: usize = 30_000;

impl CompiledSchema {
    /// Validates arguments against the schema of `owner`, a name for warnings. Checks that are not possible here are
    /// left to the server, for example references to other documents, or validation that may take exponential time.
    ///
    /// # Errors
    ///
    /// Fails with the errors in the arguments.
    pub(super) fn check(
        &self,
        owner: &str,
        schema: &Value,
        arguments: &Map<String, Value>,
    ) -> Result<(), String> {
        let validator = self.0.get_or_init(|| {
            let compiled = SchemaValidator::new(schema);
            let warn = |error: &SchemaError| {
                let problem = shorten(&error.to_string(), MAX_ERROR_CHARS);
                log::warn!(
                    "the schema of {owner} is not supported ({problem:?}): only its required fields are checked"
                );
            };
            compiled.inspect_err(warn).ok()
        });
        let Some(validator) = validator else { return check_required(schema, arguments) };
        let arguments = Value::Object(arguments.clone());
        let Ok(wrong) = validator.violations(&arguments, MAX_STEPS) else { return Ok(()) };
        let wrong: Vec<String> = wrong.iter().take(MAX_ERRORS).map(error_text).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}

/// Returns an error with its location.
fn error_text(error: &SchemaViolation) -> String {
    shorten(&error.to_string(), MAX_ERROR_CHARS)
}

/// Checks required fields only, without the rest of the schema.
fn check_required(schema: &Value, arguments: &Map<String, Value>) -> Result<(), String> {
    let required = schema["required"].as_array().into_iter().flatten();
    let missing = required.filter_map(Value::as_str).find(|key| !arguments.contains_key(*key));
    missing.map_or(Ok(()), |key| Err(format!("missing field `{key}`")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, arguments: Value) -> Result<(), String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        CompiledSchema::default().check("a test", schema, &arguments)
    }

    #[test]
    fn the_whole_schema_holds() {
        let schema = json!({
            "type": "object",
            "properties": {
                "msg": { "type": "string", "maxLength": 5 },
                "mode": { "enum": ["a", "b"] },
                "list": { "type": "array", "items": { "$ref": "#/$defs/item" } },
                "word": { "pattern": "^[a-z]+$" },
            },
            "required": ["msg"],
            "additionalProperties": false,
            "$defs": { "item": { "type": "integer", "minimum": 1 } },
        });
        let good = json!({ "msg": "hi", "mode": "a", "list": [1, 2], "word": "abc" });
        assert_eq!(check(&schema, good), Ok(()));
        for (wrong, expected) in [
            (json!({ "msg": 5 }), "/msg: "),
            (json!({}), "\"msg\" is a required property"),
            (json!({ "msg": "too long" }), "/msg: "),
            (json!({ "msg": "", "mode": "c" }), "/mode: "),
            (json!({ "msg": "", "list": [1, 0] }), "/list/1: "),
            (json!({ "msg": "", "word": "A" }), "/word: "),
            (json!({ "msg": "", "more": 1 }), "Additional properties"),
        ] {
            let error = check(&schema, wrong.clone()).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
        let long = json!({ "msg": "", "more": 1, "x".repeat(10_000): 1 });
        assert!(
            check(&schema, long).unwrap_err().chars().count() <= MAX_ERROR_CHARS * MAX_ERRORS + 10
        );
    }

    /// A list in `items` applies to the first elements up to draft 2019-09, and is invalid in later drafts.
    #[test]
    fn the_dialect_is_that_of_the_schema() {
        let items = json!({ "a": { "items": [{ "type": "string" }, { "type": "integer" }] } });
        let draft_7 =
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "properties": items });
        assert!(check(&draft_7, json!({ "a": ["x", "y"] })).is_err());
        assert_eq!(check(&draft_7, json!({ "a": ["x", 1] })), Ok(()));
        let prefix = json!({ "a": { "prefixItems": [{ "type": "string" }] } });
        for dialect in ["https://json-schema.org/draft/2020-12/schema", "urn:example:unknown"] {
            let schema = json!({ "$schema": dialect, "properties": prefix });
            assert!(check(&schema, json!({ "a": [1] })).is_err(), "{dialect}");
        }
        assert!(check(&json!({ "properties": prefix }), json!({ "a": [1] })).is_err());
    }

    #[test]
    fn a_schema_that_cannot_be_compiled_is_left_to_the_server() {
        for more in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "(?=a)b" }),
            json!({ "type": "no type" }),
        ] {
            let schema = json!({ "required": ["a"], "properties": { "a": more } });
            assert_eq!(check(&schema, json!({ "a": "x" })), Ok(()), "{more}");
            assert_eq!(check(&schema, json!({})), Err("missing field `a`".to_owned()), "{more}");
        }
    }

    /// Recursive schemas are common, and apply at each depth.
    #[test]
    fn a_recursive_schema_holds() {
        let any = json!({ "$ref": "#/$defs/any" });
        let schema = json!({ "properties": { "a": any }, "$defs": { "any": { "anyOf": [
            { "type": "string" },
            { "type": "array", "items": any },
            { "type": "object", "additionalProperties": any },
        ] } } });
        let nested = |inner: Value| (0..40).fold(inner, |inner, _| json!([{ "b": inner }]));
        assert_eq!(check(&schema, json!({ "a": nested("x".into()) })), Ok(()));
        assert!(check(&schema, json!({ "a": nested(1.into()) })).is_err());
    }

    #[test]
    fn a_hostile_schema_does_no_harm() {
        let itself = json!({ "$ref": "#", "allOf": [{ "$ref": "#" }] });
        assert_eq!(check(&itself, json!({ "a": 1 })), Ok(()));
        let ring = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
        assert_eq!(check(&ring, json!({ "a": 1 })), Ok(()));
        let mut defs = Map::new();
        for level in 0..60 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            defs.insert(format!("d{level}"), json!({ "anyOf": [next, next, { "type": "null" }] }));
        }
        defs.insert("d60".to_owned(), json!({ "type": "integer" }));
        let doubled = json!({ "$defs": defs, "properties": { "a": { "$ref": "#/$defs/d0" } } });
        let begun = std::time::Instant::now();
        assert_eq!(check(&doubled, json!({ "a": "x" })), Ok(()), "it is left to the server");
        let branch = json!({ "$ref": "#/$defs/n" });
        let tree = json!({ "$defs": { "n": { "type": "object", "properties": { "a": { "anyOf": [branch, branch] } } } }, "$ref": "#/$defs/n" });
        let deep = (0..60).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert_eq!(check(&tree, deep), Ok(()), "it is left to the server");
        assert!(begun.elapsed().as_secs() < 5);
        let slow = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        assert!(check(&slow, json!({ "a": format!("{}!", "a".repeat(50_000)) })).is_err());
    }
}
