//! Recordings are decoded as by the providers' own SDKs.
//!
//! `tests/recordings/sdk.py` recorded the results of the SDKs, which are converted here.

use serde_json::{Value, json};

use super::recorded_streams::{Recording, Wire};
use super::recordings::{call, every, seen};

#[test]
fn recordings_are_decoded_like_by_the_providers_sdk() {
    for recording in every() {
        let chunks = (0..6).map(|seed| recording.at_random(seed));
        for reply in chunks.chain([recording.in_chunks(1)]) {
            let found = seen(&call(recording.wire, true, reply).reply());
            let (sdk, name) = (&recording.sdk, &recording.name);
            assert_eq!(found["text"], text(sdk), "{name}");
            assert_eq!(found["model"], sdk["model"], "{name}");
            assert_eq!(found["finish"], finish(&recording), "{name}");
            assert_eq!(found["usage"], usage(&recording), "{name}");
            let (calls, theirs) = (array(&found["calls"]), array(&sdk["calls"]));
            assert_eq!(calls.len(), theirs.len(), "{name}");
            for (call, theirs) in calls.iter().zip(theirs) {
                assert_same_call(call, theirs, &recording);
            }
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Text and refusal are one text here.
fn text(sdk: &Value) -> String {
    let text = |name: &str| sdk[name].as_str().unwrap_or_default().to_owned();
    text("text") + &text("refusal")
}

/// A call without an id gets one here; truncated arguments are ignored, whatever an SDK returns for them.
fn assert_same_call(call: &Value, theirs: &Value, recording: &Recording) {
    let name = &recording.name;
    assert_eq!(call["name"], theirs["name"], "{name}");
    if !theirs["id"].is_null() {
        assert_eq!(call["id"], theirs["id"], "{name}");
    }
    if call["arguments"].is_null() {
        assert_eq!(finish(recording), "length", "{name}");
    } else {
        assert_eq!(call["arguments"], theirs["arguments"], "{name}");
    }
}

/// Returns the finish reason in the form for all providers.
fn finish(recording: &Recording) -> &'static str {
    let sdk = &recording.sdk;
    let ends = if array(&sdk["calls"]).is_empty() { "stop" } else { "tool_calls" };
    let ends = if sdk["refusal"] == "" || sdk["refusal"].is_null() { ends } else { "refused" };
    match sdk["stop"].as_str().unwrap() {
        "end_turn" | "tool_use" | "stop" | "tool_calls" | "TOOL_CALLS" | "completed" | "STOP" => {
            ends
        }
        "max_tokens" | "length" | "max_output_tokens" | "MAX_TOKENS" => "length",
        "model_context_window_exceeded" => "context_full",
        "refusal" | "content_filter" | "SAFETY" | "PROHIBITED_CONTENT" => "refused",
        "pause_turn" => "pause",
        other => panic!("{other}"),
    }
}

/// Returns the usage as it is counted here: cached input is part of the input, reasoning part of the output.
fn usage(recording: &Recording) -> Value {
    let number = |path: &str| recording.sdk["usage"].pointer(path).and_then(Value::as_u64);
    let number = |path: &str| number(path).unwrap_or(0);
    let [input, output, cached, written, reasoning] = match recording.wire {
        Wire::Anthropic => {
            let (cached, written) =
                (number("/cache_read_input_tokens"), number("/cache_creation_input_tokens"));
            let input = number("/input_tokens") + cached + written;
            let reasoning = number("/output_tokens_details/thinking_tokens");
            [input, number("/output_tokens"), cached, written, reasoning]
        }
        Wire::Chat => [
            number("/prompt_tokens"),
            number("/completion_tokens"),
            number("/prompt_tokens_details/cached_tokens"),
            0,
            number("/completion_tokens_details/reasoning_tokens"),
        ],
        Wire::Gemini => {
            let reasoning = number("/thoughts_token_count");
            let output = number("/candidates_token_count") + reasoning;
            let cached = number("/cached_content_token_count");
            [number("/prompt_token_count"), output, cached, 0, reasoning]
        }
        Wire::Responses => [
            number("/input_tokens"),
            number("/output_tokens"),
            number("/input_tokens_details/cached_tokens"),
            number("/input_tokens_details/cache_write_tokens"),
            number("/output_tokens_details/reasoning_tokens"),
        ],
    };
    json!({"input": input, "output": output, "cached_input": cached, "cache_write": written, "reasoning": reasoning})
}
