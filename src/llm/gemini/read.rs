//! Reading a reply, in one piece or as it is streamed.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::llm::decode::{Count, Draft, Piece, Reason, Said, Text, lenient};
use crate::llm::fault::{ApiError, is_error, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off, typed};
use crate::model::{Fault, FaultKind, Finish, Tokens, Usage};
use crate::net::sse;

/// Gathers a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pieces: Vec<Piece>,
    finish: Option<Finish>,
    usage: Option<Usage>,
    model: Option<String>,
    /// Whether something else than a finish reason says that nothing more comes.
    done: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::objects")]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage_metadata: Option<Reported>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    model_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Count,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    content: Option<Content<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    finish_message: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thought: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thought_signature: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    block_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
#[allow(clippy::struct_field_names)] // the provider's names
struct Reported {
    prompt_token_count: Count,
    tool_use_prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
}

/// Reads a reply that came in one piece; a stream that was not asked for as events comes as a list of its chunks.
pub(super) fn whole(body: &str) -> Result<Draft, Fault> {
    let chunks: Vec<&RawValue> = match body.trim_start().starts_with('[') {
        true => serde_json::from_str(body).map_err(|error| bad_json(&error))?,
        false => vec![serde_json::from_str(body).map_err(|error| bad_json(&error))?],
    };
    let (mut reader, mut said) = (Reader::default(), Said::default());
    for chunk in chunks {
        reader.chunk(chunk.get(), &mut said)?;
    }
    if reader.finish.is_none() && reader.pieces.is_empty() {
        return Err(Fault::new(FaultKind::NotAnApi, "the answer has no candidate in it"));
    }
    reader.done = true;
    Box::new(reader).end()
}

impl Reader {
    fn chunk(&mut self, json: &str, said: &mut Said) -> Result<(), Fault> {
        match json.trim_start().as_bytes().first() {
            Some(b'{') => self.object(json, said),
            Some(b'[') => {
                let chunks: Vec<&RawValue> =
                    serde_json::from_str(json).map_err(|error| bad_json(&error))?;
                chunks.into_iter().try_for_each(|chunk| self.chunk(chunk.get(), said))
            }
            // No chunk of a reply, but it may be one of JSON.
            _ => typed(json, false).map(drop),
        }
    }

    fn object(&mut self, json: &str, said: &mut Said) -> Result<(), Fault> {
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|error| bad_json(&error))?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            let error: Option<Value> = serde_json::from_str(error.get()).ok();
            let error = error.as_ref().and_then(ApiError::read).unwrap_or_default();
            return Err(judge_event(&error, |_| None));
        }
        self.model = self.model.take().or_else(|| chunk.model_version.and_then(Text::filled));
        self.usage = chunk.usage_metadata.and_then(Reported::usage).or(self.usage);
        if chunk.prompt_feedback.and_then(|feedback| feedback.block_reason).is_some() {
            self.finish = Some(Finish::Refused);
        }
        let first = |candidate: &Candidate<'_>| candidate.index.0.unwrap_or(0) == 0;
        for candidate in chunk.candidates.unwrap_or_default().into_iter().filter(first) {
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                self.part(part, said)?;
            }
            if let Some(reason) = candidate.finish_reason {
                let message = candidate.finish_message.and_then(Text::filled).unwrap_or_default();
                self.finish = finish(&reason.0, &message)?.or(self.finish.take());
            }
        }
        Ok(())
    }

    fn part(&mut self, json: &RawValue, said: &mut Said) -> Result<(), Fault> {
        if !json.get().starts_with('{') {
            return Ok(());
        }
        let part: Part<'_> = serde_json::from_str(json.get()).map_err(|error| bad_json(&error))?;
        let Part { text, thought, thought_signature, function_call } = part;
        let text = text.map(|text| text.0);
        if thought.is_some_and(|thought| thought.get() == "true") {
            said.reasoning.push_str(&text.unwrap_or_default());
            if thought_signature.is_some() {
                self.pieces.push(Piece::Opaque(json.get().to_owned()));
            }
            return Ok(());
        }
        let is_known = text.is_some() || function_call.is_some();
        if let (Some(signature), true) = (thought_signature, is_known) {
            self.pieces.push(Piece::Opaque(format!(r#"{{"thoughtSignature":{signature}}}"#)));
        }
        match (text, function_call) {
            (Some(text), None) => {
                said.text.push_str(&text);
                match self.pieces.last_mut().filter(|_| thought_signature.is_none()) {
                    Some(Piece::Text(before)) => before.push_str(&text),
                    _ => self.pieces.push(Piece::Text(text.into_owned())),
                }
            }
            (_, Some(FunctionCall { id, name, args })) => {
                let name = name.and_then(Text::filled);
                let name = name.ok_or_else(|| broken("a tool call has no name"))?;
                let arguments = args.map_or("", RawValue::get);
                let arguments = if arguments == "null" { "" } else { arguments }.to_owned();
                said.silently(&arguments);
                let id = id.and_then(Text::filled).unwrap_or_default();
                self.pieces.push(Piece::Call { id, name, arguments });
            }
            // What this release does not know goes back as it came.
            (None, None) => self.pieces.push(Piece::Opaque(json.get().to_owned())),
        }
        Ok(())
    }
}

impl Decoder for Reader {
    fn event(&mut self, event: sse::Event<'_>, said: &mut Said) -> Result<(), Fault> {
        match event.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                self.done = true;
                Ok(())
            }
            data => self.chunk(data, said),
        }
    }

    /// Some models give a finish reason with every chunk, so that only the end of the stream tells which was the last.
    fn is_complete(&self) -> bool {
        false
    }

    fn end(self: Box<Self>) -> Result<Draft, Fault> {
        let Self { pieces, finish, usage, model, done } = *self;
        let finish = finish.or_else(|| done.then(|| Reason::unsaid(&pieces)));
        let finish = finish.ok_or_else(cut_off)?;
        let has_calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
        let finish = if finish == Finish::Stop && has_calls { Finish::ToolCalls } else { finish };
        Ok(Draft { pieces, finish, usage, model })
    }
}

impl Reported {
    fn usage(self) -> Option<Usage> {
        let input = Tokens(self.prompt_token_count.0?) + self.tool_use_prompt_token_count.tokens();
        let thoughts = self.thoughts_token_count.tokens();
        Some(Usage {
            input,
            output: self.candidates_token_count.tokens() + thoughts,
            cached_input: self.cached_content_token_count.tokens(),
            cache_write: Tokens::ZERO,
            reasoning: thoughts,
            estimated: false,
        })
    }
}

/// Returns why the model stopped, or a fault where it did not get as far as a reply.
fn finish(reason: &str, message: &str) -> Result<Option<Finish>, Fault> {
    let fault = |kind| {
        let text = format!("the model's reply ended with {reason} {message}");
        Err(Fault::new(kind, text.trim_end().to_owned()))
    };
    Ok(Some(match reason {
        "CONTINUATION" => Finish::Length,
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
        | "PUP_LIMITED_DISABLED" => Finish::Refused,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
            return fault(FaultKind::Protocol);
        }
        "MISSING_THOUGHT_SIGNATURE" => return fault(FaultKind::Request),
        other => return Reason::of(other).finish(other),
    }))
}
