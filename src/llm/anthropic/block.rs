//! A block of a reply, as it grows.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::llm::decode::{Piece, Said, Text, lenient};
use crate::llm::wire::{bad_json, broken, typed};
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
    /// Something without a type, which no provider would take back.
    Nameless,
}

/// A piece of a block.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type", borrow, default, deserialize_with = "lenient::text")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    signature: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    signature: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl Block {
    /// Returns the block that begins like this. A block of a reply in one piece is complete with its beginning.
    pub(super) fn begin(start: &RawValue, said: &mut Said) -> Result<Self, Fault> {
        let kind = Kind::of(start)?;
        let new = |kind, grown: Option<Text<'_>>, signature: Option<Text<'_>>| Self {
            start: start.get().to_owned(),
            kind,
            grown: grown.map_or_else(String::new, |text| text.0.into_owned()),
            signature: signature.map_or_else(String::new, |text| text.0.into_owned()),
            is_open: true,
        };
        // What is not known is not decoded.
        if matches!(kind, Kind::Other | Kind::Nameless) {
            return Ok(new(kind, None, None));
        }
        let begun: Start<'_> =
            serde_json::from_str(start.get()).map_err(|error| bad_json(&error))?;
        if kind == Kind::ToolUse && begun.name.is_none_or(|name| name.0.is_empty()) {
            return Err(broken("a tool call has no name"));
        }
        let grown = match kind {
            Kind::Text => begun.text,
            Kind::Thinking => begun.thinking,
            Kind::ToolUse | Kind::Other | Kind::Nameless => None,
        };
        let block = new(kind, grown, begun.signature);
        match kind {
            Kind::Text => said.text.push_str(&block.grown),
            Kind::Thinking => said.reasoning.push_str(&block.grown),
            Kind::ToolUse | Kind::Other | Kind::Nameless => {}
        }
        Ok(block)
    }

    /// Goes on with a piece. Pieces of kinds that are not known are passed over.
    pub(super) fn grow(&mut self, delta: Delta<'_>, said: &mut Said) {
        let kind = delta.kind.as_ref().map_or("", |kind| &*kind.0);
        let piece = match (kind, self.kind) {
            ("text_delta", Kind::Text) => delta.text,
            ("thinking_delta", Kind::Thinking) => delta.thinking,
            ("input_json_delta", Kind::ToolUse | Kind::Other) => delta.partial_json,
            ("signature_delta", Kind::Thinking) => {
                self.signature.push_str(delta.signature.as_ref().map_or("", |text| &*text.0));
                None
            }
            _ => None,
        };
        let piece = piece.as_ref().map_or("", |piece| &*piece.0);
        self.grown.push_str(piece);
        match self.kind {
            Kind::Text => said.text.push_str(piece),
            Kind::Thinking => said.reasoning.push_str(piece),
            Kind::ToolUse | Kind::Other | Kind::Nameless => said.silently(piece),
        }
    }

    /// Returns the block as a piece of the reply; `None` for one that can't go back.
    pub(super) fn piece(self) -> Result<Option<Piece>, Fault> {
        Ok(Some(match self.kind {
            Kind::Text => Piece::Text(self.grown),
            Kind::ToolUse => {
                let start: Start<'_> =
                    serde_json::from_str(&self.start).map_err(|error| bad_json(&error))?;
                // Some gateways give the whole input with the beginning.
                let whole = start.input.map_or("", RawValue::get);
                let arguments = if self.grown.is_empty() { whole.to_owned() } else { self.grown };
                let text = |text: Option<Text<'_>>| text.and_then(Text::filled).unwrap_or_default();
                Piece::Call { id: text(start.id), name: text(start.name), arguments }
            }
            Kind::Thinking => {
                let fields =
                    [("thinking", Value::from(self.grown)), ("signature", self.signature.into())];
                Piece::Opaque(patched(&self.start, fields)?)
            }
            Kind::Other if self.grown.is_empty() => Piece::Opaque(self.start),
            Kind::Other => {
                let input: Value =
                    serde_json::from_str(&self.grown).map_err(|error| bad_json(&error))?;
                Piece::Opaque(patched(&self.start, [("input", input)])?)
            }
            Kind::Nameless => return Ok(None),
        }))
    }
}

impl Kind {
    fn of(start: &RawValue) -> Result<Self, Fault> {
        Ok(match typed(start.get(), false)?.as_deref().unwrap_or_default() {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "tool_use" => Self::ToolUse,
            "" => Self::Nameless,
            _ => Self::Other,
        })
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
