//! Google's Gemini: `generateContent` and `streamGenerateContent`.

mod encode;
mod read;

use std::sync::Arc;

use super::decode::DecodedReply;
use super::encode::MessageWriter;
use super::wire::{ReplyReader, RequestFrame, Wire};
use crate::model::{Fault, Reply, Tokens, ToolCall, ToolResult};

/// The wire format, for one model.
#[derive(Debug)]
pub(super) struct Gemini {
    /// What marks the signatures that only this model understands.
    pub(super) id: Arc<str>,
    pub(super) model: String,
    /// Whether replies are streamed.
    pub(super) is_streaming: bool,
}

impl Gemini {
    /// Returns the path of a request below the address of the interface.
    pub(super) fn request_path(&self) -> String {
        let (model, verb) = (
            &self.model,
            match self.is_streaming {
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
    fn is_before_third_generation(&self) -> bool {
        let name = self.model.rsplit('/').next().unwrap_or(&self.model);
        ["gemini-1", "gemini-2", "gemma"].iter().any(|old| name.starts_with(old))
    }
}

impl Wire for Gemini {
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

    fn encode_tool_result(
        &self,
        call: &ToolCall,
        result: &ToolResult,
        pen: &mut MessageWriter<'_>,
    ) {
        encode::tool_result(call, result, pen);
    }

    fn encode_tail(&self, frame: &RequestFrame<'_>, max_output: Option<Tokens>, out: &mut Vec<u8>) {
        encode::tail(self, frame, max_output, out);
    }

    fn reader(&self) -> Box<dyn ReplyReader> {
        Box::new(read::Reader::default())
    }

    fn read_body(&self, body: &str) -> Result<DecodedReply, Fault> {
        read::read_body(body)
    }
}
