//! Compacting: the model sums up the older part of the conversation, or the machine does it without.

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::budget::{self, Unaffordable};
use super::closing::Closing;
use super::deadline::{Deadlines, Why};
use super::done::Done;
use super::effect::{Change, Note, Purpose, Summary};
use super::event::{Event, Facts};
use super::next::{Next, Out};
use super::preparing::Preparing;
use super::retry::Retry;
use super::run::Run;
use super::state::State;
use super::stop::{CloseReason, StopReason};
use crate::model::{Fault, Finish, Reply, Time, Tokens};

/// A summarising call is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compacting {
    /// The account of the run.
    pub run: Run,
    /// What is being compacted.
    pub facts: Facts,
    /// How large the context may be afterwards.
    pub fit: Tokens,
    /// The call.
    pub attempt: Attempt,
}

/// Returns the limit of a summary's output, unless there is no money for one.
pub(super) fn affordable(run: &Run, facts: &Facts) -> Result<Option<Tokens>, Unaffordable> {
    budget::reserve(run, facts, Purpose::Compaction)
}

impl Compacting {
    /// Asks for a summary; without money for one, goes on mechanically.
    pub(super) fn enter(mut run: Run, mut out: Out, facts: Facts, fit: Tokens) -> Next {
        out.note(Note::Compacting { context: facts.context });
        run.compactions.begin(facts.context);
        Self::again(run, out, facts, fit, 1)
    }

    /// Makes attempt `number`; without money or attempts left, goes on mechanically.
    pub(super) fn again(
        mut run: Run,
        mut out: Out,
        facts: Facts,
        fit: Tokens,
        number: u32,
    ) -> Next {
        match affordable(&run, &facts) {
            Ok(max_output) if number <= run.rules.backoff.retries + 1 => {
                let attempt =
                    Attempt::send(&mut run, &mut out, Purpose::Compaction, number, max_output);
                out.to(State::Compacting(Self { run, facts, fit, attempt }))
            }
            Ok(_) | Err(Unaffordable) => compact(run, out, Summary::Mechanical, &facts, fit),
        }
    }

    /// Returns how many of the newest exchanges stay word for word.
    pub(super) fn keep(&self) -> u32 {
        keep(&self.run, &self.facts)
    }

    pub(super) fn deadlines(&self) -> Deadlines<2> {
        Deadlines([Some(self.attempt.deadline()), self.run.closes()])
    }

    pub(super) fn step(self, event: Event) -> Next {
        match event {
            Event::Tick { now } => self.tick(now),
            Event::Interrupt { signal } => {
                let (run, out) = self.leave();
                Done::end(run, out, StopReason::UserInterrupt(signal))
            }
            Event::StoreFailed { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::StoreError, error)
            }
            Event::Defect { error } => {
                let (run, out) = self.leave();
                Done::fail(run, out, StopReason::InternalError, error)
            }
            Event::Replied { reply, .. } => self.replied(&reply),
            Event::Failed { fault, .. } => self.failed(Out::default(), &fault),
            Event::Prepared { .. }
            | Event::Vetted { .. }
            | Event::Settled { .. }
            | Event::Charged { .. }
            | Event::Checked { .. } => Out::default().to(State::Compacting(self)),
        }
    }

    fn tick(mut self, now: Time) -> Next {
        self.run.now = self.run.now.max(now);
        match self.deadlines().due(self.run.now) {
            Some(Why::RunLimit) => {
                let (run, out) = self.leave();
                Closing::enter(run, out, CloseReason::Timeout)
            }
            Some(Why::RetryDue) => self.retry(),
            Some(
                Why::AttemptLimit
                | Why::StepLimit
                | Why::CloseLimit
                | Why::ToolLimit
                | Why::WatchLimit,
            ) => {
                let mut out = Out::default();
                self.attempt.stop(&mut out);
                let fault = Attempt::overdue(&self.run);
                self.failed(out, &fault)
            }
            None => Out::default().to(State::Compacting(self)),
        }
    }

    fn retry(self) -> Next {
        let Self { run, facts, fit, attempt } = self;
        Self::again(run, Out::default(), facts, fit, attempt.number())
    }

    /// A reply that is not a summary is as good as none.
    fn replied(self, reply: &Reply) -> Next {
        let Self { mut run, facts, fit, .. } = self;
        let mut out = Out::default();
        run.charge(&reply.usage, &mut out);
        let summary = match summary(reply) {
            true => Summary::Written(reply.text()),
            false => Summary::Mechanical,
        };
        compact(run, out, summary, &facts, fit)
    }

    fn failed(mut self, mut out: Out, fault: &Fault) -> Next {
        let call = (&self.facts, Purpose::Compaction);
        budget::charge_failed(&mut self.run, fault, call, &mut out);
        let limit = self.run.closes().map(|deadline| deadline.at);
        match self.attempt.failed(&self.run, fault, limit) {
            Retry::After(wait) => {
                self.attempt = self.attempt.wait(&self.run, &mut out, wait, fault.kind);
                out.to(State::Compacting(self))
            }
            Retry::Smaller | Retry::Never => {
                compact(self.run, out, Summary::Mechanical, &self.facts, self.fit)
            }
        }
    }

    /// Gives the call up.
    fn leave(mut self) -> (Run, Out) {
        let mut out = Out::default();
        self.attempt.abandon(&mut self.run, &mut out, &self.facts);
        (self.run, out)
    }
}

/// Returns whether a reply can stand for what it sums up.
pub(super) fn summary(reply: &Reply) -> bool {
    reply.finish == Finish::Stop && reply.has_text() && !reply.has_calls()
}

/// At least one exchange is summed up, also when an overflow leaves no choice.
fn keep(run: &Run, facts: &Facts) -> u32 {
    run.rules.context.keep_recent.min(facts.exchanges.saturating_sub(1))
}

/// Replaces what the newest exchanges don't need, and prepares the next call anew.
fn compact(run: Run, mut out: Out, summary: Summary, facts: &Facts, fit: Tokens) -> Next {
    out.note(Note::Compacted { written: matches!(summary, Summary::Written(_)) });
    out.change(Change::Compact { summary, keep: keep(&run, facts), fit });
    Preparing::enter(run, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, Rules, ToolCall, Usage};

    #[test]
    fn only_a_whole_text_without_calls_is_a_summary() {
        let text = || Part::Text("did things".into());
        let call = || Part::Call(ToolCall::new("1".into(), "tool", "{}"));
        let is_summary = |parts: &[Part], finish| {
            summary(&Reply { parts: parts.into(), finish, usage: Usage::default(), model: None })
        };
        assert!(is_summary(&[text()], Finish::Stop));
        assert!(!is_summary(&[text()], Finish::Length));
        assert!(!is_summary(&[], Finish::Stop));
        assert!(!is_summary(&[text(), call()], Finish::Stop));
    }

    #[test]
    fn at_least_one_exchange_is_summed_up() {
        let run = Run::new(Rules::default());
        let kept = |exchanges| keep(&run, &Facts { exchanges, ..Facts::default() });
        assert_eq!([kept(0), kept(1), kept(3), kept(4), kept(5), kept(9)], [0, 0, 2, 3, 4, 4]);
    }
}
