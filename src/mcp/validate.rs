//! Validates arguments against the schema of a tool.

use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

/// The schema of a tool's arguments, compiled for the first call.
#[derive(Default)]
pub(super) struct CompiledSchema(OnceLock<Option<Validator>>);

/// The most errors in a message.
const MAX_ERRORS: usize = 3;

/// The longest error, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// The most steps of a validation. Hostile schemas can take exponential time.
const MAX_STEPS: usize = 100_000;

/// The deepest nesting of steps.
const MAX_DEPTH: usize = 400;

impl CompiledSchema {
    /// Validates arguments against a schema. What cannot be validated here is left to the server, for example
    /// references to other documents, or validation that may take exponential time.
    ///
    /// # Errors
    ///
    /// Fails with the errors in the arguments.
    pub(super) fn check(
        &self,
        schema: &Value,
        arguments: &Map<String, Value>,
    ) -> Result<(), String> {
        let validator = self.0.get_or_init(|| compile(schema));
        let Some(validator) = validator else { return check_required(schema, arguments) };
        let arguments = Value::Object(arguments.clone());
        if StepBudget(MAX_STEPS).spend(schema, schema, &arguments, MAX_DEPTH).is_none() {
            return Ok(());
        }
        let errors = validator.iter_errors(&arguments).take(MAX_ERRORS);
        let wrong: Vec<String> = errors.map(|error| error_text(&error)).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }
}

/// Returns an error with its location.
fn error_text(error: &jsonschema::ValidationError<'_>) -> String {
    let (place, what) = (error.instance_path().to_string(), error.masked().to_string());
    let text = if place.is_empty() { what } else { format!("{place}: {what}") };
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn compile(schema: &Value) -> Option<Validator> {
    // The dialect of `$schema`; the newest one if that is missing or unknown.
    let newest = Draft::Draft202012;
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    match newest.detect(schema) {
        Draft::Unknown => {
            let mut schema = schema.clone();
            schema.as_object_mut()?.remove("$schema");
            options.with_draft(newest).build(&schema).ok()
        }
        known => options.with_draft(known).build(schema).ok(),
    }
}

/// Keywords whose value has a schema for each name.
const NAMED_SCHEMAS: [&str; 3] = ["patternProperties", "dependentSchemas", "dependencies"];

/// The remaining steps of a validation.
struct StepBudget(usize);

impl StepBudget {
    /// Counts at least the steps of validating a value against a part of a schema; `None` if there are too many.
    fn spend(&mut self, schema: &Value, part: &Value, value: &Value, depth: usize) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        for (key, below) in part.as_object().into_iter().flatten() {
            let parts: Vec<&Value> = match below {
                Value::Array(each) => each.iter().collect(),
                Value::Object(named) if NAMED_SCHEMAS.contains(&&**key) => named.values().collect(),
                one => vec![one],
            };
            let mut spend = |parts: &[&Value], value| {
                parts.iter().try_for_each(|part| self.spend(schema, part, value, depth))
            };
            match key.as_str() {
                "$dynamicRef" | "$recursiveRef" => return None,
                "$ref" => spend(&[schema.pointer(below.as_str()?.strip_prefix('#')?)?], value)?,
                "properties" => {
                    for (name, below) in below.as_object().into_iter().flatten() {
                        value.get(name).map_or(Some(()), |child| spend(&[below], child))?;
                    }
                }
                "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" => {
                    let mut items = value.as_array().into_iter().flatten();
                    items.try_for_each(|item| spend(&parts, item))?;
                }
                "patternProperties" | "additionalProperties" | "unevaluatedProperties" => {
                    let mut fields = value.as_object().into_iter().flatten();
                    fields.try_for_each(|(_, field)| spend(&parts, field))?;
                }
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" | "not"
                | "if" | "then" | "else" | "propertyNames" => spend(&parts, value)?,
                _ => {}
            }
        }
        Some(())
    }
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
        CompiledSchema::default().check(schema, &arguments)
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

    /// A list in `items` applies to the first elements up to draft 2019-09, and is invalid since.
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
