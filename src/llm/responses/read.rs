//! Reading a reply, in one piece or as it is streamed.
//!
//! What is streamed of an item is shown as it comes; what counts is the item as it is when it is done.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item::{self, Decoded};
use crate::llm::decode::{Count, Draft, InputDetails, OutputDetails, Piece, Said};
use crate::llm::fault::{ApiError, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off};
use crate::model::{Fault, FaultKind, Finish, Tokens, Usage};
use crate::net::sse;

/// Gathers a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The items, in order; none where one has begun and is not done.
    items: Vec<Option<Decoded>>,
    ended: Option<Ended>,
}

/// How a response ended.
#[derive(Debug)]
struct Ended {
    finish: Finish,
    usage: Option<Usage>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default)]
    output_index: Option<usize>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(default)]
    delta: Option<String>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow, default)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    usage: Option<Reported>,
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reported {
    input_tokens: Count,
    output_tokens: Count,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

/// Reads a reply that came in one piece.
pub(super) fn whole(body: &str) -> Result<Draft, Fault> {
    let response: Response<'_> = serde_json::from_str(body).map_err(|error| bad_json(&error))?;
    if response.output.is_none() {
        return Err(Fault::new(FaultKind::NotAnApi, "the answer has no response in it"));
    }
    let mut reader = Reader::default();
    reader.finish(response)?;
    Box::new(reader).end()
}

impl Reader {
    fn take(
        &mut self,
        kind: &str,
        event: Event<'_>,
        data: &str,
        said: &mut Said,
    ) -> Result<(), Fault> {
        let missing = || broken(format!("an event of type {kind} has not what belongs to it"));
        match kind {
            "response.output_item.added" => {
                let index = event.output_index.ok_or_else(missing)?;
                if index != self.items.len() {
                    return Err(broken(format!("item {index} is out of order")));
                }
                self.items.push(None);
                Ok(())
            }
            "response.output_item.done" => {
                let (index, json) = event.output_index.zip(event.item).ok_or_else(missing)?;
                let decoded = item::read(json)?;
                let count = self.items.len();
                match self.items.get_mut(index) {
                    Some(open @ None) => *open = Some(decoded),
                    // Some servers tell an item only when it is done.
                    None if index == count => self.items.push(Some(decoded)),
                    Some(Some(_)) => return Err(broken(format!("item {index} is done twice"))),
                    None => return Err(broken(format!("item {index} is out of order"))),
                }
                Ok(())
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                said.text.push_str(&event.delta.unwrap_or_default());
                Ok(())
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                said.reasoning.push_str(&event.delta.unwrap_or_default());
                Ok(())
            }
            "response.function_call_arguments.delta" => {
                said.silently(&event.delta.unwrap_or_default());
                Ok(())
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                let json = event.response.ok_or_else(missing)?;
                self.finish(serde_json::from_str(json.get()).map_err(|error| bad_json(&error))?)
            }
            "error" => {
                let error: Value = serde_json::from_str(data).map_err(|error| bad_json(&error))?;
                let nested = error.get("error").filter(|error| error.is_object());
                let found = ApiError::read(nested.unwrap_or(&error)).unwrap_or_default();
                // The type of the event is no kind of error.
                let kind = if nested.is_some() { found.kind.clone() } else { String::new() };
                Err(judge_event(&ApiError { kind, ..found }, |_| None))
            }
            // Beginnings, parts, and what this release does not know.
            _ => Ok(()),
        }
    }

    fn finish(&mut self, response: Response<'_>) -> Result<(), Fault> {
        let Response { status, model, output, usage, incomplete_details, error } = response;
        let reason = incomplete_details.and_then(|details| details.reason);
        let finish = match (status.as_deref(), reason.as_deref()) {
            (Some("failed" | "cancelled"), _) => {
                let error = error.and_then(|error| serde_json::from_str(error.get()).ok());
                let error = error.as_ref().and_then(ApiError::read).unwrap_or_default();
                return Err(judge_event(&error, |_| None));
            }
            (Some("incomplete"), Some("max_output_tokens")) => Finish::Length,
            (Some("incomplete"), Some("content_filter")) => Finish::Refused,
            (Some("incomplete"), reason) => Finish::Other(reason.unwrap_or("incomplete").into()),
            (Some("completed") | None, _) => Finish::Stop,
            (Some(other), _) => Finish::Other(other.into()),
        };
        if self.items.is_empty() {
            // What came in one piece, or from a server that tells nothing item by item.
            for json in output.unwrap_or_default() {
                self.items.push(Some(item::read(json)?));
            }
        }
        self.ended = Some(Ended { finish, usage: usage.and_then(Reported::usage), model });
        Ok(())
    }
}

impl Decoder for Reader {
    fn event(&mut self, event: sse::Event<'_>, said: &mut Said) -> Result<(), Fault> {
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let read: Event<'_> = serde_json::from_str(event.data).map_err(|error| bad_json(&error))?;
        self.take(read.kind, read, event.data, said)
    }

    fn is_complete(&self) -> bool {
        self.ended.is_some()
    }

    fn end(self: Box<Self>) -> Result<Draft, Fault> {
        let Ended { finish, usage, model } = self.ended.ok_or_else(cut_off)?;
        if finish == Finish::Stop && self.items.iter().any(Option::is_none) {
            return Err(broken("an item is not done"));
        }
        let (mut pieces, mut is_refusal) = (Vec::new(), false);
        for item in self.items.into_iter().flatten() {
            is_refusal |= item.is_refusal;
            pieces.extend(item.pieces);
        }
        let has_calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
        let finish = match finish {
            Finish::Stop if has_calls => Finish::ToolCalls,
            Finish::Stop if is_refusal => Finish::Refused,
            other => other,
        };
        Ok(Draft { pieces, finish, usage, model })
    }
}

impl Reported {
    fn usage(self) -> Option<Usage> {
        let (input, output) = (self.input_tokens.0?, self.output_tokens.0?);
        let read = self.input_tokens_details.unwrap_or_default();
        let written = self.output_tokens_details.unwrap_or_default();
        Some(Usage {
            input: Tokens(input),
            output: Tokens(output),
            cached_input: read.cached_tokens.tokens(),
            cache_write: read.cache_write_tokens.tokens(),
            reasoning: written.reasoning_tokens.tokens(),
            estimated: false,
        })
    }
}
