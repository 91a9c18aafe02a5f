//! The small model in which the machine is explored: few kinds of each event, and rules with small bounds.

use std::sync::Arc;

use architect::machine::{
    Authorization, CallAttempt, CallIntent, CallState, Calling, CallingStage, CheckResult, Event,
    RequestSize, RunContext, State, StateKind, deadline,
};
use architect::types::{
    CallAccess, CallId, ContextLimits, ConversationItem, CountLimits, Digest, EffectId,
    EffectTimeouts, Fault, FaultKind, LoopDetection, MessageOrigin, MicroUsd, ModelRules,
    OutputLimits, Price, Reply, ReplyFinish, ReplyPart, RetryBackoff, RunLimits, RunRules, RunTime,
    Signal, TimeSpan, Tokens, ToolCall, ToolResult, ToolStatus, Usage, UserMessage,
};

use crate::guard_table;

/// An id that no effect ever has.
pub(crate) const STALE_ID: EffectId = EffectId(u64::MAX);

/// The time after which every deadline has passed: the machine slept.
const LATE: TimeSpan = TimeSpan(1_000);

/// Returns whether an event comes after every deadline.
pub(crate) fn is_late(event: &Event) -> bool {
    matches!(event, Event::Tick { now } if now.0 >= LATE.0)
}

/// A micro-dollar per token.
const PRICE: Price = Price {
    input: 1_000_000,
    output: 1_000_000,
    cached_input: 0,
    cache_write: 0,
    long_input: None,
};

/// Rules under which every transition of the chart is within a few steps.
pub(crate) fn rules() -> RunRules {
    RunRules {
        limits: RunLimits { max_steps: 2, ..RunLimits::default() },
        price: Some(PRICE),
        output: OutputLimits {
            user_limit: None,
            model_limit: Tokens(40),
            minimum: Tokens(5),
            closing: Tokens(10),
            is_whole: false,
        },
        context: ContextLimits {
            window: Tokens(100),
            summarize_after: 2,
            keep_recent: 1,
            max_compactions: 2,
            ..ContextLimits::default()
        },
        backoff: RetryBackoff {
            retries: 1,
            retry_for: None,
            base_wait: TimeSpan(20),
            max_wait: TimeSpan(20),
            max_provider_wait: TimeSpan(20),
        },
        bounds: CountLimits {
            parallel_calls: 2,
            calls_per_reply: 2,
            continuations: 1,
            empty_replies: 1,
            pauses: 1,
            invalid_replies: 2,
            sent_back: 1,
            repairs: 1,
            follow_ups: 1,
        },
        loop_detection: LoopDetection { warn_at: 2, end_at: 3 },
        timeouts: EffectTimeouts {
            attempt: TimeSpan(100),
            prepare: TimeSpan(100),
            authorize: TimeSpan(100),
            check: TimeSpan(100),
        },
        ..RunRules::default()
    }
}

/// A start for the explorer: rules, and a set of events.
#[derive(Clone)]
pub(crate) struct SmallModel {
    pub(crate) name: &'static str,
    pub(crate) rules: RunRules,
    pub(crate) words: EventSet,
}

/// A set of kinds of events. Large sets reach every transition; small ones get further from the start. Sub-agents have
/// a set of their own, since their budget shares make another state of almost every one. So do commands in the
/// background.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum EventSet {
    Large,
    Small,
    Delegating,
    /// Commands in the background, and little else.
    Background,
    /// Every kind of fault, and little else.
    Failing,
    All,
}

pub(crate) fn small_models() -> Vec<SmallModel> {
    let limits = rules().limits;
    let world = |name, words, limits, checked| SmallModel {
        name,
        rules: RunRules { limits, has_checks: checked, ..rules() },
        words,
    };
    let time = RunLimits {
        timeout: Some(TimeSpan(130)),
        step_timeout: Some(TimeSpan(60)),
        max_steps: 1,
        ..limits.clone()
    };
    let money = RunLimits { budget: Some(MicroUsd(200)), max_steps: 1, ..limits.clone() };
    let tokens = RunLimits { max_tokens: Some(Tokens(190)), max_steps: 1, ..limits.clone() };
    let nothing = RunLimits { max_steps: 0, budget: Some(MicroUsd(0)), ..limits.clone() };
    let short = RunLimits { max_steps: 1, ..limits.clone() };
    let both =
        RunLimits { budget: Some(MicroUsd(300)), max_tokens: Some(Tokens(280)), ..short.clone() };
    vec![
        world("checked", EventSet::Large, short, true),
        world("money", EventSet::Large, money, false),
        world("tokens", EventSet::Large, tokens, false),
        world("time", EventSet::Large, time, true),
        world("nothing", EventSet::Large, nothing, false),
        world("delegating", EventSet::Delegating, both, false),
        SmallModel {
            name: "background",
            rules: rules_with_commands(),
            words: EventSet::Background,
        },
        world("turns", EventSet::Small, RunLimits { max_steps: 4, ..limits }, false),
        SmallModel { name: "fallbacks", rules: rules_with_fallbacks(), words: EventSet::Failing },
        SmallModel {
            name: "retried for a time",
            rules: rules_with_retry_time(),
            words: EventSet::Large,
        },
    ]
}

/// Three models: the budget never covers the second one, and not always the third one, whose window is smaller.
pub(crate) fn rules_with_fallbacks() -> RunRules {
    let model = |name: &str, price: u64, window| ModelRules {
        name: name.into(),
        price: Some(Price { input: price * 1_000_000, output: price * 1_000_000, ..PRICE }),
        window: Tokens(window),
        model_limit: Tokens(40),
    };
    let models = [model("first", 1, 100), model("dear", 50, 100), model("last", 2, 90)].into();
    let budget = Some(MicroUsd(600));
    let limits = RunLimits { budget, max_steps: 1, ..RunLimits::default() };
    RunRules { limits, models, ..rules() }.for_model(0)
}

/// Rules under which two commands run at the same time, also during a summary.
fn rules_with_commands() -> RunRules {
    let mut rules = rules();
    rules.context.max_compactions = 1;
    rules
}

/// Rules that limit the time of retries, not their number, with time for three of them.
pub(crate) fn rules_with_retry_time() -> RunRules {
    let mut rules = RunRules { has_checks: true, ..rules() };
    (rules.limits.max_steps, rules.context.max_compactions) = (1, 1);
    rules.backoff.retry_for = Some(TimeSpan(70));
    rules
}

/// Returns this number of models with the price and the limits of these rules.
pub(crate) fn equal_models(rules: &RunRules, count: usize) -> Arc<[ModelRules]> {
    let model = |number| ModelRules {
        name: format!("model {number}").into(),
        price: rules.price,
        window: rules.context.window,
        model_limit: rules.output.model_limit,
    };
    (0..count).map(model).collect()
}

/// Returns the small models, and others with pairs of consecutive transitions that the small ones don't have: a second
/// retry, a compaction after a step, several tool calls one after the other. Each comes with a sufficient number of
/// states.
pub(crate) fn models_of_pairs() -> Vec<(SmallModel, usize)> {
    let once = CountLimits {
        calls_per_reply: 1,
        continuations: 0,
        empty_replies: 0,
        pauses: 0,
        sent_back: 0,
        repairs: 0,
        follow_ups: 0,
        ..rules().bounds
    };
    let several = CountLimits { calls_per_reply: 3, parallel_calls: 3, ..once.clone() };
    let world = |name, words, bounds, max_compactions, retries, timeout: Option<TimeSpan>| {
        let mut rules = RunRules { bounds, ..rules() };
        rules.limits.timeout = timeout;
        (rules.context.max_compactions, rules.backoff.retries) = (max_compactions, retries);
        rules.loop_detection = LoopDetection { warn_at: 9, end_at: 9 };
        (SmallModel { name, rules, words }, 8_000)
    };
    let mut models: Vec<_> = small_models().into_iter().map(|world| (world, 60_000)).collect();
    let late = Some(TimeSpan(400));
    let cut = CountLimits { continuations: 2, ..once.clone() };
    models.push(world("retried", EventSet::Large, once.clone(), 2, 2, None));
    models.push(world("cut", EventSet::Large, cut, 1, 1, None));
    models.push(world("late", EventSet::All, once, 1, 1, late));
    models.push(world("several", EventSet::All, several.clone(), 0, 0, None));
    models.push(world("several late", EventSet::All, several, 0, 0, late));
    let mut poor = rules();
    poor.limits =
        RunLimits { budget: Some(MicroUsd(200)), max_steps: 1, timeout: late, ..poor.limits };
    models
        .push((SmallModel { name: "poor and late", rules: poor, words: EventSet::Large }, 20_000));
    // The budget covers a call, but no summary after the reply.
    let mut poorer = rules();
    poorer.limits =
        RunLimits { budget: Some(MicroUsd(40)), max_steps: 1, timeout: late, ..poorer.limits };
    models.push((SmallModel { name: "poorer", rules: poorer, words: EventSet::Large }, 2_000));
    let mut others = rules_with_fallbacks();
    (others.backoff.retries, others.limits.timeout) = (0, late);
    models.push((
        SmallModel { name: "fallbacks late", rules: others, words: EventSet::Failing },
        20_000,
    ));
    models
}

pub(crate) fn task() -> ConversationItem {
    ConversationItem::user(MessageOrigin::Task, "the task")
}

/// Returns every event that is possible in this state.
pub(crate) fn events(state: &State, words: EventSet) -> Vec<Event> {
    let mut events = vec![
        Event::StoreFailed { error: "disk full".into() },
        Event::InternalError { error: "a panic".into() },
        Event::Tick { now: RunTime(0) },
    ];
    events.extend(Signal::ALL.map(|signal| Event::Interrupt { signal }));
    events.extend(deadline(state).map(|deadline| Event::Tick { now: deadline.at }));
    events.push(Event::Tick { now: state.run().now.after(LATE) });
    // The machine slept until the run has to close: a retry would have begun before.
    if matches!(state.kind(), StateKind::CallingWaiting | StateKind::CompactingWaiting) {
        let closes = guard_table::closing_time(state.run());
        events.extend(closes.map(|at| Event::Tick { now: RunTime(at) }));
    }
    events.extend(completions(state, STALE_ID));
    if words == EventSet::Failing {
        events.extend(other_faults(state));
    }
    for id in state.pending_effects() {
        events.extend(completions(state, id));
        if words == EventSet::All && state.kind() == StateKind::CallingSending {
            events.push(three_reads(id));
        }
    }
    events.retain(|event| match words {
        EventSet::Large => !is_delegated(event) && !is_background(event),
        EventSet::Small => is_common(event) && !is_delegated(event) && !is_background(event),
        EventSet::Delegating => is_common(event) && !is_background(event),
        EventSet::Background => may_leave_running(event),
        EventSet::Failing => may_fail(event),
        EventSet::All => true,
    });
    events
}

/// Returns whether small sets include the event: turns, and little else.
fn is_common(event: &Event) -> bool {
    match event {
        Event::Prepared { size, messages, .. } => size.exchanges == 0 && messages.is_empty(),
        Event::Replied { reply, access, .. } => match reply.calls().count() {
            0 => reply.has_text() && reply.finish == ReplyFinish::Stop,
            1 => true,
            _ => access.contains(&CallAccess::read("a")),
        },
        Event::CallFailed { fault, .. } => fault.kind == FaultKind::Auth,
        Event::Authorized { authorization, .. } => !matches!(authorization, Authorization::Abort),
        Event::Interrupt { signal } => *signal == Signal::Interrupt,
        Event::Tick { .. } => false,
        Event::StoreFailed { .. }
        | Event::InternalError { .. }
        | Event::ToolCompleted { .. }
        | Event::CommandEnded { .. }
        | Event::UsageReported { .. }
        | Event::Checked { .. } => true,
    }
}

/// Returns whether the set of faults includes the event. Each fault is in it once, and billed where that matters.
fn may_fail(event: &Event) -> bool {
    match event {
        Event::Prepared { size, messages, .. } => messages.is_empty() && size.exchanges <= 3,
        Event::CallFailed { .. } => true,
        Event::Tick { now } => now.0 > 0,
        _ => is_common(event) && !is_delegated(event) && !is_background(event),
    }
}

/// Returns whether the set of commands in the background includes the event: each call starts one, and little else happens.
fn may_leave_running(event: &Event) -> bool {
    match event {
        Event::Prepared { size, messages, .. } => {
            messages.is_empty() && [0, 3].contains(&size.exchanges)
        }
        Event::Replied { reply, .. } => match &*reply.parts {
            [ReplyPart::Text(text)] => &**text == "done",
            [ReplyPart::Call(_)] => reply.finish == ReplyFinish::ToolCalls,
            _ => false,
        },
        Event::CallFailed { fault, .. } => fault.kind == FaultKind::Server,
        Event::ToolCompleted { result, .. } => result.is_ok(),
        Event::Checked { result, .. } => !matches!(result, CheckResult::SchemaViolation { .. }),
        Event::Interrupt { signal } => *signal == Signal::Interrupt,
        Event::Tick { now } => now.0 > 0,
        Event::Authorized { .. } => is_background(event),
        Event::UsageReported { .. } => false,
        Event::StoreFailed { .. } | Event::InternalError { .. } | Event::CommandEnded { .. } => {
            true
        }
    }
}

/// Returns whether only the sets with commands in the background include the event.
fn is_background(event: &Event) -> bool {
    match event {
        Event::Authorized { authorization: Authorization::Approved { intent, .. }, .. } => {
            matches!(intent, CallIntent::Background { .. })
        }
        _ => matches!(event, Event::CommandEnded { .. }),
    }
}

/// Returns whether only the set with sub-agents includes the event.
fn is_delegated(event: &Event) -> bool {
    let intent = match event {
        Event::Authorized { authorization: Authorization::Approved { intent, .. }, .. } => {
            Some(intent)
        }
        _ => None,
    };
    matches!(event, Event::UsageReported { .. })
        || matches!(intent, Some(CallIntent::Delegated { .. }))
}

/// Every completion that an effect with this id may have, of the right kind and of all the wrong ones.
fn completions(state: &State, id: EffectId) -> Vec<Event> {
    let mut events = Vec::new();
    let right = state.kind();
    let all = |kinds: &[StateKind]| kinds.contains(&right) && id != STALE_ID;
    let preparing = all(&[StateKind::Preparing, StateKind::ClosingPreparing]);
    events.extend(take_first(prepared(id), preparing));
    if all(&[StateKind::ClosingPreparing]) {
        events.push(too_large(id));
    }
    let asking =
        all(&[StateKind::CallingSending, StateKind::CompactingSending, StateKind::ClosingSending]);
    events.extend(take_first(replied(id), asking));
    events.extend(take_first(failed(id), asking));
    events.extend(take_first(authorized(state, id), all(&[StateKind::Executing])));
    events.extend(take_first(settled(state, id), all(&[StateKind::Executing])));
    events.extend(take_first(checked(id), all(&[StateKind::CallingChecking])));
    events.push(Event::CommandEnded { id });
    events.extend(charged(state, id));
    events
}

/// A sub-agent uses all that it has left; one without limits uses a little, repeatedly.
fn charged(state: &State, id: EffectId) -> Option<Event> {
    let left = match state {
        State::Executing(executing) => executing.calls.iter().find_map(|call| match call.state {
            CallState::Running { id: open, budget: left, .. } if open == id => left,
            _ => None,
        }),
        _ => None,
    };
    let used = match left {
        None if id == STALE_ID => (MicroUsd(1), Tokens(1)),
        None => return None,
        Some(left) => (left.cost.unwrap_or(MicroUsd(1)), left.tokens.unwrap_or(Tokens(1))),
    };
    let (cost, input) = used;
    if used == (MicroUsd::ZERO, Tokens::ZERO) {
        return None;
    }
    Some(Event::UsageReported { id, usage: Usage { input, ..Usage::default() }, cost })
}

/// All of the events where they are expected, and one of them elsewhere.
fn take_first(events: Vec<Event>, all: bool) -> impl Iterator<Item = Event> {
    let count = if all { events.len() } else { 1 };
    events.into_iter().take(count)
}

fn prepared(id: EffectId) -> Vec<Event> {
    let size = [(10, 20, 0), (80, 90, 3), (80, 90, 2), (96, 99, 9), (96, 99, 2), (96, 99, 1)];
    let mut events: Vec<Event> = size
        .into_iter()
        .map(|(context, bound, exchanges)| Event::Prepared {
            id,
            size: RequestSize {
                estimate: Tokens(context),
                upper_bound: Tokens(bound),
                exchanges,
                ..RequestSize::default()
            },
            messages: [].into(),
        })
        .collect();
    events.push(Event::Prepared {
        id,
        size: RequestSize {
            estimate: Tokens(12),
            upper_bound: Tokens(22),
            exchanges: 1,
            ..RequestSize::default()
        },
        messages: [UserMessage::new(MessageOrigin::Steering, "left")].into(),
    });
    events
}

/// A closing call that doesn't fit into the window, however much is left out.
fn too_large(id: EffectId) -> Event {
    let size = RequestSize {
        estimate: Tokens(110),
        upper_bound: Tokens(120),
        exchanges: 1,
        shortened_estimate: Tokens(101),
    };
    Event::Prepared { id, size, messages: [].into() }
}

pub(crate) fn reply(parts: Vec<ReplyPart>, finish: ReplyFinish) -> Reply {
    let usage = Usage { input: Tokens(10), output: Tokens(5), ..Usage::default() };
    Reply { parts: parts.into(), finish, usage, model: None }
}

pub(crate) fn text(text: &str) -> ReplyPart {
    ReplyPart::Text(text.into())
}

pub(crate) fn call(id: &str, arguments: &str) -> ReplyPart {
    ReplyPart::Call(ToolCall::new(id.into(), "tool", arguments))
}

fn cut(id: &str) -> ReplyPart {
    ReplyPart::Call(ToolCall::new(id.into(), "tool", "{\"").mark_truncated())
}

fn replied(id: EffectId) -> Vec<Event> {
    let read = CallAccess::read("a");
    let write = CallAccess::write("a");
    let with = |parts, finish, access: &[&CallAccess]| Event::Replied {
        id,
        reply: reply(parts, finish),
        access: access.iter().map(|access| (*access).clone()).collect(),
    };
    vec![
        with(vec![text("done")], ReplyFinish::Stop, &[]),
        with(vec![call("1", "{}")], ReplyFinish::ToolCalls, &[&read]),
        with(
            vec![text("so"), call("1", "{}"), call("2", "{}")],
            ReplyFinish::Stop,
            &[&read, &read],
        ),
        with(
            vec![call("1", "{}"), call("2", "{}"), call("3", "{}")],
            ReplyFinish::ToolCalls,
            &[&write, &write],
        ),
        with(vec![cut("1")], ReplyFinish::Length, &[&read]),
        with(vec![], ReplyFinish::Stop, &[]),
        with(vec![text(" \n")], ReplyFinish::Stop, &[]),
        with(vec![text("and")], ReplyFinish::Length, &[]),
        with(vec![], ReplyFinish::Length, &[]),
        with(vec![text("wait")], ReplyFinish::Pause, &[]),
        with(vec![text("no")], ReplyFinish::Refused, &[]),
        with(vec![], ReplyFinish::ContextFull, &[]),
        with(vec![text("hm")], ReplyFinish::Other("new".into()), &[]),
        with(vec![text("hm")], ReplyFinish::ToolCalls, &[]),
    ]
}

/// Three calls that run at the same time.
fn three_reads(id: EffectId) -> Event {
    let calls = ["1", "2", "3"].map(|id| call(id, "{}"));
    let access = vec![CallAccess::read("a"); 3].into();
    Event::Replied { id, reply: reply(calls.into(), ReplyFinish::ToolCalls), access }
}

fn failed(id: EffectId) -> Vec<Event> {
    let fault = |kind| Fault::new(kind, "broken");
    [
        fault(FaultKind::Server),
        Fault { billed: true, ..fault(FaultKind::Truncated) },
        Fault { retry_after: Some(TimeSpan(21)), ..fault(FaultKind::RateLimited) },
        fault(FaultKind::Overflow),
        Fault { billed: true, ..fault(FaultKind::Overflow) },
        fault(FaultKind::Auth),
        fault(FaultKind::Timeout),
    ]
    .map(|fault| Event::CallFailed { id, fault })
    .into()
}

/// Returns the faults of every kind, for a call that is being made.
fn other_faults(state: &State) -> Vec<Event> {
    let asking =
        [StateKind::CallingSending, StateKind::CompactingSending, StateKind::ClosingSending];
    let ids = state.pending_effects().into_iter().filter(|_| asking.contains(&state.kind()));
    let faults =
        |id| FaultKind::ALL.map(|kind| Event::CallFailed { id, fault: Fault::new(kind, "broken") });
    ids.flat_map(faults).collect()
}

/// Returns the id of the call that an effect belongs to.
fn call_of(state: &State, id: EffectId) -> CallId {
    let State::Executing(executing) = state else { return "none".into() };
    let position = state.pending_effects().iter().position(|open| *open == id);
    let open = executing.calls.iter().filter(|call| {
        matches!(call.state, CallState::Authorizing { .. } | CallState::Running { .. })
    });
    position
        .and_then(|index| open.map(|call| call.call.id.clone()).nth(index))
        .unwrap_or("none".into())
}

/// Results that differ only in their status make the same turn, so that there are few different turns.
fn result_of(state: &State, id: EffectId, status: ToolStatus) -> ToolResult {
    ToolResult { digest: Digest::EMPTY, ..ToolResult::new(call_of(state, id), status, "it") }
}

fn authorized(state: &State, id: EffectId) -> Vec<Event> {
    let refused = |status| Authorization::Rejected { result: result_of(state, id, status) };
    let cleared = |timeout, intent| Authorization::Approved {
        timeout: TimeSpan(timeout),
        intent,
        reason: "".into(),
    };
    [
        cleared(50, CallIntent::Opaque),
        cleared(80, CallIntent::Delegated { session: None, worktree: None }),
        cleared(50, background(Some(true))),
        cleared(50, background(Some(false))),
        refused(ToolStatus::Unknown),
        refused(ToolStatus::Denied),
        Authorization::Abort,
    ]
    .map(|authorization| Event::Authorized { id, authorization })
    .into()
}

/// A command that an answer has to wait for, one that it has not, or one of an older journal.
pub(crate) fn background(needed: Option<bool>) -> CallIntent {
    CallIntent::Background { command: "serve".into(), needed }
}

fn settled(state: &State, id: EffectId) -> Vec<Event> {
    [ToolStatus::Ok, ToolStatus::Malformed]
        .map(|status| Event::ToolCompleted { id, result: result_of(state, id, status) })
        .into()
}

fn checked(id: EffectId) -> Vec<Event> {
    let message = "again";
    [
        CheckResult::Passed,
        CheckResult::SentBack { message: message.into() },
        CheckResult::SchemaViolation { message: message.into() },
        CheckResult::FollowUp { message: message.into() },
    ]
    .map(|check| Event::Checked { id, result: check })
    .into()
}

/// Returns the extended state, to change it.
pub(crate) fn run_mut(state: &mut State) -> &mut RunContext {
    match state {
        State::Preparing(state) => &mut state.run,
        State::Compacting(state) => &mut state.run,
        State::Calling(state) => &mut state.run,
        State::Executing(state) => &mut state.run,
        State::Closing(state) => &mut state.run,
        State::Done(state) => &mut state.run,
    }
}

/// Returns the number of the next attempt, if one waits.
pub(crate) fn waiting_attempt(state: &mut State) -> Option<&mut u32> {
    let attempt = match state {
        State::Compacting(state) => &mut state.attempt,
        State::Calling(Calling { stage: CallingStage::Requesting(attempt), .. }) => attempt,
        _ => return None,
    };
    if let CallAttempt::Waiting { number, .. } = attempt { Some(number) } else { None }
}
