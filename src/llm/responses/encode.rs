//! Writing a request.

use super::item::MessageFrame;
use super::{Responses, ResponsesHost};
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema;
use crate::llm::wire::RequestFrame;
use crate::model::{OpaqueBlock, Reply, ReplyPart, Tokens, ToolResult};

/// The input is one flat list.
static ITEM: MessageGroup = MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

pub(super) fn head(wire: &Responses, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
    json::raw(out, r#"{"model":"#);
    json::text(out, &wire.model);
    json::raw(out, r#","store":false"#);
    if has_reasoning(&wire.model) {
        json::raw(out, r#","include":["reasoning.encrypted_content"]"#);
    }
    if wire.is_streaming {
        json::raw(out, r#","stream":true"#);
    }
    if wire.host == ResponsesHost::OpenAi {
        if wire.is_streaming {
            // Padding that hides the length of tokens from who watches the line; it is a third of the stream.
            json::raw(out, r#","stream_options":{"include_obfuscation":false}"#);
        }
        if let Some(key) = &wire.cache_key {
            json::raw(out, r#","prompt_cache_key":"#);
            json::text(out, key);
        }
    }
    let system = frame.system.trim_end();
    if !system.trim().is_empty() {
        json::raw(out, r#","instructions":"#);
        json::text(out, system);
    }
    for (index, tool) in frame.tools.iter().enumerate() {
        json::raw(out, if index == 0 { r#","tools":["# } else { "," });
        json::raw(out, r#"{"type":"function","name":"#);
        json::text(out, &tool.name);
        json::raw(out, r#","description":"#);
        json::text(out, &tool.description);
        json::raw(out, r#","parameters":"#);
        json::value(out, &tool.schema);
        // Strict is the default here, and takes schemas of one kind only.
        json::raw(out, r#","strict":false}"#);
    }
    json::raw(out, if frame.tools.is_empty() { "" } else { "]" });
    if let Some(schema) = frame.schema {
        json::raw(out, r#","text":{"format":{"type":"json_schema","name":"answer","strict":"#);
        json::value(out, &schema::is_strict(schema));
        json::raw(out, r#","schema":"#);
        json::value(out, schema);
        json::raw(out, "}}");
    }
    json::raw(out, r#","input":["#);
}

pub(super) fn tail(max_output: Option<Tokens>, out: &mut Vec<u8>) {
    json::raw(out, "]");
    if let Some(Tokens(limit)) = max_output {
        json::raw(out, r#","max_output_tokens":"#);
        json::value(out, &limit.max(MIN_OUTPUT));
    }
    json::raw(out, "}");
}

/// A lower limit is refused.
const MIN_OUTPUT: u64 = 16;

pub(super) fn user(text: &str, pen: &mut MessageWriter<'_>) {
    if !text.trim().is_empty() {
        pen.add(&ITEM, |out| {
            json::raw(out, r#"{"role":"user","content":[{"type":"input_text","text":"#);
            json::text(out, text);
            json::raw(out, "}]}");
        });
    }
}

pub(super) fn reply(wire: &Responses, reply: &Reply, pen: &mut MessageWriter<'_>) {
    let is_sent = |part: &&ReplyPart| match part {
        ReplyPart::Text(text) => !text.trim().is_empty(),
        ReplyPart::Call(_) => true,
        ReplyPart::Opaque(opaque) => opaque.wire == wire.id,
    };
    let mut parts: Vec<&ReplyPart> = reply.parts.iter().filter(is_sent).collect();
    // An item of reasoning is refused without the item that it led to.
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
                Some(read) => frame = Some(read),
                None => pen.add(&ITEM, |out| json::raw(out, json)),
            },
            ReplyPart::Text(text) => {
                let frame = frame.take();
                pen.add(&ITEM, |out| {
                    json::raw(
                        out,
                        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"#,
                    );
                    json::text(out, text);
                    json::raw(out, "}]");
                    if let Some(MessageFrame { phase, .. }) = frame {
                        json::raw(out, r#","phase":"#);
                        json::text(out, &phase);
                    }
                    json::raw(out, "}");
                });
            }
            ReplyPart::Call(call) => pen.add(&ITEM, |out| {
                json::raw(out, r#"{"type":"function_call","call_id":"#);
                json::text(out, call.id.as_str());
                json::raw(out, r#","name":"#);
                json::tool_name(out, &call.name);
                json::raw(out, r#","arguments":"#);
                json::text(out, json::arguments(call));
                json::raw(out, "}");
            }),
        }
    }
}

pub(super) fn tool_result(result: &ToolResult, pen: &mut MessageWriter<'_>) {
    pen.add(&ITEM, |out| {
        json::raw(out, r#"{"type":"function_call_output","call_id":"#);
        json::text(out, result.call.as_str());
        json::raw(out, r#","output":"#);
        json::tool_output(out, &result.text);
        json::raw(out, "}");
    });
}

/// Returns whether an item makes sense only before another one.
fn needs_following_item(json: &str) -> bool {
    let item: Option<serde_json::Value> = serde_json::from_str(json).ok();
    item.is_none_or(|item| item["type"] == "reasoning" || item["type"] == "message")
}

/// Returns whether a model has reasoning to encrypt; those that have none refuse to be asked for it.
fn has_reasoning(model: &str) -> bool {
    !["gpt-4", "gpt-3", "chatgpt-"].iter().any(|old| model.starts_with(old))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::ToolChoice;
    use crate::model::{ConversationItem, MessageOrigin, ToolCall, ToolStatus};

    fn wire(model: &str, host: ResponsesHost) -> Responses {
        let cache_key = Some("session".to_owned());
        Responses {
            id: "openai/m".into(),
            model: model.to_owned(),
            host,
            is_streaming: true,
            cache_key,
        }
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
        text(&wire("gpt-5.5", ResponsesHost::Other), &EMPTY_FRAME, items)
    }

    const REASONING: &str =
        r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA\u003d","n":1.0}"#;

    #[test]
    fn a_request_has_what_openai_documents() {
        let tools = [fixtures::grep_tool()];
        let frame = RequestFrame {
            system: "be good",
            tools: &tools,
            tool_choice: ToolChoice::Auto,
            schema: None,
        };
        let phase = opaque(r#"{"type":"message","phase":"commentary"}"#);
        let items = [
            ConversationItem::user(MessageOrigin::Task, "do"),
            exchange(vec![opaque(REASONING), phase, ReplyPart::Text("on it".into())]),
        ];
        let request: Value =
            serde_json::from_str(&text(&wire("gpt-5.5", ResponsesHost::OpenAi), &frame, &items))
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
        let other = text(&wire("gpt-5.5", ResponsesHost::Other), &EMPTY_FRAME, &[]);
        assert!(!other.contains("obfuscation") && !other.contains("prompt_cache_key"));
        assert!(
            !text(&wire("gpt-4o", ResponsesHost::OpenAi), &EMPTY_FRAME, &[])
                .contains("include\":[\"reasoning")
        );
    }
}
