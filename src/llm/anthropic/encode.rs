//! Writing a request.

use serde_json::Value;

use super::{Anthropic, binding};
use crate::llm::encode::{Group, Pen, json};
use crate::llm::schema;
use crate::llm::wire::{Calls, Frame};
use crate::model::{CallId, Opaque, Part, Reply, Tokens, ToolResult};

/// The user's messages and tool results in a row are blocks of one message, which is what the provider makes of them
/// anyway. The last block carries the mark up to which the cache remembers.
static USER: Group = Group {
    open: r#"{"role":"user","content":[{"#,
    between: "},{",
    close: "}]}",
    marked: r#","cache_control":{"type":"ephemeral"}}]}"#,
};

static ASSISTANT: Group = Group {
    open: r#"{"role":"assistant","content":[{"#,
    between: "},{",
    close: "}]}",
    marked: "}]}",
};

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

pub(super) fn head(wire: &Anthropic, frame: &Frame<'_>, out: &mut Vec<u8>) {
    json::raw(out, r#"{"model":"#);
    json::text(out, &wire.model);
    json::raw(out, if wire.streams { r#","stream":true"# } else { "" });
    binding::option(&wire.model, out);
    let mark = |out: &mut Vec<u8>| json::raw(out, if wire.caches { MARK } else { "" });
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
        Some(schema) => system.push_str(&schema::in_words(schema)),
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

pub(super) fn tail(frame: &Frame<'_>, max_output: Tokens, out: &mut Vec<u8>) {
    json::raw(out, r#"],"max_tokens":"#);
    json::value(out, &max_output.0);
    if frame.calls == Calls::Off {
        json::raw(out, r#","tool_choice":{"type":"none"}"#);
    }
    json::raw(out, "}");
}

pub(super) fn user(text: &str, pen: &mut Pen<'_>) {
    // A block of white space is refused.
    if !text.trim().is_empty() {
        pen.add(&USER, |out| text_block(text, out));
    }
}

pub(super) fn reply(wire: &Anthropic, reply: &Reply, pen: &mut Pen<'_>) {
    let is_sent = |part: &&Part| match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Call(_) => true,
        Part::Opaque(opaque) => opaque.wire == wire.name,
    };
    let mut parts: Vec<&Part> = reply.parts.iter().filter(is_sent).collect();
    // A message that ends with a thought is refused.
    while parts.last().is_some_and(|part| is_thought(part)) {
        parts.pop();
    }
    for part in parts {
        pen.add(&ASSISTANT, |out| match part {
            Part::Text(text) => text_block(text, out),
            Part::Opaque(Opaque { json, .. }) => json::raw(out, inside(json)),
            Part::Call(call) => {
                json::raw(out, r#""type":"tool_use","id":"#);
                id(&call.id, out);
                json::raw(out, r#","name":"#);
                json::tool_name(out, &call.name);
                json::raw(out, r#","input":"#);
                json::raw(out, json::arguments(call));
            }
        });
    }
}

pub(super) fn answer(result: &ToolResult, pen: &mut Pen<'_>) {
    pen.add(&USER, |out| {
        json::raw(out, r#""type":"tool_result","tool_use_id":"#);
        id(&result.call, out);
        json::raw(out, r#","content":"#);
        json::output(out, &result.text);
        json::raw(out, if result.is_ok() { "" } else { r#","is_error":true"# });
    });
}

fn text_block(text: &str, out: &mut Vec<u8>) {
    json::raw(out, r#""type":"text","text":"#);
    json::text(out, text);
}

/// Writes an id, which may come from another provider, with the characters that are accepted here.
fn id(id: &CallId, out: &mut Vec<u8>) {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    json::text(out, &id.as_str().chars().map(allowed).collect::<String>());
}

/// Returns what is between the braces of an object.
fn inside(json: &str) -> &str {
    let inside = json.trim().strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    inside.unwrap_or(r#""type":"text","text":"…""#)
}

fn is_thought(part: &Part) -> bool {
    match part {
        Part::Opaque(Opaque { json, .. }) => {
            let block: Result<Value, _> = serde_json::from_str(json);
            block.is_ok_and(|block| {
                block["type"] == "thinking" || block["type"] == "redacted_thinking"
            })
        }
        Part::Text(_) | Part::Call(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::llm::specimen::{self, BARE, opaque, reply};
    use crate::model::{Item, Origin, ToolCall, ToolStatus};

    fn wire(caches: bool) -> Anthropic {
        Anthropic {
            name: "anthropic/m".into(),
            model: "m".to_owned(),
            streams: true,
            caches,
            max_output: Tokens(32_000),
        }
    }

    fn exchange(parts: Vec<Part>, id: &str, status: ToolStatus) -> Item {
        let call = ToolCall::new(id.into(), "grep", r#"{ "a": 1.0 }"#);
        specimen::exchange(parts, [call], status, "found")
    }

    fn text(wire: &Anthropic, frame: &Frame<'_>, items: &[Item]) -> String {
        specimen::written(wire, frame, items, None)
    }

    fn messages(items: &[Item]) -> Value {
        let text = text(&wire(false), &BARE, items);
        serde_json::from_str::<Value>(&text).unwrap()["messages"].clone()
    }

    const THOUGHT: &str = r#"{"type":"thinking","thinking":"h\u006dm","signature":"aGk=","n":1.0}"#;

    #[test]
    fn a_request_has_what_anthropic_documents() {
        let tools = [specimen::grep()];
        let frame = Frame { system: "be good", tools: &tools, calls: Calls::Allowed, schema: None };
        let items = [
            Item::user(Origin::Task, "do"),
            exchange(vec![opaque("anthropic/m", THOUGHT)], "c:1", ToolStatus::Failed),
            Item::user(Origin::Steering, "hurry"),
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
        let frame = Frame { system: "s", tools: &[], calls: Calls::Allowed, schema: None };
        let items = [Item::user(Origin::Task, "do")];
        assert!(!text(&wire(false), &frame, &items).contains("cache_control"));
    }

    /// Fault L61.
    #[test]
    fn a_thought_goes_back_byte_for_byte_to_the_model_that_had_it() {
        let item = |of: &str| [exchange(vec![opaque(of, THOUGHT)], "c", ToolStatus::Ok)];
        assert!(text(&wire(false), &BARE, &item("anthropic/m")).contains(THOUGHT));
        assert!(!text(&wire(false), &BARE, &item("anthropic/n")).contains("thinking"));
    }

    #[test]
    fn what_the_provider_would_refuse_is_left_out() {
        let ends_in_thought = vec![Part::Text("a".into()), opaque("anthropic/m", THOUGHT)];
        let only_thought = vec![opaque("anthropic/m", THOUGHT), Part::Text(" \n".into())];
        let items = [
            Item::user(Origin::Task, "do"),
            Item::user(Origin::Task, "  "),
            Item::Assistant(reply(ends_in_thought)),
            Item::Assistant(reply(only_thought)),
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
    fn a_schema_is_enforced_where_it_can_be_and_told_in_words_otherwise() {
        let strict = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let loose = json!({"type": "object"});
        let request = |schema| {
            let frame =
                Frame { system: "s", tools: &[], calls: Calls::Allowed, schema: Some(schema) };
            serde_json::from_str::<Value>(&text(&wire(false), &frame, &[])).unwrap()
        };
        assert_eq!(request(&strict)["output_config"]["format"]["schema"], strict);
        assert!(request(&loose).get("output_config").is_none());
        assert!(request(&loose)["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    }
}
