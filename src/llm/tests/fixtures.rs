//! Test fixtures: a wire of each format, parts of a conversation, and requests.

use std::sync::Arc;

use serde_json::json;

use crate::llm::encode::MessageWriter;
use crate::llm::wire::{ApiFormat, RequestFrame, ToolChoice, Wire, WireSetup};
use crate::llm::{anthropic, gemini, openai_chat, openai_responses};
use crate::port::ToolSpec;
use crate::types::{
    ConversationItem, Image, ImageType, MessageOrigin, OpaqueBlock, Reply, ReplyFinish, ReplyPart,
    Tokens, ToolCall, ToolExchange, ToolResult, ToolStatus, Usage, UserMessage,
};

/// An empty frame.
pub(in crate::llm) const EMPTY_FRAME: RequestFrame<'static> = RequestFrame {
    system: "",
    tools: &[],
    tool_choice: ToolChoice::Auto,
    can_think: true,
    schema: None,
};

/// Returns the setup of a streaming wire for the model `m`.
pub(in crate::llm) fn setup(id: &str) -> WireSetup {
    WireSetup { id: id.into(), model: "m".to_owned(), is_streaming: true, ..WireSetup::default() }
}

/// Returns a wire of each format, with its name.
pub(in crate::llm) fn wires() -> [(&'static str, Arc<dyn Wire>); 4] {
    let formats: [(&'static str, &ApiFormat); 4] = [
        ("anthropic", &anthropic::FORMAT),
        ("chat", &openai_chat::FORMAT),
        ("gemini", &gemini::FORMAT),
        ("responses", &openai_responses::FORMAT),
    ];
    formats.map(|(name, format)| {
        let host = "api.openai.com".to_owned();
        (name, (format.wire)(WireSetup { host, uses_cache: true, ..setup("p/m") }))
    })
}

/// Returns the definition of a tool.
pub(in crate::llm) fn grep_tool() -> ToolSpec {
    let schema = json!({"type": "object"});
    ToolSpec { name: "grep".into(), description: "finds".into(), schema }
}

/// Returns a block that only the model with a wire id can read.
pub(in crate::llm) fn opaque_part(wire: &str, json: &str) -> ReplyPart {
    ReplyPart::Opaque(OpaqueBlock { wire: wire.into(), json: json.into() })
}

/// Returns a reply with these parts.
pub(in crate::llm) fn reply_of(parts: Vec<ReplyPart>) -> Reply {
    Reply { parts: parts.into(), finish: ReplyFinish::Stop, usage: Usage::default(), model: None }
}

/// Returns a reply that ends with calls, together with their results.
pub(in crate::llm) fn tool_exchange(
    mut parts: Vec<ReplyPart>,
    calls: impl IntoIterator<Item = ToolCall>,
    status: ToolStatus,
    output: &str,
) -> ConversationItem {
    let calls = Vec::from_iter(calls);
    let results = calls.iter().map(|call| ToolResult::new(call.id.clone(), status, output));
    let results: Vec<ToolResult> = results.collect();
    parts.extend(calls.into_iter().map(ReplyPart::Call));
    ConversationItem::Exchange(ToolExchange::new(reply_of(parts), results).unwrap())
}

/// Returns a conversation with an image from the user, and one in the result of a tool.
pub(in crate::llm) fn items_with_images() -> [ConversationItem; 2] {
    let image = |name: &str, data: &str| Image {
        name: name.into(),
        media_type: ImageType::Png,
        width: 8,
        height: 6,
        tokens: Tokens(1),
        data: data.into(),
    };
    let (origin, text) = (MessageOrigin::Task, "look\n[image a.png, 8x6]".into());
    let images = vec![image("a.png", "AAAA")];
    let call = ToolCall::new("c1".into(), "grep", "{}");
    let result = ToolResult::new("c1".into(), ToolStatus::Ok, "[image b.png, 8x6]");
    let result = result.with_images(vec![image("b.png", "BBBB")]);
    let exchange = ToolExchange::new(reply_of(vec![ReplyPart::Call(call)]), [result]).unwrap();
    [
        ConversationItem::User(UserMessage { origin, text, images }),
        ConversationItem::Exchange(exchange),
    ]
}

/// Returns the request for a conversation.
pub(in crate::llm) fn encode_request(
    wire: &dyn Wire,
    frame: &RequestFrame<'_>,
    items: &[ConversationItem],
    max_output: Option<Tokens>,
) -> String {
    let frame = &RequestFrame { can_think: wire.can_think(&mut items.iter().rev()), ..*frame };
    let mut out = Vec::new();
    wire.encode_head(frame, &mut out);
    let mut writer = MessageWriter::new(&mut out, None);
    items.iter().for_each(|item| wire.encode_item(item, &mut writer));
    writer.close(wire.has_cache_marks());
    wire.encode_tail(frame, max_output, &mut out);
    String::from_utf8(out).unwrap()
}
