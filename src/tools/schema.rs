//! JSON schemas for the arguments of tools, and their parsing.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::port::ToolSpec;

/// Returns the specification of a tool whose arguments have this type.
///
/// The schema uses only features that all providers support: it has no references and no type unions, and allows no
/// additional properties.
pub fn tool_spec<Arguments: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let schema = settings.into_generator().into_root_schema_for::<Arguments>();
    let mut schema = schema.to_value();
    simplify(&mut schema);
    if let Value::Object(schema) = &mut schema {
        schema.remove("title");
        schema.remove("description");
        schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    ToolSpec { name: name.into(), description: description.into(), schema }
}

/// Removes `null` from the types of optional values, which can be omitted instead.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("format");
            if fields.get("default") == Some(&Value::Null) {
                fields.remove("default");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_mut_slice() {
                    let only = only.take();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            fields.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Parses the arguments of a call.
///
/// # Errors
///
/// Fails with the error, its position, and the arguments that the tool takes.
pub fn parse_arguments<Arguments: DeserializeOwned>(
    spec: &ToolSpec,
    text: &str,
) -> Result<Arguments, String> {
    serde_json::from_str(text).map_err(|error| {
        // The names of this program's types mean nothing to a model.
        let error = ["u64", "u32", "usize"].iter().fold(error.to_string(), |text, kind| {
            text.replace(&format!("expected {kind}"), "expected a whole number, not negative")
        });
        invalid_arguments(spec, &error)
    })
}

/// Returns the result of a call with an error in its arguments.
pub fn invalid_arguments(spec: &ToolSpec, error: &str) -> String {
    format!("Invalid arguments for {}: {error}. It takes {}.", spec.name, describe_arguments(spec))
}

/// Returns the arguments that a tool takes, as part of a sentence.
fn describe_arguments(spec: &ToolSpec) -> String {
    let empty = Map::new();
    let properties = spec.schema["properties"].as_object().unwrap_or(&empty);
    let is_required = |name: &str| {
        spec.schema["required"].as_array().is_some_and(|all| all.iter().any(|n| n == name))
    };
    let one = |(name, schema): (&String, &Value)| {
        let kind = schema["type"].as_str().unwrap_or("value");
        let need = if is_required(name) { "required" } else { "optional" };
        format!("{name} ({kind}, {need})")
    };
    let all: Vec<String> = properties.iter().map(one).collect();
    if all.is_empty() { "no arguments".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// A doc comment for people.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        /// The file.
        #[allow(dead_code)]
        path: String,
        /// The line.
        #[allow(dead_code)]
        offset: Option<u64>,
        /// The mode.
        #[allow(dead_code)]
        mode: Option<WriteMode>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum WriteMode {
        Overwrite,
        Append,
    }

    fn tool() -> ToolSpec {
        tool_spec::<Arguments>("read", "Reads.")
    }

    #[test]
    fn a_schema_is_plain() {
        let expected = json!({
            "type": "object",
            "properties": {
                "path": {"description": "The file.", "type": "string"},
                "offset": {"description": "The line.", "type": "integer", "minimum": 0},
                "mode": {"description": "The mode.", "type": "string", "enum": ["overwrite", "append"]},
            },
            "additionalProperties": false,
            "required": ["path"],
        });
        assert_eq!(tool().schema, expected);
    }

    /// Fault L45.
    #[test]
    fn errors_in_arguments_have_a_position() {
        let error = |text: &str| parse_arguments::<Arguments>(&tool(), text).unwrap_err();
        let takes = "It takes path (string, required), offset (integer, optional), \
                     mode (string, optional).";
        let missing =
            format!("Invalid arguments for read: missing field `path` at line 1 column 2. {takes}");
        assert_eq!(error("{}"), missing);
        assert!(
            error(r#"{"path":"a","ofset":1}"#).contains("unknown field `ofset`, expected one of")
        );
        assert!(error(r#"{"path":"a","offset":"1"}"#).contains("invalid type: string \"1\""));
        assert!(error(r#"{"path":"a","path":"b"}"#).contains("duplicate field `path`"));
        assert!(parse_arguments::<Arguments>(&tool(), r#"{"path":"a","offset":null}"#).is_ok());
    }
}
