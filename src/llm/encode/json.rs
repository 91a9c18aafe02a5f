//! Writes JSON piece by piece.

use serde::Serialize;
use serde_json::Value;

use crate::types::{Image, ToolArguments, ToolCall, ToolResult};

/// Writes text followed by a JSON value: `,"name":` and `"grep"`.
pub(crate) fn field<T: Serialize + ?Sized>(out: &mut Vec<u8>, prefix: &str, value: &T) {
    raw(out, prefix);
    // Writing values with text keys into memory can't fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes an object that ends with an open list: `{"model":"m","messages":[`.
pub(crate) fn open_object(out: &mut Vec<u8>, object: &Value, list: &str) {
    field(out, "", object);
    out.pop();
    field(out, if out.last() == Some(&b'{') { "" } else { "," }, list);
    raw(out, ":[");
}

/// Writes text as JSON without quotes, for text that is continued.
pub(crate) fn unquoted(out: &mut Vec<u8>, text: &str) {
    let start = out.len();
    field(out, "", text);
    out.pop();
    out.remove(start);
}

/// Writes an image as a `data:` URL in quotes.
pub(crate) fn data_url(out: &mut Vec<u8>, image: &Image) {
    for text in ["\"data:", image.media_type.as_str(), ";base64,", &image.data, "\""] {
        raw(out, text);
    }
}

/// Writes text unchanged.
pub(crate) fn raw(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(json.as_bytes());
}

/// Returns the output of a tool; a placeholder if it is empty, since some providers reject empty results.
pub(crate) fn tool_output(result: &ToolResult) -> &str {
    if result.text.trim().is_empty() { "(no output)" } else { &result.text }
}

/// Returns the arguments of a call for sending them back. Invalid JSON is replaced, since some servers parse the
/// arguments in the conversation and fail. The tool result contains the error.
pub(crate) fn arguments(call: &ToolCall) -> &str {
    match &call.arguments {
        ToolArguments::Complete { text } => text,
        ToolArguments::Malformed { .. } | ToolArguments::Truncated { .. } => "{}",
    }
}

/// Returns a name of a tool that is valid for every provider. A model may have called a tool by an invalid name.
pub(crate) fn tool_name(name: &str) -> String {
    let name: String = name.chars().take(64).map(name_character).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Returns the character; `_` for a character that is invalid in names and ids.
pub(crate) fn name_character(c: char) -> char {
    if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"> ".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_text_is_escaped_with_or_without_its_quotes() {
        assert_eq!(written(|out| field(out, "", "a\"\n\u{1f980}")), "> \"a\\\"\\n\u{1f980}\"");
        assert_eq!(written(|out| unquoted(out, "a\"\n")), "> a\\\"\\n");
        assert_eq!(written(|out| unquoted(out, "")), "> ");
    }

    #[test]
    fn an_object_is_left_open_at_its_list() {
        assert_eq!(written(|out| open_object(out, &json!({"a": 1}), "b")), r#"> {"a":1,"b":["#);
        assert_eq!(written(|out| open_object(out, &json!({}), "b")), r#"> {"b":["#);
    }

    #[test]
    fn an_invalid_tool_name_is_replaced() {
        assert_eq!(tool_name("fs.read file"), "fs_read_file");
        assert_eq!(tool_name(""), "_");
        assert_eq!(tool_name(&"x".repeat(99)).len(), 64);
    }
}
