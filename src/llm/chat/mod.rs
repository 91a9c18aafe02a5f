//! OpenAI Chat Completions, and the servers that speak it more or less.
//!
//! How a server differs from OpenAI's is a row of the table in [`quirks`], never a condition in the code.

mod delta;
mod encode;
mod quirks;
mod read;

use std::sync::Arc;

use super::decode::DecodedReply;
use super::encode::MessageWriter;
use super::wire::{ReplyReader, RequestFrame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

pub(super) use quirks::Quirks;

/// The wire format, for one model of one server.
#[derive(Debug)]
pub(super) struct Chat {
    /// What marks the blocks that only this model understands.
    pub(super) id: Arc<str>,
    pub(super) model: String,
    pub(super) quirks: &'static Quirks,
    /// Whether replies are streamed.
    pub(super) is_streaming: bool,
    /// What requests of one session have in common, for the provider's cache.
    pub(super) cache_key: Option<String>,
}

impl Wire for Chat {
    fn id(&self) -> &Arc<str> {
        &self.id
    }

    fn encode_head(&self, frame: &RequestFrame<'_>, out: &mut Vec<u8>) {
        encode::head(self, frame, out);
    }

    fn encode_user(&self, text: &str, pen: &mut MessageWriter<'_>) {
        encode::user(self, text, pen);
    }

    fn encode_reply(&self, reply: &Reply, pen: &mut MessageWriter<'_>) {
        encode::reply(self, reply, pen);
    }

    fn encode_tool_result(&self, _: &ToolCall, result: &ToolResult, pen: &mut MessageWriter<'_>) {
        encode::tool_result(self, result, pen);
    }

    fn encode_tail(&self, _: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(self, max_output, out);
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(read::Reader::new(self.quirks))
    }

    fn read_body(&self, body: &str) -> Result<DecodedReply, Fault> {
        read::read_body(self.quirks, body)
    }
}
