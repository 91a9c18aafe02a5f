//! The small world in which the machine is explored: few kinds of each event, and rules with small bounds.

use architect::machine::{Check, Event, Facts, Intent, Slot, State, StateKind, Verdict, deadline};
use architect::model::{
    Access, Backoff, Bounds, CallId, ContextRules, Digest, EffectId, Fault, FaultKind, Finish,
    Item, Limits, LoopRules, Micros, Origin, OutputRules, Part, Price, Reply, Rules, Signal, Span,
    Time, Tokens, ToolCall, ToolResult, ToolStatus, Usage, UserMessage, Watch,
};

/// An id that no effect ever has.
pub(crate) const STALE: EffectId = EffectId(u64::MAX);

/// Rules under which every arrow of the chart lies within a few steps.
pub(crate) fn rules() -> Rules {
    Rules {
        limits: Limits { max_steps: 2, ..Limits::default() },
        price: Some(Price {
            input: 1_000_000,
            output: 1_000_000,
            cached_input: 0,
            cache_write: 0,
            long: None,
        }),
        output: OutputRules {
            max: None,
            ceiling: Tokens(40),
            least: Tokens(5),
            closing: Tokens(10),
        },
        context: ContextRules {
            window: Tokens(100),
            summarize_after: 2,
            keep_recent: 1,
            max_compactions: 2,
            ..ContextRules::default()
        },
        backoff: Backoff { retries: 1, base: Span(20), cap: Span(20), longest: Span(20) },
        bounds: Bounds {
            parallel: 2,
            calls: 2,
            continuations: 1,
            empty: 1,
            pauses: 1,
            invalid: 2,
            sent_back: 1,
            repairs: 1,
            follow_ups: 1,
        },
        loops: LoopRules { warn: 2, end: 3 },
        watch: Watch { attempt: Span(100), prepare: Span(100), vet: Span(100), check: Span(100) },
        ..Rules::default()
    }
}

/// What is explored from its start: rules, and how many words the world has for what happens.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
    pub(crate) words: Words,
}

/// How many words a world has. Many words reach every arrow; few words reach further. Runs within the run have a world
/// of their own, since what is set aside for them makes another state of almost every one.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Words {
    Many,
    Few,
    Delegating,
    All,
}

pub(crate) fn worlds() -> Vec<World> {
    let limits = rules().limits;
    let world = |name, words, limits, checked| World {
        name,
        rules: Rules { limits, checked, ..rules() },
        words,
    };
    let time = Limits {
        timeout: Some(Span(130)),
        step_timeout: Some(Span(60)),
        max_steps: 1,
        ..limits.clone()
    };
    let money = Limits { budget: Some(Micros(200)), max_steps: 1, ..limits.clone() };
    let tokens = Limits { max_tokens: Some(Tokens(190)), max_steps: 1, ..limits.clone() };
    let nothing = Limits { max_steps: 0, budget: Some(Micros(0)), ..limits.clone() };
    let short = Limits { max_steps: 1, ..limits.clone() };
    let both = Limits { budget: Some(Micros(300)), max_tokens: Some(Tokens(280)), ..short.clone() };
    vec![
        world("checked", Words::Many, short, true),
        world("money", Words::Many, money, false),
        world("tokens", Words::Many, tokens, false),
        world("time", Words::Many, time, true),
        world("nothing", Words::Many, nothing, false),
        world("delegating", Words::Delegating, both, false),
        world("turns", Words::Few, Limits { max_steps: 4, ..limits }, false),
    ]
}

pub(crate) fn task() -> Item {
    Item::user(Origin::Task, "the task")
}

/// Every event that the small world knows in this state.
pub(crate) fn events(state: &State, words: Words) -> Vec<Event> {
    let mut events = vec![
        Event::StoreFailed { error: "disk full".into() },
        Event::Defect { error: "a panic".into() },
        Event::Tick { now: Time(0) },
    ];
    events.extend(Signal::ALL.map(|signal| Event::Interrupt { signal }));
    events.extend(deadline(state).map(|deadline| Event::Tick { now: deadline.at }));
    // The machine slept through every moment that it waited for.
    events.push(Event::Tick { now: state.run().now.after(Span(1_000)) });
    events.extend(completions(state, STALE));
    for id in state.outstanding() {
        events.extend(completions(state, id));
    }
    events.retain(|event| match words {
        Words::Many => !is_delegated(event),
        Words::Few => is_common(event) && !is_delegated(event),
        Words::Delegating => is_common(event),
        Words::All => true,
    });
    events
}

/// Returns whether worlds with few words know the event: turns, and little else.
fn is_common(event: &Event) -> bool {
    match event {
        Event::Prepared { facts, messages, .. } => facts.exchanges == 0 && messages.is_empty(),
        Event::Replied { reply, access, .. } => match reply.calls().count() {
            0 => reply.has_text() && reply.finish == Finish::Stop,
            1 => true,
            _ => access.contains(&Access::read("a")),
        },
        Event::Failed { fault, .. } => fault.kind == FaultKind::Auth,
        Event::Vetted { verdict, .. } => !matches!(verdict, Verdict::Abort),
        Event::Interrupt { signal } => *signal == Signal::Interrupt,
        Event::Tick { .. } => false,
        Event::StoreFailed { .. }
        | Event::Defect { .. }
        | Event::Settled { .. }
        | Event::Charged { .. }
        | Event::Checked { .. } => true,
    }
}

/// Returns whether only a world with runs within the run knows the event.
fn is_delegated(event: &Event) -> bool {
    let intent = match event {
        Event::Vetted { verdict: Verdict::Cleared { intent, .. }, .. } => Some(intent),
        _ => None,
    };
    matches!(event, Event::Charged { .. }) || matches!(intent, Some(Intent::Delegated { .. }))
}

/// Every completion that an effect with this id may have, of the right kind and of all the wrong ones.
fn completions(state: &State, id: EffectId) -> Vec<Event> {
    let mut events = Vec::new();
    let right = state.kind();
    let all = |kinds: &[StateKind]| kinds.contains(&right) && id != STALE;
    let preparing = all(&[StateKind::Preparing, StateKind::ClosingPreparing]);
    events.extend(some(prepared(id), preparing));
    if all(&[StateKind::ClosingPreparing]) {
        events.push(too_large(id));
    }
    let asking =
        all(&[StateKind::CallingSending, StateKind::CompactingSending, StateKind::ClosingSending]);
    events.extend(some(replied(id), asking));
    events.extend(some(failed(id), asking));
    events.extend(some(vetted(state, id), all(&[StateKind::Executing])));
    events.extend(some(settled(state, id), all(&[StateKind::Executing])));
    events.extend(some(checked(id), all(&[StateKind::CallingChecking])));
    events.extend(charged(state, id));
    events
}

/// A run within the run uses all that it still has; one without limits uses a little, again and again.
fn charged(state: &State, id: EffectId) -> Option<Event> {
    let left = match state {
        State::Executing(executing) => executing.calls.iter().find_map(|call| match call.slot {
            Slot::Running { id: open, left, .. } if open == id => left,
            _ => None,
        }),
        _ => None,
    };
    let spent = match left {
        None if id == STALE => (Micros(1), Tokens(1)),
        None => return None,
        Some(left) => (left.cost.unwrap_or(Micros(1)), left.tokens.unwrap_or(Tokens(1))),
    };
    let (cost, input) = spent;
    if spent == (Micros::ZERO, Tokens::ZERO) {
        return None;
    }
    Some(Event::Charged { id, usage: Usage { input, ..Usage::default() }, cost })
}

/// All of the events where they are due, and one of them where they are not.
fn some(events: Vec<Event>, all: bool) -> impl Iterator<Item = Event> {
    let count = if all { events.len() } else { 1 };
    events.into_iter().take(count)
}

fn prepared(id: EffectId) -> Vec<Event> {
    let facts = [(10, 20, 0), (80, 90, 3), (80, 90, 2), (96, 99, 9), (96, 99, 2), (96, 99, 1)];
    let mut events: Vec<Event> = facts
        .into_iter()
        .map(|(context, bound, exchanges)| Event::Prepared {
            id,
            facts: Facts {
                context: Tokens(context),
                bound: Tokens(bound),
                exchanges,
                ..Facts::default()
            },
            messages: [].into(),
        })
        .collect();
    events.push(Event::Prepared {
        id,
        facts: Facts { context: Tokens(12), bound: Tokens(22), exchanges: 1, ..Facts::default() },
        messages: [UserMessage { origin: Origin::Steering, text: "left".into() }].into(),
    });
    events
}

/// A closing call that does not fit into the window, however much of it is left out.
fn too_large(id: EffectId) -> Event {
    let facts =
        Facts { context: Tokens(110), bound: Tokens(120), exchanges: 1, shortened: Tokens(101) };
    Event::Prepared { id, facts, messages: [].into() }
}

pub(crate) fn reply(parts: Vec<Part>, finish: Finish) -> Reply {
    let usage = Usage { input: Tokens(10), output: Tokens(5), ..Usage::default() };
    Reply { parts: parts.into(), finish, usage, model: None }
}

pub(crate) fn text(text: &str) -> Part {
    Part::Text(text.into())
}

pub(crate) fn call(id: &str, arguments: &str) -> Part {
    Part::Call(ToolCall::new(id.into(), "tool", arguments))
}

fn cut(id: &str) -> Part {
    Part::Call(ToolCall::new(id.into(), "tool", "{\"").cut_short())
}

fn replied(id: EffectId) -> Vec<Event> {
    let read = Access::read("a");
    let write = Access::write("a");
    let with = |parts, finish, access: &[&Access]| Event::Replied {
        id,
        reply: reply(parts, finish),
        access: access.iter().map(|access| (*access).clone()).collect(),
    };
    vec![
        with(vec![text("done")], Finish::Stop, &[]),
        with(vec![call("1", "{}")], Finish::ToolCalls, &[&read]),
        with(vec![text("so"), call("1", "{}"), call("2", "{}")], Finish::Stop, &[&read, &read]),
        with(
            vec![call("1", "{}"), call("2", "{}"), call("3", "{}")],
            Finish::ToolCalls,
            &[&write, &write],
        ),
        with(vec![cut("1")], Finish::Length, &[&read]),
        with(vec![], Finish::Stop, &[]),
        with(vec![text(" \n")], Finish::Stop, &[]),
        with(vec![text("and")], Finish::Length, &[]),
        with(vec![], Finish::Length, &[]),
        with(vec![text("wait")], Finish::Pause, &[]),
        with(vec![text("no")], Finish::Refused, &[]),
        with(vec![], Finish::ContextFull, &[]),
        with(vec![text("hm")], Finish::Other("new".into()), &[]),
        with(vec![text("hm")], Finish::ToolCalls, &[]),
    ]
}

fn failed(id: EffectId) -> Vec<Event> {
    let fault = |kind| Fault::new(kind, "broken");
    [
        fault(FaultKind::Server),
        Fault { billed: true, ..fault(FaultKind::Truncated) },
        Fault { wait: Some(Span(21)), ..fault(FaultKind::RateLimited) },
        fault(FaultKind::Overflow),
        Fault { billed: true, ..fault(FaultKind::Overflow) },
        fault(FaultKind::Auth),
        fault(FaultKind::Timeout),
    ]
    .map(|fault| Event::Failed { id, fault })
    .into()
}

/// Returns the id of the call that an effect belongs to.
fn call_of(state: &State, id: EffectId) -> CallId {
    let State::Executing(executing) = state else { return "none".into() };
    let position = state.outstanding().iter().position(|open| *open == id);
    let open = executing
        .calls
        .iter()
        .filter(|call| matches!(call.slot, Slot::Vetting { .. } | Slot::Running { .. }));
    position
        .and_then(|index| open.map(|call| call.call.id.clone()).nth(index))
        .unwrap_or("none".into())
}

/// Answers that differ in nothing but their status make the same turn, so that few turns have to be told apart.
fn answer(state: &State, id: EffectId, status: ToolStatus) -> ToolResult {
    ToolResult { digest: Digest::EMPTY, ..ToolResult::new(call_of(state, id), status, "it") }
}

fn vetted(state: &State, id: EffectId) -> Vec<Event> {
    let refused = |status| Verdict::Refused { result: answer(state, id, status) };
    let cleared = |intent| Verdict::Cleared { limit: Span(50), intent, grounds: "".into() };
    [
        cleared(Intent::Opaque),
        cleared(Intent::Delegated { session: None }),
        refused(ToolStatus::Unknown),
        refused(ToolStatus::Denied),
        Verdict::Abort,
    ]
    .map(|verdict| Event::Vetted { id, verdict })
    .into()
}

fn settled(state: &State, id: EffectId) -> Vec<Event> {
    [ToolStatus::Ok, ToolStatus::Malformed]
        .map(|status| Event::Settled { id, result: answer(state, id, status) })
        .into()
}

fn checked(id: EffectId) -> Vec<Event> {
    let message = "again";
    [
        Check::Passed,
        Check::SentBack { message: message.into() },
        Check::Unfit { message: message.into() },
        Check::FollowUp { message: message.into() },
    ]
    .map(|check| Event::Checked { id, check })
    .into()
}
