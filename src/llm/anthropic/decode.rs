//! Reading a reply, streamed or as one document.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{BlockBuilder, BlockDelta};
use crate::llm::decode::{
    DecodedPart, DecodedReply, DeltaBuffer, FinishReason, JsonText, TokenCount, lenient,
};
use crate::llm::fault::reply_error;
use crate::llm::wire::{ReplyReader, event_type, parse_json, protocol_fault, truncated_fault};
use crate::model::{Fault, FaultKind, ReplyFinish, Tokens, Usage};
use crate::net::sse;

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

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEventKind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Error,
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    index: TokenCount,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<ReportedUsage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The start of a message, or a complete message.
#[derive(Deserialize)]
struct MessagePayload<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    model: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    stop_reason: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    stop_details: Option<StopDetails<'a>>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<ReportedUsage>,
}

#[derive(Default, Deserialize)]
struct MessageEnd<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    stop_reason: Option<JsonText<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    stop_details: Option<StopDetails<'a>>,
}

#[derive(Deserialize)]
struct StopDetails<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    explanation: Option<JsonText<'a>>,
}

/// The usage: three kinds of input that add up, and output. Counts are cumulative.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ReportedUsage {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    cache_creation_input_tokens: TokenCount,
    cache_read_input_tokens: TokenCount,
    /// Some gateways report cache writes only here.
    #[serde(deserialize_with = "lenient::object")]
    cache_creation: Option<CacheCreation>,
    #[serde(deserialize_with = "lenient::object")]
    output_tokens_details: Option<OutputTokensDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_5m_input_tokens: TokenCount,
    ephemeral_1h_input_tokens: TokenCount,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputTokensDetails {
    thinking_tokens: TokenCount,
}

/// Reads a reply that is one JSON document.
pub(super) fn read_body(body: &str) -> Result<DecodedReply, Fault> {
    let message: MessagePayload<'_> = parse_json(body)?;
    if message.content.is_none() {
        return Err(Fault::new(FaultKind::NotAnApi, "the response has no message"));
    }
    let (mut reader, mut deltas) = (Reader::default(), DeltaBuffer::default());
    reader.begin_message(message, &mut deltas)?;
    reader.is_done = true;
    Box::new(reader).finish()
}

impl Reader {
    fn read_message(&mut self, json: &RawValue, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        let json = json.get();
        match &self.start_json {
            // Some gateways repeat the start to keep the connection alive.
            Some(begun) if begun == json && self.blocks.is_empty() => return Ok(()),
            Some(_) => return Err(protocol_fault("the message begins twice")),
            None => self.start_json = Some(json.to_owned()),
        }
        self.begin_message(parse_json(json)?, deltas)
    }

    fn begin_message(
        &mut self,
        message: MessagePayload<'_>,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), Fault> {
        let MessagePayload { model, content, stop_reason, stop_details, usage } = message;
        for block in content.unwrap_or_default() {
            self.blocks.push(BlockBuilder::begin(block, deltas)?);
        }
        self.model = model.and_then(JsonText::non_empty);
        self.apply_end(MessageEnd { stop_reason, stop_details })?;
        self.usage.merge(usage);
        Ok(())
    }

    fn apply_end(&mut self, end: MessageEnd<'_>) -> Result<(), Fault> {
        if let Some(reason) = end.stop_reason {
            self.finish = parse_finish(&reason.0)?.or(self.finish.take());
        }
        let explanation = end.stop_details.and_then(|details| details.explanation);
        self.explanation = explanation.and_then(JsonText::non_empty).or(self.explanation.take());
        Ok(())
    }

    /// Returns the open block with this index, or without an index the only open one.
    fn open_block(&mut self, index: TokenCount) -> Result<&mut BlockBuilder, Fault> {
        let at = if let Some(index) = index.0 {
            usize::try_from(index).ok()
        } else {
            let mut open = (0..self.blocks.len()).filter(|at| self.blocks[*at].is_open);
            open.next().filter(|_| open.next().is_none())
        };
        let block = at.and_then(|at| self.blocks.get_mut(at)).filter(|block| block.is_open);
        block.ok_or_else(|| protocol_fault(format!("no open block {}", index.0.unwrap_or(0))))
    }

    fn apply(
        &mut self,
        kind: StreamEventKind,
        event: &StreamEvent<'_>,
        deltas: &mut DeltaBuffer,
    ) -> Result<(), Fault> {
        let missing = |what: &str| protocol_fault(format!("an event {kind:?} has no {what}"));
        match kind {
            StreamEventKind::MessageStart => {
                self.read_message(event.message.ok_or_else(|| missing("message"))?, deltas)
            }
            StreamEventKind::BlockStart => {
                let start = event.content_block.ok_or_else(|| missing("block"))?;
                if let Some(index) = event.index.0
                    && index != self.blocks.len() as u64
                {
                    return Err(protocol_fault(format!("block {index} is out of order")));
                }
                self.blocks.push(BlockBuilder::begin(start, deltas)?);
                Ok(())
            }
            StreamEventKind::BlockDelta => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                let block = self.open_block(event.index)?;
                if delta.get().starts_with('{') {
                    let delta: BlockDelta<'_> = parse_json(delta.get())?;
                    block.apply(delta, deltas);
                }
                Ok(())
            }
            StreamEventKind::BlockStop => {
                self.open_block(event.index)?.is_open = false;
                Ok(())
            }
            StreamEventKind::MessageDelta => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                if delta.get().starts_with('{') {
                    let end = parse_json(delta.get())?;
                    self.apply_end(end)?;
                }
                self.usage.merge(event.usage);
                Ok(())
            }
            StreamEventKind::MessageStop => {
                self.is_done = true;
                Ok(())
            }
            StreamEventKind::Error => Err(reply_error(event.error.map_or("", RawValue::get))),
        }
    }
}

impl StreamEventKind {
    /// Returns the type of an event; `None` for pings and unknown types.
    fn of(event: sse::SseEvent<'_>) -> Result<Option<Self>, Fault> {
        let named = Self::from_name(event.name);
        let is_foreign = named.is_none() && !["", "message"].contains(&event.name);
        match event_type(event.data, is_foreign)? {
            Some(kind) => Ok(Self::from_name(&kind)),
            None => Ok(named.filter(|_| event.data.trim_start().starts_with('{'))),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "message_start" => Self::MessageStart,
            "content_block_start" => Self::BlockStart,
            "content_block_delta" => Self::BlockDelta,
            "content_block_stop" => Self::BlockStop,
            "message_delta" => Self::MessageDelta,
            "message_stop" => Self::MessageStop,
            "error" => Self::Error,
            _ => return None,
        })
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, event: sse::SseEvent<'_>, deltas: &mut DeltaBuffer) -> Result<(), Fault> {
        let Some(kind) = StreamEventKind::of(event)? else { return Ok(()) };
        if self.start_json.is_none()
            && !matches!(kind, StreamEventKind::MessageStart | StreamEventKind::Error)
        {
            return Err(protocol_fault("the message does not begin"));
        }
        let event = parse_json(event.data)?;
        self.apply(kind, &event, deltas)
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<DecodedReply, Fault> {
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
    /// Merges a later report; counts that it does not have stay.
    fn merge(&mut self, later: Option<Self>) {
        let Some(later) = later else { return };
        let or =
            |later: TokenCount, before: TokenCount| if later.0.is_some() { later } else { before };
        *self = Self {
            input_tokens: or(later.input_tokens, self.input_tokens),
            output_tokens: or(later.output_tokens, self.output_tokens),
            cache_creation_input_tokens: or(
                later.cache_creation_input_tokens,
                self.cache_creation_input_tokens,
            ),
            cache_read_input_tokens: or(
                later.cache_read_input_tokens,
                self.cache_read_input_tokens,
            ),
            cache_creation: later.cache_creation.or(self.cache_creation),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
        };
    }

    fn usage(&self) -> Option<Usage> {
        let (read, output) = (self.input_tokens.0?, self.output_tokens.0?);
        let nested = self.cache_creation.map_or(Tokens::ZERO, |written| {
            written.ephemeral_5m_input_tokens.tokens() + written.ephemeral_1h_input_tokens.tokens()
        });
        let cache_write = self.cache_creation_input_tokens.tokens().max(nested);
        let cached_input = self.cache_read_input_tokens.tokens();
        let thought = self.output_tokens_details.unwrap_or_default().thinking_tokens;
        Some(Usage {
            input: Tokens(read) + cached_input + cache_write,
            output: Tokens(output),
            cached_input,
            cache_write,
            reasoning: thought.tokens(),
            is_estimated: false,
        })
    }
}

/// Returns the finish reason; `None` for an unspecified one.
fn parse_finish(reason: &str) -> Result<Option<ReplyFinish>, Fault> {
    match reason {
        "pause_turn" => Ok(Some(ReplyFinish::Pause)),
        reason => FinishReason::parse(reason).into_finish(reason),
    }
}
