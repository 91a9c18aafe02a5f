//! Reading a reply, in one piece or as it is streamed.
//!
//! What is streamed of an item is shown as it comes; what counts is the item as it is when it is done.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item::{self, Decoded};
use crate::llm::decode::{
    Count, Draft, InputDetails, OutputDetails, Piece, Reason, Said, Text, lenient,
};
use crate::llm::fault::{ApiError, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off, typed};
use crate::model::{Fault, FaultKind, Finish, Tokens, Usage};
use crate::net::sse;

/// Gathers a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    items: Items,
    ended: Option<Ended>,
}

/// The items that the events told, by their numbers; `None` for one that has begun and is not done.
#[derive(Debug, Default)]
struct Items {
    told: BTreeMap<u64, Option<Decoded>>,
    /// What is wrong with the events, if anything is. Then only the terminal event can say what the items are.
    doubt: Option<String>,
}

/// How a response ended.
#[derive(Debug)]
struct Ended {
    finish: Finish,
    usage: Option<Usage>,
    model: Option<String>,
    items: Vec<Decoded>,
}

/// The terminal events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    Incomplete,
    Failed,
    /// The status alone says how it ended.
    Done,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default)]
    output_index: Count,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    delta: Option<Text<'a>>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    status: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    model: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<Reported>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    incomplete_details: Option<Incomplete<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    reason: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reported {
    input_tokens: Count,
    output_tokens: Count,
    #[serde(deserialize_with = "lenient::object")]
    input_tokens_details: Option<InputDetails>,
    #[serde(deserialize_with = "lenient::object")]
    output_tokens_details: Option<OutputDetails>,
}

/// Reads a reply that came in one piece.
pub(super) fn whole(body: &str) -> Result<Draft, Fault> {
    let response: Response<'_> = serde_json::from_str(body).map_err(|error| bad_json(&error))?;
    if response.output.is_none() {
        return Err(Fault::new(FaultKind::NotAnApi, "the answer has no response in it"));
    }
    let mut reader = Reader::default();
    reader.finish(End::Done, response)?;
    Box::new(reader).end()
}

impl Reader {
    fn take(&mut self, kind: &str, data: &str, said: &mut Said) -> Result<(), Fault> {
        let end = match kind {
            "response.output_item.added" => {
                self.items.begin(parsed(data)?.output_index);
                return Ok(());
            }
            "response.output_item.done" => {
                let Event { output_index, item, .. } = parsed(data)?;
                return self.items.done(output_index, item);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                said.text.push_str(&parsed(data)?.delta());
                return Ok(());
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                said.reasoning.push_str(&parsed(data)?.delta());
                return Ok(());
            }
            "response.function_call_arguments.delta" => {
                said.silently(&parsed(data)?.delta());
                return Ok(());
            }
            "error" => {
                let error: Value = serde_json::from_str(data).map_err(|error| bad_json(&error))?;
                let nested = error.get("error").filter(|error| error.is_object());
                let found = ApiError::read(nested.unwrap_or(&error)).unwrap_or_default();
                // The type of the event is no kind of error.
                let kind = if nested.is_some() { found.kind.clone() } else { String::new() };
                return Err(judge_event(&ApiError { kind, ..found }, |_| None));
            }
            "response.completed" => End::Completed,
            "response.incomplete" => End::Incomplete,
            "response.failed" | "response.cancelled" => End::Failed,
            "response.done" => End::Done,
            // Beginnings, parts, and what this release does not know.
            _ => return Ok(()),
        };
        let response = parsed(data)?.response.filter(|json| json.get().starts_with('{'));
        let response = response.ok_or_else(|| broken(format!("{kind} has no response")))?;
        let response = serde_json::from_str(response.get()).map_err(|error| bad_json(&error))?;
        self.finish(end, response)
    }

    fn finish(&mut self, end: End, response: Response<'_>) -> Result<(), Fault> {
        let Response { status, model, output, usage, incomplete_details, error } = response;
        let reason = incomplete_details.and_then(|details| details.reason).and_then(Text::filled);
        let status = status.map(|status| status.0.to_lowercase());
        let end = match (end, status.as_deref()) {
            (_, Some("failed" | "cancelled" | "canceled")) | (End::Failed, _) => End::Failed,
            (_, Some("incomplete")) | (End::Incomplete, _) => End::Incomplete,
            (_, Some("completed" | "complete") | None) => End::Completed,
            (End::Completed | End::Done, Some(_)) => End::Done,
        };
        let finish = match (end, reason) {
            (End::Failed, _) => {
                let error = error.and_then(|error| serde_json::from_str(error.get()).ok());
                let error = error.as_ref().and_then(ApiError::read).unwrap_or_default();
                return Err(judge_event(&error, |_| None));
            }
            (End::Completed, _) => Finish::Stop,
            (End::Incomplete, Some(reason)) => match Reason::of(&reason) {
                // It says itself that the response is not complete.
                Reason::Finished(Finish::Stop | Finish::ToolCalls) | Reason::None => {
                    Finish::Other(reason.into())
                }
                said => said.finish(&reason)?.unwrap_or_else(|| Finish::Other(reason.into())),
            },
            (End::Incomplete, None) => Finish::Other("incomplete".into()),
            (End::Done, _) => Finish::Other(status.unwrap_or_default().into()),
        };
        let items = std::mem::take(&mut self.items).settle(&output.unwrap_or_default(), &finish)?;
        let (usage, model) = (usage.and_then(Reported::usage), model.and_then(Text::filled));
        self.ended = Some(Ended { finish, usage, model, items });
        Ok(())
    }
}

impl Items {
    fn begin(&mut self, index: Count) {
        match index.0 {
            Some(index) if index == self.next() => drop(self.told.insert(index, None)),
            Some(index) => self.doubt(format!("item {index} is out of order")),
            // It is told again when it is done.
            None => {}
        }
    }

    /// Takes an item that is done. Some servers tell it only then.
    fn done(&mut self, index: Count, item: Option<&RawValue>) -> Result<(), Fault> {
        let index = index.0.unwrap_or_else(|| self.first_open());
        let Some(item) = item else {
            self.doubt(format!("item {index} is not told"));
            return Ok(());
        };
        let decoded = item::read(item)?;
        match self.told.get_mut(&index) {
            Some(open @ None) => *open = Some(decoded),
            Some(Some(_)) => self.doubt(format!("item {index} is done twice")),
            None => {
                if index != self.next() {
                    self.doubt(format!("item {index} is out of order"));
                }
                self.told.insert(index, Some(decoded));
            }
        }
        Ok(())
    }

    fn doubt(&mut self, what: String) {
        self.doubt.get_or_insert(what);
    }

    fn next(&self) -> u64 {
        self.told.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    fn first_open(&self) -> u64 {
        let open = self.told.iter().find(|(_, item)| item.is_none());
        open.map_or_else(|| self.next(), |(index, _)| *index)
    }

    /// Returns the items of a response that ends with this output. Where the events have gaps, the output is the truth;
    /// some servers leave it empty.
    fn settle(self, output: &[&RawValue], finish: &Finish) -> Result<Vec<Decoded>, Fault> {
        let is_open = self.told.values().any(Option::is_none);
        let has_gaps = self.doubt.is_some() || is_open || self.told.len() < output.len();
        if has_gaps && !output.is_empty() {
            let items = output.iter().map(|json| item::read(json));
            // A call that was cut off may look whole. Where the output limit did it, that is seen to later.
            let is_taken =
                |item: &Decoded| !item.is_cut || matches!(finish, Finish::Stop | Finish::Length);
            return items.filter(|item| item.as_ref().map_or(true, is_taken)).collect();
        }
        match self.doubt {
            Some(doubt) => Err(broken(doubt)),
            None if is_open && *finish == Finish::Stop => Err(broken("an item is not done")),
            None => Ok(self.told.into_values().flatten().collect()),
        }
    }
}

impl Event<'_> {
    fn delta(self) -> String {
        self.delta.and_then(Text::filled).unwrap_or_default()
    }
}

fn parsed(data: &str) -> Result<Event<'_>, Fault> {
    serde_json::from_str(data).map_err(|error| bad_json(&error))
}

impl Decoder for Reader {
    fn event(&mut self, event: sse::Event<'_>, said: &mut Said) -> Result<(), Fault> {
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let is_own = event.name.starts_with("response.") || event.name == "error";
        let is_foreign = !is_own && !["", "message"].contains(&event.name);
        match typed(event.data, is_foreign)? {
            Some(kind) => self.take(&kind, event.data, said),
            None if is_own && event.data.trim_start().starts_with('{') => {
                self.take(event.name, event.data, said)
            }
            None => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.ended.is_some()
    }

    fn end(self: Box<Self>) -> Result<Draft, Fault> {
        let Ended { finish, usage, model, items } = self.ended.ok_or_else(cut_off)?;
        let (mut pieces, mut is_refusal) = (Vec::new(), false);
        for item in items {
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
