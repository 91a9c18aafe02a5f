//! Writing a request.

use super::Chat;
use super::quirks::{AfterTools, Ids, Reasoning, Schema, UsageInStreams};
use crate::llm::encode::{Group, Pen, json};
use crate::llm::schema;
use crate::llm::wire::Frame;
use crate::model::{CallId, Digest, Opaque, Part, Reply, Tokens, ToolResult};

/// Consecutive messages of the user are one: templates of many local models insist that roles alternate.
static USER: Group = Group {
    open: r#"{"role":"user","content":""#,
    between: r"\n\n",
    close: r#""}"#,
    marked: r#""}"#,
};

static ASSISTANT: Group = Group { open: "", between: ",", close: "", marked: "" };

static TOOL: Group = Group { open: "", between: ",", close: "", marked: "" };

/// What stands between tool results and the user, where a server insists that the assistant comes first.
const BRIDGE: &str = r#"{"role":"assistant","content":"I have read the results."}"#;

pub(super) fn head(wire: &Chat, frame: &Frame<'_>, out: &mut Vec<u8>) {
    json::raw(out, r#"{"model":"#);
    json::text(out, &wire.model);
    if wire.streams {
        json::raw(out, r#","stream":true"#);
        if wire.quirks.usage == UsageInStreams::OnRequest {
            json::raw(out, r#","stream_options":{"include_usage":true}"#);
        }
    }
    if let Some(key) = wire.cache_key.as_ref().filter(|_| wire.quirks.cache_key) {
        json::raw(out, r#","prompt_cache_key":"#);
        json::text(out, key);
    }
    for (index, tool) in frame.tools.iter().enumerate() {
        json::raw(out, if index == 0 { r#","tools":["# } else { "," });
        json::raw(out, r#"{"type":"function","function":{"name":"#);
        json::text(out, &tool.name);
        json::raw(out, r#","description":"#);
        json::text(out, &tool.description);
        json::raw(out, r#","parameters":"#);
        json::value(out, &tool.schema);
        json::raw(out, "}}");
    }
    json::raw(out, if frame.tools.is_empty() { "" } else { "]" });
    let mut system = frame.system.trim_end().to_owned();
    if let Some(schema) = frame.schema {
        match wire.quirks.schema {
            Schema::JsonSchema => {
                json::raw(
                    out,
                    r#","response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":"#,
                );
                json::value(out, &schema::is_strict(schema));
                json::raw(out, r#","schema":"#);
                json::value(out, schema);
                json::raw(out, "}}");
            }
            Schema::JsonObject => {
                json::raw(out, r#","response_format":{"type":"json_object"}"#);
                system.push_str(&schema::in_words(schema));
            }
        }
    }
    json::raw(out, r#","messages":["#);
    if !system.trim().is_empty() {
        json::raw(out, r#"{"role":"#);
        json::text(out, wire.quirks.system);
        json::raw(out, r#","content":"#);
        json::text(out, &system);
        json::raw(out, "},");
    }
}

pub(super) fn tail(wire: &Chat, max_output: Option<Tokens>, out: &mut Vec<u8>) {
    json::raw(out, "]");
    if let Some(Tokens(limit)) = max_output {
        json::raw(out, ",");
        json::text(out, wire.quirks.output_limit);
        json::raw(out, ":");
        json::value(out, &limit);
    }
    json::raw(out, "}");
}

pub(super) fn user(wire: &Chat, text: &str, pen: &mut Pen<'_>) {
    if text.trim().is_empty() {
        return;
    }
    if wire.quirks.after_tools == AfterTools::Assistant && pen.is_in(&TOOL) {
        pen.add(&ASSISTANT, |out| json::raw(out, BRIDGE));
    }
    pen.add(&USER, |out| json::inner(out, text));
}

pub(super) fn reply(wire: &Chat, reply: &Reply, pen: &mut Pen<'_>) {
    if !reply.has_text() && !reply.has_calls() {
        return;
    }
    pen.add(&ASSISTANT, |out| {
        json::raw(out, r#"{"role":"assistant","content":"#);
        if reply.has_text() {
            json::text(out, &reply.text());
        } else {
            json::raw(out, "null");
        }
        reasoning(wire, reply, out);
        for (index, call) in reply.calls().enumerate() {
            json::raw(out, if index == 0 { r#","tool_calls":["# } else { "," });
            json::raw(out, r#"{"id":"#);
            id(wire, &call.id, out);
            json::raw(out, r#","type":"function","function":{"name":"#);
            json::tool_name(out, &call.name);
            json::raw(out, r#","arguments":"#);
            json::text(out, json::arguments(call));
            json::raw(out, "}}");
        }
        json::raw(out, if reply.has_calls() { "]}" } else { "}" });
    });
}

/// Writes what the server wants back of its reasoning.
fn reasoning(wire: &Chat, reply: &Reply, out: &mut Vec<u8>) {
    let own = |part: &Part| match part {
        Part::Opaque(Opaque { wire: of, json }) if *of == wire.name => Some(json.clone()),
        Part::Opaque(_) | Part::Text(_) | Part::Call(_) => None,
    };
    let fields = reply.parts.iter().find_map(own);
    let fields = fields.as_deref().and_then(|json| json.strip_prefix('{')?.strip_suffix('}'));
    match (wire.quirks.reasoning, fields) {
        (Reasoning::Dropped, _) | (Reasoning::Details, None) => {}
        (Reasoning::Content, _) if !reply.has_calls() => {}
        (Reasoning::Content, None) => json::raw(out, r#","reasoning_content":"""#),
        (Reasoning::Content | Reasoning::Details, Some(fields)) => {
            json::raw(out, ",");
            json::raw(out, fields);
        }
    }
}

pub(super) fn answer(wire: &Chat, result: &ToolResult, pen: &mut Pen<'_>) {
    pen.add(&TOOL, |out| {
        json::raw(out, r#"{"role":"tool","tool_call_id":"#);
        id(wire, &result.call, out);
        json::raw(out, r#","content":"#);
        json::output(out, &result.text);
        json::raw(out, "}");
    });
}

fn id(wire: &Chat, id: &CallId, out: &mut Vec<u8>) {
    let id = id.as_str();
    let fits = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match wire.quirks.ids {
        Ids::Nine if !fits => json::text(out, &Digest::of(id).to_string()[..9]),
        Ids::Nine | Ids::Any => json::text(out, id),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::chat::Quirks;
    use crate::llm::specimen::{self, BARE, reply};
    use crate::llm::wire::Calls;
    use crate::model::{Item, Origin, ToolCall, ToolStatus};

    fn chat(provider: &str, host: &str) -> Chat {
        Chat {
            name: "chat/m".into(),
            model: "m".to_owned(),
            quirks: Quirks::of(provider, host),
            streams: true,
            cache_key: Some("session".to_owned()),
        }
    }

    fn exchange(parts: Vec<Part>, id: &str, arguments: &str) -> Item {
        let call = ToolCall::new(id.into(), "read file", arguments);
        specimen::exchange(parts, [call], ToolStatus::Ok, "")
    }

    fn request(chat: &Chat, frame: &Frame<'_>, items: &[Item]) -> Value {
        let text = specimen::written(chat, frame, items, Some(Tokens(100)));
        serde_json::from_str(&text).unwrap()
    }

    fn messages(chat: &Chat, items: &[Item]) -> Value {
        request(chat, &BARE, items)["messages"].clone()
    }

    fn task(text: &str) -> Item {
        Item::user(Origin::Task, text)
    }

    #[test]
    fn a_request_has_what_openai_documents() {
        let tools = [specimen::grep()];
        let frame =
            Frame { system: "be\"good", tools: &tools, calls: Calls::Allowed, schema: None };
        let text = Part::Text("on it".into());
        let items = [task("do"), exchange(vec![text], "c1", "{\"a\":1}"), task("hurry")];
        let request = request(&chat("openai-chat", "api.openai.com"), &frame, &items);
        assert_eq!(
            request,
            json!({
                "model": "m",
                "stream": true,
                "stream_options": {"include_usage": true},
                "prompt_cache_key": "session",
                "tools": [{"type": "function", "function": {
                    "name": "grep", "description": "finds", "parameters": {"type": "object"},
                }}],
                "messages": [
                    {"role": "system", "content": "be\"good"},
                    {"role": "user", "content": "do"},
                    {"role": "assistant", "content": "on it", "tool_calls": [{
                        "id": "c1", "type": "function",
                        "function": {"name": "read_file", "arguments": "{\"a\":1}"},
                    }]},
                    {"role": "tool", "tool_call_id": "c1", "content": "(no output)"},
                    {"role": "user", "content": "hurry"},
                ],
                "max_completion_tokens": 100,
            })
        );
    }

    #[test]
    fn messages_in_a_row_are_one_and_empty_ones_are_none() {
        let usual = chat("openai-chat", "localhost");
        let items = [task("a\"b"), task(" "), task("c"), Item::Assistant(reply(vec![]))];
        let expected = json!([{"role": "user", "content": "a\"b\n\nc"}]);
        assert_eq!(messages(&usual, &items), expected);
    }

    #[test]
    fn arguments_that_are_no_json_do_not_go_back() {
        let usual = chat("openai-chat", "localhost");
        let messages = messages(&usual, &[exchange(vec![], "c", "{\"a")]);
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], "{}");
        assert_eq!(messages[0]["content"], Value::Null);
    }

    #[test]
    fn mistral_gets_the_order_the_ids_and_the_options_that_it_insists_on() {
        let mistral = chat("mistral", "api.mistral.ai");
        let items = [exchange(vec![], "call_1_0", "{}"), task("go on")];
        let request = request(&mistral, &BARE, &items);
        assert_eq!(request["max_tokens"], 100);
        assert!(request.get("stream_options").is_none() && request.get("tools").is_none());
        let roles: Vec<_> = (0..4).map(|i| request["messages"][i]["role"].clone()).collect();
        assert_eq!(roles, ["assistant", "tool", "assistant", "user"]);
        let id = request["messages"][0]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!((id.len(), &request["messages"][1]["tool_call_id"]), (9, &json!(id)));
    }

    /// Fault L61, for what this wire sends back.
    #[test]
    fn reasoning_goes_back_to_who_wrote_it_and_to_nobody_else() {
        let blocks = r#"{"reasoning_details":[{"signature":"aGk=","n":1.0}]}"#;
        let written = |provider, of: &str| {
            let item = exchange(vec![specimen::opaque(of, blocks)], "c", "{}");
            specimen::written(&chat(provider, ""), &BARE, &[item], None)
        };
        let inner = &blocks[1..blocks.len() - 1];
        assert!(written("openrouter", "chat/m").contains(inner));
        assert!(!written("openrouter", "chat/other").contains("reasoning"));
        assert!(!written("vllm", "chat/m").contains("reasoning"));
        let empty = r#""reasoning_content":"""#;
        assert!(written("deepseek", "chat/other").contains(empty));
    }

    #[test]
    fn a_schema_is_strict_where_it_can_be() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let frame = Frame { system: "s", tools: &[], calls: Calls::Allowed, schema: Some(&schema) };
        let format = &request(&chat("vllm", ""), &frame, &[task("t")])["response_format"];
        assert_eq!(format["json_schema"]["strict"], false);
        assert_eq!(format["json_schema"]["schema"], schema);
        let request = request(&chat("deepseek", ""), &frame, &[task("t")]);
        assert_eq!(request["response_format"], json!({"type": "json_object"}));
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(r#""properties":{"a""#));
    }
}
