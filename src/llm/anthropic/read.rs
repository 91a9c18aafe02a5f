//! Reading a reply, in one piece or as it is streamed.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::block::{Block, Delta};
use crate::llm::decode::{Count, Draft, Piece, Said};
use crate::llm::fault::{ApiError, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off};
use crate::model::{Fault, FaultKind, Finish, Tokens, Usage};
use crate::net::sse;

/// Gathers a reply.
#[derive(Debug, Default)]
pub(super) struct Reader {
    begun: bool,
    model: Option<String>,
    blocks: Vec<Block>,
    finish: Option<Finish>,
    /// Why the model refused, in its provider's words.
    explanation: Option<String>,
    usage: Reported,
    done: bool,
}

/// An event, or a whole message: its fields are those that the events bring one by one.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(default)]
    index: Option<usize>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<Reported>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow, default)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<Details>,
    #[serde(default)]
    usage: Option<Reported>,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    explanation: Option<String>,
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
    cache_creation: Option<Written>,
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
    reader.message(message, &mut said)?;
    reader.done = true;
    Box::new(reader).end()
}

impl Reader {
    fn message(&mut self, message: Message<'_>, said: &mut Said) -> Result<(), Fault> {
        if std::mem::replace(&mut self.begun, true) {
            return Err(broken("the message begins twice"));
        }
        let Message { model, content, stop_reason, stop_details, usage } = message;
        for block in content.unwrap_or_default() {
            self.blocks.push(Block::begin(block, said)?);
        }
        self.model = model;
        self.end_of(End { stop_reason, stop_details });
        self.usage.add(usage);
        Ok(())
    }

    fn end_of(&mut self, end: End) {
        if let Some(reason) = end.stop_reason {
            self.finish = Some(finish(&reason));
        }
        self.explanation =
            end.stop_details.and_then(|details| details.explanation).or(self.explanation.take());
    }

    fn block(&mut self, index: Option<usize>) -> Result<&mut Block, Fault> {
        let block =
            index.and_then(|index| self.blocks.get_mut(index)).filter(|block| block.is_open);
        block.ok_or_else(|| broken(format!("there is no open block {}", index.unwrap_or(0))))
    }

    fn take(&mut self, event: Event<'_>, said: &mut Said) -> Result<(), Fault> {
        let missing = |what: &str| broken(format!("an event of type {} has no {what}", event.kind));
        match event.kind {
            "message_start" => {
                let message = event.message.ok_or_else(|| missing("message"))?;
                self.message(message, said)
            }
            "content_block_start" => {
                let start = event.content_block.ok_or_else(|| missing("block"))?;
                if event.index != Some(self.blocks.len()) {
                    let index =
                        event.index.map_or_else(|| "none".to_owned(), |index| index.to_string());
                    return Err(broken(format!("block {index} is out of order")));
                }
                self.blocks.push(Block::begin(start, said)?);
                Ok(())
            }
            "content_block_delta" => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                let delta: Delta<'_> =
                    serde_json::from_str(delta.get()).map_err(|error| bad_json(&error))?;
                self.block(event.index)?.grow(delta, said);
                Ok(())
            }
            "content_block_stop" => {
                self.block(event.index)?.is_open = false;
                Ok(())
            }
            "message_delta" => {
                let delta = event.delta.ok_or_else(|| missing("delta"))?;
                self.end_of(serde_json::from_str(delta.get()).map_err(|error| bad_json(&error))?);
                self.usage.add(event.usage);
                Ok(())
            }
            "message_stop" => {
                self.done = true;
                Ok(())
            }
            "error" => {
                let error = event.error.and_then(|error| serde_json::from_str(error.get()).ok());
                let error = error.as_ref().and_then(ApiError::read).unwrap_or_default();
                Err(judge_event(&error, |_| None))
            }
            // Pings, and what this release does not know.
            _ => Ok(()),
        }
    }
}

impl Decoder for Reader {
    fn event(&mut self, event: sse::Event<'_>, said: &mut Said) -> Result<(), Fault> {
        let event: Event<'_> =
            serde_json::from_str(event.data).map_err(|error| bad_json(&error))?;
        if !self.begun && !matches!(event.kind, "message_start" | "ping" | "error") {
            return Err(broken("the message does not begin"));
        }
        self.take(event, said)
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn end(self: Box<Self>) -> Result<Draft, Fault> {
        if !self.done {
            return Err(cut_off());
        }
        let Self { blocks, finish, explanation, usage, model, .. } = *self;
        let mut pieces = blocks.into_iter().map(Block::piece).collect::<Result<Vec<_>, _>>()?;
        let finish = finish.unwrap_or_else(|| Finish::Other("none".into()));
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

fn finish(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" => Finish::Length,
        "pause_turn" => Finish::Pause,
        "refusal" => Finish::Refused,
        "model_context_window_exceeded" => Finish::ContextFull,
        other => Finish::Other(other.into()),
    }
}
