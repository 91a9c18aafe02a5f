//! Preparing: the limits are checked before every model call.

use serde::{Deserialize, Serialize};

use crate::machine::budget::{self, Unaffordable};
use crate::machine::context::instructions;
use crate::machine::deadline::{PreparingDeadline, StateDeadlines};
use crate::machine::effect::{
    CallPurpose, CompactionSummary, ConversationChange, Effect, MachineNote,
};
use crate::machine::event::RequestSize;
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::RunContext;
use crate::machine::state::State;
use crate::machine::states::calling::Calling;
use crate::machine::states::closing::Closing;
use crate::machine::states::compacting::Compacting;
use crate::machine::stop_reason::CloseReason;
use crate::types::{EffectId, MessageOrigin, RunTime, Tokens, UserMessage};

/// The next model call is being prepared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Preparing {
    /// The shared context.
    pub run: Box<RunContext>,
    /// The pending preparation.
    pub id: EffectId,
    /// The time at which the preparation times out.
    pub due: RunTime,
}

/// The action after the preparation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextCallPlan {
    /// A limit was reached.
    Close(CloseReason),
    /// The context is over its threshold, and the model summarizes.
    Summarize,
    /// The context is too full, and the oldest exchanges are replaced.
    Trim,
    /// The call is made, with this output limit.
    Proceed(Option<Tokens>),
}

/// Returns the output limit of the call, or the limit that is used up: steps or budget. These limits take precedence
/// over time.
fn check_limits(run: &RunContext, size: &RequestSize) -> Result<Option<Tokens>, CloseReason> {
    if !run.has_steps_left() {
        return Err(CloseReason::MaxSteps);
    }
    budget::reserve(run, size, CallPurpose::Agent)
        .map_err(|Unaffordable| CloseReason::BudgetExceeded)
}

/// Decides the action after the preparation of a call.
pub(crate) fn plan_next_call(run: &RunContext, size: &RequestSize) -> NextCallPlan {
    let rules = &run.rules;
    let max_output = match check_limits(run, size) {
        Ok(max_output) => max_output,
        Err(reason) => return NextCallPlan::Close(reason),
    };
    if !run.rules.limits.allow_calls() {
        return NextCallPlan::Close(CloseReason::Timeout);
    }
    if run.repetition.count() >= rules.loop_detection.end_at {
        return NextCallPlan::Close(CloseReason::LoopDetected);
    }
    let context = &rules.context;
    let over = size.estimate > context.window.percent(context.threshold);
    let full = size.estimate > context.window.percent(context.full_at);
    let mut compactions = run.compactions;
    compactions.assess(size);
    let allowed = compactions.is_allowed(rules);
    let worthwhile = size.exchanges > context.summarize_after.max(context.keep_recent);
    if over && worthwhile && allowed {
        return match budget::reserve(run, size, CallPurpose::Compaction) {
            Ok(_) => NextCallPlan::Summarize,
            Err(Unaffordable) => NextCallPlan::Trim,
        };
    }
    match (full, size.exchanges > 1 && allowed) {
        (true, true) => NextCallPlan::Trim,
        (true, false) => NextCallPlan::Close(CloseReason::ContextFull),
        (false, _) => NextCallPlan::Proceed(max_output),
    }
}

impl Preparing {
    /// Prepares the next call.
    pub(crate) fn enter(mut run: Box<RunContext>, mut out: StepBuilder) -> Step {
        let id = run.next_effect.allocate();
        out.add_effect(Effect::Prepare { id, purpose: CallPurpose::Agent });
        let due = run.now.after(run.rules.timeouts.prepare);
        out.finish(State::Preparing(Self { run, id, due }))
    }

    pub(crate) fn deadlines(&self) -> StateDeadlines<PreparingDeadline, 2> {
        StateDeadlines([
            Some((self.due, PreparingDeadline::EffectTimeout)),
            self.run.closing_time().map(|at| (at, PreparingDeadline::RunTimeout)),
        ])
    }

    /// Closes the run because its time is over, or because of a limit that takes precedence.
    pub(crate) fn close(self) -> Step {
        let (run, out) = self.cancel();
        // The size of the call isn't known yet, so only a budget that covers no call at all counts here.
        let earlier = check_limits(&run, &RequestSize::default()).err();
        Closing::enter(run, out, earlier.unwrap_or(CloseReason::Timeout))
    }

    pub(crate) fn on_prepared(self, size: RequestSize, messages: &[UserMessage]) -> Step {
        let mut run = self.run;
        let mut out = StepBuilder::default();
        append_messages(&mut out, messages);
        let plan = plan_next_call(&run, &size);
        run.compactions.assess(&size);
        let target_size = run.rules.context.window.percent(run.rules.context.threshold);
        match plan {
            NextCallPlan::Close(reason) => Closing::enter(run, out, reason),
            NextCallPlan::Summarize => Compacting::enter(run, out, size, target_size),
            NextCallPlan::Trim => {
                run.compactions.begin(size.estimate);
                out.add_note(MachineNote::Compacted { by_model: false });
                out.add_change(ConversationChange::Compact {
                    summary: CompactionSummary::Mechanical,
                    keep: size.exchanges,
                    target_size,
                });
                Self::enter(run, out)
            }
            NextCallPlan::Proceed(max_output) => Calling::enter(run, out, size, max_output),
        }
    }

    pub(crate) fn cancel(self) -> (Box<RunContext>, StepBuilder) {
        let mut out = StepBuilder::default();
        out.cancel(self.id);
        (self.run, out)
    }
}

/// Adds messages to the conversation before a call.
pub(crate) fn append_messages(out: &mut StepBuilder, messages: &[UserMessage]) {
    let steered = messages.iter().filter(|message| message.origin == MessageOrigin::Steering);
    if let Ok(messages @ 1..) = u32::try_from(steered.count()) {
        out.add_note(MachineNote::SteeringReceived { messages });
    }
    for message in messages {
        out.append(instructions::user_message(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::effect::NoFinalSummary;
    use crate::machine::event::Event;
    use crate::machine::tool_calls::loop_detection::TurnRepetition;
    use crate::types::{
        ContextLimits, ConversationItem, Digest, LimitBaseline, LoopDetection, RunLimits, RunRules,
        TimeSpan,
    };

    /// A window of 100 tokens, over its threshold above 75 and too full above 95.
    fn rules() -> RunRules {
        let context = ContextLimits {
            window: Tokens(100),
            summarize_after: 3,
            keep_recent: 2,
            ..ContextLimits::default()
        };
        RunRules { context, ..RunRules::default() }
    }

    fn planned(run: &RunContext, context: u64, exchanges: u32) -> NextCallPlan {
        let context = Tokens(context);
        plan_next_call(
            run,
            &RequestSize {
                estimate: context,
                upper_bound: context,
                exchanges,
                ..RequestSize::default()
            },
        )
    }

    #[test]
    fn the_context_is_summarized_above_its_threshold_if_that_is_worthwhile() {
        let run = RunContext::new(rules());
        assert_eq!(planned(&run, 75, 4), NextCallPlan::Proceed(None));
        assert_eq!(planned(&run, 76, 4), NextCallPlan::Summarize);
        assert_eq!(planned(&run, 76, 3), NextCallPlan::Proceed(None));
        // Exchanges that stay unchanged don't make a summary worthwhile.
        let mut rules = rules();
        rules.context.keep_recent = 5;
        let run = RunContext::new(rules);
        assert_eq!(planned(&run, 76, 5), NextCallPlan::Proceed(None));
        assert_eq!(planned(&run, 76, 6), NextCallPlan::Summarize);
    }

    #[test]
    fn no_call_is_made_if_the_context_is_too_full() {
        let mut run = RunContext::new(rules());
        assert_eq!(planned(&run, 95, 2), NextCallPlan::Proceed(None));
        assert_eq!(planned(&run, 96, 2), NextCallPlan::Trim);
        assert_eq!(planned(&run, 96, 1), NextCallPlan::Close(CloseReason::ContextFull));
        run.compactions.begin(Tokens(200));
        assert_eq!(planned(&run, 96, 9), NextCallPlan::Close(CloseReason::ContextFull));
        assert_eq!(planned(&run, 95, 9), NextCallPlan::Proceed(None));
    }

    #[test]
    fn without_a_budget_for_a_summary_the_context_is_trimmed() {
        let mut rules = rules();
        rules.limits = RunLimits { max_tokens: Some(Tokens(1_000)), ..RunLimits::default() };
        rules.output.model_limit = Tokens(100);
        rules.output.minimum = Tokens(10);
        assert_eq!(planned(&RunContext::new(rules.clone()), 76, 4), NextCallPlan::Summarize);
        rules.limits.max_tokens = Some(Tokens(10));
        let broke = RunContext::new(rules);
        assert_eq!(planned(&broke, 76, 4), NextCallPlan::Close(CloseReason::BudgetExceeded));
    }

    #[test]
    fn steps_and_repeated_turns_close_a_run() {
        let loops = LoopDetection { warn_at: 2, end_at: 3 };
        let limits = RunLimits { max_steps: 2, ..RunLimits::default() };
        let mut run = RunContext::new(RunRules { limits, loop_detection: loops, ..rules() });
        for expected in [
            NextCallPlan::Proceed(None),
            NextCallPlan::Proceed(None),
            NextCallPlan::Close(CloseReason::LoopDetected),
        ] {
            run.repetition.push(Digest::EMPTY);
            assert_eq!(planned(&run, 1, 1), expected);
        }
        run.steps = 2;
        assert_eq!(planned(&run, 1, 1), NextCallPlan::Close(CloseReason::MaxSteps));
        // Steps before the current limits don't count.
        let from = LimitBaseline { steps: 1, ..LimitBaseline::default() };
        run.repetition = TurnRepetition::default();
        run.rules = RunRules { limit_baseline: from, ..(*run.rules).clone() }.into();
        assert_eq!(planned(&run, 1, 1), NextCallPlan::Proceed(None));
    }

    /// The first of steps, budget and time that is used up is the stop reason.
    #[test]
    fn zero_limits_close_a_run_in_their_order() {
        let closed = |max_steps, max_tokens, timeout| {
            let limits = RunLimits { max_steps, max_tokens, timeout, ..RunLimits::default() };
            let run = RunContext::new(RunRules { limits, ..rules() });
            let next = Preparing::enter(run, StepBuilder::default());
            let next = crate::machine::step(next.state, Event::Tick { now: RunTime::START });
            match next.state {
                State::Closing(closing) => closing.reason,
                other => panic!("{other:?}"),
            }
        };
        let (no_tokens, no_time) = (Some(Tokens(0)), Some(TimeSpan::ZERO));
        assert_eq!(closed(0, no_tokens, no_time), CloseReason::MaxSteps);
        assert_eq!(closed(0, None, no_time), CloseReason::MaxSteps);
        assert_eq!(closed(9, no_tokens, no_time), CloseReason::BudgetExceeded);
        assert_eq!(closed(9, Some(Tokens(9_000)), no_time), CloseReason::Timeout);
    }

    /// A model call without time reaches a time limit like the others: after steps and budget, and before any request.
    #[test]
    fn a_step_timeout_of_zero_closes_a_run_before_any_request() {
        let closed = |max_steps, max_tokens| {
            let step_timeout = Some(TimeSpan::ZERO);
            let limits = RunLimits { max_steps, max_tokens, step_timeout, ..RunLimits::default() };
            let next = Preparing::enter(
                RunContext::new(RunRules { limits, ..rules() }),
                StepBuilder::default(),
            );
            let prepared =
                |id| Event::Prepared { id, size: RequestSize::default(), messages: [].into() };
            let next = crate::machine::step(next.state, prepared(EffectId(1)));
            let State::Closing(closing) = &next.state else { panic!("{:?}", next.state) };
            let reason = closing.reason;
            // The closing call is a model call, too.
            let next = crate::machine::step(next.state, prepared(EffectId(2)));
            assert!(matches!(&next.state, State::Done(done) if done.run.requests == 0));
            assert_eq!(next.notes, [MachineNote::NoFinalSummary { cause: NoFinalSummary::Time }]);
            reason
        };
        assert_eq!(closed(0, Some(Tokens(0))), CloseReason::MaxSteps);
        assert_eq!(closed(9, Some(Tokens(0))), CloseReason::BudgetExceeded);
        assert_eq!(closed(9, None), CloseReason::Timeout);
    }

    #[test]
    fn messages_are_appended_and_steering_is_reported() {
        let message = |origin| UserMessage::new(origin, "mind the gap");
        let mut out = StepBuilder::default();
        append_messages(
            &mut out,
            &[message(MessageOrigin::Steering), message(MessageOrigin::Check)],
        );
        let next = Preparing::enter(RunContext::new(rules()), out);
        assert_eq!(next.notes, [MachineNote::SteeringReceived { messages: 1 }]);
        let expected = [
            ConversationItem::user(MessageOrigin::Steering, "[STEERING] mind the gap"),
            ConversationItem::user(MessageOrigin::Check, "mind the gap"),
        ];
        assert_eq!(next.changes, expected.map(|item| ConversationChange::Append { item }));

        let mut out = StepBuilder::default();
        append_messages(&mut out, &[message(MessageOrigin::Check)]);
        assert_eq!(Preparing::enter(RunContext::new(rules()), out).notes, []);
    }
}
