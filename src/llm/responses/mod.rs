//! OpenAI Responses, without state at the provider: every request carries the whole conversation, with the reasoning items
//! that the provider encrypted and the phases that it gave to messages.

mod encode;
mod item;
mod read;

use std::sync::Arc;

use super::decode::Draft;
use super::encode::Pen;
use super::wire::{Decoder, Frame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Responses {
    /// What marks the items that only this model understands.
    pub(super) name: Arc<str>,
    pub(super) model: String,
    pub(super) host: Host,
    /// Whether replies are streamed.
    pub(super) streams: bool,
    /// What requests of one session have in common, for the provider's cache.
    pub(super) cache_key: Option<String>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// OpenAI itself, which knows all of its options.
    OpenAi,
    /// Somebody else, who may refuse what is not essential.
    Other,
}

impl Wire for Responses {
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

    fn tail(&self, _: &Frame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(max_output, out);
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(read::Reader::default())
    }

    fn whole(&self, body: &str) -> Result<Draft, Fault> {
        read::whole(body)
    }
}
