//! Compacting: the model summarizes the older part of the conversation; if that fails, the machine does.

use serde::{Deserialize, Serialize};

use crate::machine::budget::{self, Unaffordable};
use crate::machine::deadline::{CompactingDeadline, StateDeadlines};
use crate::machine::effect::{CallPurpose, CompactionSummary, ConversationChange, MachineNote};
use crate::machine::event::RequestSize;
use crate::machine::model_calls::attempt::CallAttempt;
use crate::machine::model_calls::retry::{self, RetryDecision};
use crate::machine::output::{Step, StepBuilder};
use crate::machine::run_context::RunContext;
use crate::machine::state::State;
use crate::machine::states::preparing::Preparing;
use crate::types::{Fault, Reply, ReplyFinish, Tokens};

/// The model is asked for a summary.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compacting {
    /// The shared context.
    pub run: Box<RunContext>,
    /// The size of the conversation.
    pub size: RequestSize,
    /// The size to reach.
    pub target_size: Tokens,
    /// The attempt at the call.
    pub attempt: CallAttempt,
}

impl Compacting {
    /// Asks for a summary, or creates a mechanical one if the budget doesn't cover it.
    pub(crate) fn enter(
        mut run: Box<RunContext>,
        mut out: StepBuilder,
        size: RequestSize,
        target_size: Tokens,
    ) -> Step {
        out.add_note(MachineNote::Compacting { context: size.estimate });
        run.compactions.begin(size.estimate);
        Self::send_attempt(run, out, size, target_size, 1)
    }

    /// Sends attempt `number`, or creates a mechanical summary if budget or attempts are used up.
    pub(crate) fn send_attempt(
        mut run: Box<RunContext>,
        mut out: StepBuilder,
        size: RequestSize,
        target_size: Tokens,
        number: u32,
    ) -> Step {
        match budget::reserve(&run, &size, CallPurpose::Compaction) {
            Ok(max_output)
                if run.rules.backoff.retry_for.is_some()
                    || number <= run.rules.backoff.retries + 1 =>
            {
                let purpose = CallPurpose::Compaction;
                let attempt = CallAttempt::send(&mut run, &mut out, purpose, number, max_output);
                out.finish(State::Compacting(Self { run, size, target_size, attempt }))
            }
            Ok(_) | Err(Unaffordable) => {
                finish_compaction(run, out, CompactionSummary::Mechanical, &size, target_size)
            }
        }
    }

    /// Returns the number of newest exchanges that stay unchanged.
    pub(crate) fn kept_exchanges(&self) -> u32 {
        kept_exchanges(&self.run, &self.size)
    }

    pub(crate) fn deadlines(&self) -> StateDeadlines<CompactingDeadline, 2> {
        let attempt = match self.attempt {
            CallAttempt::Sending { due, .. } => (due, CompactingDeadline::AttemptTimeout),
            CallAttempt::Waiting { until, .. } => (until, CompactingDeadline::RetryDue),
        };
        let close = self.run.closing_time().map(|at| (at, CompactingDeadline::RunTimeout));
        StateDeadlines([Some(attempt), close])
    }

    pub(crate) fn on_attempt_timeout(self) -> Step {
        let mut out = StepBuilder::default();
        self.attempt.cancel(&mut out);
        let fault = CallAttempt::timeout_fault(&self.run);
        self.on_failure(out, &fault)
    }

    pub(crate) fn send_retry(self) -> Step {
        let Self { run, size, target_size, attempt } = self;
        Self::send_attempt(run, StepBuilder::default(), size, target_size, attempt.number())
    }

    /// Uses a reply as the summary. A reply that isn't a summary counts as a failure.
    pub(crate) fn on_reply(self, reply: &Reply) -> Step {
        let Self { mut run, size, target_size, .. } = self;
        let mut out = StepBuilder::default();
        run.charge_usage(&reply.usage, CallPurpose::Compaction, &mut out);
        let summary = match is_summary(reply) {
            true => CompactionSummary::FromModel(reply.text()),
            false => CompactionSummary::Mechanical,
        };
        finish_compaction(run, out, summary, &size, target_size)
    }

    pub(crate) fn on_failure(mut self, mut out: StepBuilder, fault: &Fault) -> Step {
        let call = (&self.size, CallPurpose::Compaction);
        budget::charge_failed_call(&mut self.run, fault, call, &mut out);
        let limit = self.run.closing_time();
        match retry::decide(&self.run, self.attempt.number(), fault, limit) {
            RetryDecision::After(wait) => {
                self.attempt = self.attempt.wait(&mut self.run, &mut out, wait, fault.kind);
                out.finish(State::Compacting(self))
            }
            RetryDecision::ShrinkRequest | RetryDecision::GiveUp => {
                let Self { run, size, target_size, .. } = self;
                finish_compaction(run, out, CompactionSummary::Mechanical, &size, target_size)
            }
        }
    }

    pub(crate) fn cancel(mut self) -> (Box<RunContext>, StepBuilder) {
        let mut out = StepBuilder::default();
        self.attempt.abandon(&mut self.run, &mut out, (&self.size, CallPurpose::Compaction));
        (self.run, out)
    }
}

/// Returns whether a reply is usable as a summary.
pub(crate) fn is_summary(reply: &Reply) -> bool {
    reply.finish == ReplyFinish::Stop && reply.has_text() && !reply.has_calls()
}

/// Returns the number of exchanges that stay. At least one is replaced, even if an overflow leaves no choice.
fn kept_exchanges(run: &RunContext, size: &RequestSize) -> u32 {
    run.rules.context.keep_recent.min(size.exchanges.saturating_sub(1))
}

/// Replaces the older exchanges, and prepares the next call.
fn finish_compaction(
    run: Box<RunContext>,
    mut out: StepBuilder,
    summary: CompactionSummary,
    size: &RequestSize,
    target_size: Tokens,
) -> Step {
    out.add_note(MachineNote::Compacted {
        by_model: matches!(summary, CompactionSummary::FromModel(_)),
    });
    out.add_change(ConversationChange::Compact {
        summary,
        keep: kept_exchanges(&run, size),
        target_size,
    });
    Preparing::enter(run, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ReplyPart, RunRules, ToolCall, Usage};

    #[test]
    fn only_a_complete_text_without_calls_is_a_summary() {
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
    fn at_least_one_exchange_is_replaced() {
        let run = RunContext::new(RunRules::default());
        let kept =
            |exchanges| kept_exchanges(&run, &RequestSize { exchanges, ..RequestSize::default() });
        assert_eq!([kept(0), kept(1), kept(3), kept(4), kept(5), kept(9)], [0, 0, 2, 3, 4, 4]);
    }
}
