//! Calling: the model is called, and its reply decides what comes next.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::machine::budget::{self, Unaffordable};
use crate::machine::context::instructions;
use crate::machine::deadline::{CallingDeadline, StateDeadlines};
use crate::machine::effect::{CallPurpose, ConversationChange, Effect, EffectKind, MachineNote};
use crate::machine::event::{CheckResult, RequestSize};
use crate::machine::model_calls::attempt::CallAttempt;
use crate::machine::model_calls::fallback::{self, FallbackDecision};
use crate::machine::model_calls::retry::{self, RetryDecision};
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::{RunContext, Streaks};
use crate::machine::state::State;
use crate::machine::states::closing::Closing;
use crate::machine::states::compacting::Compacting;
use crate::machine::states::done::Done;
use crate::machine::states::executing::Executing;
use crate::machine::states::preparing::Preparing;
use crate::machine::stop_reason::{CloseReason, StopReason};
use crate::types::{
    CallAccess, ConversationItem, EffectId, Fault, FaultKind, MessageOrigin, Reply, ReplyFinish,
    ReplyPart, RunTime, Tokens, ToolArguments, UnknownFinishPolicy,
};

/// The model is called, or its final answer is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Calling {
    /// The shared context.
    pub run: Box<RunContext>,
    /// The size of the call.
    pub size: RequestSize,
    /// The time at which the call, with its retries, times out.
    pub step_deadline: Option<RunTime>,
    /// The progress of the call.
    pub stage: CallingStage,
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallingStage {
    /// The model is called.
    Requesting(CallAttempt),
    /// The final answer is being checked.
    Checking {
        /// The pending check.
        id: EffectId,
        /// The answer, with the parts before it.
        answer: Arc<str>,
        /// The time at which the check times out.
        due: RunTime,
    },
}

impl CallingStage {
    /// Returns the pending effect.
    pub(crate) fn pending(&self) -> Option<(EffectId, EffectKind)> {
        match self {
            Self::Requesting(attempt) => attempt.pending_call(),
            Self::Checking { id, .. } => Some((*id, EffectKind::CheckAnswer)),
        }
    }
}

/// The classification of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// Tool calls.
    ToolCalls,
    /// The final answer.
    FinalAnswer,
    /// A part of an answer. The rest will be requested.
    PartialAnswer,
    /// A part of an answer that was cut off too often, or for an unknown reason.
    Truncated,
    /// An empty reply. It will be requested again.
    EmptyRetryable,
    /// An empty reply, too often.
    Empty,
    /// A turn that the provider paused. It will be sent back.
    Paused,
    /// A refusal.
    Refused,
    /// The context window is full.
    ContextOverflow,
    /// A reply with an unexpected finish reason.
    Unrecognized,
}

/// Classifies a reply.
pub(crate) fn classify_reply(run: &RunContext, reply: &Reply) -> ReplyKind {
    let bounds = &run.rules.bounds;
    let cut_again = run.streaks.truncated < bounds.continuations;
    if reply.has_calls() {
        return match !cut_again && has_truncated_call(reply) {
            true => ReplyKind::Truncated,
            false => ReplyKind::ToolCalls,
        };
    }
    match (&reply.finish, reply.has_text()) {
        (ReplyFinish::Refused, _) => ReplyKind::Refused,
        (ReplyFinish::ContextFull, _) => ReplyKind::ContextOverflow,
        (ReplyFinish::Pause, _) if run.streaks.pauses < bounds.pauses => ReplyKind::Paused,
        (ReplyFinish::Length, _) if cut_again => ReplyKind::PartialAnswer,
        (ReplyFinish::Pause | ReplyFinish::Length, _) => ReplyKind::Truncated,
        (ReplyFinish::Stop, true) => ReplyKind::FinalAnswer,
        (ReplyFinish::Stop, false) if run.streaks.empty < bounds.empty_replies => {
            ReplyKind::EmptyRetryable
        }
        (ReplyFinish::Stop, false) => ReplyKind::Empty,
        (ReplyFinish::Other(_), true) if run.rules.unknown_finish == UnknownFinishPolicy::Keep => {
            ReplyKind::Truncated
        }
        // A reply that ends for tool calls and has none is as unexpected as a reply with an unknown reason.
        (ReplyFinish::ToolCalls | ReplyFinish::Other(_), _) => ReplyKind::Unrecognized,
    }
}

/// Returns whether a context that is too large can be compacted.
pub(crate) fn can_shrink(run: &RunContext, size: &RequestSize) -> bool {
    run.compactions.is_allowed(&run.rules) && size.exchanges > 0
}

/// Returns whether an answer must be checked: there are checks, or it has to wait for a running command.
pub(crate) fn must_check_answer(run: &RunContext) -> bool {
    run.rules.has_checks || run.needs_commands()
}

/// Returns the effective result of a check: an answer that would end the run is sent back while a needed command runs.
fn wait_for_commands(run: &RunContext, check: CheckResult) -> CheckResult {
    let is_end = match &check {
        CheckResult::Passed => true,
        CheckResult::FollowUp { .. } => !run.can_take_follow_up(),
        CheckResult::SentBack { .. } | CheckResult::SchemaViolation { .. } => false,
    };
    match is_end && run.needs_commands() {
        true => CheckResult::SentBack { message: run.needed_commands_message() },
        false => check,
    }
}

/// Returns whether the model may be asked again after this result of a check.
pub(crate) fn may_ask_again(run: &RunContext, check: &CheckResult) -> bool {
    let (streaks, bounds) = (&run.streaks, &run.rules.bounds);
    let may_send_back = streaks.sent_back < bounds.sent_back;
    match check {
        CheckResult::Passed => may_send_back && run.needs_commands(),
        CheckResult::SentBack { .. } => may_send_back,
        CheckResult::SchemaViolation { .. } => streaks.schema_violations < bounds.repairs,
        CheckResult::FollowUp { .. } => {
            run.can_take_follow_up() || may_send_back && run.needs_commands()
        }
    }
}

fn has_truncated_call(reply: &Reply) -> bool {
    reply.calls().any(|call| matches!(call.arguments, ToolArguments::Truncated { .. }))
}

/// Returns the fault of a reply with an unexpected finish reason.
pub(crate) fn unrecognized_fault(reply: &Reply) -> Fault {
    let message = match &reply.finish {
        ReplyFinish::Other(reason) => format!("the reply ended for an unknown reason, '{reason}'"),
        ReplyFinish::ToolCalls => "the reply ended for its tool calls, but has none".to_owned(),
        ReplyFinish::Stop
        | ReplyFinish::Length
        | ReplyFinish::Pause
        | ReplyFinish::Refused
        | ReplyFinish::ContextFull => "the reply is not understood".to_owned(),
    };
    Fault::new(FaultKind::Protocol, message)
}

impl Calling {
    /// Calls the model.
    pub(crate) fn enter(
        mut run: Box<RunContext>,
        mut out: StepBuilder,
        size: RequestSize,
        max_output: Option<Tokens>,
    ) -> Step {
        let step_deadline = run.rules.limits.step_timeout.map(|span| run.now.after(span));
        let attempt = CallAttempt::send(&mut run, &mut out, CallPurpose::Agent, 1, max_output);
        let stage = CallingStage::Requesting(attempt);
        out.finish(State::Calling(Self { run, size, step_deadline, stage }))
    }

    /// Checks a final answer.
    pub(crate) fn check(
        mut run: Box<RunContext>,
        mut out: StepBuilder,
        size: RequestSize,
        answer: Arc<str>,
    ) -> Step {
        let id = run.next_effect.allocate();
        let due = run.now.after(run.rules.timeouts.check);
        out.add_effect(Effect::CheckAnswer { id, answer: Arc::clone(&answer) });
        let stage = CallingStage::Checking { id, answer, due };
        out.finish(State::Calling(Self { run, size, step_deadline: None, stage }))
    }

    pub(crate) fn deadlines(&self) -> StateDeadlines<CallingDeadline, 3> {
        let (own, step) = match self.stage {
            CallingStage::Requesting(CallAttempt::Sending { due, .. }) => {
                ((due, CallingDeadline::AttemptTimeout), self.step_deadline)
            }
            CallingStage::Requesting(CallAttempt::Waiting { until, .. }) => {
                ((until, CallingDeadline::RetryDue), self.step_deadline)
            }
            CallingStage::Checking { due, .. } => ((due, CallingDeadline::EffectTimeout), None),
        };
        let step = step.map(|at| (at, CallingDeadline::StepTimeout));
        let run = self.run.closing_time().map(|at| (at, CallingDeadline::RunTimeout));
        StateDeadlines([Some(own), step, run])
    }

    /// Returns the time by which the next attempt must have begun.
    pub(crate) fn retry_deadline(&self) -> Option<RunTime> {
        [self.run.closing_time(), self.step_deadline].into_iter().flatten().min()
    }

    /// Sends the next attempt if the budget still covers it.
    pub(crate) fn send_retry(self) -> Step {
        let Self { mut run, size, step_deadline, stage } = self;
        let mut out = StepBuilder::default();
        let number = match stage {
            CallingStage::Requesting(attempt) => attempt.number(),
            CallingStage::Checking { .. } => 1,
        };
        let purpose = CallPurpose::Agent;
        match budget::reserve(&run, &size, purpose) {
            Ok(max_output) => {
                let attempt = CallAttempt::send(&mut run, &mut out, purpose, number, max_output);
                let stage = CallingStage::Requesting(attempt);
                out.finish(State::Calling(Self { run, size, step_deadline, stage }))
            }
            Err(Unaffordable) => Closing::enter(run, out, CloseReason::BudgetExceeded),
        }
    }

    pub(crate) fn on_attempt_timeout(self) -> Step {
        let mut out = StepBuilder::default();
        if let CallingStage::Requesting(attempt) = self.stage {
            attempt.cancel(&mut out);
        }
        let fault = CallAttempt::timeout_fault(&self.run);
        self.on_failure(out, fault)
    }

    pub(crate) fn on_failure(mut self, mut out: StepBuilder, fault: Fault) -> Step {
        let call = (&self.size, CallPurpose::Agent);
        budget::charge_failed_call(&mut self.run, &fault, call, &mut out);
        let attempt = match self.stage {
            CallingStage::Requesting(attempt) => attempt,
            CallingStage::Checking { .. } => return out.finish(State::Calling(self)),
        };
        match retry::decide(&self.run, attempt.number(), &fault, self.retry_deadline()) {
            RetryDecision::After(wait) => {
                let attempt = attempt.wait(&mut self.run, &mut out, wait, fault.kind);
                self.stage = CallingStage::Requesting(attempt);
                out.finish(State::Calling(self))
            }
            RetryDecision::ShrinkRequest => self.on_overflow(out),
            RetryDecision::GiveUp => self.give_up(out, fault),
        }
    }

    /// Calls another model if that may help and the budget covers it. The call is prepared like any other, because the
    /// other model has another price and context window.
    fn give_up(self, mut out: StepBuilder, fault: Fault) -> Step {
        let Self { mut run, size, .. } = self;
        let decision = fallback::decide(&run, &size, &fault);
        let passed_over = match decision {
            FallbackDecision::To(model) => run.model + 1..model,
            FallbackDecision::Unaffordable => run.model + 1..run.rules.fallbacks() + 1,
            FallbackDecision::GiveUp => 0..0,
        };
        for model in passed_over {
            out.add_note(MachineNote::FallbackUnaffordable { model });
        }
        let mut message = fault.message;
        match decision {
            FallbackDecision::To(model) => {
                out.add_note(MachineNote::FellBack {
                    from: run.model,
                    to: model,
                    fault: fault.kind,
                });
                out.add_change(ConversationChange::ChangeModel);
                run.change_model(model);
                // The context window of the other model may be smaller.
                run.compactions.confirm();
                return Preparing::enter(run, out);
            }
            FallbackDecision::Unaffordable => {
                message =
                    format!("{message}; the budget does not cover a call of another model").into();
            }
            FallbackDecision::GiveUp => {}
        }
        Done::fail(run, out, StopReason::from(fault.kind), message)
    }

    /// Compacts the context to half its size if possible, because the window is evidently smaller than configured.
    fn on_overflow(self, out: StepBuilder) -> Step {
        if can_shrink(&self.run, &self.size) {
            let target_size = self.size.estimate.percent(50);
            Compacting::enter(self.run, out, self.size, target_size)
        } else {
            Closing::enter(self.run, out, CloseReason::ContextFull)
        }
    }

    pub(crate) fn on_reply(mut self, reply: Reply, access: &[CallAccess]) -> Step {
        let mut out = StepBuilder::default();
        self.run.charge_usage(&reply.usage, CallPurpose::Agent, &mut out);
        let kind = classify_reply(&self.run, &reply);
        // All other replies show that the context was accepted.
        if !matches!(kind, ReplyKind::Unrecognized | ReplyKind::ContextOverflow) {
            self.run.compactions.confirm();
        }
        let streaks = &mut self.run.streaks;
        match kind {
            ReplyKind::Unrecognized => self.on_failure(out, unrecognized_fault(&reply)),
            ReplyKind::ContextOverflow => self.on_overflow(out),
            ReplyKind::ToolCalls => {
                // A step keeps the streaks of cut-off and invalid calls, and the count of follow-ups; it resets the
                // others.
                let truncated = if has_truncated_call(&reply) { streaks.truncated + 1 } else { 0 };
                let Streaks { invalid, follow_ups, .. } = *streaks;
                *streaks = Streaks { truncated, invalid, follow_ups, ..Streaks::default() };
                self.run.partial_answer = None;
                Executing::enter(self.run, out, reply, access)
            }
            ReplyKind::FinalAnswer => {
                let answer = join_text(self.run.partial_answer.take(), reply.text());
                out.append(ConversationItem::Assistant(reply));
                if must_check_answer(&self.run) {
                    return Self::check(self.run, out, self.size, answer);
                }
                let reason = self.run.final_stop_reason();
                Done::end_with_output(self.run, out, reason, Some(answer))
            }
            ReplyKind::PartialAnswer => {
                streaks.truncated += 1;
                if reply.has_text() {
                    let text = join_text(self.run.partial_answer.take(), reply.text());
                    self.run.partial_answer = Some(text);
                    out.append(ConversationItem::Assistant(reply));
                    out.append(instructions::continue_reply());
                }
                ask_again(self.run, out)
            }
            ReplyKind::EmptyRetryable => {
                streaks.empty += 1;
                ask_again(self.run, out)
            }
            ReplyKind::Paused => {
                streaks.pauses += 1;
                out.append(ConversationItem::Assistant(reply));
                ask_again(self.run, out)
            }
            ReplyKind::Truncated => {
                if matches!(reply.finish, ReplyFinish::Other(_)) {
                    out.add_note(MachineNote::UnknownFinish);
                }
                end_without_answer(self.run, out, StopReason::Truncated, &reply)
            }
            ReplyKind::Refused => end_without_answer(self.run, out, StopReason::Refused, &reply),
            ReplyKind::Empty => {
                end_without_answer(self.run, out, StopReason::EmptyResponse, &reply)
            }
        }
    }

    pub(crate) fn on_check(self, check: CheckResult) -> Step {
        let (mut run, mut out) = (self.run, StepBuilder::default());
        let answer = match self.stage {
            CallingStage::Checking { answer, .. } => Some(answer),
            CallingStage::Requesting(_) => None,
        };
        let check = wait_for_commands(&run, check);
        let (goes_on, done) = (may_ask_again(&run, &check), run.final_stop_reason());
        let (check_origin, streaks) = (MessageOrigin::Check, &mut run.streaks);
        let (count, origin, message, otherwise) = match check {
            CheckResult::Passed => return Done::end_with_output(run, out, done, answer),
            CheckResult::SentBack { message } => {
                (&mut streaks.sent_back, check_origin, message, StopReason::ChecksFailed)
            }
            CheckResult::SchemaViolation { message } => {
                (&mut streaks.schema_violations, check_origin, message, StopReason::SchemaNotMet)
            }
            CheckResult::FollowUp { message } => {
                (&mut streaks.follow_ups, MessageOrigin::FollowUp, message, done)
            }
        };
        if goes_on {
            *count += 1;
            out.append(ConversationItem::user(origin, message));
            Preparing::enter(run, out)
        } else {
            Done::end_with_output(run, out, otherwise, answer)
        }
    }

    pub(crate) fn cancel(mut self) -> (Box<RunContext>, StepBuilder) {
        let mut out = StepBuilder::default();
        match self.stage {
            CallingStage::Requesting(attempt) => {
                attempt.abandon(&mut self.run, &mut out, (&self.size, CallPurpose::Agent));
            }
            CallingStage::Checking { id, .. } => out.cancel(id),
        }
        (self.run, out)
    }
}

/// Asks the model to continue.
fn ask_again(run: Box<RunContext>, mut out: StepBuilder) -> Step {
    out.add_note(MachineNote::AskedAgain);
    Preparing::enter(run, out)
}

/// Ends with a reply that isn't an answer. Its text, if any, is the output.
fn end_without_answer(
    mut run: Box<RunContext>,
    mut out: StepBuilder,
    reason: StopReason,
    reply: &Reply,
) -> Step {
    let text = join_text(run.partial_answer.take(), reply.text());
    if reply.has_text() {
        // The tool calls of the reply will not be answered.
        let parts = reply.parts.iter().filter(|part| !matches!(part, ReplyPart::Call(_)));
        let reply = Reply { parts: parts.cloned().collect(), ..reply.clone() };
        out.append(ConversationItem::Assistant(reply));
    }
    Done::end_with_output(run, out, reason, Some(text).filter(|text| !text.trim().is_empty()))
}

fn join_text(first: Option<Arc<str>>, second: Arc<str>) -> Arc<str> {
    match first {
        Some(first) => format!("{first}{second}").into(),
        None => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::event::Event;
    use crate::machine::{ConversationChange, StateKind, step};
    use crate::types::{
        CountLimits, MicroUsd, ModelRules, Price, RunLimits, RunRules, TimeSpan, ToolCall, Usage,
    };

    fn run() -> Box<RunContext> {
        RunContext::new(RunRules::default())
    }

    fn reply(parts: &[ReplyPart], finish: ReplyFinish) -> Reply {
        Reply { parts: parts.into(), finish, usage: Usage::default(), model: None }
    }

    fn text() -> ReplyPart {
        ReplyPart::Text("so far".into())
    }

    fn cut() -> ReplyPart {
        ReplyPart::Call(ToolCall::new("1".into(), "write_file", "{\"").mark_truncated())
    }

    fn replied(run: Box<RunContext>, reply: Reply) -> Step {
        let next = Calling::enter(run, StepBuilder::default(), RequestSize::default(), None);
        let id = next.state.pending_effects()[0];
        step(next.state, Event::Replied { id, reply, access: [].into() })
    }

    #[test]
    fn a_context_shrinks_only_if_there_are_exchanges_and_it_was_not_just_tried() {
        let mut run = run();
        let size = |exchanges| RequestSize { exchanges, ..RequestSize::default() };
        assert!(can_shrink(&run, &size(1)));
        assert!(!can_shrink(&run, &size(0)));
        run.compactions.begin(Tokens(1));
        assert!(!can_shrink(&run, &size(1)));
    }

    #[test]
    fn a_step_keeps_the_streaks_of_calls_that_can_not_run_and_the_follow_ups() {
        let streaks = Streaks {
            truncated: 1,
            empty: 1,
            pauses: 1,
            invalid: 1,
            sent_back: 1,
            schema_violations: 1,
            follow_ups: 1,
        };
        let after = |part| {
            let run = RunContext { streaks, partial_answer: Some("old".into()), ..*run() }.into();
            let next = replied(run, reply(&[part], ReplyFinish::ToolCalls));
            assert_eq!(next.state.run().partial_answer, None);
            next.state.run().streaks
        };
        let whole = ReplyPart::Call(ToolCall::new("1".into(), "read_file", "{}"));
        let kept = Streaks { invalid: 1, follow_ups: 1, ..Streaks::default() };
        assert_eq!(after(whole), kept);
        // A cut-off call isn't a turn: nothing ran, so nothing is reset.
        assert_eq!(after(cut()).truncated, 2);
    }

    #[test]
    fn the_last_reply_is_kept_without_its_unanswered_calls() {
        let bounds = CountLimits { continuations: 0, ..CountLimits::default() };
        let run = || RunContext::new(RunRules { bounds: bounds.clone(), ..RunRules::default() });
        let next = replied(run(), reply(&[text(), cut()], ReplyFinish::Length));
        let State::Done(done) = &next.state else { panic!("not done") };
        assert_eq!(done.outcome.output.as_deref(), Some("so far"));
        let item = ConversationItem::Assistant(reply(&[text()], ReplyFinish::Length));
        assert_eq!(next.changes, [ConversationChange::Append { item }]);

        let next = replied(run(), reply(&[cut()], ReplyFinish::Length));
        let State::Done(done) = &next.state else { panic!("not done") };
        assert_eq!((&done.outcome.output, next.changes), (&None, vec![]));
    }

    #[test]
    fn an_unexpected_reply_reports_its_finish_reason() {
        let message = |finish| unrecognized_fault(&reply(&[], finish)).message.to_string();
        assert!(message(ReplyFinish::Other("new".into())).contains("'new'"));
        assert!(message(ReplyFinish::ToolCalls).contains("has none"));
    }

    #[test]
    fn an_overflow_halves_the_context() {
        let size = RequestSize {
            estimate: Tokens(90),
            upper_bound: Tokens(100),
            exchanges: 3,
            ..RequestSize::default()
        };
        let next = Calling::enter(run(), StepBuilder::default(), size, None);
        let id = next.state.pending_effects()[0];
        let fault = Fault::new(FaultKind::Overflow, "too long");
        let next = step(next.state, Event::CallFailed { id, fault });
        let State::Compacting(compacting) = next.state else { panic!("not compacting") };
        assert_eq!(compacting.target_size, Tokens(45));
    }

    #[test]
    fn a_retry_must_begin_within_the_time_of_the_call_and_of_the_run() {
        let limit = |timeout, step_timeout| {
            let limits = RunLimits { timeout, step_timeout, ..RunLimits::default() };
            let run = RunContext::new(RunRules { limits, ..RunRules::default() });
            let next = Calling::enter(run, StepBuilder::default(), RequestSize::default(), None);
            let State::Calling(calling) = next.state else { panic!("not calling") };
            calling.retry_deadline()
        };
        // A tenth of the run is reserved for its closing call.
        assert_eq!(limit(Some(TimeSpan(100)), Some(TimeSpan(80))), Some(RunTime(80)));
        assert_eq!(limit(Some(TimeSpan(100)), Some(TimeSpan(95))), Some(RunTime(90)));
        assert_eq!(limit(Some(TimeSpan(100)), None), Some(RunTime(90)));
        assert_eq!(limit(None, None), None);
    }

    #[test]
    fn each_model_that_the_budget_does_not_cover_is_reported() {
        let failed = |outputs: &[u64]| {
            let model = |output: &u64| ModelRules {
                name: output.to_string().into(),
                price: Some(Price { input: 1, output: *output, ..Price::default() }),
                window: Tokens(100),
                model_limit: Tokens(1_000),
            };
            let limits = RunLimits { budget: Some(MicroUsd(1_000_000)), ..RunLimits::default() };
            let models = outputs.iter().map(model).collect();
            let run = RunContext::new(RunRules { limits, models, ..RunRules::default() });
            let next = Calling::enter(run, StepBuilder::default(), RequestSize::default(), None);
            let id = next.state.pending_effects()[0];
            let fault = Fault::new(FaultKind::MissingModel, "gone");
            step(next.state, Event::CallFailed { id, fault })
        };
        let unaffordable = |model| MachineNote::FallbackUnaffordable { model };
        let dear = 1_000_000_000_000;
        let next = failed(&[1, dear, dear]);
        assert_eq!(next.notes[..2], [unaffordable(1), unaffordable(2)]);
        let message = next.state.outcome().and_then(|outcome| outcome.error.clone()).unwrap();
        assert!(message.contains("gone; the budget does not cover"), "{message}");
        let next = failed(&[1, dear, 3]);
        let fault = FaultKind::MissingModel;
        assert_eq!(next.notes, [unaffordable(1), MachineNote::FellBack { from: 0, to: 2, fault }]);
        assert_eq!((next.state.kind(), next.state.run().model), (StateKind::Preparing, 2));
    }
}
