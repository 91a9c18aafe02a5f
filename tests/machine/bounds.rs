//! Bounds: the chart and the exploration ask the code where a bound lies, so that they move along when it does. Here
//! each is counted from outside: as often as allowed, and not once more.

use architect::machine::{
    Check, CloseReason, Conversation, Done, Effect, Event, Facts, Fold, Intent, Purpose, State,
    StateKind, StopReason, Verdict,
};
use architect::model::{
    Bounds, EffectId, Fault, FaultKind, Finish, Limits, LoopRules, Part, Reply, Rules, Span,
    ToolCall, ToolResult, ToolStatus, UnknownFinish,
};

use crate::alphabet;

/// What the world answers, each time that it is asked.
struct World {
    reply: Result<Reply, Fault>,
    status: ToolStatus,
    check: Check,
}

/// How a run in such a world went.
struct Course {
    fold: Fold,
    /// Requests of the agent, retries included.
    calls: u32,
    checks: u32,
}

impl World {
    fn replying(parts: Vec<Part>, finish: Finish) -> Self {
        let reply = Ok(alphabet::reply(parts, finish));
        Self { reply, status: ToolStatus::Ok, check: Check::Passed }
    }

    fn checking(check: Check) -> Self {
        Self { check, ..Self::replying(vec![alphabet::text("done")], Finish::Stop) }
    }

    fn failing(fault: Fault) -> Self {
        Self { reply: Err(fault), ..Self::checking(Check::Passed) }
    }

    /// Lives a whole run.
    fn run(&self, rules: Rules) -> Course {
        let (fold, first) = Fold::start(rules, Conversation::new(0), alphabet::task());
        let mut course = Course { fold, calls: 0, checks: 0 };
        let mut effects = first.effects;
        for _ in 0..1_000 {
            if course.is_over() {
                return course;
            }
            for effect in &effects {
                course.calls +=
                    u32::from(matches!(effect, Effect::Call { purpose: Purpose::Agent, .. }));
                course.checks += u32::from(matches!(effect, Effect::Check { .. }));
            }
            let event = self.answer(&course.fold);
            let at = match &event {
                Event::Tick { now } => *now,
                _ => course.fold.state.run().now,
            };
            let (fold, outcomes) = course.fold.accept(at, event);
            (course.fold, effects) = (fold, outcomes.effects);
        }
        panic!("still in {:?}", course.fold.state.kind());
    }

    fn answer(&self, fold: &Fold) -> Event {
        let id = fold.state.outstanding().first().copied().unwrap_or(alphabet::STALE);
        match fold.state.kind() {
            StateKind::Preparing | StateKind::ClosingPreparing => {
                Event::Prepared { id, facts: Facts::default(), messages: [].into() }
            }
            StateKind::CallingSending => match self.reply.clone() {
                Ok(reply) => Event::Replied { id, reply, access: [].into() },
                Err(fault) => Event::Failed { id, fault },
            },
            StateKind::CallingChecking => Event::Checked { id, check: self.check.clone() },
            StateKind::Executing => self.tool(&fold.state, id),
            StateKind::ClosingSending => {
                let reply = alphabet::reply(vec![alphabet::text("that was it")], Finish::Stop);
                Event::Replied { id, reply, access: [].into() }
            }
            StateKind::CallingWaiting
            | StateKind::CompactingSending
            | StateKind::CompactingWaiting
            | StateKind::Done => Event::Tick { now: fold.deadline().unwrap().at },
        }
    }

    fn tool(&self, state: &State, id: EffectId) -> Event {
        let (limit, intent) = (Span::secs(1), Intent::Opaque);
        let verdict = Verdict::Cleared { limit, intent, grounds: "".into() };
        let vetted = Event::Vetted { id, verdict };
        if state.awaits(&vetted) {
            return vetted;
        }
        Event::Settled { id, result: ToolResult::new("any".into(), self.status, "it") }
    }
}

impl Course {
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

/// Rules with room for everything but what is told.
fn rules(bounds: Bounds) -> Rules {
    let loops = LoopRules { warn: 100, end: 100 };
    Rules { bounds, loops, checked: true, ..Rules::default() }
}

fn cut() -> Part {
    Part::Call(ToolCall::new("1".into(), "tool", "{\"").cut_short())
}

#[test]
fn a_reply_that_is_no_answer_is_asked_for_again_as_often_as_allowed() {
    for most in 0..3 {
        let cut_off = Bounds { continuations: most, ..Bounds::default() };
        let empty = Bounds { empty: most, ..Bounds::default() };
        let paused = Bounds { pauses: most, ..Bounds::default() };
        let piece = || vec![alphabet::text("piece ")];
        let cases = [
            (cut_off.clone(), piece(), Finish::Length, StopReason::Truncated),
            (cut_off.clone(), vec![], Finish::Length, StopReason::Truncated),
            (
                Bounds { invalid: 100, ..cut_off },
                vec![cut()],
                Finish::Length,
                StopReason::Truncated,
            ),
            (empty.clone(), vec![], Finish::Stop, StopReason::EmptyResponse),
            (empty, vec![alphabet::text(" \n")], Finish::Stop, StopReason::EmptyResponse),
            (paused.clone(), piece(), Finish::Pause, StopReason::Truncated),
            (paused, vec![], Finish::Pause, StopReason::Truncated),
        ];
        for (bounds, parts, finish, reason) in cases {
            let course = World::replying(parts.clone(), finish.clone()).run(rules(bounds));
            assert_eq!(
                (course.reason(), course.calls),
                (reason, most + 1),
                "{finish:?} {parts:?}, {most} times"
            );
        }
    }
}

#[test]
fn an_answer_that_does_not_pass_is_asked_for_again_as_often_as_allowed() {
    let message = "again";
    for most in 0..3 {
        let bounds =
            Bounds { sent_back: most, repairs: most, follow_ups: most, ..Bounds::default() };
        for (check, reason) in [
            (Check::SentBack { message: message.into() }, StopReason::ChecksFailed),
            (Check::Unfit { message: message.into() }, StopReason::SchemaNotMet),
            (Check::FollowUp { message: message.into() }, StopReason::LlmDone),
        ] {
            let course = World::checking(check.clone()).run(rules(bounds.clone()));
            assert_eq!((course.reason(), course.checks), (reason, most + 1), "{check:?}");
            assert_eq!(course.output(), Some("done"));
        }
    }
}

#[test]
fn a_failed_call_is_repeated_as_often_as_allowed() {
    for retries in 0..3 {
        let mut rules = rules(Bounds::default());
        rules.backoff.retries = retries;
        let course = World::failing(Fault::new(FaultKind::Server, "broken")).run(rules.clone());
        assert_eq!((course.reason().name(), course.calls), ("llm_error", retries + 1));
        // A reply that is not understood is such a failure.
        let garbled = World::replying(vec![alphabet::text("hm")], Finish::ToolCalls).run(rules);
        assert_eq!((garbled.reason().name(), garbled.calls), ("llm_error", retries + 1));
        let run = &garbled.done().run;
        assert_eq!((run.calls, run.sends), (1, retries + 1));
    }
}

/// The text of a reply that ends for a reason that no one knows is kept; it is no success, and it is not paid for twice.
#[test]
fn a_text_that_ends_for_an_unknown_reason_is_kept() {
    let unknown = || Finish::Other("new".into());
    let text = || vec![alphabet::text("hm")];
    let course = World::replying(text(), unknown()).run(rules(Bounds::default()));
    assert_eq!((course.reason(), course.calls), (StopReason::Truncated, 1));
    assert_eq!((course.output(), course.reason().exit_code()), (Some("hm"), 2));
    // Without a text there is nothing to keep.
    let mut rules = rules(Bounds::default());
    rules.backoff.retries = 1;
    let course = World::replying(vec![], unknown()).run(rules.clone());
    assert_eq!((course.reason().name(), course.calls), ("llm_error", 2));
    // A session that was stored by an older release is replayed as it was.
    rules.unknown_finish = UnknownFinish::Retry;
    let course = World::replying(text(), unknown()).run(rules.clone());
    assert_eq!((course.reason().name(), course.calls), ("llm_error", 2));
    let mut stored = serde_json::to_value(&rules).unwrap();
    stored.as_object_mut().unwrap().remove("unknown_finish");
    assert_eq!(serde_json::from_value::<Rules>(stored).unwrap(), rules);
}

#[test]
fn steps_turns_that_repeat_and_calls_that_cannot_run_end_a_run_when_there_are_as_many_as_allowed() {
    let call = || vec![alphabet::call("1", "{}")];
    for most in 1..4 {
        let limits = Limits { max_steps: most, ..Limits::default() };
        let steps = Rules { limits, ..rules(Bounds::default()) };
        let course = World::replying(call(), Finish::ToolCalls).run(steps);
        assert_eq!(course.reason(), StopReason::Closed(CloseReason::MaxSteps));
        assert_eq!((course.calls, course.done().run.steps), (most, most));

        let loops = LoopRules { warn: 100, end: most };
        let repeats = Rules { loops, ..rules(Bounds::default()) };
        let course = World::replying(call(), Finish::ToolCalls).run(repeats);
        // What has happened once has not been repeated, but a limit of one is met from the start.
        let calls = if most == 1 { 0 } else { most };
        assert_eq!(course.reason(), StopReason::Closed(CloseReason::LoopDetected));
        assert_eq!(course.calls, calls);

        let invalid = rules(Bounds { invalid: most, ..Bounds::default() });
        let world =
            World { status: ToolStatus::Malformed, ..World::replying(call(), Finish::ToolCalls) };
        let course = world.run(invalid);
        assert_eq!((course.reason(), course.calls), (StopReason::InvalidToolCalls, most));
    }
}

#[test]
fn pieces_of_an_answer_are_one_answer() {
    let pieces = World::replying(vec![alphabet::text("a")], Finish::Length);
    let bounds = Bounds { continuations: 2, ..Bounds::default() };
    assert_eq!(pieces.run(rules(bounds)).output(), Some("aaa"));
}
