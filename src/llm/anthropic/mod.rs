//! Anthropic Messages, and the servers that offer the same interface.

pub(super) mod binding;
mod block;
mod encode;
mod read;

use std::sync::Arc;

use super::decode::Draft;
use super::encode::Pen;
use super::wire::{Decoder, Frame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The version of the interface that is spoken here.
pub(super) const VERSION: &str = "2023-06-01";

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Anthropic {
    /// What marks the blocks that only this model understands: signatures of thoughts are refused by any other.
    pub(super) name: Arc<str>,
    pub(super) model: String,
    /// Whether replies are streamed.
    pub(super) streams: bool,
    /// Whether the provider's cache is used.
    pub(super) caches: bool,
    /// The output limit where none is asked for; this interface has to have one.
    pub(super) max_output: Tokens,
}

impl Wire for Anthropic {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn head(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        encode::head(self, frame, out);
    }

    fn user(&self, text: &str, pen: &mut Pen<'_>) {
        encode::user(text, pen);
    }

    fn reply(&self, reply: &Reply, pen: &mut Pen<'_>) {
        encode::reply(self, reply, pen);
    }

    fn answer(&self, _: &ToolCall, result: &ToolResult, pen: &mut Pen<'_>) {
        encode::answer(result, pen);
    }

    /// Otherwise: "Requests which include `tool_use` or `tool_result` blocks must define tools."
    fn defines_tools(&self) -> bool {
        true
    }

    fn marks(&self) -> bool {
        self.caches
    }

    fn tail(&self, frame: &Frame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(frame, max_output.unwrap_or(self.max_output), out);
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(read::Reader::default())
    }

    fn whole(&self, body: &str) -> Result<Draft, Fault> {
        read::whole(body)
    }
}
