//! Watching a sub-agent: what it uses is charged to its dispatcher at once, and what it does is told on the way.

use std::sync::{Arc, Mutex, PoisonError};

use crate::machine::{Charge, Effect, Event, Spent, Verdict};
use crate::model::FileChange;
use crate::port::{self, Gone, Notice, Observer, Scope, Word};

/// Watches the run of a sub-agent.
pub(super) struct Meter {
    scope: Scope,
    agent: Arc<str>,
    spent: Spent,
    seen: Seen,
}

/// What was seen of a sub-agent's work.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Vec<FileChange>>>);

impl Seen {
    /// Returns the files that were changed, in order.
    pub(super) fn changes(&self) -> Vec<FileChange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Meter {
    /// Returns a meter that tells the scope of the dispatching call.
    pub(super) fn new(scope: Scope, agent: Arc<str>, seen: Seen) -> Self {
        Self { scope, agent, spent: Spent::default(), seen }
    }

    fn charge(&mut self, event: &Event, now: Spent) {
        let before = std::mem::replace(&mut self.spent, now);
        if now != before {
            let Charge { usage, cost } = Charge::between(before, now, Some(event));
            self.scope.say(Word::Used(usage, cost));
        }
    }
}

impl Observer for Meter {
    fn see(&mut self, seen: &port::Seen<'_>) -> Result<(), Gone> {
        let port::Seen::Event { event, fold, outcomes, .. } = seen else { return Ok(()) };
        let run = fold.state.run();
        self.charge(event, run.spent);
        if let Event::Settled { result, .. } = event {
            let mut changes = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            changes.extend(result.changes.iter().cloned());
        }
        if let Event::Vetted { verdict: Verdict::Abort, .. } = event {
            // Whoever is asked sees one run, and ends all of it.
            self.scope.say(Word::Abort);
        }
        for effect in &outcomes.effects {
            if let Effect::Run { call, .. } = effect {
                let text = format!("{} · {} · {}", self.agent, run.steps, call.name);
                self.scope.tell(Notice::Progress { text: text.into() });
            }
        }
        Ok(())
    }
}
