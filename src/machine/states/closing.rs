//! Closing: a limit was reached, and the model is asked for a final summary without tools.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::machine::budget::{self, Unaffordable};
use crate::machine::context::context_usage::ContentSize;
use crate::machine::context::conversation::Conversation;
use crate::machine::context::instructions;
use crate::machine::deadline::{ClosingDeadline, StateDeadlines};
use crate::machine::effect::{
    CallPurpose, CompactionSummary, ConversationChange, Effect, EffectKind, MachineNote,
    NoFinalSummary,
};
use crate::machine::event::RequestSize;
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::RunContext;
use crate::machine::state::State;
use crate::machine::states::done::Done;
use crate::machine::stop_reason::{CloseReason, StopReason};
use crate::types::{ConversationItem, EffectId, Fault, Reply, RunTime, Tokens};

/// The run is closing. There is at most one closing call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Closing {
    /// The shared context.
    pub run: Box<RunContext>,
    /// The limit that was reached.
    pub reason: CloseReason,
    /// The time at which the run ends, with or without a final summary.
    pub due: RunTime,
    /// The progress of closing.
    pub stage: ClosingStage,
}

/// The progress of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosingStage {
    /// The closing call is being prepared.
    Preparing {
        /// The pending preparation.
        id: EffectId,
    },
    /// The closing call is being made.
    Sending {
        /// The pending call.
        id: EffectId,
        /// The size of the call.
        size: RequestSize,
    },
}

impl ClosingStage {
    /// Returns the pending effect.
    pub(crate) fn pending(self) -> (EffectId, EffectKind) {
        match self {
            Self::Preparing { id } => (id, EffectKind::Prepare),
            Self::Sending { id, .. } => (id, EffectKind::CallModel),
        }
    }
}

/// Returns the output limit of the closing call, unless time, context window or budget don't cover the call.
pub(crate) fn reserve_summary(
    run: &RunContext,
    size: &RequestSize,
) -> Result<Option<Tokens>, NoFinalSummary> {
    if !run.rules.limits.allow_calls() {
        return Err(NoFinalSummary::Time);
    }
    if size.shortened_estimate > run.rules.context.window {
        return Err(NoFinalSummary::Context);
    }
    budget::reserve(run, size, CallPurpose::Closing).map_err(|Unaffordable| NoFinalSummary::Budget)
}

/// Returns the size of a closing call, including the estimate with shortened results.
pub(crate) fn with_shortened_size(
    run: &RunContext,
    conversation: &Conversation,
    system: u64,
    size: RequestSize,
) -> RequestSize {
    let mut conversation = Cow::Borrowed(conversation);
    if is_too_full(run, &size) {
        conversation.to_mut().apply(trim_context(run, &size));
    }
    let system = ContentSize::of_own(system);
    let (_, sent) = conversation.fit_to_window(conversation.entries(), system, &run.rules.context);
    RequestSize {
        shortened_estimate: conversation.context_usage().estimate_request(sent.bytes),
        upper_bound: size.upper_bound.min(sent.most_tokens),
        ..size
    }
}

/// Returns the compaction that makes room for the closing call.
fn trim_context(run: &RunContext, size: &RequestSize) -> ConversationChange {
    let context = &run.rules.context;
    let target_size = context.window.percent(context.threshold);
    ConversationChange::Compact {
        summary: CompactionSummary::Mechanical,
        keep: size.exchanges,
        target_size,
    }
}

/// Returns whether the oldest exchanges must be replaced before the closing call.
pub(crate) fn is_too_full(run: &RunContext, size: &RequestSize) -> bool {
    let context = &run.rules.context;
    size.estimate > context.window.percent(context.full_at) && size.exchanges > 1
}

impl Closing {
    /// Asks the model for a final summary, and prepares the call.
    pub(crate) fn enter(run: Box<RunContext>, mut out: StepBuilder, reason: CloseReason) -> Step {
        out.add_note(MachineNote::LimitReached { reason });
        out.append(instructions::summarize_and_stop(reason));
        Self::prepare(run, out, reason)
    }

    /// Prepares the closing call.
    pub(crate) fn prepare(
        mut run: Box<RunContext>,
        mut out: StepBuilder,
        reason: CloseReason,
    ) -> Step {
        let id = run.next_effect.allocate();
        out.add_effect(Effect::Prepare { id, purpose: CallPurpose::Closing });
        let due = Self::due(&run);
        out.finish(State::Closing(Self { run, reason, due, stage: ClosingStage::Preparing { id } }))
    }

    /// Returns the time by which closing must be over. It is a model call like others, within the remaining time.
    fn due(run: &RunContext) -> RunTime {
        let limit = run.rules.limits.step_timeout.unwrap_or(run.rules.timeouts.attempt);
        let due = run.now.after(limit);
        run.end_time().map_or(due, |ends| ends.min(due))
    }

    pub(crate) fn deadlines(&self) -> StateDeadlines<ClosingDeadline, 1> {
        StateDeadlines([Some((self.due, ClosingDeadline::ClosingTimeout))])
    }

    /// Ends the run without a final summary, because the time for it is over.
    pub(crate) fn end(self) -> Step {
        let (reason, stage) = (self.reason, self.stage);
        let (run, mut out) = self.cancel();
        if matches!(stage, ClosingStage::Preparing { .. }) {
            out.add_note(MachineNote::NoFinalSummary { cause: NoFinalSummary::Time });
        }
        Done::end(run, out, StopReason::Closed(reason))
    }

    pub(crate) fn on_prepared(self, size: RequestSize) -> Step {
        let Self { mut run, reason, due, .. } = self;
        let mut out = StepBuilder::default();
        let max_output = match reserve_summary(&run, &size) {
            Ok(max_output) => max_output,
            Err(cause) => {
                out.add_note(MachineNote::NoFinalSummary { cause });
                return Done::end(run, out, StopReason::Closed(reason));
            }
        };
        if is_too_full(&run, &size) {
            out.add_change(trim_context(&run, &size));
        }
        // A lost call is charged for the request that was sent.
        let sent = Some(size.shortened_estimate).filter(|size| !size.is_zero());
        let size = RequestSize { estimate: sent.unwrap_or(size.estimate), ..size };
        run.model_calls += 1;
        run.requests += 1;
        let (id, purpose) = (run.next_effect.allocate(), CallPurpose::Closing);
        out.add_effect(Effect::CallModel { id, purpose, attempt: 1, max_output });
        let stage = ClosingStage::Sending { id, size };
        out.finish(State::Closing(Self { run, reason, due, stage }))
    }

    pub(crate) fn on_reply(self, reply: Reply) -> Step {
        let (mut run, mut out) = (self.run, StepBuilder::default());
        run.charge_usage(&reply.usage, CallPurpose::Closing, &mut out);
        let text = Some(reply.text()).filter(|text| !text.trim().is_empty());
        if text.is_some() && !reply.has_calls() {
            out.append(ConversationItem::Assistant(reply));
        }
        Done::end_with_output(run, out, StopReason::Closed(self.reason), text)
    }

    pub(crate) fn on_failure(mut self, fault: &Fault) -> Step {
        let mut out = StepBuilder::default();
        if let ClosingStage::Sending { size, .. } = &self.stage {
            let call = (size, CallPurpose::Closing);
            budget::charge_failed_call(&mut self.run, fault, call, &mut out);
        }
        Done::end(self.run, out, StopReason::Closed(self.reason))
    }

    pub(crate) fn cancel(mut self) -> (Box<RunContext>, StepBuilder) {
        let mut out = StepBuilder::default();
        out.cancel(self.stage.pending().0);
        if let ClosingStage::Sending { size, .. } = self.stage {
            let call = (&size, CallPurpose::Closing);
            budget::charge_unanswered_call(&mut self.run, call, &mut out);
        }
        (self.run, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::event::Event;
    use crate::machine::step;
    use crate::types::{
        ContextLimits, Fault, FaultKind, ReplyFinish, ReplyPart, RunLimits, RunRules, TimeSpan,
        ToolCall, Usage,
    };

    #[test]
    fn a_context_that_is_too_full_for_closing_loses_its_oldest_exchanges() {
        let context = ContextLimits { window: Tokens(100), ..ContextLimits::default() };
        let run = RunContext::new(RunRules { context, ..RunRules::default() });
        let size = |context, exchanges| RequestSize {
            estimate: Tokens(context),
            exchanges,
            ..RequestSize::default()
        };
        assert!(is_too_full(&run, &size(96, 2)));
        assert!(!is_too_full(&run, &size(95, 2)));
        // The newest exchange stays.
        assert!(!is_too_full(&run, &size(96, 1)));
    }

    #[test]
    fn a_closing_call_that_exceeds_the_window_is_not_made() {
        let context = ContextLimits { window: Tokens(100), ..ContextLimits::default() };
        let ended = |shortened| {
            let run = RunContext::new(RunRules { context: context.clone(), ..RunRules::default() });
            let next = Closing::enter(run, StepBuilder::default(), CloseReason::MaxSteps);
            let size = RequestSize {
                estimate: Tokens(900),
                shortened_estimate: shortened,
                exchanges: 1,
                ..RequestSize::default()
            };
            step(next.state, Event::Prepared { id: EffectId(1), size, messages: [].into() })
        };
        let next = ended(Tokens(101));
        assert!(matches!(next.state, State::Done(_)));
        assert_eq!(next.notes, [MachineNote::NoFinalSummary { cause: NoFinalSummary::Context }]);
        let next = ended(Tokens(100));
        let State::Closing(Closing { stage: ClosingStage::Sending { size, .. }, .. }) = next.state
        else {
            panic!("not sent")
        };
        // The charge is for the request that was sent.
        assert_eq!(size.estimate, Tokens(100));
    }

    #[test]
    fn a_missing_final_summary_is_reported_with_its_cause() {
        let notes = |limits, event: fn(EffectId) -> Event| {
            let run = RunContext::new(RunRules { limits, ..RunRules::default() });
            let next = Closing::enter(run, StepBuilder::default(), CloseReason::MaxSteps);
            let next = step(next.state, event(EffectId(1)));
            assert!(matches!(next.state, State::Done(_)));
            next.notes
        };
        let prepared =
            |id| Event::Prepared { id, size: RequestSize::default(), messages: [].into() };
        let limits = RunLimits { max_tokens: Some(Tokens(0)), ..RunLimits::default() };
        assert_eq!(
            notes(limits, prepared),
            [MachineNote::NoFinalSummary { cause: NoFinalSummary::Budget }]
        );
        let limits = RunLimits { timeout: Some(TimeSpan::ZERO), ..RunLimits::default() };
        let tick = |_| Event::Tick { now: RunTime::START };
        assert_eq!(
            notes(limits, tick),
            [MachineNote::NoFinalSummary { cause: NoFinalSummary::Time }]
        );
    }

    /// Returns the state after the closing call was sent.
    fn asked() -> State {
        let next = Closing::enter(
            RunContext::new(RunRules::default()),
            StepBuilder::default(),
            CloseReason::MaxSteps,
        );
        let (id, size) = (
            EffectId(1),
            RequestSize {
                estimate: Tokens(70),
                upper_bound: Tokens(80),
                exchanges: 0,
                ..RequestSize::default()
            },
        );
        step(next.state, Event::Prepared { id, size, messages: [].into() }).state
    }

    #[test]
    fn the_closing_call_is_charged_like_others() {
        let state = asked();
        assert_eq!((state.run().model_calls, state.run().requests), (1, 1));
        let billed = Fault { billed: true, ..Fault::new(FaultKind::Server, "broken") };
        let lost = step(state.clone(), Event::CallFailed { id: EffectId(2), fault: billed });
        let free = Fault::new(FaultKind::Server, "broken");
        let failed = step(state, Event::CallFailed { id: EffectId(2), fault: free });
        let paid = [lost, failed].map(|next| next.state.run().used.tokens);
        assert_eq!(paid, [Tokens(70), Tokens(0)]);
    }

    #[test]
    fn a_final_summary_is_kept_unless_it_has_tool_calls() {
        let text = || ReplyPart::Text("so much".into());
        let call = || ReplyPart::Call(ToolCall::new("1".into(), "tool", "{}"));
        for (parts, output, kept) in [
            (vec![text()], Some("so much"), 1),
            // The text counts, but the call will not be answered.
            (vec![text(), call()], Some("so much"), 0),
            (vec![ReplyPart::Text(" ".into())], None, 0),
        ] {
            let (finish, usage) = (ReplyFinish::Stop, Usage::default());
            let reply = Reply { parts: parts.into(), finish, usage, model: None };
            let event = Event::Replied { id: EffectId(2), reply, access: [].into() };
            let next = step(asked(), event);
            let State::Done(done) = &next.state else { panic!("not done") };
            assert_eq!((done.outcome.output.as_deref(), next.changes.len()), (output, kept));
        }
    }

    #[test]
    fn closing_ends_within_its_own_time_and_within_that_of_the_run() {
        let due = |timeout, step_timeout| {
            let limits = RunLimits { timeout, step_timeout, ..RunLimits::default() };
            Closing::due(&RunContext::new(RunRules { limits, ..RunRules::default() }))
        };
        assert_eq!(due(None, None), RunTime::START.after(TimeSpan::from_secs(600)));
        assert_eq!(
            due(None, Some(TimeSpan::from_secs(5))),
            RunTime::START.after(TimeSpan::from_secs(5))
        );
        assert_eq!(
            due(Some(TimeSpan::from_millis(1_000)), None),
            RunTime::START.after(TimeSpan::from_millis(950))
        );
        assert_eq!(
            due(Some(TimeSpan::from_secs(9)), Some(TimeSpan::from_secs(5))),
            RunTime::START.after(TimeSpan::from_secs(5))
        );
    }
}
