//! A model that says anything: every kind of reply, every kind of fault, at any time.

use architect::machine::Purpose;
use architect::model::{
    CallId, Fault, FaultKind, Finish, Item, Part, Reply, RetryAdvice, Span, Tokens, ToolCall, Usage,
};
use architect::port::{Ask, Delta, Model, ModelCall, Scope};

use super::chance::Chance;
use super::hands::break_down;
use super::journal::Shared;
use super::tools::NAMES;

/// What a model is like for a whole life, so that ends come about that take persistence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It says anything.
    Any,
    /// It makes the same call again and again.
    Stubborn,
    /// It makes calls that can't be run.
    Confused,
    /// It answers at once, and never by the schema.
    Unfit,
}

pub(super) struct SimulatedModel {
    pub(super) mood: Mood,
    pub(super) chance: Chance,
    pub(super) disk: Shared,
}

struct Answer {
    chance: Chance,
    reply: Result<Reply, Fault>,
    delay: Span,
    breaks_down: bool,
}

impl Model for SimulatedModel {
    fn prepare(&mut self, ask: &Ask<'_>) -> Result<Box<dyn ModelCall>, Fault> {
        let chance = &self.chance;
        {
            let disk = self.disk.lock();
            let all = disk.records.len();
            assert_eq!(disk.durable, all, "a request goes out before its reason is durable");
        }
        assert!(
            matches!(ask.entries.first().map(|entry| &entry.item), Some(Item::User(_)))
                || (ask.purpose == Purpose::Compaction && !ask.entries.is_empty()),
            "a conversation begins with the user"
        );
        if chance.once_in(80) {
            return Err(fault(chance));
        }
        let reply =
            if chance.once_in(5) { Err(fault(chance)) } else { Ok(reply(chance, ask, self.mood)) };
        Ok(Box::new(Answer {
            chance: chance.clone(),
            reply,
            delay: chance.delay(),
            breaks_down: chance.once_in(60),
        }))
    }
}

impl ModelCall for Answer {
    fn run(self: Box<Self>, scope: &Scope, sink: &mut dyn FnMut(Delta)) -> Result<Reply, Fault> {
        for _ in 0..self.chance.below(3) {
            sink(Delta::Begun);
            sink(Delta::Text("so ".to_owned()));
        }
        scope.sleep(self.delay);
        if self.breaks_down {
            break_down();
        }
        self.reply
    }
}

fn fault(chance: &Chance) -> Fault {
    let fault = Fault::new(chance.of(&FaultKind::ALL), "it failed");
    Fault {
        // Most faults pass, so that runs live on.
        kind: if chance.once_in(4) { fault.kind } else { FaultKind::Server },
        retry: match chance.below(12) {
            0 => RetryAdvice::Yes,
            1 => RetryAdvice::No,
            _ => RetryAdvice::Silent,
        },
        wait: chance.once_in(4).then(|| Span::millis(chance.below(90_000))),
        billed: chance.once_in(2),
        ..fault
    }
}

fn reply(chance: &Chance, ask: &Ask<'_>, mood: Mood) -> Reply {
    let text = |text: &str| Part::Text(text.into());
    let call = |index: u64| {
        let arguments = ["{}", "{\"path\":\"a\"}", "{\"path\":\"b\"}", "{", "null", ""];
        let id = format!("c{}_{index}", chance.below(1_000_000));
        ToolCall::new(CallId::from(id.as_str()), chance.of(&NAMES), chance.of(&arguments))
    };
    let calls =
        |many: u64| -> Vec<Part> { (0..many).map(|index| Part::Call(call(index))).collect() };
    let one = |name: &str, arguments: &str| {
        let id = format!("o{}", chance.below(1_000_000));
        vec![Part::Call(ToolCall::new(CallId::from(id.as_str()), name, arguments))]
    };
    let (parts, finish) = match chance.below(24) {
        _ if mood == Mood::Stubborn => (one("same", "{}"), Finish::ToolCalls),
        _ if mood == Mood::Confused => (one("unknown", "{}"), Finish::ToolCalls),
        _ if mood == Mood::Unfit => (vec![text("no JSON")], Finish::Stop),
        0 => (vec![], Finish::Stop),
        1 => (vec![text("so f")], Finish::Length),
        2 => (vec![], Finish::Length),
        3 => (vec![text("wait")], Finish::Pause),
        4 => (vec![text("no")], Finish::Refused),
        5 => (vec![text("full")], Finish::ContextFull),
        // With a text that is the end; without one it is a failed call, and most lives are to go on.
        6 => {
            let said = if chance.below(4) == 0 { vec![text("odd")] } else { vec![] };
            (said, Finish::Other("odd".into()))
        }
        7 => (vec![text("done")], Finish::Stop),
        8 => (vec![text("  \n")], Finish::Stop),
        9 => {
            let mut parts = calls(2);
            parts.push(Part::Call(call(9).cut_short()));
            (parts, Finish::Length)
        }
        10 => (calls(1), Finish::Stop),
        11..16 => (calls(1 + chance.below(12)), Finish::ToolCalls),
        _ => (calls(1 + chance.below(3)), Finish::ToolCalls),
    };
    let most = ask.max_output.map_or(500, |most| most.0.min(500)).max(1);
    let usage = Usage {
        input: Tokens(chance.below(400)),
        output: Tokens(chance.below(most)),
        ..Usage::default()
    };
    Reply { parts: parts.into(), finish, usage, model: None }
}
