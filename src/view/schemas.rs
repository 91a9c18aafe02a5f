//! JSON Schemas of documents that programs read.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::public_events::line_schema_with;
use super::result::RunResult;

/// Returns the JSON Schema of the result document.
pub fn result_schema() -> Value {
    document_schema::<RunResult>()
}

/// Returns the JSON Schema of a line of `--output-format stream-json`.
pub fn event_schema() -> Value {
    document_schema::<StreamLine>()
}

/// Returns the JSON Schema of a document printed by a command.
pub fn document_schema<T: JsonSchema>() -> Value {
    generator().into_root_schema_for::<T>().to_value()
}

/// Returns a generator for the schemas of serialized documents, whose descriptions say null instead of `None`.
fn generator() -> SchemaGenerator {
    let no_none = RecursiveTransform(|schema: &mut Schema| {
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace("`None`", "null");
        }
    });
    SchemaSettings::draft2020_12().for_serialize().with_transform(no_none).into_generator()
}

/// An event, or the result at the end of the stream.
struct StreamLine;

impl JsonSchema for StreamLine {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        line_schema_with::<RunResult>(generator)
    }
}
