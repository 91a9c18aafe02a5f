//! Encodes a request.

use serde_json::{Map, Value, json};

use super::Gemini;
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::wire::{Encode, RequestFrame, merge_fields};
use crate::types::{
    CallId, Effort, Image, OpaqueBlock, Reply, ReplyPart, Tokens, ToolCall, ToolResult,
};

static USER: MessageGroup = group(r#"{"role":"user","parts":["#);

/// Tool results have their own message, which must contain as many results as there were calls.
static TOOL_RESULTS: MessageGroup = group(r#"{"role":"user","parts":["#);

static MODEL: MessageGroup = group(r#"{"role":"model","parts":["#);

const fn group(open: &'static str) -> MessageGroup {
    MessageGroup { open, between: ",", close: "]}", close_with_mark: "]}" }
}

/// The signature for a call by another model, as documented by the provider.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The field with the settings of a reply.
const GENERATION_CONFIG: &str = "generationConfig";

impl Encode for Gemini {
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        let mut head = json!({});
        if let Some(system) = frame.system_prompt(self.has_schema_field(frame)) {
            head["systemInstruction"] = json!({"parts": [{"text": system}]});
        }
        let tools = frame.tool_definitions(|tool| {
            json!({
                "name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema,
            })
        });
        if let Some(tools) = tools {
            head["tools"] = json!([{"functionDeclarations": tools}]);
        }
        self.0.add_options(&mut head);
        // This field goes to the end of the request.
        head.as_object_mut().map(|head| head.remove(GENERATION_CONFIG));
        json::open_object(out, &head, "contents");
    }

    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        let mut config = json!({});
        if let Some(Tokens(limit)) = max_output {
            config["maxOutputTokens"] = limit.into();
        }
        if let Some(effort) = self.0.effort {
            config["thinkingConfig"] = self.thinking_config(effort);
        }
        if let Some(schema) = frame.schema.filter(|_| self.has_schema_field(frame)) {
            config["responseMimeType"] = "application/json".into();
            config["responseJsonSchema"] = schema.clone();
        }
        if let (Some(config), Some(Value::Object(options))) =
            (config.as_object_mut(), self.0.options.get(GENERATION_CONFIG))
        {
            merge_fields(config, options);
        }
        json::field(out, r#"],"generationConfig":"#, &config);
        json::raw(out, "}");
    }

    fn encode_user(&self, text: &str, writer: &mut MessageWriter<'_>) {
        if !text.trim().is_empty() {
            writer.add(&USER, |out| {
                json::field(out, r#"{"text":"#, text);
                json::raw(out, "}");
            });
        }
    }

    fn encode_images(&self, text: &str, images: &[Image], writer: &mut MessageWriter<'_>) {
        self.encode_user(text, writer);
        for image in images {
            writer.add(&USER, |out| {
                let prefix = r#"{"inlineData":{"mimeType":"#;
                json::field(out, prefix, image.media_type.as_str());
                json::raw(out, r#","data":""#);
                json::raw(out, &image.data);
                json::raw(out, "\"}}");
            });
        }
    }

    fn takes_images(&self) -> bool {
        self.0.takes_images
    }

    fn encode_reply(&self, reply: &Reply, writer: &mut MessageWriter<'_>) {
        // A signature precedes its part; a signature at the end has its own part.
        let mut signature: Option<&str> = None;
        let mut may_need_signature = !self.is_before_third_generation();
        for part in reply.parts.iter() {
            match part {
                ReplyPart::Opaque(OpaqueBlock { wire, json }) => {
                    if *wire != self.0.id {
                        continue;
                    }
                    encode_lone_signature(signature.take(), writer);
                    match lone_signature(json) {
                        Some(lone) => signature = Some(lone),
                        None => writer.add(&MODEL, |out| json::raw(out, json)),
                    }
                }
                ReplyPart::Text(text) if text.is_empty() => {}
                ReplyPart::Text(text) => {
                    let signature = signature.take();
                    writer.add(&MODEL, |out| {
                        json::field(out, r#"{"text":"#, text);
                        end_part(signature, out);
                    });
                }
                ReplyPart::Call(call) => {
                    let signature = signature.take();
                    // Only the first call of a reply has to be signed.
                    let is_foreign = std::mem::take(&mut may_need_signature) && signature.is_none();
                    writer.add(&MODEL, |out| {
                        json::raw(out, r#"{"functionCall":{"name":"#);
                        json::field(out, "", &json::tool_name(&call.name));
                        json::raw(out, r#","args":"#);
                        json::raw(out, json::arguments(call));
                        encode_call_id(&call.id, out);
                        json::raw(out, "}");
                        if is_foreign {
                            json::field(out, r#","thoughtSignature":"#, FOREIGN_SIGNATURE);
                        }
                        end_part(signature, out);
                    });
                }
            }
        }
        encode_lone_signature(signature, writer);
    }

    fn encode_result(&self, call: &ToolCall, result: &ToolResult, writer: &mut MessageWriter<'_>) {
        writer.add(&TOOL_RESULTS, |out| {
            json::field(out, r#"{"functionResponse":{"name":"#, &json::tool_name(&call.name));
            let prefix = if result.is_ok() {
                r#","response":{"output":"#
            } else {
                r#","response":{"error":"#
            };
            json::field(out, prefix, json::tool_output(result));
            json::raw(out, "}");
            encode_call_id(&call.id, out);
            json::raw(out, "}}");
        });
    }
}

impl Gemini {
    /// Returns the amount of thinking: a level, or a number of tokens before the third generation.
    fn thinking_config(&self, effort: Effort) -> Value {
        if !self.is_before_third_generation() {
            return json!({"thinkingLevel": self.0.word_of(effort, "high")});
        }
        let budget = match effort {
            Effort::None => 0,
            Effort::Low => 1_024,
            Effort::Medium => 8_192,
            Effort::Max if self.0.model.contains("pro") => 32_768,
            Effort::High | Effort::Max => 24_576,
        };
        json!({"thinkingBudget": budget})
    }

    /// Returns whether the request has a field for the schema; older models reject the field together with tools.
    fn has_schema_field(&self, frame: &RequestFrame<'_>) -> bool {
        frame.tools.is_empty() || !self.is_before_third_generation()
    }
}

/// Writes a part that contains only a signature.
fn encode_lone_signature(signature: Option<&str>, writer: &mut MessageWriter<'_>) {
    if signature.is_some() {
        writer.add(&MODEL, |out| {
            json::raw(out, r#"{"text":"""#);
            end_part(signature, out);
        });
    }
}

/// Writes the signature of a part, and closes the part.
fn end_part(signature: Option<&str>, out: &mut Vec<u8>) {
    if let Some(signature) = signature {
        json::raw(out, ",");
        json::raw(out, signature);
    }
    json::raw(out, "}");
}

/// Writes the id of a call, unless it was generated here: the provider only knows its own ids.
fn encode_call_id(id: &CallId, out: &mut Vec<u8>) {
    let is_generated = id.as_str().strip_prefix("call_").is_some_and(|rest| {
        rest.split('_')
            .all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    });
    if !is_generated {
        json::field(out, r#","id":"#, id.as_str());
    }
}

/// Returns the signature of an object without other fields.
fn lone_signature(json: &str) -> Option<&str> {
    let object: Map<String, Value> = serde_json::from_str(json).ok()?;
    let is_lone = object.len() == 1 && object.contains_key("thoughtSignature");
    json.strip_prefix('{')?.strip_suffix('}').filter(|_| is_lone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::tests::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::WireSetup;
    use crate::port::ToolSpec;
    use crate::types::{ConversationItem, MessageOrigin, ToolStatus};

    fn wire(model: &str) -> Gemini {
        Gemini(WireSetup { model: model.to_owned(), ..fixtures::setup("gemini/m") })
    }

    fn signature(of: &str) -> ReplyPart {
        fixtures::opaque_part(of, r#"{"thoughtSignature":"aGk\u003d"}"#)
    }

    fn exchange(parts: Vec<ReplyPart>, ids: &[&str]) -> ConversationItem {
        let call = |id: &&str| ToolCall::new((*id).into(), "grep", r#"{"a":1}"#);
        fixtures::tool_exchange(parts, ids.iter().map(call), ToolStatus::Ok, "found")
    }

    fn text(wire: &Gemini, frame: &RequestFrame<'_>, items: &[ConversationItem]) -> String {
        fixtures::encode_request(wire, frame, items, Some(Tokens(9)))
    }

    fn contents(model: &str, items: &[ConversationItem]) -> Value {
        let text = text(&wire(model), &EMPTY_FRAME, items);
        serde_json::from_str::<Value>(&text).unwrap()["contents"].clone()
    }

    #[test]
    fn a_request_has_what_google_documents() {
        let tools = [fixtures::grep_tool()];
        let frame = RequestFrame { system: "be good", tools: &tools, ..EMPTY_FRAME };
        let items = [
            ConversationItem::user(MessageOrigin::Task, "do"),
            exchange(
                vec![ReplyPart::Text("on it".into()), signature("gemini/m")],
                &["own", "call_1_1"],
            ),
            ConversationItem::user(MessageOrigin::Steering, "hurry"),
        ];
        let request: Value =
            serde_json::from_str(&text(&wire("gemini-3.7-flash"), &frame, &items)).unwrap();
        let answer = json!({"output": "found"});
        assert_eq!(
            request,
            json!({
                "systemInstruction": {"parts": [{"text": "be good"}]},
                "tools": [{"functionDeclarations": [{"name": "grep", "description": "finds",
                    "parametersJsonSchema": {"type": "object"}}]}],
                "contents": [
                    {"role": "user", "parts": [{"text": "do"}]},
                    {"role": "model", "parts": [
                        {"text": "on it"},
                        {"functionCall": {"name": "grep", "args": {"a": 1}, "id": "own"},
                            "thoughtSignature": "aGk="},
                        {"functionCall": {"name": "grep", "args": {"a": 1}}},
                    ]},
                    {"role": "user", "parts": [
                        {"functionResponse": {"name": "grep", "response": answer, "id": "own"}},
                        {"functionResponse": {"name": "grep", "response": answer}},
                    ]},
                    {"role": "user", "parts": [{"text": "hurry"}]},
                ],
                "generationConfig": {"maxOutputTokens": 9},
            })
        );
    }

    /// Fault L61.
    #[test]
    fn a_signature_goes_back_byte_for_byte_where_it_came_from() {
        let items = [exchange(vec![signature("gemini/m")], &["own"])];
        assert!(
            text(&wire("gemini-3-pro"), &EMPTY_FRAME, &items)
                .contains(r#""thoughtSignature":"aGk\u003d""#)
        );
        let at_the_end = reply_of(vec![ReplyPart::Text("a".into()), signature("gemini/m")]);
        assert_eq!(
            contents("gemini-3-pro", &[ConversationItem::Assistant(at_the_end)])[0]["parts"],
            json!([{"text": "a"}, {"text": "", "thoughtSignature": "aGk="}])
        );
    }

    #[test]
    fn a_foreign_call_gets_the_placeholder_signature() {
        let items = [exchange(vec![signature("gemini/other")], &["a", "b"])];
        let signatures = |model| {
            let parts = contents(model, &items)[0]["parts"].clone();
            [0, 1].map(|index| parts[index]["thoughtSignature"].clone())
        };
        assert_eq!(signatures("gemini-3-pro"), [json!(FOREIGN_SIGNATURE), Value::Null]);
        assert_eq!(signatures("gemini-2.5-pro"), [Value::Null, Value::Null]);
    }

    #[test]
    fn a_schema_is_sent_with_tools_only_where_supported() {
        let tools = [ToolSpec { name: "t".into(), description: "d".into(), schema: json!({}) }];
        let schema = json!({"type": "object"});
        let frame =
            RequestFrame { system: "s", tools: &tools, schema: Some(&schema), ..EMPTY_FRAME };
        let request =
            |model| serde_json::from_str::<Value>(&text(&wire(model), &frame, &[])).unwrap();
        assert_eq!(request("gemini-3-pro")["generationConfig"]["responseJsonSchema"], schema);
        let old = request("gemini-2.5-pro");
        assert_eq!(old["generationConfig"], json!({"maxOutputTokens": 9}));
        let system = old["systemInstruction"]["parts"][0]["text"].as_str().unwrap().to_owned();
        assert!(system.contains("JSON Schema"));
    }

    #[test]
    fn images_are_inline_data_of_the_user() {
        let Gemini(setup) = wire("gemini-3-pro");
        let wire = Gemini(WireSetup { takes_images: true, ..setup });
        let request = text(&wire, &EMPTY_FRAME, &fixtures::items_with_images());
        let image = |data: &str| json!({"inlineData": {"mimeType": "image/png", "data": data}});
        let contents = serde_json::from_str::<Value>(&request).unwrap()["contents"].clone();
        let parts = |index: usize| contents[index]["parts"].clone();
        assert_eq!(parts(0), json!([{"text": "look\n[image a.png, 8x6]"}, image("AAAA")]));
        assert_eq!(parts(2)[0]["functionResponse"]["response"]["output"], "[image b.png, 8x6]");
        let names = json!({"text": "The images of the tool results: [image b.png, 8x6]"});
        assert_eq!(parts(3), json!([names, image("BBBB")]));
    }
}
