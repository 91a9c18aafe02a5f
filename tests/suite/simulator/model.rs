//! A model with every kind of reply and fault, at any time.

use architect::machine::CallPurpose;
use architect::port::{EffectContext, Model, ModelCall, ModelRequest, ReplyDelta};
use architect::types::{
    CallId, ConversationItem, Fault, FaultKind, Reply, ReplyFinish, ReplyPart, RetryAdvice,
    TimeSpan, Tokens, ToolCall, Usage,
};

use super::executor::panic_quietly;
use super::journal::SharedDisk;
use super::rng::Rng;
use super::tools::NAMES;

/// The behaviour of a model during a run, to reach stop reasons that need repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelBehavior {
    /// It returns anything.
    Random,
    /// It repeats the same call.
    Repeating,
    /// It makes invalid calls.
    InvalidCalls,
    /// Its calls are cut off.
    TruncatedCalls,
    /// It makes calls, and rarely anything else.
    Working,
    /// The context is often too large for it.
    Overflowing,
    /// It answers immediately, and never by the schema.
    SchemaViolating,
}

pub(super) struct SimulatedModel {
    pub(super) mood: ModelBehavior,
    pub(super) chance: Rng,
    pub(super) disk: SharedDisk,
}

struct SimulatedReply {
    chance: Rng,
    reply: Result<Reply, Fault>,
    delay: TimeSpan,
    breaks_down: bool,
}

impl Model for SimulatedModel {
    fn prepare(&mut self, ask: &ModelRequest<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let chance = &self.chance;
        {
            let disk = self.disk.lock();
            assert!(!disk.has_failed, "a request is sent after the journal failed");
            assert!(disk.is_durable(), "a request is sent before its reason is durable");
        }
        assert!(
            matches!(ask.entries.first().map(|entry| &entry.item), Some(ConversationItem::User(_)))
                || (ask.purpose == CallPurpose::Compaction && !ask.entries.is_empty()),
            "a conversation begins with the user"
        );
        if chance.once_in(80) {
            return Err(fault(chance));
        }
        let overflows = self.mood == ModelBehavior::Overflowing && chance.once_in(4);
        let reply = match chance.below(5) {
            _ if overflows => Err(Fault::new(FaultKind::Overflow, "it is too long")),
            0 => Err(fault(chance)),
            _ => Ok(reply(chance, ask, self.mood)),
        };
        Ok(Box::new(SimulatedReply {
            chance: chance.clone(),
            reply,
            delay: chance.delay(),
            breaks_down: chance.once_in(60),
        }))
    }
}

impl ModelCall for SimulatedReply {
    fn run(
        self: Box<Self>,
        scope: &EffectContext,
        sink: &mut dyn FnMut(ReplyDelta),
    ) -> Result<Reply, Fault> {
        for _ in 0..self.chance.below(3) {
            sink(ReplyDelta::Started);
            sink(ReplyDelta::Text("so ".to_owned()));
        }
        scope.sleep(self.delay);
        if self.breaks_down {
            panic_quietly();
        }
        self.reply
    }
}

fn fault(chance: &Rng) -> Fault {
    let fault = Fault::new(chance.of(&FaultKind::ALL), "it failed");
    Fault {
        // Most faults are transient, so that runs continue.
        kind: if chance.once_in(4) { fault.kind } else { FaultKind::Server },
        advice: match chance.below(12) {
            0 => RetryAdvice::Retry,
            1 => RetryAdvice::GiveUp,
            _ => RetryAdvice::Unspecified,
        },
        retry_after: chance.once_in(4).then(|| TimeSpan::from_millis(chance.below(90_000))),
        billed: chance.once_in(2),
        ..fault
    }
}

fn reply(chance: &Rng, ask: &ModelRequest<'_>, mood: ModelBehavior) -> Reply {
    let text = |text: &str| ReplyPart::Text(text.into());
    let call = |index: u64| {
        let arguments = ["{}", "{\"path\":\"a\"}", "{\"path\":\"b\"}", "{", "null", ""];
        // A quiet number may repeat.
        let id = format!("c{}_{}_{index}", chance.below(1_000_000), chance.drawn());
        ToolCall::new(CallId::from(id.as_str()), chance.of(&NAMES), chance.of(&arguments))
    };
    let calls = |many: u64| -> Vec<ReplyPart> {
        (0..many).map(|index| ReplyPart::Call(call(index))).collect()
    };
    let one = |name: &str, arguments: &str| {
        let id = format!("o{}_{}", chance.below(1_000_000), chance.drawn());
        vec![ReplyPart::Call(ToolCall::new(CallId::from(id.as_str()), name, arguments))]
    };
    let truncated = || {
        let id = format!("t{}_{}", chance.below(1_000_000), chance.drawn());
        let call = ToolCall::new(CallId::from(id.as_str()), "write", "{").mark_truncated();
        vec![ReplyPart::Call(call)]
    };
    let (parts, finish) = match chance.below(25) {
        _ if mood == ModelBehavior::Working && !chance.once_in(8) => {
            (calls(1 + chance.below(4)), ReplyFinish::ToolCalls)
        }
        _ if mood == ModelBehavior::Overflowing && chance.once_in(3) => {
            (vec![text("full")], ReplyFinish::ContextFull)
        }
        _ if mood == ModelBehavior::Repeating => (one("same", "{}"), ReplyFinish::ToolCalls),
        _ if mood == ModelBehavior::InvalidCalls => (one("unknown", "{}"), ReplyFinish::ToolCalls),
        _ if mood == ModelBehavior::TruncatedCalls && !chance.once_in(8) => {
            (truncated(), ReplyFinish::Length)
        }
        _ if mood == ModelBehavior::SchemaViolating => (vec![text("no JSON")], ReplyFinish::Stop),
        0 => (vec![], ReplyFinish::Stop),
        1 => (vec![text("done")], ReplyFinish::Stop),
        2 => (vec![], ReplyFinish::Length),
        3 => (vec![text("wait")], ReplyFinish::Pause),
        4 => (vec![text("no")], ReplyFinish::Refused),
        5 => (vec![text("full")], ReplyFinish::ContextFull),
        // With a text the run ends; without one the call has failed, and most runs should continue.
        6 => {
            let output = if chance.below(4) == 0 { vec![text("odd")] } else { vec![] };
            (output, ReplyFinish::Other("odd".into()))
        }
        7 => (vec![text("so f")], ReplyFinish::Length),
        8 => (vec![text("  \n")], ReplyFinish::Stop),
        9 => {
            let mut parts = calls(2);
            parts.push(ReplyPart::Call(call(9).mark_truncated()));
            (parts, ReplyFinish::Length)
        }
        10 => (calls(1), ReplyFinish::Stop),
        24 => (truncated(), ReplyFinish::Length),
        11..16 => (calls(1 + chance.below(12)), ReplyFinish::ToolCalls),
        _ => (calls(1 + chance.below(3)), ReplyFinish::ToolCalls),
    };
    let most = ask.max_output.map_or(500, |most| most.0.min(500)).max(1);
    let usage = Usage {
        // No more than was reserved for it.
        input: Tokens(chance.below(400).min(ask.input_bound.0)),
        output: Tokens(chance.below(most)),
        ..Usage::default()
    };
    Reply { parts: parts.into(), finish, usage, model: None }
}
