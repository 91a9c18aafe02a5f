//! The JSON Schema of configuration files, made from the declarations of the keys.

use serde_json::{Value, json};

use super::key_spec::{KeySpec, ValueType};
use super::settings::description;

/// Returns the JSON Schema of configuration files, for editors that complete and check TOML.
///
/// `providers` are the names of the model providers, for a description.
pub fn schema(providers: &str) -> Value {
    let mut root = object();
    for (table, doc) in &description().tables {
        place(&mut root, table)["description"] = json!(doc);
    }
    for key in &description().keys {
        let name = key.last_part().to_owned();
        place(&mut root, key.table())["properties"][name] = key_schema(key, providers);
    }
    let settings = root.clone();
    root["properties"]["profiles"] = json!({
        "description": "Sets of values for `--profile NAME`.",
        "type": "object",
        "additionalProperties": settings,
    });
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Configuration of architect");
    root
}

fn object() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

/// Returns the schema of a table; creates it if it is missing.
fn place<'a>(root: &'a mut Value, table: &str) -> &'a mut Value {
    let mut place = root;
    for part in table.split('.').filter(|part| !part.is_empty()) {
        let next = if part == "*" {
            &mut place["additionalProperties"]
        } else {
            &mut place["properties"][part]
        };
        if !next.is_object() {
            *next = object();
        }
        place = next;
    }
    place
}

fn key_schema(key: &KeySpec, providers: &str) -> Value {
    let mut schema = type_schema(&key.value_type, providers);
    schema["description"] = json!(key.describe(providers));
    if let Some((least, most)) = &key.range {
        schema["minimum"] = json!(least);
        schema["maximum"] = json!(most);
    }
    if let Some(default) = &key.default {
        schema["default"] = json!(default);
    }
    schema
}

fn type_schema(value_type: &ValueType, providers: &str) -> Value {
    match value_type {
        ValueType::Bool => json!({ "type": "boolean" }),
        ValueType::BoolOr(word) => json!({ "enum": [true, false, word] }),
        ValueType::Integer => json!({ "type": "integer", "minimum": 0 }),
        ValueType::Number => json!({ "type": "number" }),
        ValueType::Duration => json!({ "type": ["number", "string"] }),
        ValueType::Text => json!({ "type": "string" }),
        ValueType::Any => json!({}),
        ValueType::Word(words) => json!({ "type": "string", "enum": words }),
        ValueType::List(items) => {
            json!({ "type": "array", "items": type_schema(items, providers) })
        }
        ValueType::Map(values) => {
            json!({ "type": "object", "additionalProperties": type_schema(values, providers) })
        }
        ValueType::Tables(keys) => {
            let mut entry = json!({});
            for key in keys {
                // A table in an entry has no tables of its own.
                let (table, name) = match key.path.split_once('.') {
                    Some((table, name)) => (&mut entry["properties"][table], name),
                    None => (&mut entry, key.path.as_str()),
                };
                if table.get("properties").is_none() {
                    *table = object();
                    table["required"] = json!([]);
                }
                table["properties"][name] = key_schema(key, providers);
                if let (true, Some(required)) = (key.is_required, table["required"].as_array_mut())
                {
                    required.push(json!(name));
                }
            }
            json!({ "type": "array", "items": entry })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::template::{ProjectPreset, template};
    use crate::types::WordEnum;

    fn is_valid(text: &str) -> bool {
        let value: Value = toml::from_str(text).unwrap();
        jsonschema::validator_for(&schema("x, y")).unwrap().is_valid(&value)
    }

    #[test]
    fn the_schema_accepts_every_preset_and_the_whole_template() {
        for (_, preset) in ProjectPreset::WORDS {
            assert!(is_valid(&template(*preset, "x, y")), "{preset}");
        }
        let text = template(ProjectPreset::Plain, "x, y");
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with([' ', ':']) => rest,
            _ => line,
        });
        assert!(is_valid(&lines.collect::<Vec<_>>().join("\n")));
    }

    #[test]
    fn the_schema_rejects_unknown_keys_wrong_types_and_values_out_of_range() {
        for wrong in [
            "x = 1",
            "[llm]\nx = 1",
            "[llm]\nretries = 'many'",
            "[llm]\nretries = 101",
            "language = 'fr'",
            "[[hooks.stop]]\nname = 'a'",
            "[agents.a]\nmax_steps = -1",
            "[profiles.a.llm]\nx = 1",
        ] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
