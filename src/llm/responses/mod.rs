//! OpenAI Responses, without state at the provider: every request carries the whole conversation, with the reasoning items
//! that the provider encrypted and the phases that it gave to messages.

mod encode;
mod item;
mod read;

use std::sync::Arc;

use super::decode::DecodedReply;
use super::encode::MessageWriter;
use super::wire::{ReplyReader, RequestFrame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Responses {
    /// What marks the items that only this model understands.
    pub(super) id: Arc<str>,
    pub(super) model: String,
    pub(super) host: ResponsesHost,
    /// Whether replies are streamed.
    pub(super) is_streaming: bool,
    /// What requests of one session have in common, for the provider's cache.
    pub(super) cache_key: Option<String>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsesHost {
    /// OpenAI itself, which knows all of its options.
    OpenAi,
    /// Somebody else, who may refuse what is not essential.
    Other,
}

impl Wire for Responses {
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

    fn encode_tail(&self, _: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(max_output, out);
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(read::Reader::default())
    }

    fn read_body(&self, body: &str) -> Result<DecodedReply, Fault> {
        read::read_body(body)
    }
}
