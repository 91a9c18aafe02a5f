//! Writing a request.

use serde_json::Value;

use super::{Anthropic, thought_binding};
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema;
use crate::llm::wire::{RequestFrame, ToolChoice};
use crate::model::{CallId, OpaqueBlock, Reply, ReplyPart, Tokens, ToolResult};

/// The user's messages and tool results in a row are blocks of one message, which is what the provider makes of them
/// anyway. The last block carries the mark up to which the cache remembers.
static USER: MessageGroup = MessageGroup {
    open: r#"{"role":"user","content":[{"#,
    between: "},{",
    close: "}]}",
    close_with_mark: r#","cache_control":{"type":"ephemeral"}}]}"#,
};

static ASSISTANT: MessageGroup = MessageGroup {
    open: r#"{"role":"assistant","content":[{"#,
    between: "},{",
    close: "}]}",
    close_with_mark: "}]}",
};

const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

pub(super) fn head(wire: &Anthropic, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
    json::raw(out, r#"{"model":"#);
    json::text(out, &wire.model);
    json::raw(out, if wire.is_streaming { r#","stream":true"# } else { "" });
    thought_binding::encode_option(&wire.model, out);
    let mark = |out: &mut Vec<u8>| json::raw(out, if wire.uses_cache { CACHE_MARK } else { "" });
    for (index, tool) in frame.tools.iter().enumerate() {
        json::raw(out, if index == 0 { r#","tools":["# } else { "," });
        json::raw(out, r#"{"name":"#);
        json::text(out, &tool.name);
        json::raw(out, r#","description":"#);
        json::text(out, &tool.description);
        json::raw(out, r#","input_schema":"#);
        json::value(out, &tool.schema);
        if index + 1 == frame.tools.len() {
            mark(out);
        }
        json::raw(out, "}");
    }
    json::raw(out, if frame.tools.is_empty() { "" } else { "]" });
    let mut system = frame.system.trim_end().to_owned();
    match frame.schema {
        Some(schema) if schema::is_strict(schema) => {
            json::raw(out, r#","output_config":{"format":{"type":"json_schema","schema":"#);
            json::value(out, schema);
            json::raw(out, "}}");
        }
        Some(schema) => system.push_str(&schema::schema_prompt(schema)),
        None => {}
    }
    if !system.trim().is_empty() {
        json::raw(out, r#","system":[{"type":"text","text":"#);
        json::text(out, &system);
        mark(out);
        json::raw(out, "}]");
    }
    json::raw(out, r#","messages":["#);
}

pub(super) fn tail(frame: &RequestFrame<'_>, max_output: Tokens, out: &mut Vec<u8>) {
    json::raw(out, r#"],"max_tokens":"#);
    json::value(out, &max_output.0);
    if frame.tool_choice == ToolChoice::Disabled {
        json::raw(out, r#","tool_choice":{"type":"none"}"#);
    }
    json::raw(out, "}");
}

pub(super) fn user(text: &str, pen: &mut MessageWriter<'_>) {
    // A block of white space is refused.
    if !text.trim().is_empty() {
        pen.add(&USER, |out| text_block(text, out));
    }
}

pub(super) fn reply(wire: &Anthropic, reply: &Reply, pen: &mut MessageWriter<'_>) {
    let is_sent = |part: &&ReplyPart| match part {
        ReplyPart::Text(text) => !text.trim().is_empty(),
        ReplyPart::Call(_) => true,
        ReplyPart::Opaque(opaque) => opaque.wire == wire.id,
    };
    let mut parts: Vec<&ReplyPart> = reply.parts.iter().filter(is_sent).collect();
    // A message that ends with a thought is refused.
    while parts.last().is_some_and(|part| is_thought(part)) {
        parts.pop();
    }
    for part in parts {
        pen.add(&ASSISTANT, |out| match part {
            ReplyPart::Text(text) => text_block(text, out),
            ReplyPart::Opaque(OpaqueBlock { json, .. }) => json::raw(out, object_body(json)),
            ReplyPart::Call(call) => {
                json::raw(out, r#""type":"tool_use","id":"#);
                call_id(&call.id, out);
                json::raw(out, r#","name":"#);
                json::tool_name(out, &call.name);
                json::raw(out, r#","input":"#);
                json::raw(out, json::arguments(call));
            }
        });
    }
}

pub(super) fn tool_result(result: &ToolResult, pen: &mut MessageWriter<'_>) {
    pen.add(&USER, |out| {
        json::raw(out, r#""type":"tool_result","tool_use_id":"#);
        call_id(&result.call, out);
        json::raw(out, r#","content":"#);
        json::tool_output(out, &result.text);
        json::raw(out, if result.is_ok() { "" } else { r#","is_error":true"# });
    });
}

fn text_block(text: &str, out: &mut Vec<u8>) {
    json::raw(out, r#""type":"text","text":"#);
    json::text(out, text);
}

/// Writes an id, which may come from another provider, with the characters that are accepted here.
fn call_id(id: &CallId, out: &mut Vec<u8>) {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    json::text(out, &id.as_str().chars().map(allowed).collect::<String>());
}

/// Returns what is between the braces of an object.
fn object_body(json: &str) -> &str {
    let inside = json.trim().strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    inside.unwrap_or(r#""type":"text","text":"…""#)
}

fn is_thought(part: &ReplyPart) -> bool {
    match part {
        ReplyPart::Opaque(OpaqueBlock { json, .. }) => {
            let block: Result<Value, _> = serde_json::from_str(json);
            block.is_ok_and(|block| {
                block["type"] == "thinking" || block["type"] == "redacted_thinking"
            })
        }
        ReplyPart::Text(_) | ReplyPart::Call(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::llm::fixtures::{self, EMPTY_FRAME, opaque_part, reply_of};
    use crate::model::{ConversationItem, MessageOrigin, ToolCall, ToolStatus};

    fn wire(caches: bool) -> Anthropic {
        Anthropic {
            id: "anthropic/m".into(),
            model: "m".to_owned(),
            is_streaming: true,
            uses_cache: caches,
            default_max_output: Tokens(32_000),
        }
    }

    fn exchange(parts: Vec<ReplyPart>, id: &str, status: ToolStatus) -> ConversationItem {
        let call = ToolCall::new(id.into(), "grep", r#"{ "a": 1.0 }"#);
        fixtures::tool_exchange(parts, [call], status, "found")
    }

    fn text(wire: &Anthropic, frame: &RequestFrame<'_>, items: &[ConversationItem]) -> String {
        fixtures::encode_request(wire, frame, items, None)
    }

    fn messages(items: &[ConversationItem]) -> Value {
        let text = text(&wire(false), &EMPTY_FRAME, items);
        serde_json::from_str::<Value>(&text).unwrap()["messages"].clone()
    }

    const THOUGHT: &str = r#"{"type":"thinking","thinking":"h\u006dm","signature":"aGk=","n":1.0}"#;

    #[test]
    fn a_request_has_what_anthropic_documents() {
        let tools = [fixtures::grep_tool()];
        let frame = RequestFrame {
            system: "be good",
            tools: &tools,
            tool_choice: ToolChoice::Auto,
            schema: None,
        };
        let items = [
            ConversationItem::user(MessageOrigin::Task, "do"),
            exchange(vec![opaque_part("anthropic/m", THOUGHT)], "c:1", ToolStatus::Failed),
            ConversationItem::user(MessageOrigin::Steering, "hurry"),
        ];
        let mark = json!({"type": "ephemeral"});
        let request: Value = serde_json::from_str(&text(&wire(true), &frame, &items)).unwrap();
        assert_eq!(
            request,
            json!({
                "model": "m",
                "stream": true,
                "tools": [{"name": "grep", "description": "finds",
                    "input_schema": {"type": "object"}, "cache_control": mark}],
                "system": [{"type": "text", "text": "be good", "cache_control": mark}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "do"}]},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hmm", "signature": "aGk=", "n": 1.0},
                        {"type": "tool_use", "id": "c_1", "name": "grep", "input": {"a": 1.0}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c_1", "content": "found", "is_error": true},
                        {"type": "text", "text": "hurry", "cache_control": mark},
                    ]},
                ],
                "max_tokens": 32_000,
            })
        );
    }

    #[test]
    fn without_caching_there_are_no_marks() {
        let frame =
            RequestFrame { system: "s", tools: &[], tool_choice: ToolChoice::Auto, schema: None };
        let items = [ConversationItem::user(MessageOrigin::Task, "do")];
        assert!(!text(&wire(false), &frame, &items).contains("cache_control"));
    }

    /// Fault L61.
    #[test]
    fn a_thinking_block_is_sent_back_unchanged_to_its_model() {
        let item = |of: &str| [exchange(vec![opaque_part(of, THOUGHT)], "c", ToolStatus::Ok)];
        assert!(text(&wire(false), &EMPTY_FRAME, &item("anthropic/m")).contains(THOUGHT));
        assert!(!text(&wire(false), &EMPTY_FRAME, &item("anthropic/n")).contains("thinking"));
    }

    #[test]
    fn blocks_that_the_provider_refuses_are_omitted() {
        let ends_in_thought =
            vec![ReplyPart::Text("a".into()), opaque_part("anthropic/m", THOUGHT)];
        let only_thought = vec![opaque_part("anthropic/m", THOUGHT), ReplyPart::Text(" \n".into())];
        let items = [
            ConversationItem::user(MessageOrigin::Task, "do"),
            ConversationItem::user(MessageOrigin::Task, "  "),
            ConversationItem::Assistant(reply_of(ends_in_thought)),
            ConversationItem::Assistant(reply_of(only_thought)),
        ];
        assert_eq!(
            messages(&items),
            json!([
                {"role": "user", "content": [{"type": "text", "text": "do"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
            ])
        );
    }

    #[test]
    fn a_schema_is_enforced_or_described_in_the_prompt() {
        let strict = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let loose = json!({"type": "object"});
        let request = |schema| {
            let frame = RequestFrame {
                system: "s",
                tools: &[],
                tool_choice: ToolChoice::Auto,
                schema: Some(schema),
            };
            serde_json::from_str::<Value>(&text(&wire(false), &frame, &[])).unwrap()
        };
        assert_eq!(request(&strict)["output_config"]["format"]["schema"], strict);
        assert!(request(&loose).get("output_config").is_none());
        assert!(request(&loose)["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    }
}
