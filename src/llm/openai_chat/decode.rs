//! Reading a reply, streamed or as one document.

use serde_json::Value;
use serde_json::value::RawValue;

use super::delta::{CallDelta, Choice, Chunk, MessageDelta, parse_usage};
use super::quirks::{CallIndexing, Quirks, ReasoningEcho, StreamEnd};
use crate::llm::decode::{DecodedPart, DecodedReply, DeltaBuffer, FinishReason, JsonText};
use crate::llm::fault::{ApiError, classify_stream_error, is_error, reply_error};
use crate::llm::wire::{ReplyReader, event_type, parse_json, protocol_fault, truncated_fault};
use crate::model::{Fault, FaultKind, ReplyFinish, Usage};
use crate::net::sse::SseEvent;

/// Reads a reply.
#[derive(Debug)]
pub(super) struct Reader {
    quirks: &'static Quirks,
    call_indexing: CallIndexing,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyForm {
    /// Streamed; a message in addition to deltas is the reply so far.
    Streamed,
    /// One document with a message.
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

/// Reads a reply that is one JSON document.
pub(super) fn read_body(quirks: &'static Quirks, body: &str) -> Result<DecodedReply, Fault> {
    // A complete reply has no indexes.
    let mut reader = Reader {
        call_indexing: CallIndexing::Loose,
        form: ReplyForm::Complete,
        ..Reader::new(quirks)
    };
    reader.apply_chunk(body, &mut DeltaBuffer::default())?;
    if reader.finish.is_none() && reader.text.is_empty() && reader.calls.is_empty() {
        return Err(Fault::new(FaultKind::NotAnApi, "the response has no message"));
    }
    reader.is_done = true;
    Box::new(reader).finish()
}

impl Reader {
    pub(super) fn new(quirks: &'static Quirks) -> Self {
        Self {
            quirks,
            call_indexing: quirks.call_indexing,
            form: ReplyForm::Streamed,
            text: String::new(),
            reasoning: String::new(),
            details: Vec::new(),
            calls: Vec::new(),
            finish: None,
            is_refused: false,
            usage: None,
            model: None,
            is_done: false,
        }
    }

    fn apply_chunk(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        if !json.trim_start().starts_with('{') {
            // Not a chunk, but possibly incomplete JSON.
            return event_type(json, false).map(drop);
        }
        let chunk: Chunk<'_> = parse_json(json)?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            return Err(reply_error(error.get()));
        }
        if chunk.object.is_some_and(|object| object.0 == "error") {
            return Err(reply_error(json));
        }
        if let (None, Some(JsonText(model))) = (&self.model, chunk.model) {
            self.model = JsonText(model).non_empty();
        }
        if let Some(reported) = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage)) {
            self.usage = parse_usage(reported.get()).or(self.usage);
        }
        let first = |choice: &Choice<'_>| choice.index.0.unwrap_or(0) == 0;
        for choice in chunk.choices.unwrap_or_default().into_iter().filter(first) {
            if let Some(error) = choice.error.filter(|error| is_error(error)) {
                return Err(reply_error(error.get()));
            }
            let reason = choice.finish_reason.map_or_else(Default::default, |reason| reason.0);
            let finish = parse_finish(&reason)?;
            if let Some(delta) = self.new_content(choice.delta, choice.message, finish.is_some()) {
                self.apply_delta(delta, deltas)?;
            }
            self.finish = finish.or(self.finish.take());
        }
        Ok(())
    }

    /// Returns the new content of a choice. In a stream this is the delta; a message is the reply so far, and counts if
    /// nothing was received before.
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
                let is_again = has_begun && is_last && *message.content.text == *self.text;
                (!is_again).then_some(message)
            }
        }
    }

    fn apply_delta(
        &mut self,
        delta: MessageDelta<'_>,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), Fault> {
        let MessageDelta {
            content,
            refusal,
            reasoning_content,
            reasoning,
            reasoning_details,
            tool_calls,
        } = delta;
        let thought = reasoning_content.or(reasoning).map_or_else(Default::default, |text| text.0);
        for thought in [&*thought, &*content.reasoning] {
            deltas.reasoning.push_str(thought);
            self.reasoning.push_str(thought);
        }
        deltas.text.push_str(&content.text);
        self.text.push_str(&content.text);
        if let Some(JsonText(refusal)) = refusal.filter(|refusal| !refusal.0.is_empty()) {
            deltas.text.push_str(&refusal);
            self.text.push_str(&refusal);
            self.is_refused = true;
        }
        if let Some(details) =
            reasoning_details.filter(|_| self.quirks.reasoning_echo == ReasoningEcho::Details)
        {
            let details: Value = parse_json(details.get())?;
            merge_reasoning(&mut self.details, details);
        }
        tool_calls
            .unwrap_or_default()
            .iter()
            .try_for_each(|call| self.apply_call_delta(call, deltas))
    }

    /// Applies a delta of a tool call. A delta with a name starts a call.
    fn apply_call_delta(
        &mut self,
        delta: &CallDelta<'_>,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), Fault> {
        let id = delta.id.as_ref().map_or("", |id| &*id.0);
        let function = delta.function.as_ref();
        let name = function.and_then(|function| function.name.as_ref()).map_or("", |name| &*name.0);
        let arguments = match function {
            Some(function) => function.arguments().map_err(protocol_fault)?,
            None => "".into(),
        };
        deltas.add_hidden(&arguments);
        let known = match delta.index.0 {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None => self.calls.len().checked_sub(1),
        };
        let begins = match (self.call_indexing, known, delta.index.0) {
            (_, None, _) => true,
            (_, Some(_), _) if name.is_empty() => false,
            (CallIndexing::Strict, Some(_), _) => return Err(duplicate_call_fault(delta.index.0)),
            // Without indexes, every name starts a call.
            (CallIndexing::Loose, Some(_), None) => true,
            // Some servers give every call the index 0, but only after the previous call is complete.
            (CallIndexing::Loose, Some(at), Some(_)) => {
                let call = &self.calls[at];
                let is_whole = serde_json::from_str::<&RawValue>(&call.arguments).is_ok();
                if !is_whole
                    || (!id.is_empty() && id == call.id)
                    || (id.is_empty() && !call.id.is_empty())
                {
                    return Err(duplicate_call_fault(delta.index.0));
                }
                true
            }
        };
        if let Some(at) = known.filter(|_| !begins) {
            self.calls[at].arguments.push_str(&arguments);
        } else {
            self.check_new_call(delta.index.0, name)?;
            self.calls.push(CallBuilder {
                index: delta.index.0,
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.into_owned(),
            });
        }
        Ok(())
    }

    fn check_new_call(&self, index: Option<u64>, name: &str) -> Result<(), Fault> {
        if name.is_empty() {
            return Err(protocol_fault("a piece of a tool call comes before its name"));
        }
        let last = self.calls.iter().filter_map(|call| call.index).max();
        let in_order = match (self.call_indexing, index) {
            (CallIndexing::Strict, index) => index == Some(self.calls.len() as u64),
            (CallIndexing::Loose, None) => true,
            (CallIndexing::Loose, Some(index)) => last.is_none_or(|last| index >= last),
        };
        match (in_order, index) {
            (true, _) => Ok(()),
            (false, Some(index)) => {
                Err(protocol_fault(format!("tool call {index} is out of order")))
            }
            (false, None) => Err(protocol_fault("a tool call has no index")),
        }
    }

    /// Returns the reasoning to send back to the server.
    fn reasoning_block(&mut self) -> Option<String> {
        match self.quirks.reasoning_echo {
            ReasoningEcho::Content if !self.reasoning.is_empty() => {
                Some(serde_json::json!({"reasoning_content": self.reasoning}).to_string())
            }
            ReasoningEcho::Details if !self.details.is_empty() => {
                let details = std::mem::take(&mut self.details);
                Some(serde_json::json!({"reasoning_details": details}).to_string())
            }
            ReasoningEcho::Omitted | ReasoningEcho::Content | ReasoningEcho::Details => None,
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
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

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(mut self: Box<Self>) -> Result<DecodedReply, Fault> {
        let ends = self.is_done
            || (self.quirks.stream_end == StreamEnd::DoneOrFinish && self.finish.is_some());
        if !ends {
            return Err(truncated_fault());
        }
        let opaque = self.reasoning_block().map(DecodedPart::Opaque);
        let Self { text, calls, finish, is_refused, usage, model, .. } = *self;
        let text = Some(text).filter(|text| !text.is_empty()).map(DecodedPart::Text);
        let calls = calls.into_iter().map(|call| DecodedPart::Call {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        });
        let parts: Vec<_> = opaque.into_iter().chain(text).chain(calls).collect();
        let finish = match finish.unwrap_or_else(|| FinishReason::infer(&parts)) {
            ReplyFinish::Stop if is_refused => ReplyFinish::Refused,
            finish => finish,
        };
        Ok(DecodedReply { parts, finish, usage, model })
    }
}

/// Returns the finish reason; `None` for an unspecified one, and a fault for an error.
fn parse_finish(reason: &str) -> Result<Option<ReplyFinish>, Fault> {
    FinishReason::parse(reason).into_finish(reason)
}

fn duplicate_call_fault(index: Option<u64>) -> Fault {
    let index = index.map_or_else(String::new, |index| format!(" {index}"));
    protocol_fault(format!("tool call{index} begins twice"))
}

/// Adds deltas of reasoning blocks; a delta with the index and type of the last block continues it.
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
