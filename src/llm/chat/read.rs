//! Reading a reply, in one piece or as it is streamed.

use serde_json::Value;
use serde_json::value::RawValue;

use super::delta::{CallDelta, Choice, Chunk, Delta, usage};
use super::quirks::{End, Indexes, Quirks, Reasoning};
use crate::llm::decode::{Draft, Piece, Reason, Said, Text};
use crate::llm::fault::{ApiError, is_error, judge_event};
use crate::llm::wire::{Decoder, bad_json, broken, cut_off, typed};
use crate::model::{Fault, FaultKind, Finish, Usage};
use crate::net::sse::Event;

/// Gathers a reply.
#[derive(Debug)]
pub(super) struct Reader {
    quirks: &'static Quirks,
    indexes: Indexes,
    form: Form,
    text: String,
    reasoning: String,
    details: Vec<Value>,
    calls: Vec<Call>,
    finish: Option<Finish>,
    refused: bool,
    usage: Option<Usage>,
    model: Option<String>,
    done: bool,
}

/// How a reply comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In pieces; a message beside them is what has come so far.
    Pieces,
    /// In one piece, which is the message.
    Whole,
}

/// A tool call that grows.
#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// Reads a reply that came in one piece.
pub(super) fn whole(quirks: &'static Quirks, body: &str) -> Result<Draft, Fault> {
    // There are no indexes here, since nothing is in pieces.
    let mut reader = Reader { indexes: Indexes::Loose, form: Form::Whole, ..Reader::new(quirks) };
    reader.chunk(body, &mut Said::default())?;
    if reader.finish.is_none() && reader.text.is_empty() && reader.calls.is_empty() {
        return Err(Fault::new(FaultKind::NotAnApi, "the answer has no message in it"));
    }
    reader.done = true;
    Box::new(reader).end()
}

impl Reader {
    pub(super) fn new(quirks: &'static Quirks) -> Self {
        Self {
            quirks,
            indexes: quirks.indexes,
            form: Form::Pieces,
            text: String::new(),
            reasoning: String::new(),
            details: Vec::new(),
            calls: Vec::new(),
            finish: None,
            refused: false,
            usage: None,
            model: None,
            done: false,
        }
    }

    fn chunk(&mut self, json: &str, said: &mut Said) -> Result<(), Fault> {
        if !json.trim_start().starts_with('{') {
            // No chunk of a reply, but it may be one of JSON.
            return typed(json, false).map(drop);
        }
        let chunk: Chunk<'_> = serde_json::from_str(json).map_err(|error| bad_json(&error))?;
        if let Some(error) = chunk.error.filter(|error| is_error(error)) {
            return Err(reported(error.get()));
        }
        if chunk.object.is_some_and(|object| object.0 == "error") {
            return Err(reported(json));
        }
        if let (None, Some(Text(model))) = (&self.model, chunk.model) {
            self.model = Text(model).filled();
        }
        if let Some(told) = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage)) {
            self.usage = usage(told.get()).or(self.usage);
        }
        let first = |choice: &Choice<'_>| choice.index.0.unwrap_or(0) == 0;
        for choice in chunk.choices.unwrap_or_default().into_iter().filter(first) {
            if let Some(error) = choice.error.filter(|error| is_error(error)) {
                return Err(reported(error.get()));
            }
            let reason = choice.finish_reason.map_or_else(Default::default, |reason| reason.0);
            let finish = finish(&reason)?;
            if let Some(delta) = self.news(choice.delta, choice.message, finish.is_some()) {
                self.delta(delta, said)?;
            }
            self.finish = finish.or(self.finish.take());
        }
        Ok(())
    }

    /// Returns what is new in a choice. In a stream that is the delta; a message beside it is what has come so far, and
    /// counts when nothing has.
    fn news<'a>(
        &self,
        delta: Option<Delta<'a>>,
        message: Option<Delta<'a>>,
        is_last: bool,
    ) -> Option<Delta<'a>> {
        let has_begun = !self.text.is_empty() || !self.calls.is_empty();
        match (self.form, delta, message) {
            (_, only, None) | (Form::Whole, None, only) => only,
            (Form::Whole, Some(delta), Some(message)) => {
                Some(if message.is_empty() { delta } else { message })
            }
            (Form::Pieces, Some(delta), Some(_)) if has_begun || !is_last || !delta.is_empty() => {
                Some(delta)
            }
            (Form::Pieces, Some(_), message) => message,
            (Form::Pieces, None, Some(message)) => {
                // It says again what has come, where it is the whole of it.
                let is_again = has_begun && is_last && *message.content.text == *self.text;
                (!is_again).then_some(message)
            }
        }
    }

    fn delta(&mut self, delta: Delta<'_>, said: &mut Said) -> Result<(), Fault> {
        let Delta { content, refusal, reasoning_content, reasoning, reasoning_details, tool_calls } =
            delta;
        let thought = reasoning_content.or(reasoning).map_or_else(Default::default, |text| text.0);
        for thought in [&*thought, &*content.thoughts] {
            said.reasoning.push_str(thought);
            self.reasoning.push_str(thought);
        }
        said.text.push_str(&content.text);
        self.text.push_str(&content.text);
        if let Some(Text(refusal)) = refusal.filter(|refusal| !refusal.0.is_empty()) {
            said.text.push_str(&refusal);
            self.text.push_str(&refusal);
            self.refused = true;
        }
        if let Some(details) =
            reasoning_details.filter(|_| self.quirks.reasoning == Reasoning::Details)
        {
            let details: Value =
                serde_json::from_str(details.get()).map_err(|error| bad_json(&error))?;
            merge(&mut self.details, details);
        }
        tool_calls.unwrap_or_default().iter().try_for_each(|call| self.call(call, said))
    }

    /// Takes in a piece of a tool call. A call begins where its name is; everything else goes on with one.
    fn call(&mut self, delta: &CallDelta<'_>, said: &mut Said) -> Result<(), Fault> {
        let id = delta.id.as_ref().map_or("", |id| &*id.0);
        let function = delta.function.as_ref();
        let name = function.and_then(|function| function.name.as_ref()).map_or("", |name| &*name.0);
        let arguments = match function {
            Some(function) => function.arguments().map_err(broken)?,
            None => "".into(),
        };
        said.silently(&arguments);
        let known = match delta.index.0 {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None => self.calls.len().checked_sub(1),
        };
        let begins = match (self.indexes, known, delta.index.0) {
            (_, None, _) => true,
            (_, Some(_), _) if name.is_empty() => false,
            (Indexes::Strict, Some(_), _) => return Err(twice(delta.index.0)),
            // Without indexes every name begins a call.
            (Indexes::Loose, Some(_), None) => true,
            // Some servers give every call the index 0, but none sends another call before the one before is whole.
            (Indexes::Loose, Some(at), Some(_)) => {
                let call = &self.calls[at];
                let is_whole = serde_json::from_str::<&RawValue>(&call.arguments).is_ok();
                if !is_whole
                    || (!id.is_empty() && id == call.id)
                    || (id.is_empty() && !call.id.is_empty())
                {
                    return Err(twice(delta.index.0));
                }
                true
            }
        };
        if let Some(at) = known.filter(|_| !begins) {
            self.calls[at].arguments.push_str(&arguments);
        } else {
            self.may_begin(delta.index.0, name)?;
            self.calls.push(Call {
                index: delta.index.0,
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.into_owned(),
            });
        }
        Ok(())
    }

    fn may_begin(&self, index: Option<u64>, name: &str) -> Result<(), Fault> {
        if name.is_empty() {
            return Err(broken("a piece of a tool call comes before its name"));
        }
        let last = self.calls.iter().filter_map(|call| call.index).max();
        let in_order = match (self.indexes, index) {
            (Indexes::Strict, index) => index == Some(self.calls.len() as u64),
            (Indexes::Loose, None) => true,
            (Indexes::Loose, Some(index)) => last.is_none_or(|last| index >= last),
        };
        match (in_order, index) {
            (true, _) => Ok(()),
            (false, Some(index)) => Err(broken(format!("tool call {index} is out of order"))),
            (false, None) => Err(broken("a tool call has no index")),
        }
    }

    /// Returns what has to go back to the server.
    fn opaque(&mut self) -> Option<String> {
        match self.quirks.reasoning {
            Reasoning::Content if !self.reasoning.is_empty() => {
                Some(serde_json::json!({"reasoning_content": self.reasoning}).to_string())
            }
            Reasoning::Details if !self.details.is_empty() => {
                let details = std::mem::take(&mut self.details);
                Some(serde_json::json!({"reasoning_details": details}).to_string())
            }
            Reasoning::Dropped | Reasoning::Content | Reasoning::Details => None,
        }
    }
}

impl Decoder for Reader {
    fn event(&mut self, event: Event<'_>, said: &mut Said) -> Result<(), Fault> {
        match event.data.trim() {
            "" => Ok(()),
            "[DONE]" => {
                self.done = true;
                Ok(())
            }
            data if event.name == "error" => {
                let error: Option<Value> = serde_json::from_str(data).ok();
                let error = error
                    .as_ref()
                    .and_then(|error| ApiError::find(error).or_else(|| ApiError::read(error)));
                let raw = || ApiError { message: data.to_owned(), ..ApiError::default() };
                Err(judge_event(&error.unwrap_or_else(raw), |_| None))
            }
            data => self.chunk(data, said),
        }
    }

    fn is_complete(&self) -> bool {
        self.done
    }

    fn end(mut self: Box<Self>) -> Result<Draft, Fault> {
        let ends = self.done || (self.quirks.end == End::DoneOrFinish && self.finish.is_some());
        if !ends {
            return Err(cut_off());
        }
        let opaque = self.opaque().map(Piece::Opaque);
        let Self { text, calls, finish, refused, usage, model, .. } = *self;
        let text = Some(text).filter(|text| !text.is_empty()).map(Piece::Text);
        let calls = calls.into_iter().map(|call| Piece::Call {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        });
        let pieces: Vec<_> = opaque.into_iter().chain(text).chain(calls).collect();
        let finish = match finish.unwrap_or_else(|| Reason::unsaid(&pieces)) {
            Finish::Stop if refused => Finish::Refused,
            finish => finish,
        };
        Ok(Draft { pieces, finish, usage, model })
    }
}

/// Returns why the model stopped; nothing for a reason that is none, and a fault for one that is an error.
fn finish(reason: &str) -> Result<Option<Finish>, Fault> {
    Reason::of(reason).finish(reason)
}

/// Returns the fault of an error inside a reply.
fn reported(error: &str) -> Fault {
    let error: Option<Value> = serde_json::from_str(error).ok();
    judge_event(&error.as_ref().and_then(ApiError::read).unwrap_or_default(), |_| None)
}

fn twice(index: Option<u64>) -> Fault {
    let index = index.map_or_else(String::new, |index| format!(" {index}"));
    broken(format!("tool call{index} begins twice"))
}

/// Adds pieces of reasoning blocks; a piece with the index and the type of the one before goes on with it.
fn merge(blocks: &mut Vec<Value>, pieces: Value) {
    let Value::Array(pieces) = pieces else { return };
    for piece in pieces {
        let same = |block: &&mut Value| {
            block.get("type") == piece.get("type")
                && block.get("index").is_some()
                && block.get("index") == piece.get("index")
        };
        match (blocks.last_mut().filter(same), piece) {
            (Some(Value::Object(block)), Value::Object(piece)) => {
                for (key, value) in piece {
                    match (block.get_mut(&key), value) {
                        (Some(Value::String(whole)), Value::String(more))
                            if ["text", "summary", "data"].contains(&key.as_str()) =>
                        {
                            whole.push_str(&more);
                        }
                        (_, Value::Null) => {}
                        (_, value) => {
                            block.insert(key, value);
                        }
                    }
                }
            }
            (_, piece) => blocks.push(piece),
        }
    }
}
