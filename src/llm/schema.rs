//! The JSON Schema of the final answer.

use serde_json::Value;

/// A mode in which a provider makes a model follow a schema. It rejects schemas that break its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StrictMode {
    /// `strict` of OpenAI's formats.
    OpenAi,
    /// `output_config.format` of Messages.
    Messages,
}

/// Keywords that only describe, and keywords that both modes support.
const KEYWORDS: [&str; 13] = [
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "definitions",
];

/// Further keywords that OpenAI's formats support.
const OPENAI_KEYWORDS: [&str; 9] = [
    "pattern",
    "format",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];

/// The values of `format` that OpenAI supports.
const OPENAI_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Returns whether a schema follows the rules of a strict mode: it has only supported keywords, each part restricts its
/// values, and every object requires all of its properties and allows no others.
pub(super) fn is_strict(schema: &Value, mode: StrictMode) -> bool {
    (mode == StrictMode::Messages || schema["type"] == "object") && has_strict_parts(schema, mode)
}

fn has_strict_parts(schema: &Value, mode: StrictMode) -> bool {
    let Some(map) = schema.as_object() else { return false };
    let properties = map.get("properties").and_then(Value::as_object);
    let required = map.get("required").and_then(Value::as_array);
    let is_object = properties.is_some() || map.get("type").is_some_and(|kind| *kind == "object");
    let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
    let is_required = |key: &String| required.is_some_and(|all| all.iter().any(|name| name == key));
    let all_required = properties.is_none_or(|properties| properties.keys().all(is_required));
    let says_something =
        ["type", "anyOf", "enum", "const", "$ref"].iter().any(|key| map.contains_key(*key));
    let is_known = |key: &str| {
        KEYWORDS.contains(&key) || mode == StrictMode::OpenAi && OPENAI_KEYWORDS.contains(&key)
    };
    let is_strict_part = |part: &Value| has_strict_parts(part, mode);
    (!is_object || (is_closed && all_required))
        && says_something
        && map.iter().all(|(key, value)| match key.as_str() {
            "properties" | "$defs" | "definitions" => {
                value.as_object().is_some_and(|map| map.values().all(is_strict_part))
            }
            "anyOf" => value.as_array().is_some_and(|all| all.iter().all(is_strict_part)),
            "items" => is_strict_part(value),
            "format" if mode == StrictMode::OpenAi => {
                value.as_str().is_some_and(|format| OPENAI_FORMATS.contains(&format))
            }
            key => is_known(key),
        })
}

/// Returns the description of a schema for the system prompt, for requests without a field for it.
pub(super) fn schema_prompt(schema: &Value) -> String {
    format!(
        "\n\nYour final answer is one JSON value, without any text around it, that satisfies this JSON Schema:\n{schema}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_strict_when_all_of_its_objects_are() {
        let is_strict = |schema: &Value| {
            let [openai, messages] =
                [StrictMode::OpenAi, StrictMode::Messages].map(|mode| is_strict(schema, mode));
            assert_eq!(openai, messages, "{schema}");
            openai
        };
        let closed = |inner: Value| {
            json!({"type": "object", "properties": {"a": inner}, "required": ["a"],
                   "additionalProperties": false})
        };
        assert!(is_strict(&closed(json!({"type": "string"}))));
        let list = |items: Value| json!({"type": "array", "items": items});
        assert!(is_strict(&closed(list(closed(json!({"type": "string"}))))));
        assert!(!is_strict(&closed(json!({"type": "object"}))));
        assert!(!is_strict(&json!({"type": "object", "properties": {"a": {"type": "null"}},
                                   "additionalProperties": false})));
        assert!(is_strict(&closed(json!({"type": "string", "enum": [{"type": "object"}]}))));
        // A property may have the name of a keyword.
        assert!(is_strict(&closed(json!({"type": "string", "const": "properties"}))));
        // Parts without a restriction, and keywords that neither mode supports.
        for inner in [json!({}), json!({"type": "array", "uniqueItems": true}), json!({"not": {}})]
        {
            assert!(!is_strict(&closed(inner)));
        }
    }

    #[test]
    fn each_provider_knows_other_keywords() {
        let both = |schema: Value| {
            [StrictMode::OpenAi, StrictMode::Messages].map(|mode| is_strict(&schema, mode))
        };
        let closed = |inner: Value| {
            json!({"type": "object", "properties": {"a": inner}, "required": ["a"],
                   "additionalProperties": false})
        };
        assert_eq!(both(closed(json!({"type": "integer", "minimum": 0}))), [true, false]);
        assert_eq!(both(closed(json!({"type": "string", "format": "uri"}))), [false, false]);
        assert_eq!(both(json!({"type": "array", "items": {"type": "string"}})), [false, true]);
    }
}
