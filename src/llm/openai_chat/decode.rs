//! Reads a reply, streamed or as one document.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::delta::{CallDelta, Chunk, MessageDelta, parse_usage};
use super::quirks::{Quirks, ReasoningEcho};
use crate::llm::decode::{
    DecodedPart, DecodedReply, DeltaBuffer, FinishReason, append, text_or_json,
};
use crate::llm::fault::{ApiError, classify_stream_error, is_error, reply_error};
use crate::llm::wire::{
    ReplyReader, Result, json_type, parse_json, protocol_fault, truncated_fault,
};
use crate::net::sse::SseEvent;
use crate::types::{Fault, FaultKind, ReplyFinish, Usage};

/// Reads a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    quirks: Quirks,
    form: ReplyForm,
    text: String,
    reasoning: String,
    details: Vec<Value>,
    calls: Vec<CallBuilder>,
    finish: Option<ReplyFinish>,
    is_refused: bool,
    usage: Option<Usage>,
    model: Option<String>,
    is_done: bool,
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReplyForm {
    /// Streamed deltas; a message in addition to them is the reply so far.
    #[default]
    Streamed,
    /// A single document with a message.
    Complete,
}

/// A tool call under construction.
#[derive(Debug)]
struct CallBuilder {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Reader {
    pub(super) fn new(quirks: Quirks) -> Self {
        Self { quirks, ..Self::default() }
    }

    fn apply_chunk(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result {
        if !json.trim_start().starts_with('{') {
            // Not a chunk, but possibly incomplete JSON.
            return json_type(json).map(drop);
        }
        let chunk: Chunk<'_> = parse_json(json)?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            return Err(reply_error(error.get()));
        }
        if chunk.object.as_str() == "error" {
            return Err(reply_error(json));
        }
        self.model = self.model.take().or_else(|| chunk.model.non_empty());
        if let Some(reported) = chunk.usage.or(chunk.x_groq.0.and_then(|groq| groq.usage)) {
            self.usage = parse_usage(reported.get()).or(self.usage);
        }
        for choice in chunk.choices.objects().filter(|choice| choice.index.0.unwrap_or(0) == 0) {
            if let Some(error) = choice.error.filter(|error| is_error(error)) {
                return Err(reply_error(error.get()));
            }
            let reason = choice.finish_reason.as_str();
            let finish = FinishReason::parse(reason).into_finish(reason)?;
            let content = self.new_content(choice.delta.0, choice.message.0, finish.is_some());
            self.apply_delta(content.unwrap_or_default(), deltas)?;
            self.finish = finish.or(self.finish.take());
        }
        Ok(())
    }

    /// Returns the new content of a choice. In a stream, this is the delta. A message is the reply so far, and counts
    /// only if nothing was received before.
    fn new_content<'a>(
        &self,
        delta: Option<MessageDelta<'a>>,
        message: Option<MessageDelta<'a>>,
        is_last: bool,
    ) -> Option<MessageDelta<'a>> {
        let has_begun = !self.text.is_empty() || !self.calls.is_empty();
        match (self.form, delta, message) {
            (_, only, None) | (ReplyForm::Complete, None, only) => only,
            (ReplyForm::Complete, Some(delta), Some(message)) => {
                Some(if message.is_empty() { delta } else { message })
            }
            (ReplyForm::Streamed, Some(delta), Some(_))
                if has_begun || !is_last || !delta.is_empty() =>
            {
                Some(delta)
            }
            (ReplyForm::Streamed, Some(_), message) => message,
            (ReplyForm::Streamed, None, Some(message)) => {
                // The last chunk may repeat the whole reply.
                let is_again = has_begun && is_last && message.content.text == self.text;
                (!is_again).then_some(message)
            }
        }
    }

    fn apply_delta(&mut self, delta: MessageDelta<'_>, deltas: &mut DeltaBuffer) -> Result {
        let thought = delta.reasoning_content.0.or(delta.reasoning.0).unwrap_or_default().0;
        for thought in [&*thought, &*delta.content.reasoning] {
            deltas.add_reasoning(thought);
            self.reasoning.push_str(thought);
        }
        let refusal = delta.refusal.as_str();
        self.is_refused |= !refusal.is_empty();
        for text in [&*delta.content.text, refusal] {
            deltas.add_text(text);
        }
        append(&mut self.text, delta.content.text);
        self.text.push_str(refusal);
        if let Some(details) = delta.reasoning_details
            && self.quirks.reasoning_echo == ReasoningEcho::Details
        {
            merge_reasoning(&mut self.details, parse_json(details.get())?);
        }
        delta.tool_calls.objects().try_for_each(|call| self.apply_call_delta(call, deltas))
    }

    /// Applies a delta of a tool call. A delta with a name starts a call.
    fn apply_call_delta(&mut self, delta: CallDelta<'_>, deltas: &mut DeltaBuffer) -> Result {
        let (index, id) = (delta.index.0, delta.id.as_str());
        let function = delta.function.0.unwrap_or_default();
        let name = function.name.as_str();
        let arguments = text_or_json(function.arguments).map_err(protocol_fault)?;
        deltas.add_hidden(&arguments);
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        match known.map(|at| &mut self.calls[at]) {
            None => {}
            Some(call) if name.is_empty() => {
                call.arguments.push_str(&arguments);
                return Ok(());
            }
            // Some servers send no indexes, so that every name starts a call.
            Some(_) if index.is_none() && !self.quirks.has_strict_indexes => {}
            // Other servers send the index 0 for every call, but only after the previous call is complete.
            Some(call)
                if !self.quirks.has_strict_indexes
                    && serde_json::from_str::<&RawValue>(&call.arguments).is_ok()
                    && (id.is_empty() || id != call.id)
                    && (!id.is_empty() || call.id.is_empty()) => {}
            Some(_) => {
                let index = index.map_or_else(String::new, |index| format!(" {index}"));
                return Err(protocol_fault(format!("tool call{index} begins twice")));
            }
        }
        self.check_new_call(index, name)?;
        let (id, name) = (id.to_owned(), name.to_owned());
        self.calls.push(CallBuilder { index, id, name, arguments: arguments.into_owned() });
        Ok(())
    }

    fn check_new_call(&self, index: Option<u64>, name: &str) -> Result {
        if name.is_empty() {
            return Err(protocol_fault("a piece of a tool call comes before its name"));
        }
        let last = self.calls.iter().filter_map(|call| call.index).max();
        match index {
            None if self.quirks.has_strict_indexes => {
                Err(protocol_fault("a tool call has no index"))
            }
            Some(index)
                if index < last.unwrap_or(0)
                    || (self.quirks.has_strict_indexes && index != self.calls.len() as u64) =>
            {
                Err(protocol_fault(format!("tool call {index} is out of order")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the reasoning to send back to the server.
    fn reasoning_block(&mut self) -> Option<String> {
        let fields = match self.quirks.reasoning_echo {
            ReasoningEcho::Content if !self.reasoning.is_empty() => {
                json!({"reasoning_content": self.reasoning})
            }
            ReasoningEcho::Details if !self.details.is_empty() => {
                json!({"reasoning_details": std::mem::take(&mut self.details)})
            }
            ReasoningEcho::Omitted | ReasoningEcho::Content | ReasoningEcho::Details => {
                return None;
            }
        };
        Some(fields.to_string())
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result {
        match event.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                self.is_done = true;
                Ok(())
            }
            data if event.name == "error" => {
                let error: Option<Value> = serde_json::from_str(data).ok();
                let error = error.as_ref().and_then(|error| {
                    ApiError::find(error).or_else(|| ApiError::from_value(error))
                });
                let raw = || ApiError { message: data.to_owned(), ..ApiError::default() };
                Err(classify_stream_error(&error.unwrap_or_else(raw)))
            }
            data => self.apply_chunk(data, deltas),
        }
    }

    fn read_document(&mut self, body: &str) -> Result {
        // A complete reply has no indexes.
        self.quirks.has_strict_indexes = false;
        self.form = ReplyForm::Complete;
        self.apply_chunk(body, &mut DeltaBuffer::discarded())?;
        if self.finish.is_none() && self.text.is_empty() && self.calls.is_empty() {
            return Err(Fault::new(FaultKind::NotAnApi, "the response has no message"));
        }
        self.is_done = true;
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(mut self: Box<Self>) -> Result<DecodedReply> {
        if !self.is_done && (self.quirks.needs_done || self.finish.is_none()) {
            return Err(truncated_fault());
        }
        let opaque = self.reasoning_block().map(DecodedPart::Opaque);
        let Self { text, calls, finish, is_refused, usage, model, .. } = *self;
        let text = Some(text).filter(|text| !text.is_empty()).map(DecodedPart::Text);
        let part =
            |CallBuilder { id, name, arguments, .. }| DecodedPart::Call { id, name, arguments };
        let calls = calls.into_iter().map(part);
        let parts: Vec<_> = opaque.into_iter().chain(text).chain(calls).collect();
        let finish = match finish.unwrap_or_else(|| FinishReason::infer(&parts)) {
            ReplyFinish::Stop if is_refused => ReplyFinish::Refused,
            finish => finish,
        };
        Ok(DecodedReply { parts, finish, usage, model })
    }
}

/// Adds deltas of reasoning blocks; a delta with the index and type of the last block continues that block.
fn merge_reasoning(blocks: &mut Vec<Value>, deltas: Value) {
    let Value::Array(deltas) = deltas else { return };
    for delta in deltas {
        let same = |block: &&mut Value| {
            block.get("type") == delta.get("type")
                && block.get("index").is_some()
                && block.get("index") == delta.get("index")
        };
        match (blocks.last_mut().filter(same), delta) {
            (Some(Value::Object(block)), Value::Object(delta)) => {
                for (key, value) in delta {
                    match (block.get_mut(&key), value) {
                        (Some(Value::String(whole)), Value::String(more))
                            if ["text", "summary", "data"].contains(&key.as_str()) =>
                        {
                            whole.push_str(&more);
                        }
                        (_, Value::Null) => {}
                        (_, value) => {
                            block.insert(key, value);
                        }
                    }
                }
            }
            (_, delta) => blocks.push(delta),
        }
    }
}
