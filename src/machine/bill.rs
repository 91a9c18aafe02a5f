//! What a run has used so far, by what it was used for.

use super::event::Event;
use super::run::Spent;
use super::state::StateKind;
use crate::model::{Micros, Tokens, Usage};

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
    /// Model calls of the runs within the run, as far as they used anything.
    pub subagent_calls: u32,
}

/// What model calls used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Tokens; of calls that were lost, an estimate.
    pub usage: Usage,
    /// Money; nothing when the model has no price.
    pub cost: Micros,
}

impl Charge {
    /// Returns what was charged between two accounts: what was told of it, or what is estimated for a call that was lost.
    pub fn between(before: Spent, now: Spent, event: Option<&Event>) -> Self {
        let (cost, tokens) = (now.cost.minus(before.cost), now.tokens.minus(before.tokens));
        let lost = |heard: Tokens| {
            let output = heard.min(tokens);
            Usage { input: tokens.minus(output), output, estimated: true, ..Usage::default() }
        };
        let usage = match event {
            Some(Event::Charged { usage, .. }) => *usage,
            Some(Event::Replied { reply, .. }) if reply.usage.total() == tokens => reply.usage,
            Some(Event::Failed { fault, .. }) => lost(fault.heard),
            Some(_) | None => lost(Tokens::ZERO),
        };
        Self { usage, cost }
    }
}

impl Bill {
    /// Takes in what an event has charged, or what the run has when it went on; `met` is the state that this came to,
    /// with its account.
    pub fn take(&mut self, met: (StateKind, Spent), event: Option<&Event>, now: Spent) {
        let (kind, before) = met;
        // What comes too late is not charged.
        if before == now {
            return;
        }
        let Charge { usage, cost } = Charge::between(before, now, event);
        self.subagent_calls += u32::from(matches!(event, Some(Event::Charged { .. })));
        let charge = match event {
            Some(Event::Charged { .. }) => &mut self.subagents,
            Some(_) | None => self.calls_in(kind),
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
