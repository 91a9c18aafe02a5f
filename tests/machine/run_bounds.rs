//! The bounds of a run: an environment that wants as much as possible reaches each of them, and none exceeds it.

use architect::machine::{
    Authorization, CallAttempt, CallIntent, CheckResult, Conversation, Effect, Event, Machine,
    RequestSize, RunBounds, RunContext, State, StateKind, step,
};
use architect::types::{
    CountLimits, EffectId, Fault, FaultKind, LoopDetection, MicroUsd, Price, Reply, ReplyFinish,
    RunLimits, RunRules, RunTime, TimeSpan, Tokens, ToolResult, ToolStatus, Usage,
};
use proptest::prelude::*;

use crate::graph::StateGraph;
use crate::small_model::{self, EventSet, SmallModel};

/// Counts of a run.
#[derive(Debug, PartialEq)]
struct RunCounts {
    calls: u64,
    requests: u64,
    steps: u64,
}

/// Runs in an environment that asks for every model call and every retry that the rules allow.
fn greedy_run(rules: RunRules) -> RunCounts {
    let (mut machine, first) = Machine::start(rules, Conversation::new(0), small_model::task());
    let (mut effects, mut calls, mut requests) = (first.effects, 0, 0);
    for _ in 0..100_000 {
        for effect in &effects {
            if let Effect::CallModel { attempt, .. } = effect {
                calls += u64::from(*attempt == 1);
                requests += 1;
            }
        }
        let now = match machine.state.kind() {
            StateKind::Done => {
                let steps = u64::from(machine.state.run().steps);
                return RunCounts { calls, requests, steps };
            }
            StateKind::CallingWaiting | StateKind::CompactingWaiting => {
                machine.deadline().unwrap().at
            }
            _ => machine.state.run().now,
        };
        let event = greedy_event(&machine.state).unwrap_or(Event::Tick { now });
        let (next, output) = machine.handle(now, event);
        (machine, effects) = (next, output.effects);
    }
    panic!("still in {:?}", machine.state.kind());
}

fn greedy_event(state: &State) -> Option<Event> {
    let (run, id) = (state.run(), *state.pending_effects().first()?);
    let reply = |reply: Reply| Event::Replied { id, reply, access: [].into() };
    let failed = |kind| Event::CallFailed { id, fault: Fault::new(kind, "broken") };
    let final_reply =
        || small_model::reply(vec![small_model::text("that is it")], ReplyFinish::Stop);
    Some(match state {
        State::Preparing(_) | State::Closing(_) if state.kind() != StateKind::ClosingSending => {
            // Smaller after a compaction, so that it isn't the last.
            let estimate = Tokens(if run.compactions.size_before.is_some() { 9 } else { 10 });
            let size = RequestSize { estimate, exchanges: 1, ..RequestSize::default() };
            Event::Prepared { id, size, messages: [].into() }
        }
        // Each model fails first with all its retries.
        State::Compacting(state) if is_retried(run, state.attempt) => failed(FaultKind::Server),
        State::Calling(calling) => match &calling.stage {
            architect::machine::CallingStage::Checking { .. } => {
                Event::Checked { id, result: greedy_check(run) }
            }
            architect::machine::CallingStage::Requesting(attempt) => {
                let compactions = run.compactions;
                let shrinks = compactions.size_before.is_none()
                    && compactions.count < run.rules.context.max_compactions;
                let has_fallback = run.model < run.rules.fallbacks();
                match (is_retried(run, *attempt), shrinks) {
                    (true, _) => failed(FaultKind::Server),
                    (false, true) => failed(FaultKind::Overflow),
                    (false, false) if has_fallback => failed(FaultKind::Server),
                    (false, false) => reply(greedy_reply(run)),
                }
            }
        },
        State::Executing(_) => greedy_tool(state, id),
        _ => reply(final_reply()),
    })
}

fn is_retried(run: &RunContext, attempt: CallAttempt) -> bool {
    matches!(attempt, CallAttempt::Sending { number, .. } if number <= run.rules.backoff.retries)
}

fn greedy_reply(run: &RunContext) -> Reply {
    let (streaks, bounds) = (&run.streaks, &run.rules.bounds);
    let waits = run.commands.iter().any(|command| command.is_needed);
    let may_be_rejected = streaks.sent_back < bounds.sent_back
        || streaks.schema_violations < bounds.repairs
        || streaks.follow_ups < bounds.follow_ups;
    let text = || vec![small_model::text("piece")];
    if streaks.truncated < bounds.continuations {
        small_model::reply(text(), ReplyFinish::Length)
    } else if streaks.empty < bounds.empty_replies {
        small_model::reply(vec![], ReplyFinish::Stop)
    } else if streaks.pauses < bounds.pauses {
        small_model::reply(text(), ReplyFinish::Pause)
    } else if (run.rules.has_checks || waits) && may_be_rejected {
        small_model::reply(text(), ReplyFinish::Stop)
    } else {
        small_model::reply(vec![small_model::call("1", "{}")], ReplyFinish::ToolCalls)
    }
}

fn greedy_check(run: &RunContext) -> CheckResult {
    let message = "again".into();
    if run.streaks.sent_back < run.rules.bounds.sent_back {
        CheckResult::SentBack { message }
    } else if run.streaks.schema_violations < run.rules.bounds.repairs {
        CheckResult::SchemaViolation { message }
    } else {
        CheckResult::FollowUp { message }
    }
}

/// Each tool call has another result, so that no turn is repeated.
fn greedy_tool(state: &State, id: EffectId) -> Event {
    // Without checks, an answer is checked for a command that it has to wait for.
    let intent = match state.run().rules.has_checks {
        true => CallIntent::Opaque,
        false => small_model::background(Some(true)),
    };
    let timeout = TimeSpan(50);
    let authorization = Authorization::Approved { timeout, intent, reason: "".into() };
    let authorized = Event::Authorized { id, authorization };
    if state.awaits(&authorized) {
        return authorized;
    }
    let text = state.run().steps.to_string();
    Event::ToolCompleted { id, result: ToolResult::new("1".into(), ToolStatus::Ok, text) }
}

fn counts(rules: &RunRules) -> RunCounts {
    let RunBounds { calls, requests, steps, .. } = RunBounds::new(rules);
    RunCounts { calls, requests: requests.expect("a bound"), steps }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_environment_that_wants_all_calls_reaches_the_bounds(
        counts_of_rules in (0..4_u32, 0..3_u32, 0..3_u32, 0..3_u32, 0..3_u32, 0..3_u32, 0..3_u32),
        max_compactions in 0..30_u32,
        retries in 0..3_u32,
        models in 0..4_usize,
        has_checks in any::<bool>(),
    ) {
        let (max_steps, continuations, empty_replies, pauses, sent_back, repairs, follow_ups) = counts_of_rules;
        let mut rules = small_model::rules();
        rules.limits.max_steps = max_steps;
        rules.bounds = CountLimits { continuations, empty_replies, pauses, sent_back, repairs, follow_ups, ..rules.bounds };
        (rules.context.max_compactions, rules.backoff.retries) = (max_compactions, retries);
        (rules.loop_detection, rules.has_checks) = (LoopDetection { warn_at: 100, end_at: 100 }, has_checks);
        rules.models = small_model::equal_models(&rules, models);
        prop_assert_eq!(greedy_run(rules.clone()), counts(&rules));
    }
}

#[test]
fn the_bounds_of_the_default_rules_are_reached() {
    let rules = RunRules { has_checks: true, ..RunRules::default() };
    assert_eq!(greedy_run(rules.clone()), counts(&rules));
    assert_eq!(counts(&rules), RunCounts { calls: 1_251, requests: 5_001, steps: 50 });
}

#[test]
fn limits_that_allow_no_call_bound_a_run_by_none() {
    let price = Some(Price { input: 1, output: 1_000_000, ..Price::default() });
    let of = |limits| counts(&RunRules { limits, price, ..RunRules::default() });
    let none = RunCounts { calls: 0, requests: 0, steps: 0 };
    assert_eq!(of(RunLimits { step_timeout: Some(TimeSpan::ZERO), ..RunLimits::default() }), none);
    assert_eq!(of(RunLimits { budget: Some(MicroUsd(0)), ..RunLimits::default() }), none);
    assert_eq!(of(RunLimits { max_tokens: Some(Tokens(0)), ..RunLimits::default() }), none);
    let only_closing = RunCounts { calls: 1, requests: 1, steps: 0 };
    assert_eq!(of(RunLimits { max_steps: 0, ..RunLimits::default() }), only_closing);
}

/// In every environment: the longest way through the graph of all reachable states.
#[test]
fn no_way_through_all_states_has_more_calls_and_one_has_as_many() {
    for (has_checks, max_compactions, models) in [(false, 1, 0), (true, 0, 0), (false, 0, 3)] {
        let mut rules = RunRules { has_checks, ..small_model::rules() };
        rules.limits.max_steps = 1;
        rules.context.max_compactions = max_compactions;
        rules.bounds = CountLimits {
            continuations: 1,
            empty_replies: 0,
            pauses: u32::from(!has_checks),
            invalid_replies: 1,
            calls_per_reply: 1,
            ..rules.bounds
        };
        rules.models = small_model::equal_models(&rules, models);
        let bounds = RunBounds::new(&rules);
        let graph =
            StateGraph::of(&SmallModel { name: "bounds", rules, words: EventSet::Large }, step);
        let longest = graph.longest_path().expect("no cycle");
        assert_eq!((longest.calls, Some(longest.requests)), (bounds.calls, bounds.requests));
        assert!(longest.always_ends);
    }
}

/// The model uses all that is reserved for each call.
#[test]
fn budget_and_tokens_are_used_up_and_not_exceeded() {
    let mut rules = small_model::rules();
    rules.output.model_limit = Tokens(100_000);
    let money = RunLimits { budget: Some(MicroUsd(5_000)), max_steps: 9, ..RunLimits::default() };
    let tokens =
        RunLimits { max_tokens: Some(Tokens(5_000)), max_steps: 9, ..RunLimits::default() };
    for limits in [money, tokens] {
        rules.limits = limits;
        rules.output.closing = Tokens(100_000);
        let bounds = RunBounds::new(&rules);
        let (mut machine, first) =
            Machine::start(rules.clone(), Conversation::new(0), small_model::task());
        let mut effects = first.effects;
        while machine.state.outcome().is_none() {
            let granted = effects.iter().find_map(|effect| match effect {
                Effect::CallModel { max_output, .. } => *max_output,
                _ => None,
            });
            let now = machine.state.run().now;
            let event = match (granted, greedy_event(&machine.state)) {
                (Some(output), _) => {
                    let id = machine.state.pending_effects()[0];
                    let parts = vec![small_model::call("1", "{}")];
                    let usage = Usage { output, ..Usage::default() };
                    let reply =
                        Reply { usage, ..small_model::reply(parts, ReplyFinish::ToolCalls) };
                    Event::Replied { id, reply, access: [].into() }
                }
                (None, event) => event.unwrap(),
            };
            let (next, output) = machine.handle(now, event);
            (machine, effects) = (next, output.effects);
        }
        let used = machine.state.run().used;
        let expected = (bounds.cost.unwrap_or(used.cost), bounds.tokens.unwrap_or(used.tokens));
        assert_eq!((used.cost, used.tokens), expected);
    }
}

/// Nothing answers, except that a tool runs until the time is over. What is left is for the exit of the process.
#[test]
fn the_time_is_used_up_but_for_the_exit() {
    let mut rules = small_model::rules();
    let timeout = TimeSpan::from_secs(600);
    rules.limits.timeout = Some(timeout);
    rules.timeouts.attempt = timeout;
    let (mut machine, _) = Machine::start(rules.clone(), Conversation::new(0), small_model::task());
    while machine.state.outcome().is_none() {
        let due = machine.deadline().unwrap().at;
        let event = match machine.state {
            State::Preparing(_) => greedy_event(&machine.state).unwrap(),
            _ => Event::Tick { now: due },
        };
        let now = if matches!(event, Event::Tick { .. }) { due } else { machine.state.run().now };
        machine = machine.handle(now, event).0;
    }
    let (ended, bound) = (machine.state.run().now, RunBounds::new(&rules).time.unwrap());
    let margin = TimeSpan::from_millis(250);
    assert_eq!(ended.after(margin).0, bound.0);
}

/// No time is left for a call, also not for a final summary.
#[test]
fn a_run_without_time_makes_no_call() {
    let limits = RunLimits { timeout: Some(TimeSpan::ZERO), ..RunLimits::default() };
    let rules = RunRules { limits, ..RunRules::default() };
    let RunBounds { calls, requests, steps, .. } = RunBounds::new(&rules);
    assert_eq!((calls, requests, steps), (0, Some(0), 0));
    let (machine, _) = Machine::start(rules, Conversation::new(0), small_model::task());
    let size = RequestSize::default();
    let prepared = Event::Prepared { id: EffectId(1), size, messages: [].into() };
    let (machine, output) = machine.handle(RunTime::START, prepared);
    assert!(output.effects.iter().all(|effect| !matches!(effect, Effect::CallModel { .. })));
    assert_eq!((machine.state.kind(), machine.state.run().requests), (StateKind::Done, 0));
}
