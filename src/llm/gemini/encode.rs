//! Writing a request.

use super::Gemini;
use crate::llm::encode::{MessageGroup, MessageWriter, json};
use crate::llm::schema;
use crate::llm::wire::RequestFrame;
use crate::model::{CallId, OpaqueBlock, Reply, ReplyPart, Tokens, ToolCall, ToolResult};

static USER: MessageGroup = MessageGroup {
    open: r#"{"role":"user","parts":["#,
    between: ",",
    close: "]}",
    close_with_mark: "]}",
};

/// Answers to calls stand in a message of their own: there have to be as many of them as there were calls.
static TOOL_RESULTS: MessageGroup = MessageGroup {
    open: r#"{"role":"user","parts":["#,
    between: ",",
    close: "]}",
    close_with_mark: "]}",
};

static MODEL: MessageGroup = MessageGroup {
    open: r#"{"role":"model","parts":["#,
    between: ",",
    close: "]}",
    close_with_mark: "]}",
};

/// What stands for the signature of a call that another model made, as the provider documents it.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn head(wire: &Gemini, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
    let mut system = frame.system.trim_end().to_owned();
    if let Some(schema) = frame.schema.filter(|_| !enforces_schema(wire, frame)) {
        system.push_str(&schema::schema_prompt(schema));
    }
    json::raw(out, "{");
    if !system.trim().is_empty() {
        json::raw(out, r#""systemInstruction":{"parts":[{"text":"#);
        json::text(out, &system);
        json::raw(out, "}]},");
    }
    for (index, tool) in frame.tools.iter().enumerate() {
        json::raw(out, if index == 0 { r#""tools":[{"functionDeclarations":["# } else { "," });
        json::raw(out, r#"{"name":"#);
        json::text(out, &tool.name);
        json::raw(out, r#","description":"#);
        json::text(out, &tool.description);
        json::raw(out, r#","parametersJsonSchema":"#);
        json::value(out, &tool.schema);
        json::raw(out, "}");
    }
    json::raw(out, if frame.tools.is_empty() { "" } else { "]}]," });
    json::raw(out, r#""contents":["#);
}

pub(super) fn tail(
    wire: &Gemini,
    frame: &RequestFrame<'_>,
    max_output: Option<Tokens>,
    out: &mut Vec<u8>,
) {
    json::raw(out, r#"],"generationConfig":{"#);
    if let Some(Tokens(limit)) = max_output {
        json::raw(out, r#""maxOutputTokens":"#);
        json::value(out, &limit);
    }
    if let Some(schema) = frame.schema.filter(|_| enforces_schema(wire, frame)) {
        json::raw(out, if max_output.is_some() { "," } else { "" });
        json::raw(out, r#""responseMimeType":"application/json","responseJsonSchema":"#);
        json::value(out, schema);
    }
    json::raw(out, "}}");
}

/// Returns whether the provider itself holds the answer to a schema; the older models don't beside tools.
fn enforces_schema(wire: &Gemini, frame: &RequestFrame<'_>) -> bool {
    frame.tools.is_empty() || !wire.is_before_third_generation()
}

pub(super) fn user(text: &str, pen: &mut MessageWriter<'_>) {
    if !text.trim().is_empty() {
        pen.add(&USER, |out| {
            json::raw(out, r#"{"text":"#);
            json::text(out, text);
            json::raw(out, "}");
        });
    }
}

pub(super) fn reply(wire: &Gemini, reply: &Reply, pen: &mut MessageWriter<'_>) {
    // A signature stands before the part that it belongs to; one at the end has a part of its own.
    let mut signature: Option<&str> = None;
    let mut may_need_one = !wire.is_before_third_generation();
    for part in reply.parts.iter() {
        match part {
            ReplyPart::Opaque(OpaqueBlock { wire: of, json }) => {
                if *of != wire.id {
                    continue;
                }
                loose_signature(signature.take(), pen);
                match lone_signature(json) {
                    Some(alone) => signature = Some(alone),
                    None => pen.add(&MODEL, |out| json::raw(out, json)),
                }
            }
            ReplyPart::Text(text) if text.is_empty() => {}
            ReplyPart::Text(text) => {
                let signature = signature.take();
                pen.add(&MODEL, |out| {
                    json::raw(out, r#"{"text":"#);
                    json::text(out, text);
                    end_part(signature, out);
                });
            }
            ReplyPart::Call(call) => {
                let signature = signature.take();
                // Only the first call of a reply has to be signed.
                let is_foreign = std::mem::take(&mut may_need_one) && signature.is_none();
                pen.add(&MODEL, |out| {
                    json::raw(out, r#"{"functionCall":{"name":"#);
                    json::tool_name(out, &call.name);
                    json::raw(out, r#","args":"#);
                    json::raw(out, json::arguments(call));
                    call_id(&call.id, out);
                    json::raw(out, "}");
                    if is_foreign {
                        json::raw(out, r#","thoughtSignature":"#);
                        json::text(out, FOREIGN_SIGNATURE);
                    }
                    end_part(signature, out);
                });
            }
        }
    }
    loose_signature(signature, pen);
}

/// Writes a signature that belongs to no part.
fn loose_signature(signature: Option<&str>, pen: &mut MessageWriter<'_>) {
    if signature.is_some() {
        pen.add(&MODEL, |out| {
            json::raw(out, r#"{"text":"""#);
            end_part(signature, out);
        });
    }
}

/// Ends a part, with its signature.
fn end_part(signature: Option<&str>, out: &mut Vec<u8>) {
    if let Some(signature) = signature {
        json::raw(out, ",");
        json::raw(out, signature);
    }
    json::raw(out, "}");
}

pub(super) fn tool_result(call: &ToolCall, result: &ToolResult, pen: &mut MessageWriter<'_>) {
    pen.add(&TOOL_RESULTS, |out| {
        json::raw(out, r#"{"functionResponse":{"name":"#);
        json::tool_name(out, &call.name);
        json::raw(out, r#","response":{"#);
        json::text(out, if result.is_ok() { "output" } else { "error" });
        json::raw(out, ":");
        json::tool_output(out, &result.text);
        json::raw(out, "}");
        call_id(&call.id, out);
        json::raw(out, "}}");
    });
}

/// Writes an id that the provider gave; it does not know those that were made up for it.
fn call_id(id: &CallId, out: &mut Vec<u8>) {
    let made_up = id.as_str().strip_prefix("call_").is_some_and(|rest| {
        rest.split('_')
            .all(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    });
    if !made_up {
        json::raw(out, r#","id":"#);
        json::text(out, id.as_str());
    }
}

/// Returns the field of an object that is a signature alone, and no part with one.
fn lone_signature(json: &str) -> Option<&str> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    let is_alone = object.len() == 1 && object.contains_key("thoughtSignature");
    json.strip_prefix('{')?.strip_suffix('}').filter(|_| is_alone)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::fixtures::{self, EMPTY_FRAME, reply_of};
    use crate::llm::wire::ToolChoice;
    use crate::model::{ConversationItem, MessageOrigin, ToolStatus};
    use crate::port::ToolSpec;

    fn wire(model: &str) -> Gemini {
        Gemini { id: "gemini/m".into(), model: model.to_owned(), is_streaming: true }
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
        let frame = RequestFrame {
            system: "be good",
            tools: &tools,
            tool_choice: ToolChoice::Auto,
            schema: None,
        };
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
        let frame = RequestFrame {
            system: "s",
            tools: &tools,
            tool_choice: ToolChoice::Auto,
            schema: Some(&schema),
        };
        let request =
            |model| serde_json::from_str::<Value>(&text(&wire(model), &frame, &[])).unwrap();
        assert_eq!(request("gemini-3-pro")["generationConfig"]["responseJsonSchema"], schema);
        let old = request("gemini-2.5-pro");
        assert_eq!(old["generationConfig"], json!({"maxOutputTokens": 9}));
        let system = old["systemInstruction"]["parts"][0]["text"].as_str().unwrap().to_owned();
        assert!(system.contains("JSON Schema"));
    }
}
