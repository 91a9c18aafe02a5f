//! What a run has used so far, by what it was used for.

use super::event::Event;
use super::run::Spent;
use super::state::StateKind;
use crate::model::{Micros, Usage};

/// What a run has used so far, by what it was used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// The task itself.
    pub agent: Charge,
    /// The last word after a watchdog.
    pub closing: Charge,
    /// Summaries of older parts of the conversation.
    pub compaction: Charge,
    /// The runs within the run.
    pub subagents: Charge,
}

/// What model calls used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Tokens; of calls that were lost, an estimate.
    pub usage: Usage,
    /// Money; nothing when the model has no price.
    pub cost: Micros,
}

impl Bill {
    /// Takes in what an event has charged, or what the run has when it went on; `met` is the state that this came to,
    /// with its account.
    pub fn take(&mut self, met: (StateKind, Spent), event: Option<&Event>, now: Spent) {
        let (kind, before) = met;
        let (cost, tokens) = (now.cost.minus(before.cost), now.tokens.minus(before.tokens));
        // What comes too late is not charged.
        if before == now {
            return;
        }
        let lost = Usage { input: tokens, estimated: true, ..Usage::default() };
        let (charge, usage) = match event {
            Some(Event::Charged { usage, .. }) => (&mut self.subagents, *usage),
            Some(Event::Replied { reply, .. }) => (self.calls_in(kind), reply.usage),
            Some(_) | None => (self.calls_in(kind), lost),
        };
        *charge = Charge { usage: charge.usage + usage, cost: charge.cost + cost };
    }

    fn calls_in(&mut self, kind: StateKind) -> &mut Charge {
        match kind {
            StateKind::CompactingSending | StateKind::CompactingWaiting => &mut self.compaction,
            StateKind::ClosingPreparing | StateKind::ClosingSending => &mut self.closing,
            StateKind::Preparing
            | StateKind::CallingSending
            | StateKind::CallingWaiting
            | StateKind::CallingChecking
            | StateKind::Executing
            | StateKind::Done => &mut self.agent,
        }
    }
}
