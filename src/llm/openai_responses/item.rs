//! An item of a reply.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::llm::decode::{DecodedPart, JsonText, lenient};
use crate::llm::wire::{event_type, json_fault, parse_json, protocol_fault};
use crate::model::Fault;

/// The fields of a message besides its text, which are sent back with it. It precedes the text.
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
    /// Parses the fields of a message; `None` for another item.
    pub(super) fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

#[derive(Deserialize)]
struct MessageItem<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    phase: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
struct CallItem<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    call_id: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    status: Option<JsonText<'a>>,
    /// JSON text, or at some servers the object itself.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ReasoningItem<'a> {
    #[serde(borrow, default)]
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageItemContent<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    refusal: Option<JsonText<'a>>,
}

/// The content of an item.
#[derive(Debug, Default)]
pub(super) struct DecodedItem {
    pub(super) parts: Vec<DecodedPart>,
    pub(super) is_refusal: bool,
    /// Whether it is a tool call that the provider reports as incomplete.
    pub(super) is_truncated: bool,
}

/// Decodes a complete item. An unknown item is kept without decoding it.
pub(super) fn decode(json: &RawValue) -> Result<DecodedItem, Fault> {
    let text = json.get();
    let mut decoded = DecodedItem::default();
    match event_type(text, false)?.as_deref() {
        Some("message") => decoded.add_message(parse_json(text)?)?,
        Some("function_call") => decoded.add_call(parse_json(text)?)?,
        // Without encrypted content it is only a reference, and the provider stores nothing.
        Some("reasoning") if parse_json::<ReasoningItem<'_>>(text)?.encrypted_content.is_none() => {
        }
        Some(_) => decoded.parts.push(DecodedPart::Opaque(text.to_owned())),
        // It can't be sent back.
        None => {}
    }
    Ok(decoded)
}

impl DecodedItem {
    fn add_message(&mut self, item: MessageItem<'_>) -> Result<(), Fault> {
        if let Some(phase) = item.phase.and_then(JsonText::non_empty) {
            let frame = MessageFrame { kind: MessageTag::Message, phase };
            let frame = serde_json::to_string(&frame).map_err(|error| json_fault(&error))?;
            self.parts.push(DecodedPart::Opaque(frame));
        }
        let mut text = String::new();
        match item.content.map(RawValue::get) {
            Some(list) if list.starts_with('[') => {
                for part in parse_json::<Vec<&RawValue>>(list)?.into_iter().map(RawValue::get) {
                    // Unknown parts are not decoded.
                    if let Some("output_text" | "text" | "refusal") =
                        event_type(part, false)?.as_deref()
                    {
                        let MessageItemContent { text: content, refusal } = parse_json(part)?;
                        self.is_refusal |= refusal.is_some();
                        text.push_str(content.or(refusal).as_ref().map_or("", |text| &*text.0));
                    }
                }
            }
            Some(alone) if alone.starts_with('"') => {
                text.push_str(&parse_json::<JsonText<'_>>(alone)?.0);
            }
            Some(_) | None => {}
        }
        self.parts.push(DecodedPart::Text(text));
        Ok(())
    }

    fn add_call(&mut self, item: CallItem<'_>) -> Result<(), Fault> {
        let name = item.name.and_then(JsonText::non_empty);
        let name = name.ok_or_else(|| protocol_fault("a tool call has no name"))?;
        let status = item.status.and_then(JsonText::non_empty);
        self.is_truncated = matches!(status.as_deref(), Some("in_progress" | "incomplete"));
        let id = item.call_id.or(item.id).and_then(JsonText::non_empty).unwrap_or_default();
        let arguments = match item.arguments.map(RawValue::get) {
            Some(text) if text.starts_with('"') => parse_json::<JsonText<'_>>(text)?.0.into_owned(),
            Some(json) => json.to_owned(),
            None => String::new(),
        };
        self.parts.push(DecodedPart::Call { id, name, arguments });
        Ok(())
    }
}
