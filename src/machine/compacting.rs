//! Compacting: the model sums up the older part of the conversation, or the machine does it without.

use serde::{Deserialize, Serialize};

use super::attempt::CallAttempt;
use super::budget::{self, Unaffordable};
use super::closing::Closing;
use super::deadline::{DeadlineKind, StateDeadlines};
use super::done::Done;
use super::effect::{CallPurpose, CompactionSummary, ConversationChange, MachineNote};
use super::event::{Event, RequestSize};
use super::preparing::Preparing;
use super::retry::RetryDecision;
use super::run_context::RunContext;
use super::state::State;
use super::step::{Step, StepBuilder};
use super::stop_reason::{CloseReason, StopReason};
use crate::model::{Fault, Reply, ReplyFinish, RunTime, Tokens};

/// A summarising call is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compacting {
    /// The account of the run.
    pub run: RunContext,
    /// What is being compacted.
    pub size: RequestSize,
    /// How large the context may be afterwards.
    pub target_size: Tokens,
    /// The call.
    pub attempt: CallAttempt,
}

/// Returns the limit of a summary's output, unless there is no money for one.
pub(super) fn reserve_summary(
    run: &RunContext,
    facts: &RequestSize,
) -> Result<Option<Tokens>, Unaffordable> {
    budget::reserve(run, facts, CallPurpose::Compaction)
}

impl Compacting {
    /// Asks for a summary; without money for one, goes on mechanically.
    pub(super) fn enter(
        mut run: RunContext,
        mut out: StepBuilder,
        facts: RequestSize,
        fit: Tokens,
    ) -> Step {
        out.add_note(MachineNote::Compacting { context: facts.estimate });
        run.compactions.begin(facts.estimate);
        Self::send_attempt(run, out, facts, fit, 1)
    }

    /// Makes attempt `number`; without money or attempts left, goes on mechanically.
    pub(super) fn send_attempt(
        mut run: RunContext,
        mut out: StepBuilder,
        facts: RequestSize,
        fit: Tokens,
        number: u32,
    ) -> Step {
        match reserve_summary(&run, &facts) {
            Ok(max_output) if number <= run.rules.backoff.retries + 1 => {
                let attempt = CallAttempt::send(
                    &mut run,
                    &mut out,
                    CallPurpose::Compaction,
                    number,
                    max_output,
                );
                out.finish(State::Compacting(Self { run, size: facts, target_size: fit, attempt }))
            }
            Ok(_) | Err(Unaffordable) => {
                finish_compaction(run, out, CompactionSummary::Mechanical, &facts, fit)
            }
        }
    }

    /// Returns how many of the newest exchanges stay word for word.
    pub(super) fn kept_exchanges(&self) -> u32 {
        kept_exchanges(&self.run, &self.size)
    }

    pub(super) fn deadlines(&self) -> StateDeadlines<2> {
        StateDeadlines([Some(self.attempt.deadline()), self.run.closing_deadline()])
    }

    pub(super) fn step(self, event: Event) -> Step {
        match event {
            Event::Tick { now } => self.on_tick(now),
            Event::Interrupt { signal } => {
                let (run, out) = self.cancel();
                Done::end(run, out, StopReason::UserInterrupt(signal))
            }
            Event::StoreFailed { error } => {
                let (run, out) = self.cancel();
                Done::fail(run, out, StopReason::StoreError, error)
            }
            Event::InternalError { error } => {
                let (run, out) = self.cancel();
                Done::fail(run, out, StopReason::InternalError, error)
            }
            Event::Replied { reply, .. } => self.on_reply(&reply),
            Event::CallFailed { fault, .. } => self.on_failure(StepBuilder::default(), &fault),
            Event::Prepared { .. }
            | Event::Authorized { .. }
            | Event::ToolCompleted { .. }
            | Event::UsageReported { .. }
            | Event::Checked { .. } => StepBuilder::default().finish(State::Compacting(self)),
        }
    }

    fn on_tick(mut self, now: RunTime) -> Step {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(DeadlineKind::RunTimeout) => {
                let (run, out) = self.cancel();
                Closing::enter(run, out, CloseReason::Timeout)
            }
            Some(DeadlineKind::RetryDue) => self.send_retry(),
            Some(
                DeadlineKind::AttemptTimeout
                | DeadlineKind::StepTimeout
                | DeadlineKind::ClosingTimeout
                | DeadlineKind::ToolTimeout
                | DeadlineKind::EffectTimeout,
            ) => {
                let mut out = StepBuilder::default();
                self.attempt.cancel(&mut out);
                let fault = CallAttempt::timeout_fault(&self.run);
                self.on_failure(out, &fault)
            }
            None => StepBuilder::default().finish(State::Compacting(self)),
        }
    }

    fn send_retry(self) -> Step {
        let Self { run, size: facts, target_size: fit, attempt } = self;
        Self::send_attempt(run, StepBuilder::default(), facts, fit, attempt.number())
    }

    /// A reply that is not a summary is as good as none.
    fn on_reply(self, reply: &Reply) -> Step {
        let Self { mut run, size: facts, target_size: fit, .. } = self;
        let mut out = StepBuilder::default();
        run.charge_usage(&reply.usage, &mut out);
        let summary = match is_summary(reply) {
            true => CompactionSummary::FromModel(reply.text()),
            false => CompactionSummary::Mechanical,
        };
        finish_compaction(run, out, summary, &facts, fit)
    }

    fn on_failure(mut self, mut out: StepBuilder, fault: &Fault) -> Step {
        let call = (&self.size, CallPurpose::Compaction);
        budget::charge_failed_call(&mut self.run, fault, call, &mut out);
        let limit = self.run.closing_deadline().map(|deadline| deadline.at);
        match self.attempt.decide_retry(&self.run, fault, limit) {
            RetryDecision::After(wait) => {
                self.attempt = self.attempt.wait(&self.run, &mut out, wait, fault.kind);
                out.finish(State::Compacting(self))
            }
            RetryDecision::ShrinkRequest | RetryDecision::GiveUp => finish_compaction(
                self.run,
                out,
                CompactionSummary::Mechanical,
                &self.size,
                self.target_size,
            ),
        }
    }

    /// Gives the call up.
    fn cancel(mut self) -> (RunContext, StepBuilder) {
        let mut out = StepBuilder::default();
        self.attempt.abandon(&mut self.run, &mut out, &self.size);
        (self.run, out)
    }
}

/// Returns whether a reply can stand for what it sums up.
pub(super) fn is_summary(reply: &Reply) -> bool {
    reply.finish == ReplyFinish::Stop && reply.has_text() && !reply.has_calls()
}

/// At least one exchange is summed up, also when an overflow leaves no choice.
fn kept_exchanges(run: &RunContext, facts: &RequestSize) -> u32 {
    run.rules.context.keep_recent.min(facts.exchanges.saturating_sub(1))
}

/// Replaces what the newest exchanges don't need, and prepares the next call anew.
fn finish_compaction(
    run: RunContext,
    mut out: StepBuilder,
    summary: CompactionSummary,
    facts: &RequestSize,
    fit: Tokens,
) -> Step {
    out.add_note(MachineNote::Compacted {
        by_model: matches!(summary, CompactionSummary::FromModel(_)),
    });
    out.add_change(ConversationChange::Compact {
        summary,
        keep: kept_exchanges(&run, facts),
        target_size: fit,
    });
    Preparing::enter(run, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ReplyPart, RunRules, ToolCall, Usage};

    #[test]
    fn only_a_whole_text_without_calls_is_a_summary() {
        let text = || ReplyPart::Text("did things".into());
        let call = || ReplyPart::Call(ToolCall::new("1".into(), "tool", "{}"));
        let is_summary = |parts: &[ReplyPart], finish| {
            is_summary(&Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        assert!(is_summary(&[text()], ReplyFinish::Stop));
        assert!(!is_summary(&[text()], ReplyFinish::Length));
        assert!(!is_summary(&[], ReplyFinish::Stop));
        assert!(!is_summary(&[text(), call()], ReplyFinish::Stop));
    }

    #[test]
    fn at_least_one_exchange_is_summed_up() {
        let run = RunContext::new(RunRules::default());
        let kept =
            |exchanges| kept_exchanges(&run, &RequestSize { exchanges, ..RequestSize::default() });
        assert_eq!([kept(0), kept(1), kept(3), kept(4), kept(5), kept(9)], [0, 0, 2, 3, 4, 4]);
    }
}
