//! Google's Gemini: `generateContent` and `streamGenerateContent`.

mod encode;
mod read;

use std::sync::Arc;

use super::decode::Draft;
use super::encode::Pen;
use super::wire::{Decoder, Frame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Gemini {
    /// What marks the signatures that only this model understands.
    pub(super) name: Arc<str>,
    pub(super) model: String,
    /// Whether replies are streamed.
    pub(super) streams: bool,
}

impl Gemini {
    /// Returns the path of a request below the address of the interface.
    pub(super) fn path(&self) -> String {
        let (model, verb) = (
            &self.model,
            match self.streams {
                true => "streamGenerateContent?alt=sse",
                false => "generateContent",
            },
        );
        match model.contains('/') {
            true => format!("/{model}:{verb}"),
            false => format!("/models/{model}:{verb}"),
        }
    }

    /// Returns whether the model is of the generations before the third, which know neither mandatory signatures nor a
    /// schema beside tools.
    fn is_old(&self) -> bool {
        let name = self.model.rsplit('/').next().unwrap_or(&self.model);
        ["gemini-1", "gemini-2", "gemma"].iter().any(|old| name.starts_with(old))
    }
}

impl Wire for Gemini {
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

    fn answer(&self, call: &ToolCall, result: &ToolResult, pen: &mut Pen<'_>) {
        encode::answer(call, result, pen);
    }

    fn tail(&self, frame: &Frame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(self, frame, max_output, out);
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(read::Reader::default())
    }

    fn whole(&self, body: &str) -> Result<Draft, Fault> {
        read::whole(body)
    }
}
