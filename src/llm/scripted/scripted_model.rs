//! Plays scripts.

use std::sync::Arc;

use super::{Script, ScriptPosition, ScriptedTurn, ScriptedUsage};
use crate::llm::decode::estimate_usage;
use crate::llm::wire::Result;
use crate::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta};
use crate::types::{
    CallId, ConversationItem, Fault, FaultKind, OpaqueBlock, Reply, ReplyFinish, ReplyPart,
    RetryAdvice, TimeSpan, ToolCall, Usage, pluralize,
};

/// A model that plays a script.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Script,
    position: ScriptPosition,
}

impl ScriptedModel {
    /// Returns a model that plays a script from a position.
    pub fn new(script: Script, position: ScriptPosition) -> Self {
        Self { script, position }
    }
}

impl Model for ScriptedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>> {
        let Self { script, position } = self.clone();
        Ok(Box::new(UnsentCall { script, position, sent_bytes: request_bytes(ask) }))
    }
}

/// A call that takes its turn when it is sent. A call that is not sent, for example because of the budget, takes none.
struct UnsentCall {
    script: Script,
    position: ScriptPosition,
    sent_bytes: usize,
}

impl ModelCall for UnsentCall {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply> {
        let Self { script, position, sent_bytes } = *self;
        let call_index = position.advance();
        let Some((turn, repetition)) = script.turn(call_index) else {
            let turns = pluralize(script.turns.len(), "turn", "turns");
            let message =
                format!("the script {} has {turns}, and the run asks for one more", script.name);
            let fault = Fault::new(FaultKind::Request, message);
            return Err(Fault { advice: RetryAdvice::GiveUp, ..fault });
        };
        ScriptedCall { turn, call_index, repetition, sent_bytes }.play(scope, sink)
    }
}

/// A turn that is being played.
struct ScriptedCall<'a> {
    turn: &'a ScriptedTurn,
    call_index: usize,
    repetition: usize,
    sent_bytes: usize,
}

impl ScriptedCall<'_> {
    fn play(&self, scope: &EffectContext, sink: &mut dyn FnMut(ReplyDelta)) -> Result<Reply> {
        let cancelled = || Fault::new(FaultKind::Connect, "the call was cancelled");
        let turn = self.turn;
        let sleep = |millis| millis > 0 && scope.sleep(TimeSpan::from_millis(millis));
        if sleep(turn.delay_ms) {
            return Err(cancelled());
        }
        let says_something = !turn.text.is_empty() || !turn.reasoning.is_empty();
        if turn.error.is_none() || says_something {
            sink(ReplyDelta::Started);
        }
        if !turn.reasoning.is_empty() {
            sink(ReplyDelta::Reasoning(turn.reasoning.clone()));
            if turn.pace_ms > 0 && sleep(turn.pace_ms) {
                return Err(cancelled());
            }
        }
        for (index, piece) in split_text(&turn.text, turn.chunks.max(1)).into_iter().enumerate() {
            if index > 0 && sleep(turn.pace_ms) {
                return Err(cancelled());
            }
            sink(ReplyDelta::Text(piece.to_owned()));
        }
        match &turn.error {
            Some(error) => Err(Fault {
                advice: error.retry,
                retry_after: error.wait_ms.map(TimeSpan::from_millis),
                billed: error.billed,
                received: estimate_usage(0, turn.text.len() + turn.reasoning.len()).output,
                ..Fault::new(error.kind, error.message.as_deref().unwrap_or("scripted error"))
            }),
            None => Ok(self.reply()),
        }
    }

    fn reply(&self) -> Reply {
        let (turn, finish) = (self.turn, self.turn.finish());
        let text = Some(&turn.text).filter(|text| !text.is_empty());
        let mut parts: Vec<ReplyPart> =
            text.map(|text| ReplyPart::Text(text.as_str().into())).into_iter().collect();
        for (index, line) in turn.calls.iter().enumerate() {
            let id = match &line.id {
                Some(id) if self.repetition == 0 => id.clone(),
                Some(id) => format!("{id}_{}", self.repetition),
                None => format!("call_{}_{index}", self.call_index),
            };
            let call = ToolCall::new(CallId::from(id.as_str()), &line.name, &line.arguments());
            let is_cut = finish == ReplyFinish::Length && index + 1 == turn.calls.len();
            parts.push(ReplyPart::Call(if is_cut { call.mark_truncated() } else { call }));
        }
        Reply { parts: parts.into(), finish, usage: self.usage(), model: Some("scripted".into()) }
    }

    fn usage(&self) -> Usage {
        let turn = self.turn;
        let Some(usage) = turn.usage else {
            let calls = turn.calls.iter().map(|call| call.name.len() + call.arguments().len());
            let written = turn.text.len() + turn.reasoning.len() + calls.sum::<usize>();
            return estimate_usage(self.sent_bytes, written);
        };
        let ScriptedUsage { input, output, cached_input, cache_write, reasoning } = usage;
        Usage { input, output, cached_input, cache_write, reasoning, is_estimated: false }
    }
}

/// Splits a text into parts of similar length.
fn split_text(text: &str, count: usize) -> Vec<&str> {
    let length = text.len().div_ceil(count).max(1);
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end =
            (length..rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
        let (piece, later) = rest.split_at(end);
        pieces.push(piece);
        rest = later;
    }
    pieces
}

/// Returns the approximate size of a request, in bytes.
fn request_bytes(ask: &ModelRequest<'_>) -> usize {
    let reply = |reply: &Reply| {
        let part = |part: &ReplyPart| match part {
            ReplyPart::Text(text) => text.len(),
            ReplyPart::Call(call) => call.name.len() + call.arguments.text().len(),
            ReplyPart::Opaque(OpaqueBlock { json, .. }) => json.len(),
        };
        reply.parts.iter().map(part).sum::<usize>()
    };
    let item = |item: &ConversationItem| match item {
        ConversationItem::User(message) => message.text.len(),
        ConversationItem::Assistant(message) => reply(message),
        ConversationItem::Exchange(exchange) => {
            let results = exchange.results().iter().map(|result| result.text.len());
            reply(exchange.reply()) + results.sum::<usize>()
        }
    };
    let fixed = ask.system.len() + ask.instruction.map_or(0, str::len);
    let tools = ask.tools.iter().map(|tool| Arc::as_ref(&tool.description).len());
    fixed + tools.sum::<usize>() + ask.entries.iter().map(|entry| item(&entry.item)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::machine::{CallPurpose, ConversationEntry, EntryId};
    use crate::port::{CancellationToken, Sleep};
    use crate::types::{MessageOrigin, Tokens};

    /// A sleep that only counts.
    #[derive(Default)]
    struct CountingSleep(AtomicU64);

    impl Sleep for CountingSleep {
        fn sleep(&self, span: TimeSpan, cancel: &CancellationToken) -> bool {
            self.0.fetch_add(span.0, Ordering::Relaxed);
            cancel.is_cancelled()
        }
    }

    fn play(model: &mut ScriptedModel) -> (Result<Reply>, Vec<ReplyDelta>, TimeSpan) {
        let entries = [ConversationEntry {
            id: EntryId(0),
            item: ConversationItem::user(MessageOrigin::Task, "x".repeat(350)),
        }];
        let (system, tools) = ("".into(), [].into());
        let ask = ModelRequest {
            model: 0,
            purpose: CallPurpose::Agent,
            attempt: 1,
            system: &system,
            tools: &tools,
            entries: &entries,
            input_bound: Tokens::ZERO,
            instruction: None,
            max_output: None,
            schema: None,
        };
        let clock = Arc::new(CountingSleep::default());
        let scope =
            EffectContext::new(CancellationToken::new(), Arc::clone(&clock) as Arc<dyn Sleep>);
        let mut deltas = Vec::new();
        let reply =
            model.prepare(&ask).and_then(|call| call.run(&scope, &mut |delta| deltas.push(delta)));
        (reply, deltas, TimeSpan(clock.0.load(Ordering::Relaxed)))
    }

    fn model(script: &str) -> ScriptedModel {
        ScriptedModel::new(Script::from_toml("s", script).unwrap(), ScriptPosition::default())
    }

    #[test]
    fn a_turn_is_played_with_its_delays() {
        let mut model = model(
            "[[turn]]\ntext = \"abcä\"\nreasoning = \"hm\"\nchunks = 2\npace_ms = 5\ndelay_ms = 7\n\
             calls = [{ name = \"t\" }, { id = \"own\", name = \"u\", raw = \"{\" }]\nfinish = \"length\"\n",
        );
        let (reply, deltas, waited) = play(&mut model);
        let reply = reply.unwrap();
        let text = |text: &str| ReplyDelta::Text(text.to_owned());
        let reasoning = ReplyDelta::Reasoning("hm".to_owned());
        assert_eq!(deltas, [ReplyDelta::Started, reasoning, text("abc"), text("ä")]);
        assert_eq!(waited, TimeSpan::from_millis(17));
        let ids: Vec<_> = reply.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_0_0", "own"]);
        assert!(matches!(
            reply.calls().last().unwrap().arguments,
            crate::types::ToolArguments::Truncated { .. }
        ));
        assert_eq!((reply.usage.input, reply.usage.is_estimated), (Tokens(100), true));
    }

    #[test]
    fn a_finished_script_fails_or_repeats() {
        let mut once = model("[[turn]]\ntext = \"a\"\n");
        assert!(play(&mut once).0.is_ok());
        let fault = play(&mut once).0.unwrap_err();
        assert_eq!(&*fault.message, "the script s has 1 turn, and the run asks for one more");
        assert_eq!(fault.class(), crate::types::FaultClass::Fatal);
        let mut again = model("repeat = true\n[[turn]]\ncalls = [{ id = \"c\", name = \"t\" }]\n");
        let ids: Vec<_> = (0..2)
            .map(|_| play(&mut again).0.unwrap().calls().next().unwrap().id.to_string())
            .collect();
        assert_eq!(ids, ["c", "c_1"]);
    }

    #[test]
    fn a_second_model_continues_at_the_shared_position() {
        let script = Script::from_lines("s", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n").unwrap();
        let position = ScriptPosition::default();
        let mut first = ScriptedModel::new(script.clone(), position.clone());
        assert_eq!(&*play(&mut first).0.unwrap().text(), "a");
        assert_eq!(position.calls(), 1);
        let mut second = ScriptedModel::new(script, ScriptPosition::after(1));
        assert_eq!(&*play(&mut second).0.unwrap().text(), "b");
    }

    #[test]
    fn a_turn_can_fail_also_in_the_middle() {
        let mut model = model(
            "[[turn]]\ntext = \"so f\"\nerror = { kind = \"truncated\", wait_ms = 9, retry = \"no\", billed = true }\n\
             [[turn]]\nerror = { kind = \"server\", message = \"m\" }\n",
        );
        let (reply, deltas, _) = play(&mut model);
        let fault = reply.unwrap_err();
        assert_eq!(deltas, [ReplyDelta::Started, ReplyDelta::Text("so f".to_owned())]);
        assert_eq!(
            (fault.kind, fault.retry_after),
            (FaultKind::Truncated, Some(TimeSpan::from_millis(9)))
        );
        assert_eq!(
            (fault.advice, fault.billed, fault.received),
            (RetryAdvice::GiveUp, true, Tokens(2))
        );
        let (reply, deltas, _) = play(&mut model);
        assert_eq!((reply.unwrap_err().kind, deltas), (FaultKind::Server, vec![]));
    }
}
