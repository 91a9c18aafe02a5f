//! Reading a reply, streamed or as one document.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::decode::{
    DecodedPart, DecodedReply, DeltaBuffer, FinishReason, JsonText, TokenCount, lenient,
};
use crate::llm::fault::{is_error, reply_error};
use crate::llm::wire::{ReplyReader, event_type, parse_json, protocol_fault, truncated_fault};
use crate::model::{Fault, FaultKind, ReplyFinish, Tokens, Usage};
use crate::net::sse;

/// Reads a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    parts: Vec<DecodedPart>,
    finish: Option<ReplyFinish>,
    usage: Option<Usage>,
    model: Option<String>,
    /// Whether the reply is complete even without a finish reason.
    is_done: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::objects")]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    prompt_feedback: Option<PromptFeedback<'a>>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage_metadata: Option<ReportedUsage>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    model_version: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: TokenCount,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    content: Option<CandidateContent<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    finish_reason: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    finish_message: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
struct CandidateContent<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentPart<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    thought: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thought_signature: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    function_call: Option<FunctionCallPart<'a>>,
}

#[derive(Deserialize)]
struct FunctionCallPart<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<JsonText<'a>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    block_reason: Option<JsonText<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
#[allow(clippy::struct_field_names)] // the provider's names
struct ReportedUsage {
    prompt_token_count: TokenCount,
    tool_use_prompt_token_count: TokenCount,
    cached_content_token_count: TokenCount,
    candidates_token_count: TokenCount,
    thoughts_token_count: TokenCount,
}

/// Reads a reply that is one JSON document: a chunk, or a list of chunks.
pub(super) fn read_body(body: &str) -> Result<DecodedReply, Fault> {
    let chunks: Vec<&RawValue> = match body.trim_start().starts_with('[') {
        true => parse_json(body)?,
        false => vec![parse_json(body)?],
    };
    let (mut reader, mut deltas) = (Reader::default(), DeltaBuffer::default());
    for chunk in chunks {
        reader.apply_chunks(chunk.get(), &mut deltas)?;
    }
    if reader.finish.is_none() && reader.parts.is_empty() {
        return Err(Fault::new(FaultKind::NotAnApi, "the response has no candidate"));
    }
    reader.is_done = true;
    Box::new(reader).finish()
}

impl Reader {
    fn apply_chunks(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        match json.trim_start().as_bytes().first() {
            Some(b'{') => self.apply_chunk(json, deltas),
            Some(b'[') => {
                let chunks: Vec<&RawValue> = parse_json(json)?;
                chunks.into_iter().try_for_each(|chunk| self.apply_chunks(chunk.get(), deltas))
            }
            // Not a chunk, but possibly incomplete JSON.
            _ => event_type(json, false).map(drop),
        }
    }

    fn apply_chunk(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        let chunk: Chunk<'_> = parse_json(json)?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            return Err(reply_error(error.get()));
        }
        self.model =
            self.model.take().or_else(|| chunk.model_version.and_then(JsonText::non_empty));
        self.usage = chunk.usage_metadata.and_then(ReportedUsage::usage).or(self.usage);
        if chunk.prompt_feedback.and_then(|feedback| feedback.block_reason).is_some() {
            self.finish = Some(ReplyFinish::Refused);
        }
        let first = |candidate: &Candidate<'_>| candidate.index.0.unwrap_or(0) == 0;
        for candidate in chunk.candidates.unwrap_or_default().into_iter().filter(first) {
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                self.apply_part(part, deltas)?;
            }
            if let Some(reason) = candidate.finish_reason {
                let message =
                    candidate.finish_message.and_then(JsonText::non_empty).unwrap_or_default();
                self.finish = parse_finish(&reason.0, &message)?.or(self.finish.take());
            }
        }
        Ok(())
    }

    fn apply_part(&mut self, json: &RawValue, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        if !json.get().starts_with('{') {
            return Ok(());
        }
        let part: ContentPart<'_> = parse_json(json.get())?;
        let ContentPart { text, thought, thought_signature, function_call } = part;
        let text = text.map(|text| text.0);
        if thought.is_some_and(|thought| thought.get() == "true") {
            deltas.reasoning.push_str(&text.unwrap_or_default());
            if thought_signature.is_some() {
                self.parts.push(DecodedPart::Opaque(json.get().to_owned()));
            }
            return Ok(());
        }
        let is_known = text.is_some() || function_call.is_some();
        if let (Some(signature), true) = (thought_signature, is_known) {
            self.parts.push(DecodedPart::Opaque(format!(r#"{{"thoughtSignature":{signature}}}"#)));
        }
        match (text, function_call) {
            (Some(text), None) => {
                deltas.text.push_str(&text);
                match self.parts.last_mut().filter(|_| thought_signature.is_none()) {
                    Some(DecodedPart::Text(before)) => before.push_str(&text),
                    _ => self.parts.push(DecodedPart::Text(text.into_owned())),
                }
            }
            (_, Some(FunctionCallPart { id, name, args })) => {
                let name = name.and_then(JsonText::non_empty);
                let name = name.ok_or_else(|| protocol_fault("a tool call has no name"))?;
                let arguments = args.map_or("", RawValue::get);
                let arguments = if arguments == "null" { "" } else { arguments }.to_owned();
                deltas.add_hidden(&arguments);
                let id = id.and_then(JsonText::non_empty).unwrap_or_default();
                self.parts.push(DecodedPart::Call { id, name, arguments });
            }
            // Unknown parts are sent back unchanged.
            (None, None) => self.parts.push(DecodedPart::Opaque(json.get().to_owned())),
        }
        Ok(())
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: sse::SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        match event.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                self.is_done = true;
                Ok(())
            }
            data => self.apply_chunks(data, deltas),
        }
    }

    /// Always `false`: some models send a finish reason with every chunk, so only the end of the stream is terminal.
    fn is_complete(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply, Fault> {
        let Self { parts, finish, usage, model, is_done } = *self;
        let finish = finish.or_else(|| is_done.then(|| FinishReason::infer(&parts)));
        let finish = finish.ok_or_else(truncated_fault)?;
        let has_calls = parts.iter().any(|part| matches!(part, DecodedPart::Call { .. }));
        let finish =
            if finish == ReplyFinish::Stop && has_calls { ReplyFinish::ToolCalls } else { finish };
        Ok(DecodedReply { parts, finish, usage, model })
    }
}

impl ReportedUsage {
    fn usage(self) -> Option<Usage> {
        let input = Tokens(self.prompt_token_count.0?) + self.tool_use_prompt_token_count.tokens();
        let thoughts = self.thoughts_token_count.tokens();
        Some(Usage {
            input,
            output: self.candidates_token_count.tokens() + thoughts,
            cached_input: self.cached_content_token_count.tokens(),
            cache_write: Tokens::ZERO,
            reasoning: thoughts,
            is_estimated: false,
        })
    }
}

/// Returns the finish reason, or the fault of a reply without usable content.
fn parse_finish(reason: &str, message: &str) -> Result<Option<ReplyFinish>, Fault> {
    let fault = |kind| {
        let text = format!("the model's reply ended with {reason} {message}");
        Err(Fault::new(kind, text.trim_end().to_owned()))
    };
    Ok(Some(match reason {
        "CONTINUATION" => ReplyFinish::Length,
        "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "ESCALATION"
        | "MODEL_ARMOR"
        | "PUP_LIMITED_DISABLED" => ReplyFinish::Refused,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
            return fault(FaultKind::Protocol);
        }
        "MISSING_THOUGHT_SIGNATURE" => return fault(FaultKind::Request),
        other => return FinishReason::parse(other).into_finish(other),
    }))
}
