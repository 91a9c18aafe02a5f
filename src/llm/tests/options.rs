//! The user's fields in the body of a request, and the effort.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fixtures::{EMPTY_FRAME, encode_request, setup};
use crate::llm::Provider;
use crate::llm::wire::{ApiFormat, WireSetup};
use crate::llm::{anthropic, gemini, openai_chat, openai_responses};
use crate::types::{ConversationItem, Effort, MessageOrigin, OutputField, Tokens};

/// Returns a request in a format, with the given setup.
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

fn with_effort(format: &ApiFormat, id: &str, effort: Effort) -> Value {
    let (provider, model) = id.split_once('/').unwrap();
    let provider = Provider::from_name(provider).unwrap().name();
    let effort = Some(effort);
    let setup = WireSetup { provider, model: model.to_owned(), effort, ..setup(id) };
    request(format, setup)
}

#[test]
fn the_output_limit_is_in_the_field_of_the_user_or_of_the_server() {
    let fields = |host: &str, output_field| {
        let setup = WireSetup { host: host.to_owned(), output_field, ..setup("openai-chat/m") };
        let wire = (openai_chat::FORMAT.wire)(setup);
        let body = encode_request(&*wire, &EMPTY_FRAME, &[], Some(Tokens(9)));
        let body: Value = serde_json::from_str(&body).unwrap();
        ["max_tokens", "max_completion_tokens"].map(|field| body.get(field).is_some())
    };
    assert_eq!(fields("127.0.0.1", None), [true, false]);
    assert_eq!(fields("127.0.0.1", Some(OutputField::MaxCompletionTokens)), [false, true]);
    assert_eq!(fields("api.openai.com", None), [false, true]);
    assert_eq!(fields("api.openai.com", Some(OutputField::MaxTokens)), [true, false]);
}

#[test]
fn an_effort_is_in_the_field_of_each_format() {
    let body = with_effort(&openai_responses::FORMAT, "openai/gpt-9", Effort::Max);
    assert_eq!(body["reasoning"], json!({"effort": "xhigh"}));
    let body = with_effort(&openai_chat::FORMAT, "vllm/m", Effort::Max);
    assert_eq!(body["reasoning_effort"], "high");
    let body = with_effort(&openai_chat::FORMAT, "openrouter/m", Effort::Low);
    assert_eq!((&body["reasoning"]["effort"], body.get("reasoning_effort")), (&json!("low"), None));
    let gemini = |id: &str, effort| {
        with_effort(&gemini::FORMAT, id, effort)["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!(
        gemini("gemini/gemini-3.7-flash", Effort::Medium),
        json!({"thinkingLevel": "medium"})
    );
    assert_eq!(gemini("gemini/gemini-2.5-flash", Effort::None), json!({"thinkingBudget": 0}));
    assert_eq!(gemini("gemini/gemini-2.5-pro", Effort::Max), json!({"thinkingBudget": 32_768}));
}

#[test]
fn anthropic_models_have_an_effort_or_a_number_of_tokens() {
    let body = |id: &str, effort| with_effort(&anthropic::FORMAT, id, effort);
    let adaptive = body("anthropic/claude-opus-4-6", Effort::High);
    assert_eq!(adaptive["thinking"], json!({"type": "adaptive"}));
    assert_eq!(adaptive["output_config"], json!({"effort": "high"}));
    // The budget is less than the output limit of 9,000 tokens.
    let older = body("anthropic/claude-sonnet-4-5", Effort::High);
    assert_eq!(older["thinking"], json!({"type": "enabled", "budget_tokens": 6_750}));
    assert_eq!(older.get("output_config"), None);
    let low = body("anthropic/claude-sonnet-4-5", Effort::Low);
    assert_eq!(low["thinking"]["budget_tokens"], 4_096);
    let none = body("anthropic/claude-haiku-5-5", Effort::None);
    assert_eq!(none["thinking"], json!({"type": "disabled"}));
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
