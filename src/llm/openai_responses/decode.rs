//! Reads a reply, streamed or as one document.
//!
//! Deltas of an item are only shown; the completed item counts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::item::{self, DecodedItem};
use crate::llm::decode::{
    DecodedReply, DeltaBuffer, FinishReason, List, Object, TextField, TokenCount, TokenDetails,
};
use crate::llm::fault::{ApiError, classify_stream_error, reply_error};
use crate::llm::wire::{
    ReplyReader, Result, event_kind, parse_json, protocol_fault, truncated_fault,
};
use crate::net::sse::SseEvent;
use crate::types::{Fault, FaultKind, ReplyFinish, Tokens, Usage};

/// Reads a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    items: StreamedItems,
    finished: Option<FinishedResponse>,
}

/// The streamed items by index; `None` for an incomplete item.
#[derive(Debug, Default)]
struct StreamedItems {
    by_index: BTreeMap<u64, Option<DecodedItem>>,
    /// The first inconsistency of the events. After an inconsistency, only the items of the terminal event count.
    inconsistency: Option<String>,
}

/// The end of a response.
#[derive(Debug)]
struct FinishedResponse {
    finish: ReplyFinish,
    usage: Option<Usage>,
    model: Option<String>,
    items: Vec<DecodedItem>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamEvent<'a> {
    output_index: TokenCount,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    delta: TextField<'a>,
    response: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponsePayload<'a> {
    #[serde(borrow)]
    status: TextField<'a>,
    model: TextField<'a>,
    output: List<&'a RawValue>,
    usage: Object<ReportedUsage>,
    incomplete_details: Object<IncompleteDetails<'a>>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails<'a> {
    #[serde(borrow)]
    reason: TextField<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportedUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    input_tokens_details: Object<TokenDetails>,
    output_tokens_details: Object<TokenDetails>,
}

impl Reader {
    fn apply(&mut self, kind: &str, data: &str, deltas: &mut DeltaBuffer) -> Result {
        let event = || parse_json::<StreamEvent<'_>>(data);
        match kind {
            "response.output_item.added" => self.items.begin(event()?.output_index),
            "response.output_item.done" => {
                let StreamEvent { output_index, item, .. } = event()?;
                self.items.done(output_index, item)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                deltas.add_text(event()?.delta.as_str());
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.add_reasoning(event()?.delta.as_str());
            }
            "response.function_call_arguments.delta" => {
                deltas.add_hidden(event()?.delta.as_str());
            }
            "error" => {
                let error: Value = parse_json(data)?;
                let nested = error.get("error").filter(|error| error.is_object());
                let found = ApiError::from_value(nested.unwrap_or(&error)).unwrap_or_default();
                // The type of the event is not the kind of the error.
                let kind = if nested.is_some() { found.kind.clone() } else { String::new() };
                return Err(classify_stream_error(&ApiError { kind, ..found }));
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => {
                let response = event()?.response.filter(|json| json.get().starts_with('{'));
                let missing = || protocol_fault(format!("{kind} has no response"));
                self.apply_terminal(kind, parse_json(response.ok_or_else(missing)?.get())?)?;
            }
            // Starts, parts, and unknown events.
            _ => {}
        }
        Ok(())
    }

    /// Applies the response of a terminal event. Its status also determines the end.
    fn apply_terminal(&mut self, event: &str, response: ResponsePayload<'_>) -> Result {
        let ResponsePayload { status, model, output, usage, incomplete_details, error } = response;
        let reason = incomplete_details.0.and_then(|details| details.reason.non_empty());
        let status = status.0.map(|status| status.0.to_lowercase());
        let finish = match (event, status.as_deref()) {
            ("response.failed" | "response.cancelled", _)
            | (_, Some("failed" | "cancelled" | "canceled")) => {
                return Err(reply_error(error.map_or("", RawValue::get)));
            }
            ("response.incomplete", _) | (_, Some("incomplete")) => {
                let reason = reason.unwrap_or_else(|| "incomplete".to_owned());
                match FinishReason::parse(&reason).into_finish(&reason)? {
                    // The status says that the response is incomplete.
                    Some(ReplyFinish::Stop | ReplyFinish::ToolCalls) | None => {
                        ReplyFinish::Other(reason.into())
                    }
                    Some(finish) => finish,
                }
            }
            (_, Some("completed" | "complete") | None) => ReplyFinish::Stop,
            (_, Some(other)) => ReplyFinish::Other(other.into()),
        };
        let output = output.0.unwrap_or_default();
        let items = std::mem::take(&mut self.items).resolve(&output, &finish)?;
        let (usage, model) = (usage.0.and_then(ReportedUsage::usage), model.non_empty());
        self.finished = Some(FinishedResponse { finish, usage, model, items });
        Ok(())
    }
}

impl StreamedItems {
    fn begin(&mut self, index: TokenCount) {
        match index.0 {
            Some(index) if index == self.next_index() => drop(self.by_index.insert(index, None)),
            Some(index) => self.report_inconsistency(format!("item {index} is out of order")),
            // The completed item follows.
            None => {}
        }
    }

    /// Adds a completed item. Some servers send no event for the start of an item.
    fn done(&mut self, index: TokenCount, item: Option<&RawValue>) -> Result {
        let index = index.0.unwrap_or_else(|| self.first_open());
        let Some(item) = item else {
            self.report_inconsistency(format!("item {index} is missing"));
            return Ok(());
        };
        let decoded = item::decode(item)?;
        match self.by_index.get_mut(&index) {
            Some(open @ None) => *open = Some(decoded),
            Some(Some(_)) => self.report_inconsistency(format!("item {index} is done twice")),
            None => {
                if index != self.next_index() {
                    self.report_inconsistency(format!("item {index} is out of order"));
                }
                self.by_index.insert(index, Some(decoded));
            }
        }
        Ok(())
    }

    fn report_inconsistency(&mut self, what: String) {
        self.inconsistency.get_or_insert(what);
    }

    fn next_index(&self) -> u64 {
        self.by_index.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    fn first_open(&self) -> u64 {
        let open = self.by_index.iter().find(|(_, item)| item.is_none());
        open.map_or_else(|| self.next_index(), |(index, _)| *index)
    }

    /// Returns the items of a response. `output` counts if the events have gaps; some servers leave it empty.
    fn resolve(self, output: &[&RawValue], finish: &ReplyFinish) -> Result<Vec<DecodedItem>> {
        let is_open = self.by_index.values().any(Option::is_none);
        let has_gaps =
            self.inconsistency.is_some() || is_open || self.by_index.len() < output.len();
        // A truncated call may look complete. `DecodedReply` handles the output limit.
        let is_taken = |item: &DecodedItem| {
            !item.is_truncated || matches!(finish, ReplyFinish::Stop | ReplyFinish::Length)
        };
        if has_gaps && !output.is_empty() {
            let items = output.iter().map(|json| item::decode(json));
            return items.filter(|item| item.as_ref().map_or(true, is_taken)).collect();
        }
        match self.inconsistency {
            Some(doubt) => Err(protocol_fault(doubt)),
            None if is_open && *finish == ReplyFinish::Stop => {
                Err(protocol_fault("an item is not done"))
            }
            None => Ok(self.by_index.into_values().flatten().filter(is_taken).collect()),
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result {
        if event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let is_own = event.name.starts_with("response.") || event.name == "error";
        match event_kind(event, is_own)? {
            Some(kind) => self.apply(&kind, event.data, deltas),
            None => Ok(()),
        }
    }

    fn read_document(&mut self, body: &str) -> Result {
        let response: ResponsePayload<'_> = parse_json(body)?;
        if response.output.0.is_none() {
            return Err(Fault::new(FaultKind::NotAnApi, "the response has no output"));
        }
        self.apply_terminal("response.done", response)
    }

    fn is_complete(&self) -> bool {
        self.finished.is_some()
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply> {
        let FinishedResponse { finish, usage, model, items } =
            self.finished.ok_or_else(truncated_fault)?;
        let (mut parts, mut is_refusal) = (Vec::new(), false);
        for item in items {
            is_refusal |= item.is_refusal;
            parts.extend(item.parts);
        }
        let finish = match finish {
            ReplyFinish::Stop => FinishReason::infer(&parts),
            other => other,
        };
        let finish = match finish {
            ReplyFinish::Stop if is_refusal => ReplyFinish::Refused,
            other => other,
        };
        Ok(DecodedReply { parts, finish, usage, model })
    }
}

impl ReportedUsage {
    fn usage(self) -> Option<Usage> {
        let (input, output) = (self.input_tokens.0?, self.output_tokens.0?);
        let read = self.input_tokens_details.0.unwrap_or_default();
        let written = self.output_tokens_details.0.unwrap_or_default();
        Some(Usage {
            input: Tokens(input),
            output: Tokens(output),
            cached_input: read.cached_tokens.tokens(),
            cache_write: read.cache_write_tokens.tokens(),
            reasoning: written.reasoning_tokens.tokens(),
            is_estimated: false,
        })
    }
}
