//! The JSON Schema of manifests.

use serde_json::{Map, Value, json};

use super::manifest::{MAX_ID_LENGTH, TASK_KEYS, VARIANT_KEYS};

/// Returns the JSON Schema of manifests: for a whole TOML file, and for each line of JSON Lines.
///
/// `configuration` is the schema of configuration files, for the limits of a task.
pub fn manifest_schema(configuration: &Value) -> Value {
    let entry = |keys: &[&str], required: Value| {
        let property = |key: &&str| ((*key).to_owned(), key_schema(key, configuration));
        let properties: Map<String, Value> = keys.iter().map(property).collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    let mut task = entry(&TASK_KEYS, json!(["id", "prompt"]));
    task["description"] = json!("A task.");
    task["dependentRequired"] = json!({ "ref": ["repo"] });
    task["not"] = json!({ "required": ["workspace", "repo"] });
    let mut variant = entry(&VARIANT_KEYS, json!(["id"]));
    variant["description"] = json!("Settings for every task.");
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest",
        "description": "A file of `architect batch`, or of its `--variants`: TOML, or a line of JSON Lines.",
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "task": { "type": "array", "items": { "$ref": "#/$defs/task" }, "minItems": 1 },
                    "variant": { "type": "array", "items": { "$ref": "#/$defs/variant" }, "minItems": 1 },
                },
                "minProperties": 1,
                "additionalProperties": false,
            },
            { "$ref": "#/$defs/task" },
            { "$ref": "#/$defs/variant", "minProperties": 2 },
        ],
        "$defs": { "task": task, "variant": variant },
    })
}

fn key_schema(key: &str, configuration: &Value) -> Value {
    let text = |about: &str| json!({ "description": about, "type": "string", "pattern": "\\S" });
    let commands = |about: &str| {
        let command = json!({ "type": "string", "pattern": "\\S" });
        json!({ "description": about, "anyOf": [command, { "type": "array", "items": command }] })
    };
    match key {
        "id" => {
            let mut id = text("The id, unique in the file.");
            id["maxLength"] = json!(MAX_ID_LENGTH);
            id
        }
        "prompt" => {
            text("The task, as text. In a variant, `{{prompt}}` stands for the text of the task.")
        }
        "workspace" => text("The folder to work in."),
        "repo" => text("A git repository; the task gets its own worktree."),
        "ref" => text("The commit that the worktree starts from."),
        "agent" => text("The agent."),
        "model" => text("The model."),
        "setup" => commands("Shell commands that run before the task."),
        "checks" => commands("Shell commands that must succeed after the task."),
        "limits" => {
            let mut limits = configuration["properties"]["limits"].clone();
            limits["description"] = json!("Limits, as in the configuration.");
            limits
        }
        _ => json!({
            "description": "Settings: keys of the configuration, in tables or with dots.",
            "type": "object",
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::manifest::BatchManifest;
    use super::super::manifest_file::ManifestText;
    use super::*;

    /// Returns whether the schema and the parser, in this order, accept a TOML manifest.
    fn accepted(text: &str) -> [bool; 2] {
        let schema = manifest_schema(&crate::config::schema("x"));
        let value: Value = toml::from_str(text).unwrap();
        let manifest = ManifestText { name: "t.toml", text };
        let (_, problems) = BatchManifest::parse(manifest, None, Path::new("/"));
        [jsonschema::validator_for(&schema).unwrap().is_valid(&value), problems.is_empty()]
    }

    #[test]
    fn the_schema_accepts_what_the_parser_accepts() {
        let task = |rest: &str| format!("[[task]]\nid = 'a'\nprompt = 'x'\n{rest}");
        for right in [
            "",
            "setup = 'make'\nchecks = ['a', 'b']",
            "workspace = 'tmp'\nagent = 'plan'\nmodel = 'sonnet'",
            "repo = 'tmp'\nref = 'main'",
            "limits = { max_steps = 3, budget_usd = 0.5 }",
            "set.llm.stream = false",
            "set = { 'llm.stream' = false }",
        ] {
            assert_eq!(accepted(&task(right)), [true, true], "{right}");
        }
        for wrong in [
            "modle = 'x'",
            "agent = ' '",
            "agent = 3",
            "checks = [1]",
            "checks = ['']",
            "ref = 'main'",
            "workspace = 'tmp'\nrepo = 'tmp'",
            "set = 3",
            "limits = 3",
        ] {
            assert_eq!(accepted(&task(wrong)), [false, false], "{wrong}");
        }
        assert_eq!(accepted("[[task]]\nid = 'a'\n"), [false, false]);
        assert_eq!(accepted("[[tasks]]\nid = 'a'\nprompt = 'x'\n"), [false, false]);
    }

    #[test]
    fn a_line_is_a_task_or_a_variant() {
        let schema = manifest_schema(&crate::config::schema("x"));
        let is_valid = |line| jsonschema::validator_for(&schema).unwrap().is_valid(&line);
        assert!(is_valid(json!({ "id": "a", "prompt": "x", "limits": { "max_steps": 1 } })));
        assert!(is_valid(json!({ "id": "a", "model": "sonnet" })));
        assert!(!is_valid(json!({ "id": "a" })));
        assert!(!is_valid(json!({ "id": "a", "prompt": "x", "limits": { "max_step": 1 } })));
    }
}
