//! A block of a reply under construction.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::llm::decode::{DecodedPart, DeltaBuffer, TextField, append};
use crate::llm::wire::{Result, json_type, parse_json, protocol_fault};

/// A block under construction.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    /// The JSON of the block's start, except for a text block; deltas are added at the end.
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

/// The fields of a block at its start, and of its deltas.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BlockFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: TextField<'a>,
    text: TextField<'a>,
    thinking: TextField<'a>,
    partial_json: TextField<'a>,
    signature: TextField<'a>,
    id: TextField<'a>,
    name: TextField<'a>,
    input: Option<&'a RawValue>,
}

impl BlockBuilder {
    /// Returns a block from its start. Blocks of a reply that is one document are complete.
    pub(super) fn begin(start: &RawValue, deltas: &mut DeltaBuffer) -> Result<Self> {
        let kind = match json_type(start.get())?.as_deref() {
            Some("text") => BlockKind::Text,
            Some("thinking") => BlockKind::Thinking,
            Some("tool_use") => BlockKind::ToolUse,
            Some("") | None => BlockKind::Untyped,
            Some(_) => BlockKind::Other,
        };
        let (content, signature) = (String::new(), String::new());
        let start_json = if kind == BlockKind::Text { "" } else { start.get() }.to_owned();
        let mut block = Self { start_json, kind, content, signature, is_open: true };
        // Blocks of unknown types are not decoded.
        if matches!(kind, BlockKind::Other | BlockKind::Untyped) {
            return Ok(block);
        }
        let fields: BlockFields<'_> = parse_json(start.get())?;
        match kind {
            BlockKind::Text => block.push(fields.text.into_text(), deltas),
            BlockKind::Thinking => block.push(fields.thinking.into_text(), deltas),
            _ if fields.name.as_str().is_empty() => {
                return Err(protocol_fault("a tool call has no name"));
            }
            _ => {}
        }
        block.signature = fields.signature.into_string();
        Ok(block)
    }

    /// Applies a delta. Deltas of unknown types are ignored.
    pub(super) fn apply(&mut self, delta: BlockFields<'_>, deltas: &mut DeltaBuffer) {
        match (delta.kind.as_str(), self.kind) {
            ("text_delta", BlockKind::Text) => self.push(delta.text.into_text(), deltas),
            ("thinking_delta", BlockKind::Thinking) => {
                self.push(delta.thinking.into_text(), deltas);
            }
            ("input_json_delta", BlockKind::ToolUse | BlockKind::Other) => {
                self.push(delta.partial_json.into_text(), deltas);
            }
            ("signature_delta", BlockKind::Thinking) => {
                self.signature.push_str(delta.signature.as_str());
            }
            _ => {}
        }
    }

    fn push(&mut self, piece: Cow<'_, str>, deltas: &mut DeltaBuffer) {
        match self.kind {
            BlockKind::Text => deltas.add_text(&piece),
            BlockKind::Thinking => deltas.add_reasoning(&piece),
            BlockKind::ToolUse | BlockKind::Other | BlockKind::Untyped => deltas.add_hidden(&piece),
        }
        append(&mut self.content, piece);
    }

    /// Returns the part of the reply; `None` for a block that can't be sent back.
    pub(super) fn into_part(self) -> Result<Option<DecodedPart>> {
        Ok(Some(match self.kind {
            BlockKind::Text => DecodedPart::Text(self.content),
            BlockKind::ToolUse => {
                let start: BlockFields<'_> = parse_json(&self.start_json)?;
                // Some gateways send the whole input at the start.
                let arguments = match start.input {
                    Some(whole) if self.content.is_empty() => whole.get().to_owned(),
                    _ => self.content,
                };
                let (id, name) = (start.id.into_string(), start.name.into_string());
                DecodedPart::Call { id, name, arguments }
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

/// Returns an object with these fields. An object that already has them is returned unchanged, byte for byte.
fn patch_object<const N: usize>(start: &str, fields: [(&str, Value); N]) -> Result<String> {
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
