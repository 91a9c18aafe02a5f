//! A block of a reply under construction.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::llm::decode::{DecodedPart, DeltaBuffer, JsonText, lenient};
use crate::llm::wire::{event_type, parse_json, protocol_fault};
use crate::model::Fault;

/// A block under construction.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    /// The JSON of its start; deltas are added at the end.
    start_json: String,
    kind: BlockKind,
    /// The text, the thinking, or the JSON of the input received so far.
    content: String,
    signature: String,
    pub(super) is_open: bool,
}

/// The type of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
    /// A block that is sent back unchanged: redacted thinking, server tools, unknown types.
    Other,
    /// A block without a type, which can't be sent back.
    Untyped,
}

/// A delta of a block.
#[derive(Deserialize)]
pub(super) struct BlockDelta<'a> {
    #[serde(rename = "type", borrow, default, deserialize_with = "lenient::text")]
    kind: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    thinking: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    partial_json: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    signature: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    thinking: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    signature: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl BlockBuilder {
    /// Returns a block from its start. A block of a reply that is one document is complete.
    pub(super) fn begin(start: &RawValue, deltas: &mut DeltaBuffer) -> Result<Self, Fault> {
        let kind = BlockKind::of(start)?;
        let new = |kind, grown: Option<JsonText<'_>>, signature: Option<JsonText<'_>>| Self {
            start_json: start.get().to_owned(),
            kind,
            content: grown.map_or_else(String::new, |text| text.0.into_owned()),
            signature: signature.map_or_else(String::new, |text| text.0.into_owned()),
            is_open: true,
        };
        // Blocks of unknown types are not decoded.
        if matches!(kind, BlockKind::Other | BlockKind::Untyped) {
            return Ok(new(kind, None, None));
        }
        let begun: BlockStart<'_> = parse_json(start.get())?;
        if kind == BlockKind::ToolUse && begun.name.is_none_or(|name| name.0.is_empty()) {
            return Err(protocol_fault("a tool call has no name"));
        }
        let grown = match kind {
            BlockKind::Text => begun.text,
            BlockKind::Thinking => begun.thinking,
            BlockKind::ToolUse | BlockKind::Other | BlockKind::Untyped => None,
        };
        let block = new(kind, grown, begun.signature);
        match kind {
            BlockKind::Text => deltas.text.push_str(&block.content),
            BlockKind::Thinking => deltas.reasoning.push_str(&block.content),
            BlockKind::ToolUse | BlockKind::Other | BlockKind::Untyped => {}
        }
        Ok(block)
    }

    /// Applies a delta. Deltas of unknown types are ignored.
    pub(super) fn apply(&mut self, delta: BlockDelta<'_>, deltas: &mut DeltaBuffer) {
        let kind = delta.kind.as_ref().map_or("", |kind| &*kind.0);
        let piece = match (kind, self.kind) {
            ("text_delta", BlockKind::Text) => delta.text,
            ("thinking_delta", BlockKind::Thinking) => delta.thinking,
            ("input_json_delta", BlockKind::ToolUse | BlockKind::Other) => delta.partial_json,
            ("signature_delta", BlockKind::Thinking) => {
                self.signature.push_str(delta.signature.as_ref().map_or("", |text| &*text.0));
                None
            }
            _ => None,
        };
        let piece = piece.as_ref().map_or("", |piece| &*piece.0);
        self.content.push_str(piece);
        match self.kind {
            BlockKind::Text => deltas.text.push_str(piece),
            BlockKind::Thinking => deltas.reasoning.push_str(piece),
            BlockKind::ToolUse | BlockKind::Other | BlockKind::Untyped => deltas.add_hidden(piece),
        }
    }

    /// Returns the part of the reply; `None` for a block that can't be sent back.
    pub(super) fn into_part(self) -> Result<Option<DecodedPart>, Fault> {
        Ok(Some(match self.kind {
            BlockKind::Text => DecodedPart::Text(self.content),
            BlockKind::ToolUse => {
                let start: BlockStart<'_> = parse_json(&self.start_json)?;
                // Some gateways send the whole input with the start.
                let whole = start.input.map_or("", RawValue::get);
                let arguments =
                    if self.content.is_empty() { whole.to_owned() } else { self.content };
                let text = |text: Option<JsonText<'_>>| {
                    text.and_then(JsonText::non_empty).unwrap_or_default()
                };
                DecodedPart::Call { id: text(start.id), name: text(start.name), arguments }
            }
            BlockKind::Thinking => {
                let fields =
                    [("thinking", Value::from(self.content)), ("signature", self.signature.into())];
                DecodedPart::Opaque(patch_object(&self.start_json, fields)?)
            }
            BlockKind::Other if self.content.is_empty() => DecodedPart::Opaque(self.start_json),
            BlockKind::Other => {
                let input: Value = parse_json(&self.content)?;
                DecodedPart::Opaque(patch_object(&self.start_json, [("input", input)])?)
            }
            BlockKind::Untyped => return Ok(None),
        }))
    }
}

impl BlockKind {
    fn of(start: &RawValue) -> Result<Self, Fault> {
        Ok(match event_type(start.get(), false)?.as_deref().unwrap_or_default() {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "tool_use" => Self::ToolUse,
            "" => Self::Untyped,
            _ => Self::Other,
        })
    }
}

/// Returns an object with these fields. An object that already has them stays the same, byte for byte.
fn patch_object<const N: usize>(start: &str, fields: [(&str, Value); N]) -> Result<String, Fault> {
    let mut object: Value = parse_json(start)?;
    let same = |(key, value): &(&str, Value)| match object.get(key) {
        Some(before) => before == value,
        None => *value == "",
    };
    if fields.iter().all(same) {
        return Ok(start.to_owned());
    }
    for (key, value) in fields {
        object[key] = value;
    }
    Ok(object.to_string())
}
