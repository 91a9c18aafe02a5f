//! Bounds: the chart and the explorer read each bound from the code, so that they move with it. Here each bound is
//! counted from outside: as often as allowed, and not once more.

use architect::machine::{
    Authorization, CallIntent, CallPurpose, CheckResult, CloseReason, Conversation, Done, Effect,
    Event, Machine, RequestSize, State, StateKind, StopReason,
};
use architect::types::{
    CountLimits, EffectId, Fault, FaultClass, FaultKind, LoopDetection, Reply, ReplyFinish,
    ReplyPart, RunLimits, RunRules, TimeSpan, ToolCall, ToolResult, ToolStatus,
    UnknownFinishPolicy,
};

use crate::small_model;

/// The fixed answers of the environment.
struct FixedReplies {
    reply: Result<Reply, Fault>,
    status: ToolStatus,
    check: CheckResult,
}

/// The outcome of a run in such an environment.
struct RunTrace {
    fold: Machine,
    /// Requests of the agent, retries included.
    calls: u32,
    checks: u32,
}

impl FixedReplies {
    fn replying(parts: Vec<ReplyPart>, finish: ReplyFinish) -> Self {
        let reply = Ok(small_model::reply(parts, finish));
        Self { reply, status: ToolStatus::Ok, check: CheckResult::Passed }
    }

    fn checking(check: CheckResult) -> Self {
        Self { check, ..Self::replying(vec![small_model::text("done")], ReplyFinish::Stop) }
    }

    fn failing(fault: Fault) -> Self {
        Self { reply: Err(fault), ..Self::checking(CheckResult::Passed) }
    }

    /// Runs to the end.
    fn run(&self, rules: RunRules) -> RunTrace {
        let (fold, first) = Machine::start(rules, Conversation::new(0), small_model::task());
        let mut course = RunTrace { fold, calls: 0, checks: 0 };
        let mut effects = first.effects;
        for _ in 0..1_000 {
            if course.is_over() {
                return course;
            }
            for effect in &effects {
                course.calls += u32::from(matches!(
                    effect,
                    Effect::CallModel { purpose: CallPurpose::Agent, .. }
                ));
                course.checks += u32::from(matches!(effect, Effect::CheckAnswer { .. }));
            }
            let event = self.answer(&course.fold);
            let at = match &event {
                Event::Tick { now } => *now,
                _ => course.fold.state.run().now,
            };
            let (fold, output) = course.fold.handle(at, event);
            (course.fold, effects) = (fold, output.effects);
        }
        panic!("still in {:?}", course.fold.state.kind());
    }

    fn answer(&self, fold: &Machine) -> Event {
        let id = fold.state.pending_effects().first().copied().unwrap_or(small_model::STALE_ID);
        match fold.state.kind() {
            StateKind::Preparing | StateKind::ClosingPreparing => {
                Event::Prepared { id, size: RequestSize::default(), messages: [].into() }
            }
            StateKind::CallingSending => match self.reply.clone() {
                Ok(reply) => Event::Replied { id, reply, access: [].into() },
                Err(fault) => Event::CallFailed { id, fault },
            },
            StateKind::CallingChecking => Event::Checked { id, result: self.check.clone() },
            StateKind::Executing => self.tool(&fold.state, id),
            StateKind::ClosingSending => {
                let reply =
                    small_model::reply(vec![small_model::text("that was it")], ReplyFinish::Stop);
                Event::Replied { id, reply, access: [].into() }
            }
            StateKind::CallingWaiting
            | StateKind::CompactingSending
            | StateKind::CompactingWaiting
            | StateKind::Done => Event::Tick { now: fold.deadline().unwrap().at },
        }
    }

    fn tool(&self, state: &State, id: EffectId) -> Event {
        let (limit, intent) = (TimeSpan::from_secs(1), CallIntent::Opaque);
        let authorization = Authorization::Approved { timeout: limit, intent, reason: "".into() };
        let authorized = Event::Authorized { id, authorization };
        if state.awaits(&authorized) {
            return authorized;
        }
        Event::ToolCompleted { id, result: ToolResult::new("any".into(), self.status, "it") }
    }
}

impl RunTrace {
    fn is_over(&self) -> bool {
        matches!(self.fold.state, State::Done(_))
    }

    fn done(&self) -> &Done {
        let State::Done(done) = &self.fold.state else { panic!("not done") };
        done
    }

    fn reason(&self) -> StopReason {
        self.done().outcome.reason
    }

    fn output(&self) -> Option<&str> {
        self.done().outcome.output.as_deref()
    }
}

/// Returns rules with these limits and no others.
fn rules(bounds: CountLimits) -> RunRules {
    let loops = LoopDetection { warn_at: 100, end_at: 100 };
    RunRules { bounds, loop_detection: loops, has_checks: true, ..RunRules::default() }
}

fn cut() -> ReplyPart {
    ReplyPart::Call(ToolCall::new("1".into(), "tool", "{\"").mark_truncated())
}

#[test]
fn an_incomplete_reply_is_requested_again_as_often_as_allowed() {
    for most in 0..3 {
        let cut_off = CountLimits { continuations: most, ..CountLimits::default() };
        let empty = CountLimits { empty_replies: most, ..CountLimits::default() };
        let paused = CountLimits { pauses: most, ..CountLimits::default() };
        let piece = || vec![small_model::text("piece ")];
        let cases = [
            (cut_off.clone(), piece(), ReplyFinish::Length, StopReason::Truncated),
            (cut_off.clone(), vec![], ReplyFinish::Length, StopReason::Truncated),
            (
                CountLimits { invalid_replies: 100, ..cut_off },
                vec![cut()],
                ReplyFinish::Length,
                StopReason::Truncated,
            ),
            (empty.clone(), vec![], ReplyFinish::Stop, StopReason::EmptyResponse),
            (empty, vec![small_model::text(" \n")], ReplyFinish::Stop, StopReason::EmptyResponse),
            (paused.clone(), piece(), ReplyFinish::Pause, StopReason::Truncated),
            (paused, vec![], ReplyFinish::Pause, StopReason::Truncated),
        ];
        for (bounds, parts, finish, reason) in cases {
            let course = FixedReplies::replying(parts.clone(), finish.clone()).run(rules(bounds));
            assert_eq!(
                (course.reason(), course.calls),
                (reason, most + 1),
                "{finish:?} {parts:?}, {most} times"
            );
        }
    }
}

#[test]
fn a_rejected_answer_is_requested_again_as_often_as_allowed() {
    let message = "again";
    for most in 0..3 {
        let bounds = CountLimits {
            sent_back: most,
            repairs: most,
            follow_ups: most,
            ..CountLimits::default()
        };
        for (check, reason) in [
            (CheckResult::SentBack { message: message.into() }, StopReason::ChecksFailed),
            (CheckResult::SchemaViolation { message: message.into() }, StopReason::SchemaNotMet),
            (CheckResult::FollowUp { message: message.into() }, StopReason::LlmDone),
        ] {
            let course = FixedReplies::checking(check.clone()).run(rules(bounds.clone()));
            assert_eq!((course.reason(), course.checks), (reason, most + 1), "{check:?}");
            assert_eq!(course.output(), Some("done"));
        }
    }
}

#[test]
fn a_failed_call_is_retried_as_often_as_allowed() {
    for retries in 0..3 {
        let mut rules = rules(CountLimits::default());
        rules.backoff.retries = retries;
        let course =
            FixedReplies::failing(Fault::new(FaultKind::Server, "broken")).run(rules.clone());
        assert_eq!((course.reason().name(), course.calls), ("llm_error", retries + 1));
        // An unexpected reply is such a failure.
        let garbled = FixedReplies::replying(vec![small_model::text("hm")], ReplyFinish::ToolCalls)
            .run(rules);
        assert_eq!((garbled.reason().name(), garbled.calls), ("llm_error", retries + 1));
        let run = &garbled.done().run;
        assert_eq!((run.model_calls, run.requests), (1, retries + 1));
    }
}

/// Each fault that another model may help against is followed by all models, each with its retries; others by none.
#[test]
fn every_model_is_called_as_often_as_allowed_and_only_if_it_may_help() {
    let mut rules = RunRules {
        models: small_model::equal_models(&RunRules::default(), 3),
        ..rules(CountLimits::default())
    };
    rules.backoff.retries = 2;
    for kind in FaultKind::ALL {
        let fault = Fault::new(kind, "broken");
        let is_retried = fault.class() == FaultClass::Transient;
        let models = if kind.permits_fallback() { 3 } else { 1 };
        let course = FixedReplies::failing(fault).run(rules.clone());
        if kind == FaultKind::Overflow {
            assert_eq!(course.reason(), StopReason::Closed(CloseReason::ContextFull));
            continue;
        }
        let requests = models * if is_retried { 3 } else { 1 };
        assert_eq!((course.reason(), course.calls), (StopReason::from(kind), requests), "{kind}");
        let run = &course.done().run;
        assert_eq!((run.model + 1, run.model_calls, run.requests), (models, models, requests));
    }
}

/// The text of a reply that ends for an unknown reason is kept. The run isn't a success, and the call isn't repeated.
#[test]
fn a_text_that_ends_for_an_unknown_reason_is_kept() {
    let unknown = || ReplyFinish::Other("new".into());
    let text = || vec![small_model::text("hm")];
    let course = FixedReplies::replying(text(), unknown()).run(rules(CountLimits::default()));
    assert_eq!((course.reason(), course.calls), (StopReason::Truncated, 1));
    assert_eq!((course.output(), course.reason().exit_code()), (Some("hm"), 2));
    // Without a text there is nothing to keep.
    let mut rules = rules(CountLimits::default());
    rules.backoff.retries = 1;
    let course = FixedReplies::replying(vec![], unknown()).run(rules.clone());
    assert_eq!((course.reason().name(), course.calls), ("llm_error", 2));
    // A session that an older release stored replays as it was.
    rules.unknown_finish = UnknownFinishPolicy::Retry;
    let course = FixedReplies::replying(text(), unknown()).run(rules.clone());
    assert_eq!((course.reason().name(), course.calls), ("llm_error", 2));
    let mut stored = serde_json::to_value(&rules).unwrap();
    stored.as_object_mut().unwrap().remove("unknown_finish");
    assert_eq!(serde_json::from_value::<RunRules>(stored).unwrap(), rules);
}

#[test]
fn steps_repetitions_and_invalid_calls_end_a_run_at_their_limits() {
    let call = || vec![small_model::call("1", "{}")];
    for most in 1..4 {
        let limits = RunLimits { max_steps: most, ..RunLimits::default() };
        let steps = RunRules { limits, ..rules(CountLimits::default()) };
        let course = FixedReplies::replying(call(), ReplyFinish::ToolCalls).run(steps);
        assert_eq!(course.reason(), StopReason::Closed(CloseReason::MaxSteps));
        assert_eq!((course.calls, course.done().run.steps), (most, most));

        let loops = LoopDetection { warn_at: 100, end_at: most };
        let repeats = RunRules { loop_detection: loops, ..rules(CountLimits::default()) };
        let course = FixedReplies::replying(call(), ReplyFinish::ToolCalls).run(repeats);
        // A single call repeats nothing, but a limit of one is reached from the start.
        let calls = if most == 1 { 0 } else { most };
        assert_eq!(course.reason(), StopReason::Closed(CloseReason::LoopDetected));
        assert_eq!(course.calls, calls);

        let invalid = rules(CountLimits { invalid_replies: most, ..CountLimits::default() });
        let world = FixedReplies {
            status: ToolStatus::Malformed,
            ..FixedReplies::replying(call(), ReplyFinish::ToolCalls)
        };
        let course = world.run(invalid);
        assert_eq!((course.reason(), course.calls), (StopReason::InvalidToolCalls, most));
    }
}

#[test]
fn parts_of_an_answer_become_one_answer() {
    let pieces = FixedReplies::replying(vec![small_model::text("a")], ReplyFinish::Length);
    let bounds = CountLimits { continuations: 2, ..CountLimits::default() };
    assert_eq!(pieces.run(rules(bounds)).output(), Some("aaa"));
}
