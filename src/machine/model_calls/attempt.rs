//! One logical model call: an attempt that is being made, or the wait before the next one.
//!
//! `Calling` and `Compacting` share it. Waiting is a deadline, not an effect.

use serde::{Deserialize, Serialize};

use super::retry;
use crate::machine::budget::charge_unanswered_call;
use crate::machine::effect::{CallPurpose, Effect, EffectKind, MachineNote};
use crate::machine::event::RequestSize;
use crate::machine::output::StepBuilder;
use crate::machine::run_context::RunContext;
use crate::types::{EffectId, Fault, FaultKind, RunTime, TimeSpan, Tokens};

/// The progress of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAttempt {
    /// A request is being sent.
    Sending {
        /// The pending effect.
        id: EffectId,
        /// The attempt, counted from one.
        number: u32,
        /// The time at which the attempt times out.
        due: RunTime,
    },
    /// The previous attempt failed, and the next one waits.
    Waiting {
        /// The next attempt, counted from one.
        number: u32,
        /// The time at which it will be sent.
        until: RunTime,
    },
}

impl CallAttempt {
    /// Sends attempt `number`.
    pub(crate) fn send(
        run: &mut RunContext,
        out: &mut StepBuilder,
        purpose: CallPurpose,
        number: u32,
        max_output: Option<Tokens>,
    ) -> Self {
        if number == 1 {
            run.model_calls += 1;
        }
        run.requests += 1;
        run.received = Tokens::ZERO;
        let cap = run.rules.output.user_limit.unwrap_or(run.rules.output.model_limit);
        if let Some(to) = max_output.filter(|output| *output < cap) {
            out.add_note(MachineNote::OutputLimitLowered { limit: to });
        }
        let id = run.next_effect.allocate();
        out.add_effect(Effect::CallModel { id, purpose, attempt: number, max_output });
        Self::Sending { id, number, due: run.now.after(run.rules.timeouts.attempt) }
    }

    /// Waits before the next attempt.
    pub(crate) fn wait(
        self,
        run: &mut RunContext,
        out: &mut StepBuilder,
        wait: TimeSpan,
        fault: FaultKind,
    ) -> Self {
        run.failing_since = retry::failing_since(run, self.number());
        let number = self.number() + 1;
        out.add_note(MachineNote::Retry { attempt: number, wait, fault });
        Self::Waiting { number, until: run.now.after(wait) }
    }

    /// Cancels the attempt, and charges for it, because the provider may have read the request.
    pub(crate) fn abandon(
        self,
        run: &mut RunContext,
        out: &mut StepBuilder,
        call: (&RequestSize, CallPurpose),
    ) {
        if matches!(self, Self::Sending { .. }) {
            self.cancel(out);
            charge_unanswered_call(run, call, out);
        }
    }

    /// Returns the current or next attempt, counted from one.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Sending { number, .. } | Self::Waiting { number, .. } => number,
        }
    }

    /// Returns the pending effect, if a request is being sent.
    pub(crate) fn pending_call(self) -> Option<(EffectId, EffectKind)> {
        match self {
            Self::Sending { id, .. } => Some((id, EffectKind::CallModel)),
            Self::Waiting { .. } => None,
        }
    }

    /// Cancels the request.
    pub(crate) fn cancel(self, out: &mut StepBuilder) {
        if let Self::Sending { id, .. } = self {
            out.cancel(id);
        }
    }

    /// Returns the fault of an attempt that timed out.
    pub(crate) fn timeout_fault(run: &RunContext) -> Fault {
        let limit = run.rules.timeouts.attempt;
        let message = format!("the model call did not come back within {limit}");
        Fault { billed: true, received: run.received, ..Fault::new(FaultKind::Timeout, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Step, start};
    use crate::types::{ConversationItem, MessageOrigin, OutputLimits, RunRules};

    fn run() -> Box<RunContext> {
        let output = OutputLimits { model_limit: Tokens(40), ..OutputLimits::default() };
        RunContext::new(RunRules { output, ..RunRules::default() })
    }

    /// Returns the context and the step after an attempt is sent.
    fn sent(number: u32, max_output: Option<Tokens>) -> (Box<RunContext>, Step) {
        let (mut run, mut out) = (run(), StepBuilder::default());
        CallAttempt::send(&mut run, &mut out, CallPurpose::Agent, number, max_output);
        let state =
            start(RunRules::default(), ConversationItem::user(MessageOrigin::Task, "task")).state;
        (run, out.finish(state))
    }

    #[test]
    fn a_call_counts_once_and_each_attempt_counts_as_a_request() {
        let count = |number| {
            let (run, _) = sent(number, None);
            (run.model_calls, run.requests)
        };
        assert_eq!([count(1), count(2)], [(1, 1), (0, 1)]);
    }

    #[test]
    fn a_lowered_output_limit_is_reported() {
        let notes = |max_output| sent(1, max_output).1.notes;
        assert_eq!(
            notes(Some(Tokens(39))),
            [MachineNote::OutputLimitLowered { limit: Tokens(39) }]
        );
        assert_eq!(notes(Some(Tokens(40))), []);
        assert_eq!(notes(None), []);
    }

    /// The provider may have read the request.
    #[test]
    fn an_attempt_without_a_reply_is_charged() {
        let mut run = run();
        run.received = Tokens(7);
        let fault = CallAttempt::timeout_fault(&run);
        assert_eq!((fault.billed, fault.received), (true, Tokens(7)));
    }
}
