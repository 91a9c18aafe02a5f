//! Reads a reply, streamed or as one document.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{BlockBuilder, BlockFields};
use crate::llm::decode::{
    DecodedPart, DecodedReply, DeltaBuffer, FinishReason, List, Object, TextField, TokenCount,
    TokenDetails,
};
use crate::llm::fault::reply_error;
use crate::llm::wire::{
    ReplyReader, Result, event_kind, parse_json, protocol_fault, truncated_fault,
};
use crate::net::sse::SseEvent;
use crate::types::{Fault, FaultKind, ReplyFinish, Tokens, Usage};

/// Reads a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The JSON of the message start, once received.
    start_json: Option<String>,
    model: Option<String>,
    blocks: Vec<BlockBuilder>,
    finish: Option<ReplyFinish>,
    /// The provider's explanation of a refusal.
    explanation: Option<String>,
    usage: ReportedUsage,
    is_done: bool,
}

/// The types of events; pings and unknown types are ignored.
const EVENT_KINDS: [&str; 7] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamEvent<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    index: TokenCount,
    content_block: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    usage: Object<ReportedUsage>,
    error: Option<&'a RawValue>,
}

/// The start of a message, its end, or a complete message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MessagePayload<'a> {
    #[serde(borrow)]
    model: TextField<'a>,
    content: List<&'a RawValue>,
    stop_reason: TextField<'a>,
    stop_details: Object<StopDetails<'a>>,
    usage: Object<ReportedUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StopDetails<'a> {
    #[serde(borrow)]
    explanation: TextField<'a>,
}

/// The usage: three kinds of input tokens, which add up, and output tokens. Counts are cumulative.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ReportedUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_creation_input_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    /// Some gateways report cache writes only here.
    cache_creation: Object<TokenDetails>,
    output_tokens_details: Object<TokenDetails>,
}

impl Reader {
    fn begin_message(&mut self, message: MessagePayload<'_>, deltas: &mut DeltaBuffer) -> Result {
        for block in message.content.0.into_iter().flatten() {
            self.blocks.push(BlockBuilder::begin(block, deltas)?);
        }
        self.model = message.model.non_empty();
        self.apply_end(message.stop_reason.as_str(), message.stop_details)?;
        self.usage.merge(message.usage);
        Ok(())
    }

    fn apply_end(&mut self, reason: &str, details: Object<StopDetails<'_>>) -> Result {
        let finish = match reason {
            "pause_turn" => Some(ReplyFinish::Pause),
            reason => FinishReason::parse(reason).into_finish(reason)?,
        };
        self.finish = finish.or(self.finish.take());
        let explanation = details.0.and_then(|details| details.explanation.non_empty());
        self.explanation = explanation.or(self.explanation.take());
        Ok(())
    }

    /// Returns the open block with an index; without an index, the only open block.
    fn open_block(&mut self, index: TokenCount) -> Result<&mut BlockBuilder> {
        let at = if let Some(index) = index.0 {
            usize::try_from(index).ok()
        } else {
            let mut open = (0..self.blocks.len()).filter(|at| self.blocks[*at].is_open);
            open.next().filter(|_| open.next().is_none())
        };
        let block = at.and_then(|at| self.blocks.get_mut(at)).filter(|block| block.is_open);
        block.ok_or_else(|| protocol_fault(format!("no open block {}", index.0.unwrap_or(0))))
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result {
        let is_known = |kind: &str| EVENT_KINDS.contains(&kind);
        let kind = event_kind(event, is_known(event.name))?;
        let Some(kind) = kind.as_deref().filter(|kind| is_known(kind)) else { return Ok(()) };
        if self.start_json.is_none() && !["message_start", "error"].contains(&kind) {
            return Err(protocol_fault("the message does not begin"));
        }
        let event: StreamEvent<'_> = parse_json(event.data)?;
        let missing = |what: &str| protocol_fault(format!("an event {kind} has no {what}"));
        let delta = || event.delta.map(RawValue::get).ok_or_else(|| missing("delta"));
        match kind {
            "message_start" => {
                let json = event.message.ok_or_else(|| missing("message"))?.get();
                match &self.start_json {
                    // Some gateways repeat the start to keep the connection alive.
                    Some(begun) if begun == json && self.blocks.is_empty() => return Ok(()),
                    Some(_) => return Err(protocol_fault("the message begins twice")),
                    None => self.start_json = Some(json.to_owned()),
                }
                self.begin_message(parse_json(json)?, deltas)?;
            }
            "content_block_start" => {
                let start = event.content_block.ok_or_else(|| missing("block"))?;
                if let Some(index) = event.index.0
                    && index != self.blocks.len() as u64
                {
                    return Err(protocol_fault(format!("block {index} is out of order")));
                }
                self.blocks.push(BlockBuilder::begin(start, deltas)?);
            }
            "content_block_delta" => {
                let delta = delta()?;
                let block = self.open_block(event.index)?;
                if delta.starts_with('{') {
                    block.apply(parse_json::<BlockFields<'_>>(delta)?, deltas);
                }
            }
            "content_block_stop" => self.open_block(event.index)?.is_open = false,
            "message_delta" => {
                let delta = delta()?;
                if delta.starts_with('{') {
                    let end: MessagePayload<'_> = parse_json(delta)?;
                    self.apply_end(end.stop_reason.as_str(), end.stop_details)?;
                }
                self.usage.merge(event.usage);
            }
            "error" => return Err(reply_error(event.error.map_or("", RawValue::get))),
            _ => self.is_done = true,
        }
        Ok(())
    }

    fn read_document(&mut self, body: &str) -> Result {
        let message: MessagePayload<'_> = parse_json(body)?;
        if message.content.0.is_none() {
            return Err(Fault::new(FaultKind::NotAnApi, "the response has no message"));
        }
        self.is_done = true;
        self.begin_message(message, &mut DeltaBuffer::discarded())
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply> {
        if !self.is_done {
            return Err(truncated_fault());
        }
        let Self { blocks, finish, explanation, usage, model, .. } = *self;
        let parts = blocks.into_iter().filter_map(|block| block.into_part().transpose());
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        let finish = finish.unwrap_or_else(|| FinishReason::infer(&parts));
        if let (ReplyFinish::Refused, Some(explanation)) = (&finish, explanation) {
            parts.push(DecodedPart::Text(explanation));
        }
        Ok(DecodedReply { parts, finish, usage: usage.usage(), model })
    }
}

impl ReportedUsage {
    /// Merges a later report; counts that it lacks stay.
    fn merge(&mut self, later: Object<Self>) {
        let Some(later) = later.0 else { return };
        for (count, later) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.cache_creation_input_tokens, later.cache_creation_input_tokens),
            (&mut self.cache_read_input_tokens, later.cache_read_input_tokens),
        ] {
            count.0 = later.0.or(count.0);
        }
        self.cache_creation.0 = later.cache_creation.0.or(self.cache_creation.0);
        self.output_tokens_details.0 =
            later.output_tokens_details.0.or(self.output_tokens_details.0);
    }

    fn usage(&self) -> Option<Usage> {
        let (read, output) = (self.input_tokens.0?, self.output_tokens.0?);
        let nested = self.cache_creation.0.unwrap_or_default();
        let nested =
            nested.ephemeral_5m_input_tokens.tokens() + nested.ephemeral_1h_input_tokens.tokens();
        let cache_write = self.cache_creation_input_tokens.tokens().max(nested);
        let cached_input = self.cache_read_input_tokens.tokens();
        let details = self.output_tokens_details.0.unwrap_or_default();
        Some(Usage {
            input: Tokens(read) + cached_input + cache_write,
            output: Tokens(output),
            cached_input,
            cache_write,
            reasoning: details.thinking_tokens.tokens(),
            is_estimated: false,
        })
    }
}
