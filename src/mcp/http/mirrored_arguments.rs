//! Headers that repeat parts of a request, for intermediaries that do not parse it.
//!
//! Since version 2026-07-28, a request over HTTP names its method and tool in headers, and the schema of a tool may
//! mark arguments for headers with `x-mcp-header`.

use std::collections::HashSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use crate::mcp::message::RpcRequest;
use crate::mcp::protocol_mode::STATELESS_VERSION;

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mcp) struct MirroredArgument {
    /// The name of the header.
    header: String,
    /// The path of the argument, as names of nested properties.
    path: Vec<String>,
}

const HEADER_KEYWORD: &str = "x-mcp-header";

/// The largest integer that every JSON parser represents exactly.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// Returns the arguments that a schema marks for headers.
///
/// # Errors
///
/// Fails when a mark is invalid; the tool must then not be used.
pub(in crate::mcp) fn mirrored_arguments(schema: &Value) -> Result<Vec<MirroredArgument>, String> {
    let (mut found, mut path) = (Vec::new(), Vec::new());
    collect_mirrored(schema, &mut path, &mut found)?;
    // Marks elsewhere were not found among the arguments.
    if found.len() != count_keywords(schema) {
        return Err(format!("{HEADER_KEYWORD} is not at an argument"));
    }
    let mut seen = HashSet::new();
    match found.iter().find(|mirror| !seen.insert(mirror.header.to_ascii_lowercase())) {
        Some(twice) => Err(format!("{HEADER_KEYWORD} names {} twice", twice.header)),
        None => Ok(found),
    }
}

fn collect_mirrored(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<MirroredArgument>,
) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        if let Some(mark) = property.get(HEADER_KEYWORD) {
            let is_token = |name: &&str| !name.is_empty() && name.bytes().all(is_token_byte);
            let header = mark.as_str().filter(is_token);
            let header =
                header.ok_or_else(|| format!("{HEADER_KEYWORD} is not the name of a header"))?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(format!("{HEADER_KEYWORD} is not at a string, integer or boolean"));
            }
            found.push(MirroredArgument {
                header: format!("Mcp-Param-{header}"),
                path: path.clone(),
            });
        }
        collect_mirrored(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Returns the number of marks in a schema; a property may have the same name.
fn count_keywords(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match key.as_str() {
                HEADER_KEYWORD => 1,
                "properties" | "$defs" | "definitions" | "patternProperties" => value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(_, value)| count_keywords(value))
                    .sum(),
                "enum" | "const" | "default" | "examples" => 0,
                _ => count_keywords(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count_keywords).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl MirroredArgument {
    /// Returns the header for an argument of a call; `None` if the argument is missing.
    pub(in crate::mcp) fn header_for(
        &self,
        arguments: &Map<String, Value>,
    ) -> Option<(String, String)> {
        let (first, rest) = self.path.split_first()?;
        let value = rest.iter().try_fold(arguments.get(first)?, |value, name| value.get(name))?;
        let text = match value {
            Value::String(text) => encode_value(text),
            Value::Bool(truth) => truth.to_string(),
            Value::Number(number) => {
                let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
                size.filter(|size| *size <= MAX_EXACT_INTEGER)?;
                number.to_string()
            }
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((self.header.clone(), text))
    }
}

/// Returns the headers of a request.
pub(super) fn request_headers(request: &RpcRequest) -> Vec<(String, String)> {
    if request.version != STATELESS_VERSION {
        return Vec::new();
    }
    let mut headers = vec![("Mcp-Method".to_owned(), request.method.to_owned())];
    if let Some(name) = request.params.get("name").and_then(Value::as_str) {
        headers.push(("Mcp-Name".to_owned(), encode_value(name)));
    }
    headers.extend(request.headers.iter().cloned());
    headers
}

/// Encodes a text as a header value: unchanged if possible, otherwise in Base64.
fn encode_value(text: &str) -> String {
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let is_padded = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_visible && !is_padded && !looks_encoded {
        return text.to_owned();
    }
    format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The examples of the specification.
    #[test]
    fn invalid_header_values_are_encoded() {
        for (text, expected) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode_value(text), expected);
        }
    }

    #[test]
    fn marked_arguments_are_found() {
        let schema = json!({ "properties": {
            "region": { "type": "string", HEADER_KEYWORD: "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": "integer", HEADER_KEYWORD: "N" } } },
            "gone": { "type": "boolean", HEADER_KEYWORD: "Gone" },
        }});
        let arguments = json!({ "region": "eu", "deep": { "n": -7 }, "gone": null });
        let mirrors = mirrored_arguments(&schema).unwrap();
        let headers =
            mirrors.iter().filter_map(|mirror| mirror.header_for(arguments.as_object().unwrap()));
        let expected = [("Mcp-Param-Region", "eu"), ("Mcp-Param-N", "-7")];
        assert_eq!(
            headers.collect::<Vec<_>>(),
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
    }

    /// Fault M10.
    #[test]
    fn an_invalid_mark_excludes_the_tool() {
        let one = |mark: Value| json!({ "properties": { "a": { "type": "string", HEADER_KEYWORD: mark } } });
        for wrong in [
            one("".into()),
            one("a b".into()),
            one("a\r\nX-Evil: 1".into()),
            one(7.into()),
            json!({ "properties": { "a": { "type": "number", HEADER_KEYWORD: "A" } } }),
            json!({ "properties": { "a": { "type": "array", "items": { "type": "string", HEADER_KEYWORD: "A" } } } }),
            json!({ "oneOf": [one("A".into())] }),
            json!({ "properties": {
                "a": { "type": "string", HEADER_KEYWORD: "A" }, "b": { "type": "string", HEADER_KEYWORD: "a" } } }),
        ] {
            assert!(mirrored_arguments(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            mirrored_arguments(&json!({ "properties": { HEADER_KEYWORD: { "type": "string" } } })),
            Ok(vec![])
        );
    }
}
