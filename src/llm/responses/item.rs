//! An item of a reply.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::llm::decode::{Piece, Text, lenient};
use crate::llm::wire::{bad_json, broken, typed};
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
struct MessageItem<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    phase: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct CallItem<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    call_id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    status: Option<Text<'a>>,
    /// Text, or with some servers the object itself.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ReasoningItem<'a> {
    #[serde(borrow, default)]
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    refusal: Option<Text<'a>>,
}

/// What an item amounts to.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) pieces: Vec<Piece>,
    pub(super) is_refusal: bool,
    /// Whether it is a tool call that the provider says is not whole.
    pub(super) is_cut: bool,
}

/// Reads a complete item. Of an item that is not known, nothing but its type is decoded.
pub(super) fn read(json: &RawValue) -> Result<Decoded, Fault> {
    let text = json.get();
    let mut decoded = Decoded::default();
    match typed(text, false)?.as_deref() {
        Some("message") => decoded.message(parsed(text)?)?,
        Some("function_call") => decoded.call(parsed(text)?)?,
        // Without its encrypted content it would be looked for at the provider, where nothing is kept.
        Some("reasoning") if parsed::<ReasoningItem<'_>>(text)?.encrypted_content.is_none() => {}
        Some(_) => decoded.pieces.push(Piece::Opaque(text.to_owned())),
        // No provider would take it back.
        None => {}
    }
    Ok(decoded)
}

impl Decoded {
    fn message(&mut self, item: MessageItem<'_>) -> Result<(), Fault> {
        if let Some(phase) = item.phase.and_then(Text::filled) {
            let frame = Frame { kind: Message::Message, phase };
            let frame = serde_json::to_string(&frame).map_err(|error| bad_json(&error))?;
            self.pieces.push(Piece::Opaque(frame));
        }
        let mut text = String::new();
        match item.content.map(RawValue::get) {
            Some(list) if list.starts_with('[') => {
                for part in parsed::<Vec<&RawValue>>(list)?.into_iter().map(RawValue::get) {
                    // A part that is not known is not decoded.
                    if let Some("output_text" | "text" | "refusal") = typed(part, false)?.as_deref()
                    {
                        let Content { text: said, refusal } = parsed(part)?;
                        self.is_refusal |= refusal.is_some();
                        text.push_str(said.or(refusal).as_ref().map_or("", |said| &*said.0));
                    }
                }
            }
            Some(alone) if alone.starts_with('"') => text.push_str(&parsed::<Text<'_>>(alone)?.0),
            Some(_) | None => {}
        }
        self.pieces.push(Piece::Text(text));
        Ok(())
    }

    fn call(&mut self, item: CallItem<'_>) -> Result<(), Fault> {
        let name = item.name.and_then(Text::filled);
        let name = name.ok_or_else(|| broken("a tool call has no name"))?;
        let status = item.status.and_then(Text::filled);
        self.is_cut = matches!(status.as_deref(), Some("in_progress" | "incomplete"));
        let id = item.call_id.or(item.id).and_then(Text::filled).unwrap_or_default();
        let arguments = match item.arguments.map(RawValue::get) {
            Some(text) if text.starts_with('"') => parsed::<Text<'_>>(text)?.0.into_owned(),
            Some(json) => json.to_owned(),
            None => String::new(),
        };
        self.pieces.push(Piece::Call { id, name, arguments });
        Ok(())
    }
}

fn parsed<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Fault> {
    serde_json::from_str(json).map_err(|error| bad_json(&error))
}
