//! Writing a request.

use super::Chat;
use super::quirks::{CallIdFormat, ReasoningEcho, RoleAfterTools, SchemaFormat, UsageInStreams};
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema;
use crate::llm::wire::RequestFrame;
use crate::model::{CallId, Digest, OpaqueBlock, Reply, ReplyPart, Tokens, ToolResult};

/// Consecutive messages of the user are one: templates of many local models insist that roles alternate.
static USER: MessageGroup = MessageGroup {
    open: r#"{"role":"user","content":""#,
    between: r"\n\n",
    close: r#""}"#,
    close_with_mark: r#""}"#,
};

static ASSISTANT: MessageGroup =
    MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

static TOOL: MessageGroup = MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

/// What stands between tool results and the user, where a server insists that the assistant comes first.
const ASSISTANT_BRIDGE: &str = r#"{"role":"assistant","content":"I have read the results."}"#;

pub(super) fn head(wire: &Chat, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
    json::raw(out, r#"{"model":"#);
    json::text(out, &wire.model);
    if wire.is_streaming {
        json::raw(out, r#","stream":true"#);
        if wire.quirks.usage == UsageInStreams::OnRequest {
            json::raw(out, r#","stream_options":{"include_usage":true}"#);
        }
    }
    if let Some(key) = wire.cache_key.as_ref().filter(|_| wire.quirks.has_cache_key) {
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
        match wire.quirks.schema_format {
            SchemaFormat::JsonSchema => {
                json::raw(
                    out,
                    r#","response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":"#,
                );
                json::value(out, &schema::is_strict(schema));
                json::raw(out, r#","schema":"#);
                json::value(out, schema);
                json::raw(out, "}}");
            }
            SchemaFormat::JsonObject => {
                json::raw(out, r#","response_format":{"type":"json_object"}"#);
                system.push_str(&schema::schema_prompt(schema));
            }
        }
    }
    json::raw(out, r#","messages":["#);
    if !system.trim().is_empty() {
        json::raw(out, r#"{"role":"#);
        json::text(out, wire.quirks.system_role);
        json::raw(out, r#","content":"#);
        json::text(out, &system);
        json::raw(out, "},");
    }
}

pub(super) fn tail(wire: &Chat, max_output: Option<Tokens>, out: &mut Vec<u8>) {
    json::raw(out, "]");
    if let Some(Tokens(limit)) = max_output {
        json::raw(out, ",");
        json::text(out, wire.quirks.output_limit_field);
        json::raw(out, ":");
        json::value(out, &limit);
    }
    json::raw(out, "}");
}

pub(super) fn user(wire: &Chat, text: &str, pen: &mut MessageWriter<'_>) {
    if text.trim().is_empty() {
        return;
    }
    if wire.quirks.after_tools == RoleAfterTools::Assistant && pen.is_in(&TOOL) {
        pen.add(&ASSISTANT, |out| json::raw(out, ASSISTANT_BRIDGE));
    }
    pen.add(&USER, |out| json::unquoted(out, text));
}

pub(super) fn reply(wire: &Chat, reply: &Reply, pen: &mut MessageWriter<'_>) {
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
        echo_reasoning(wire, reply, out);
        for (index, call) in reply.calls().enumerate() {
            json::raw(out, if index == 0 { r#","tool_calls":["# } else { "," });
            json::raw(out, r#"{"id":"#);
            call_id(wire, &call.id, out);
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
fn echo_reasoning(wire: &Chat, reply: &Reply, out: &mut Vec<u8>) {
    let own = |part: &ReplyPart| match part {
        ReplyPart::Opaque(OpaqueBlock { wire: of, json }) if *of == wire.id => Some(json.clone()),
        ReplyPart::Opaque(_) | ReplyPart::Text(_) | ReplyPart::Call(_) => None,
    };
    let fields = reply.parts.iter().find_map(own);
    let fields = fields.as_deref().and_then(|json| json.strip_prefix('{')?.strip_suffix('}'));
    match (wire.quirks.reasoning_echo, fields) {
        (ReasoningEcho::Omitted, _) | (ReasoningEcho::Details, None) => {}
        (ReasoningEcho::Content, _) if !reply.has_calls() => {}
        (ReasoningEcho::Content, None) => json::raw(out, r#","reasoning_content":"""#),
        (ReasoningEcho::Content | ReasoningEcho::Details, Some(fields)) => {
            json::raw(out, ",");
            json::raw(out, fields);
        }
    }
}

pub(super) fn tool_result(wire: &Chat, result: &ToolResult, pen: &mut MessageWriter<'_>) {
    pen.add(&TOOL, |out| {
        json::raw(out, r#"{"role":"tool","tool_call_id":"#);
        call_id(wire, &result.call, out);
        json::raw(out, r#","content":"#);
        json::tool_output(out, &result.text);
        json::raw(out, "}");
    });
}

fn call_id(wire: &Chat, id: &CallId, out: &mut Vec<u8>) {
    let id = id.as_str();
    let fits = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match wire.quirks.call_id_format {
        CallIdFormat::NineAlphanumeric if !fits => {
            json::text(out, &Digest::of(id).to_string()[..9])
        }
        CallIdFormat::NineAlphanumeric | CallIdFormat::Any => json::text(out, id),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::chat::Quirks;
    use crate::llm::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::ToolChoice;
    use crate::model::{ConversationItem, MessageOrigin, ToolCall, ToolStatus};

    fn chat(provider: &str, host: &str) -> Chat {
        Chat {
            id: "chat/m".into(),
            model: "m".to_owned(),
            quirks: Quirks::for_server(provider, host),
            is_streaming: true,
            cache_key: Some("session".to_owned()),
        }
    }

    fn exchange(parts: Vec<ReplyPart>, id: &str, arguments: &str) -> ConversationItem {
        let call = ToolCall::new(id.into(), "read file", arguments);
        fixtures::tool_exchange(parts, [call], ToolStatus::Ok, "")
    }

    fn request(chat: &Chat, frame: &RequestFrame<'_>, items: &[ConversationItem]) -> Value {
        let text = fixtures::encode_request(chat, frame, items, Some(Tokens(100)));
        serde_json::from_str(&text).unwrap()
    }

    fn messages(chat: &Chat, items: &[ConversationItem]) -> Value {
        request(chat, &EMPTY_FRAME, items)["messages"].clone()
    }

    fn task(text: &str) -> ConversationItem {
        ConversationItem::user(MessageOrigin::Task, text)
    }

    #[test]
    fn a_request_has_what_openai_documents() {
        let tools = [fixtures::grep_tool()];
        let frame = RequestFrame {
            system: "be\"good",
            tools: &tools,
            tool_choice: ToolChoice::Auto,
            schema: None,
        };
        let text = ReplyPart::Text("on it".into());
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
    fn consecutive_messages_are_merged_and_empty_ones_dropped() {
        let usual = chat("openai-chat", "localhost");
        let items =
            [task("a\"b"), task(" "), task("c"), ConversationItem::Assistant(reply_of(vec![]))];
        let expected = json!([{"role": "user", "content": "a\"b\n\nc"}]);
        assert_eq!(messages(&usual, &items), expected);
    }

    #[test]
    fn invalid_arguments_are_not_sent_back() {
        let usual = chat("openai-chat", "localhost");
        let messages = messages(&usual, &[exchange(vec![], "c", "{\"a")]);
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], "{}");
        assert_eq!(messages[0]["content"], Value::Null);
    }

    #[test]
    fn mistral_gets_its_own_order_ids_and_options() {
        let mistral = chat("mistral", "api.mistral.ai");
        let items = [exchange(vec![], "call_1_0", "{}"), task("go on")];
        let request = request(&mistral, &EMPTY_FRAME, &items);
        assert_eq!(request["max_tokens"], 100);
        assert!(request.get("stream_options").is_none() && request.get("tools").is_none());
        let roles: Vec<_> = (0..4).map(|i| request["messages"][i]["role"].clone()).collect();
        assert_eq!(roles, ["assistant", "tool", "assistant", "user"]);
        let id = request["messages"][0]["tool_calls"][0]["id"].as_str().unwrap();
        assert_eq!((id.len(), &request["messages"][1]["tool_call_id"]), (9, &json!(id)));
    }

    /// Fault L61, for what this wire sends back.
    #[test]
    fn reasoning_is_sent_back_to_its_own_model_only() {
        let blocks = r#"{"reasoning_details":[{"signature":"aGk=","n":1.0}]}"#;
        let written = |provider, of: &str| {
            let item = exchange(vec![fixtures::opaque_part(of, blocks)], "c", "{}");
            fixtures::encode_request(&chat(provider, ""), &EMPTY_FRAME, &[item], None)
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
        let frame = RequestFrame {
            system: "s",
            tools: &[],
            tool_choice: ToolChoice::Auto,
            schema: Some(&schema),
        };
        let format = &request(&chat("vllm", ""), &frame, &[task("t")])["response_format"];
        assert_eq!(format["json_schema"]["strict"], false);
        assert_eq!(format["json_schema"]["schema"], schema);
        let request = request(&chat("deepseek", ""), &frame, &[task("t")]);
        assert_eq!(request["response_format"], json!({"type": "json_object"}));
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(r#""properties":{"a""#));
    }
}
