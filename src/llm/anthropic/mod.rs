//! Anthropic Messages, and the servers that offer the same interface.

mod block;
mod encode;
mod read;
pub(super) mod thought_binding;

use std::sync::Arc;

use super::decode::DecodedReply;
use super::encode::MessageWriter;
use super::wire::{ReplyReader, RequestFrame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The version of the interface that is spoken here.
pub(super) const API_VERSION: &str = "2023-06-01";

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Anthropic {
    /// What marks the blocks that only this model understands: signatures of thoughts are refused by any other.
    pub(super) id: Arc<str>,
    pub(super) model: String,
    /// Whether replies are streamed.
    pub(super) is_streaming: bool,
    /// Whether the provider's cache is used.
    pub(super) uses_cache: bool,
    /// The output limit where none is asked for; this interface has to have one.
    pub(super) default_max_output: Tokens,
}

impl Wire for Anthropic {
    fn id(&self) -> &Arc<str> {
        &self.id
    }

    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        encode::head(self, frame, out);
    }

    fn encode_user(&self, text: &str, pen: &mut MessageWriter<'_>) {
        encode::user(text, pen);
    }

    fn encode_reply(&self, reply: &Reply, pen: &mut MessageWriter<'_>) {
        encode::reply(self, reply, pen);
    }

    fn encode_tool_result(&self, _: &ToolCall, result: &ToolResult, pen: &mut MessageWriter<'_>) {
        encode::tool_result(result, pen);
    }

    /// Otherwise: "Requests which include `tool_use` or `tool_result` blocks must define tools."
    fn needs_tool_definitions(&self) -> bool {
        true
    }

    fn has_cache_marks(&self) -> bool {
        self.uses_cache
    }

    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(frame, max_output.unwrap_or(self.default_max_output), out);
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(read::Reader::default())
    }

    fn read_body(&self, body: &str) -> Result<DecodedReply, Fault> {
        read::read_body(body)
    }
}
