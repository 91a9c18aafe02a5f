//! A turn of the machine alone: the model is prepared and called, its tool is judged and runs.

use std::sync::Arc;

use architect::machine::{Effect, Event, Facts, Intent, Next, State, Verdict, start, step};
use architect::model::{
    Access, EffectId, Finish, Item, Limits, LoopRules, Origin, Part, Reply, Rules, Span, Tokens,
    ToolCall, ToolResult, ToolStatus, Usage,
};

/// A state, and the effect that it waits for.
pub(crate) type Stand = (State, EffectId);

/// What comes in during a turn.
pub(crate) struct Turn {
    reply: Reply,
    access: Arc<[Access]>,
    result: ToolResult,
}

/// Returns the state at the beginning of a run that nothing limits.
pub(crate) fn fresh() -> Stand {
    let limits = Limits { max_steps: u32::MAX, ..Limits::default() };
    let loops = LoopRules { warn: u32::MAX, end: u32::MAX };
    let rules = Rules { limits, loops, ..Rules::default() };
    let next = start(rules, Item::user(Origin::Task, "task"));
    let id = asked(&next);
    (next.state, id)
}

impl Turn {
    pub(crate) fn new() -> Self {
        let call = ToolCall::new("call_1".into(), "read_file", r#"{"path":"src/lib.rs"}"#);
        let reply = Reply {
            parts: [Part::Text("Let me look.".into()), Part::Call(call)].into(),
            finish: Finish::ToolCalls,
            usage: Usage { input: Tokens(1_000), output: Tokens(50), ..Usage::default() },
            model: None,
        };
        let result = ToolResult::new("call_1".into(), ToolStatus::Ok, "contents");
        Self { reply, access: [Access::read("src/lib.rs")].into(), result }
    }

    /// Takes four steps. The state is handed from one to the next, as the driver does it.
    pub(crate) fn take(&self, (state, id): Stand) -> Stand {
        let facts = Facts {
            context: Tokens(1_000),
            bound: Tokens(1_200),
            exchanges: 3,
            ..Facts::default()
        };
        let next = step(state, Event::Prepared { id, facts, messages: [].into() });
        let (id, reply, access) = (asked(&next), self.reply.clone(), self.access.clone());
        let next = step(next.state, Event::Replied { id, reply, access });
        let id = asked(&next);
        let verdict =
            Verdict::Cleared { limit: Span::secs(60), intent: Intent::Pure, grounds: "".into() };
        let next = step(next.state, Event::Vetted { id, verdict });
        let (id, result) = (asked(&next), self.result.clone());
        let next = step(next.state, Event::Settled { id, result });
        let id = asked(&next);
        (next.state, id)
    }
}

/// The id of the effect that a step asked for.
fn asked(next: &Next) -> EffectId {
    match next.effects.last() {
        Some(
            Effect::Prepare { id, .. }
            | Effect::Call { id, .. }
            | Effect::Vet { id, .. }
            | Effect::Run { id, .. },
        ) => *id,
        _ => EffectId(0),
    }
}
