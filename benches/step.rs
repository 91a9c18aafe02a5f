//! What one step of the machine costs.
//!
//! A turn with one tool is four steps (prepared, replied, vetted, settled). The state is handed from one to the next, as
//! the driver does it; what is measured is the transition alone, without the conversation.

use std::hint::black_box;
use std::sync::Arc;

use architect::machine::{Effect, Event, Facts, Intent, Next, State, Verdict, start, step};
use architect::model::{
    Access, EffectId, Finish, Item, Limits, LoopRules, Origin, Part, Reply, Rules, Span, Tokens,
    ToolCall, ToolResult, ToolStatus, Usage,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn fresh() -> (State, EffectId) {
    let limits = Limits { max_steps: u32::MAX, ..Limits::default() };
    let loops = LoopRules { warn: u32::MAX, end: u32::MAX };
    let rules = Rules { limits, loops, ..Rules::default() };
    let next = start(rules, Item::user(Origin::Task, "task"));
    let id = asked(&next);
    (next.state, id)
}

fn reply() -> Reply {
    let call = ToolCall::new("call_1".into(), "read_file", r#"{"path":"src/lib.rs"}"#);
    Reply {
        parts: [Part::Text("Let me look.".into()), Part::Call(call)].into(),
        finish: Finish::ToolCalls,
        usage: Usage { input: Tokens(1_000), output: Tokens(50), ..Usage::default() },
        model: None,
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

/// One turn: the model is prepared and called, its tool is judged and runs.
fn turn(
    (state, id): (State, EffectId),
    reply: &Reply,
    access: &Arc<[Access]>,
    result: &ToolResult,
) -> (State, EffectId) {
    let facts = Facts { context: Tokens(1_000), bound: Tokens(1_200), exchanges: 3 };
    let next = step(state, Event::Prepared { id, facts, messages: [].into() });
    let id = asked(&next);
    let next =
        step(next.state, Event::Replied { id, reply: reply.clone(), access: access.clone() });
    let id = asked(&next);
    let verdict =
        Verdict::Cleared { limit: Span::secs(60), intent: Intent::Pure, grounds: "".into() };
    let next = step(next.state, Event::Vetted { id, verdict });
    let id = asked(&next);
    let next = step(next.state, Event::Settled { id, result: result.clone() });
    let id = asked(&next);
    (next.state, id)
}

fn steps(c: &mut Criterion) {
    let (reply, access) = (reply(), [Access::read("src/lib.rs")].into());
    let result = ToolResult::new("call_1".into(), ToolStatus::Ok, "contents");
    c.bench_function("a turn of four steps", |b| {
        let mut state = Some(fresh());
        b.iter(|| {
            let before = state.take().unwrap_or_else(fresh);
            state = Some(black_box(turn(before, &reply, &access, &result)));
        });
    });
    c.bench_function("a tick that finds nothing due", |b| {
        let mut state = Some(fresh());
        b.iter(|| {
            let (before, id) = state.take().unwrap_or_else(fresh);
            let now = before.run().now;
            state = Some((black_box(step(before, Event::Tick { now }).state), id));
        });
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
