//! One logical model call: an attempt under way, or the wait before the next one.
//!
//! `Calling` and `Compacting` share it. Attempt and due time are data; waiting is a deadline.

use serde::{Deserialize, Serialize};

use super::deadline::{Deadline, Why};
use super::effect::{Effect, Note, Purpose};
use super::event::Facts;
use super::next::Out;
use super::retry::{self, Retry};
use super::run::Run;
use crate::model::{EffectId, Fault, FaultKind, Span, Time, Tokens};

/// Where a model call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// A request is under way.
    Sending {
        /// The effect that is awaited.
        id: EffectId,
        /// The attempt, counted from one.
        number: u32,
        /// When the attempt is given up.
        due: Time,
    },
    /// The attempt before failed; the next one has to wait.
    Waiting {
        /// The attempt that will be made.
        number: u32,
        /// When it will be made.
        until: Time,
    },
}

impl Attempt {
    /// Sends attempt `number`.
    pub(super) fn send(
        run: &mut Run,
        out: &mut Out,
        purpose: Purpose,
        number: u32,
        max_output: Option<Tokens>,
    ) -> Self {
        if number == 1 {
            run.calls += 1;
        }
        run.sends += 1;
        let cap = run.rules.output.max.unwrap_or(run.rules.output.ceiling);
        if let Some(to) = max_output.filter(|output| *output < cap) {
            out.note(Note::OutputLowered { to });
        }
        let id = run.next.take();
        out.effect(Effect::Call { id, purpose, attempt: number, max_output });
        Self::Sending { id, number, due: run.now.after(run.rules.watch.attempt) }
    }

    /// Returns what follows from a failure of the attempt that is under way, when a retry has to begin before `limit`.
    pub(super) fn failed(self, run: &Run, fault: &Fault, limit: Option<Time>) -> Retry {
        retry::decide(run, self.number(), fault, limit)
    }

    /// Waits before the attempt after this one.
    pub(super) fn wait(self, run: &Run, out: &mut Out, wait: Span, fault: FaultKind) -> Self {
        let number = self.number() + 1;
        out.note(Note::Retry { attempt: number, wait, fault });
        Self::Waiting { number, until: run.now.after(wait) }
    }

    /// Gives the call up: what is under way is stopped, and charged, since the provider may have read it.
    pub(super) fn abandon(self, run: &mut Run, out: &mut Out, facts: &Facts) {
        if self.awaited().is_some() {
            self.stop(out);
            run.charge_lost(facts, out);
        }
    }

    /// Returns the attempt that is under way or will be made, counted from one.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Sending { number, .. } | Self::Waiting { number, .. } => number,
        }
    }

    /// Returns the effect that is awaited, if a request is under way.
    pub(super) fn awaited(self) -> Option<EffectId> {
        match self {
            Self::Sending { id, .. } => Some(id),
            Self::Waiting { .. } => None,
        }
    }

    /// Returns when the call has to be woken.
    pub(super) fn deadline(self) -> Deadline {
        match self {
            Self::Sending { due, .. } => Deadline { at: due, why: Why::AttemptLimit },
            Self::Waiting { until, .. } => Deadline { at: until, why: Why::RetryDue },
        }
    }

    /// Stops an attempt that did not come back in its time.
    pub(super) fn stop(self, out: &mut Out) {
        if let Some(id) = self.awaited() {
            out.effect(Effect::Cancel { id });
        }
    }

    /// Returns the fault of an attempt that did not come back in its time.
    pub(super) fn overdue(run: &Run) -> Fault {
        let limit = run.rules.watch.attempt;
        let message = format!("the model call did not come back within {limit}");
        Fault { billed: true, ..Fault::new(FaultKind::Timeout, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Next, start};
    use crate::model::{Item, Origin, OutputRules, Rules};

    fn run() -> Run {
        let output = OutputRules { ceiling: Tokens(40), ..OutputRules::default() };
        Run::new(Rules { output, ..Rules::default() })
    }

    /// Returns what follows from sending an attempt.
    fn sent(number: u32, max_output: Option<Tokens>) -> (Run, Next) {
        let (mut run, mut out) = (run(), Out::default());
        Attempt::send(&mut run, &mut out, Purpose::Agent, number, max_output);
        let state = start(Rules::default(), Item::user(Origin::Task, "task")).state;
        (run, out.to(state))
    }

    #[test]
    fn a_call_counts_once_and_each_of_its_attempts_is_sent() {
        let count = |number| {
            let (run, _) = sent(number, None);
            (run.calls, run.sends)
        };
        assert_eq!([count(1), count(2)], [(1, 1), (0, 1)]);
    }

    #[test]
    fn the_user_hears_of_an_output_that_is_lower_than_usual() {
        let notes = |max_output| sent(1, max_output).1.notes;
        assert_eq!(notes(Some(Tokens(39))), [Note::OutputLowered { to: Tokens(39) }]);
        assert_eq!(notes(Some(Tokens(40))), []);
        assert_eq!(notes(None), []);
    }

    /// Nobody knows whether the provider has read it.
    #[test]
    fn an_attempt_that_did_not_come_back_is_paid_for() {
        assert!(Attempt::overdue(&run()).billed);
    }
}
