//! Reads a reply, streamed or as one document.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::decode::{
    DecodedPart, DecodedReply, DeltaBuffer, FinishReason, List, Object, TextField, TokenCount,
};
use crate::llm::fault::{is_error, reply_error};
use crate::llm::wire::{
    ReplyReader, Result, json_type, parse_json, protocol_fault, truncated_fault,
};
use crate::net::sse::SseEvent;
use crate::types::{Fault, FaultKind, ReplyFinish, Tokens, Usage};

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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: List<Object<Candidate<'a>>>,
    prompt_feedback: Object<PromptFeedback<'a>>,
    usage_metadata: Object<ReportedUsage>,
    model_version: TextField<'a>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate<'a> {
    index: TokenCount,
    #[serde(borrow)]
    content: Object<CandidateContent<'a>>,
    finish_reason: TextField<'a>,
    finish_message: TextField<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CandidateContent<'a> {
    #[serde(borrow)]
    parts: List<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContentPart<'a> {
    #[serde(borrow)]
    text: TextField<'a>,
    thought: Option<&'a RawValue>,
    thought_signature: Option<&'a RawValue>,
    function_call: Object<FunctionCallPart<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionCallPart<'a> {
    #[serde(borrow)]
    id: TextField<'a>,
    name: TextField<'a>,
    args: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: TextField<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_field_names)] // the provider's names
struct ReportedUsage {
    prompt_token_count: TokenCount,
    tool_use_prompt_token_count: TokenCount,
    cached_content_token_count: TokenCount,
    candidates_token_count: TokenCount,
    thoughts_token_count: TokenCount,
}

/// Finish reasons of this provider for refused content.
const REFUSALS: [&str; 11] = [
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ESCALATION",
    "MODEL_ARMOR",
    "PUP_LIMITED_DISABLED",
];

impl Reader {
    /// Reads a chunk, or a list of chunks.
    fn apply_chunks(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result {
        match json.trim_start().as_bytes().first() {
            Some(b'{') => self.apply_chunk(json, deltas),
            Some(b'[') => {
                let chunks: Vec<&RawValue> = parse_json(json)?;
                chunks.into_iter().try_for_each(|chunk| self.apply_chunks(chunk.get(), deltas))
            }
            // Not a chunk, but possibly incomplete JSON.
            _ => json_type(json).map(drop),
        }
    }

    fn apply_chunk(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result {
        let chunk: Chunk<'_> = parse_json(json)?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            return Err(reply_error(error.get()));
        }
        self.model = self.model.take().or_else(|| chunk.model_version.non_empty());
        self.usage = chunk.usage_metadata.0.and_then(ReportedUsage::usage).or(self.usage);
        if chunk.prompt_feedback.0.is_some_and(|feedback| feedback.block_reason.0.is_some()) {
            self.finish = Some(ReplyFinish::Refused);
        }
        for candidate in chunk.candidates.objects().filter(|it| it.index.0.unwrap_or(0) == 0) {
            let content = candidate.content.0.unwrap_or_default();
            for part in content.parts.0.into_iter().flatten() {
                self.apply_part(part.get(), deltas)?;
            }
            let (reason, message) = (candidate.finish_reason, candidate.finish_message);
            let finish = parse_finish(reason.as_str(), message.as_str())?;
            self.finish = finish.or(self.finish.take());
        }
        Ok(())
    }

    fn apply_part(&mut self, json: &str, deltas: &mut DeltaBuffer) -> Result {
        if !json.starts_with('{') {
            return Ok(());
        }
        let ContentPart { text, thought, thought_signature, function_call } = parse_json(json)?;
        if thought.is_some_and(|thought| thought.get() == "true") {
            deltas.add_reasoning(text.as_str());
            if thought_signature.is_some() {
                self.parts.push(DecodedPart::Opaque(json.to_owned()));
            }
            return Ok(());
        }
        let is_known = text.0.is_some() || function_call.0.is_some();
        if let (Some(signature), true) = (thought_signature, is_known) {
            self.parts.push(DecodedPart::Opaque(format!("{SIGNATURE}{signature}}}")));
        }
        match (text.0, function_call.0) {
            (Some(text), None) => {
                deltas.add_text(&text.0);
                let own = match self.parts.as_mut_slice() {
                    // A signed part is sent back alone.
                    [.., DecodedPart::Opaque(json), DecodedPart::Text(_)]
                        if json.starts_with(SIGNATURE) =>
                    {
                        None
                    }
                    [.., DecodedPart::Text(before)] => Some(before),
                    _ => None,
                };
                match own.filter(|_| thought_signature.is_none()) {
                    Some(before) => before.push_str(&text.0),
                    None => self.parts.push(DecodedPart::Text(text.0.into_owned())),
                }
            }
            (_, Some(FunctionCallPart { id, name, args })) => {
                let name =
                    name.non_empty().ok_or_else(|| protocol_fault("a tool call has no name"))?;
                let arguments = args.map_or("", RawValue::get).to_owned();
                deltas.add_hidden(&arguments);
                self.parts.push(DecodedPart::Call { id: id.into_string(), name, arguments });
            }
            // Unknown parts are sent back unchanged.
            (None, None) => self.parts.push(DecodedPart::Opaque(json.to_owned())),
        }
        Ok(())
    }
}

/// The beginning of a stored signature, which belongs to the part after it.
const SIGNATURE: &str = r#"{"thoughtSignature":"#;

impl ReplyReader for Reader {
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result {
        match event.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                self.is_done = true;
                Ok(())
            }
            data => self.apply_chunks(data, deltas),
        }
    }

    fn read_document(&mut self, body: &str) -> Result {
        self.apply_chunks(body, &mut DeltaBuffer::discarded())?;
        if self.finish.is_none() && self.parts.is_empty() {
            return Err(Fault::new(FaultKind::NotAnApi, "the response has no candidate"));
        }
        self.is_done = true;
        Ok(())
    }

    /// Always `false`: some models send a finish reason with every chunk, so only the end of the stream is terminal.
    fn is_complete(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply> {
        let Self { parts, finish, usage, model, is_done } = *self;
        let finish = match finish {
            None if !is_done => return Err(truncated_fault()),
            None | Some(ReplyFinish::Stop) => FinishReason::infer(&parts),
            Some(other) => other,
        };
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
            reasoning: thoughts,
            ..Usage::default()
        })
    }
}

/// Returns the finish reason, or the fault of a reply without usable content.
fn parse_finish(reason: &str, message: &str) -> Result<Option<ReplyFinish>> {
    let fault = |kind| {
        let text = format!("the model's reply ended with {reason} {message}");
        Err(Fault::new(kind, text.trim_end().to_owned()))
    };
    Ok(Some(match reason {
        "CONTINUATION" => ReplyFinish::Length,
        refusal if REFUSALS.contains(&refusal) => ReplyFinish::Refused,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
            return fault(FaultKind::Protocol);
        }
        "MISSING_THOUGHT_SIGNATURE" => return fault(FaultKind::Request),
        other => return FinishReason::parse(other).into_finish(other),
    }))
}
