//! An item of a reply.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::llm::decode::{DecodedPart, JsonText, TextField, append, text_or_json};
use crate::llm::wire::{Result, json_fault, json_type, parse_json, protocol_fault};

/// The fields of a message besides its text, which are sent back with the text, and precede it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageFrame {
    #[serde(rename = "type")]
    kind: MessageTag,
    /// Whether the message is commentary or the final answer.
    pub(super) phase: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MessageTag {
    Message,
}

impl MessageFrame {
    /// Parses the fields of a message; `None` for any other item.
    pub(super) fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

/// The fields of all types of items.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemFields<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    phase: TextField<'a>,
    call_id: TextField<'a>,
    id: TextField<'a>,
    name: TextField<'a>,
    status: TextField<'a>,
    arguments: Option<&'a RawValue>,
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageItemContent<'a> {
    #[serde(borrow)]
    text: TextField<'a>,
    refusal: TextField<'a>,
}

/// The content of an item.
#[derive(Debug, Default)]
pub(super) struct DecodedItem {
    pub(super) parts: Vec<DecodedPart>,
    pub(super) is_refusal: bool,
    /// Whether it is a tool call that the provider reports as incomplete.
    pub(super) is_truncated: bool,
}

/// Decodes a complete item. Unknown items are kept without decoding.
pub(super) fn decode(json: &RawValue) -> Result<DecodedItem> {
    let text = json.get();
    let mut decoded = DecodedItem::default();
    match json_type(text)?.as_deref() {
        Some("message") => decoded.add_message(parse_json(text)?)?,
        Some("function_call") => decoded.add_call(parse_json(text)?)?,
        // Without encrypted content, it is only a reference, and the provider stores nothing.
        Some("reasoning") if parse_json::<ItemFields<'_>>(text)?.encrypted_content.is_none() => {}
        Some(_) => decoded.parts.push(DecodedPart::Opaque(text.to_owned())),
        // An item without a type can't be sent back.
        None => {}
    }
    Ok(decoded)
}

impl DecodedItem {
    fn add_message(&mut self, item: ItemFields<'_>) -> Result {
        if let Some(phase) = item.phase.non_empty() {
            let frame = MessageFrame { kind: MessageTag::Message, phase };
            let frame = serde_json::to_string(&frame).map_err(|error| json_fault(&error))?;
            self.parts.push(DecodedPart::Opaque(frame));
        }
        let mut text = String::new();
        match item.content.map_or("", RawValue::get) {
            list if list.starts_with('[') => {
                for part in parse_json::<Vec<&RawValue>>(list)?.into_iter().map(RawValue::get) {
                    // Unknown parts are not decoded.
                    if let Some("output_text" | "text" | "refusal") = json_type(part)?.as_deref() {
                        let part: MessageItemContent<'_> = parse_json(part)?;
                        self.is_refusal |= part.refusal.0.is_some();
                        append(&mut text, part.text.0.or(part.refusal.0).unwrap_or_default().0);
                    }
                }
            }
            alone if alone.starts_with('"') => {
                append(&mut text, parse_json::<JsonText<'_>>(alone)?.0);
            }
            _ => {}
        }
        self.parts.push(DecodedPart::Text(text));
        Ok(())
    }

    fn add_call(&mut self, item: ItemFields<'_>) -> Result {
        let name = item.name.non_empty();
        let name = name.ok_or_else(|| protocol_fault("a tool call has no name"))?;
        self.is_truncated = ["in_progress", "incomplete"].contains(&item.status.as_str());
        let id = item.call_id.0.or(item.id.0).unwrap_or_default().0.into_owned();
        let arguments = text_or_json(item.arguments).map_err(|error| json_fault(&error))?;
        self.parts.push(DecodedPart::Call { id, name, arguments: arguments.into_owned() });
        Ok(())
    }
}
