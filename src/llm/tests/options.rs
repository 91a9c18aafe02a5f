//! The user's fields in the body of a request.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fixtures::{EMPTY_FRAME, encode_request, setup};
use crate::llm::wire::{ApiFormat, WireSetup};
use crate::llm::{anthropic, gemini, openai_chat, openai_responses};
use crate::model::{ConversationItem, MessageOrigin, Tokens};

/// Returns a request of a format, with these settings.
pub(super) fn request(format: &ApiFormat, setup: WireSetup) -> Value {
    let wire = (format.wire)(setup);
    let items = [ConversationItem::user(MessageOrigin::Task, "do")];
    let text = encode_request(&*wire, &EMPTY_FRAME, &items, Some(Tokens(9_000)));
    serde_json::from_str(&text).unwrap()
}

fn with_options(format: &ApiFormat, options: &Value) -> Value {
    let options: Map<String, Value> = options.as_object().unwrap().clone();
    request(format, WireSetup { options: Arc::new(options), ..setup("p/m") })
}

#[test]
fn options_are_fields_of_the_body_of_every_format() {
    for format in [&anthropic::FORMAT, &openai_chat::FORMAT, &openai_responses::FORMAT] {
        let body = with_options(format, &json!({"temperature": 0.2, "service_tier": "flex"}));
        assert_eq!((&body["temperature"], &body["service_tier"]), (&json!(0.2), &json!("flex")));
        assert_eq!(body["model"], "m");
    }
    let options = json!({"generationConfig": {"seed": 7}, "safetySettings": []});
    let body = with_options(&gemini::FORMAT, &options);
    assert_eq!(body["generationConfig"], json!({"maxOutputTokens": 9_000, "seed": 7}));
    assert_eq!(body["safetySettings"], json!([]));
}

#[test]
fn tables_and_lists_of_options_are_merged_with_those_of_the_request() {
    let options = json!({"stream_options": {"x": 1}, "include": ["message.output_text.logprobs"]});
    let body = with_options(&openai_chat::FORMAT, &options);
    assert_eq!(body["stream_options"], json!({"include_usage": true, "x": 1}));
    let body = with_options(&openai_responses::FORMAT, &options);
    let expected = json!(["reasoning.encrypted_content", "message.output_text.logprobs"]);
    assert_eq!(body["include"], expected);
}
