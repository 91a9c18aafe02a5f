//! The JSON Schema of the final answer.

use serde_json::Value;

/// Returns whether a schema fits the strict modes of providers: every object requires all of its properties and allows
/// no others.
pub(super) fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let properties = map.get("properties").and_then(Value::as_object);
            let required = map.get("required").and_then(Value::as_array);
            let is_object =
                properties.is_some() || map.get("type").is_some_and(|kind| *kind == "object");
            let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
            let all_required = properties.is_none_or(|properties| {
                properties.keys().all(|key| {
                    required
                        .is_some_and(|required| required.iter().any(|name| name == key.as_str()))
                })
            });
            (!is_object || (is_closed && all_required))
                && map.iter().all(|(key, value)| match key.as_str() {
                    "properties" | "$defs" | "definitions" => {
                        value.as_object().is_none_or(|map| map.values().all(is_strict))
                    }
                    "enum" | "const" | "default" | "examples" | "required" => true,
                    _ => is_strict(value),
                })
        }
        Value::Array(items) => items.iter().all(is_strict),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
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
        let closed = |inner: Value| {
            json!({"type": "object", "properties": {"a": inner}, "required": ["a"],
                   "additionalProperties": false})
        };
        assert!(is_strict(&closed(json!({"type": "string"}))));
        assert!(is_strict(&closed(json!({"type": "array", "items": closed(json!({}))}))));
        assert!(!is_strict(&closed(json!({"type": "object"}))));
        assert!(!is_strict(&json!({"type": "object", "properties": {"a": {}},
                                   "additionalProperties": false})));
        assert!(is_strict(&json!({"type": "string", "enum": [{"type": "object"}]})));
        // A property may have the name of a keyword.
        assert!(is_strict(&closed(json!({"type": "string", "const": "properties"}))));
    }
}
