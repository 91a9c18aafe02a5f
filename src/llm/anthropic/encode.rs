//! Encodes a request.

use serde_json::{Value, json};

use super::{Anthropic, thought_binding};
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema::{self, StrictMode};
use crate::llm::wire::{Cloud, Encode, RequestFrame, ToolChoice, sendable_parts};
use crate::types::{
    CallId, ConversationItem, Effort, Image, OpaqueBlock, Reply, ReplyPart, Tokens, ToolCall,
    ToolResult,
};

/// Consecutive user messages and tool results become blocks of one message; the provider would merge them anyway. The
/// cache mark goes to the last block.
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

/// The output limit of a request without its own limit, which the API requires. A higher limit would reduce the space
/// for the input; a longer reply is continued in the next request.
const DEFAULT_MAX_OUTPUT: Tokens = Tokens(32_000);

/// The output limit of a model that is not in the model table.
const FALLBACK_MAX_OUTPUT: Tokens = Tokens(8_192);

/// The version of the format on the clouds, where the path identifies the model.
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// The minimum number of tokens for thinking that the API accepts.
const MIN_THINKING_BUDGET: u64 = 1_024;

impl Encode for Anthropic {
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        let Self(setup) = self;
        let mark = |block: &mut Value| {
            if setup.uses_cache {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
        };
        let mut head = match setup.cloud {
            None => json!({"model": setup.model}),
            Some(Cloud::Bedrock) => json!({"anthropic_version": BEDROCK_VERSION}),
            Some(Cloud::Vertex) => json!({"anthropic_version": VERTEX_VERSION}),
        };
        let is_bedrock = setup.cloud == Some(Cloud::Bedrock);
        if setup.is_streaming && !is_bedrock {
            head["stream"] = true.into();
        }
        if thought_binding::binds_thoughts(&setup.model) {
            head["thinking"] = thought_binding::option();
            if is_bedrock {
                head["anthropic_beta"] = json!([thought_binding::BETA_HEADER.1]);
            }
        }
        match setup.effort {
            Some(Effort::None) => {
                head["thinking"] = json!({"type": "disabled"});
            }
            Some(effort) if thought_binding::thinks_adaptively(&setup.model) => {
                if head.get("thinking").is_none() {
                    head["thinking"] = json!({"type": "adaptive"});
                }
                head["output_config"] = json!({"effort": setup.word_of(effort, "max")});
            }
            // The number of tokens depends on the output limit, which is encoded later.
            Some(_) | None => {}
        }
        let tools = frame.tool_definitions(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
        });
        if let Some(mut tools) = tools {
            tools.as_array_mut().and_then(|tools| tools.last_mut()).map(mark);
            head["tools"] = tools;
        }
        let has_schema_field = setup.cloud.is_none();
        let is_enforced = |schema: &&Value| schema::is_strict(schema, StrictMode::Messages);
        let schema = frame.schema.filter(|schema| has_schema_field && is_enforced(schema));
        if let Some(schema) = schema {
            head["output_config"]["format"] = json!({"type": "json_schema", "schema": schema});
        }
        if let Some(system) = frame.system_prompt(schema.is_some()) {
            let mut block = json!({"type": "text", "text": system});
            mark(&mut block);
            head["system"] = json!([block]);
        }
        setup.add_options(&mut head);
        json::open_object(out, &head, "messages");
    }

    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        let limit = max_output.unwrap_or_else(|| {
            self.0.max_output.map_or(FALLBACK_MAX_OUTPUT, |limit| limit.min(DEFAULT_MAX_OUTPUT))
        });
        json::field(out, r#"],"max_tokens":"#, &limit.0);
        if let Some(budget) = self.thinking_budget(limit).filter(|_| frame.can_think) {
            json::field(
                out,
                r#","thinking":"#,
                &json!({"type": "enabled", "budget_tokens": budget}),
            );
        }
        if frame.tool_choice == ToolChoice::Disabled {
            json::raw(out, r#","tool_choice":{"type":"none"}"#);
        }
        json::raw(out, "}");
    }

    fn encode_user(&self, text: &str, writer: &mut MessageWriter<'_>) {
        // The API rejects a blank block.
        if !text.trim().is_empty() {
            writer.add(&USER, |out| json::field(out, r#""type":"text","text":"#, text));
        }
    }

    fn encode_images(&self, text: &str, images: &[Image], writer: &mut MessageWriter<'_>) {
        self.encode_user(text, writer);
        for image in images {
            writer.add(&USER, |out| encode_image(image, out));
        }
    }

    fn takes_images(&self) -> bool {
        self.0.takes_images
    }

    fn has_images_in_results(&self) -> bool {
        true
    }

    fn encode_reply(&self, reply: &Reply, writer: &mut MessageWriter<'_>) {
        let mut parts = sendable_parts(reply, &self.0.id);
        // The API rejects a message that ends with a thinking block.
        while parts.last().is_some_and(|part| is_thinking(part)) {
            parts.pop();
        }
        for part in parts {
            writer.add(&ASSISTANT, |out| match part {
                ReplyPart::Text(text) => json::field(out, r#""type":"text","text":"#, text),
                ReplyPart::Opaque(OpaqueBlock { json, .. }) => json::raw(out, object_body(json)),
                ReplyPart::Call(call) => {
                    json::field(out, r#""type":"tool_use","id":"#, &call_id(&call.id));
                    json::field(out, r#","name":"#, &json::tool_name(&call.name));
                    json::raw(out, r#","input":"#);
                    json::raw(out, json::arguments(call));
                }
            });
        }
    }

    fn encode_result(&self, _: &ToolCall, result: &ToolResult, writer: &mut MessageWriter<'_>) {
        writer.add(&USER, |out| {
            json::field(out, r#""type":"tool_result","tool_use_id":"#, &call_id(&result.call));
            json::raw(out, r#","content":"#);
            let images: &[Image] = if self.0.takes_images { &result.images } else { &[] };
            if images.is_empty() {
                json::field(out, "", json::tool_output(result));
            } else {
                json::field(out, r#"[{"type":"text","text":"#, json::tool_output(result));
                for image in images {
                    json::raw(out, "},{");
                    encode_image(image, out);
                }
                json::raw(out, "}]");
            }
            json::raw(out, if result.is_ok() { "" } else { r#","is_error":true"# });
        });
    }

    /// Thinking with a number of tokens can't begin within a turn: "When `thinking` is enabled, a final `assistant`
    /// message must start with a thinking block". A turn consists of all replies since the last user message that does
    /// not follow tool results. If the turn has no block of this model, as after a failover, the model does not think
    /// until the next turn.
    fn can_think(&self, newest_first: &mut dyn Iterator<Item = &ConversationItem>) -> bool {
        let Self(setup) = self;
        if setup.effort.is_none() || thought_binding::thinks_adaptively(&setup.model) {
            return true;
        }
        let mut replies = newest_first.filter_map(|item| match item {
            ConversationItem::User(_) => None,
            ConversationItem::Assistant(_) => Some(None),
            ConversationItem::Exchange(exchange) => Some(Some(exchange.reply())),
        });
        let Some(Some(last)) = replies.next() else { return true };
        let turn = std::iter::once(last).chain(replies.map_while(|reply| reply));
        let mut parts = turn.flat_map(|reply| sendable_parts(reply, &setup.id));
        parts.any(is_thinking)
    }

    /// The API requires it: "Requests which include `tool_use` or `tool_result` blocks must define tools."
    fn needs_tool_definitions(&self) -> bool {
        true
    }

    fn has_cache_marks(&self) -> bool {
        self.0.uses_cache
    }
}

impl Anthropic {
    /// Returns the number of tokens for thinking, for a model that does not decide it itself. It is less than the
    /// output limit; `None` if that leaves too few.
    fn thinking_budget(&self, limit: Tokens) -> Option<u64> {
        let Self(setup) = self;
        let effort = setup.effort?;
        if thought_binding::thinks_adaptively(&setup.model) {
            return None;
        }
        let wanted = match effort {
            Effort::None => return None,
            Effort::Low => 4_096,
            Effort::Medium => 10_000,
            Effort::High => 20_000,
            Effort::Max => u64::MAX,
        };
        // A quarter of the limit is left for the answer.
        let budget = limit.0.saturating_sub(limit.0 / 4).min(wanted);
        (budget >= MIN_THINKING_BUDGET).then_some(budget)
    }
}

/// Writes the fields of an image.
fn encode_image(image: &Image, out: &mut Vec<u8>) {
    let prefix = r#""type":"image","source":{"type":"base64","media_type":"#;
    json::field(out, prefix, image.media_type.as_str());
    json::raw(out, r#","data":""#);
    json::raw(out, &image.data);
    json::raw(out, "\"}");
}

/// Returns an id, which may be from another provider, in characters that the API accepts.
fn call_id(id: &CallId) -> String {
    id.as_str().chars().map(json::name_character).collect()
}

/// Returns the text between the braces of an object.
fn object_body(json: &str) -> &str {
    let body = json.trim().strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    body.unwrap_or(r#""type":"text","text":"…""#)
}

fn is_thinking(part: &ReplyPart) -> bool {
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
    use super::*;
    use crate::llm::tests::fixtures::{self, EMPTY_FRAME, opaque_part, reply_of};
    use crate::llm::wire::{Wire as _, WireSetup};
    use crate::types::{MessageOrigin, ToolStatus};

    fn wire(uses_cache: bool) -> Anthropic {
        let max_output = Some(Tokens(64_000));
        Anthropic(WireSetup { uses_cache, max_output, ..fixtures::setup("anthropic/m") })
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
        let frame = RequestFrame { system: "be good", tools: &tools, ..EMPTY_FRAME };
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
    fn a_cloud_has_the_version_in_the_request_and_no_model() {
        let strict = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let frame = RequestFrame { system: "s", schema: Some(&strict), ..EMPTY_FRAME };
        let request = |cloud, model: &str| -> (Value, Vec<(&str, &str)>) {
            let (Anthropic(setup), model) = (wire(false), model.to_owned());
            let wire = Anthropic(WireSetup { cloud: Some(cloud), model, ..setup });
            let request = serde_json::from_str(&text(&wire, &frame, &[])).unwrap();
            (request, wire.headers())
        };
        let (bedrock, headers) = request(Cloud::Bedrock, "us.anthropic.claude-opus-5-5-v1:0");
        assert_eq!(bedrock["anthropic_version"], "bedrock-2023-05-31");
        assert_eq!(bedrock["anthropic_beta"], json!([thought_binding::BETA_HEADER.1]));
        assert!(bedrock.get("stream").is_none() && headers.is_empty(), "{bedrock}");
        let (vertex, headers) = request(Cloud::Vertex, "claude-opus-5-5@20260101");
        assert_eq!(vertex["anthropic_version"], "vertex-2023-10-16");
        assert_eq!((&vertex["stream"], vertex.get("anthropic_beta")), (&json!(true), None));
        assert_eq!(headers, [thought_binding::BETA_HEADER]);
        for request in [bedrock, vertex] {
            assert!(request.get("model").is_none() && request.get("output_config").is_none());
            assert!(request["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
        }
    }

    #[test]
    fn without_caching_there_are_no_marks() {
        let frame = RequestFrame { system: "s", ..EMPTY_FRAME };
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
    fn thinking_does_not_begin_within_a_turn_of_another_model() {
        let item = |of: &str| exchange(vec![opaque_part(of, THOUGHT)], "c", ToolStatus::Ok);
        let (own, other) = (item("anthropic/m"), item("openai/m"));
        let plain = exchange(Vec::new(), "c", ToolStatus::Ok);
        let task = ConversationItem::user(MessageOrigin::Task, "do");
        let answer = ConversationItem::Assistant(reply_of(vec![ReplyPart::Text("a".into())]));
        let thinks = |model: &str, items: &[&ConversationItem]| {
            let Anthropic(setup) = wire(false);
            let effort = Some(Effort::High);
            let wire = Anthropic(WireSetup { effort, model: model.to_owned(), ..setup });
            let items: Vec<_> = items.iter().map(|item| (*item).clone()).collect();
            let request: Value = serde_json::from_str(&text(&wire, &EMPTY_FRAME, &items)).unwrap();
            request.get("thinking").map_or(Value::Null, |thinking| thinking["type"].clone())
        };
        let older = |items: &[&ConversationItem]| thinks("claude-sonnet-4-5", items) == "enabled";
        assert!(older(&[&task]) && older(&[&task, &own]) && older(&[&task, &own, &plain]));
        assert!(!older(&[&task, &other]) && !older(&[&task, &own, &answer, &task, &other]));
        // A user message during tool calls is sent with their results.
        assert!(!older(&[&task, &other, &task, &plain]) && !older(&[&task, &other, &task]));
        // The next turn.
        assert!(older(&[&task, &other, &answer, &task]));
        assert_eq!(thinks("claude-opus-4-6", &[&task, &other]), "adaptive");
    }

    #[test]
    fn a_schema_is_enforced_or_described_in_the_prompt() {
        let strict = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let loose = json!({"type": "object"});
        let request = |schema| {
            let frame = RequestFrame { system: "s", schema: Some(schema), ..EMPTY_FRAME };
            serde_json::from_str::<Value>(&text(&wire(false), &frame, &[])).unwrap()
        };
        assert_eq!(request(&strict)["output_config"]["format"]["schema"], strict);
        assert!(request(&loose).get("output_config").is_none());
        assert!(request(&loose)["system"][0]["text"].as_str().unwrap().contains("JSON Schema"));
    }

    #[test]
    fn images_are_blocks_of_messages_and_of_tool_results() {
        let Anthropic(setup) = wire(false);
        let wire = Anthropic(WireSetup { takes_images: true, ..setup });
        let text = text(&wire, &EMPTY_FRAME, &fixtures::items_with_images());
        let image = |data: &str| {
            let source = json!({"type": "base64", "media_type": "image/png", "data": data});
            json!({"type": "image", "source": source})
        };
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap()["messages"],
            json!([
                {"role": "user", "content": [
                    {"type": "text", "text": "look\n[image a.png, 8x6]"}, image("AAAA"),
                ]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "c1", "name": "grep", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [
                        {"type": "text", "text": "[image b.png, 8x6]"}, image("BBBB"),
                    ]},
                ]},
            ])
        );
    }
}
