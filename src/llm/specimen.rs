//! Specimens for tests: a wire of each kind, the parts of a conversation, and what a wire makes of them.

use std::sync::Arc;

use serde_json::json;

use super::anthropic::Anthropic;
use super::chat::{Chat, Quirks};
use super::encode::Pen;
use super::gemini::Gemini;
use super::responses::{Host, Responses};
use super::wire::{Calls, Frame, Wire};
use crate::model::{
    Exchange, Finish, Item, Opaque, Part, Reply, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use crate::port::ToolSpec;

/// Nothing but the conversation.
pub(super) const BARE: Frame<'static> =
    Frame { system: "", tools: &[], calls: Calls::Allowed, schema: None };

/// Returns a wire of each kind with its name.
pub(super) fn wires() -> [(&'static str, Arc<dyn Wire>); 4] {
    let (name, model) = (|| Arc::from("p/m"), || "m".to_owned());
    let (streams, caches, max_output) = (true, true, Tokens(9));
    let (host, quirks) = (Host::OpenAi, Quirks::of("openai-chat", "api.openai.com"));
    let anthropic = Anthropic { name: name(), model: model(), streams, caches, max_output };
    let chat = Chat { name: name(), model: model(), quirks, streams, cache_key: None };
    let gemini = Gemini { name: name(), model: model(), streams };
    let responses = Responses { name: name(), model: model(), host, streams, cache_key: None };
    [
        ("anthropic", Arc::new(anthropic)),
        ("chat", Arc::new(chat)),
        ("gemini", Arc::new(gemini)),
        ("responses", Arc::new(responses)),
    ]
}

/// Returns a tool.
pub(super) fn grep() -> ToolSpec {
    let schema = json!({"type": "object"});
    ToolSpec { name: "grep".into(), description: "finds".into(), schema }
}

/// Returns a block that only one wire and model understands.
pub(super) fn opaque(of: &str, json: &str) -> Part {
    Part::Opaque(Opaque { wire: of.into(), json: json.into() })
}

/// Returns a reply with these parts.
pub(super) fn reply(parts: Vec<Part>) -> Reply {
    Reply { parts: parts.into(), finish: Finish::Stop, usage: Usage::default(), model: None }
}

/// Returns a reply that ends with calls, and their answers.
pub(super) fn exchange(
    mut parts: Vec<Part>,
    calls: impl IntoIterator<Item = ToolCall>,
    status: ToolStatus,
    said: &str,
) -> Item {
    let calls = Vec::from_iter(calls);
    let results = calls.iter().map(|call| ToolResult::new(call.id.clone(), status, said));
    let results: Vec<ToolResult> = results.collect();
    parts.extend(calls.into_iter().map(Part::Call));
    Item::Exchange(Exchange::new(reply(parts), results).unwrap())
}

/// Returns the request that a wire makes of a conversation.
pub(super) fn written(
    wire: &dyn Wire,
    frame: &Frame<'_>,
    items: &[Item],
    max_output: Option<Tokens>,
) -> String {
    let mut out = Vec::new();
    wire.head(frame, &mut out);
    let mut pen = Pen::new(&mut out, None);
    items.iter().for_each(|item| wire.item(item, &mut pen));
    pen.close(wire.marks());
    wire.tail(frame, max_output, &mut out);
    String::from_utf8(out).unwrap()
}
