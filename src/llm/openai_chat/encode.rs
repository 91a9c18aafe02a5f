//! Encodes a request.

use std::borrow::Cow;

use serde_json::json;

use super::Chat;
use super::quirks::ReasoningEcho;
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema::{self, StrictMode};
use crate::llm::wire::{Encode, RequestFrame};
use crate::types::{
    CallId, Digest, Image, OpaqueBlock, Reply, ReplyPart, Tokens, ToolCall, ToolResult,
};

/// Consecutive user messages are merged: the templates of many local models require alternating roles.
static USER: MessageGroup = MessageGroup {
    open: r#"{"role":"user","content":""#,
    between: r"\n\n",
    close: r#""}"#,
    close_with_mark: r#""}"#,
};

/// The parts of a user message with images.
static USER_PARTS: MessageGroup = MessageGroup {
    open: r#"{"role":"user","content":["#,
    between: ",",
    close: "]}",
    close_with_mark: "]}",
};

static ASSISTANT: MessageGroup =
    MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

static TOOL: MessageGroup = MessageGroup { open: "", between: ",", close: "", close_with_mark: "" };

/// The message between tool results and a user message, for servers that require an assistant message there.
const ASSISTANT_BRIDGE: &str = r#"{"role":"assistant","content":"I have read the results."}"#;

impl Encode for Chat {
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        let Self { setup, quirks } = self;
        let mut head = json!({"model": setup.model});
        if setup.is_streaming {
            head["stream"] = true.into();
            if !quirks.always_has_usage {
                head["stream_options"] = json!({"include_usage": true});
            }
        }
        if let Some(effort) = setup.effort {
            match quirks.has_reasoning_object {
                // The object knows no higher effort.
                true => {
                    let word = Some(setup.word_of(effort, "xhigh")).filter(|word| *word != "max");
                    head["reasoning"] = json!({"effort": word.unwrap_or("xhigh")});
                }
                false => head["reasoning_effort"] = setup.word_of(effort, "high").into(),
            }
        }
        if let Some(key) = setup.cache_key.as_deref().filter(|_| quirks.has_cache_key) {
            head["prompt_cache_key"] = key.into();
        }
        let tools = frame.tool_definitions(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.schema,
            }})
        });
        if let Some(tools) = tools {
            head["tools"] = tools;
        }
        if let Some(schema) = frame.schema {
            head["response_format"] = match quirks.has_json_schema {
                true => json!({"type": "json_schema", "json_schema": {
                    "name": "answer", "strict": schema::is_strict(schema, StrictMode::OpenAi), "schema": schema,
                }}),
                false => json!({"type": "json_object"}),
            };
        }
        setup.add_options(&mut head);
        json::open_object(out, &head, "messages");
        if let Some(system) = frame.system_prompt(quirks.has_json_schema) {
            json::field(out, "", &json!({"role": quirks.system_role, "content": system}));
            json::raw(out, ",");
        }
    }

    fn encode_tail(&self, _: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        json::raw(out, "]");
        if let Some(Tokens(limit)) = max_output {
            json::field(out, ",", self.quirks.output_limit_field);
            json::field(out, ":", &limit);
        }
        json::raw(out, "}");
    }

    fn encode_user(&self, text: &str, writer: &mut MessageWriter<'_>) {
        if text.trim().is_empty() {
            return;
        }
        self.encode_bridge(writer);
        writer.add(&USER, |out| json::unquoted(out, text));
    }

    fn encode_images(&self, text: &str, images: &[Image], writer: &mut MessageWriter<'_>) {
        self.encode_bridge(writer);
        if !text.trim().is_empty() {
            writer.add(&USER_PARTS, |out| {
                json::field(out, r#"{"type":"text","text":"#, text);
                json::raw(out, "}");
            });
        }
        for image in images {
            writer.add(&USER_PARTS, |out| {
                json::raw(out, r#"{"type":"image_url","image_url":{"url":"#);
                json::data_url(out, image);
                json::raw(out, "}}");
            });
        }
    }

    fn takes_images(&self) -> bool {
        self.setup.takes_images
    }

    fn encode_reply(&self, reply: &Reply, writer: &mut MessageWriter<'_>) {
        if !reply.has_text() && !reply.has_calls() {
            return;
        }
        writer.add(&ASSISTANT, |out| {
            let text = reply.has_text().then(|| reply.text());
            json::field(out, r#"{"role":"assistant","content":"#, &text);
            self.encode_reasoning(reply, out);
            for (index, call) in reply.calls().enumerate() {
                json::raw(out, if index == 0 { r#","tool_calls":["# } else { "," });
                json::field(out, r#"{"id":"#, &*self.call_id(&call.id));
                json::raw(out, r#","type":"function","function":{"name":"#);
                json::field(out, "", &json::tool_name(&call.name));
                json::field(out, r#","arguments":"#, json::arguments(call));
                json::raw(out, "}}");
            }
            json::raw(out, if reply.has_calls() { "]}" } else { "}" });
        });
    }

    fn encode_result(&self, _: &ToolCall, result: &ToolResult, writer: &mut MessageWriter<'_>) {
        writer.add(&TOOL, |out| {
            json::field(out, r#"{"role":"tool","tool_call_id":"#, &*self.call_id(&result.call));
            json::field(out, r#","content":"#, json::tool_output(result));
            json::raw(out, "}");
        });
    }
}

impl Chat {
    /// Writes an assistant message after tool results, for a server that requires it before a user message.
    fn encode_bridge(&self, writer: &mut MessageWriter<'_>) {
        if self.quirks.needs_assistant_after_tools && writer.is_in(&TOOL) {
            writer.add(&ASSISTANT, |out| json::raw(out, ASSISTANT_BRIDGE));
        }
    }

    /// Writes the reasoning that the server expects back.
    fn encode_reasoning(&self, reply: &Reply, out: &mut Vec<u8>) {
        let own = |part: &'_ ReplyPart| match part {
            ReplyPart::Opaque(OpaqueBlock { wire, json }) if *wire == self.setup.id => {
                Some(json.clone())
            }
            ReplyPart::Opaque(_) | ReplyPart::Text(_) | ReplyPart::Call(_) => None,
        };
        let fields = reply.parts.iter().find_map(own);
        let fields = fields.as_deref().and_then(|json| json.strip_prefix('{')?.strip_suffix('}'));
        match (self.quirks.reasoning_echo, fields) {
            (ReasoningEcho::Omitted, _) | (ReasoningEcho::Details, None) => {}
            (ReasoningEcho::Content, _) if !reply.has_calls() => {}
            (ReasoningEcho::Content, None) => json::raw(out, r#","reasoning_content":"""#),
            (ReasoningEcho::Content | ReasoningEcho::Details, Some(fields)) => {
                json::raw(out, ",");
                json::raw(out, fields);
            }
        }
    }

    fn call_id<'a>(&self, id: &'a CallId) -> Cow<'a, str> {
        let id = id.as_str();
        let is_valid = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self.quirks.needs_short_call_ids && !is_valid {
            return Digest::of(id).to_string()[..9].to_owned().into();
        }
        id.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::llm::openai_chat::quirks::Quirks;
    use crate::llm::tests::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::WireSetup;
    use crate::types::{ConversationItem, MessageOrigin, ToolStatus};

    fn chat(provider: &str, host: &str) -> Chat {
        let cache_key = Some("session".to_owned());
        let setup = WireSetup { cache_key, ..fixtures::setup("chat/m") };
        Chat { setup, quirks: Quirks::for_server(provider, host) }
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
        let frame = RequestFrame { system: "be\"good", tools: &tools, ..EMPTY_FRAME };
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

    /// Fault L61, for reasoning.
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
        let frame = RequestFrame { system: "s", schema: Some(&schema), ..EMPTY_FRAME };
        let format = &request(&chat("vllm", ""), &frame, &[task("t")])["response_format"];
        assert_eq!(format["json_schema"]["strict"], false);
        assert_eq!(format["json_schema"]["schema"], schema);
        let request = request(&chat("deepseek", ""), &frame, &[task("t")]);
        assert_eq!(request["response_format"], json!({"type": "json_object"}));
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(r#""properties":{"a""#));
    }

    #[test]
    fn images_of_results_follow_in_a_message_of_the_user() {
        let mut chat = chat("openai-chat", "api.openai.com");
        chat.setup.takes_images = true;
        let image = |data: &str| {
            let url = format!("data:image/png;base64,{data}");
            json!({"type": "image_url", "image_url": {"url": url}})
        };
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            messages(&chat, &fixtures::items_with_images()),
            json!([
                {"role": "user", "content": [text("look\n[image a.png, 8x6]"), image("AAAA")]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "[image b.png, 8x6]"},
                {"role": "user", "content": [
                    text("The images of the tool results: [image b.png, 8x6]"), image("BBBB"),
                ]},
            ])
        );
    }
}
