//! What a wire format has to be able to do; the exchange itself is the same for all of them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::decode::{DecodedReply, DeltaBuffer, JsonText, lenient};
use super::encode::MessageWriter;
use super::fault::ApiError;
use crate::model::{ConversationItem, Fault, FaultKind, Reply, Tokens, ToolCall, ToolResult};
use crate::net::sse::SseEvent;
use crate::port::ToolSpec;

/// A wire format: how a conversation is written, and how a reply is read.
pub(super) trait Wire: Send + Sync {
    /// Returns what marks the blocks that only this wire and this model understand.
    fn id(&self) -> &Arc<str>;

    /// Writes everything up to the conversation.
    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>);

    /// Writes an entry of the conversation.
    fn encode_item(&self, item: &ConversationItem, pen: &mut MessageWriter<'_>) {
        match item {
            ConversationItem::User(message) => self.encode_user(&message.text, pen),
            ConversationItem::Assistant(reply) => self.encode_reply(reply, pen),
            ConversationItem::Exchange(exchange) => {
                self.encode_reply(exchange.reply(), pen);
                for (call, result) in exchange.reply().calls().zip(exchange.results()) {
                    self.encode_tool_result(call, result, pen);
                }
            }
        }
    }

    /// Writes a message of the user.
    fn encode_user(&self, text: &str, pen: &mut MessageWriter<'_>);

    /// Writes a reply of the model.
    fn encode_reply(&self, reply: &Reply, pen: &mut MessageWriter<'_>);

    /// Writes the answer to a call.
    fn encode_tool_result(&self, call: &ToolCall, result: &ToolResult, pen: &mut MessageWriter<'_>);

    /// Returns whether a conversation in which tools were called has to define them, also where none may be called.
    fn needs_tool_definitions(&self) -> bool {
        false
    }

    /// Returns whether the end of the conversation is marked for the provider's cache.
    fn has_cache_marks(&self) -> bool {
        false
    }

    /// Writes everything after the conversation.
    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>);

    /// Returns a reader for a reply that is streamed.
    fn reader(&self) -> Box<dyn ReplyReader>;

    /// Reads a reply that came in one piece.
    fn read_body(&self, body: &str) -> Result<DecodedReply, Fault>;

    /// Returns what an error of this provider means, where the words that all of them use don't say.
    fn classify_error(&self, _: &ApiError) -> Option<FaultKind> {
        None
    }
}

/// What goes along with a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFrame<'a> {
    /// The system prompt.
    pub(super) system: &'a str,
    /// The tools.
    pub(super) tools: &'a [ToolSpec],
    /// Whether the model may call them now.
    pub(super) tool_choice: ToolChoice,
    /// The JSON Schema of the final answer.
    pub(super) schema: Option<&'a Value>,
}

/// Whether tools may be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// None: the tools are defined for the sake of earlier calls.
    Disabled,
}

/// Reads a reply that is streamed.
pub(super) trait ReplyReader: Send {
    /// Takes in one event.
    fn push(&mut self, event: SseEvent<'_>, said: &mut DeltaBuffer) -> Result<(), Fault>;

    /// Returns whether the terminal event has come.
    fn is_complete(&self) -> bool;

    /// Returns the reply, when it is complete at the end of the stream.
    fn finish(self: Box<Self>) -> Result<DecodedReply, Fault>;
}

/// Returns the `type` of an object, and decodes nothing else of it; `None` where it has none, or is no object. `is_foreign`
/// says that it may also be no JSON at all.
pub(super) fn event_type(json: &str, is_foreign: bool) -> Result<Option<Cow<'_, str>>, Fault> {
    #[derive(Deserialize)]
    struct TypeField<'a> {
        #[serde(rename = "type", borrow, default, deserialize_with = "lenient::text")]
        kind: Option<JsonText<'a>>,
    }
    if json.trim_start().starts_with('{') {
        match serde_json::from_str::<TypeField<'_>>(json) {
            Ok(typed) => Ok(typed.kind.map(|kind| kind.0)),
            Err(_) if is_foreign => Ok(None),
            Err(error) => Err(json_fault(&error)),
        }
    } else if is_foreign || json.trim().is_empty() {
        Ok(None)
    } else {
        serde_json::from_str(json).map(|IgnoredAny| None).map_err(|error| json_fault(&error))
    }
}

/// Returns the fault of a stream that ended before its terminal event.
pub(super) fn truncated_fault() -> Fault {
    Fault::new(FaultKind::Truncated, "the reply ended before its terminal event")
}

/// Returns the fault of a reply that breaks its own protocol.
pub(super) fn protocol_fault(what: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Protocol, format!("the reply breaks its protocol: {what}"))
}

/// Returns the fault of JSON that is none; one that ends too early was cut off.
pub(super) fn json_fault(error: &serde_json::Error) -> Fault {
    if error.is_eof() { truncated_fault() } else { protocol_fault(error) }
}
