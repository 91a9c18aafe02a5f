//! Specimens for tests: a wire of each kind, the parts of a conversation, and what a wire makes of them.

use std::sync::Arc;

use serde_json::json;

use super::anthropic::Anthropic;
use super::chat::{Chat, Quirks};
use super::encode::MessageWriter;
use super::gemini::Gemini;
use super::responses::{Responses, ResponsesHost};
use super::wire::{RequestFrame, ToolChoice, Wire};
use crate::model::{
    ConversationItem, OpaqueBlock, Reply, ReplyFinish, ReplyPart, Tokens, ToolCall, ToolExchange,
    ToolResult, ToolStatus, Usage,
};
use crate::port::ToolSpec;

/// Nothing but the conversation.
pub(super) const EMPTY_FRAME: RequestFrame<'static> =
    RequestFrame { system: "", tools: &[], tool_choice: ToolChoice::Auto, schema: None };

/// Returns a wire of each kind with its name.
pub(super) fn wires() -> [(&'static str, Arc<dyn Wire>); 4] {
    let (name, model) = (|| Arc::from("p/m"), || "m".to_owned());
    let (streams, caches, max_output) = (true, true, Tokens(9));
    let (host, quirks) =
        (ResponsesHost::OpenAi, Quirks::for_server("openai-chat", "api.openai.com"));
    let anthropic = Anthropic {
        id: name(),
        model: model(),
        is_streaming: streams,
        uses_cache: caches,
        default_max_output: max_output,
    };
    let chat = Chat { id: name(), model: model(), quirks, is_streaming: streams, cache_key: None };
    let gemini = Gemini { id: name(), model: model(), is_streaming: streams };
    let responses =
        Responses { id: name(), model: model(), host, is_streaming: streams, cache_key: None };
    [
        ("anthropic", Arc::new(anthropic)),
        ("chat", Arc::new(chat)),
        ("gemini", Arc::new(gemini)),
        ("responses", Arc::new(responses)),
    ]
}

/// Returns a tool.
pub(super) fn grep_tool() -> ToolSpec {
    let schema = json!({"type": "object"});
    ToolSpec { name: "grep".into(), description: "finds".into(), schema }
}

/// Returns a block that only one wire and model understands.
pub(super) fn opaque_part(of: &str, json: &str) -> ReplyPart {
    ReplyPart::Opaque(OpaqueBlock { wire: of.into(), json: json.into() })
}

/// Returns a reply with these parts.
pub(super) fn reply_of(parts: Vec<ReplyPart>) -> Reply {
    Reply { parts: parts.into(), finish: ReplyFinish::Stop, usage: Usage::default(), model: None }
}

/// Returns a reply that ends with calls, and their answers.
pub(super) fn tool_exchange(
    mut parts: Vec<ReplyPart>,
    calls: impl IntoIterator<Item = ToolCall>,
    status: ToolStatus,
    said: &str,
) -> ConversationItem {
    let calls = Vec::from_iter(calls);
    let results = calls.iter().map(|call| ToolResult::new(call.id.clone(), status, said));
    let results: Vec<ToolResult> = results.collect();
    parts.extend(calls.into_iter().map(ReplyPart::Call));
    ConversationItem::Exchange(ToolExchange::new(reply_of(parts), results).unwrap())
}

/// Returns the request that a wire makes of a conversation.
pub(super) fn encode_request(
    wire: &dyn Wire,
    frame: &RequestFrame<'_>,
    items: &[ConversationItem],
    max_output: Option<Tokens>,
) -> String {
    let mut out = Vec::new();
    wire.encode_head(frame, &mut out);
    let mut pen = MessageWriter::new(&mut out, None);
    items.iter().for_each(|item| wire.encode_item(item, &mut pen));
    pen.close(wire.has_cache_marks());
    wire.encode_tail(frame, max_output, &mut out);
    String::from_utf8(out).unwrap()
}
