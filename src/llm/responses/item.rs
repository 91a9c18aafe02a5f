//! An item of a reply.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::llm::decode::Piece;
use crate::llm::wire::{bad_json, broken};
use crate::model::Fault;

/// What a message has beside its text, and what has to go back with it. It stands before the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frame {
    #[serde(rename = "type")]
    kind: Message,
    /// Whether the message is a remark on the way or the final answer.
    pub(super) phase: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    Message,
}

impl Frame {
    /// Reads what stands before the text of a message; nothing when it is another item.
    pub(super) fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default)]
    content: Option<Vec<Content>>,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(default)]
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
}

/// What an item amounts to.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) pieces: Vec<Piece>,
    pub(super) is_refusal: bool,
}

/// Reads a complete item.
pub(super) fn read(json: &RawValue) -> Result<Decoded, Fault> {
    let item: Raw<'_> = serde_json::from_str(json.get()).map_err(|error| bad_json(&error))?;
    let mut decoded = Decoded::default();
    match item.kind {
        "message" => {
            if let Some(phase) = item.phase.filter(|phase| !phase.is_empty()) {
                let frame = Frame { kind: Message::Message, phase };
                let frame = serde_json::to_string(&frame).map_err(|error| bad_json(&error))?;
                decoded.pieces.push(Piece::Opaque(frame));
            }
            let mut text = String::new();
            for content in item.content.unwrap_or_default() {
                decoded.is_refusal |= content.refusal.is_some();
                text.push_str(&content.text.or(content.refusal).unwrap_or_default());
            }
            decoded.pieces.push(Piece::Text(text));
        }
        "function_call" => {
            let name = item.name.filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| broken("a tool call has no name"))?;
            let id = item.call_id.or(item.id).unwrap_or_default();
            let arguments = item.arguments.unwrap_or_default();
            decoded.pieces.push(Piece::Call { id, name, arguments });
        }
        // Without its encrypted content it would be looked for at the provider, where nothing is kept.
        "reasoning" if item.encrypted_content.is_none() => {}
        _ => decoded.pieces.push(Piece::Opaque(json.get().to_owned())),
    }
    Ok(decoded)
}
