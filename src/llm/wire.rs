//! What a wire format has to be able to do; the exchange itself is the same for all of them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::decode::{Draft, Said, Text, lenient};
use super::encode::Pen;
use super::fault::ApiError;
use crate::model::{Fault, FaultKind, Item, Reply, Tokens, ToolCall, ToolResult};
use crate::net::sse::Event;
use crate::port::ToolSpec;

/// A wire format: how a conversation is written, and how a reply is read.
pub(super) trait Wire: Send + Sync {
    /// Returns what marks the blocks that only this wire and this model understand.
    fn name(&self) -> &Arc<str>;

    /// Writes everything up to the conversation.
    fn head(&self, frame: &Frame<'_>, out: &mut Vec<u8>);

    /// Writes an entry of the conversation.
    fn item(&self, item: &Item, pen: &mut Pen<'_>) {
        match item {
            Item::User(message) => self.user(&message.text, pen),
            Item::Assistant(reply) => self.reply(reply, pen),
            Item::Exchange(exchange) => {
                self.reply(exchange.reply(), pen);
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    self.answer(call, result, pen);
                }
            }
        }
    }

    /// Writes a message of the user.
    fn user(&self, text: &str, pen: &mut Pen<'_>);

    /// Writes a reply of the model.
    fn reply(&self, reply: &Reply, pen: &mut Pen<'_>);

    /// Writes the answer to a call.
    fn answer(&self, call: &ToolCall, result: &ToolResult, pen: &mut Pen<'_>);

    /// Returns whether a conversation in which tools were called has to define them, also where none may be called.
    fn defines_tools(&self) -> bool {
        false
    }

    /// Returns whether the end of the conversation is marked for the provider's cache.
    fn marks(&self) -> bool {
        false
    }

    /// Writes everything after the conversation.
    fn tail(&self, frame: &Frame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>);

    /// Returns a reader for a reply that is streamed.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Reads a reply that came in one piece.
    fn whole(&self, body: &str) -> Result<Draft, Fault>;

    /// Returns what an error of this provider means, where the words that all of them use don't say.
    fn kind(&self, _: &ApiError) -> Option<FaultKind> {
        None
    }
}

/// What goes along with a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The system prompt.
    pub(super) system: &'a str,
    /// The tools.
    pub(super) tools: &'a [ToolSpec],
    /// Whether the model may call them now.
    pub(super) calls: Calls,
    /// The JSON Schema of the final answer.
    pub(super) schema: Option<&'a Value>,
}

/// Whether tools may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Calls {
    /// As the model likes.
    #[default]
    Allowed,
    /// None: the tools are defined for the sake of earlier calls.
    Off,
}

/// Reads a reply that is streamed.
pub(super) trait Decoder: Send {
    /// Takes in one event.
    fn event(&mut self, event: Event<'_>, said: &mut Said) -> Result<(), Fault>;

    /// Returns whether the terminal event has come.
    fn is_complete(&self) -> bool;

    /// Returns the reply, when it is complete at the end of the stream.
    fn end(self: Box<Self>) -> Result<Draft, Fault>;
}

/// Returns the `type` of an object, and decodes nothing else of it; `None` where it has none, or is no object. `is_foreign`
/// says that it may also be no JSON at all.
pub(super) fn typed(json: &str, is_foreign: bool) -> Result<Option<Cow<'_, str>>, Fault> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type", borrow, default, deserialize_with = "lenient::text")]
        kind: Option<Text<'a>>,
    }
    if json.trim_start().starts_with('{') {
        match serde_json::from_str::<Typed<'_>>(json) {
            Ok(typed) => Ok(typed.kind.map(|kind| kind.0)),
            Err(_) if is_foreign => Ok(None),
            Err(error) => Err(bad_json(&error)),
        }
    } else if is_foreign || json.trim().is_empty() {
        Ok(None)
    } else {
        serde_json::from_str(json).map(|IgnoredAny| None).map_err(|error| bad_json(&error))
    }
}

/// Returns the fault of a stream that ended before its terminal event.
pub(super) fn cut_off() -> Fault {
    Fault::new(FaultKind::Truncated, "the reply ended before its terminal event")
}

/// Returns the fault of a reply that breaks its own protocol.
pub(super) fn broken(what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Protocol, format!("the reply breaks its protocol: {what}"))
}

/// Returns the fault of JSON that is none; one that ends too early was cut off.
pub(super) fn bad_json(error: &serde_json::Error) -> Fault {
    if error.is_eof() { cut_off() } else { broken(error) }
}
