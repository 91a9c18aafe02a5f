//! A block of a reply, as it grows.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::llm::decode::{Piece, Said};
use crate::llm::wire::{bad_json, broken};
use crate::model::Fault;

/// A block that has begun.
#[derive(Debug)]
pub(super) struct Block {
    /// How it began, as it came; what came later is added at the end.
    start: String,
    kind: Kind,
    /// Its text, its thought, or the JSON of its input, as far as it came.
    grown: String,
    signature: String,
    pub(super) is_open: bool,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolUse,
    /// Everything that goes back as it came: redacted thoughts, the provider's own tools, what is new.
    Other,
}

/// A piece of a block.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    partial_json: Option<String>,
    #[serde(default)]
    signature: Option<String>,
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl Block {
    /// Returns the block that begins like this. A block of a reply in one piece is complete with its beginning.
    pub(super) fn begin(start: &RawValue, said: &mut Said) -> Result<Self, Fault> {
        let begun: Start<'_> =
            serde_json::from_str(start.get()).map_err(|error| bad_json(&error))?;
        let kind = match begun.kind.as_str() {
            "text" => Kind::Text,
            "thinking" => Kind::Thinking,
            "tool_use" => Kind::ToolUse,
            _ => Kind::Other,
        };
        if kind == Kind::ToolUse && begun.name.as_deref().is_none_or(str::is_empty) {
            return Err(broken("a tool call has no name"));
        }
        let grown = match kind {
            Kind::Text => begun.text.unwrap_or_default(),
            Kind::Thinking => begun.thinking.unwrap_or_default(),
            Kind::ToolUse | Kind::Other => String::new(),
        };
        match kind {
            Kind::Text => said.text.push_str(&grown),
            Kind::Thinking => said.reasoning.push_str(&grown),
            Kind::ToolUse | Kind::Other => {}
        }
        let signature = begun.signature.unwrap_or_default();
        Ok(Self { start: start.get().to_owned(), kind, grown, signature, is_open: true })
    }

    /// Goes on with a piece. Pieces of kinds that are not known are passed over.
    pub(super) fn grow(&mut self, delta: Delta<'_>, said: &mut Said) {
        let piece = match (delta.kind, self.kind) {
            ("text_delta", Kind::Text) => delta.text,
            ("thinking_delta", Kind::Thinking) => delta.thinking,
            ("input_json_delta", Kind::ToolUse | Kind::Other) => delta.partial_json,
            ("signature_delta", Kind::Thinking) => {
                self.signature.push_str(&delta.signature.unwrap_or_default());
                None
            }
            _ => None,
        };
        let piece = piece.unwrap_or_default();
        self.grown.push_str(&piece);
        match self.kind {
            Kind::Text => said.text.push_str(&piece),
            Kind::Thinking => said.reasoning.push_str(&piece),
            Kind::ToolUse | Kind::Other => said.silently(&piece),
        }
    }

    /// Returns the block as a piece of the reply.
    pub(super) fn piece(self) -> Result<Piece, Fault> {
        match self.kind {
            Kind::Text => Ok(Piece::Text(self.grown)),
            Kind::ToolUse => {
                let start: Start<'_> =
                    serde_json::from_str(&self.start).map_err(|error| bad_json(&error))?;
                // Some gateways give the whole input with the beginning.
                let whole = start.input.map_or("", RawValue::get);
                let arguments = if self.grown.is_empty() { whole.to_owned() } else { self.grown };
                let (id, name) = (start.id.unwrap_or_default(), start.name.unwrap_or_default());
                Ok(Piece::Call { id, name, arguments })
            }
            Kind::Thinking => {
                let fields =
                    [("thinking", Value::from(self.grown)), ("signature", self.signature.into())];
                patched(&self.start, fields).map(Piece::Opaque)
            }
            Kind::Other if self.grown.is_empty() => Ok(Piece::Opaque(self.start)),
            Kind::Other => {
                let input: Value =
                    serde_json::from_str(&self.grown).map_err(|error| bad_json(&error))?;
                patched(&self.start, [("input", input)]).map(Piece::Opaque)
            }
        }
    }
}

/// Returns an object with these fields set, unless they are what they were; then it stays byte for byte.
fn patched<const N: usize>(start: &str, fields: [(&str, Value); N]) -> Result<String, Fault> {
    let mut object: Value = serde_json::from_str(start).map_err(|error| bad_json(&error))?;
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
