//! Encodes a request.

use serde_json::{Value, json};

use super::Responses;
use super::item::MessageFrame;
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema::{self, StrictMode};
use crate::llm::wire::{Encode, RequestFrame, sendable_parts};
use crate::types::{Image, OpaqueBlock, Reply, ReplyPart, Tokens, ToolCall, ToolResult};

/// The input is a flat list.
static ITEM: MessageGroup = MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

/// The lowest output limit that the API accepts.
const MIN_OUTPUT: u64 = 16;

impl Encode for Responses {
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        let Self(setup) = self;
        let mut head = json!({"model": setup.model, "store": false});
        if has_reasoning(&setup.model) {
            head["include"] = json!(["reasoning.encrypted_content"]);
        }
        if let Some(effort) = setup.effort {
            head["reasoning"] = json!({"effort": setup.word_of(effort, "xhigh")});
        }
        if setup.is_streaming {
            head["stream"] = true.into();
        }
        // Other servers may reject options that are not essential.
        if setup.host.ends_with("api.openai.com") {
            if setup.is_streaming {
                // The padding hides the length of tokens from observers of the network; it is a third of the stream.
                head["stream_options"] = json!({"include_obfuscation": false});
            }
            if let Some(key) = &setup.cache_key {
                head["prompt_cache_key"] = key.as_str().into();
            }
        }
        if let Some(system) = frame.system_prompt(true) {
            head["instructions"] = system.into();
        }
        let tools = frame.tool_definitions(|tool| {
            // Strict mode is the default, and accepts only some schemas.
            json!({
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.schema, "strict": false,
            })
        });
        if let Some(tools) = tools {
            head["tools"] = tools;
        }
        if let Some(schema) = frame.schema {
            head["text"] = json!({"format": {
                "type": "json_schema", "name": "answer",
                "strict": schema::is_strict(schema, StrictMode::OpenAi), "schema": schema,
            }});
        }
        setup.add_options(&mut head);
        json::open_object(out, &head, "input");
    }

    fn encode_tail(&self, _: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        json::raw(out, "]");
        if let Some(Tokens(limit)) = max_output {
            json::field(out, r#","max_output_tokens":"#, &limit.max(MIN_OUTPUT));
        }
        json::raw(out, "}");
    }

    fn encode_user(&self, text: &str, writer: &mut MessageWriter<'_>) {
        if !text.trim().is_empty() {
            writer.add(&ITEM, |out| {
                let prefix = r#"{"role":"user","content":[{"type":"input_text","text":"#;
                json::field(out, prefix, text);
                json::raw(out, "}]}");
            });
        }
    }

    fn encode_images(&self, text: &str, images: &[Image], writer: &mut MessageWriter<'_>) {
        self.encode_user(text, writer);
        for image in images {
            writer.add(&ITEM, |out| {
                let prefix = r#"{"role":"user","content":[{"type":"input_image","image_url":"#;
                json::raw(out, prefix);
                json::data_url(out, image);
                json::raw(out, "}]}");
            });
        }
    }

    fn takes_images(&self) -> bool {
        self.0.takes_images
    }

    fn encode_reply(&self, reply: &Reply, writer: &mut MessageWriter<'_>) {
        let mut parts = sendable_parts(reply, &self.0.id);
        // The API rejects a reasoning item without the item that followed it.
        while let Some(ReplyPart::Opaque(OpaqueBlock { json, .. })) = parts.last() {
            if !needs_following_item(json) {
                break;
            }
            parts.pop();
        }
        let mut frame = None;
        for part in parts {
            match part {
                ReplyPart::Opaque(OpaqueBlock { json, .. }) => match MessageFrame::parse(json) {
                    Some(parsed) => frame = Some(parsed),
                    None => writer.add(&ITEM, |out| json::raw(out, json)),
                },
                ReplyPart::Text(text) => {
                    let frame = frame.take();
                    writer.add(&ITEM, |out| {
                        let prefix = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"#;
                        json::field(out, prefix, text);
                        json::raw(out, "}]");
                        if let Some(MessageFrame { phase, .. }) = frame {
                            json::field(out, r#","phase":"#, &phase);
                        }
                        json::raw(out, "}");
                    });
                }
                ReplyPart::Call(call) => writer.add(&ITEM, |out| {
                    let prefix = r#"{"type":"function_call","call_id":"#;
                    json::field(out, prefix, call.id.as_str());
                    json::field(out, r#","name":"#, &json::tool_name(&call.name));
                    json::field(out, r#","arguments":"#, json::arguments(call));
                    json::raw(out, "}");
                }),
            }
        }
    }

    fn encode_result(&self, _: &ToolCall, result: &ToolResult, writer: &mut MessageWriter<'_>) {
        writer.add(&ITEM, |out| {
            let prefix = r#"{"type":"function_call_output","call_id":"#;
            json::field(out, prefix, result.call.as_str());
            json::field(out, r#","output":"#, json::tool_output(result));
            json::raw(out, "}");
        });
    }
}

/// Returns whether an item is valid only if another one follows.
fn needs_following_item(json: &str) -> bool {
    let item: Option<Value> = serde_json::from_str(json).ok();
    item.is_none_or(|item| item["type"] == "reasoning" || item["type"] == "message")
}

/// Returns whether a model has reasoning to encrypt; models without reasoning reject the option.
fn has_reasoning(model: &str) -> bool {
    // The name of a fine-tuned model contains the name of its base model.
    let base = model.strip_prefix("ft:").unwrap_or(model);
    !["gpt-4", "gpt-3", "chatgpt-"].iter().any(|old| base.starts_with(old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::tests::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::WireSetup;
    use crate::types::{ConversationItem, MessageOrigin, ToolStatus};

    fn wire(model: &str, host: &str) -> Responses {
        let (model, host) = (model.to_owned(), host.to_owned());
        let cache_key = Some("session".to_owned());
        Responses(WireSetup { host, model, cache_key, ..fixtures::setup("openai/m") })
    }

    fn opaque(json: &str) -> ReplyPart {
        fixtures::opaque_part("openai/m", json)
    }

    fn exchange(parts: Vec<ReplyPart>) -> ConversationItem {
        let call = ToolCall::new("c1".into(), "grep", r#"{"a":1}"#);
        fixtures::tool_exchange(parts, [call], ToolStatus::Ok, "found")
    }

    fn text(wire: &Responses, frame: &RequestFrame<'_>, items: &[ConversationItem]) -> String {
        fixtures::encode_request(wire, frame, items, Some(Tokens(1)))
    }

    fn input(items: &[ConversationItem]) -> String {
        text(&wire("gpt-5.5", "localhost"), &EMPTY_FRAME, items)
    }

    const REASONING: &str =
        r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA\u003d","n":1.0}"#;

    #[test]
    fn a_request_has_what_openai_documents() {
        let tools = [fixtures::grep_tool()];
        let frame = RequestFrame { system: "be good", tools: &tools, ..EMPTY_FRAME };
        let phase = opaque(r#"{"type":"message","phase":"commentary"}"#);
        let items = [
            ConversationItem::user(MessageOrigin::Task, "do"),
            exchange(vec![opaque(REASONING), phase, ReplyPart::Text("on it".into())]),
        ];
        let request: Value =
            serde_json::from_str(&text(&wire("gpt-5.5", "api.openai.com"), &frame, &items))
                .unwrap();
        assert_eq!(
            request,
            json!({
                "model": "gpt-5.5",
                "store": false,
                "include": ["reasoning.encrypted_content"],
                "stream": true,
                "stream_options": {"include_obfuscation": false},
                "prompt_cache_key": "session",
                "instructions": "be good",
                "tools": [{"type": "function", "name": "grep", "description": "finds",
                    "parameters": {"type": "object"}, "strict": false}],
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "do"}]},
                    {"id": "rs_1", "type": "reasoning", "summary": [],
                        "encrypted_content": "gAAA=", "n": 1.0},
                    {"type": "message", "role": "assistant", "phase": "commentary",
                        "content": [{"type": "output_text", "text": "on it"}]},
                    {"type": "function_call", "call_id": "c1", "name": "grep", "arguments": "{\"a\":1}"},
                    {"type": "function_call_output", "call_id": "c1", "output": "found"},
                ],
                "max_output_tokens": 16,
            })
        );
    }

    /// Fault L61.
    #[test]
    fn reasoning_is_sent_back_unchanged_and_never_alone() {
        assert!(input(&[exchange(vec![opaque(REASONING)])]).contains(REASONING));
        let alone = ConversationItem::Assistant(reply_of(vec![
            ReplyPart::Text("a".into()),
            opaque(REASONING),
        ]));
        assert!(!input(&[alone]).contains("rs_1"));
        let search = r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#;
        let ends = ConversationItem::Assistant(reply_of(vec![opaque(search)]));
        assert!(input(&[ends]).contains(search));
    }

    #[test]
    fn openai_options_are_sent_to_openai_only() {
        let other = text(&wire("gpt-5.5", "localhost"), &EMPTY_FRAME, &[]);
        assert!(!other.contains("obfuscation") && !other.contains("prompt_cache_key"));
        assert!(
            !text(&wire("gpt-4o", "api.openai.com"), &EMPTY_FRAME, &[])
                .contains("include\":[\"reasoning")
        );
    }

    #[test]
    fn images_are_input_of_the_user() {
        let Responses(setup) = wire("gpt-5.5", "localhost");
        let wire = Responses(WireSetup { takes_images: true, ..setup });
        let request = text(&wire, &EMPTY_FRAME, &fixtures::items_with_images());
        let user = |content: Value| json!({"role": "user", "content": [content]});
        let image = |data: &str| {
            let url = format!("data:image/png;base64,{data}");
            user(json!({"type": "input_image", "image_url": url}))
        };
        let text = |text: &str| user(json!({"type": "input_text", "text": text}));
        let input = serde_json::from_str::<Value>(&request).unwrap()["input"].clone();
        let input = input.as_array().unwrap();
        assert_eq!(input[..2], [text("look\n[image a.png, 8x6]"), image("AAAA")]);
        assert_eq!(input[3]["output"], "[image b.png, 8x6]");
        let names = text("The images of the tool results: [image b.png, 8x6]");
        assert_eq!(input[4..], [names, image("BBBB")]);
    }
}
