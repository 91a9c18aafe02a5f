//! Converts the result of a call into text for a model.

use std::fmt::Write as _;

use serde_json::Value;

use super::elicitation::ELICIT;
use super::error::ServerError;
use super::tool_description::truncate;
use crate::types::{ToolStatus, strip_terminal_codes};
use crate::workspace::image::ImageSource;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// The status of the call.
    pub status: ToolStatus,
    /// The text for the model.
    pub text: String,
    /// The images; the text does not mention them.
    pub images: Vec<ImageSource>,
}

/// Returns the fields that a deferred call must carry when it is repeated. A server may defer without asking for
/// anything, and its fields are opaque.
pub(super) fn retry_fields(result: &Value) -> Option<&str> {
    let state = result.get("requestState").and_then(Value::as_str);
    state.filter(|_| is_deferred(result) && !has_requests(result))
}

/// Returns the questions for the user that a deferred call depends on, by their keys; `None` if it depends on anything
/// else.
pub(super) fn user_questions(result: &Value) -> Option<Vec<(&str, &Value)>> {
    if !is_deferred(result) || !has_requests(result) {
        return None;
    }
    let requests = result.get("inputRequests")?.as_object()?.iter();
    requests
        .map(|(key, ask)| (ask["method"] == ELICIT).then_some((&**key, &ask["params"])))
        .collect()
}

fn has_requests(result: &Value) -> bool {
    result.get("inputRequests").and_then(Value::as_object).is_some_and(|asks| !asks.is_empty())
}

fn is_deferred(result: &Value) -> bool {
    result.get("resultType").and_then(Value::as_str) == Some("input_required")
}

impl CallResult {
    /// Converts the result of a call.
    pub(super) fn from_result(result: &Value, most: usize) -> Self {
        if is_deferred(result) {
            return Self::input_required(result);
        }
        let has_other_content = result.get("content").is_some_and(|content| !content.is_array());
        if !result.is_object() || has_other_content {
            let text = "The server answered with something that is not the result of a tool.";
            return Self::without_images(ToolStatus::Failed, text);
        }
        let content = result.get("content").and_then(Value::as_array);
        let (mut parts, mut images) = (Vec::new(), Vec::new());
        for item in content.into_iter().flatten() {
            match image_source(item, images.len() + 1) {
                Some(image) => images.push(image),
                None => parts.push(content_text(item)),
            }
        }
        let mut text = parts.join("\n");
        // Most servers repeat structured content as text.
        let has_text = content.is_some_and(|items| items.iter().any(|item| item["type"] == "text"));
        if let (Some(structured), false) = (result.get("structuredContent"), has_text) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{gap}{structured}");
        }
        if text.is_empty() && images.is_empty() {
            "[no output]".clone_into(&mut text);
        }
        let is_error = result.get("isError").and_then(Value::as_bool) == Some(true);
        let status = if is_error { ToolStatus::Failed } else { ToolStatus::Ok };
        Self { status, text: truncate(strip_terminal_codes(&text), most), images }
    }

    /// Returns the result of a call for which the server requests further input.
    fn input_required(result: &Value) -> Self {
        let requests = result.get("inputRequests").and_then(Value::as_object);
        let methods = requests.into_iter().flatten().filter_map(|(_, ask)| ask["method"].as_str());
        let mut wanted: Vec<&str> = methods.take(5).collect();
        wanted.dedup();
        if wanted.is_empty() {
            let text = "The call was not completed: the server deferred it repeatedly.".to_owned();
            return Self::without_images(ToolStatus::Failed, &text);
        }
        let wanted = wanted.join(", ");
        let text = format!(
            "The call was not completed: the server asks for {wanted}, which a run without a user does not have. Give it \
             what it needs as arguments, if it takes them."
        );
        Self::without_images(ToolStatus::Failed, &text)
    }

    /// Returns the result of a call that failed without an answer.
    pub(super) fn failed(server: &str, error: &ServerError) -> Self {
        let status = match error {
            ServerError::TimedOut(_) => ToolStatus::TimedOut,
            ServerError::Cancelled => ToolStatus::Interrupted,
            _ => ToolStatus::Failed,
        };
        let doubt =
            if error.may_have_run() { " The call may have had an effect or not." } else { "" };
        let text = match error {
            ServerError::Refused(refusal) => refusal.message.clone(),
            error => format!("MCP server '{server}': {error}.{doubt}"),
        };
        Self::without_images(status, &text)
    }

    /// Returns a result that consists of text.
    pub(super) fn without_images(status: ToolStatus, text: &str) -> Self {
        Self { status, text: strip_terminal_codes(text), images: Vec::new() }
    }
}

/// Returns the n-th image of a result from one of its parts; `None` for other content, and for data that can't be
/// decoded.
fn image_source(item: &Value, n: usize) -> Option<ImageSource> {
    let data = item["data"].as_str().filter(|_| item["type"] == "image")?;
    ImageSource::from_base64(format!("result-{n}"), data).ok()
}

/// Returns a part of a result as text, with a note in place of other content.
fn content_text(item: &Value) -> String {
    let text = |name: &str| item[name].as_str();
    let inline = |name: &str| inline_text(text(name).unwrap_or_default());
    let kind = text("type").unwrap_or("unknown");
    match kind {
        "text" => text("text").unwrap_or_default().to_owned(),
        "image" | "audio" => {
            let mime = inline_text(text("mimeType").unwrap_or("unknown type"));
            format!("[{kind}: {mime}, {}]", base64_size(text("data").unwrap_or_default()))
        }
        "resource_link" => {
            let what = text("description").or(text("title")).or(text("name")).unwrap_or_default();
            format!("[link: {} {}]", inline("uri"), inline_text(what))
        }
        "resource" => {
            let resource = &item["resource"];
            let uri = inline_text(resource["uri"].as_str().unwrap_or_default());
            match (resource["text"].as_str(), resource["blob"].as_str()) {
                (Some(text), _) => format!("[resource: {uri}]\n{text}"),
                (None, Some(blob)) => format!("[resource: {uri}, {}]", base64_size(blob)),
                (None, None) => format!("[resource: {uri}]"),
            }
        }
        other => format!("[content of an unknown kind: {}]", inline_text(other)),
    }
}

/// Returns the size of Base64 data, for display.
fn base64_size(data: &str) -> String {
    let trimmed = data.trim_end_matches('=');
    let is_valid = data.len().is_multiple_of(4)
        && data.len() - trimmed.len() <= 2
        && trimmed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte));
    match is_valid {
        true => format!("{} bytes, not shown", trimmed.len() * 3 / 4),
        false => "damaged".to_owned(),
    }
}

/// Returns a shortened text that fits into a line.
fn inline_text(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(result: &Value) -> String {
        let answer = CallResult::from_result(result, 1_000);
        assert_eq!(answer.status, ToolStatus::Ok);
        answer.text
    }

    /// Fault M12.
    #[test]
    fn every_kind_of_content_becomes_text() {
        let content = json!({ "content": [
            { "type": "text", "text": "a\u{1b}[31mb" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "audio", "mimeType": "audio/wav", "data": "A=A" },
            { "type": "resource_link", "uri": "file:///a", "name": "n" },
            { "type": "resource", "resource": { "uri": "file:///b", "text": "B" } },
            { "type": "resource", "resource": { "uri": "file:///c", "blob": "AAA=" } },
            { "type": "hologram" },
            7,
        ]});
        let expected = "ab\n[audio: audio/wav, damaged]\n\
                        [link: file:///a n]\n[resource: file:///b]\nB\n[resource: file:///c, 2 bytes, not shown]\n\
                        [content of an unknown kind: hologram]\n[content of an unknown kind: unknown]";
        assert_eq!(text(&content), expected);
    }

    /// Fault M12.
    #[test]
    fn a_result_never_exceeds_its_limit() {
        let image = json!({ "type": "image", "mimeType": "x", "data": "A".repeat(50 << 20) });
        assert_eq!(text(&json!({ "content": [image] })), "[image: x, 39321600 bytes, not shown]");
        let long = json!({ "content": [{ "type": "text", "text": "é".repeat(9_000) }] });
        assert_eq!(text(&long).len(), 1_000 + "…".len());
    }

    #[test]
    fn structured_content_is_used_without_text() {
        let structured = json!({ "n": [1, 2] });
        assert_eq!(
            text(&json!({ "content": [], "structuredContent": structured })),
            r#"{"n":[1,2]}"#
        );
        let both = json!({ "content": [{ "type": "text", "text": "1 and 2" }], "structuredContent": structured });
        assert_eq!(text(&both), "1 and 2");
        assert_eq!(text(&json!({})), "[no output]");
    }

    /// Fault M12.
    #[test]
    fn an_answer_that_is_no_result_is_a_failed_call() {
        for answer in [json!([1, 2]), json!(null), json!("text"), json!({"content": "text"})] {
            assert_eq!(
                CallResult::from_result(&answer, 100).status,
                ToolStatus::Failed,
                "{answer}"
            );
        }
    }

    #[test]
    fn an_error_of_a_tool_is_a_failed_call() {
        let error = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
        let failed = CallResult::without_images(ToolStatus::Failed, "no");
        assert_eq!(CallResult::from_result(&error, 100), failed);
    }

    /// Fault M11.
    #[test]
    fn requests_for_input_are_refused() {
        let wanting = json!({ "resultType": "input_required", "inputRequests": {
            "a": { "method": "sampling/createMessage" }, "b": { "method": "sampling/createMessage" } } });
        let answer = CallResult::from_result(&wanting, 1_000);
        assert_eq!(answer.status, ToolStatus::Failed);
        assert!(answer.text.contains("asks for sampling/createMessage, which"), "{}", answer.text);
    }

    #[test]
    fn images_are_decoded() {
        let image = |data: &str| json!({ "type": "image", "mimeType": "image/png", "data": data });
        let content = json!({ "content": [image("AAAA"), image("?")] });
        let result = CallResult::from_result(&content, 1_000);
        let decoded = ImageSource { name: "result-1".to_owned(), bytes: vec![0; 3] };
        assert_eq!(result.images, [decoded]);
        assert_eq!(result.text, "[image: image/png, damaged]");
    }
}
