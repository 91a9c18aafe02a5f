//! Tables of settings in a manifest, converted to the form of `--set`.

use serde_json::{Map, Value};

use crate::config::keys;

/// Returns each setting of a table as `KEY=VALUE`. Keys may be nested (`llm = { stream = false }`) or dotted
/// (`"llm.stream" = false`).
pub(super) fn flatten_settings(prefix: &str, table: &Map<String, Value>) -> Vec<String> {
    let mut sets = Vec::new();
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            // Some keys have a table as their value.
            Value::Object(below) if !keys().iter().any(|known| known.path == key) => {
                sets.extend(flatten_settings(&key, below));
            }
            value => sets.push(format!("{key}={}", to_toml(value))),
        }
    }
    sets
}

/// Returns a value as the right side of a TOML assignment.
fn to_toml(value: &Value) -> String {
    match value {
        // TOML has no null. With this text, no key accepts it as an empty value by mistake.
        Value::Null => "null".to_owned(),
        Value::Object(table) => {
            let pair = |(key, value): (&String, &Value)| {
                format!("{} = {}", Value::from(key.as_str()), to_toml(value))
            };
            format!("{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(to_toml).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_and_dotted_keys_are_the_same() {
        let flat = |value: Value| flatten_settings("", value.as_object().unwrap());
        let dotted = json!({"llm.stream": false, "permissions.deny": ["a(\"b\")"], "x.y": 1.5});
        let nested = json!({"llm": {"stream": false}, "permissions": {"deny": ["a(\"b\")"]}, "x": {"y": 1.5}});
        assert_eq!(flat(dotted.clone()), flat(nested));
        assert_eq!(flat(dotted), ["llm.stream=false", "permissions.deny=['a(\"b\")']", "x.y=1.5"]);
        assert_eq!(flat(json!({"language": "es"})), ["language=\"es\""]);
    }
}
