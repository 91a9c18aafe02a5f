//! A turn of the machine alone: the model is prepared and called, its tool is authorized and runs.

use std::sync::Arc;

use architect::machine::{
    Authorization, CallIntent, Effect, Event, RequestSize, State, Step, start, step,
};
use architect::types::{
    CallAccess, ConversationItem, EffectId, LoopDetection, MessageOrigin, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};

/// A state, and the effect that it awaits.
pub(crate) type WaitingState = (State, EffectId);

/// The events of a turn.
pub(crate) struct TurnEvents {
    reply: Reply,
    access: Arc<[CallAccess]>,
    result: ToolResult,
}

/// Returns the state at the beginning of a run without limits.
pub(crate) fn fresh_state() -> WaitingState {
    let limits = RunLimits { max_steps: u32::MAX, ..RunLimits::default() };
    let loops = LoopDetection { warn_at: u32::MAX, end_at: u32::MAX };
    let rules = RunRules { limits, loop_detection: loops, ..RunRules::default() };
    let next = start(rules, ConversationItem::user(MessageOrigin::Task, "task"));
    let id = asked(&next);
    (next.state, id)
}

impl TurnEvents {
    pub(crate) fn new() -> Self {
        let call = ToolCall::new("call_1".into(), "read_file", r#"{"path":"src/lib.rs"}"#);
        let reply = Reply {
            parts: [ReplyPart::Text("Let me look.".into()), ReplyPart::Call(call)].into(),
            finish: ReplyFinish::ToolCalls,
            usage: Usage { input: Tokens(1_000), output: Tokens(50), ..Usage::default() },
            model: None,
        };
        let result = ToolResult::new("call_1".into(), ToolStatus::Ok, "contents");
        Self { reply, access: [CallAccess::read("src/lib.rs")].into(), result }
    }

    /// Takes four steps. The state is passed from one to the next as in the driver.
    pub(crate) fn advance(&self, (state, id): WaitingState) -> WaitingState {
        let size = RequestSize {
            estimate: Tokens(1_000),
            upper_bound: Tokens(1_200),
            exchanges: 3,
            ..RequestSize::default()
        };
        let next = step(state, Event::Prepared { id, size, messages: [].into() });
        let (id, reply, access) = (asked(&next), self.reply.clone(), self.access.clone());
        let next = step(next.state, Event::Replied { id, reply, access });
        let id = asked(&next);
        let authorization = Authorization::Approved {
            timeout: TimeSpan::from_secs(60),
            intent: CallIntent::ReadOnly,
            reason: "".into(),
        };
        let next = step(next.state, Event::Authorized { id, authorization });
        let (id, result) = (asked(&next), self.result.clone());
        let next = step(next.state, Event::ToolCompleted { id, result });
        let id = asked(&next);
        (next.state, id)
    }
}

/// Returns the id of the effect that a step started.
fn asked(next: &Step) -> EffectId {
    match next.effects.last() {
        Some(
            Effect::Prepare { id, .. }
            | Effect::CallModel { id, .. }
            | Effect::Authorize { id, .. }
            | Effect::RunTool { id, .. },
        ) => *id,
        _ => EffectId(0),
    }
}
