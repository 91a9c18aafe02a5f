//! Reading a reply, in one piece or as it is streamed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{Block, Delta};
use crate::llm::decode::{Count, Draft, Piece, Reason, Said, Text, lenient};
use crate::llm::fault::{ApiError, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off, typed};
use crate::model::{Fault, FaultKind, Finish, Tokens, Usage};
use crate::net::sse;

/// Gathers a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of the message, once it has come.
    begun: Option<String>,
    model: Option<String>,
    blocks: Vec<Block>,
    finish: Option<Finish>,
    /// Why the model refused, in its provider's words.
    explanation: Option<String>,
    usage: Reported,
    done: bool,
}

/// The events that are known, which are those that a message consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Error,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    index: Count,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<Reported>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The beginning of a message, or a whole one.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    model: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::list")]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    stop_details: Option<Details<'a>>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<Reported>,
}

#[derive(Default, Deserialize)]
struct End<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient::object")]
    stop_details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default, deserialize_with = "lenient::text")]
    explanation: Option<Text<'a>>,
}

/// What the provider counts: three kinds of input that add up, and output. Counts are cumulative.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Reported {
    input_tokens: Count,
    output_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_read_input_tokens: Count,
    /// Some gateways report what was written to the cache only here.
    #[serde(deserialize_with = "lenient::object")]
    cache_creation: Option<Written>,
    #[serde(deserialize_with = "lenient::object")]
    output_tokens_details: Option<Thought>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    ephemeral_5m_input_tokens: Count,
    ephemeral_1h_input_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Thought {
    thinking_tokens: Count,
}

/// Reads a reply that came in one piece.
pub(super) fn whole(body: &str) -> Result<Draft, Fault> {
    let message: Message<'_> = serde_json::from_str(body).map_err(|error| bad_json(&error))?;
    if message.content.is_none() {
        return Err(Fault::new(FaultKind::NotAnApi, "the answer has no message in it"));
    }
    let (mut reader, mut said) = (Reader::default(), Said::default());
    reader.begin(message, &mut said)?;
    reader.done = true;
    Box::new(reader).end()
}

impl Reader {
    fn message(&mut self, json: &RawValue, said: &mut Said) -> Result<(), Fault> {
        let json = json.get();
        match &self.begun {
            // Some gateways say the beginning again to keep the connection alive.
            Some(begun) if begun == json && self.blocks.is_empty() => return Ok(()),
            Some(_) => return Err(broken("the message begins twice")),
            None => self.begun = Some(json.to_owned()),
        }
        self.begin(serde_json::from_str(json).map_err(|error| bad_json(&error))?, said)
    }

    fn begin(&mut self, message: Message<'_>, said: &mut Said) -> Result<(), Fault> {
        let Message { model, content, stop_reason, stop_details, usage } = message;
        for block in content.unwrap_or_default() {
            self.blocks.push(Block::begin(block, said)?);
        }
        self.model = model.and_then(Text::filled);
        self.end_of(End { stop_reason, stop_details })?;
        self.usage.add(usage);
        Ok(())
    }

    fn end_of(&mut self, end: End<'_>) -> Result<(), Fault> {
        if let Some(reason) = end.stop_reason {
            self.finish = finish(&reason.0)?.or(self.finish.take());
        }
        let explanation = end.stop_details.and_then(|details| details.explanation);
        self.explanation = explanation.and_then(Text::filled).or(self.explanation.take());
        Ok(())
    }

    /// Returns the open block with this number, or the only open one where there is no number.
    fn block(&mut self, index: Count) -> Result<&mut Block, Fault> {
        let at = if let Some(index) = index.0 {
            usize::try_from(index).ok()
        } else {
            let mut open = (0..self.blocks.len()).filter(|at| self.blocks[*at].is_open);
            open.next().filter(|_| open.next().is_none())
        };
        let block = at.and_then(|at| self.blocks.get_mut(at)).filter(|block| block.is_open);
        block.ok_or_else(|| broken(format!("there is no open block {}", index.0.unwrap_or(0))))
    }

    fn take(&mut self, kind: Kind, event: &Event<'_>, said: &mut Said) -> Result<(), Fault> {
        let missing = |what: &str| broken(format!("an event {kind:?} has no {what}"));
        match kind {
            Kind::MessageStart => {
                self.message(event.message.ok_or_else(|| missing("message"))?, said)
            }
            Kind::BlockStart => {
                let start = event.content_block.ok_or_else(|| missing("block"))?;
                if let Some(index) = event.index.0
                    && index != self.blocks.len() as u64
                {
                    return Err(broken(format!("block {index} is out of order")));
                }
                self.blocks.push(Block::begin(start, said)?);
                Ok(())
            }
            Kind::BlockDelta => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                let block = self.block(event.index)?;
                if delta.get().starts_with('{') {
                    let delta: Delta<'_> =
                        serde_json::from_str(delta.get()).map_err(|error| bad_json(&error))?;
                    block.grow(delta, said);
                }
                Ok(())
            }
            Kind::BlockStop => {
                self.block(event.index)?.is_open = false;
                Ok(())
            }
            Kind::MessageDelta => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                if delta.get().starts_with('{') {
                    let end =
                        serde_json::from_str(delta.get()).map_err(|error| bad_json(&error))?;
                    self.end_of(end)?;
                }
                self.usage.add(event.usage);
                Ok(())
            }
            Kind::MessageStop => {
                self.done = true;
                Ok(())
            }
            Kind::Error => {
                let error = event.error.and_then(|error| serde_json::from_str(error.get()).ok());
                let error = error.as_ref().and_then(ApiError::read).unwrap_or_default();
                Err(judge_event(&error, |_| None))
            }
        }
    }
}

impl Kind {
    /// Returns the kind of an event; `None` for pings, and for what this release does not know.
    fn of(event: sse::Event<'_>) -> Result<Option<Self>, Fault> {
        let named = Self::named(event.name);
        let is_foreign = named.is_none() && !["", "message"].contains(&event.name);
        match typed(event.data, is_foreign)? {
            Some(kind) => Ok(Self::named(&kind)),
            None => Ok(named.filter(|_| event.data.trim_start().starts_with('{'))),
        }
    }

    fn named(name: &str) -> Option<Self> {
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

impl Decoder for Reader {
    fn event(&mut self, event: sse::Event<'_>, said: &mut Said) -> Result<(), Fault> {
        let Some(kind) = Kind::of(event)? else { return Ok(()) };
        if self.begun.is_none() && !matches!(kind, Kind::MessageStart | Kind::Error) {
            return Err(broken("the message does not begin"));
        }
        let event = serde_json::from_str(event.data).map_err(|error| bad_json(&error))?;
        self.take(kind, &event, said)
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn end(self: Box<Self>) -> Result<Draft, Fault> {
        if !self.done {
            return Err(cut_off());
        }
        let Self { blocks, finish, explanation, usage, model, .. } = *self;
        let pieces = blocks.into_iter().filter_map(|block| block.piece().transpose());
        let mut pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let finish = finish.unwrap_or_else(|| Reason::unsaid(&pieces));
        if let (Finish::Refused, Some(explanation)) = (&finish, explanation) {
            pieces.push(Piece::Text(explanation));
        }
        Ok(Draft { pieces, finish, usage: usage.usage(), model })
    }
}

impl Reported {
    /// Takes what is reported later; what is not reported again stays.
    fn add(&mut self, later: Option<Self>) {
        let Some(later) = later else { return };
        let or = |later: Count, before: Count| if later.0.is_some() { later } else { before };
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
            estimated: false,
        })
    }
}

/// Returns why the model stopped; `None` for a reason that says nothing.
fn finish(reason: &str) -> Result<Option<Finish>, Fault> {
    match reason {
        "pause_turn" => Ok(Some(Finish::Pause)),
        reason => Reason::of(reason).finish(reason),
    }
}
