//! OpenAI Chat Completions, and the servers that speak it more or less.
//!
//! How a server differs from OpenAI's is a row of the table in [`quirks`], never a condition in the code.

mod delta;
mod encode;
mod quirks;
mod read;

use std::sync::Arc;

use super::decode::Draft;
use super::encode::Pen;
use super::wire::{Decoder, Frame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

pub(super) use quirks::Quirks;

/// The wire format, for one model of one server.
#[derive(Debug)]
pub(super) struct Chat {
    /// What marks the blocks that only this model understands.
    pub(super) name: Arc<str>,
    pub(super) model: String,
    pub(super) quirks: &'static Quirks,
    /// Whether replies are streamed.
    pub(super) streams: bool,
    /// What requests of one session have in common, for the provider's cache.
    pub(super) cache_key: Option<String>,
}

impl Wire for Chat {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn head(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        encode::head(self, frame, out);
    }

    fn user(&self, text: &str, pen: &mut Pen<'_>) {
        encode::user(self, text, pen);
    }

    fn reply(&self, reply: &Reply, pen: &mut Pen<'_>) {
        encode::reply(self, reply, pen);
    }

    fn answer(&self, _: &ToolCall, result: &ToolResult, pen: &mut Pen<'_>) {
        encode::answer(self, result, pen);
    }

    fn tail(&self, _: &Frame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(self, max_output, out);
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(read::Reader::new(self.quirks))
    }

    fn whole(&self, body: &str) -> Result<Draft, Fault> {
        read::whole(self.quirks, body)
    }
}
